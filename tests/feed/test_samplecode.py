"""Samples as bytes: exactly the same again, or refused."""

import io

import numpy as np
import pytest
import torch
from helpers import photo
from PIL import Image, ImageOps

from fastfeed.feed.samplecode import Unkeepable, decoded, encoded


def again(sample):
    return decoded(encoded(sample))


@pytest.mark.parametrize(
    "value",
    [None, True, 5, 1 << 80, -0.5, float("inf"), "text \udcff \n", b"", b"bytes", (), [], {}, (1, [2, {"a": (b"x", None)}])],
    ids=repr,
)
def test_plain_values(value):
    found = again(value)
    assert found == value and type(found) is type(value)


@pytest.mark.parametrize("dtype", ["u1", "<i8", ">i4", "f4", "f2", "c8", "?", "<U3", "<M8[s]"])
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3)], ids=str)
def test_arrays(dtype, shape):
    value = np.arange(np.prod(shape, dtype=int)).astype(dtype).reshape(shape)
    found = again(value)
    assert found.dtype == value.dtype and found.shape == value.shape and (found == value).all()
    assert type(found) is np.ndarray and found.flags.writeable
    strided = np.arange(24).reshape(4, 6).T[::2]
    assert (again(strided) == strided).all()


def test_scalars_of_numpy_keep_their_type():
    for value in (np.int64(5), np.float32(0.1), np.bool_(True), np.uint8(255)):
        found = again(value)
        assert found == value and type(found) is type(value)


@pytest.mark.parametrize(
    "dtype", [torch.uint8, torch.int64, torch.float32, torch.bfloat16, torch.float16, torch.bool, torch.complex64]
)
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3)], ids=str)
def test_tensors(dtype, shape):
    value = torch.ones(shape).cumsum(0).to(dtype) if shape else torch.tensor(1).to(dtype)
    found = again(value)
    assert found.dtype == value.dtype and found.shape == value.shape and torch.equal(found, value)
    if found.numel() and dtype is torch.float32:
        found += 1


@pytest.mark.parametrize("mode", ["1", "L", "RGB", "RGBA", "CMYK", "I", "F"])
def test_images(mode):
    image = photo(3, mode=mode) if mode in {"L", "RGB", "RGBA", "CMYK"} else photo(3).convert(mode)
    found = again((image, 5))[0]
    assert (found.mode, found.size, found.tobytes()) == (image.mode, image.size, image.tobytes())


def test_what_an_image_says_of_itself_stays():
    image, buffer = photo(3, size=(40, 20)), io.BytesIO()
    exif = image.getexif()
    exif[0x0112] = 6  # to be turned
    image.save(buffer, "jpeg", exif=exif, dpi=(72, 72), icc_profile=b"profile")
    stored = Image.open(buffer)
    stored.info["not plain"] = (b"part", object())
    found = again((stored, stored))
    for image in found:
        assert ImageOps.exif_transpose(image).tobytes() == ImageOps.exif_transpose(stored).tobytes()
        assert image.info == {name: value for name, value in stored.info.items() if name != "not plain"}
    clear = photo(4)
    clear.info["transparency"] = (1, 2, 3)
    assert again(clear).convert("RGBA").tobytes() == clear.convert("RGBA").tobytes()


def test_views_of_memory_are_what_they_show():
    for value in (torch.tensor([1 + 2j, 3j]).conj(), torch._neg_view(torch.tensor([1.0, 2.0])), torch.ones(1).expand(3)):
        assert torch.equal(again(value), value)


class Own(dict[str, int]):
    pass


CIRCLE: list[object] = []
CIRCLE.append(CIRCLE)

REFUSED = {
    "numbered": {1: 2}, "object": object(), "set": {5}, "subclass": Own(), "objects": np.array([object()]),
    "records": np.zeros(2, [("a", "i4")]), "grad": torch.ones(2, requires_grad=True), "sparse": torch.ones(2).to_sparse(),
    "palette": photo(1).convert("P"), "masked": np.ma.array([1]),
    "digits": 10**5000, "circle": CIRCLE,
    "texts": np.array(["a", "b" * 50], np.dtypes.StringDType()),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_anything_else_is_refused(name):
    with pytest.raises(Unkeepable, match="a cache cannot hold"):
        encoded((1, [REFUSED[name]]))
