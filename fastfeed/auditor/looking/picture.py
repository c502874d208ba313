"""One image: its header is read, it is decoded where that is safe, and everything that can be said about it is."""

import re
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from PIL import Image, UnidentifiedImageError

from fastfeed.auditor.finding import Finding
from fastfeed.auditor.looking import frames, imagecodes, jpeglook, modes, orientation, pnglook, profile
from fastfeed.auditor.looking.band import grey_rows
from fastfeed.auditor.looking.decoding import Decoded, Refused, decode, told, verify_error
from fastfeed.auditor.looking.subject import Subject
from fastfeed.media import Codec, Probe
from fastfeed.units import format_size

MAX_PIXELS = 89_478_485
"""From here on Pillow warns of a decompression bomb (Image.MAX_IMAGE_PIXELS as it is installed): not decoded."""
REFUSED_PIXELS = 2 * MAX_PIXELS
"""From here on Pillow raises."""
BOMB_PIXELS, BOMB_PIXELS_PER_BYTE = 16_000_000, 100
"""Both together make a bomb: a photo has about 2 pixels a byte, a drawing of a page 50."""
DEAD_BYTES = 64 << 10
_JPEG_MAGIC = b"\xff\xd8\xff"
_NOT_IN_PILLOW = frozenset({Codec.HEIF, Codec.JPEGXL, Codec.TIFF})
"""Of the last, those whose header can be read: Pillow has no mode for some depths and numbers of channels."""
_TRUNCATED = re.compile("truncat|not enough image data", re.IGNORECASE)
_UNSUPPORTED = re.compile("unsupported|not supported|unknown raw mode|not configured", re.IGNORECASE)
_WHY_GREY = frozenset({imagecodes.TRUNCATED, imagecodes.CORRUPT_DATA})
_WHY_VERIFY_FAILS = frozenset({imagecodes.NO_IEND, imagecodes.CHUNK_DAMAGED, imagecodes.CHUNK_ODD})


@dataclass(frozen=True, slots=True)
class How:
    """What is done to an image."""

    strict: bool = True
    """Decode JPEGs a second time with a decoder that warns, search all of their data for markers, verify PNGs, load later
    frames."""
    band: bool = True
    """Look for a flat grey bottom."""
    max_pixels: int = MAX_PIXELS
    """An image with more is not decoded."""
    around: AbstractContextManager[object] | None = None
    """Entered for the time in which Pillow opens and loads it."""


@dataclass(slots=True)
class Picture:
    """What is known of an image."""

    format: str
    width: int
    height: int
    mode: str
    findings: list[Finding] = field(default_factory=list)
    image: Image.Image | None = None
    """Loaded; None where that failed or was not tried."""


def look_at(data: bytes, probe: Probe, how: How) -> Picture:
    """Everything about one image.

    Args:
        data: The whole file.
        probe: What its header says; UNKNOWN where only Pillow may know it.
        how: What is done.

    Raises:
        MemoryError: There is not enough for decoding it.
    """
    subject = Subject.of(data, probe, thorough=how.strict)
    found = _bombs(subject)
    if subject.pixels > how.max_pixels:
        decoded = Decoded(error=Refused(f"{subject.pixels:,} pixels: at most {how.max_pixels:,} are decoded here"))
    else:
        decoded = decode(data, how.max_pixels, how.around)
    if decoded.error is not None and not how.strict:
        subject = Subject.of(data, probe)  # why, says all of it
    name = subject.format_of(decoded.format)
    found += _costs(subject.codec, name) + _of_format(subject, decoded, how) + _warnings(decoded) + _waste(subject)
    if decoded.image is not None:
        told_already = any(finding.code in _WHY_GREY for finding in found)
        found += _of_pixels(subject, decoded.image, band=how.band and not told_already)
        found += frames.findings_of(decoded.image, data, tried=how.strict)
        if how.strict:
            found += _verified(subject, found)
    width, height = probe.width or decoded.width, probe.height or decoded.height
    return Picture(name, width, height, decoded.mode, found, decoded.image)


def _bombs(subject: Subject) -> list[Finding]:
    """What the header's pixels alone tell."""
    pixels, size_bytes = subject.pixels, len(subject.data)
    if pixels < BOMB_PIXELS:
        return []
    text = f"{pixels:,} pixels in a file of {format_size(size_bytes)}"
    if pixels > REFUSED_PIXELS:
        return [Finding(imagecodes.PIXELS_REFUSED, f"{text}; Pillow's limit is {REFUSED_PIXELS:,}")]
    if pixels > MAX_PIXELS:
        return [Finding(imagecodes.PIXELS_MANY, f"{text}; Pillow warns from {MAX_PIXELS:,} on")]
    if pixels >= BOMB_PIXELS_PER_BYTE * size_bytes:
        return [Finding(imagecodes.PIXEL_BOMB, f"{text}: {pixels // size_bytes:,} a byte")]
    return []


