"""What bytes are that are no image of a known codec, told from their first bytes.

Sources: RFC 1952 (gzip), RFC 8878 (Zstandard), APPNOTE 4.3.7 (zip), AppleSingle/AppleDouble 2.0, MS-CFB 2.2 (Thumbs.db), the
Git LFS pointer specification v1, the .DS_Store buddy allocator's header.
"""

import re
from typing import NamedTuple

from fastfeed.auditor.finding import Code
from fastfeed.auditor.looking import filecodes
from fastfeed.media import IMAGE_EXTENSIONS

HEAD_BYTES = 1024
MORE_IMAGE_EXTENSIONS = frozenset({
    "fli", "flc", "blp", "cur", "dcx", "ftc", "ftu", "gbr", "im", "msp", "bw", "rgb", "rgba", "xbm", "xpm", "pfm", "vda", "vst",
    "icb", "jps",
})  # fmt: skip
"""Beyond those that pack takes for images: names under which Pillow reads pictures too."""
_JPEG_SOI = re.compile(rb"\xff\xd8\xff[\xc0-\xfe]")
_LEADING_BYTES = 1024
"""How far behind the start a JPEG is looked for: a blank line, a byte order mark, HTTP headers."""


class Kind(NamedTuple):
    """A kind of bytes."""

    code: Code
    text: str
    """What it is, in words."""


_MAGICS = (
    (b"version https://git-lfs.github.com/spec", filecodes.LFS_POINTER, "a Git LFS pointer"),
    (b"\x00\x05\x16\x07", filecodes.APPLEDOUBLE, "AppleDouble metadata"),
    (b"\x00\x05\x16\x00", filecodes.APPLEDOUBLE, "AppleSingle data"),
    (b"\x00\x00\x00\x01Bud1", filecodes.SYSTEM_FILE, "a .DS_Store of macOS"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", filecodes.SYSTEM_FILE, "an OLE file, as Thumbs.db of Windows is one"),
    (b"[.ShellClassInfo]", filecodes.SYSTEM_FILE, "a desktop.ini of Windows"),
    (b"\x1f\x8b", filecodes.COMPRESSED, "gzip data"), (b"PK\x03\x04", filecodes.COMPRESSED, "a zip archive"),
    (b"\x28\xb5\x2f\xfd", filecodes.COMPRESSED, "Zstandard data"), (b"BZh", filecodes.COMPRESSED, "bzip2 data"),
    (b"\xfd7zXZ\x00", filecodes.COMPRESSED, "xz data"), (b"7z\xbc\xaf\x27\x1c", filecodes.COMPRESSED, "a 7z archive"),
    (b"Rar!\x1a\x07", filecodes.COMPRESSED, "a RAR archive"),
    (b"%PDF-", filecodes.NOT_AN_IMAGE, "a PDF document"), (b"\x1aE\xdf\xa3", filecodes.NOT_AN_IMAGE, "a WebM video"),
    (b"OggS", filecodes.NOT_AN_IMAGE, "an Ogg stream"), (b"ID3", filecodes.NOT_AN_IMAGE, "an MP3 file"),
    (b"RIFF", filecodes.NOT_AN_IMAGE, "a RIFF file (WAV or AVI)"), (b"fLaC", filecodes.NOT_AN_IMAGE, "a FLAC file"),
    (b"\x93NUMPY", filecodes.NOT_AN_IMAGE, "a NumPy array"), (b"SQLite format 3\0", filecodes.NOT_AN_IMAGE, "a database"),
)  # fmt: skip
_BEGINNINGS = tuple(magic for magic, _, _ in _MAGICS)
_CONTROLS = bytes(set(range(32)) - set(b"\t\n\r\f\x1b"))
_HTML = re.compile(rb"<!doctype html|<html|<head[ >]|<body[ >]", re.IGNORECASE)
_SVG = re.compile(rb"<svg[ >\r\n\t]|<!doctype svg", re.IGNORECASE)


def extension_of(name: str) -> str:
    """Lower-case, without its dot; empty where a name has none."""
    base = name.rpartition("/")[2]
    return base.rpartition(".")[2].lower() if "." in base.lstrip(".") else ""


def names_an_image(name: str) -> bool:
    """Whether a name's extension is one of an image."""
    extension = extension_of(name)
    return extension in IMAGE_EXTENSIONS or extension in MORE_IMAGE_EXTENSIONS


def kind_by_magic(data: bytes) -> Kind | None:
    """What bytes are that cannot be mistaken for a text or an image of a known codec; None where no magic fits.

    Args:
        data: The whole file, not empty.
    """
    if data[:1] == b"\0" and not data.strip(b"\0"):
        return Kind(filecodes.ONLY_ZEROS, f"all of its {len(data):,} bytes are zero")
    if not data.startswith(_BEGINNINGS):  # most texts end here
        return None
    code, text = next((code, text) for magic, code, text in _MAGICS if data.startswith(magic))
    return Kind(code, f"it is {text}")


def kind_in_place_of_an_image(data: bytes) -> Kind:
    """What bytes are that should be an image and that no decoder knows.

    Args:
        data: The whole file, not empty.
    """
    found = kind_by_magic(data) or _markup(data[:HEAD_BYTES]) or _late_jpeg(data)
    return found or Kind(filecodes.NOT_AN_IMAGE, f"no image format that is known begins with {data[:16]!r}")


def _markup(head: bytes) -> Kind | None:
    """A page, a drawing, an answer of an API, or another text."""
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if start[:1] == b"<":
        if _SVG.search(head):
            return Kind(filecodes.SVG, "it is an SVG drawing")
        if _HTML.search(head):
            return Kind(filecodes.HTML, f"it begins with {_shown(start)}")
        return Kind(filecodes.NOT_AN_IMAGE, f"it is XML or another markup: {_shown(start)}")
    if start[:1] in {b"{", b"["} and not has_controls(head):
        return Kind(filecodes.JSON_ANSWER, f"it begins with {_shown(start)}")
    if not has_controls(head):
        return Kind(filecodes.NOT_AN_IMAGE, f"it is text: {_shown(start)}")
    return None


def _late_jpeg(data: bytes) -> Kind | None:
    match = _JPEG_SOI.search(data, 1, _LEADING_BYTES + 4)
    if match is None:
        return None
    return Kind(
        filecodes.LEADING_BYTES, f"a JPEG begins at byte {match.start()}; before it stands {data[: min(match.start(), 16)]!r}"
    )


def has_controls(head: bytes) -> bool:
    """Whether there are bytes that no text in an encoding built on ASCII has."""
    return len(head.translate(None, _CONTROLS)) < len(head)


def _shown(start: bytes) -> str:
    return repr(start[:60].decode("utf-8", "replace"))
