"""Done while decoding, a transform gives what it gives behind Pillow: bit for bit, errors and random numbers included."""

import io
import warnings

import numpy as np
import pytest
import torch
import torchvision.transforms as v1
from fusing import assert_same, by_cjpeg, counted, edges, fused, jpeg, levels, noisy, photos, unfused, with_segment
from helpers import encoded, flipped
from hypothesis import given, settings
from hypothesis import strategies as st
from packing import needs_jpegtran
from PIL import Image, features
from torchvision.transforms import v2

from fastfeed.feed.decode.images import Images
from fastfeed.feed.fields import decode_rgb
from fastfeed.jpegrows import from_column, scan_rows
from fastfeed.packer.rows.transcode import index_rows

CROP = v1.Compose([v1.RandomResizedCrop(32), v1.RandomHorizontalFlip(), v1.PILToTensor()])
"""A fifth of a picture, often: damage below it is not decoded."""
SMALL = v1.Compose([v1.RandomResizedCrop(16, (0.02, 0.2), interpolation=v1.InterpolationMode.BICUBIC), v1.PILToTensor()])
WHOLE = v1.Compose([v1.Resize(40), v1.CenterCrop(32), v1.ToTensor(), v1.Normalize([0.4, 0.5, 0.6], [0.2, 0.3, 0.4])])
TENSORS = v2.Compose([v2.ToImage(), v2.RandomResizedCrop(24), v2.RandomHorizontalFlip(), v2.ToDtype(torch.float32, scale=True)])
IMAGE = v1.Compose([v1.RandomCrop(1), v1.RandomVerticalFlip()])
EXACT = [Images(transform, "exact") for transform in (CROP, SMALL, WHOLE, TENSORS, IMAGE)]
SMALL_IMAGES = EXACT[1]
MOST_LEVELS, MEAN_LEVELS = 2, 0.05


# ------------------------------------------------------------------------------------------------ real files
def test_real_photos_are_equal_bit_for_bit():
    for number, path in enumerate(photos(2)):
        assert_same(EXACT[number % len(EXACT)], path.read_bytes(), number, name=path.name)


@needs_jpegtran
@pytest.mark.parametrize("of_all", [pytest.param(5, marks=pytest.mark.long), 25])
def test_real_photos_whose_rows_are_divided_are_equal_bit_for_bit(of_all):
    divided = 0
    for number, path in enumerate(photos(of_all)):
        data, outcome = index_rows(path.read_bytes())
        rows = from_column(outcome.starts) if outcome.starts else None
        divided += rows is not None
        with counted() as counts:
            for images in EXACT:
                assert_same(images, data, number, rows=rows, name=path.name)
        assert rows is None or not counts, "none went another way"
    assert divided > 15


def test_real_photos_are_close():
    images = Images(v1.Compose([v1.RandomResizedCrop(224), v1.RandomHorizontalFlip(), v1.PILToTensor()]), "auto")
    apart = []
    for number, path in enumerate(photos(2)):
        data = path.read_bytes()
        (one, ends), (other, others) = unfused(images.recipe.whole, data, number), fused(images, data, number)
        apart.append(levels(one, other))
        assert all(map(torch.equal, ends[:1], others[:1]))
    assert max(largest for largest, _ in apart) <= MOST_LEVELS
    assert np.mean([mean for _, mean in apart]) <= MEAN_LEVELS


def test_every_file_of_the_edge_collection_is_equal_or_fails_alike():
    images = 0
    for number, path in enumerate(edges()):
        data = path.read_bytes()
        if decoded_pixels(data) > 1 << 23:
            continue
        assert_same(EXACT[number % len(EXACT)], data, number, name=str(path))
        if data[:2] == b"\xff\xd8":
            images += 1
            assert_same(SMALL_IMAGES, data, number + 1, name=str(path))
    assert images > 50


# ------------------------------------------------------------------------------------------------ made ones
SIZES = st.tuples(st.integers(1, 70), st.integers(1, 70))


def oriented(turn: int) -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = turn
    return exif


