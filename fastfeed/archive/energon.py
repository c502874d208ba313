"""What Megatron Energon reads beside tars: NAME-000000.tar.idx, and the folder .nv-meta of a dataset or of a group.

Source of the layouts: megatron-energon 7.4.1, flavors/webdataset/{itar,indexing,prepare,structs}.py. README.md §9.
"""

import errno
import json
import os
import re
import sqlite3
import sys
import uuid
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from itertools import zip_longest
from urllib.parse import quote

from fastfeed.archive.beside import Rows, ShardRows, Sidecar, of_bytes
from fastfeed.archive.shard import SUFFIX
from fastfeed.errors import IndexDamaged, UsageError

META = ".nv-meta"
VERSION = "7.4.1"
"""Whose `energon prepare` writes the same bytes (but for uuid and database, which it does not write twice alike)."""
READER = "energon"
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_./{}-]*")
_YAML_WORDS = {"y", "n", "yes", "no", "on", "off", "true", "false", "null"}
_NUMBERS = 1_000_000
_TABLES = """
CREATE TABLE samples (
    tar_file_id INTEGER NOT NULL, sample_key TEXT NOT NULL UNIQUE, sample_index INTEGER NOT NULL, byte_offset INTEGER,
    byte_size INTEGER);
CREATE TABLE sample_parts (
    tar_file_id INTEGER, sample_index INTEGER, part_name TEXT, content_byte_offset INTEGER, content_byte_size INTEGER);
"""
_INDEXES = """
CREATE INDEX idx_samples_by_tar_and_idx ON samples(tar_file_id, sample_index);
CREATE INDEX idx_sample_parts_seq ON sample_parts(tar_file_id, sample_index, content_byte_offset);
CREATE INDEX idx_sample_parts_full ON
    sample_parts(tar_file_id, sample_index, part_name, content_byte_offset, content_byte_size);
"""
_SAMPLES = (
    "SELECT tar_file_id, sample_key, sample_index, byte_offset, byte_size FROM samples ORDER BY tar_file_id, sample_index"
)
_PARTS = (
    "SELECT tar_file_id, sample_index, part_name, content_byte_offset, content_byte_size FROM sample_parts "
    "ORDER BY tar_file_id, sample_index, content_byte_offset"
)

_Row = tuple[int | str, ...]


def tar_indexes(rows: Rows) -> list[Sidecar]:
    """NAME-000000.tar.idx: where each sample's first header begins, and where the last member ends, as uint64."""

    def content(number: int) -> bytes:
        shard = rows.shard(number)
        numbers = array("Q", [*_headers(shard), shard.end])
        if sys.byteorder == "big":
            numbers.byteswap()
        return numbers.tobytes()

    def sidecar(number: int, file: str) -> Sidecar:
        return of_bytes(f"{file}.idx", READER, lambda: content(number))

    return [sidecar(number, entry.file) for number, entry in enumerate(rows.archive.manifest.shards)]


def _headers(shard: ShardRows) -> Iterator[int]:
    """The header of each sample's first member."""
    return (shard.offsets[start] - 512 for start in shard.starts[:-1])


def metadata(parts: Mapping[str, Rows], digest: str) -> list[Sidecar]:
    """The files of .nv-meta.

    Args:
        parts: Folder of each split -> its rows; an empty name for a dataset without splits.
        digest: Of the dataset or the group; the uuid is made of it.

    Raises:
        UsageError: A split has a name that Energon reads as something else.
    """
    for split in parts:
        _prove_name(split)
    counts = {
        located(split, entry.file): entry.samples for split, rows in parts.items() for entry in rows.archive.manifest.shards
    }
    info = json.dumps({"energon_version": VERSION, "shard_counts": counts}, indent=2).encode()

    def same_counts(raw: bytes) -> bool:
        try:
            found = json.loads(raw)
            return list(found["shard_counts"].items()) == list(counts.items()) and found.keys() <= {
                "energon_version", "shard_counts"
            }  # fmt: skip
        except (ValueError, KeyError, TypeError, AttributeError):
            return False

    return [
        _text(".info.json", lambda: info, accepts=same_counts),
        _text("split.yaml", lambda: _split_yaml(parts), editable=True),
        _text("dataset.yaml", lambda: b"__module__: megatron.energon\n__class__: CrudeWebdataset\n", editable=True),
        _database(list(parts.values())),
        _text("index.uuid", lambda: str(uuid.uuid5(uuid.NAMESPACE_OID, digest)).encode(), accepts=_is_uuid),
    ]


def _text(
    name: str, content: Callable[[], bytes], *, editable: bool = False, accepts: Callable[[bytes], bool] | None = None
) -> Sidecar:
    return of_bytes(f"{META}/{name}", READER, content, editable=editable, accepts=accepts)


def located(split: str, file: str) -> str:
    """A shard's name from where .nv-meta is."""
    return f"{split}/{file}" if split else file


def _is_uuid(raw: bytes) -> bool:
    """Any UUID does: it only tells one state of an index from another."""
    try:
        return bool(uuid.UUID(raw.decode("ascii").strip()))
    except ValueError:
        return False


