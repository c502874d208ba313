"""What a pack call tells: the plan before it, the outcome after it."""

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
    """Of its shards."""
    source_files: int
    source_bytes: int
    fields: tuple[str, ...]
    classes: int | None
    order: str
    digest: str | None
    """The dataset's digest; None for a plan."""
    why: tuple[str, ...]


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