JPEGS = st.fixed_dictionaries(
    {"quality": st.integers(1, 100)},
    optional={
        "subsampling": st.sampled_from(["4:4:4", "4:2:2", "4:2:0"]), "progressive": st.booleans(), "optimize": st.just(True),
        "restart_marker_rows": st.integers(1, 3), "restart_marker_blocks": st.integers(1, 7), "comment": st.binary(max_size=40),
        "dpi": st.just((72, 72)), "icc_profile": st.binary(min_size=1, max_size=200), "keep_rgb": st.just(True),
        "exif": st.integers(1, 8).map(oriented),
    },
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(SIZES, st.sampled_from(["RGB", "RGB", "L", "CMYK"]), JPEGS, st.sampled_from(EXACT), st.integers(0, 99))
def test_jpegs_of_all_kinds(size, mode, options, images, seed):
    if mode != "RGB" or "keep_rgb" in options:
        unfit = {"subsampling"} if mode == "RGB" else {"subsampling", "keep_rgb"}
        options = {name: value for name, value in options.items() if name not in unfit}
    data = jpeg(size, mode, seed, **options)
    assert_same(images, data, seed, rows=scan_rows(data))
    assert_same(images, data, seed)


FORMATS = {
    "PNG": ["1", "L", "LA", "P", "RGB", "RGBA", "I;16"], "GIF": ["L", "P"], "BMP": ["1", "L", "P", "RGB"],
    "TIFF": ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "I;16", "F"], "PPM": ["L", "RGB"],
}  # fmt: skip
if features.check("webp"):  # a Pillow-SIMD that was built without its headers has none
    FORMATS["WEBP"] = ["RGB", "RGBA"]


@settings(max_examples=80, deadline=None)
@given(SIZES, st.sampled_from([(kind, mode) for kind in FORMATS for mode in FORMATS[kind]]), st.sampled_from(EXACT))
def test_other_formats(size, kind_mode, images):
    kind, mode = kind_mode
    picture = noisy(size, "L" if mode == "I;16" else mode)
    if mode == "I;16":
        picture = Image.frombytes("I;16", size, np.random.default_rng(0).bytes(2 * size[0] * size[1]))
    assert_same(images, encoded(picture, kind), 1)


@settings(max_examples=60, deadline=None)
@given(SIZES, st.sampled_from(["RGB", "L"]), st.sampled_from(["bilinear", "bicubic", "nearest", "lanczos", "box", "hamming"]))
def test_close_is_close_with_bilinear_and_equal_with_others(size, mode, interpolation):
    crop = v2.RandomResizedCrop((31, 17), interpolation=v2.InterpolationMode(interpolation))
    transform = v2.Compose([crop, v2.RandomHorizontalFlip()])
    data = jpeg(size, mode)
    (one, _), (other, _) = unfused(transform, data), fused(Images(transform, "close"), data)
    assert levels(one, other)[0] <= (MOST_LEVELS if interpolation == "bilinear" else 0)


def test_names_of_filters_mean_what_the_installed_torchvision_takes_them_for():
    """Not every version takes names."""
    for kind in (v1.RandomResizedCrop, v2.RandomResizedCrop, v1.Resize, v2.Resize):
        with warnings.catch_warnings(action="ignore"):
            transform = v1.Compose([kind((31, 17), interpolation="bicubic")])
        assert_same(Images(transform, "exact"), jpeg((40, 50)))


ODD = {
    "4:4:0": ["-sample", "1x2"], "4:1:1": ["-sample", "4x1"], "4:1:0": ["-sample", "4x2"], "1x4": ["-sample", "1x4"],
    "3x1": ["-sample", "3x1"], "1x3": ["-sample", "1x3"], "2x2 and 1x2": ["-sample", "2x2,1x2,1x2"],
    "2x2 and 2x1 and 1x1": ["-sample", "2x2,2x1,1x1"], "colours more": ["-sample", "1x1,2x2,2x2"],
    "arithmetic": ["-arithmetic"], "12 bits": ["-precision", "12"], "lossless": ["-lossless", "1"], "RGB": ["-rgb"],
    "gray": ["-grayscale"], "gray 2x2": ["-grayscale", "-sample", "2x2"], "quality 1, 16-bit tables": ["-quality", "1"],
    "progressive": ["-progressive"], "restarts": ["-restart", "1"], "restarts of 3": ["-restart", "3B"],
    "progressive restarts": ["-progressive", "-restart", "1"],
}  # fmt: skip


@pytest.mark.parametrize("kind", ODD)
def test_jpegs_that_only_cjpeg_writes(kind):
    for size in ((70, 50), (33, 90), (1, 1), (129, 17)):
        data = by_cjpeg(*ODD[kind], size=size)
        for images in EXACT:
            for seed in range(3):
                assert_same(images, data, seed, rows=scan_rows(data), name=f"{kind} {size}")


@pytest.mark.parametrize(
    "scans",
    [
        "0;1;2;",
        "0 1;2;",
        "0: 0-0, 0, 0; 1: 0-0, 0, 0; 2: 0-0, 0, 0; 0: 1-63, 0, 0; 1: 1-63, 0, 0; 2: 1-63, 0, 0;",
        "0,1: 0-0, 0, 0;2: 0-0,0,0;0: 1-63,0,0;1: 1-63,0,0;2: 1-63,0,0;",
    ],
)
def test_jpegs_of_several_scans(scans, tmp_path):
    script = tmp_path / "scans"
    script.write_text(scans)
    data = by_cjpeg("-scans", str(script))
    for images in EXACT:
        assert_same(images, data)


