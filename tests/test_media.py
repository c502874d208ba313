"""fastfeed/media.py: what a file's head says is what Pillow says, and nothing that a file holds makes probe() raise."""

import os
import struct
import time
import warnings
from pathlib import Path
from typing import Any

import pytest
from helpers import SHARED_DATA, encoded, photo
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import ExifTags, Image, features

from fastfeed.media import HEAD_BYTES, NOT_AN_IMAGE, Codec, Probe, is_lossless_jpeg2000, is_lossless_webp, probe, sniff

SIZE = (37, 23)
CODECS = {
    "JPEG": Codec.JPEG, "MPO": Codec.JPEG, "PNG": Codec.PNG, "GIF": Codec.GIF, "BMP": Codec.BMP, "WEBP": Codec.WEBP,
    "TIFF": Codec.TIFF, "AVIF": Codec.AVIF, "JPEG2000": Codec.JPEG2000, "PPM": Codec.PNM, "ICO": Codec.ICO,
}  # fmt: skip
"""Pillow's name of a format -> ours; formats that are not here are UNKNOWN to us."""
FORMATS: list[tuple[str, str, dict[str, Any]]] = [
    ("JPEG", "RGB", {}), ("JPEG", "L", {}), ("JPEG", "CMYK", {}), ("JPEG", "RGB", {"progressive": True}),
    ("JPEG", "RGB", {"comment": b"\xff\xc0\x00\x11 is no frame header in a comment"}),
    ("JPEG", "RGB", {"icc_profile": bytes(150_000)}), ("PNG", "RGB", {}), ("PNG", "L", {}), ("PNG", "LA", {}),
    ("PNG", "RGBA", {}), ("PNG", "P", {}), ("PNG", "1", {}), ("PNG", "I;16", {}),
    ("GIF", "P", {}), ("GIF", "L", {}), ("BMP", "RGB", {}), ("BMP", "L", {}), ("BMP", "1", {}),
    ("WEBP", "RGB", {}), ("WEBP", "RGB", {"lossless": True}), ("WEBP", "RGBA", {}), ("WEBP", "RGBA", {"lossless": True}),
    ("WEBP", "RGB", {"icc_profile": b"x" * 99}), ("TIFF", "RGB", {}), ("TIFF", "L", {}), ("TIFF", "1", {}), ("TIFF", "F", {}),
    ("TIFF", "RGB", {"compression": "tiff_lzw"}), ("PPM", "RGB", {}), ("PPM", "L", {}), ("PPM", "1", {}),
]  # fmt: skip
if features.check("avif"):
    FORMATS += [("AVIF", "RGB", {}), ("AVIF", "RGBA", {})]
if features.check("jpg_2000"):
    FORMATS += [("JPEG2000", "RGB", {}), ("JPEG2000", "L", {}), ("JPEG2000", "RGB", {"no_jp2": True})]


def shown(form):
    return "-".join([form[0], form[1], *form[2]])


def with_orientation(kind, orientation):
    exif = Image.Exif()
    exif[ExifTags.Base.Make] = "a maker"
    exif[ExifTags.Base.Orientation] = orientation
    return encoded(photo(size=SIZE), kind, exif=exif)


def pillow_says(path: Path) -> Probe | None:
    """Codec, size and orientation by Pillow; None where it does not open. Orientation 0 where Pillow cannot read it."""
    try:
        image = Image.open(path)
    except Exception:  # noqa: BLE001 - Pillow raises whatever a broken file makes it raise
        return None
    with image:
        width, height = image.size
        try:
            orientation = int(image.getexif().get(ExifTags.Base.Orientation, 0))
        except Exception:  # noqa: BLE001 - the same
            orientation = 0
        if image.format == "TIFF" and orientation in {5, 6, 7, 8}:  # Pillow tells the size as turned, probe() as stored
            width, height = height, width
        return Probe(CODECS.get(image.format or "", Codec.UNKNOWN), width, height, orientation)


