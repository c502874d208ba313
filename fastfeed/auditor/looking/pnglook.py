"""What is wrong or odd about a PNG, beyond what Pillow says: chunks that are cut, damaged, hidden or odd."""

from fastfeed.auditor.finding import Finding
from fastfeed.auditor.looking import imagecodes
from fastfeed.auditor.looking.decoding import Decoded, told
from fastfeed.auditor.looking.pngwalk import MAX_TEXT_BYTES, PngStructure, real_rows

_SHOWN_FAULTS = 3
_REASONS = frozenset({imagecodes.TEXT_BOMB, imagecodes.CHUNK_DAMAGED})


def findings_of(data: bytes, structure: PngStructure, decoded: Decoded) -> list[Finding]:
    """What there is to say.

    Args:
        data: The whole file.
        structure: Its chunks.
        decoded: What came of it in Pillow.
    """
    found = list[Finding]()
    if structure.texts:
        kind, size = max(structure.texts, key=lambda text: text[1])
        found.append(
            Finding(imagecodes.TEXT_BOMB, f"{kind} decompresses to at least {size:,} bytes, {MAX_TEXT_BYTES:,} are allowed")
        )
    if structure.interlaced:
        found.append(Finding(imagecodes.INTERLACED, "Adam7"))
    for code, critical in ((imagecodes.CHUNK_DAMAGED, True), (imagecodes.CHUNK_ODD, False)):
        texts = [fault.text for fault in structure.faults if fault.critical is critical]
        if texts:
            more = f" and {len(texts) - _SHOWN_FAULTS} more" if len(texts) > _SHOWN_FAULTS else ""
            found.append(Finding(code, "; ".join(texts[:_SHOWN_FAULTS]) + more))
    if structure.cut:
        found.append(_cut(data, structure, decoded))
    elif decoded.error is not None and not decoded.refused and not any(one.code in _REASONS for one in found):
        found.append(Finding(imagecodes.UNDECODABLE, told(decoded.error)))
    return found


def _cut(data: bytes, structure: PngStructure, decoded: Decoded) -> Finding:
    text = structure.cut
    if decoded.error is None:
        return Finding(imagecodes.NO_IEND, f"{text}; Pillow loads it all the same")
    rows = None if decoded.refused else real_rows(data, structure)  # what is not decoded is not inflated either
    if rows is not None:
        text += f"; {rows} of {structure.height} rows are real"
    return Finding(imagecodes.TRUNCATED, f"{text} ({told(decoded.error)})")