# ------------------------------------------------------------------------------------------------ damaged ones
KINDS = [
    {"subsampling": "4:2:0"}, {"subsampling": "4:4:4", "restart_marker_rows": 1}, {"progressive": True},
    {"subsampling": "4:2:2", "restart_marker_blocks": 2}, {"comment": b"some words", "dpi": (72, 72)},
]  # fmt: skip


@pytest.mark.long
@settings(max_examples=250, deadline=None)
@given(st.sampled_from(KINDS), st.sampled_from(["RGB", "L"]), st.sampled_from(EXACT), st.data())
def test_flipped_bits(kind, mode, images, draw):
    data = jpeg((70, 90), mode, **({} if mode == "L" else kind))
    for bit in draw.draw(st.lists(st.integers(16, 8 * len(data) - 1), min_size=1, max_size=3)):
        data = flipped(data, bit)
    if decoded_pixels(data) < 1 << 22:
        assert_same(images, data, draw.draw(st.integers(0, 5)))


@pytest.mark.long
@settings(max_examples=250, deadline=None)
@given(st.sampled_from(KINDS), st.sampled_from(EXACT), st.data())
def test_bytes_cut_off_put_in_or_made_markers(kind, images, draw):
    data = jpeg((70, 90), **kind)
    at = draw.draw(st.integers(3, len(data) - 2))
    what = draw.draw(st.sampled_from(["cut", "cut and ended", "added", "put in", "left out", "marker"]))
    some = draw.draw(st.binary(min_size=1, max_size=20))
    data = {
        "cut": data[:at], "cut and ended": data[:at] + b"\xff\xd9", "added": data + some,
        "put in": data[:at] + some + data[at:],
        "left out": data[:at] + data[at + len(some) :], "marker": data[:at] + b"\xff" + some[:1] + data[at + 2 :],
    }[what]  # fmt: skip
    if decoded_pixels(data) < 1 << 22:
        assert_same(images, data, draw.draw(st.integers(0, 5)), name=what)


def decoded_pixels(data: bytes) -> int:
    """What the header says, so that a damaged one does not make a test slow."""
    try:
        with warnings.catch_warnings(action="ignore"), Image.open(io.BytesIO(data)) as opened:
            return opened.width * opened.height
    except Exception:  # noqa: BLE001 - broken on purpose
        return 0


def test_a_file_that_ends_below_the_crop_fails_as_pillow_does():
    data = jpeg((200, 200))
    top = v1.Compose([v1.Lambda(convert), v1.CenterCrop(8)])
    assert Images(top, "exact").fuses
    for stop in range(len(data) - 1, len(data) - 40, -1):
        found, _ = fused(EXACT[1], data[:stop])
        assert found is OSError


def convert(image: Image.Image) -> Image.Image:
    return image.convert("RGB")


PECULIAR = {
    "short JFIF": (0xE0, b"JFIF\0"), "short Adobe": (0xEE, b"Adobe"), "short ICC": (0xE2, b"ICC_PROFILE\0"),
    "broken MPF": (0xE2, b"MPF\0" + bytes(30)), "broken Photoshop": (0xED, b"Photoshop 3.0\x008BIM\x03\xed\xff"),
    "short Photoshop": (0xED, b"Photoshop 3.0\x008BIM"),
    "empty APP0": (0xE0, b""), "empty table": (0xDB, b""),
    "short table": (0xDB, bytes(20)), "broken EXIF": (0xE1, b"Exif\0\0" + bytes(20)),
    "16-bit table": (0xDB, b"\x17" + bytes(range(1, 129))),
}  # fmt: skip


@pytest.mark.parametrize("kind", PECULIAR)
def test_segments_that_pillow_refuses_or_not(kind):
    data = with_segment(jpeg(), *PECULIAR[kind])
    for images in EXACT:
        assert_same(images, data, name=kind)


def test_adobe_rgb_and_inverted_colours():
    for transform in (0, 1, 2):
        marked = with_segment(jpeg(subsampling="4:4:4"), 0xEE, b"Adobe\0\x64\0\0\0\0" + bytes([transform]))
        assert_same(EXACT[0], marked)


def test_an_extension_says_nothing():
    """Content decides."""
    data = encoded(noisy(), "PNG")
    assert np.array_equal(np.asarray(decode_rgb(data)), np.asarray(noisy()))
    assert_same(EXACT[0], data)
