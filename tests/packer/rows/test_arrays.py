import io
import warnings

import numpy as np
import pytest
import torch
from helpers import photo
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from PIL import Image

from fastfeed.errors import UsageError
from fastfeed.packer.rows.arrays import is_array, is_pil, looks_like_an_image, npy, png, scalar


def read(raw):
    return np.lib.format.read_array(io.BytesIO(raw), allow_pickle=False)


def same(found, given):
    """Dtype, shape and bits."""
    assert (found.dtype, found.shape) == (given.dtype, given.shape)
    assert found.tobytes() == np.ascontiguousarray(given).tobytes()


DTYPES = (
    hnp.scalar_dtypes() | hnp.unicode_string_dtypes() | hnp.byte_string_dtypes()
    | hnp.array_dtypes(subtype_strategy=hnp.integer_dtypes() | hnp.floating_dtypes(), max_size=4)
)  # fmt: skip


@given(hnp.arrays(DTYPES, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5)))
def test_any_array_comes_back_with_dtype_shape_and_bits(array):
    same(read(npy("x", array)), array)


@pytest.mark.parametrize(
    "array",
    [
        np.float32(1.5), np.uint64(2**64 - 1), np.bool_(True), np.datetime64("2024-02-29T12:00:00.000000001"),
        np.timedelta64(5, "ns"), np.complex64(1 + 2j), np.float16("nan"), np.array(7), np.zeros((0, 3)),
        np.arange(24).reshape(2, 3, 4)[:, ::-1, ::2], np.asfortranarray(np.ones((2, 3))), np.arange(5, dtype=">f8"),
        np.broadcast_to(np.int8(3), (4, 2)), np.zeros(3, [("box", "<f4", 4), ("name", "S5")]),
        np.rec.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")]), np.longdouble("0.1"),
    ],
    ids=repr,
)  # fmt: skip
def test_odd_arrays_come_back(array):
    found, plain = read(npy("x", array)), np.asarray(array)
    assert found.shape == plain.shape and found.tobytes() == np.ascontiguousarray(plain).tobytes()
    assert found.dtype == plain.dtype or found.dtype.names == plain.dtype.names  # a record is a structure


@pytest.mark.parametrize(
    ("tensor", "array"),
    [
        (torch.arange(6).reshape(2, 3), np.arange(6).reshape(2, 3)),
        (torch.tensor(2.5, requires_grad=True), np.float32(2.5)),
        (torch.ones(2, 3, dtype=torch.float16).T, np.ones((3, 2), np.float16)),
        (torch.tensor([True, False]), np.array([True, False])),
        (torch.nn.Parameter(torch.zeros(2)), np.zeros(2, np.float32)),
        (torch.tensor([1 + 2j]).conj(), np.array([1 - 2j], np.complex64)),
    ],
    ids=["ints", "grad", "transposed", "bools", "parameter", "conjugate"],
)
def test_tensors_are_arrays(tensor, array):
    same(read(npy("x", tensor)), np.asarray(array))


