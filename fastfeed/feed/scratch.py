"""Files that can be made again, kept for the next time and for other processes: where they lie, who may read them, how long.

A folder is used only if it is a real folder of this user that nobody else can write to, so what is read there was written
by this user. A file appears whole or not at all, and is found by a name that is a digest of all that went into it.
"""

import os
import secrets
import stat
import time
from collections.abc import Callable
from typing import BinaryIO, TypeVar

from fastfeed.disk import disk_error, publish, remove
from fastfeed.environment import cache_folders
from fastfeed.errors import DestinationError, FastfeedError

_SUFFIX = ".columns"
_KEPT_SECONDS = 30 * 24 * 3600
_Opened = TypeVar("_Opened")


def recall(key: str, opener: Callable[[str], _Opened]) -> _Opened | None:
    """What was kept under a key, opened; None where nothing is, or what is there is damaged."""
    for folder in cache_folders():
        path = os.path.join(folder, "extra", key + _SUFFIX)
        if _trouble(os.path.dirname(path)) is not None or not os.path.isfile(path):
            continue
        try:
            opened = opener(path)
            os.utime(path)
        except (FastfeedError, OSError):
            continue  # it is made anew, and written over
        return opened
    return None


def keep(key: str, write: Callable[[BinaryIO], object]) -> str:
    """Write a file under a key, in the first folder that takes it.

    Returns:
        Its path.

    Raises:
        DestinationError: No folder takes it; each says why.
    """
    reasons, failed = [], None
    for folder in cache_folders():
        home = os.path.join(folder, "extra")
        reason = _made(home)
        if reason is None:
            _sweep(home)
            target = os.path.join(home, key + _SUFFIX)
            part = os.path.join(home, f"{secrets.token_hex(8)}.part")
            try:
                publish(part, target, write)
            except OSError as error:
                remove(part)
                failed = disk_error(f"{part}: {error.strerror}", error.errno, home)
                reason = str(failed.message)
            else:
                return target
        reasons.append(f"{home}: {reason}")
    if failed is not None:
        raise failed
    msg = f"there is no folder for a joined table's columns ({'; '.join(reasons)})"
    raise DestinationError(msg, hint="Set XDG_CACHE_HOME or TMPDIR to a folder of yours that can be written.")


def _made(folder: str) -> str | None:
    """Make a folder that is this user's alone; why it cannot be used, None if it can."""
    try:
        os.makedirs(os.path.dirname(folder), mode=0o700, exist_ok=True)
        os.makedirs(folder, mode=0o700, exist_ok=True)
    except OSError as error:
        return f"it cannot be made: {error.strerror}"
    return _trouble(folder)


def _trouble(folder: str) -> str | None:
    """Why the files in a folder cannot be trusted; None if they can."""
    for place in (os.path.dirname(folder), folder):
        try:
            facts = os.lstat(place)
        except OSError as error:
            return error.strerror
        if not stat.S_ISDIR(facts.st_mode):
            return f"{place} is no folder"
        if facts.st_uid != os.getuid() or facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            return f"{place} is another user's, or others can write to it"
    return None


def _sweep(folder: str) -> None:
    """Remove what nobody opened for long, and what a killed process left."""
    before = time.time() - _KEPT_SECONDS
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        try:
            old = name.endswith((_SUFFIX, ".part")) and os.lstat(path).st_mtime < before
        except FileNotFoundError:
            continue  # another process swept it
        if old:
            remove(path)
