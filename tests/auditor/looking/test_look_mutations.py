"""Whatever the bytes are, look() comes back, and says of the same bytes the same."""

import random

import pytest
from helpers import encoded
from oddities import animated, jpeg, noisy

from fastfeed.auditor.looking.look import look

KINDS = ("JPEG", "PNG", "WEBP", "AVIF", "GIF", "JPEG2000", "TIFF", "BMP", "PPM", "SGI", "TGA", "DDS", "ICO", "PCX")
FILES = {
    **{f"a.{kind.lower()}": encoded(noisy((60, 40)), kind) for kind in KINDS},
    "progressive.jpg": jpeg((60, 40), progressive=True), "restarts.jpg": jpeg((60, 40), restart_marker_rows=1),
    "frames.png": animated("PNG"), "frames.gif": animated("GIF"), "frames.webp": animated("WEBP"),
    "a.json": b'{"a": [1, 2, "\\ud83d\\ude42"]}', "a.jsonl": b'{"a": 1}\n{"b": 2}\n', "a.csv": b'a,b\n1,2\n"x, y",3\n',
    "a.txt": "größer\n".encode() * 20,
}  # fmt: skip


def mutated(data, source):
    """With a few bits, bytes or pieces changed, added or taken out."""
    changed = bytearray(data)
    for _ in range(source.choice([1, 2, 10])):
        at = source.randrange(len(changed) + 1)
        way = source.randrange(4)
        if way == 0:
            changed[at : at + 1] = bytes((source.randrange(256),))
        elif way == 1:
            changed[at:at] = source.randbytes(source.randrange(8))
        elif way == 2:
            del changed[at : at + source.randrange(40)]
        else:
            changed[at : at + 4] = b"\xff\xff\xff\xff"
    return bytes(changed)


@pytest.mark.parametrize("name", FILES)
def test_it_comes_back(name):
    source = random.Random(name)
    for _ in range(40):
        data = mutated(FILES[name], source)
        first, again = look(data, name), look(data, name)
        assert (first.format, first.findings) == (again.format, again.findings)
        assert all(finding.text and "0x7f" not in finding.text for finding in first.findings)  # no address of an object
