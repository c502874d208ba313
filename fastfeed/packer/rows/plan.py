"""Which rows go into which shard, under which keys: settled before the first is read. Pure."""

import hashlib
import json
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from fastfeed.archive import tar
from fastfeed.archive.shard import shard_file
from fastfeed.config import PackConfig
from fastfeed.errors import SourceUnreadable, UsageError
from fastfeed.packer.plan import NOTABLE_BYTES, NOTABLE_OVERHEAD
from fastfeed.packer.rows.source import GATHER_BYTES, RowFacts
from fastfeed.packer.shape import legal_name, shard_count, shard_reason
from fastfeed.sample import SkipList, printable
from fastfeed.source.names import KeyMaker
from fastfeed.source.scan import LeftOut
from fastfeed.units import format_count, format_size

_SHOWN, _MAX_WHY = 3, 300
_ABOUT = " (estimated from a few samples)"


@dataclass(frozen=True, slots=True)
class RowShard:
    """One shard: samples [first, stop) in storage order."""

    file: str
    first: int
    stop: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RowPlan:
    """One dataset of rows."""

    name: str
    rows: Sequence[int]
    """Row number of each sample, in storage order."""
    keys: Sequence[str]
    """Of each sample, in storage order."""
    shards: tuple[RowShard, ...]
    order: str
    left_out: tuple[LeftOut, ...]
    limited: int
    source_files: int
    """Of these samples where each has files of its own, else of the source."""
    about_bytes: int
    """Of all shards, from what is known of the rows' sizes."""
    why: tuple[str, ...]
    notes: tuple[str, ...]

    def digest(self, shard: RowShard, identity: Mapping[str, object]) -> str:
        """Of what decides a shard's bytes and what it is read from: a finished shard counts only for an equal one."""
        numbers, keys = list(self.rows[shard.first : shard.stop]), list(self.keys[shard.first : shard.stop])
        return hashlib.sha256(json.dumps([numbers, keys, identity], sort_keys=True).encode()).hexdigest()


def plan_rows(
    facts: RowFacts, config: PackConfig, *, name: str, exclude: SkipList, failed: Mapping[int, LeftOut],
    one_of_several: bool = False,
) -> RowPlan:  # fmt: skip
    """Settle rows, keys and shards.

    Args:
        facts: Of the source.
        config: What the user asked for.
        name: Stem of the shards' names where config has none.
        exclude: Samples to leave out.
        failed: Rows that could not be read in an earlier round (only with on_error skip).
        one_of_several: The skip list is for other splits too, and need not name any sample of this one.

    Raises:
        SourceUnreadable: Nothing is left.
        UsageError: The skip list is one for another source, or rows of this one cannot be had in random order.
    """
    if config.shuffle is not None and facts.unshuffled:
        msg = f"{facts.unshuffled}: it cannot be shuffled"
        raise UsageError(msg, got=f"shuffle {config.shuffle}", hint="Decompress it first, or pack without --shuffle.")
    keys = _keys(facts)
    left_out, kept = _kept(facts, keys, exclude, failed, one_of_several=one_of_several)
    if config.shuffle is not None:
        random.Random(f"fastfeed {config.shuffle} ").shuffle(kept)
    limited = max(0, len(kept) - (config.limit or len(kept)))
    del kept[config.limit or len(kept) :]
    if not kept:
        first = "; ".join(f"{printable(item.source)}: {printable(item.why[:_MAX_WHY])}" for item in left_out[:_SHOWN])
        msg = (
            f"no sample is left to pack: all {facts.count:,} are left out ({first}{'; ...' if len(left_out) > _SHOWN else ''})"
        )
        raise SourceUnreadable(msg, hint="Look at --root, at --field and at the skip list.")
    source_bytes = facts.source_bytes * len(kept) // max(1, facts.count)
    count = shard_count(len(kept), source_bytes, config)
    base, more = divmod(len(kept), count)
    stem = legal_name(config.name or name)
    stops = [base * number + min(number, more) for number in range(count + 1)]
    files = [shard_file(stem, number, compressed=config.compress is not None) for number in range(count)]
    shards = tuple(RowShard(file, stops[number], stops[number + 1]) for number, file in enumerate(files))
    whole = kept[-1] == len(kept) - 1  # behind a row that is left out, positions are not ImageFolder's
    order = facts.order if whole or facts.order != "imagefolder" else "source"
    about = "" if facts.exact or config.shards is not None or config.samples_per_shard is not None else _ABOUT
    about_bytes = source_bytes + len(kept) * _tar_bytes(facts, config)
    return RowPlan(
        name=stem, rows=kept, keys=[keys[number] for number in kept], shards=shards,
        order=order if config.shuffle is None else "shuffled", left_out=tuple(left_out), limited=limited,
        source_files=_source_files(facts, kept), about_bytes=about_bytes,
        why=(*facts.why, shard_reason(count, len(kept), source_bytes, config) + about),
        notes=(
            *facts.notes, *_notes(facts, config, (count, source_bytes, about_bytes)),
            *(() if one_of_several else _missed(exclude)),
        ),
    )  # fmt: skip


