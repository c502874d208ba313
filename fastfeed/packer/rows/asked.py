"""What a pack of rows was asked for: source, options, and the plan that follows from them."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from fastfeed.archive.manifest import WRITER
from fastfeed.config import ImageConfig, PackConfig, RowConfig
from fastfeed.errors import SourceUnreadable
from fastfeed.packer.compression import encoder_of, prove_frames
from fastfeed.packer.rows.plan import RowPlan, RowShard, plan_rows
from fastfeed.packer.rows.source import RowFacts, RowSource
from fastfeed.packer.rows.transcode import jpegtran_of
from fastfeed.sample import SkipList, printable
from fastfeed.source.scan import LeftOut
from fastfeed.trace import QUIET, Progress
from fastfeed.units import format_count

_SHOWN = 5
_MAX_WHY = 300


def options_of(config: PackConfig, rows: RowConfig, *, name: str, exclude: SkipList) -> dict[str, object]:
    """Options that a rerun must find equal.

    Args:
        config: What the user asked for.
        rows: How rows become samples.
        name: Stem of the shards' names where config has none.
        exclude: Samples to leave out.
    """
    options: dict[str, object] = {**config.record(), **asdict(rows), "name": config.name or name}
    entries = "\n".join(sorted(entry.to_json() for entry in exclude.entries))
    options["exclude"] = hashlib.sha256(entries.encode()).hexdigest()[:16] if entries else None
    return options


def as_json(content: Mapping[str, object]) -> dict[str, Any]:
    """As JSON gives it back: tuples are lists in what is kept."""
    found: dict[str, Any] = json.loads(json.dumps(content))
    return found


@dataclass(slots=True, kw_only=True)
class RowJob:
    """What was asked for."""

    source: RowSource
    where: str
    """What messages call the source: a path, or the type of an object."""
    name: str
    """Stem of the shards' names, where config has none."""
    destination: str
    config: PackConfig
    rows: RowConfig
    images: ImageConfig = field(default_factory=ImageConfig)
    """How the source changes images: an option that a rerun must have as well."""
    more_options: Mapping[str, object] = field(default_factory=dict)
    """Whatever else a rerun must have as well, and the manifest keeps."""
    exclude: SkipList = field(default_factory=SkipList)
    workers: int | None = None
    progress: Progress = QUIET
    split: str = ""
    """Folder of the split in the packed source."""
    one_of_several: bool = False
    """Whether the skip list is for other splits too, so that it need not name any sample of this one."""
    facts: RowFacts = field(init=False)
    identity: Mapping[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        self.facts = self.source.facts()
        options = options_of(self.config, self.rows, name=self.name, exclude=self.exclude)
        if self.images.changes:
            options.update(self.images.record())
        options.update(self.more_options)
        encoders = {**encoder_of(self.config), **jpegtran_of(self.images)}
        self.identity = as_json({"writer": WRITER, "options": options, "source": self.facts.identity, **encoders})

    @property
    def decides(self) -> Mapping[str, Any]:
        """What decides a shard's bytes: what to do about unreadable rows may be decided anew, finished shards stay."""
        return {**self.identity, "options": {**self.identity["options"], "on_error": None}}

    def source_digest(self) -> str:
        """What the manifest says of the source."""
        return hashlib.sha256(json.dumps(self.identity["source"], sort_keys=True).encode()).hexdigest()

    def columns(self) -> tuple[str, ...] | None:
        """Typed columns to be kept; None for all that the rows turn out to have."""
        known = self.rows.column if self.facts.columns is None else self.facts.columns
        return None if known is None else (*known, *self.facts.extra_columns)

    def plan(self, failed: Mapping[int, LeftOut], *, refuse: bool = True) -> RowPlan:
        """With these rows left out.

        Args:
            failed: Rows that could not be read.
            refuse: Whether that is an error, unless on_error says skip.

        Raises:
            SourceUnreadable: Rows are known to be unreadable, and on_error is stop; or nothing is left.
            UsageError: The source cannot be shuffled, or the skip list is one for another.
        """
        known = {**self.facts.failed, **failed}
        plan = plan_rows(
            self.facts, self.config, name=self.name, exclude=self.exclude, failed=known, one_of_several=self.one_of_several
        )
        broken = [item for item in (*plan.left_out, *self.facts.left_out) if item.kind == "unreadable"]
        if broken and refuse and self.config.on_error == "stop":
            msg = f"{format_count(len(broken), 'sample')} cannot be read ({shown([(i.source, i.why) for i in broken])})"
            raise SourceUnreadable(msg, path=self.where, hint="Mend them, or leave them out with --on-error skip.")
        prove_frames(self.config, plan.about_bytes // len(plan.shards))
        return replace(plan, left_out=(*plan.left_out, *self.facts.left_out))


def shown(failed: "list[tuple[str, str]]") -> str:
    """Names and reasons, the first few, on one line."""
    first = "; ".join(f"{printable(name)}: {printable(why[:_MAX_WHY])}" for name, why in failed[:_SHOWN])
    return first + (f"; and {len(failed) - _SHOWN} more" if len(failed) > _SHOWN else "")


@dataclass(frozen=True, slots=True)
class Planned:
    """One dataset without splits, as the journal wants it."""

    name: str
    shards: tuple[RowShard, ...]
    split: str = ""

    @property
    def datasets(self) -> "tuple[Planned, ...]":
        """It alone."""
        return (self,)
