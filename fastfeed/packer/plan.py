"""From a listing to a plan: which samples, in which order, under which keys, at which byte of which shard.

Pure: no disk, no clock, no machine. Everything about the shards is settled here, so their bytes cannot depend on how
many workers write them or how often they are interrupted.
"""

import random
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from fastfeed import vectors
from fastfeed.archive import tar
from fastfeed.archive.shard import CLASS_FIELD, SUFFIX, shard_file
from fastfeed.config import PackConfig
from fastfeed.errors import SourceAmbiguous, SourceUnreadable, UsageError
from fastfeed.packer.shape import legal_name, shard_reason, shard_stops
from fastfeed.sample import SkipList, printable
from fastfeed.source.layout import Draft, read_layout
from fastfeed.source.lister import UNREADABLE
from fastfeed.source.names import KeyMaker
from fastfeed.source.scan import LeftOut, Listing
from fastfeed.units import format_count, format_size

CLASS_MEMBER = -1
"""In place of a file number: a member that holds the class number."""
NOTABLE_OVERHEAD = 0.1
NOTABLE_BYTES = 10 << 20
"""What tar adds is told where it is more than both, the first as a share of the source."""
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class ShardPlan:
    """One shard, half-open ranges of samples and members."""

    file: str
    first: int
    stop: int
    first_member: int
    stop_member: int
    size_bytes: int
    source_files: int
    source_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetPlan:
    """One dataset, its samples in storage order."""

    split: str
    name: str
    layout: str
    order: str
    classes: tuple[str, ...] | None
    keys: Sequence[str]
    labels: "array[int] | None"
    starts: "array[int]"
    """First member of each sample, and one more."""
    files: "array[int]"
    """File number of each member, or CLASS_MEMBER."""
    fields: tuple[str, ...]
    member_fields: "array[int]"
    sizes: "array[int]"
    offsets: "array[int]"
    """First payload byte of each member in its shard."""
    shards: tuple[ShardPlan, ...]
    source_files: int
    source_bytes: int
    why: tuple[str, ...]

    @property
    def size_bytes(self) -> int:
        """Of all shards."""
        return sum(shard.size_bytes for shard in self.shards)


def source_paths(files: "array[int]", paths: Sequence[str]) -> Sequence[str]:
    """The source path of each of some members, empty for a class member.

    Args:
        files: Their file numbers, or CLASS_MEMBER.
        paths: By file number.
    """
    if files and files[0] >= 0 and vectors.is_run(files):
        return paths[files[0] : files[-1] + 1]
    return [paths[file] if file >= 0 else "" for file in files]


@dataclass(frozen=True, slots=True)
class PackPlan:
    """All datasets of one pack call, and what is left out."""

    datasets: tuple[DatasetPlan, ...]
    left_out: Mapping[str, Sequence[LeftOut]]
    """By split ("" where there are none): everything in the source that is not packed."""
    limited: int
    """Files of samples beyond --limit."""
    notes: tuple[str, ...]
    """What the user should know before it starts."""

    @property
    def size_bytes(self) -> int:
        """Of all shards of all datasets."""
        return sum(dataset.size_bytes for dataset in self.datasets)


def make_plan(listing: Listing, config: PackConfig, *, name: str, exclude: SkipList, failed: Mapping[str, str]) -> PackPlan:
    """Settle everything.

    Args:
        listing: What the scan found.
        config: What the user asked for.
        name: Stem of shard names where there are no splits and config names none.
        exclude: Samples to leave out.
        failed: Source paths that could not be read in an earlier round, with why (only with on_error skip).

    Raises:
        SourceUnreadable: Files cannot be read and on_error is stop; a member is too large; or nothing is left.
        SourceAmbiguous: The layout has two readings.
    """
    drafts = read_layout(listing, config)
    keys = sample_keys(drafts, listing.paths)
    left_out: dict[str, list[LeftOut]] = {draft.split: list(draft.left_out) for draft in drafts}
    bad = _Bad(listing, exclude, failed)
    kept = [bad.keep(draft, own, left_out[draft.split]) for draft, own in zip(drafts, keys, strict=True)]
    _refuse_idle(exclude, listing)
    excluded = {item.source for items in left_out.values() for item in items if item.kind == "excluded"}
    unreadable = [item for item in listing.unreadable if item.source not in excluded]
    if unreadable and config.on_error == "stop":
        raise _unreadable(unreadable)
    listed = {item.source for items in left_out.values() for item in items}
    for item in (*listing.left_out, *(item for item in unreadable if item.source not in listed)):
        top = item.source.partition("/")[0]
        left_out[top if top in left_out else drafts[0].split].append(item)
    datasets, limited = [], 0
    for draft, own, stay in zip(drafts, keys, kept, strict=True):
        order = stay if config.shuffle is None else _shuffled(stay, f"fastfeed {config.shuffle} {draft.split}")
        chosen, beyond = order[: config.limit], order[len(order) if config.limit is None else config.limit :]
        limited += sum(len(draft.files_of(at)) for at in beyond)
        if not chosen:
            msg = f"no sample is left to pack{f' in {draft.split}' if draft.split else ''}"
            raise SourceUnreadable(msg, hint="Look at what is left out, and at the skip list.")
        datasets.append(_settle(_Chosen(draft, own, chosen), listing, config, f"{config.name or name}"))
    notes = _notes(listing, datasets, exclude)
    return PackPlan(tuple(datasets), left_out, limited, notes)


