"""What a pack call tells, the plan before it and the outcome after it; and what unpack tells."""

from collections.abc import Mapping
from dataclasses import dataclass

from fastfeed.packer.sidecars import SidecarsResult
from fastfeed.source.scan import LeftOut

INDEXED = "indexed"
"""What became of a JPEG that got restart markers, and where its rows begin is in the index."""
ALREADY = "with such markers already"
"""Its bytes stay, its rows are in the index."""


def told_outcomes(outcomes: Mapping[str, int]) -> str:
    """What became of images whose rows were to be indexed, in words.

    Args:
        outcomes: How many of each outcome.
    """
    stay = {reason: count for reason, count in sorted(outcomes.items()) if reason not in {INDEXED, ALREADY}}
    parts = [f"{outcomes[name]:,} {name}" for name in (INDEXED, ALREADY) if outcomes.get(name)]
    if stay:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in stay.items())
        total = sum(stay.values())
        parts.append(f"{total:,} {'stays as it is' if total == 1 else 'stay as they are'} ({reasons})")
    return ", ".join(parts) or "none is an image"


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
    jpeg_rows: dict[str, int] | None = None
    """Where rows of JPEGs were to be indexed, what became of how many images: INDEXED, ALREADY, or why they stay as they
    are. None in a plan, and of a pack that was there already."""


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
    jpegs_indexed: int = 0
    """JPEGs among the files whose rows pack indexed: their coefficients are those of the source, their bytes may not be."""
