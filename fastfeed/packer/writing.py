"""One round of a pack job: the shards that are not there yet are written, then index and manifests published.

What packs of folders and of rows have in common stands at the end.
"""

import os
from abc import ABC, abstractmethod
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, repeat
from operator import sub
from typing import Any

from fastfeed import vectors
from fastfeed.archive.manifest import Manifest
from fastfeed.config import PackConfig
from fastfeed.disk import FULL_HINT, disk_error, remove
from fastfeed.errors import DestinationFull, SourceChanged, SourceUnreadable
from fastfeed.machine import free_bytes, processors
from fastfeed.packer import publish
from fastfeed.packer.compression import compression_of
from fastfeed.packer.crew import Crew
from fastfeed.packer.journal import Journal
from fastfeed.packer.plan import CLASS_MEMBER, DatasetPlan, PackPlan, ShardPlan, source_paths
from fastfeed.packer.record import read_record
from fastfeed.packer.worker import Order
from fastfeed.sample import SkipList, printable
from fastfeed.source.scan import Listing
from fastfeed.trace import Progress
from fastfeed.units import format_count, format_size

_SPARE_BYTES = 1 << 20
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Job:
    """What stays the same through one call."""

    source: str
    destination: str
    config: PackConfig
    exclude: SkipList
    identity: Mapping[str, object]
    workers: int | None
    crew: Crew
    progress: Progress


class Hearing(ABC):
    """What a round hears of its workers.

    Args:
        progress: Hears of files and bytes.
        destination: Where the job writes.
    """

    def __init__(self, progress: Progress, destination: str) -> None:
        self._progress, self._destination = progress, destination
        self.kept = self.written = 0
        """Shards that were there already, and those that were written."""

    def hear(self, event: Mapping[str, Any]) -> None:
        """Take in an event of a worker.

        Raises:
            DestinationError: The disk refused.
            SourceError: As inputs_failed() decides.
        """
        match event["event"]:
            case "progress":
                self._progress.advance(event["files"], event["bytes"])
            case "done":
                self.written += 1
            case "disk":
                raise disk_error(event["what"], event["errno"], self._destination)
            case "inputs":
                self.inputs_failed(event["failed"])

    @abstractmethod
    def inputs_failed(self, failed: Sequence[Any]) -> None:
        """Inputs of a shard cannot be packed."""


class Writing(Hearing):
    """One round of writing the shards of a plan that are not there yet."""

    def __init__(self, job: Job, journal: Journal, plan: PackPlan, listing: Listing) -> None:
        super().__init__(job.progress, job.destination)
        self.job, self.journal, self.plan = job, journal, plan
        self.source = publish.SourceFacts(listing.paths, listing.digest(), job.identity["options"], compression_of(job.config))  # type: ignore[arg-type]
        self.listing = listing
        self.failed: dict[str, str] = {}

    def run(self) -> None:
        """Write what is missing.

        Raises:
            SourceUnreadable: A source file cannot be read and on_error is stop.
            SourceChanged: One is not what the scan saw.
            DestinationFull: No space.
            WorkerDied: A worker was killed.
        """
        todo: list[tuple[DatasetPlan, int]] = []
        for dataset in self.plan.datasets:
            os.makedirs(os.path.join(self.job.destination, dataset.split), exist_ok=True)
            for number in range(len(dataset.shards)):
                if self._is_there(dataset, number):
                    self.kept += 1
                else:
                    todo.append((dataset, number))
        missing = sum(dataset.shards[number].size_bytes for dataset, number in todo)
        need, free = (
            missing + _index_bytes(self.plan, self.source.paths) + _SPARE_BYTES,
            free_bytes(self.job.destination),
        )
        if need > free:
            msg = "there is not enough free space"
            raise DestinationFull(
                msg,
                path=self.job.destination,
                expected=format_size(need),
                got=f"{format_size(free)} free",
                hint=FULL_HINT,
            )
        shards = [dataset.shards[number] for dataset, number in todo]
        self.job.progress.start("pack", sum(s.source_files for s in shards), sum(s.source_bytes for s in shards))
        workers, _ = worker_count(self.job.workers, len(todo))
        orders = (self._order(dataset, number, at) for at, (dataset, number) in enumerate(todo))
        self.job.crew.run(orders, self.hear, workers)
        self.job.progress.finish()

    def _record(self, dataset: DatasetPlan, number: int) -> str:
        return self.journal.path(f"{dataset.shards[number].file}.done")

    def _is_there(self, dataset: DatasetPlan, number: int) -> bool:
        """Whether a shard is finished for this very order; what is left of another order is removed."""
        shard = dataset.shards[number]
        target = os.path.join(self.job.destination, dataset.split, shard.file)
        found = read_record(self._record(dataset, number))
        whole = found is not None and os.path.exists(target) and os.path.getsize(target) == found.done.size_bytes
        if found is not None and whole and found.order == self._order(dataset, number, 0).digest:
            return True
        remove(target)
        remove(self._record(dataset, number))
        return False

    def _order(self, dataset: DatasetPlan, number: int, at: int) -> Order:
        shard = dataset.shards[number]
        files = dataset.files[shard.first_member : shard.stop_member]
        columns = Order.columns_of(
            _member_names(dataset, shard),
            source_paths(files, self.source.paths),
            dataset.sizes[shard.first_member : shard.stop_member],
            self._stamps(dataset, shard, files),
        )
        return Order(
            number=at, root=self.job.source + "/", target=os.path.join(self.job.destination, dataset.split, shard.file),
            part=self.journal.path(f"{shard.file}.{os.getpid()}.part"), record=self._record(dataset, number), columns=columns,
            framing=self.job.config.framing,
        )  # fmt: skip

    def _stamps(self, dataset: DatasetPlan, shard: ShardPlan, files: "array[int]") -> "array[int]":
        """The mtime of each source file in ns, of a class member its number."""
        stamps = vectors.taken(self.listing.mtimes_ns, files)  # of a class member any: it is replaced
        if dataset.labels is None or CLASS_MEMBER not in files:
            return stamps
        return vectors.filled(stamps, files, dataset.labels[shard.first : shard.stop])

    def inputs_failed(self, failed: Sequence[tuple[str, str, str]]) -> None:
        """Source files that are not as planned, each with the kind of its fault and why.

        Raises:
            SourceChanged: One is not what the scan saw.
            SourceUnreadable: One cannot be read and on_error is stop.
        """
        shown = "; ".join(f"{printable(path)}: {why}" for path, _, why in failed[:_SHOWN])
        more = f"; and {len(failed) - _SHOWN} more" if len(failed) > _SHOWN else ""
        if any(kind == "changed" for _, kind, _ in failed):
            msg = f"source files changed while they were packed ({shown}{more})"
            raise SourceChanged(msg, path=self.job.source, hint="Let nothing write there; then start anew with --overwrite.")
        if self.job.config.on_error == "stop":
            msg = f"{format_count(len(failed), 'source file')} cannot be read ({shown}{more})"
            hint = (
                "Nothing is lost: mend them and run the same command again (what was away must come back with its old time), "
            )
            hint += "or leave their samples out with --on-error skip --trust-scan."
            raise SourceUnreadable(msg, path=self.job.source, hint=hint)
        self.failed.update({path: why for path, _, why in failed})

    def publish(self) -> dict[str, Manifest]:
        """Index and manifest of each dataset, then the record of the group."""
        manifests = {}
        for dataset in self.plan.datasets:
            folder = os.path.join(self.job.destination, dataset.split)
            records = [self._record(dataset, number) for number in range(len(dataset.shards))]
            manifests[dataset.split] = publish.publish_dataset(
                folder, dataset, records=records, source=self.source, left_out=self.plan.left_out[dataset.split]
            )
        if list(manifests) != [""]:
            publish.publish_group(self.job.destination, manifests)
        return manifests


