"""Decoders: each kind of field becomes the value that the table promises, and a refusal says what was wrong."""

import io
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers import encoded, photo
from PIL import Image

from fastfeed.errors import DecodeError, UsageError
from fastfeed.feed.fields import (
    NAMED,
    decode_image,
    decode_image_of_dict,
    decode_int,
    decode_json,
    decode_npy,
    decode_npz,
    decode_raw,
    decode_rgb,
    decode_text,
    decoder_of,
    explain,
)


def saved(write: Callable[..., None], *arrays: Any, **named: Any) -> bytes:
    out = io.BytesIO()
    write(out, *arrays, **named)
    return out.getvalue()


@pytest.mark.parametrize("data", [bytes, bytearray, memoryview], ids=lambda kind: kind.__name__)
def test_each_decoder_takes_bytes_and_views(data: Callable[[bytes], Any]):
    png = encoded(photo(), "PNG")
    assert decode_text(data("caf\u00e9\n".encode())) == "caf\u00e9\n"
    assert decode_json(data(b'{"a": [1, null]}')) == {"a": [1, None]}
    assert decode_int(data(b" -12\n")) == -12
    assert decode_npy(data(saved(np.save, np.arange(6).reshape(2, 3)))).tolist() == [[0, 1, 2], [3, 4, 5]]
    assert {name: a.tolist() for name, a in decode_npz(data(saved(np.savez, x=np.ones(2), y=np.zeros(1)))).items()} == {
        "x": [1, 1],
        "y": [0],
    }
    assert decode_raw(data(b"\0\xff")) == b"\0\xff"
    assert type(decode_raw(data(b"x"))) is bytes
    assert decode_rgb(data(png)).tobytes() == photo().tobytes()


@pytest.mark.parametrize("raw", [b"", b"1.5", b"0x1", b"1 2", b"\xd9\xa3", b"1_000", b"9" * 19, b"one"])
def test_a_class_is_ascii_digits_and_nothing_else(raw: bytes):
    with pytest.raises(ValueError, match="is no whole number"):
        decode_int(raw)


def test_objects_are_never_unpickled():
    objects = np.array([{"a": 1}], dtype=object)
    with pytest.raises(ValueError, match="allow_pickle=False"):
        decode_npy(saved(np.save, objects))
    with pytest.raises(ValueError, match="allow_pickle=False"):
        decode_npz(saved(np.savez, x=objects))


MODES = {
    "1": ("PNG", "1"), "L": ("PNG", "L"), "P": ("PNG", "P"), "I;16": ("PNG", "I;16"), "LA": ("PNG", "LA"),
    "RGB": ("PNG", "RGB"), "RGBA": ("PNG", "RGB"), "CMYK": ("JPEG", "RGB"),
    "F": ("TIFF", "F"), "YCbCr": ("TIFF", "RGB"), "LAB": ("TIFF", "RGB"),
}  # fmt: skip
"""Mode -> a format that stores it, and the mode in a dict sample."""


def picture(mode: str) -> Image.Image:
    if mode == "I;16":
        return Image.fromarray(np.arange(192, dtype=np.uint16).reshape(12, 16) * 300)
    return photo(3).convert("RGB").convert(mode) if mode != "LAB" else Image.new("LAB", (4, 4), (50, 3, 4))


@pytest.mark.parametrize("mode", MODES)
def test_labels_stay_as_stored_and_colours_become_rgb(mode: str):
    kind, wanted = MODES[mode]
    image = picture(mode)
    data = encoded(image, kind, **({"quality": 100} if kind == "JPEG" else {}))
    if Image.open(io.BytesIO(data)).mode != mode:
        pytest.skip("this Pillow opens a YCbCr TIFF as RGB (before 13), and then cannot read it")
    found = decode_image_of_dict(data)
    assert found.mode == wanted
    assert decode_image(data).mode == mode
    assert decode_rgb(data).mode == "RGB"
    if wanted == mode:
        assert found.tobytes() == image.tobytes()
    if mode == "P":
        assert found.getpalette() == image.getpalette()


def test_a_decoded_image_needs_its_file_no_more():
    frames = [photo(number).convert("P") for number in range(2)]
    data = encoded(frames[0], "GIF", save_all=True, append_images=frames[1:])
    image = decode_image(data)
    assert image.copy().size == (16, 12)


def test_info_and_exif_are_those_of_the_file():
    image = photo()
    exif = image.getexif()
    exif[274], exif[271] = 6, "maker"
    data = encoded(image, exif=exif, dpi=(72, 73), comment=b"remark")
    for decode in (decode_rgb, decode_image_of_dict, decode_image):
        found = decode(data)
        assert dict(found.getexif()) == {274: 6, 271: "maker"}
        assert found.info["dpi"] == (72, 73)
        assert found.info["comment"] == b"remark"
        assert found.size == image.size, "never rotated silently"


