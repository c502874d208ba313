"""What is wrong or odd about a JPEG, beyond what Pillow says: its markers, its damage, how much of it is real."""

from fastfeed.auditor.finding import Finding, Severity
from fastfeed.auditor.looking import imagecodes
from fastfeed.auditor.looking.decoding import Decoded, told
from fastfeed.auditor.looking.jpegwalk import JpegStructure
from fastfeed.auditor.looking.strictpass import real_rows, strict_warning
from fastfeed.units import format_count

MAX_SCANS = 100
"""A camera or an encoder writes ten or so."""
_EOI = b"\xff\xd9"
_EIGHT_BITS = 8
_SHOWN_STRAYS = 3


def findings_of(data: bytes, structure: JpegStructure, decoded: Decoded, *, strict: bool) -> list[Finding]:
    """What there is to say.

    Args:
        data: The whole file.
        structure: Its markers.
        decoded: What came of it in Pillow.
        strict: Decode it with a decoder that warns, too.
    """
    found = _structure(structure)
    if decoded.refused:
        return found
    if decoded.error is not None:
        damage = [_failure(data, structure, decoded.error)]
    else:
        damage = _damage(data, structure) if strict and structure.scans <= MAX_SCANS else []
    if any(one.code.severity is Severity.ERROR for one in damage):  # then "the pixels are right" is not true of stray bytes
        found = [one for one in found if one.code is not imagecodes.STRAY_BYTES]
    return found + damage


def _structure(structure: JpegStructure) -> list[Finding]:
    """What the markers alone tell."""
    found = list[Finding]()
    if structure.scans > MAX_SCANS:
        found.append(
            Finding(imagecodes.SCAN_BOMB, f"{structure.scans:,} scans over {structure.width}x{structure.height} pixels")
        )
    elif structure.progressive:
        found.append(Finding(imagecodes.PROGRESSIVE, format_count(structure.scans, "scan")))
    if structure.arithmetic:
        found.append(Finding(imagecodes.ARITHMETIC, f"the frame is SOF{structure.frame - 0xC0}"))
    elif structure.scans and not structure.has_huffman and not structure.lossless:
        found.append(Finding(imagecodes.NO_TABLES, "there is no DHT before the first scan"))
    if structure.stray:
        places = ", ".join(f"{span.stop - span.start} at byte {span.start}" for span in structure.stray[:_SHOWN_STRAYS])
        more = ", ..." if len(structure.stray) > _SHOWN_STRAYS else ""
        found.append(Finding(imagecodes.STRAY_BYTES, f"stray bytes: {places}{more}"))
    if structure.icc_broken:
        found.append(Finding(imagecodes.ICC_BAD, f"its {format_count(len(structure.icc), 'piece')} do not number from 1 on"))
    return found


def _failure(data: bytes, structure: JpegStructure, error: Exception) -> Finding:
    """Why Pillow refuses it."""
    what = told(error)
    if structure.precision > _EIGHT_BITS or (structure.lossless and structure.frame):
        kind = f"{structure.precision} bits a sample" + (", lossless" if structure.lossless else "")
        return Finding(imagecodes.UNSUPPORTED, f"a JPEG of {kind} ({what})")
    if structure.lost_at >= 0:
        return Finding(imagecodes.UNDECODABLE, f"decoders stop at byte {structure.lost_at} ({what})")
    missing = _missing(structure)
    if missing:
        return Finding(imagecodes.HEADER_DAMAGED, f"{missing} ({what})")
    if structure.eoi < 0:
        return _cut(data, structure, what)
    return Finding(imagecodes.UNDECODABLE, what)


def _missing(structure: JpegStructure) -> str:
    """What decoding needs and the header does not have."""
    if structure.cut_segment and structure.first_scan < 0:
        return ""  # cut within the header: that is told as such
    if not structure.frame:
        return "there is no frame header (SOF)"
    if structure.height == 0 and structure.has_late_height:
        return "a marker behind the first scan states the height (DNL), which libjpeg does not read"
    if structure.height == 0 or structure.width == 0:
        return f"the frame header states {structure.width}x{structure.height} pixels"
    if structure.scans == 0:
        return "" if structure.eoi < 0 else "there is no scan (SOS)"
    return "" if structure.has_quantisation or structure.lossless else "there is no quantisation table (DQT)"


def _cut(data: bytes, structure: JpegStructure, what: str) -> Finding:
    """The end is missing: the marker alone, or pixels as well."""
    if structure.scans == 0:
        return Finding(imagecodes.TRUNCATED, f"it ends at byte {len(data)}, within its header: no pixel is there ({what})")
    if structure.scans > MAX_SCANS:  # decoding it again, and again, costs too much
        return Finding(imagecodes.TRUNCATED, f"it ends at byte {len(data)}, within scan {structure.scans} ({what})")
    plain = structure.plain(data)
    readable = real_rows(plain) is not None  # else the silence of the decoder that warns says nothing
    if readable and not structure.cut_segment and not strict_warning(plain + _EOI, structure.components):
        text = f"the file ends at byte {len(data)} without FF D9, and all rows are there"
        return Finding(imagecodes.MISSING_EOI, f"{text} ({what})")
    return Finding(imagecodes.TRUNCATED, f"it ends at byte {len(data)}, within a scan: {_rows_told(data, structure)} ({what})")


def _rows_told(data: bytes, structure: JpegStructure) -> str:
    """How much of it is real, in words."""
    rows = real_rows(structure.plain(data))
    if rows is None:
        return "how many rows are real cannot be told"
    text = f"{rows[0]} of {rows[1]} rows are real"
    return f"{text}, in the detail of {format_count(structure.scans, 'scan')}" if structure.progressive else text


def _damage(data: bytes, structure: JpegStructure) -> list[Finding]:
    """What a decoder warns of that Pillow does not hear."""
    plain = structure.plain(data)
    warning = strict_warning(plain, structure.components)
    if not warning:
        return []
    if structure.eoi < 0 and not strict_warning(plain + _EOI, structure.components):
        return [Finding(imagecodes.ENDS_EARLY, "there is no FF D9 at its end; all rows are there")]
    rows = real_rows(plain)
    if rows is not None and rows[0] < rows[1]:
        text = f"the data end before the last row, though an end marker follows: {_rows_told(data, structure)}"
        return [Finding(imagecodes.TRUNCATED, f"{text} ({warning})")]
    return [Finding(imagecodes.CORRUPT_DATA, f"libjpeg warns: {warning}")]
