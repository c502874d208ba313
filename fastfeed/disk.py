"""Files that are published whole or not at all, and what it means when the disk refuses."""

import errno
import os
import sys
from collections.abc import Callable
from typing import BinaryIO

from fastfeed.errors import DestinationError, DestinationFull, UsageError
from fastfeed.units import format_size

FULL_HINT = "Nothing is lost: free some space and run the same command again, it continues; or choose another disk."
_ANEW_HINT = "Free some space, or choose another disk, and run the same command again; it begins anew."


def publish(part: str, target: str, write: Callable[[BinaryIO], object]) -> None:
    """Write a file whole or not at all: under a temporary name, flushed to the disk, then renamed."""
    with open(part, "wb") as file:
        write(file)
        file.flush()
        os.fsync(file.fileno())
    settle(part, target)


def settle(part: str, target: str) -> None:
    """Give a flushed file its name, replacing what has it, so that the name survives a power cut."""
    os.rename(part, target)
    sync_folder(os.path.dirname(target))


def prove_utf8() -> None:
    """File names must mean the same bytes on every machine.

    Raises:
        UsageError: Python was started so that they do not.
    """
    if sys.getfilesystemencoding() != "utf-8":
        msg = f"Python takes file names as {sys.getfilesystemencoding()} here"
        raise UsageError(msg, expected="utf-8", hint="Set PYTHONUTF8=1, or a UTF-8 locale such as LC_ALL=C.UTF-8.")


def sync_folder(path: str) -> None:
    """Flush a folder's entries, so that a rename in it survives a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove(path: str) -> None:
    """Remove a file that may not be there."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return


def disk_error(what: str, number: int | None, destination: str, *, continues: bool = True) -> DestinationError:
    """An operating system's refusal to write, as our error: full, or something else.

    Args:
        what: The file and the system's words.
        number: errno.
        destination: Where the job writes.
        continues: Whether the same command goes on where this one ended; else it begins anew.
    """
    from fastfeed.machine import free_bytes  # noqa: PLC0415 - each worker starts 7 ms sooner without it

    if number in {errno.ENOSPC, errno.EDQUOT}:
        return DestinationFull(
            f"the disk is full ({what})",
            path=destination,
            got=f"{format_size(free_bytes(destination))} free",
            hint=FULL_HINT if continues else _ANEW_HINT,
        )
    return DestinationError(
        f"the destination cannot be written ({what})",
        path=destination,
        hint="Mend it and run the same command again" + (": it continues." if continues else "; it begins anew."),
    )
