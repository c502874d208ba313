"""Which tars a user means, and where their index lies: globs, braces, lists; beside the tars, or in a folder of the user's."""

import glob
import hashlib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from fastfeed.archive import dataset, tars
from fastfeed.archive.manifest import FOLDER
from fastfeed.archive.tars import TarFile
from fastfeed.errors import DatasetError, NotADataset, SourceUnreadable, UsageError
from fastfeed.units import format_count

SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.zst", ".tar.zstd")
"""By which a name is taken for that of a tar; what it is stored as is told by its content."""
Patterns = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
_BRACES = re.compile(r"\{([^{}]*(?:,|\.\.)[^{}]*)\}")
_RANGE = re.compile(r"(\d+)\.\.(\d+)")
_MAX_NAMES = 10_000_000


@dataclass(frozen=True, slots=True)
class TarPaths:
    """Tars by name, in the order in which their samples stand."""

    base: str
    """The folder below which all of them lie, absolute."""
    files: tuple[str, ...]
    """Paths below it, sorted, the numbers in them by value."""

    def paths(self) -> list[str]:
        """Their absolute paths."""
        return [os.path.join(self.base, file) for file in self.files]

    def index_path(self, index_dir: str | None) -> str:
        """Where the index of just these tars lies.

        Args:
            index_dir: A folder for indexes of any tars; None for .fastfeed-index beside them.
        """
        names = "\0".join(self.files)
        if index_dir is None:
            return os.path.join(self.base, tars.FOLDER, f"tars-{_digest(names)}")
        return os.path.join(os.path.abspath(index_dir), f"tars-{_digest(os.path.realpath(self.base) + chr(0) + names)}")


def seek_points(index_path: str, base: str, entry: TarFile) -> str:
    """Where the seek points of a tar behind gzip lie: beside the index, under a name that changes with the tar."""
    folder = os.path.dirname(index_path)
    whose = "" if folder == os.path.join(base, tars.FOLDER) else os.path.realpath(base)
    return os.path.join(folder, f"seek-{_digest(chr(0).join([whose, entry.file, str(entry.size_bytes), str(entry.mtime_ns)]))}")


def _digest(text: str) -> str:
    return hashlib.sha256(os.fsencode(text)).hexdigest()[:16]


def is_tar_name(path: str) -> bool:
    """Whether a path names tars: by its end, whatever stars or braces are before it."""
    return path.lower().endswith(SUFFIXES)


def find_tars(patterns: Patterns) -> TarPaths:
    """The tars that patterns name, each once.

    Args:
        patterns: Paths; "*", "?", "[...]" and "**" as in a shell, "{0000..0099}" and "{a,b}" as in bash and webdataset.

    Raises:
        UsageError: No pattern, or braces that name more than ten million files.
        NotADataset: Nothing is there.
        SourceUnreadable: Something that is no file.
    """
    given = [patterns] if isinstance(patterns, str | bytes | os.PathLike) else list(patterns)
    found = sorted({path for pattern in given for path in _expand(os.path.abspath(os.fsdecode(pattern)))})
    if not found:
        msg = "there is no tar: an empty list was given"
        raise UsageError(msg)
    base = os.path.commonpath([os.path.dirname(path) for path in found])
    files = sorted((os.path.relpath(path, base) for path in found), key=_natural)
    _refuse_packed(base, files)
    return TarPaths(base, tuple(files))


def _natural(name: str) -> tuple[list[object], str]:
    """Numbers by value, so that shard-10 comes behind shard-2."""
    return [int(part) if at % 2 else part for at, part in enumerate(re.split(r"(\d+)", name))], name


def _expand(pattern: str) -> list[str]:
    if os.path.lexists(pattern):  # a name may hold brackets
        return [_file(pattern)]
    found: list[str] = []
    for name in _braces(pattern):
        if os.path.lexists(name) or not glob.has_magic(name):
            found.append(_file(name))
            continue
        matches = [path for path in glob.glob(name, recursive=True) if os.path.isfile(path)]
        if not matches:
            msg = f"no file matches {name}"
            raise NotADataset(msg, hint=_hint(name))
        found.extend(matches)
    return found


def _file(path: str) -> str:
    if os.path.isdir(path):
        msg = "this is a folder, not a tar"
        raise SourceUnreadable(msg, path=path, hint=f"Name the tars in it: {os.path.join(path, '*.tar')!r}.")
    if not os.path.isfile(path):
        what = "is no regular file" if os.path.lexists(path) else "does not exist"
        msg = f"{path} {what}"
        raise NotADataset(msg, hint=_hint(path))
    return path


def _hint(path: str) -> str:
    folder = os.path.dirname(path)
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    count = sum(is_tar_name(name) for name in os.listdir(folder))
    return f"There {'is' if count == 1 else 'are'} {format_count(count, 'tar')} in {folder}."


def _braces(pattern: str) -> list[str]:
    """What bash makes of "{00..12}" and "{a,b}"; a pattern without them as it is.

    Raises:
        UsageError: More than ten million names.
    """
    parts = _BRACES.split(pattern)
    ranges = [_RANGE.fullmatch(part) if at % 2 else None for at, part in enumerate(parts)]
    if prod(abs(int(found[2]) - int(found[1])) + 1 for found in ranges if found) > _MAX_NAMES:
        msg = f"the braces name more than {_MAX_NAMES:,} files"
        raise UsageError(msg, got=pattern)
    choices = []
    for at, (part, found) in enumerate(zip(parts, ranges, strict=True)):
        if found is not None:
            choices.append(_numbers(found))
        elif at % 2:
            choices.append(part.split(",") if "," in part else ["{" + part + "}"])
        else:
            choices.append([part])
    return ["".join(chosen) for chosen in product(*choices)]


def _numbers(found: re.Match[str]) -> list[str]:
    """Of "08..11": 08 09 10 11."""
    first, last = int(found[1]), int(found[2])
    padded = any(len(text) > 1 and text.startswith("0") for text in found.groups())
    width, step = max(map(len, found.groups())) if padded else 1, 1 if last >= first else -1
    return [f"{number:0{width}d}" for number in range(first, last + step, step)]


def _refuse_packed(base: str, files: Sequence[str]) -> None:
    """Shards of ours have a better index than the one that could be made of them here.

    Raises:
        UsageError: They are such shards.
    """
    for folder in sorted({os.path.dirname(file) for file in files}):
        path = os.path.join(base, folder) if folder else base
        if not os.path.isdir(os.path.join(path, FOLDER)):
            continue
        try:
            record = dataset.read_record(path)
        except DatasetError:
            continue  # unfinished or lost: then these are tars as any others
        names = {entry.file for entry in getattr(record, "shards", ())}
        if any(os.path.dirname(file) == folder and os.path.basename(file) in names for file in files):
            msg = "these tars are the shards of a packed dataset, which has an index already"
            raise UsageError(msg, path=path, hint=f"Open the folder: fastfeed.open({path!r}).")
