"""Views: a list of results; as the transform of a dataset, one decode for all."""

import pickle

import pytest
import torchvision.transforms as v1
from fusing import assert_same, counted, fused, jpeg, numbers, unfused
from helpers import encoded, photo
from loading import equal
from PIL.Image import Transpose

import fastfeed
from fastfeed.feed.decode import jpeg as decoder
from fastfeed.feed.decode.box import Box
from fastfeed.feed.decode.images import Images
from fastfeed.feed.decode.many import Sketch
from fastfeed.feed.decode.picture import HAS_SIMD

CROP = v1.Compose([v1.RandomResizedCrop(24, (0.05, 0.3)), v1.RandomHorizontalFlip(), v1.ToTensor()])
COLOURS = v1.Compose([v1.RandomResizedCrop(24), v1.ColorJitter(0.5, 0.5), v1.ToTensor()])


def test_without_a_dataset_it_is_a_list_of_results():
    views = fastfeed.Views(v1.CenterCrop(3), v1.Resize((4, 5)))
    assert [image.size for image in views(photo())] == [(3, 3), (5, 4)]
    assert repr(views).startswith("Views(CenterCrop(size=(3, 3)), Resize(")
    assert repr(pickle.loads(pickle.dumps(views))) == repr(views)
    assert fastfeed.Views()(photo()) == []


@pytest.mark.parametrize("views", [fastfeed.Views(CROP, CROP), fastfeed.Views(COLOURS, CROP, COLOURS)], ids=range(2))
@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"restart_marker_rows": 1}], ids=str)
def test_they_are_equal(views, options):
    data = jpeg((80, 300), **options)
    images = Images(views, "exact")
    for seed in range(8):
        assert_same(images, data, seed)
        assert_same(images, data[: len(data) // 2], seed)
    assert_same(images, encoded(photo(2, (60, 70)), "PNG"))


@pytest.fixture
def decodes(monkeypatch):
    """Top and bottom of each decode."""
    seen = []
    decode = decoder.decode

    def noted(data, header, box, *others):
        seen.append(box)
        return decode(data, header, box, *others)

    monkeypatch.setattr(decoder, "decode", noted)
    return seen


def test_one_decode_of_the_part_that_a_crop_needs(decodes):
    images = Images(fastfeed.Views(*[CROP] * 4), "exact")
    fused(images, jpeg((80, 300)))
    decodes.clear()
    for seed in range(20):
        fused(images, jpeg((80, 300)), seed)
    assert len(decodes) == 20
    assert sum(box.height for box in decodes) < 20 * 250 and sum(box.width for box in decodes) < 20 * 80


def test_one_decode_of_everything_where_something_is_between(decodes):
    images = Images(fastfeed.Views(COLOURS, COLOURS), "exact")
    fused(images, jpeg((80, 300)))
    decodes.clear()
    fused(images, jpeg((80, 300)))
    assert decodes == [Box(0, 0, 300, 80)]


def test_pillow_decodes_once_too():
    images = Images(fastfeed.Views(CROP, COLOURS), "exact")
    with counted() as counts:
        fused(images, encoded(photo(2, (60, 70)), "PNG"))
    assert counts == {"images decoded by Pillow: no JPEG": 1}


def test_close_views_are_resized_by_torch():
    views = fastfeed.Views(CROP, CROP)
    data = jpeg((80, 300))
    (exact, ends), (close, others) = unfused(views, data), fused(Images(views, "close"), data)
    assert equal(ends, others)
    apart = [abs(one - other).max().item() * 255 for one, other in zip(exact, close, strict=True)]
    assert max(apart) < 2.01 and (max(apart) == 0) == HAS_SIMD


def test_what_pillow_tells_of_the_file_is_seen_in_each_view():
    views = fastfeed.Views(v1.CenterCrop(9), v1.Compose([v1.CenterCrop(9), v1.Grayscale()]))
    found, _ = fused(Images(views, "exact"), jpeg(comment=b"words"))
    assert [view.info["comment"] for view in found] == [b"words"] * 2


def test_views_of_views_are_called_as_they_are():
    views = fastfeed.Views(CROP, fastfeed.Views(CROP, CROP))
    found, _ = fused(Images(views, "exact"), jpeg())
    assert equal(numbers(found), numbers(unfused(views, jpeg())[0])) and len(found[1]) == 2


def test_a_sketch_knows_the_part_and_does_the_same_later():
    done = []

    class Noted:
        height, width = 100, 80
        crop = resize = flip = staticmethod(lambda *what: done.append(what))

    sketch = Sketch(100, 80)
    sketch.crop(Box(10, 0, 50, 80))
    sketch.crop(Box(5, 30, 20, 40))
    assert (sketch.part, sketch.height, sketch.width) == (Box(15, 30, 20, 40), 20, 40)
    sketch.flip(Transpose.ROTATE_90)
    sketch.crop(Box(2, 0, 3, 3))
    sketch.resize(7, 8, None)
    assert (sketch.part, sketch.height, sketch.width) == (Box(15, 30, 20, 40), 7, 8)
    assert done == []
    sketch.draw_on(Noted())
    assert done == [(Box(10, 0, 50, 80),), (Box(5, 30, 20, 40),), (Transpose.ROTATE_90,), (Box(2, 0, 3, 3),), (7, 8, None)]
