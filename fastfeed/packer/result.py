"""What a pack call tells, the plan before it and the outcome after it; and what unpack tells."""

from dataclasses import dataclass

from fastfeed.packer.sidecars import SidecarsResult
from fastfeed.source.scan import LeftOut


@dataclass(frozen=True, slots=True)
class DatasetResult:
    """One packed (or planned) dataset."""

    split: str
    name: str
    path: str
    samples: int
    shards: int
    size_bytes: int
    """Of its shards; in a plan of the tars, whether they are compressed or not."""
    source_files: int
    source_bytes: int
    fields: tuple[str, ...]
    classes: int | None
    order: str
    digest: str | None
    """The dataset's digest; None for a plan."""
    why: tuple[str, ...]
    tar_bytes: int | None = None
    """Of the tars in compressed shards; None for plain tars."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackResult:
    """What pack did, or with dry_run would do."""

    destination: str
    datasets: tuple[DatasetResult, ...]
    left_out: tuple[LeftOut, ...]
    """Everything in the source that is not packed, with why."""
    skipped: int
    """How many of those could not be read (only with on_error="skip")."""
    limited: int
    notes: tuple[str, ...]
    workers: int
    workers_why: str
    shards_written: int
    shards_kept: int
    """Finished by an earlier run."""
    already_packed: bool
    dry_run: bool
    needs_bytes: int
    free_bytes: int
    sidecars: SidecarsResult | None = None
    """Files for other readers; None where none were asked for."""
    seconds: float


@dataclass(frozen=True, slots=True)
class UnpackResult:
    """What unpack wrote."""

    destination: str
    datasets: int
    files: int
    """0 where shards were asked for."""
    size_bytes: int
    kept: int
    """Files, or shards, that an interrupted unpack had already written."""
    seconds: float
    shards: int | None = None
    """Plain tars; None where files were written."""
