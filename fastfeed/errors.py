"""Every error that fastfeed raises on purpose, with the facts in fields.

::

    FastfeedError                      exit code
      UsageError (ValueError)          2    the call or the command line is wrong
        NoClasses (AttributeError)          the dataset has no classes to name
        NotResumable (AttributeError)       the loader has no positions to go on from
        NoSuchPosition (IndexError)         beyond the dataset
      SourceError                      3    the files to pack cannot be used as they are
        SourceUnreadable                    vanished, no permission, not a regular file, an I/O error
        SourceChanged                       not what the kept scan of an unfinished or finished job says
        SourceAmbiguous                     two readings are possible: choose one
        NothingGained                       it is read fast as it is: packing would gain nothing
      DestinationError                 4    the place to write to cannot be used
        DestinationBusy                     another process is writing there
        DestinationOccupied                 something else is there already
        DestinationFull                     not enough space, or the disk filled up
      DatasetError                     5    a packed dataset does not hold what it promises
        NotADataset                    9    no dataset there, an unfinished one, or its .fastfeed folder is lost
        VersionUnsupported                  written by a newer format than this release reads
        ManifestDamaged                     manifest.json or pack.json
        IndexDamaged                        the index: header, column table, or a row's bounds
        ShardDamaged                        a shard: missing, cut, or bytes that differ from their checksum
        SidecarDamaged                      a file for another reader is missing, stale, or not what the index says
      InputsSkipped                    6    done, but some inputs were left out by --on-error skip
      WorkerDied                       7    a worker process was killed or crashed
      DecodeError                      8    the bytes are as packed, but no decoder takes them

``str(error)`` is one readable paragraph: what happened, where (shard, sample, member, bytes), what was expected and
what was got, and what to do. An error unpickles whole, so it survives a worker process.
"""

from typing import ClassVar, TypedDict, Unpack


class Facts(TypedDict, total=False):
    """Where it happened, what was expected and got, what to do."""

    path: str
    shard: str
    sample: int
    key: str
    source: str
    member: str
    start: int
    stop: int
    expected: object
    got: object
    hint: str


class FastfeedError(Exception):
    """The root. Each fact of Facts is an attribute, None where it does not apply.

    Args:
        message: What happened, as a sentence without its full stop.
        **facts: Where, expected, got, and a hint that says what to do.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, **facts: Unpack[Facts]) -> None:
        super().__init__(message)
        self.message = message
        self.path = facts.get("path")
        self.shard = facts.get("shard")
        self.sample = facts.get("sample")
        self.key = facts.get("key")
        self.source = facts.get("source")
        self.member = facts.get("member")
        self.start = facts.get("start")
        self.stop = facts.get("stop")
        self.expected = facts.get("expected")
        self.got = facts.get("got")
        self.hint = facts.get("hint")

    def where(self) -> str:
        """Shard, sample, member, byte range, path: those that are known, in one line."""
        parts = [
            f"{self.path}" if self.path is not None else "",
            f"shard {self.shard}" if self.shard is not None else "",
            f"sample {self.sample}" if self.sample is not None else "",
            f"key {self.key!r}" if self.key is not None else "",
            f"source {self.source!r}" if self.source is not None else "",
            f"member {self.member!r}" if self.member is not None else "",
            f"bytes [{self.start}, {'...' if self.stop is None else self.stop})" if self.start is not None else "",
        ]
        return ", ".join(part for part in parts if part)

    def __str__(self) -> str:
        where = self.where()
        text = f"{self.message} ({where})" if where else self.message
        if self.expected is not None:
            text += f": expected {self.expected}"
        if self.got is not None:
            text += f"{',' if self.expected is not None else ':'} got {self.got}"
        if self.hint is not None:
            text += f". {self.hint}"
        return text


class UsageError(FastfeedError, ValueError):
    """The call or the command line is wrong."""

    exit_code = 2


class NoClasses(UsageError, AttributeError):
    """The dataset has no classes: hasattr(dataset, "classes") is then False, as code written for torchvision expects."""


class NotResumable(UsageError, AttributeError):
    """The loader has no positions: hasattr(loader, "state_dict") is then False, as code that saves checkpoints expects."""


class NoSuchPosition(UsageError, IndexError):
    """A position beyond the dataset."""


class SourceError(FastfeedError):
    """The files to pack cannot be used as they are."""

    exit_code = 3


class SourceUnreadable(SourceError):
    """A source file vanished, may not be read, is not a regular file, or gives an I/O error."""


class SourceChanged(SourceError):
    """The source is not what the kept scan says."""


class SourceAmbiguous(SourceError):
    """Two readings of the source are possible."""


class NothingGained(SourceError):
    """The source is read fast as it is: packing would gain nothing."""


class DestinationError(FastfeedError):
    """The place to write to cannot be used."""

    exit_code = 4


class DestinationBusy(DestinationError):
    """Another process is writing there."""


class DestinationOccupied(DestinationError):
    """Something else is there already."""


class DestinationFull(DestinationError):
    """Not enough space, or the disk filled up."""


class DatasetError(FastfeedError):
    """A packed dataset does not hold what it promises."""

    exit_code = 5


class NotADataset(DatasetError):
    """No packed dataset there, or its .fastfeed folder is lost."""

    exit_code = 9


class VersionUnsupported(DatasetError):
    """Written by a newer format than this release reads."""


class ManifestDamaged(DatasetError):
    """manifest.json or pack.json is damaged."""


class IndexDamaged(DatasetError):
    """The index is damaged."""


class ShardDamaged(DatasetError):
    """A shard is missing, cut, or its bytes differ from their checksum."""


class SidecarDamaged(DatasetError):
    """A file for another reader is missing, stale, or not what the index says; the dataset itself may be whole."""


class InputsSkipped(FastfeedError):
    """Done, but some inputs were left out because --on-error skip allowed it."""

    exit_code = 6


class WorkerDied(FastfeedError):
    """A worker process was killed or crashed."""

    exit_code = 7


class DecodeError(FastfeedError):
    """The bytes are as packed, but no decoder takes them."""

    exit_code = 8


class FastfeedWarning(UserWarning):
    """Something that was done or found without being asked, and that the user should know."""


def warn(text: str) -> None:
    """Give a FastfeedWarning at the line outside of fastfeed from which this was reached."""
    import inspect  # noqa: PLC0415 - 5 ms that only a warning costs
    import warnings  # noqa: PLC0415

    level, frame = 1, inspect.currentframe()
    while frame is not None and str(frame.f_globals.get("__name__", "")).partition(".")[0] == "fastfeed":
        level, frame = level + 1, frame.f_back
    warnings.warn(text, FastfeedWarning, stacklevel=level)