def _shuffled(numbers: Sequence[int], seed: str) -> list[int]:
    found = list(numbers)
    random.Random(seed).shuffle(found)
    return found


def _refuse_idle(exclude: SkipList, listing: Listing) -> None:
    """A skip list that names nothing of this source is one for another source."""
    known = {item.source for item in listing.left_out}
    missed = list(exclude.unmatched())
    if exclude.entries and len(missed) == len(exclude.entries) and not any(entry.source in known for entry in missed):
        msg = f"the skip list ({format_count(len(missed), 'entry', 'entries')}) matches no sample of this source"
        got = missed[0].source or missed[0].key or f"index {missed[0].index}"
        hint = "Paths in a skip list are relative to the source folder."
        raise UsageError(msg, expected=f"such as {printable(listing.paths[0])}", got=printable(got), hint=hint)


def _unreadable(items: Sequence[LeftOut]) -> SourceUnreadable:
    shown = "; ".join(f"{printable(item.source)}: {item.why}" for item in items[:_SHOWN])
    more = f"; and {len(items) - _SHOWN} more" if len(items) > _SHOWN else ""
    msg = f"{format_count(len(items), 'source file')} cannot be read ({shown}{more})"
    return SourceUnreadable(msg, hint="Mend or remove them, or leave their samples out with --on-error skip.")


def sample_keys(drafts: Sequence[Draft], paths: Sequence[str]) -> list[list[str]]:
    """Keys for every sample of the call, before any is left out, so that a key never depends on what is."""
    maker = KeyMaker(list(chain.from_iterable(draft.stems for draft in drafts)))
    found = []
    for draft in drafts:
        room = 1 + max(map(len, {CLASS_FIELD, *draft.fields}))
        found.append(maker.keys(draft.stems, lambda at, draft=draft: paths[draft.files[draft.starts[at]]], room))  # type: ignore[misc]
    return found


@dataclass(frozen=True, slots=True)
class _Bad:
    """Knows the samples that must be left out."""

    listing: Listing
    exclude: SkipList
    failed: Mapping[str, str]

    def keep(self, draft: Draft, keys: Sequence[str], left_out: list[LeftOut]) -> Sequence[int]:
        """Numbers of the samples that stay; the files of the others go on the list."""
        if not (self.failed or self.exclude.entries or self.listing.unreadable):
            return range(len(draft))
        kept = []
        for number, key in enumerate(keys):
            gone = self._reasons(list(draft.files_of(number)), key)
            if gone is None:
                kept.append(number)
            else:
                left_out.extend(gone)
        return kept

    def _reasons(self, files: list[int], key: str) -> list[LeftOut] | None:
        """What to list of a sample that is left out (nothing that the scan has listed already); None of one that stays."""
        paths = self.listing.paths
        for file in files:
            entry = self.exclude.match(paths[file], key)
            if entry is not None:
                why = f"named by the skip list{f' ({entry.kind})' if entry.kind else ''}"
                return [LeftOut(paths[other], "excluded", why) for other in files]
        for file in files:
            path = paths[file]
            if path in self.failed or self.listing.codecs[file] == UNREADABLE:
                why = f"its sample needs {printable(path)}"
                rest = [LeftOut(paths[other], "incomplete", why) for other in files if other != file]
                own = [LeftOut(path, "unreadable", self.failed[path])] if path in self.failed else []  # else the scan listed it
                return own + rest
        return None


@dataclass(frozen=True, slots=True)
class _Chosen:
    """A draft, its keys, and the numbers of its samples in storage order."""

    draft: Draft
    keys: Sequence[str]
    order: Sequence[int]


