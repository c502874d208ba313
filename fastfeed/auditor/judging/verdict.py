"""What a judge says of a whole audit."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

from fastfeed.auditor.finding import Finding
from fastfeed.auditor.judging.expectation import Line
from fastfeed.auditor.judging.impact import Costly, Impact
from fastfeed.auditor.judging.noise import Noise


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """All of it; as_json() is what a report's summary holds."""

    samples: int
    """That were looked at."""
    timed: int
    """Those with times; the others could not be loaded, or are errors."""
    findings: dict[int, list[Finding]]
    """By index of the sample."""
    slow: Impact | None
    """Of all that is proven to be slow."""
    oversize: Impact | None
    top: tuple[Costly, ...]
    """Those that cost the most, slow or not."""
    lines: tuple[Line, ...]
    """What is usual, a format and stage."""
    noise: Noise
    notes: tuple[str, ...]
    """What a reader must know to trust this: rare formats, a noisy machine, what was not measured again."""

    @property
    def counts(self) -> dict[str, int]:
        """Samples by code."""
        return dict(Counter(finding.code.name for found in self.findings.values() for finding in found))

    def sentences(self) -> list[str]:
        """What slow and oversize samples cost, for the terminal."""
        named = (("slow", self.slow), ("oversize", self.oversize))
        return [f"{name}: {impact.sentence()}" for name, impact in named if impact is not None]

    def as_json(self) -> dict[str, Any]:
        """As a report holds it."""
        return {
            "samples": self.samples, "timed": self.timed, "counts": self.counts,
            "slow": self.slow and self.slow.as_json(), "oversize": self.oversize and self.oversize.as_json(),
            "top": [one.as_json() for one in self.top],
            "usual": [line.as_json() for line in self.lines],
            "noise": self.noise.as_json(), "notes": list(self.notes),
        }  # fmt: skip
