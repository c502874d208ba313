"""fastfeed/packer/pixels.py: the digest of decoded pixels, by README.md §4.4, and what verify says of rows and pixels."""

import struct

import numpy as np
import pytest
import xxhash
from helpers import encoded, photo, rewrite_index, rewrite_shard
from packing import packed_rows
from PIL import Image

import fastfeed
from fastfeed.archive.dataset import Archive
from fastfeed.jpegrows import read_frame
from fastfeed.packer.pixels import decode, digest


@pytest.mark.parametrize("mode", ["L", "RGB"])
def test_the_digest_is_that_of_pillows_pixels(mode, tmp_path):
    (tmp_path / "a.jpg").write_bytes(encoded(photo(3, (41, 23), mode)))
    frame = read_frame((tmp_path / "a.jpg").read_bytes())
    assert frame is not None
    pixels = np.asarray(Image.open(tmp_path / "a.jpg"))
    content = struct.pack("<III", 41, 23, len(mode)) + pixels.tobytes()
    assert digest(decode((tmp_path / "a.jpg").read_bytes(), frame)) == xxhash.xxh3_64_intdigest(content)


def test_a_decoder_that_warns_is_an_error():
    data = encoded(photo(3, (41, 23)))
    frame = read_frame(data)
    assert frame is not None
    with pytest.raises(ValueError, match=r"(?i)premature end"):
        decode(data[:-30] + b"\xff\xd9", frame)


def test_gigabytes_are_not_decoded():
    data = encoded(photo(3, (41, 23)))
    frame = read_frame(data)
    assert frame is not None
    with pytest.raises(ValueError, match="its 65535 x 65535 pixels are more than 268435456"):
        decode(data, frame._replace(width=65535, height=65535))


def findings(dataset) -> list[str]:
    return [f"{finding.kind}: {finding.text}" for finding in fastfeed.verify(dataset).findings]


def test_i10_i11_a_row_indexed_dataset_is_whole(tmp_path):
    assert findings(packed_rows(tmp_path)) == []


def test_i11_pixels_that_differ_are_named(tmp_path):
    dataset = packed_rows(tmp_path)

    def change(index) -> None:
        (numbers,) = index.column("member", "pixels_xxh3")
        index.replace("member", "pixels_xxh3", numbers[:24] + b"12345678" + numbers[32:])

    rewrite_index(dataset, change)
    (place,) = (place for place in Archive(str(dataset)).places(1) if place.field == "jpg")
    (text,) = findings(dataset)
    assert text.startswith("ShardDamaged: the pixels of a JPEG are not those that were packed")
    assert f"shard {place.shard}, sample 1, key 'cat/001'" in text
    assert f"bytes [{place.start}, {place.stop})" in text
    assert "expected xxh3 3837363534333231" in text


@pytest.mark.parametrize(
    ("first", "text"), [(4, "other rows of a JPEG than the JPEG itself"), (1 << 20, "says no rows of a member")]
)
def test_i10_i7_rows_that_differ_are_named(tmp_path, first, text):
    dataset = packed_rows(tmp_path)

    def change(index) -> None:
        starts, data = index.column("member", "jpeg_intervals")
        at = struct.unpack_from("<Q", starts, 3 * 8)[0]
        index.replace("member", "jpeg_intervals", starts, data[:at] + struct.pack("<I", first) + data[at + 4 :])

    rewrite_index(dataset, change)
    (found,) = findings(dataset)
    assert text in found
    assert "sample 1, key 'cat/001'" in found


def test_i11_other_bytes_with_a_fitting_checksum_are_named(tmp_path):
    """A writer that put another picture there, with rows at the same places: a bit of a quantization table."""
    dataset = packed_rows(tmp_path)
    (place,) = (place for place in Archive(str(dataset)).places(0) if place.field == "jpg")
    raw = bytearray((dataset / place.shard).read_bytes()[place.start : place.stop])
    raw[raw.index(b"\xff\xdb") + 5] ^= 1

    def change(index) -> None:
        (numbers,) = index.column("member", "xxh3")
        index.replace("member", "xxh3", numbers[:8] + struct.pack("<Q", xxhash.xxh3_64_intdigest(raw)) + numbers[16:])

    rewrite_index(dataset, change)
    rewrite_shard(dataset, lambda shard: shard.__setitem__(slice(place.start, place.stop), raw))
    (text,) = findings(dataset)
    assert "the pixels of a JPEG are not those that were packed" in text
    assert "sample 0, key 'cat/000'" in text


def test_a_large_member_is_looked_at_as_well(tmp_path):
    noise = Image.fromarray(np.random.default_rng(1).integers(0, 255, (1500, 2000, 3), dtype=np.uint8))
    large = encoded(noise, quality=100, subsampling="4:4:4", restart_marker_rows=1)
    assert len(large) > 4 << 20
    dataset = packed_rows(tmp_path, {"cat/large.jpg": large})
    assert findings(dataset) == []

    def change(index) -> None:
        (numbers,) = index.column("member", "pixels_xxh3")
        index.replace("member", "pixels_xxh3", numbers[:-8] + b"12345678")

    rewrite_index(dataset, change)
    (text,) = findings(dataset)
    assert "the pixels of a JPEG are not those that were packed" in text