@pytest.mark.parametrize("form", FORMATS, ids=shown)
@pytest.mark.parametrize("size", [SIZE, (1, 1), (300, 2)], ids=str)
def test_size_and_codec_are_pillows(form, size):
    kind, mode, options = form
    image = Image.new(mode, size) if mode in {"I;16", "F"} else photo(size=size, mode=mode)
    assert probe(encoded(image, kind, **options)) == (CODECS[kind], *size, 0)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_exif_orientation_is_pillows(tmp_path, kind, orientation):
    path = tmp_path / "x"
    path.write_bytes(with_orientation(kind, orientation))
    assert probe(path.read_bytes()) == Probe(CODECS[kind], *SIZE, orientation) == pillow_says(path)


@pytest.mark.parametrize("orientation", [0, 9, 65535])
def test_an_orientation_that_does_not_exist_is_unknown(orientation):
    assert probe(with_orientation("JPEG", orientation)).orientation == 0


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize(("kind", "code"), [(3, "H"), (4, "I"), (9, "i")])
def test_exif_in_both_byte_orders_and_all_number_types(order, kind, code):
    head = b"II*\0" if order == "<" else b"MM\0*"
    value = struct.pack(order + code, 6).ljust(4, b"\0")
    exif = head + struct.pack(order + "IHHHI", 8, 1, 274, kind, 1) + value + bytes(4)
    assert probe(encoded(photo(size=SIZE), exif=b"Exif\0\0" + exif)) == Probe(Codec.JPEG, *SIZE, 6)


@pytest.mark.parametrize("form", ['tiff:Orientation="6"', "<tiff:Orientation>6</tiff:Orientation>"])
@pytest.mark.parametrize("kind", ["JPEG", "WEBP", "PNG"])
def test_orientation_from_xmp_where_exif_has_none(kind, form):
    xmp = f"<x:xmpmeta>{form}</x:xmpmeta>".encode()
    if kind == "PNG":
        from PIL.PngImagePlugin import PngInfo

        info = PngInfo()
        info.add_itxt("XML:com.adobe.xmp", xmp.decode())
        raw = encoded(photo(size=SIZE), kind, pnginfo=info)
    else:
        raw = encoded(photo(size=SIZE), kind, xmp=xmp)
    assert probe(raw) == Probe(CODECS[kind], *SIZE, 6)
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 3
    if kind != "PNG":
        assert probe(encoded(photo(size=SIZE), kind, xmp=xmp, exif=exif)).orientation == 3


def test_a_damaged_exif_block_never_costs_the_picture_its_size():
    for exif in (b"Exif\0\0", b"Exif\0\0II*\0\xff\xff\xff\xff", b"Exif\0\0MM\0*\0\0\0\x08\xff\xff\x01\x12"):
        assert probe(encoded(photo(size=SIZE), exif=exif)) == Probe(Codec.JPEG, *SIZE, 0)


def test_a_bottom_up_and_a_top_down_bmp_have_a_positive_height():
    raw = bytearray(encoded(photo(size=SIZE), "BMP"))
    struct.pack_into("<i", raw, 22, -SIZE[1])
    assert probe(bytes(raw)) == Probe(Codec.BMP, *SIZE, 0)


def test_an_os2_bmp():
    raw = b"BM" + struct.pack("<IHHI", 26, 0, 0, 26) + struct.pack("<IHHHH", 12, *SIZE, 1, 24)
    assert probe(raw) == Probe(Codec.BMP, *SIZE, 0)


@pytest.mark.parametrize("head", [b"P6 37 23 255\n", b"P4\n# made by hand\n37 23\n", b"P2#c\n#d\n 37\t\n23 255 "])
def test_pnm_headers_with_comments(head):
    assert probe(head) == Probe(Codec.PNM, *SIZE, 0)


