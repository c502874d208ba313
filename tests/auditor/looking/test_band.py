import io

import pytest
from oddities import cut, jpeg, laundered, noisy
from PIL import Image

from fastfeed.auditor.looking.band import grey_rows


def opened(data):
    return Image.open(io.BytesIO(data))


@pytest.mark.parametrize("share", [0.3, 0.6, 0.85])
@pytest.mark.parametrize("seed", range(3))
def test_a_cut_picture_that_was_stored_again(share, seed):
    rows = grey_rows(opened(laundered(cut(jpeg((500, 375), seed=seed), share), (256, 256))))
    assert abs(rows - 256 * (1 - share)) < 20  # a block of pixels that is only in part of grey is not flat


@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_a_whole_picture(mode):
    assert grey_rows(noisy(mode=mode)) == 0


@pytest.mark.parametrize("colour", [0, 255, 100, 200])
def test_bands_of_other_colours_are_not_told(colour):
    image = noisy()
    image.paste((colour,) * 3, (0, 60, 160, 120))
    assert grey_rows(image) == 0


def test_a_colour_whose_mean_is_grey():
    image = noisy()
    image.paste((108, 128, 148), (0, 60, 160, 120))
    assert grey_rows(image) == 0


def test_a_narrow_band_is_not_told():
    image = noisy()
    image.paste((128,) * 3, (0, 115, 160, 120))
    assert grey_rows(image) == 0
    image.paste((128,) * 3, (0, 110, 160, 120))
    assert grey_rows(image) == 10


def test_all_of_a_picture_may_be_grey():
    assert grey_rows(Image.new("RGB", (64, 100), (127, 128, 129))) == 100


@pytest.mark.parametrize("image", [Image.new("P", (64, 64), 128), Image.new("CMYK", (64, 64)), Image.new("L", (64, 8), 128)])
def test_what_is_not_looked_at(image):
    assert grey_rows(image) == 0
