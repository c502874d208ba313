"""Parts of a JPEG: those that are asked for equal the whole file's, whichever way they are decoded."""

import io
import threading

import numpy as np
import pytest
from fusing import jpeg
from helpers import encoded
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from fastfeed.feed.decode.box import Box
from fastfeed.feed.decode.header import Odd, read_header
from fastfeed.feed.decode.jpeg import CHANNELS, KEPT_BYTES, decode, keep
from fastfeed.jpegrows import scan_rows

OPTIONS = [
    {"subsampling": "4:2:0"}, {"subsampling": "4:4:4"}, {"subsampling": "4:2:2"}, {"progressive": True},
    {"restart_marker_rows": 1, "subsampling": "4:2:0"}, {"restart_marker_rows": 1, "subsampling": "4:4:4"},
    {"restart_marker_blocks": 3}, {"restart_marker_blocks": 1, "subsampling": "4:2:0"},
]  # fmt: skip


def pillows(data):
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


@settings(max_examples=150, deadline=None)
@given(
    st.tuples(st.integers(1, 90), st.integers(1, 200)), st.sampled_from(OPTIONS), st.sampled_from(["RGB", "L"]),
    st.sampled_from(sorted(CHANNELS)), st.booleans(), st.data(),
)  # fmt: skip
def test_a_part_equals_that_of_the_whole(size, options, mode, colours, indexed, draw):
    data = jpeg(
        size, mode, **(options if mode == "RGB" else {name: options[name] for name in options if name != "subsampling"})
    )
    top, left = draw.draw(st.integers(0, size[1] - 1)), draw.draw(st.integers(0, size[0] - 1))
    box = Box(top, left, draw.draw(st.integers(1, size[1] - top)), draw.draw(st.integers(1, size[0] - left)))
    found = decode(data, read_header(data), box, colours, scan_rows(data) if indexed else None)
    assert found.channels == CHANNELS[colours]
    assert np.array_equal(found.of(box)[:, :, :3], pillows(data)[box.top : box.bottom, box.left : box.right])


def test_only_what_is_needed_is_decoded():
    data = jpeg((64, 640), subsampling="4:2:0", restart_marker_blocks=2)
    header, rows = read_header(data), scan_rows(data)
    assert header.cuttable
    assert decode(data, header, Box(321, 33, 10, 20), "RGB", rows).part == Box(320, 32, 11, 32)
    assert decode(data, header, Box(321, 33, 10, 20), "RGB").part == Box(0, 0, 331, 64), "the decoder stops below"
    whole = jpeg((64, 640), progressive=True)
    assert decode(whole, read_header(whole), Box(320, 0, 10, 64), "RGB").part == Box(0, 0, 640, 64)


@pytest.mark.parametrize(
    "kind", [bytes, bytearray, lambda data: memoryview(bytearray(data))], ids=["bytes", "bytearray", "view"]
)
def test_the_file_stays_as_it_is(kind):
    data = jpeg((64, 640))
    given_ = kind(data)
    decode(given_, read_header(given_), Box(0, 0, 10, 64), "RGB")
    assert bytes(given_) == data


def test_what_the_decoder_warns_of_is_odd():
    data = bytearray(jpeg((70, 90)))
    data[len(data) // 2 : len(data) // 2 + 2] = b"\xff\xd9"
    header = read_header(memoryview(data))
    with pytest.raises(Odd, match="warns"):
        decode(memoryview(data), header, Box(0, 0, 90, 70), "RGB")
    assert np.array_equal(decode(memoryview(data), header, Box(0, 0, 8, 70), "RGB").pixels()[:8], pillows(data)[:8])


def test_memory_is_used_again_unless_it_is_kept():
    data = jpeg((64, 48))
    header = read_header(data)
    one = decode(data, header, Box(0, 0, 48, 64), "RGB")
    two = decode(data, header, Box(0, 0, 48, 64), "RGB")
    assert one.memory is two.memory
    keep(two)
    other = jpeg((64, 48), seed=5)
    before = two.pixels().copy()
    three = decode(other, read_header(other), Box(0, 0, 48, 64), "RGB")
    assert three.memory is not two.memory and np.array_equal(two.pixels(), before)
    keep(two)
    assert decode(data, header, Box(0, 0, 48, 64), "RGB").memory is three.memory, (
        "what was kept before is no longer this thread's"
    )


def test_each_thread_has_memory_of_its_own():
    data = jpeg((64, 48))
    found = [decode(data, read_header(data), Box(0, 0, 48, 64), "RGB")]
    thread = threading.Thread(target=lambda: found.append(decode(data, read_header(data), Box(0, 0, 48, 64), "RGB")))
    thread.start()
    thread.join()
    assert found[0].memory is not found[1].memory


def test_the_memory_of_a_large_image_is_given_back():
    large = encoded(Image.new("L", (6000, 4000)), "JPEG")
    assert KEPT_BYTES < 6000 * 4000 * 3
    found = decode(large, read_header(large), Box(0, 0, 4000, 6000), "RGB")
    small = jpeg((64, 48))
    assert decode(small, read_header(small), Box(0, 0, 48, 64), "RGB").memory.nbytes <= KEPT_BYTES
    assert found.pixels().shape == (4000, 6000, 3)