@pytest.mark.parametrize(
    ("head", "codec"),
    [
        (b"\0\0\0\x1cftypavif", Codec.AVIF), (b"\0\0\0\x1cftypmif1\0\0\0\0avif", Codec.AVIF),
        (b"\0\0\0\x18ftypheic", Codec.HEIF),
        (b"\0\0\0\x18ftypmif1\0\0\0\0heic", Codec.HEIF), (b"\0\0\0\x18ftypisom", Codec.UNKNOWN),
        (b"\xff\x0a\0\0", Codec.JPEGXL),
        (b"\0\0\0\x0cJXL \r\n\x87\n", Codec.JPEGXL), (b"\xff\x4f\xff\x51", Codec.JPEG2000), (b"II+\0", Codec.TIFF),
        (b"RIFF\0\0\0\0WAVE", Codec.UNKNOWN), (b"BM is how this text begins, and it is no bitmap", Codec.UNKNOWN),
        (b"P6 is a number and a letter", Codec.UNKNOWN), (b"{}", Codec.UNKNOWN), (b"", Codec.UNKNOWN),
        (b"\0" * 64, Codec.UNKNOWN),
        (b"MM\0*", Codec.TIFF), (b"GIF88a", Codec.UNKNOWN), (b"\x89PNG\n", Codec.UNKNOWN), (b"\xff\xd8", Codec.UNKNOWN),
    ],
)  # fmt: skip
def test_sniff(head, codec):
    assert sniff(head) is codec
    assert probe(head).codec is codec


def test_the_numbers_of_codecs_are_those_of_the_format():
    """They are stored: archive/README.md §4.2 lists them, and a number is never reused."""
    assert {codec.name: int(codec) for codec in Codec} == {
        "UNKNOWN": 0, "JPEG": 1, "PNG": 2, "GIF": 3, "BMP": 4, "WEBP": 5, "TIFF": 6, "AVIF": 7, "HEIF": 8, "JPEG2000": 9,
        "JPEGXL": 10, "PNM": 11, "ICO": 12,
    }  # fmt: skip


def test_what_is_no_image_says_so():
    assert probe(b"a text about pictures") == NOT_AN_IMAGE == Probe(Codec.UNKNOWN, 0, 0, 0)


def test_sizes_that_cannot_be_are_unknown():
    png = bytearray(encoded(photo(), "PNG"))
    struct.pack_into(">II", png, 16, 0xFFFFFFFF, 5)
    assert probe(bytes(png)) == Probe(Codec.PNG, 0, 0, 0)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from([b"", b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"GIF89a", b"BM", b"RIFF\0\0\0\0WEBP", b"II*\0", b"MM\0*",
    b"\0\0\0\x1cftypavif", b"\xff\x4f\xff\x51", b"P6 ", b"\0\0\1\0"]), st.binary(max_size=300))  # fmt: skip
def test_no_bytes_make_it_raise(magic, rest):
    found = probe(magic + rest)
    assert found.codec is sniff(magic + rest)
    assert 0 <= found.width < 1 << 31
    assert 0 <= found.height < 1 << 31
    assert 0 <= found.orientation <= 8


REAL = [encoded(photo(size=SIZE), kind, **options) for kind, mode, options in FORMATS if mode == "RGB"]
REAL += [with_orientation(kind, 6) for kind in ("JPEG", "PNG", "WEBP", "TIFF")]


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(REAL), st.data())
def test_no_cut_and_no_mutation_of_a_real_image_makes_it_raise(raw, data):
    whole = probe(raw)
    cut = probe(raw[: data.draw(st.integers(0, len(raw)), "cut")])
    assert cut.codec in {whole.codec, Codec.UNKNOWN}
    changed = bytearray(raw)
    change = st.tuples(st.integers(0, min(len(raw), 600) - 1), st.integers(0, 255))
    for at, value in data.draw(st.lists(change, max_size=8), "changes"):
        changed[at] = value
    assert isinstance(probe(bytes(changed)), Probe)