def _prove_name(split: str) -> None:
    wrong = next((char for char in split if char in "{},\\" or not char.isprintable()), None)
    if wrong is not None:
        msg = f"Energon reads the name of split {split!r} as something else, because of its {wrong!r}"
        raise UsageError(msg, hint="Leave energon out of --for, or call the folder otherwise and pack again.")


def _split_yaml(parts: Mapping[str, Rows]) -> bytes:
    """As `energon prepare` writes it, train, val and test always there: it raises for a part that is not listed."""
    listed: dict[str, list[str]] = {split or "train": _collapsed(split, rows) for split, rows in parts.items()}
    lines = ["split_parts:"]
    for name in [*listed, *(name for name in ("train", "val", "test") if name not in listed)]:
        shards = listed.get(name, [])
        lines += [f"  {_scalar(name)}:", *(f"  - {_scalar(shard)}" for shard in shards)] if shards else [f"  {name}: []"]
    return "\n".join([*lines, "exclude: []", ""]).encode()


def _collapsed(split: str, rows: Rows) -> list[str]:
    """The shards' names in brace notation, as far as their numbers have six digits."""
    manifest = rows.archive.manifest
    files = [entry.file for entry in manifest.shards]
    last = min(len(files), _NUMBERS) - 1
    if last > 0:
        files[: last + 1] = [f"{manifest.name}-{{000000..{last:06d}}}{SUFFIX}"]
    return [located(split, file) for file in files]


def _scalar(text: str) -> str:
    """A YAML scalar: plain where it cannot mean anything else, else in quotes, which JSON's are too."""
    plain = _PLAIN.fullmatch(text) and text.lower() not in _YAML_WORDS
    return text if plain else json.dumps(text, ensure_ascii=False)


# ------------------------------------------------------------------------------------------------ index.sqlite
def _database(parts: Sequence[Rows]) -> Sidecar:
    """index.sqlite: every sample and member by key. Its bytes depend on the SQLite that wrote it; its rows do not."""
    return Sidecar(
        file=f"{META}/index.sqlite",
        reader=READER,
        write=partial(_write_database, parts),
        difference=partial(_other_rows, parts),
    )


def _write_database(parts: Sequence[Rows], path: str) -> None:
    """Raises IndexDamaged for a key that is there twice, OSError where the disk refuses."""
    with open(path, "wb"):
        pass  # what a killed run left here is no database to be continued
    with closing(sqlite3.connect(path, isolation_level=None)) as base:
        try:
            base.executescript(f"PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; {_TABLES}")
            base.execute("BEGIN")
            base.executemany("INSERT INTO samples VALUES (?, ?, ?, ?, ?)", _sample_rows(parts))
            base.executemany("INSERT INTO sample_parts VALUES (?, ?, ?, ?, ?)", _part_rows(parts))
            base.execute("COMMIT")
            base.executescript(_INDEXES)
        except sqlite3.IntegrityError as error:
            msg = f"Energon needs every key once, and the index has one twice ({error})"
            raise IndexDamaged(msg, path=parts[0].archive.index.path, hint="Run fastfeed verify.") from error
        except sqlite3.OperationalError as error:  # the disk's refusal, in SQLite's words
            number = errno.ENOSPC if error.sqlite_errorcode == sqlite3.SQLITE_FULL else errno.EIO
            raise OSError(number, str(error), path) from error


def _other_rows(parts: Sequence[Rows], path: str) -> str | None:
    """The first row of a database that is not the index's."""
    try:
        with closing(sqlite3.connect(f"file:{quote(os.fsencode(path))}?mode=ro&immutable=1", uri=True)) as base:
            for table, query, right in (("samples", _SAMPLES, _sample_rows), ("sample_parts", _PARTS, _part_rows)):
                for at, (got, want) in enumerate(zip_longest(base.execute(query), right(parts))):
                    if got != want:
                        return f"row {at} of its table {table} differs: expected {want}, got {got}"
            (told,) = base.execute(
                "PRAGMA integrity_check(1)"
            ).fetchone()  # indexes that lead elsewhere, pages that nobody owns
    except sqlite3.Error as error:
        return f"it is no database that SQLite reads: {error}"
    return None if told == "ok" else f"SQLite says of it: {told}"


def _shards(parts: Sequence[Rows]) -> Iterator[tuple[int, ShardRows]]:
    number = 0
    for rows in parts:
        for own in range(len(rows.archive.manifest.shards)):
            yield number, rows.shard(own)
            number += 1


def _sample_rows(parts: Sequence[Rows]) -> Iterator[_Row]:
    for number, shard in _shards(parts):
        headers = [*_headers(shard), shard.end]
        for at, key in enumerate(shard.keys):
            yield number, key, at, headers[at], headers[at + 1] - headers[at]


def _part_rows(parts: Sequence[Rows]) -> Iterator[_Row]:
    for number, shard in _shards(parts):
        for at, (start, stop) in enumerate(zip(shard.starts, shard.starts[1:], strict=False)):
            for row in range(start, stop):
                yield number, at, shard.fields[row], shard.offsets[row], shard.sizes[row]
