"""Whether simplejpeg may decode is asked of the installed Pillow."""

import pytest

from fastfeed.feed.decode import checked, jpeg
from fastfeed.feed.decode.checked import why_pillow
from fastfeed.feed.decode.header import Odd


@pytest.fixture
def asked_anew():
    why_pillow.cache_clear()
    yield
    why_pillow.cache_clear()


def test_here_they_agree(asked_anew):
    assert why_pillow() is None


def test_it_is_asked_once(asked_anew, monkeypatch):
    assert why_pillow() is None
    monkeypatch.setattr(jpeg, "decode", lambda *_: pytest.fail("asked twice"))
    assert why_pillow() is None


def test_other_pixels_are_seen(asked_anew, monkeypatch):
    decode = jpeg.decode

    def other(*arguments):
        found = decode(*arguments)
        pixels = found.pixels()
        pixels[len(pixels) // 2, 0, 0] ^= 1
        return found

    monkeypatch.setattr(jpeg, "decode", other)
    assert why_pillow() == "simplejpeg's pixels differ from Pillow's (subsampling=0)"


def test_a_refusal_is_seen(asked_anew, monkeypatch):
    def refused(*_):
        raise Odd("the decoder warns")

    monkeypatch.setattr(jpeg, "decode", refused)
    assert why_pillow() == "simplejpeg does not read what Pillow writes (subsampling=0: the decoder warns)"


def test_all_samplings_that_pillow_writes_are_asked_for():
    assert {kind.get("subsampling") for kind in checked._KINDS} >= {0, 1, 2}
    assert any(kind.get("progressive") for kind in checked._KINDS) and any(kind.get("mode") == "L" for kind in checked._KINDS)
