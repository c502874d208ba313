"""A picture that is decoded when its pixels are needed is what Pillow's image is, in any order of steps."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from fusing import counted, jpeg, levels, noisy, with_segment
from helpers import encoded
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, UnidentifiedImageError
from PIL.Image import Resampling, Transpose

from fastfeed.feed.decode import picture as module
from fastfeed.feed.decode.box import Box
from fastfeed.feed.decode.picture import Picture
from fastfeed.feed.fields import decode_rgb
from fastfeed.jpegrows import scan_rows

FILES = {
    "rows": jpeg((70, 90), subsampling="4:2:0", restart_marker_rows=1), "top": jpeg((70, 90)), "gray": jpeg((70, 90), "L"),
    "progressive": jpeg((70, 90), progressive=True), "CMYK": jpeg((70, 90), "CMYK"), "PNG": encoded(noisy((70, 90)), "PNG"),
}  # fmt: skip
STEPS = st.lists(st.sampled_from(["crop", "resize", "across", "upside down"]), max_size=5)
FILTERS = st.sampled_from([Resampling.BILINEAR, Resampling.BICUBIC, Resampling.NEAREST, Resampling.BOX])
WAYS = {"across": Transpose.FLIP_LEFT_RIGHT, "upside down": Transpose.FLIP_TOP_BOTTOM}


def do(step, draw, picture, image):
    """The same to both."""
    if step in WAYS:
        picture.flip(WAYS[step])
        return image.transpose(WAYS[step])
    if step == "resize":
        height, width = draw.draw(st.integers(1, 60)), draw.draw(st.integers(1, 60))
        kernel = draw.draw(FILTERS)
        picture.resize(height, width, kernel)
        return image.resize((width, height), kernel)
    top, left = draw.draw(st.integers(0, image.height - 1)), draw.draw(st.integers(0, image.width - 1))
    height, width = draw.draw(st.integers(1, image.height - top)), draw.draw(st.integers(1, image.width - left))
    picture.crop(Box(top, left, height, width))
    return image.crop((left, top, left + width, top + height))


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(sorted(FILES)), STEPS, st.sampled_from(["image", "array", "write", "levels"]), st.booleans(), st.data())
def test_steps_in_any_order(kind, steps, end, four, draw):
    data = FILES[kind]
    picture, image = Picture.of(data, scan_rows(data), close=False), decode_rgb(data)
    before, module._FOR_PILLOW = module._FOR_PILLOW, "RGBX" if four else "RGB"
    try:  # also as with Pillow-SIMD, which resizes four channels
        for step in steps:
            image = do(step, draw, picture, image)
            assert (picture.height, picture.width) == (image.height, image.width)
        found = ended(picture, end)
    finally:
        module._FOR_PILLOW = before
    assert np.array_equal(found, np.asarray(image))


def ended(picture, end):
    """Its pixels, by one of the ways out."""
    if end == "image":
        image = picture.image()
        assert image.mode == "RGB"
        return np.asarray(image)
    if end == "array":
        found = picture.array()
        assert found.flags.c_contiguous and found.flags.writeable and found.flags.owndata
        return found
    table = np.stack([np.arange(256) * factor for factor in (1, 2, 3)]).astype(np.int32)
    out = np.empty((3, picture.height, picture.width), dtype=np.uint8 if end == "write" else np.int32)
    picture.write(out, None if end == "write" else table)
    back = out if end == "write" else out // np.array([1, 2, 3]).reshape(3, 1, 1)
    return back.transpose(1, 2, 0)


@pytest.mark.parametrize("kind", FILES)
def test_close_resizes_by_torch_where_bilinear(kind):
    exact, close = (Picture.of(FILES[kind], close=close) for close in (False, True))
    for picture in (exact, close):
        picture.crop(Box(3, 5, 80, 60))
        picture.resize(31, 29, Resampling.BILINEAR)
    most, mean = levels(exact.image(), close.image())
    assert most <= 2 and mean < 0.1
    assert (most == 0) == (module.HAS_SIMD or kind in {"CMYK", "PNG"}), "Pillow's images are resized by Pillow"


@pytest.mark.parametrize("kind", FILES)
def test_a_kernel_for_tensors_gets_the_part_as_a_tensor(kind):
    seen = []

    def kernel(tensor, size):
        seen.append(tensor.clone())
        return tensor[:, : size[0], : size[1]]

    picture, whole = Picture.of(FILES[kind], close=True), np.asarray(decode_rgb(FILES[kind]))
    picture.crop(Box(20, 10, 40, 30))
    picture.resize(7, 9, kernel)
    assert seen[0].dtype == torch.uint8 and np.array_equal(seen[0].permute(1, 2, 0), whole[20:60, 10:40])
    assert np.array_equal(picture.array(), whole[20:27, 10:19])
    picture.flip(Transpose.FLIP_LEFT_RIGHT)
    picture.resize(3, 9, kernel)
    assert np.array_equal(picture.array(), whole[20:23, 10:19][:, ::-1])


def test_nothing_is_decoded_for_its_size_and_nothing_is_resized_to_its_own():
    picture = Picture.of(FILES["top"], close=False)
    assert (picture.height, picture.width) == (90, 70)
    picture.resize(90, 70, lambda *_: pytest.fail("it has this size"))
    picture.crop(Box(0, 0, 5, 6))
    assert (picture.height, picture.width) == (5, 6)


def test_a_part_without_pixels_is_pillows():
    picture = Picture.of(FILES["top"], close=False)
    picture.crop(Box(4, 4, 0, 5))
    with counted() as counts:
        picture.resize(5, 5, Resampling.BILINEAR)
    assert picture.image() == decode_rgb(FILES["top"]).crop((4, 4, 9, 4)).resize((5, 5), Resampling.BILINEAR)
    assert counts == {"images decoded by Pillow: a part without pixels": 1}


def test_what_pillow_decodes_is_counted_with_the_reason():
    with counted() as counts:
        for kind in ("rows", "top", "progressive", "CMYK", "PNG", "PNG"):
            Picture.of(FILES[kind], close=False).image()
        Picture.of(FILES["top"], close=False, pillow="because").image()
        broken = FILES["top"][:-100]
        with pytest.raises(OSError, match="truncated"):
            Picture.of(broken, close=False).image()
    assert counts == {
        "images decoded by Pillow: CMYK or other colours": 1, "images decoded by Pillow: no JPEG": 2,
        "images decoded by Pillow: because": 1,
    }  # fmt: skip


def test_files_that_pillow_refuses():
    for data in (b"", b"\xff\xd8\xff", b"no image at all", with_segment(FILES["top"], 0xE0, b"JFIF\0")):
        with pytest.raises(UnidentifiedImageError):
            Picture.of(data, close=False).image()


def test_too_many_pixels_are_pillows_to_refuse(monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 3000)
    with pytest.raises(Image.DecompressionBombError):
        Picture.of(FILES["top"], close=False)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 5000)
    with pytest.warns(Image.DecompressionBombWarning):
        Picture.of(FILES["top"], close=False)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)
    assert Picture.of(FILES["top"], close=False).image().size == (70, 90)


def test_what_pillow_tells_of_a_file():
    data = jpeg(dpi=(72, 72), comment=b"words")
    expected = decode_rgb(data).info
    for pillow in (None, "because"):
        assert Picture.of(data, close=False, pillow=pillow).info() == expected
    assert expected["comment"] == b"words"


@pytest.mark.parametrize("kind", FILES)
def test_copies_of_a_shared_picture(kind):
    data, whole = FILES[kind], np.asarray(decode_rgb(FILES[kind]))
    picture = Picture.of(data, scan_rows(data), close=True)
    picture.shared(Box(30, 7, 30, 63))
    Picture.of(FILES["rows"], close=False).image()  # another one, in the memory of this thread
    parts = [picture.again() for _ in range(2)]
    parts[0].crop(Box(30, 7, 30, 20))
    parts[0].flip(Transpose.FLIP_TOP_BOTTOM)
    parts[1].crop(Box(40, 9, 10, 61))
    assert np.array_equal(parts[0].array(), whole[30:60, 7:27][::-1])
    assert np.array_equal(np.asarray(parts[1].image()), whole[40:50, 9:70])


LARGE = """
import io, json, sys, warnings
import torch
from PIL import Image
from torchvision.transforms import v2
from fastfeed.feed.decode.checked import why_pillow
from fastfeed.feed.decode.images import Images
torch.set_num_threads(1)
warnings.simplefilter("ignore")
with open(sys.argv[1], "rb") as file:
    data = file.read()
