import pytest
from helpers import encoded, photo
from oddities import animated, jpeg

from fastfeed.auditor.looking.ends import stated_end
from fastfeed.media import Codec

FILES = {
    Codec.WEBP: encoded(photo(), "WEBP"), Codec.GIF: encoded(photo(), "GIF"), Codec.AVIF: encoded(photo(), "AVIF"),
    Codec.JPEG2000: encoded(photo(), "JPEG2000"),
}  # fmt: skip


@pytest.mark.parametrize("codec", FILES)
def test_a_whole_file_ends_where_it_says(codec):
    assert stated_end(codec, FILES[codec]) in {len(FILES[codec]), None}
    assert stated_end(codec, FILES[codec] + bytes(40)) in {len(FILES[codec]), None}


@pytest.mark.parametrize("codec", [Codec.WEBP, Codec.GIF, Codec.AVIF])
@pytest.mark.parametrize("share", [0.4, 0.7, 0.95])
def test_a_cut_file_ends_beyond_itself(codec, share):
    data = FILES[codec]
    part = data[: int(len(data) * share)]
    assert (stated_end(codec, part) or 0) > len(part)


def test_animations():
    for codec in (Codec.GIF, Codec.WEBP):
        data = animated(codec.name)
        assert stated_end(codec, data) == len(data)


def test_what_does_not_say():
    assert stated_end(Codec.BMP, encoded(photo(), "BMP")) is None
    assert stated_end(Codec.JPEG2000, encoded(photo(), "JPEG2000", no_jp2=True)) is None
    assert stated_end(Codec.JPEG, jpeg()) is None


def test_damaged_containers_end_the_walk():
    gif = FILES[Codec.GIF]
    assert stated_end(Codec.GIF, gif[:6]) == 13
    assert stated_end(Codec.GIF, gif[:13] + b"\x07" * 900) is None
    avif = FILES[Codec.AVIF]
    size = int.from_bytes(avif[:4])
    assert stated_end(Codec.AVIF, avif[:size] + b"\0\0\0\4free" + avif[size:]) == size
    assert stated_end(Codec.AVIF, avif[:size] + b"\0\0\0\0mdat" + avif[size:]) is None
    assert stated_end(Codec.AVIF, avif[:size] + b"\0\0\0\1mdat" + (1 << 40).to_bytes(8)) == size + (1 << 40)
