"""What an audit says in sum: what it looked at, what it found, what that costs."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from fastfeed.auditor.finding import Code, Finding, Severity
from fastfeed.auditor.record import STAGES, SampleRecord
from fastfeed.units import format_count

NAMES = (
    "samples have names where the dataset has identity(index) -> fastfeed.sample.SampleId, or samples and root as ImageFolder"
)
"""How those of a Python dataset get some."""
_EXAMPLES = 5


@dataclass(frozen=True, slots=True)
class FoundCode:
    """All findings of one code."""

    code: str
    severity: str
    title: str
    advice: str
    samples: int
    """That have it; or classes, or findings about tars."""
    examples: tuple[tuple[str, str], ...]
    """(name, text) of the first of them."""
    about: str = "sample"
    """What is counted: sample; or finding, about a class, a tar or an index."""


@dataclass(frozen=True, slots=True)
class StageTotal:
    """What one stage took in all samples together."""

    stage: str
    samples: int
    wall_seconds: float
    cpu_seconds: float
    slowest_seconds: float
    """By the wall clock."""
    slowest: str
    """Name of that sample."""


@dataclass(frozen=True, slots=True)
class Costliest:
    """One of the samples that take the most time."""

    name: str
    seconds: float
    """Computing, or waiting for something else than a processor."""
    part: float
    """Of the time that all samples take."""
    cumulative: float
    """Of it and those before it."""


@dataclass(frozen=True, slots=True)
class Compared:
    """How findings compare with an earlier report."""

    baseline: str
    """The earlier report."""
    left_out: int
    """Findings that it has too: they are not counted."""
    gone: int
    """Findings that only it has, of samples that were audited again."""

    @property
    def sentence(self) -> str:
        """For people; the path as it is."""
        known = f"{format_count(self.left_out, 'finding')} known from {self.baseline} {_be(self.left_out)} left out"
        return f"Only what is new is counted: {known}, {self.gone:,} {_be(self.gone)} gone."


def _be(count: int) -> str:
    return "is" if count == 1 else "are"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditResult:
    """What an audit found."""

    target: str
    what: str
    """What the target is, in words."""
    kind: str
    """folder, list, table, packed, tars, python."""
    samples: int
    """That there are."""
    audited: int
    """That were looked at, in this run or in one that it continues."""
    flagged: int
    """That have a warning or an error."""
    errors: int
    """That have an error: they cannot be loaded, or what is loaded is not what was stored."""
    of_set: int
    """Warnings and errors about classes or tars, rather than samples."""
    others: int
    """Entries that are no sample but were spoken of: FIFOs, leftovers."""
    found: tuple[FoundCode, ...]
    """The worst and most frequent first."""
    stages: tuple[StageTotal, ...]
    costs: tuple[str, ...]
    """Sentences: what slow samples and oversize ones cost."""
    costliest: tuple[Costliest, ...]
    """The costliest first, slow or not."""
    judged: dict[str, Any]
    """How times were judged: what is usual by format and stage, how noisy the machine was."""
    formats: dict[str, int]
    """Samples by format."""
    size_bytes: int
    at_most: float | None
    """With 95 % confidence no larger share of all samples has an error; None where all were audited."""
    complete: bool
    """Whether all that was asked for was done: False where time was up."""
    fast: bool
    workers: int
    report: str | None
    """The file that holds a record of each sample."""
    notes: tuple[str, ...]
    seconds: float
    splits: tuple[str, ...] = ()
    """Folders in the target that are splits: each is opened by itself."""
    nameless: int = 0
    """Of those with an error: without a name, so that no skip list can leave them out."""
    compared: Compared | None = None
    """With a baseline; then found, flagged and errors count only what is new."""

    @property
    def worst(self) -> Severity | None:
        """The highest severity of any finding."""
        return max((Severity[one.severity.upper()] for one in self.found), default=None)


@dataclass(slots=True)
class _Stage:
    samples: int = 0
    wall: float = 0.0
    cpu: float = 0.0
    slowest: tuple[float, str] = (0.0, "")


@dataclass(slots=True)
class Summary:
    """Adds up records, in constant memory."""

    records: int = 0
    flagged: int = 0
    errors: int = 0
    nameless: int = 0
    of_set: int = 0
    size_bytes: int = 0
    formats: Counter[str] = field(default_factory=Counter)
    _codes: dict[Code, list[tuple[str, str]]] = field(default_factory=dict)
    _counts: Counter[Code] = field(default_factory=Counter)
    _of_sets: set[Code] = field(default_factory=set)
    _stages: dict[str, _Stage] = field(default_factory=dict)

    def add(self, record: SampleRecord) -> None:
        """One more."""
        self.records += 1
        self.flagged += record.status == "flagged"
        is_error = record.severity is Severity.ERROR
        self.errors += is_error
        self.nameless += is_error and record.path is None and record.key is None
        self.size_bytes += record.size_bytes or 0
        if record.format is not None:
            self.formats[record.format] += 1
        for code in {found.code for found in record.findings}:
            self._counts[code] += 1
        for found in record.findings:
            examples = self._codes.setdefault(found.code, [])
            if len(examples) < _EXAMPLES:
                examples.append((record.name, found.text))
        for name, time in record.times.items():
            stage = self._stages.setdefault(name, _Stage())
            stage.samples += 1
            stage.wall += time.wall
            stage.cpu += time.cpu
            stage.slowest = max(stage.slowest, (time.wall, record.name))

    def add_of_set(self, name: str, finding: Finding) -> None:
        """Something about a class or a tar rather than a sample."""
        self.of_set += finding.code.severity >= Severity.WARNING
        self._counts[finding.code] += 1
        self._of_sets.add(finding.code)
        examples = self._codes.setdefault(finding.code, [])
        if len(examples) < _EXAMPLES:
            examples.append((name, finding.text))

    def found(self) -> tuple[FoundCode, ...]:
        """Findings by code, the worst and most frequent first."""
        order = sorted(self._codes, key=lambda code: (-code.severity, -self._counts[code], code.name))
        return tuple(self._found(code) for code in order)

    def _found(self, code: Code) -> FoundCode:
        about = "finding" if code in self._of_sets else "sample"
        examples = tuple(self._codes[code])
        return FoundCode(code.name, code.severity.word, code.title, code.advice, self._counts[code], examples, about)

    def stages(self) -> tuple[StageTotal, ...]:
        """Times by stage, in the order in which they are passed."""
        order = sorted(self._stages, key=lambda name: (STAGES.index(name) if name in STAGES else len(STAGES), name))
        return tuple(
            StageTotal(name, one.samples, one.wall, one.cpu, *one.slowest)
            for name, one in ((name, self._stages[name]) for name in order)
        )

    def facts(self, *, others: int, at_most: float | None) -> dict[str, Any]:
        """The fields of AuditResult that are sums.

        Args:
            others: How many of the records are of no sample.
            at_most: As AuditResult has it.
        """
        return {
            "audited": self.records - others, "flagged": self.flagged, "errors": self.errors, "of_set": self.of_set,
            "others": others, "nameless": self.nameless,
            "found": self.found(), "stages": self.stages(), "formats": dict(self.formats.most_common()),
            "size_bytes": self.size_bytes, "at_most": at_most,
        }  # fmt: skip
