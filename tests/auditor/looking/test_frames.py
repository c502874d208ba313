import io

import pytest
from oddities import animated, jpeg, noisy

from fastfeed.auditor.looking import imagecodes
from fastfeed.auditor.looking.look import look


def of(data, name, **options):
    return {finding.code: finding.text for finding in look(data, name, **options).findings}


@pytest.mark.parametrize("kind", ["GIF", "PNG", "WEBP", "TIFF"])
def test_frames_are_counted(kind):
    found = of(animated(kind), f"a.{kind.lower()}")
    assert found[imagecodes.FRAMES].startswith("5 frames in ")
    assert imagecodes.FRAME_DAMAGED not in found


def test_one_frame_is_nothing_to_talk_about():
    assert of(jpeg(), "a.jpg") == {}


def test_two_pictures_of_a_camera():
    out = io.BytesIO()
    noisy(seed=1).save(out, "MPO", save_all=True, append_images=[noisy(seed=2)])
    found = of(out.getvalue(), "a.jpg")
    assert found[imagecodes.FRAMES].startswith("2 frames")
    assert "another JPEG" in found[imagecodes.TRAILING_BYTES]


def test_a_later_frame_that_is_damaged():
    data = bytearray(animated("PNG"))
    at = data.index(b"fdAT")
    data[at + 8 : at + 200] = bytes(192)
    assert "frame 1 of 5 does not load" in of(bytes(data), "a.png")[imagecodes.FRAME_DAMAGED]
    assert imagecodes.FRAME_DAMAGED not in of(bytes(data), "a.png", strict=False)


def test_an_animation_that_is_cut():
    data = animated("GIF", size=(80, 60))
    found = of(data[: len(data) // 2], "a.gif")
    assert imagecodes.ENDS_EARLY in found or imagecodes.FRAME_DAMAGED in found