def _settle(chosen: _Chosen, listing: Listing, config: PackConfig, name: str) -> DatasetPlan:
    """Lay out one dataset, byte for byte."""
    draft = chosen.draft
    with_class = draft.classes is not None and config.write_cls
    names = set(draft.fields)
    if with_class and CLASS_FIELD in names:
        msg = "the source has files NAME.cls of its own, and the class number would take that name"
        raise SourceAmbiguous(msg, hint="Use --no-cls (the class stays in the index), or --layout files.")
    fields = sorted(names | {CLASS_FIELD} if with_class else names)
    labels = None if draft.classes is None else _in_order(draft.labels, chosen.order)
    digits = [len(str(number)) for number in range(len(draft.classes or ()))]
    class_sizes = array("Q", [digits[label] for label in labels or ()] if with_class else ())
    files, member_fields, sizes, starts = _members(chosen, listing, fields, class_sizes)
    _refuse_huge(files, sizes, listing)
    source_bytes = vectors.total(sizes) - vectors.total(class_sizes)
    shard_name = draft.split if draft.split and config.name is None else f"{name}-{draft.split}" if draft.split else name
    stops = shard_stops(len(chosen.order), source_bytes, config)
    compressed = config.compress is not None
    offsets, shards = _lay_out(stops, legal_name(shard_name), (starts, sizes, class_sizes), compressed=compressed)
    why = [*draft.why, *_order_reason(chosen, config)]
    why.append(shard_reason(len(shards), len(chosen.order), source_bytes, config))
    first_ones = chosen.order[-1] == len(chosen.order) - 1  # behind a sample that is left out, positions are not ImageFolder's
    in_order = "imagefolder" if draft.as_imagefolder and first_ones else "source"
    order = in_order if config.shuffle is None else "shuffled"
    return DatasetPlan(
        split=draft.split, name=legal_name(shard_name), layout=draft.layout, order=order,
        classes=None if draft.classes is None else tuple(draft.classes), keys=_keys_in_order(chosen),
        labels=labels, starts=starts, files=files, fields=tuple(fields), member_fields=member_fields, sizes=sizes,
        offsets=offsets, shards=tuple(shards), source_files=sum(shard.source_files for shard in shards),
        source_bytes=source_bytes, why=tuple(why),
    )  # fmt: skip


def _order_reason(chosen: _Chosen, config: PackConfig) -> list[str]:
    """Whether position i is ImageFolder's i, and why not."""
    if not chosen.draft.as_imagefolder:
        return []
    if config.shuffle is not None:
        return [f"positions are not ImageFolder's: shuffled with seed {config.shuffle}"]
    if chosen.order[-1] >= len(chosen.order):
        missing = chosen.order[-1] + 1 - len(chosen.order)
        return [f"positions are not ImageFolder's: {format_count(missing, 'sample', 'samples')} among them left out"]
    return ["position i and each class number are ImageFolder's"]


def _members(
    chosen: _Chosen, listing: Listing, fields: Sequence[str], class_sizes: "array[int]"
) -> tuple["array[int]", "array[int]", "array[int]", "array[int]"]:
    """File, field number and size of each member in storage order, and where each sample starts."""
    draft, number = chosen.draft, {field: at for at, field in enumerate(fields)}
    numbers, class_field = [number[field] for field in draft.fields], number.get(CLASS_FIELD, 0)
    before = {class_field < field for field in number.values() if field != class_field} if class_sizes else {False}
    if len(draft.files) == len(draft) and len(before) == 1:
        return _single_members(chosen, listing, array("H", numbers), (class_sizes, class_field, 0 if before == {True} else 1))
    files, member_fields, sizes, starts = array("q"), array("H"), array("Q"), array("Q", [0])
    for place, at in enumerate(chosen.order):
        members = [(numbers[member], draft.files[member]) for member in range(draft.starts[at], draft.starts[at + 1])]
        if class_sizes:
            members = sorted([*members, (class_field, CLASS_MEMBER)])
        for field, file in members:
            files.append(file)
            member_fields.append(field)
            sizes.append(listing.sizes[file] if file >= 0 else class_sizes[place])
        starts.append(len(files))
    return files, member_fields, sizes, starts


def _single_members(
    chosen: _Chosen, listing: Listing, numbers: "array[int]", classes: tuple["array[int]", int, int]
) -> tuple["array[int]", "array[int]", "array[int]", "array[int]"]:
    """The same where each sample has one file, as most have: whole columns at once. classes: size, field, place of members."""
    files, fields = _in_order(chosen.draft.files, chosen.order), _in_order(numbers, chosen.order)
    sizes = vectors.taken(listing.sizes, files)
    class_sizes, class_field, place = classes
    if not class_sizes:
        return files, fields, sizes, vectors.counting("Q", 0, len(files) + 1)
    columns = []
    own_files, own_fields = array("q", [CLASS_MEMBER]) * len(files), array("H", [class_field]) * len(files)
    for column, own in ((files, own_files), (fields, own_fields), (sizes, class_sizes)):
        both = column + own
        both[place::2], both[1 - place :: 2] = own, column
        columns.append(both)
    return columns[0], columns[1], columns[2], vectors.counting("Q", 0, 2 * len(files) + 1, 2)