@pytest.mark.parametrize(
    "head",
    [
        b"P6" + b" " * (1 << 16) + b"x", b"P6" + b"#\n" * (1 << 15) + b"x", b"P6 " + b"#" * (1 << 16),
        b"\xff\xd8" + b"\xff" * (1 << 18),
        b"\xff\xd8\xff" + b"\0\xff" * (1 << 17), b"\x89PNG\r\n\x1a\n" + bytes(1 << 18), b"RIFF\0\0\0\0WEBP" + bytes(1 << 18),
        b"\0\0\0\x1cftypavif" + b"ispe" * (1 << 16), b"II*\0\x08\0\0\0\xff\xff" + bytes(1 << 18),
    ],
    ids=lambda head: repr(head[:12]),
)  # fmt: skip
def test_a_hostile_head_costs_no_more_than_its_length(head):
    began = time.process_time()
    probe(head)
    assert time.process_time() - began < 0.5


EDGE = SHARED_DATA / "edge-images"
DIFFERENCES = {
    "pillow/crash-2020-10-test.tif": "repeated tags: Pillow takes the last",
    "pillow/crash-63b1dffefc8c075ddc606c0a2f5fdc15ece78863.tif": "repeated tags: Pillow takes the last",
    "pillow/crash-74d2a78403a5a59db1fb0a2b8735ac068a75f6e3.tif": "repeated tags: Pillow takes the last",
    "pillow/exif_imagemagick_orientation.png": "EXIF as text in a PNG (Raw profile type exif) is not read",
    "pillow/exif_text.png": "EXIF as text in a PNG (Raw profile type exif) is not read",
    "pillow/hopper_bigtiff.tif": "BigTIFF: the size stays unknown",
    "pillow/icc_profile_big.jpg": "the frame header comes behind HEAD_BYTES",
    "pillow/ifd_tag_type.tiff": "the directory comes behind HEAD_BYTES",
    "pillow/tiff_tiled_raw.tif": "the directory comes behind HEAD_BYTES",
    "pillow/avif/xmp_tags_orientation.avif": "orientation of AVIF (irot, imir, XMP) is not read",
}  # fmt: skip


@pytest.mark.skipif(not EDGE.is_dir(), reason="../shared/data/edge-images is not there")
def test_odd_and_broken_images_are_seen_as_pillow_sees_them():
    differing, compared = {}, 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for folder, _, names in os.walk(EDGE):
            for path in (Path(folder, name) for name in sorted(names)):
                with path.open("rb") as file:
                    found = probe(file.read(HEAD_BYTES))
                pillow = pillow_says(path)
                if pillow is None or pillow.codec is Codec.UNKNOWN:
                    continue
                compared += 1
                if found != (Probe(Codec.ICO, 0, 0, 0) if pillow.codec is Codec.ICO else pillow):
                    differing[str(path.relative_to(EDGE))] = (found, pillow)
    assert compared > 600
    assert set(differing) == set(DIFFERENCES), {name: differing.get(name) for name in set(differing) ^ set(DIFFERENCES)}


@pytest.mark.parametrize("more", [{}, {"exif": b"Exif\0\0MM\0*\0\0\0\x08\0\0"}, {"icc_profile": b"odd"}], ids=str)
def test_whether_a_webp_is_lossless(more):
    for mode in ("RGB", "RGBA"):
        image = photo(2, (40, 30), mode)
        assert is_lossless_webp(encoded(image, "WEBP", lossless=True, **more))
        assert not is_lossless_webp(encoded(image, "WEBP", quality=80, **more))
    assert not is_lossless_webp(b"") and not is_lossless_webp(encoded(photo(), "WEBP", lossless=True)[:12])


@pytest.mark.parametrize("kind", ["jp2", "j2k"])
def test_jpeg_2000_that_keeps_its_pixels(kind):
    """In boxes and bare; what does not say so may keep them."""
    lossy, lossless = (
        encoded(photo(1, (40, 20)), "JPEG2000", irreversible=irreversible, no_jp2=kind == "j2k")
        for irreversible in (True, False)
    )
    assert [is_lossless_jpeg2000(lossless), is_lossless_jpeg2000(lossy)] == [True, False]
    assert is_lossless_jpeg2000(lossy[: lossy.index(b"\xff\x52") + 13])
    assert is_lossless_jpeg2000(b"no image") and is_lossless_jpeg2000(b"")