assert why_pillow() is None
def mebibytes(name):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(name)) / 1024
def peak(transform):
    images = Images(transform, "close")
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    before = mebibytes("VmRSS")
    images.decoded(data).finished()
    return round(mebibytes("VmHWM") - before), round(mebibytes("VmRSS") - before)
small = io.BytesIO()
Image.new("RGB", (300, 300)).save(small, "JPEG")
data, large = small.getvalue(), data
peak(v2.RandomResizedCrop(224))
data = large
print(json.dumps([peak(v2.CenterCrop(224)), peak(v2.RandomResizedCrop(224, scale=(1.0, 1.0), ratio=(1.0, 1.0)))]))
"""


@pytest.mark.long
def test_an_image_of_a_hundred_megapixels_takes_three_bytes_for_each_pixel_of_its_rows(tmp_path):
    path = tmp_path / "large.jpg"
    Image.linear_gradient("L").resize((10_000, 10_000), Resampling.NEAREST).save(path, "JPEG", quality=50)
    done = subprocess.run([sys.executable, "-c", LARGE, str(path)], capture_output=True, text=True, check=True)
    (half, left), (whole, left_too) = json.loads(done.stdout)
    mebibytes = 10_000 * 10_000 * 3 / 2**20
    assert half < 0.6 * mebibytes
    assert whole < 2.4 * mebibytes
    assert max(left, left_too) < 100