def _in_order(column: "array[int]", order: Sequence[int]) -> "array[int]":
    """A value for each sample in storage order: a slice where none is left out and none has moved."""
    return column[order.start : order.stop] if isinstance(order, range) else vectors.taken(column, order)


def _keys_in_order(chosen: _Chosen) -> Sequence[str]:
    order = chosen.order
    return chosen.keys[order.start : order.stop] if isinstance(order, range) else [chosen.keys[at] for at in order]


def _refuse_huge(files: Sequence[int], sizes: "array[int]", listing: Listing) -> None:
    if vectors.largest(sizes) <= tar.MAX_MEMBER_BYTES:
        return
    huge = [listing.paths[file] for file, size in zip(files, sizes, strict=True) if size > tar.MAX_MEMBER_BYTES]
    msg = f"{format_count(len(huge), 'file')} of 8 GiB or more cannot be a member ({', '.join(map(printable, huge[:_SHOWN]))})"
    raise SourceUnreadable(
        msg, expected="below 8 GiB, the most that every tar reader takes", hint="Split them, or exclude them."
    )


def _lay_out(
    stops: Sequence[int], name: str, members: tuple["array[int]", "array[int]", "array[int]"], *, compressed: bool
) -> tuple["array[int]", list[ShardPlan]]:
    """Payload offset of each member, and the shards. members: starts of samples, sizes, sizes of class members."""
    starts, sizes, class_sizes = members
    offsets, shards, first = array("Q"), [], 0
    for number, stop in enumerate(stops):
        begin, end = starts[first], starts[stop]
        own, classes = sizes[begin:end], class_sizes[first:stop]
        spans = vectors.rounded_up(own, tar.BLOCK_BYTES, tar.BLOCK_BYTES)  # tar.span_bytes of each
        ends = vectors.running(spans, tar.BLOCK_BYTES)
        offsets.extend(ends[:-1])
        at = ends[-1] - tar.BLOCK_BYTES
        source_files, source_bytes = end - begin - len(classes), vectors.total(own) - vectors.total(classes)
        size_bytes = at + tar.trailer_bytes(at)
        file = shard_file(name, number, compressed=compressed)
        shards.append(ShardPlan(file, first, stop, begin, end, size_bytes, source_files, source_bytes))
        first = stop
    return offsets, shards


def _notes(listing: Listing, datasets: Sequence[DatasetPlan], exclude: SkipList) -> tuple[str, ...]:
    notes = []
    for dataset in datasets:
        overhead = dataset.size_bytes - dataset.source_bytes
        share = overhead / max(1, dataset.source_bytes)
        if dataset.classes is not None and len(dataset.classes) == 1:
            notes.append(
                f"{dataset.name}: there is only one class ({printable(dataset.classes[0])}): is the source one folder too high?"
            )
        if share > NOTABLE_OVERHEAD and overhead > NOTABLE_BYTES and dataset.shards[0].file.endswith(SUFFIX):
            much = format_size(overhead) + (f", {share:.0%} of the source" if dataset.source_bytes else "")
            text = f"{dataset.name}: its files are small: tar headers and padding add {much}"
            classes = dataset.files.count(CLASS_MEMBER) * 2 * tar.BLOCK_BYTES
            text += f"; {format_size(classes)} of it are the .cls members (--no-cls leaves them out)" if classes else ""
            notes.append(text + "; --compress zstd takes most of that away, but fewer programs read it")
    if listing.repeated:
        first = listing.repeated[0]
        text = f"{format_count(len(listing.repeated), 'file')} met again under another name (a link), packed under each"
        notes.append(f"{text} ({printable(first.source)}: {first.why})")
    mixed = {dataset.classes is None for dataset in datasets}
    if len(mixed) > 1:
        without = ", ".join(dataset.name for dataset in datasets if dataset.classes is None)
        notes.append(f"{without}: no classes, though other splits have them")
    missed = list(exclude.unmatched())
    if missed:
        first_name = missed[0].source or missed[0].key or f"index {missed[0].index}"
        matches = "entry of the skip list matches", "entries of the skip list match"
        notes.append(f"{format_count(len(missed), *matches)} no sample ({printable(first_name)})")
    return tuple(notes)
