"""Original paths of members, so that unpack can write each to a place of its own."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from fastfeed.packer.rows.record import RowRecord


def distinct_sources(records: Sequence[RowRecord]) -> list[str]:
    """The path of each member: its own where it has one that is like no other, else KEY.FIELD; empty for a class member.

    No two members get one path, and no path is a folder of another. Keys have no dot, so whether a path is some member's
    KEY.FIELD shows at its first one.

    Args:
        records: Of all shards.
    """
    counts: Counter[str] = Counter()
    for record in records:
        counts.update(record.sources)
    del counts[""]
    taken = _Taken(records, counts) if counts else None
    return [path for record in records for path in _of_record(record, taken)]


class _Taken:
    """What a path must not be."""

    def __init__(self, records: Sequence[RowRecord], counts: Counter[str]) -> None:
        self._counts = counts
        self._keys = {key for record in records for key in record.keys}
        self._fields = {name for record in records for name in record.fields}
        self._folders: set[str] = set()
        for paths in (counts, self._keys):
            self._add_folders(paths)

    def _add_folders(self, paths: Iterable[str]) -> None:
        for path in paths:
            folder = path.rpartition("/")[0]
            while folder and folder not in self._folders:
                self._folders.add(folder)
                folder = folder.rpartition("/")[0]

    def _is_made(self, path: str) -> bool:
        key, dot, name = path.partition(".")
        return bool(dot) and name in self._fields and key in self._keys

    def is_free(self, path: str) -> bool:
        """Whether only one member has it, and no other can get it or lie below it."""
        if self._counts[path] > 1 or path in self._folders or self._is_made(path):
            return False
        folder = path.rpartition("/")[0]
        while folder:
            if self._is_made(folder):
                return False
            folder = folder.rpartition("/")[0]
        return True


def _of_record(record: RowRecord, taken: _Taken | None) -> Iterator[str]:
    fields, made = record.members["field"], record.members["made"]
    member = 0
    for key, count in zip(record.keys, record.members_per_sample, strict=True):
        for at in range(member, member + count):
            own, given = f"{key}.{record.fields[fields[at]]}", record.sources[at]
            if made[at]:
                yield ""
            else:
                yield given if given and taken is not None and (given == own or taken.is_free(given)) else own
        member += count
