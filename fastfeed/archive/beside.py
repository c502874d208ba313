"""A file beside the shards: what it should hold, whether it does; and the rows of the index that such files are made of."""

from collections.abc import Callable
from dataclasses import dataclass

from fastfeed.archive import tar
from fastfeed.archive.dataset import Archive
from fastfeed.archive.index import MEMBER
from fastfeed.archive.regular import open_regular
from fastfeed.errors import IndexDamaged, UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Sidecar:
    """One file that another reader needs, derived from manifest and index alone."""

    file: str
    """Below the dataset's or the group's folder."""
    reader: str
    editable: bool = False
    """A beginning that its owner may edit: it is written where it is missing, and its content is not judged."""
    write: Callable[[str], None]
    """Writes the whole file to a path."""
    difference: Callable[[str], str | None]
    """How the file at a path differs from what it should hold; None where it does not."""


def of_bytes(
    file: str,
    reader: str,
    content: Callable[[], bytes],
    *,
    editable: bool = False,
    accepts: Callable[[bytes], bool] | None = None,
) -> Sidecar:
    """A sidecar that is known byte by byte.

    Args:
        file: Below the folder.
        reader: Whose it is.
        content: Gives all its bytes.
        editable: See Sidecar.
        accepts: Whether other bytes say the same.
    """

    def write(path: str) -> None:
        with open(path, "wb") as target:
            target.write(content())

    def difference(path: str) -> str | None:
        right = content()
        with open(path, "rb", opener=open_regular) as found:
            raw = found.read(len(right) + (1 << 16))
        if raw == right or (accepts is not None and accepts(raw)):
            return None
        at = next((at for at, (a, b) in enumerate(zip(raw, right, strict=False)) if a != b), min(len(raw), len(right)))
        return f"it differs from its byte {at} on: expected {right[at : at + 24]!r}, got {raw[at : at + 24]!r}"

    return Sidecar(file=file, reader=reader, editable=editable, write=write, difference=difference)


@dataclass(frozen=True, slots=True)
class ShardRows:
    """What the index says of one shard, proven to lie inside it."""

    keys: list[str]
    starts: list[int]
    """First member of each sample in the lists below, and one more entry."""
    fields: list[str]
    offsets: list[int]
    """First payload byte of each member."""
    sizes: list[int]

    @property
    def end(self) -> int:
        """Where the last member's padding ends."""
        return self.offsets[-1] + self.sizes[-1] + tar.padding_bytes(self.sizes[-1])


class Rows:
    """The shards of a dataset as rows; the last one is kept, since several sidecars are made of it in turn."""

    def __init__(self, archive: Archive) -> None:
        self.archive = archive
        self._number, self._last = -1, ShardRows([], [0], [], [], [])

    def shard(self, number: int) -> ShardRows:
        """The rows of one shard.

        Raises:
            IndexDamaged: They lead out of the shard or out of the index.
        """
        if number != self._number:
            self._last, self._number = _read(self.archive, number), number
        return self._last


def _read(archive: Archive, number: int) -> ShardRows:
    index, entry, names = archive.index, archive.manifest.shards[number], archive.manifest.fields
    first, stop = archive.firsts[number], archive.firsts[number + 1]
    starts = index.sample_starts()[first : stop + 1]
    begin, end = int(starts[0]), int(starts[-1])
    rising = bool((starts[1:] > starts[:-1]).all()) and end <= index.members
    numbers, offsets, sizes = (index.array(MEMBER, name)[begin:end] for name in ("field", "offset", "size"))
    if not rising or int(numbers.max()) >= len(names) or not _inside(offsets.tolist(), sizes.tolist(), entry.size_bytes):
        for position in range(first, stop):  # only now one by one: the error that names sample and member
            list(archive.places(position))
        msg = "the index places a shard's members neither apart nor in order"
        raise IndexDamaged(msg, path=index.path, shard=entry.file, hint="Run fastfeed verify.")
    return ShardRows(
        keys=[archive.key(position) for position in range(first, stop)], starts=[start - begin for start in starts.tolist()],
        fields=[names[field] for field in numbers.tolist()], offsets=offsets.tolist(), sizes=sizes.tolist(),
    )  # fmt: skip


def _inside(offsets: list[int], sizes: list[int], size_bytes: int) -> bool:
    """Whether the members lie in the shard one behind the other, as the format's T4 says."""
    at = 0
    for offset, size in zip(offsets, sizes, strict=True):
        if offset != at + tar.BLOCK_BYTES:
            return False
        at = offset + size + tar.padding_bytes(size)
    return at <= size_bytes


def prove_plain(archive: Archive) -> None:
    """Let only plain tars pass: no other reader opens compressed shards, and offsets into them would mean nothing.

    Raises:
        UsageError: The shards are compressed.
    """
    if archive.manifest.compression is not None:
        raise compressed(archive.path)


def compressed(path: str | None = None) -> UsageError:
    """The error for compressed shards."""
    msg = "the shards are compressed, and no other reader opens such shards at random"
    hint = "fastfeed unpack --shards makes plain tars of them; or pack without --compress."
    return UsageError(msg, path=path, hint=hint) if path is not None else UsageError(msg, hint=hint)