# ------------------------------------------------------------------------------------------------ the registry
@pytest.mark.parametrize(
    ("field", "raw", "value"),
    [
        ("txt", b"a", "a"),
        ("caption.txt", b"b", "b"),
        ("json", b"[1]", [1]),
        ("boxes.json", b"{}", {}),
        ("cls", b"7", 7),
        ("wav", b"RIFF", b"RIFF"),
        ("pkl", b"\x80\x04.", b"\x80\x04."),
        ("pt", b"PK", b"PK"),
        ("pyd", b"x", b"x"),
        ("id", b"7", b"7"),
        ("bin", b"\0", b"\0"),
    ],
)
def test_a_field_is_decoded_by_its_last_part(field: str, raw: bytes, value: object):
    found = decoder_of(field, {}, alone=False)(raw)
    assert (found, type(found)) == (value, type(value))


def test_an_image_alone_is_rgb_and_one_of_many_is_as_stored():
    palette = encoded(photo(mode="P"), "PNG")
    assert decoder_of("png", {}, alone=True)(palette).mode == "RGB"
    assert decoder_of("mask.png", {}, alone=False)(palette).mode == "P"


def test_overrides_by_field_and_by_last_part():
    palette = encoded(photo(mode="P"), "PNG")
    assert decoder_of("mask.png", {"png": "rgb"}, alone=False)(palette).mode == "RGB"
    assert decoder_of("mask.png", {"png": "rgb", "mask.png": "raw"}, alone=False)(palette) == palette
    assert decoder_of("png", {"mask.png": "raw"}, alone=False)(palette).mode == "P"
    assert decoder_of("rst", {"rst": "text"}, alone=False)(b"x") == "x"
    assert decoder_of("wav", {"wav": len}, alone=False)(b"four") == 4
    assert decoder_of("jpg", {"jpg": "raw"}, alone=True)(b"x") == b"x"


def test_a_users_function_takes_bytes_also_from_a_view():
    decode: Callable[[Any], Any] = decoder_of("wav", {"wav": lambda data: (type(data), data)}, alone=False)
    assert decode(memoryview(b"ab")) == (bytes, b"ab")


def test_every_name_is_a_decoder():
    assert set(NAMED) == {"image", "rgb", "pil", "text", "json", "int", "npy", "npz", "raw"}
    for name in NAMED:
        assert decoder_of("x", {"x": name}, alone=False) is NAMED[name]


def test_a_name_that_is_none():
    with pytest.raises(
        UsageError, match=r"there is no decoder 'pickle': expected a function, or one of image, .*, got 'pickle'"
    ):
        decoder_of("pkl", {"pkl": "pickle"}, alone=False)


# ------------------------------------------------------------------------------------------------ refusals
def refusal(decode: Callable[[bytes], Any], data: bytes, field: str = "x") -> DecodeError:
    try:
        decode(data)
    except Exception as error:  # noqa: BLE001 - any refusal is what is asked for
        return explain(error, field, data, "Leave it out.")
    raise AssertionError("it was decoded")


@pytest.mark.parametrize(
    ("decode", "data", "words"),
    [
        (decode_rgb, b"", "x of 0 bytes cannot be decoded (UnidentifiedImageError: it is empty)"),
        (decode_rgb, b"<!DOCTYPE html>", "Pillow knows no image that begins with b'<!DOCTYPE html>'"),
        (decode_rgb, encoded(photo(0, (300, 300)))[:900], "image file is truncated"),
        (decode_text, b"ab\xe9", "not UTF-8: byte 2 is 0xe9"),
        (decode_json, b"{", "JSONDecodeError"),
        (decode_json, b"[" * 100_000, "RecursionError"),
        (decode_int, b"x", "b'x' is no whole number"),
        (decode_npy, b"x", "ValueError"),
        (decode_npz, b"PK\3\4", "BadZipFile"),
        (decode_npz, saved(np.save, np.ones(1)), "TypeError"),
    ],
    ids=["empty", "page", "cut", "text", "json", "nested", "int", "npy", "npz", "an npy"],
)
def test_a_refusal_in_our_words(decode: Callable[[bytes], Any], data: bytes, words: str):
    error = refusal(decode, data)
    assert words in str(error)
    assert f"x of {len(data)} bytes cannot be decoded" in str(error)
    assert error.hint


def test_hints_say_what_to_do():
    assert "decoders={'txt': 'raw'}" in str(refusal(decode_text, b"\xff", "txt"))
    assert str(refusal(decode_rgb, b"", "jpg")).endswith(". Leave it out.")


def test_a_refusal_without_words_has_the_name_of_its_kind():
    assert "(KeyError: KeyError)" in str(explain(KeyError(), "x", b"", "Leave it out."))


def test_json_round_trip_of_unicode():
    value = {"\u732b": ["\U0001f600", 1.5, True]}
    assert decode_json(json.dumps(value, ensure_ascii=False).encode()) == value