def _member_names(dataset: DatasetPlan, shard: ShardPlan) -> Sequence[str]:
    """Names of a shard's members; those of one sample may be joined by a NUL."""
    suffixes = [f".{field}" for field in dataset.fields]
    keys = dataset.keys[shard.first : shard.stop]
    fields = dataset.member_fields[shard.first_member : shard.stop_member]
    each = fields[: len(fields) // len(keys)]
    if fields == each * len(keys):  # they rise within a sample: so all samples have these, as they do in most datasets
        pieces = ["", *(suffixes[field] + "\0" for field in each[:-1]), suffixes[each[-1]]]
        return [key.join(pieces) for key in keys]
    starts = dataset.starts[shard.first : shard.stop + 1]
    repeated = chain.from_iterable(map(repeat, keys, map(sub, starts[1:], starts)))
    return [key + suffixes[field] for key, field in zip(repeated, fields, strict=True)]


def _index_bytes(plan: PackPlan, paths: Sequence[str]) -> int:
    path_bytes = sum(map(len, paths)) * 2
    return sum(publish.index_bytes(dataset, path_bytes) for dataset in plan.datasets)


def worker_count(asked: int | None, shards: int) -> tuple[int, str]:
    """How many workers, and why."""
    if asked is not None:
        return max(1, min(asked, shards)), f"{asked} asked for, {format_count(shards, 'shard')} to write"
    machine = processors()
    count = max(1, min(machine.count, shards))
    return count, f"{machine.why}, {format_count(shards, 'shard')} to write: {format_count(count, 'worker')}"


@contextmanager
def held_journal(destination: str) -> Iterator[Journal]:
    """The journal of a pack to a destination, closed in the end.

    Raises:
        DestinationError: What the operating system refuses meanwhile, and as Journal raises.
    """
    journal = Journal(destination)
    try:
        yield journal
    except BrokenPipeError:
        raise  # who listened to on_plan has gone: that is no fault of the destination
    except OSError as error:
        raise disk_error(f"{error.filename or destination}: {error.strerror}", error.errno, destination) from error
    finally:
        journal.close()


def prove_room(journal: Journal, size_bytes: int) -> None:
    """Whether a new pack of about this size fits once the old one is gone.

    Raises:
        DestinationFull: It does not; the old one is left.
    """
    owned = sum(os.path.getsize(path) for path in journal.owned_shards() if os.path.exists(path))
    free = free_bytes(journal.destination) + owned
    if size_bytes > free:
        msg = "there is not enough space, even without what --overwrite replaces"
        got = f"{format_size(free)} with the old shards removed"
        hint = "The old pack is untouched. Free some space, or choose another disk."
        raise DestinationFull(msg, path=journal.destination, expected=format_size(size_bytes), got=got, hint=hint)


def tell_kept(journal: Journal, kept: int) -> None:
    """Note that shards of an earlier run are taken as they are, where there are any."""
    if kept:
        journal.notes.append(f"{format_count(kept, 'shard')} kept from an earlier run, unread: fastfeed verify proves all")
