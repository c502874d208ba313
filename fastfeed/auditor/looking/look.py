"""The door of the room: everything that can be said about one sample's bytes."""

from contextlib import AbstractContextManager
from dataclasses import dataclass, field

import xxhash
from PIL import Image

from fastfeed.auditor.finding import Finding
from fastfeed.auditor.looking import encoding, filecodes, picture, structured, textlook
from fastfeed.auditor.looking.encoding import TEXT_EXTENSIONS, looks_like_text
from fastfeed.auditor.looking.kinds import extension_of, kind_by_magic, kind_in_place_of_an_image, names_an_image
from fastfeed.auditor.looking.picture import MAX_PIXELS, How, Picture
from fastfeed.media import HEAD_BYTES, Codec, probe

DATA, TEXT = "data", "text"
"""Formats of what is no image."""
_EXTENSIONS: dict[Codec, frozenset[str]] = {
    Codec.JPEG: frozenset({"jpg", "jpeg", "jpe", "jfif", "jif", "mpo", "jps"}), Codec.PNG: frozenset({"png", "apng"}),
    Codec.GIF: frozenset({"gif"}), Codec.BMP: frozenset({"bmp", "dib"}), Codec.WEBP: frozenset({"webp"}),
    Codec.TIFF: frozenset({"tif", "tiff"}), Codec.AVIF: frozenset({"avif", "avifs", "heif", "hif"}),
    Codec.HEIF: frozenset({"heic", "heif", "hif", "heics", "heifs"}),
    Codec.JPEG2000: frozenset({"jp2", "j2k", "jpf", "jpx", "j2c", "jpc"}), Codec.JPEGXL: frozenset({"jxl"}),
    Codec.PNM: frozenset({"ppm", "pgm", "pbm", "pnm", "pfm"}), Codec.ICO: frozenset({"ico", "cur"}),
}  # fmt: skip


@dataclass(slots=True)
class Looked:
    """What is known of a sample's bytes."""

    format: str
    """By content: JPEG, JPEG progressive, PNG, WEBP lossless, ..., text, or data."""
    digest: str
    """xxh3-128 of the bytes, 32 hex digits: equal digests are equal bytes."""
    width: int | None = None
    height: int | None = None
    mode: str | None = None
    """Pillow's."""
    findings: list[Finding] = field(default_factory=list)
    characters: int | None = None
    """Of a text."""
    text: str | None = None
    """Decoded, for a tokenizer; None where that failed or it is none."""
    image: Image.Image | None = None
    """Loaded; None where that failed or it is none."""


def look(
    data: bytes,
    name: str,
    *,
    strict: bool = True,
    band: bool = True,
    max_pixels: int = MAX_PIXELS,
    around: AbstractContextManager[object] | None = None,
) -> Looked:
    """Everything that can be said about one sample's bytes.

    Args:
        data: The whole file, or the member of a shard.
        name: Its path or member name: only its extension is believed, and that not far.
        strict: Decode JPEGs a second time with a decoder that warns, search all of their data for markers, verify PNGs, load
            later frames.
        band: Look for a flat grey bottom.
        max_pixels: An image with more is found by its header and not decoded.
        around: Entered for the time in which Pillow opens and loads an image: a clock.

    Raises:
        MemoryError: There is not enough for decoding it.
    """
    looked = Looked(DATA, xxhash.xxh3_128_hexdigest(data))
    if not data:
        looked.findings.append(Finding(filecodes.EMPTY, "it has 0 bytes"))
        return looked
    header, extension = probe(data[:HEAD_BYTES]), extension_of(name)
    how = How(strict, band, max_pixels, around)
    if header.codec is not Codec.UNKNOWN and not (extension in TEXT_EXTENSIONS and looks_like_text(data)):
        return _as_picture(looked, picture.look_at(data, header, how), _misnamed(header.codec, name))
    if names_an_image(name):
        return _as_unknown_image(looked, data, how)
    kind = kind_by_magic(data)
    if kind is not None:
        if kind.code in _NEVER_A_SAMPLE:
            looked.findings.append(Finding(kind.code, kind.text))
        return looked
    return _as_text(looked, data, extension) if extension in TEXT_EXTENSIONS or looks_like_text(data) else looked


def _as_text(looked: Looked, data: bytes, extension: str) -> Looked:
    looked.format = TEXT
    looked.text, looked.findings = encoding.read(data)
    if looked.text is not None:
        looked.characters = len(looked.text)
        looked.findings += [*textlook.findings_of(looked.text), *structured.findings_of(looked.text, extension)]
    return looked


_PERHAPS_AN_IMAGE = frozenset({filecodes.NOT_AN_IMAGE, filecodes.LEADING_BYTES})
"""Of a format without a magic, or with a thumbnail in its header: Pillow is asked."""
_NEVER_A_SAMPLE = frozenset({filecodes.ONLY_ZEROS, filecodes.LFS_POINTER, filecodes.APPLEDOUBLE, filecodes.SYSTEM_FILE})
"""Whatever the name says."""


def _as_picture(looked: Looked, seen: Picture, before: list[Finding]) -> Looked:
    looked.format, looked.image = seen.format, seen.image
    looked.width, looked.height, looked.mode = seen.width or None, seen.height or None, seen.mode or None
    looked.findings = before + seen.findings
    return looked


def _as_unknown_image(looked: Looked, data: bytes, how: How) -> Looked:
    """An image by its name: of a format that only Pillow knows, or something else."""
    kind = kind_in_place_of_an_image(data)
    if kind.code not in _PERHAPS_AN_IMAGE:
        looked.findings.append(Finding(kind.code, kind.text))
        return looked
    seen = picture.look_at(data, probe(b""), how)
    if not seen.format:
        looked.findings.append(Finding(kind.code, kind.text))
        return looked
    return _as_picture(looked, seen, [])


def _misnamed(codec: Codec, name: str) -> list[Finding]:
    extension = extension_of(name)
    if not names_an_image(name) or extension in _EXTENSIONS[codec]:
        return []
    return [Finding(filecodes.WRONG_EXTENSION, f"the name says {extension}, the content is {codec.name}")]