REFUSED = {
    "objects": (np.array([None, "x"]), "an array of Python objects"),
    "masked": (np.ma.masked_array([1, 2], [True, False]), "a masked array"),
    "strings of any length": (np.array(["a", "bb"], dtype=np.dtypes.StringDType()), "an array of Python objects"),
    "fields that overlap": (
        np.zeros(2, np.dtype({"names": ["a", "b"], "formats": ["i4", "i4"], "offsets": [0, 0]})), "which npy does not know",
    ),
    "objects within": (np.zeros(2, [("a", object)]), "an array of Python objects"),
    "sparse": (torch.eye(3).to_sparse(), "a tensor that is torch.sparse_coo"),
    "bfloat16": (torch.zeros(2, dtype=torch.bfloat16), r"a tensor of torch.bfloat16 .*\.float\(\) is exact"),
    "nowhere": (torch.empty(2, device="meta"), "a tensor of torch.float32 that numpy has not"),
    "very many fields": (np.zeros(1, [(f"f{at:03d}", "f4") for at in range(700)]), "700 fields, which numpy would not read"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_npy_would_not_give_back_is_refused(name):
    array, match = REFUSED[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch, about its sparse tensors
        with pytest.raises(UsageError, match=f"column 'target' holds .*{match}"):
            npy("target", array)


def test_arrays_and_images_are_known_without_being_imported():
    assert is_array(np.zeros(1)) and is_array(np.float64(1)) and is_array(torch.zeros(1)) and is_array(np.str_("x"))
    assert not is_array(1.0) and not is_array([1]) and not is_array(memoryview(b"x"))

    class Like:
        dtype, shape = "float32", (2,)

    assert not is_array(Like())  # it may not be what numpy makes of it
    assert is_pil(photo()) and is_pil(Image.new("1", (1, 1))) and not is_pil(np.zeros(1))


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (np.zeros((32, 32), np.uint8), True), (np.zeros((32, 32, 3), np.uint8), True), (np.zeros((3, 32, 32), np.uint8), True),
        (torch.zeros(3, 32, 32), True), (torch.zeros(3, 32, 32, dtype=torch.uint8), True), (np.zeros((32, 32, 4)), True),
        (np.zeros((32, 8), np.uint8), False), (np.zeros((32, 32)), False), (np.zeros((1, 32, 32)), False),
        (np.zeros((10, 32, 32), np.uint8), False), (np.zeros((3, 32, 32), np.int64), False), (np.zeros(3072, np.uint8), False),
        (np.uint8(1), False),
    ],
)  # fmt: skip
def test_arrays_that_look_like_images(array, expected):
    assert looks_like_an_image(array) is expected


def test_a_single_number_is_one():
    assert scalar(np.float32(0.5)) == 0.5 and scalar(torch.tensor(3)) == 3 and scalar(np.bool_(True)) is True
    assert scalar(np.array(7)) == 7 and scalar(np.zeros(1)) is None and scalar(np.complex64(1)) is None
    assert scalar(np.datetime64("2024")) is None


# ------------------------------------------------------------------------------------------------------------- png


def palette(bits):
    image = Image.frombytes("P", (16, 12), bytes((x * 17) % 256 for x in range(192)))
    image.putpalette([value for at in range(bits) for value in (at, 255 - at, 7)])
    return image


def see_through():
    """A palette with an alpha of its own, too short for its indices."""
    image = Image.frombytes("P", (4, 2), bytes([0, 1, 2, 3, 255, 0, 1, 2]))
    image.putpalette([1, 2, 3, 255, 4, 5, 6, 0, 7, 8, 9, 128], "RGBA")
    return image


@pytest.mark.parametrize("image", [
    photo(1), photo(2, mode="L"), photo(3, mode="RGBA"), photo(4, mode="LA"), photo(5).convert("1"), palette(256), palette(4),
    palette(21), Image.frombytes("I;16", (4, 2), bytes(range(16))),
], ids=map(str, range(10)))  # fmt: skip
def test_pixels_of_every_mode_come_back(image):
    with Image.open(io.BytesIO(png("x", image))) as found:
        assert (found.mode, found.size) == (image.mode, image.size)
        assert found.tobytes() == image.tobytes()  # of a palette its indices, also those beyond it (255 is void in a mask)
        if image.mode == "P":
            before, after = image.getpalette(), found.getpalette()
            assert before is not None and after is not None and after[: len(before)] == before


@given(
    hnp.arrays(np.uint8, st.tuples(st.integers(1, 9), st.integers(1, 9)))
    | hnp.arrays(np.uint8, st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(2, 4)))
    | hnp.arrays(np.bool_, st.tuples(st.integers(1, 9), st.integers(1, 9)))
    | hnp.arrays(st.sampled_from(["<u2", ">u2"]), st.tuples(st.integers(1, 9), st.integers(1, 9)))
)
def test_pixels_of_arrays_come_back(array):
    with Image.open(io.BytesIO(png("x", array))) as found:
        assert np.array_equal(np.asarray(found), array)


def test_tensors_have_their_channels_first():
    tensor = torch.arange(3 * 4 * 5, dtype=torch.uint8).reshape(3, 4, 5)
    with Image.open(io.BytesIO(png("x", tensor))) as found:
        assert found.size == (5, 4) and np.array_equal(np.asarray(found), tensor.numpy().transpose(1, 2, 0))
    with Image.open(io.BytesIO(png("x", np.zeros((4, 5, 1), np.uint8)))) as found:
        assert (found.mode, found.size) == ("L", (5, 4))
    with Image.open(io.BytesIO(png("x", np.arange(60, dtype=np.uint8).reshape(4, 15)[:, ::3]))) as found:
        assert np.array_equal(np.asarray(found), np.arange(60).reshape(4, 15)[:, ::3])


@pytest.mark.parametrize(
    ("value", "what"),
    [
        (photo(1).convert("CMYK"), "an image of mode CMYK"), (photo(1).convert("F"), "an image of mode F"),
        (photo(1).convert("I"), "an image of mode I"), (np.zeros((4, 4)), r"an array of float64 and shape \(4, 4\)"),
        (np.zeros((4, 4, 5), np.uint8), "an array of uint8"), (np.zeros((0, 4), np.uint8), "an array of uint8"),
        (np.zeros((4, 4), np.int32), "an array of int32"), (torch.zeros(3, 4, 4), "an array of float32"),
        (np.zeros(5, np.uint8), "an array of uint8"),
    ],
)  # fmt: skip
def test_what_png_cannot_hold_is_refused(value, what):
    with pytest.raises(UsageError, match=f"column 'mask' holds {what}.*, which PNG cannot give back.*encode={{'mask': 'npy'}}"):
        png("mask", value)
