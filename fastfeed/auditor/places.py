"""Where an audit writes, proven before it begins: nothing that is audited is replaced, and no hours of work are lost."""

import errno
import glob
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import combinations

from fastfeed.auditor.running.targets import Target
from fastfeed.disk import disk_error, remove
from fastfeed.errors import DestinationOccupied, UsageError

Path = str | os.PathLike[str]
_DEVICES = "/dev"
_HINT = "Name a file elsewhere."


def prove_places(target: Target, given: Mapping[str, Path | None]) -> None:
    """Whether all files that are asked for can be written, each apart from what is audited and from the others.

    Args:
        target: What is audited.
        given: Files by what they are to hold; None for one that is not asked for.

    Raises:
        UsageError: One is, or lies in, what is audited, or two are the same.
        DestinationError: One cannot be written.
    """
    wanted = {what: os.path.abspath(os.fsdecode(path)) for what, path in given.items() if path is not None}
    own = _own(target) if wanted else set()
    for path in wanted.values():
        _prove_apart(target, own, path)
    for (one, path), (another, other) in combinations(wanted.items(), 2):
        if os.path.realpath(path) == os.path.realpath(other):
            msg = f"{one} and {another} are the same file"
            raise UsageError(msg, path=path, hint="Name two.")
    for path in wanted.values():
        prove_writable(path)


def prove_writable(path: str) -> None:
    """Whether a file can be written here: to be known before an audit of hours, not after it.

    Raises:
        DestinationError: It cannot.
    """
    with refusals(path):
        if os.path.isdir(path):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        in_devices = os.path.realpath(os.path.dirname(path)) == _DEVICES
        if in_devices or (os.path.exists(path) and not os.path.isfile(path)):
            msg = "a device or a pipe lies here: a file is written whole, and would take its place"
            raise DestinationOccupied(msg, path=path, hint=_HINT)
        with open(f"{path}.prove", "wb") as file:
            remove(file.name)


@contextmanager
def refusals(path: str, *, continues: bool = False) -> Iterator[None]:
    """The system's refusals to write, as our errors.

    Args:
        path: What is written.
        continues: Whether the same audit would go on where it ended.
    """
    try:
        yield
    except OSError as error:
        raise disk_error(f"{path}: {error.strerror}", error.errno, os.path.dirname(path), continues=continues) from error


def _own(target: Target) -> set[str]:
    """The files that are audited, or that tell what is, as far as they are named: tars, a list, a program."""
    if target.live is not None:
        return set()
    paths = [target.name, *glob.glob(target.name, recursive=True), target.name.rpartition(":")[0]]
    paths += target.tars.paths() if target.tars is not None else []
    return {os.path.realpath(path) for path in paths if os.path.isfile(path)}


def _prove_apart(target: Target, own: set[str], path: str) -> None:
    root, place = os.path.realpath(target.name), os.path.realpath(path)
    if place in own:
        msg = "this file is what is audited, to which nothing is written"
        raise UsageError(msg, path=place, hint=_HINT)
    if os.path.isdir(root) and os.path.commonpath([root, place]) == root:
        msg = "this file lies in what is audited, to which nothing is written"
        raise UsageError(msg, path=place, hint=_HINT)
