"""Identity of a sample: position (int), key (ascii), source path (bytes); and the skip list that names samples by it."""

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from fastfeed.errors import UsageError


@dataclass(frozen=True, slots=True)
class SampleId:
    """How one sample is named in errors, reports and skip lists."""

    position: int
    """Place in the dataset, from 0."""
    key: str
    """Name inside the shard without extension; unique in the dataset, also when case is folded."""
    source: bytes | None
    """Path below the packed source folder, byte for byte; None where a sample came from no file."""


@dataclass(frozen=True, slots=True)
class SkipEntry:
    """One line of a skip list."""

    source: str | None = None
    """Path below the source folder; bytes that are not UTF-8 as surrogate escapes."""
    key: str | None = None
    index: int | None = None
    """Position; means something only together with dataset_digest."""
    dataset_digest: str | None = None
    kind: str | None = None
    """Why, as a short code such as undecodable."""

    def to_json(self) -> str:
        """The entry as one line of JSONL, without the line feed."""
        names = ("source", "key", "index", "dataset_digest", "kind")
        return json.dumps({name: getattr(self, name) for name in names if getattr(self, name) is not None})


@dataclass(slots=True)
class SkipList:
    """Samples to leave out. An entry matches by source, then by key, and by index only if the dataset's digest is equal."""

    entries: list[SkipEntry] = field(default_factory=list)
    _by_source: dict[str, int] = field(default_factory=dict, init=False)
    _by_key: dict[str, int] = field(default_factory=dict, init=False)
    _by_index: dict[tuple[str, int], int] = field(default_factory=dict, init=False)
    _matched: set[int] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        for number, entry in enumerate(self.entries):
            if entry.source is not None:
                self._by_source.setdefault(entry.source, number)
            elif entry.key is not None:
                self._by_key.setdefault(entry.key, number)
            elif entry.index is not None and entry.dataset_digest is not None:
                self._by_index.setdefault((entry.dataset_digest, entry.index), number)

    def match(self, source: str | None, key: str | None, at: tuple[str, int] | None = None) -> SkipEntry | None:
        """The entry that names this sample, or None.

        Args:
            source: Path below the source folder, surrogate-escaped.
            key: The sample's key, if it has one yet.
            at: (dataset digest, position) of the sample in a packed dataset.
        """
        number = self._by_source.get(source) if source is not None else None
        if number is None and key is not None:
            number = self._by_key.get(key)
        if number is None and at is not None:
            number = self._by_index.get(at)
        if number is None:
            return None
        self._matched.add(number)
        return self.entries[number]

    def unmatched(self) -> Iterator[SkipEntry]:
        """Entries that named no sample so far."""
        return (entry for number, entry in enumerate(self.entries) if number not in self._matched)

    @classmethod
    def read(cls, path: str) -> "SkipList":
        """Read JSONL with the fields of SkipEntry; other fields are kept out.

        Raises:
            UsageError: No such file, or a line that is not such an object; the line is named.
        """
        try:
            with open(path, encoding="utf-8") as file:
                return cls([_parse(line, path, number) for number, line in enumerate(file, 1) if line.strip()])
        except (OSError, UnicodeDecodeError) as error:
            what = error.strerror if isinstance(error, OSError) else str(error)
            msg = f"the skip list cannot be read: {what}"
            raise UsageError(msg, path=path) from error

    @staticmethod
    def write(path: str, entries: Iterable[SkipEntry]) -> None:
        """Write JSONL, one entry a line; whole or not at all, so that a full disk leaves an earlier list as it was."""
        part = f"{path}.part"
        with open(part, "w", encoding="utf-8") as file:
            file.writelines(entry.to_json() + "\n" for entry in entries)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)


_LINE = 'A line is an object such as {"source": "cat/17.jpg"}, the path relative to the source folder.'


def _parse(line: str, path: str, number: int) -> SkipEntry:
    try:
        record = json.loads(line)
        entry = SkipEntry(**{name: record.get(name) for name in SkipEntry.__slots__})
    except (ValueError, AttributeError, RecursionError) as error:
        msg = f"line {number} of the skip list is not a JSON object ({error})"
        raise UsageError(msg, path=path, got=line.strip()[:80], hint=_LINE) from error
    texts = (entry.source, entry.key, entry.dataset_digest, entry.kind)
    if any(text is not None and not isinstance(text, str) for text in texts) or not isinstance(entry.index, int | None):
        msg = f"line {number} of the skip list has a field of the wrong type"
        raise UsageError(
            msg,
            path=path,
            got=line.strip()[:80],
            hint="source, key, dataset_digest, kind are strings; index is a number.",
        )
    if entry.source is None and entry.key is None and (entry.index is None or entry.dataset_digest is None):
        msg = f"line {number} of the skip list names no sample"
        raise UsageError(
            msg, path=path, got=line.strip()[:80], hint="It needs a source, a key, or an index with a dataset_digest."
        )
    return entry


def escape(path: bytes) -> str:
    """A path's bytes as text, undecodable bytes as surrogate escapes; os.fsencode takes it back."""
    return os.fsdecode(path)


def printable(text: str) -> str:
    """Text that any terminal and any JSON takes: control characters, line feeds and surrogates as escapes."""
    return text if text.isprintable() else "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
