"""The caches of this user on this machine: what they hold, whether somebody uses them; and removing those that nobody does."""

import os
from collections.abc import Sequence
from dataclasses import dataclass

from fastfeed.environment import temporary_folders
from fastfeed.store.cachefolder import CacheFolder, CacheUnusable
from fastfeed.store.cacheplan import SHARED_MEMORY
from fastfeed.store.lease import read_about


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheInfo:
    """One cache."""

    path: str
    """Its folder."""
    data: str
    """What it is of: a path; "" where it does not say."""
    holds: str
    """How large all of the data is, in words."""
    size_bytes: int
    """That it takes, its table included."""
    in_use: bool
    """Whether a process has a lease on it."""
    kept: bool
    """Whether it stays when nobody uses it."""


@dataclass(frozen=True, slots=True)
class CachesResult:
    """What was found, or removed."""

    caches: tuple[CacheInfo, ...]
    """Those that are there now."""
    removed: tuple[CacheInfo, ...]
    """Those that were there before."""
    unusable: tuple[str, ...]
    """Places that are not looked into, and why; sentences."""
    places: tuple[str, ...]
    """All that were asked for, or those where caches are put by themselves."""


def caches(folders: Sequence[str] = (), *, data: str | None = None, clear: bool = False) -> CachesResult:
    """List the caches of this user; remove those without a lease, also kept ones, if asked for.

    Args:
        folders: Places; without any, those where caches are put by themselves.
        data: Only caches of this dataset, or of the splits below it.
        clear: Remove them.
    """
    found: list[CacheInfo] = []
    removed: list[CacheInfo] = []
    unusable: list[str] = []
    usual = [SHARED_MEMORY, *(folder for _, folder in temporary_folders())]
    places = tuple(dict.fromkeys(folders or usual))
    for place in places:
        try:
            folder = CacheFolder(os.path.abspath(place), make=False)
            with folder.locked():
                there = [info_of(folder, name) for name in folder.names()]
                asked = [info for info in there if data is None or _is_of(info.data, data)]
                gone = [info for info in asked if clear and not info.in_use]
                for info in gone:
                    folder.remove(os.path.basename(info.path))
                if clear:
                    folder.remove_empty()
        except FileNotFoundError:
            continue
        except CacheUnusable as error:
            unusable.append(str(error))
            continue
        removed += gone
        found += [info for info in asked if info not in gone]
    return CachesResult(tuple(found), tuple(removed), tuple(unusable), places)


def info_of(folder: CacheFolder, name: str) -> CacheInfo:
    """One cache, looked at under the lock."""
    try:
        about = read_about(folder, name)
    except (OSError, ValueError):
        about = {}  # its making was not finished, or it is damaged: it can be removed all the same
    return CacheInfo(
        path=os.path.join(folder.path, name), data=str(about.get("path", "")), holds=str(about.get("of", "")),
        size_bytes=folder.size_bytes(name), in_use=folder.is_used(name), kept=folder.is_kept(name),
    )  # fmt: skip


def _is_of(path: str, data: str) -> bool:
    whole = os.path.abspath(data)
    return path == whole or path.startswith(whole.rstrip("/") + "/")
