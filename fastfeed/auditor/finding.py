"""What can be said about a sample, each with a code that stays the same: reports, baselines and skip lists name it."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple


class Severity(IntEnum):
    """How bad it is; a higher number is worse."""

    INFO = 1
    """Worth knowing: no pixel and no character is wrong."""
    WARNING = 2
    """It loads, but it is slow, wasteful, or not what it seems to be."""
    ERROR = 3
    """It cannot be loaded, or what is loaded is not what was stored."""

    @property
    def word(self) -> str:
        """As reports write it."""
        return self.name.lower()


class Code(NamedTuple):
    """A kind of finding."""

    name: str
    """Lower-case words joined by hyphens; never changed once it was published."""
    severity: Severity
    title: str
    """In plain words, without a full stop."""
    advice: str
    """What to do about it: a sentence or two."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was found about one sample."""

    code: Code
    text: str
    """What was found in this sample: expected, got, byte offsets."""

    def as_json(self) -> dict[str, str]:
        """As a report holds it."""
        return {"code": self.code.name, "severity": self.code.severity.word, "text": self.text}


def catalogue(*codes: Code) -> dict[str, Code]:
    """Codes by name.

    Raises:
        ValueError: Two have one name.
    """
    found = {code.name: code for code in codes}
    if len(found) != len(codes):
        twice = sorted(name for name, count in Counter(code.name for code in codes).items() if count > 1)
        msg = f"two codes have one name: {', '.join(twice)}"
        raise ValueError(msg)
    return found


def worst(findings: Iterable[Finding]) -> Severity | None:
    """The highest severity; None where there is nothing."""
    return max((finding.code.severity for finding in findings), default=None)
