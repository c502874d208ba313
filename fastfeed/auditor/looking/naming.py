"""What names alone tell: files that overwrite each other elsewhere, that tools stumble over, that loaders leave out."""

import os
import unicodedata
from collections.abc import Collection

import numpy as np
import xxhash

from fastfeed.auditor.finding import Finding
from fastfeed.auditor.looking import setcodes
from fastfeed.auditor.looking.kinds import extension_of
from fastfeed.sample import printable
from fastfeed.source.names import IMAGEFOLDER_EXTENSIONS

MAX_BASE_BYTES = 100
"""Of a member's base name in USTAR."""


def findings_of(path: str, *, is_image: bool) -> list[Finding]:
    """What there is to say about one path.

    Args:
        path: Below the source; undecodable bytes as surrogate escapes.
        is_image: Whether its content is an image.
    """
    base = path.rpartition("/")[2]
    reasons = _odd(base)
    found = [Finding(setcodes.NAME_ODD, f"{printable(base)}: {', '.join(reasons)}")] if reasons else []
    if is_image and extension_of(path) not in IMAGEFOLDER_EXTENSIONS:
        extension = extension_of(path)
        found.append(Finding(setcodes.LEFT_OUT, f"its extension is {extension}" if extension else "it has no extension"))
    return found


def _odd(base: str) -> list[str]:
    raw = os.fsencode(base)
    reasons = list[str]()
    if any("\udc80" <= character <= "\udcff" for character in base):
        reasons.append("its bytes are not UTF-8")
    if any(unicodedata.category(character) == "Cc" for character in base):
        reasons.append("it holds a control character")
    if len(raw) > MAX_BASE_BYTES:
        reasons.append(f"{len(raw)} bytes, USTAR holds {MAX_BASE_BYTES}")
    if base != base.strip():
        reasons.append("it begins or ends with white space")
    return reasons


def clashes(paths: Collection[str]) -> list[tuple[tuple[str, ...], Finding]]:
    """Paths that are one on a file system that folds case or code points.

    Args:
        paths: Each once. Of a million, 8 MB are needed beside them.

    Returns:
        The paths of each clash in the order given, and what there is to say about them.
    """
    hashes = np.fromiter(map(_hash, paths), dtype=np.uint64, count=len(paths))
    values, counts = np.unique(hashes, return_counts=True)
    suspects = set(values[counts > 1].tolist())
    folded: dict[str, list[str]] = {}
    for path in (path for path in paths if suspects and _hash(path) in suspects):
        folded.setdefault(_folded(path), []).append(path)
    found = list[tuple[tuple[str, ...], Finding]]()
    for together in (group for group in folded.values() if len(group) > 1):
        same_letters = len({unicodedata.normalize("NFC", path) for path in together}) < len(together)
        code = setcodes.UNICODE_CLASH if same_letters else setcodes.CASE_CLASH
        found.append((tuple(together), Finding(code, " and ".join(printable(path) for path in together))))
    return found


def _folded(path: str) -> str:
    return unicodedata.normalize("NFC", path).casefold()


def _hash(path: str) -> int:
    return xxhash.xxh3_64_intdigest(_folded(path).encode("utf-8", "surrogatepass"))