def _source_files(facts: RowFacts, rows: Sequence[int]) -> int:
    starts = facts.starts
    return facts.files if starts is None else sum(starts[row + 1] - starts[row] for row in rows)


def _tar_bytes(facts: RowFacts, config: PackConfig) -> int:
    """About how much tar adds to a sample: a header and half a block of padding a member, and the class member."""
    has_class = "cls" in facts.fields or facts.classes is not None
    members = max(1, len(set(facts.fields) - {"cls"}))
    with_class = has_class and (config.write_cls or facts.holds_class)
    return members * (tar.BLOCK_BYTES + tar.BLOCK_BYTES // 2) + (2 * tar.BLOCK_BYTES if with_class else 0)


def _missed(exclude: SkipList) -> list[str]:
    """Entries of the skip list that name nothing here."""
    missed = [entry.source or entry.key or f"index {entry.index}" for entry in exclude.unmatched()]
    if not missed:
        return []
    matches = "entry of the skip list matches", "entries of the skip list match"
    return [f"{format_count(len(missed), *matches)} no sample ({printable(missed[0])})"]


def _notes(facts: RowFacts, config: PackConfig, sizes: tuple[int, int, int]) -> list[str]:
    """What the user should know before it starts. sizes: shards, bytes of the source, bytes of the shards."""
    shards, source_bytes, about_bytes = sizes
    notes = []
    overhead = about_bytes - source_bytes
    share = overhead / max(1, source_bytes)
    if share > NOTABLE_OVERHEAD and overhead > NOTABLE_BYTES and config.compress is None:
        much = f"about {format_size(overhead)}, {share:.0%} of the source"
        offer = "--compress zstd takes most of that away, but fewer programs read it"
        notes.append(f"the samples are small: tar headers and padding add {much}; {offer}")
    if config.shuffle is not None and facts.gathered:
        passes = shards * max(1, -(-source_bytes // shards // GATHER_BYTES))
        if passes > 1:
            read = format_size(passes * facts.gathered)
            notes.append(f"shuffled: each shard is gathered from the whole table, which is read {passes:,} times ({read})")
    return notes


def _keys(facts: RowFacts) -> list[str]:
    """A legal and unique key a row, for all rows, so that a key never depends on which are left out."""
    if facts.keys is not None:
        return list(facts.keys)
    if facts.stems is None:
        digits = max(9, len(str(facts.count)))
        return [f"{number:0{digits}d}" for number in range(facts.count)]
    room = 1 + facts.max_field_bytes
    repeated = Counter(facts.stems)

    def source_of(number: int) -> str:
        name = facts.name(number)
        return f"{name}\0{number}" if repeated[facts.stems[number]] > 1 else name  # type: ignore[index]

    return KeyMaker(facts.stems).keys(facts.stems, source_of, room)


def _called(facts: RowFacts, name: str, key: str) -> Iterator[str]:
    """What a skip list may call a row: its own name, or the path that the index gives a member without one."""
    yield name
    for field in facts.fields:
        yield f"{key}.{field}"


def _kept(
    facts: RowFacts, keys: Sequence[str], exclude: SkipList, failed: Mapping[int, LeftOut], *, one_of_several: bool
) -> tuple[list[LeftOut], list[int]]:
    """What is left out, and the numbers of the rows that stay."""
    if not exclude.entries and not failed:
        return [], list(range(facts.count))
    left_out, kept = [], []
    for number, key in enumerate(keys):
        name = facts.name(number)
        entry = next(filter(None, (exclude.match(source, key) for source in _called(facts, name, key))), None)
        if entry is not None:
            left_out.append(LeftOut(name, "excluded", f"named by the skip list{f' ({entry.kind})' if entry.kind else ''}"))
        elif number in failed:
            left_out.append(failed[number])
        else:
            kept.append(number)
    if exclude.entries and not one_of_several and len(list(exclude.unmatched())) == len(exclude.entries):
        msg = f"the skip list ({format_count(len(exclude.entries), 'entry', 'entries')}) matches no sample of this source"
        raise UsageError(msg, expected=f"such as {printable(facts.name(0))}", hint="A line names a source or a key.")
    return left_out, kept