def _costs(codec: Codec, name: str) -> list[Finding]:
    """Formats that take long to decode."""
    if codec is Codec.JPEG2000:
        return [Finding(imagecodes.HEAVY_FORMAT, "about 300 ms a megapixel; a JPEG takes 7")]
    if codec in {Codec.AVIF, Codec.HEIF} or name == "WEBP lossless":
        return [Finding(imagecodes.COSTLY_FORMAT, f"{name}: 20 to 30 ms a megapixel; a JPEG takes 7")]
    return []


def _of_format(subject: Subject, decoded: Decoded, how: How) -> list[Finding]:
    """What the format's own rules tell, and why decoding failed where it did."""
    error = decoded.error
    if isinstance(error, Image.DecompressionBombError):
        return [Finding(imagecodes.PIXELS_REFUSED, told(error))]
    if isinstance(error, ValueError) and "MAX_TEXT_" in str(error):
        return [Finding(imagecodes.TEXT_BOMB, told(error))]
    refused = [Finding(imagecodes.NOT_DECODED, str(error))] if isinstance(error, Refused) else []
    if subject.jpeg is not None:
        return refused + jpeglook.findings_of(subject.data, subject.jpeg, decoded, strict=how.strict)
    if subject.png is not None:
        return refused + pnglook.findings_of(subject.data, subject.png, decoded)
    return refused or _of_container(subject, decoded)


def _of_container(subject: Subject, decoded: Decoded) -> list[Finding]:
    """Of other formats: whether the end is there, and what the decoder said."""
    end, size_bytes, error = subject.end, len(subject.data), decoded.error
    missing = f"the file ends at byte {size_bytes:,}, its container at {end:,} or later" if end and end > size_bytes else ""
    if error is None:
        return [Finding(imagecodes.ENDS_EARLY, missing)] if missing else []
    what = told(error)
    if missing or _TRUNCATED.search(what):
        return [Finding(imagecodes.TRUNCATED, f"{missing} ({what})" if missing else what)]
    unknown = isinstance(error, UnidentifiedImageError) and subject.codec in _NOT_IN_PILLOW
    if _UNSUPPORTED.search(what) or (unknown and (subject.pixels or subject.codec is not Codec.TIFF)):
        return [Finding(imagecodes.UNSUPPORTED, f"{subject.format_of(decoded.format)}: {what}")]
    return [Finding(imagecodes.UNDECODABLE, what)]


def _of_pixels(subject: Subject, image: Image.Image, *, band: bool) -> list[Finding]:
    """What the decoded picture tells."""
    found = modes.findings_of(image, modes.stored_bits(subject.codec, subject.data))
    rows = grey_rows(image) if band else 0
    if rows:
        found.append(Finding(imagecodes.GREY_BAND, f"the last {rows} of {image.height} rows are one flat grey of 128"))
    found += profile.findings_of(image) if subject.jpeg is None or not subject.jpeg.icc_broken else []
    if subject.jpeg is not None and not subject.jpeg.has_exif:  # most photos: asking Pillow costs something
        return found
    return found + orientation.findings_of(image, subject.codec, subject.probe.orientation)


def _verified(subject: Subject, found: list[Finding]) -> list[Finding]:
    """What verify() refuses of a PNG and nothing else has told; of other formats it looks at no more than open() does."""
    if subject.png is None or any(finding.code in _WHY_VERIFY_FAILS for finding in found):
        return []
    error = verify_error(subject.data)
    return [Finding(imagecodes.VERIFY_FAILS, told(error))] if error is not None else []


def _warnings(decoded: Decoded) -> list[Finding]:
    """What Pillow warned of, but for what has a code of its own."""
    if not decoded.warnings:
        return []
    texts = [text for text in decoded.warnings if not text.startswith("DecompressionBombWarning")]
    exif = [text for text in texts if "EXIF" in text]
    others = [text for text in texts if text not in exif]
    found = [Finding(imagecodes.EXIF_BAD, "; ".join(exif))] if exif else []
    return [*found, Finding(imagecodes.DECODER_WARNING, "; ".join(others))] if others else found


def _waste(subject: Subject) -> list[Finding]:
    """Bytes that are read and not used."""
    found, data, metadata = list[Finding](), subject.data, subject.metadata_bytes
    if metadata > DEAD_BYTES and 2 * metadata > len(data):
        found.append(Finding(imagecodes.METADATA_LARGE, f"{format_size(metadata)} of {format_size(len(data))}"))
    end = subject.end
    if end is not None and len(data) > end:
        start = data[end : end + 8]
        what = "another JPEG" if start.startswith(_JPEG_MAGIC) else repr(start)
        code = imagecodes.DEAD_BYTES if len(data) - end >= DEAD_BYTES else imagecodes.TRAILING_BYTES
        found.append(Finding(code, f"{format_size(len(data) - end)} behind byte {end:,}, beginning with {what}"))
    return found
