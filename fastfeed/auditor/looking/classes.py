"""Classes that are empty, tiny, missing in a split, or no classes at all."""

import re
import unicodedata
from collections.abc import Iterable, Mapping
from statistics import median

from fastfeed.auditor.finding import Finding
from fastfeed.auditor.looking import setcodes
from fastfeed.units import format_count

FEW = 5
"""A class of fewer is tiny where the usual one has more than ten times as many."""
TINY_SHARE = 0.02
"""Of the usual class: one of less is tiny."""
_JUNK = frozenset({"__MACOSX", "__pycache__", "$RECYCLE.BIN", "System Volume Information", "lost+found", "@eaDir"})
_NAMED = 5
_BETWEEN_WORDS = re.compile(r"[\s_-]+")


def findings_of(counts: Mapping[tuple[str | None, str], int], empty: Iterable[tuple[str | None, str]] = ()) -> list[Finding]:
    """What there is to say about a set's classes.

    Args:
        counts: (split, class) -> samples; None for a set without splits.
        empty: (split, class) of folders in which there is no sample.
    """
    all_counts = {**dict.fromkeys(empty, 0), **counts}
    found = list[Finding]()
    for split in sorted({split for split, _ in all_counts}, key=lambda name: name or ""):
        found += _of_split(split, {label: count for (other, label), count in all_counts.items() if other == split})
    return [*found, *_alike({label for _, label in all_counts}), *_missing({key for key, count in all_counts.items() if count})]


def _of_split(split: str | None, counts: Mapping[str, int]) -> list[Finding]:
    where = f" in {split}" if split else ""
    found = list[Finding]()
    usual = median([count for count in counts.values() if count] or [0])
    for label, count in sorted(counts.items()):
        if label.startswith(".") or label in _JUNK:
            found.append(Finding(setcodes.JUNK_CLASS, f"{label}{where}: {format_count(count, 'file')}"))
        elif not count:
            found.append(Finding(setcodes.EMPTY_CLASS, f"{label}{where}"))
        elif (count < FEW and count * 10 < usual) or count < TINY_SHARE * usual:
            found.append(
                Finding(setcodes.TINY_CLASS, f"{label}{where}: {format_count(count, 'sample')}; usual are {usual:,.0f}")
            )
    return found


def _alike(labels: set[str]) -> list[Finding]:
    """Names that are probably one."""
    plain: dict[str, list[str]] = {}
    for label in sorted(labels):
        plain.setdefault(_BETWEEN_WORDS.sub("", unicodedata.normalize("NFKC", label).casefold()), []).append(label)
    return [Finding(setcodes.CLASSES_ALIKE, " and ".join(map(repr, group))) for group in plain.values() if len(group) > 1]


def _missing(present: set[tuple[str | None, str]]) -> list[Finding]:
    """Classes that some splits have and others have not; a split without any class is no matter of classes."""
    labels = {label for _, label in present}
    found = list[Finding]()
    for split in sorted({split for split, _ in present if split is not None}):
        absent = sorted(label for label in labels if (split, label) not in present)
        if absent:
            more = f" and {len(absent) - _NAMED} more" if len(absent) > _NAMED else ""
            found.append(Finding(setcodes.CLASS_IN_ONE_SPLIT, f"{split} has no {', '.join(absent[:_NAMED])}{more}"))
    return found
