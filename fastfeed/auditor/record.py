"""What an audit knows about one sample: its names, its size, its times stage by stage, and what was found."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any, Self

from fastfeed.auditor.finding import Code, Finding, Severity, worst
from fastfeed.sample import printable

_NAMES = ("path", "key", "index", "shard", "offset", "label", "split")
_FACTS = ("size_bytes", "format", "width", "height", "mode", "characters", "tokens", "digest", "peak_bytes", "thumbnail")
_KNOWN = (*_NAMES, *_FACTS)
"""In a report's order."""
STAGES = ("read", "decode", "transform", "load", "tokenize")
"""In this order. A dataset that cannot be taken apart has one stage: load."""


@dataclass(frozen=True, slots=True)
class StageTime:
    """The clocks of one stage of one sample, in seconds."""

    wall: float
    cpu: float
    """Of the thread, or of the process where the work is spread over threads."""
    delay: float | None
    """Ready to run, but waiting for a processor; None where the kernel does not tell (/proc/thread-self/schedstat)."""
    major_faults: int = 0
    """Pages that came from a disk."""

    @property
    def blocked(self) -> float | None:
        """Waiting for something else than a processor: a disk, a network, a lock, sleep; None where that is unknown."""
        return None if self.delay is None else max(0.0, self.wall - self.cpu - self.delay)

    def as_json(self) -> dict[str, float | int | None]:
        """As a report holds it; units in the names."""
        return {
            "wall_seconds": round(self.wall, 6), "cpu_seconds": round(self.cpu, 6),
            "delay_seconds": None if self.delay is None else round(self.delay, 6),
            "blocked_seconds": None if self.blocked is None else round(self.blocked, 6), "major_faults": self.major_faults,
        }  # fmt: skip

    @classmethod
    def from_json(cls, line: Mapping[str, Any]) -> Self:
        """Back from a report. Where the wall clock alone is known (DataLoader(audit=)), all of its time counts as computing."""
        wall, cpu = line["wall_seconds"], line["cpu_seconds"]
        return cls(wall, wall if cpu is None else cpu, line["delay_seconds"], line["major_faults"] or 0)

    def as_row(self) -> tuple[int, int, int | None, int]:
        """In nanoseconds, without names."""
        return (
            round(self.wall * 1e9),
            round(self.cpu * 1e9),
            None if self.delay is None else round(self.delay * 1e9),
            self.major_faults,
        )

    @classmethod
    def from_row(cls, row: Sequence[Any]) -> Self:
        """Back from a row."""
        wall, cpu, delay, major_faults = row
        return cls(wall / 1e9, cpu / 1e9, None if delay is None else delay / 1e9, major_faults)


@dataclass(slots=True)
class SampleRecord:
    """One sample."""

    index: int
    """Position in what is audited."""
    key: str | None = None
    path: str | None = None
    """File, or member of a shard; undecodable bytes as surrogate escapes."""
    shard: str | None = None
    offset: int | None = None
    """Where its bytes begin in the shard."""
    label: str | None = None
    """Class folder or class name, where there is one."""
    split: str | None = None
    size_bytes: int | None = None
    format: str | None = None
    """JPEG, PNG, text ...: by content, never by name."""
    width: int | None = None
    height: int | None = None
    mode: str | None = None
    characters: int | None = None
    """Of its text, the byte order mark not counted."""
    tokens: int | None = None
    """Of its text, by the tokenizer that was given."""
    digest: str | None = None
    """Of its bytes: equal digests are equal files."""
    peak_bytes: int | None = None
    """Memory that it took at most, beyond what was there before; None where that is unknown: an allocator had enough."""
    thumbnail: str | None = None
    """Of an image, where one is asked for: a small JPEG in base64. None in a report's lines."""
    times: dict[str, StageTime] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    @property
    def severity(self) -> Severity | None:
        """The worst of what was found."""
        return worst(self.findings)

    @property
    def status(self) -> str:
        """Either "flagged", from a warning on, or "ok"."""
        severity = self.severity
        return "flagged" if severity is not None and severity >= Severity.WARNING else "ok"

    @property
    def name(self) -> str:
        """For people: path, else key, else position."""
        return printable(self.path or self.key or f"sample {self.index}")

    @property
    def cpu_seconds(self) -> float:
        """Of all stages."""
        return sum(time.cpu for time in self.times.values())

    @property
    def wall_seconds(self) -> float:
        """Of all stages."""
        return sum(time.wall for time in self.times.values())

    def as_json(self) -> dict[str, Any]:
        """As a line of the JSONL report holds it: what is unknown is left out."""
        known = {name: value for name in _KNOWN if (value := getattr(self, name)) is not None}
        times = {name: time.as_json() for name, time in self.times.items()}
        return {**known, "status": self.status, "findings": [one.as_json() for one in self.findings], "times": times}

    @classmethod
    def from_json(cls, line: Mapping[str, Any], codes: Mapping[str, Code]) -> Self:
        """Back from a line of the report.

        Args:
            line: As as_json() gave it.
            codes: All that findings may have, by name.

        Raises:
            KeyError: A code that is not among them.
        """
        known = {name: line[name] for name in _KNOWN if name in line}
        times = {name: StageTime.from_json(time) for name, time in line["times"].items()}
        findings = [Finding(codes[found["code"]], found["text"]) for found in line["findings"]]
        return cls(**known, times=times, findings=findings)

    def as_row(self) -> list[object]:
        """As it passes a pipe and lies in a journal: without names, which take most of a line's time and room."""
        times = {name: time.as_row() for name, time in self.times.items()}
        return [*_known_of(self), times, [(found.code.name, found.text) for found in self.findings]]

    @classmethod
    def from_row(cls, row: Sequence[Any], codes: Mapping[str, Code]) -> Self:
        """Back from a row.

        Args:
            row: As as_row() gave it, or that by way of JSON; the index comes first.
            codes: As from_json().
        """
        *known, times, findings = row
        record = cls(*known)
        record.times = {name: StageTime.from_row(time) for name, time in times.items()}
        record.findings = [Finding(codes[code], text) for code, text in findings]
        return record


_known_of = attrgetter(*(entry.name for entry in fields(SampleRecord) if entry.name in _KNOWN))
"""As the constructor takes them; times and findings come behind."""
