"""Where an audit writes, proven before it begins: nothing that is audited is replaced, and no hours of work are lost."""

import errno
import glob
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import combinations

from fastfeed.auditor.running.targets import Target
from fastfeed.disk import disk_error, remove
from fastfeed.errors import DestinationError, DestinationOccupied, UsageError
from fastfeed.sample import printable

Path = str | os.PathLike[str]
_DEVICES = "/dev"
_HINT = "Name a file elsewhere."
_MOVE = "Name another file, or move this one away."


def prove_places(target: Target, given: Mapping[str, Path | None], *, baseline: Path | None = None) -> None:
    """Whether all files that are asked for can be written, each apart from what is audited and from the others.

    Args:
        target: What is audited.
        given: Files by what they are to hold; None for one that is not asked for.
        baseline: A file that is read, and must not be replaced.

    Raises:
        UsageError: One is, or lies in, what is audited, or is the baseline, or two are the same.
        DestinationError: One cannot be written.
    """
    wanted = _absolute(given)
    own = _own(target) if wanted else set()
    for path in wanted.values():
        _prove_apart(target, own, path)
    for (one, path), (another, other) in combinations((wanted | _absolute({"baseline": baseline})).items(), 2):
        if os.path.realpath(path) == os.path.realpath(other):
            msg = f"{one} and {another} are the same file"
            raise UsageError(msg, path=path, hint="Name two.")
    for path in wanted.values():
        prove_writable(path)


def _absolute(given: Mapping[str, Path | None]) -> dict[str, str]:
    return {what: os.path.abspath(os.fsdecode(path)) for what, path in given.items() if path is not None}


def place_of(target: Target) -> str:
    """By what a report says of which target it is, from whichever folder it is started; of an object its type."""
    return target.name if target.live is not None else os.path.realpath(target.name)


def earlier_report(path: Path | None, place: str) -> list[str]:
    """What to say of a finished report that is about to be replaced.

    A report is also what later audits are compared with (baseline=), so one of something else is not lost to a mistyped name.
    Its first line is enough: each says of which target it is.

    Args:
        path: The report; None for none.
        place: Of the target, by place_of().

    Raises:
        DestinationOccupied: It is not one of this target, or no report at all.
        DestinationError: It cannot be read.
    """
    if path is None or not os.path.exists(path):
        return []
    where = os.path.abspath(os.fsdecode(path))
    with refusals(where), open(where, "rb") as file:
        first = file.readline()
    if not first:  # somebody has reserved the name
        return []
    before = _target_of(first)
    if before != place:
        msg = "a file that is no report of this target lies here, and would be replaced"
        got = "a file that names no target, as reports of audits do" if before is None else f"a report of {printable(before)}"
        raise DestinationOccupied(msg, path=where, expected=f"a report of {printable(place)}", got=got, hint=_MOVE)
    return ["the report of an earlier audit of the same was there: it was made anew"]


def _target_of(line: bytes) -> str | None:
    """What a line of a report says of its target; None of a line that says nothing."""
    try:
        return str(json.loads(line)["target"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


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
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise disk_error(f"{path}: {error.strerror}", error.errno, os.path.dirname(path), continues=continues) from error
        msg = f"this file cannot be written: {error.strerror}"
        raise DestinationError(msg, path=path, hint="Name one in a folder that is there and can be written to.") from error


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
