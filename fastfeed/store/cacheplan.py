"""Whether data is cached, where, and how much of it: decided from facts, with the reasons.

Pure but for facts_of(), which looks at the machine. What the user says wins as far as there is room: others' need of memory
and of /dev/shm (the loader's batches cross there) comes first.
"""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field

from fastfeed.config import Cache
from fastfeed.environment import temporary_folders
from fastfeed.machine import Memory, memory
from fastfeed.mounts import FileSystem, file_system
from fastfeed.store.cachefolder import CacheFolder, CacheUnusable
from fastfeed.store.shelf import Room
from fastfeed.units import format_size

VERSION = 1
"""Of what lies in a cache."""
SHARED_MEMORY = "/dev/shm"  # noqa: S108 - what is there is proven to be this user's alone
LEAST_BYTES = 16 << 20
"""A cache that must be smaller than this and than the data, since there is no more room, is none."""
LEAST_ASKED_BYTES = 1 << 20
"""A size that was named is taken at its word; but less than this, and than the data, is no size ("8" for "8GiB")."""
SHARED_RESERVE_BYTES = 256 << 20
"""Of a place that is memory at least so much, and a quarter of it, is left to batches of loaders and to others."""
DISK_RESERVE_BYTES, MOST_DISK_RESERVE_BYTES = 1 << 30, 10 << 30
"""Of a disk so much is left to others: a tenth of it within these bounds. Where a size was named: the least."""
_DISKS = {"local", "overlay"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """A place where a cache could be."""

    folder: str
    system: FileSystem
    size_bytes: int
    free_bytes: int
    taken_bytes: int = 0
    """By caches of this user that are there."""
    own_bytes: int = 0
    """Of those, by the very cache."""
    is_there: bool = False
    """Whether the very cache is there already."""
    holds_data: bool = False
    """Whether the data lies on the same file system."""
    problem: str | None = None
    """Why it cannot be used at all; a sentence."""

    @property
    def is_memory(self) -> bool:
        """Whether what lies there is memory."""
        return self.system.family == "memory"

    def part_bytes(self, budget_bytes: int) -> int:
        """What other caches of this user leave of a budget to this one."""
        return max(0, budget_bytes - (self.taken_bytes - self.own_bytes))

    def reserve_bytes(self, asked: Cache) -> int:
        """What is left free there."""
        if self.is_memory:
            return max(SHARED_RESERVE_BYTES, self.size_bytes // 4)
        if asked.budget_bytes is not None:
            return DISK_RESERVE_BYTES
        return max(DISK_RESERVE_BYTES, min(self.size_bytes // 10, MOST_DISK_RESERVE_BYTES))


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheFacts:
    """What the decision is made from."""

    source: FileSystem
    """That holds the data."""
    data_bytes: int
    """All that can be kept: the tars, not compressed."""
    compressed: bool
    """Whether reading is decompressing, too."""
    memory: Memory
    spots: Sequence[Spot]
    """In order of preference: the place that was named, or those that come by themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CachePlan:
    """The decision."""

    asked: Cache
    name: str
    """Of the cache: who has the same data has the same one."""
    data_bytes: int
    """All that can be kept; 0 where nothing is."""
    folder: str | None
    """The place; None: nothing is kept."""
    room: Room
    why: tuple[str, ...]
    """Sentences."""
    holder: int = field(default_factory=os.getpid)
    """The process that decided, and has a lease; its workers are guests."""

    def refused(self, why: str) -> "CachePlan":
        """The same wish, which cannot be had."""
        return no_cache(self.asked, self.name, why)

    def __str__(self) -> str:
        return "\n".join(self.why)


def cache_name(*parts: object) -> str:
    """The name of a cache of something, by all that tells it from others; it also tells users and formats apart."""
    text = "\0".join(map(str, ("fastfeed cache", VERSION, os.geteuid(), *parts)))
    return hashlib.sha256(os.fsencode(text)).hexdigest()[:32]


def facts_of(path: str, data_bytes: int, asked: Cache, name: str, *, compressed: bool) -> CacheFacts:
    """Look at data, machine and places.

    Args:
        path: Of the data.
        data_bytes: All that can be kept.
        asked: What the user asked for.
        name: Of the cache.
        compressed: Whether reading is decompressing.
    """
    device = _device(path)
    usual = [SHARED_MEMORY, *(folder for _, folder in temporary_folders())]
    folders = usual if asked.place is None else [asked.place]
    return CacheFacts(
        source=file_system(path),
        data_bytes=data_bytes,
        compressed=compressed,
        memory=memory(),
        spots=[spot_of(folder, name, device) for folder in dict.fromkeys(folders)],
    )


def _device(path: str) -> int | None:
    try:
        return os.stat(path).st_dev
    except OSError:
        return None  # what is there will be said by whoever opens it


def spot_of(folder: str, name: str, device: int | None) -> Spot:
    """Look at a place.

    Args:
        folder: It.
        name: Of the cache that could be there.
        device: Of the file system of the data, as os.stat has it.
    """
    system = file_system(folder)
    try:
        facts = os.statvfs(folder)
    except OSError as error:
        why = f"{folder} cannot be used: {error.strerror}"
        why += "; make it first" if isinstance(error, FileNotFoundError) else ""
        return Spot(folder=folder, system=system, size_bytes=0, free_bytes=0, problem=why)
    problem: str | None = None
    taken, mine, there = 0, 0, False
    try:
        own = CacheFolder(folder, make=False)
        taken, mine, there = own.used_bytes(), own.size_bytes(name), name in own.names()
    except FileNotFoundError:
        if not os.access(folder, os.W_OK | os.X_OK):
            problem = f"{folder} may not be written to"
    except CacheUnusable as error:
        problem = str(error)
    return Spot(
        folder=folder, system=system, size_bytes=facts.f_blocks * facts.f_frsize, free_bytes=facts.f_bavail * facts.f_frsize,
        taken_bytes=taken, own_bytes=mine, is_there=there, problem=problem,
        holds_data=device is not None and _device(folder) == device,
    )  # fmt: skip


def plan_cache(asked: Cache, facts: CacheFacts, name: str) -> CachePlan:
    """Decide.

    Args:
        asked: What the user asked for.
        facts: Data, machine and places.
        name: Of the cache.
    """
    idle = _does_it_already(facts)
    if asked.budget_bytes is None and idle is not None:
        return no_cache(asked, name, idle)
    refused: list[str] = []
    for spot in facts.spots:
        problem = spot.problem or _unfit(spot, named=asked.place is not None)
        room, why = _room(asked, spot, facts)
        if problem is None and room is not None:
            text = _told(spot, room, facts, why)
            warned = [] if idle is None else [f"costs: a cache gains nothing here: {idle}"]
            return CachePlan(
                asked=asked, name=name, data_bytes=facts.data_bytes, folder=spot.folder, room=room,
                why=(text, *refused, *warned),
            )  # fmt: skip
        refused.append(problem or why)
    return no_cache(asked, name, *(refused or ["there is no place for it"]))


def no_cache(asked: Cache, name: str, *why: str) -> CachePlan:
    """A plan without a cache, for reasons."""
    return CachePlan(asked=asked, name=name, data_bytes=0, folder=None, room=Room(0), why=(f"no cache: {why[0]}", *why[1:]))


def _does_it_already(facts: CacheFacts) -> str | None:
    """Why a cache of ours would gain nothing; None where it may."""
    source, free = facts.source, facts.memory.free_bytes
    if facts.compressed or source.slow_at_random:
        return None
    if source.family == "memory":
        return f"the data is in memory already ({source.why})"
    if source.family in _DISKS and facts.memory.limit_bytes and facts.data_bytes <= free // 2:
        size = format_size(facts.data_bytes)
        return f"{source.why}, and with {facts.memory.why} the system's page cache keeps all {size} of the data already"
    return None


def _unfit(spot: Spot, *, named: bool) -> str | None:
    """Why a place does not serve; None where it does."""
    family = spot.system.family
    if spot.system.slow_at_random:
        return f"{spot.folder} is no place for a cache: {spot.system.why}"
    if named or family == "memory":
        return None
    if family not in _DISKS:
        return f"{spot.folder} is no disk that is known: {spot.system.why}"
    if spot.holds_data:
        return f"{spot.folder} is on the disk that holds the data"
    return None


def _room(asked: Cache, spot: Spot, facts: CacheFacts) -> tuple[Room | None, str]:
    """How much may be put at a place, None where that is too little; and what bounds it."""
    reserve = spot.reserve_bytes(asked)
    grant, why = spot.free_bytes - reserve, _space(spot, reserve)
    left = 0
    if spot.is_memory and facts.memory.limit_bytes:
        half, left = facts.memory.free_bytes // 2, facts.memory.free_bytes // 4
        if half < grant:
            grant, why = half, f"half of {facts.memory.why}, which what lies in {spot.folder} is counted as"
    grant = max(0, grant)
    budget = spot.taken_bytes + grant
    if asked.budget_bytes is not None and asked.budget_bytes <= budget:
        budget, why = asked.budget_bytes, _asked(spot, asked.budget_bytes)
        if not spot.is_there and spot.part_bytes(budget) < min(LEAST_ASKED_BYTES, facts.data_bytes):
            return None, f"{why}: too little for a cache"
    if not spot.is_there and grant < min(LEAST_BYTES, facts.data_bytes):
        return None, f"{why}: too little room for a cache"
    return Room(budget, reserve_bytes=reserve, memory_bytes=left, is_memory=spot.is_memory), why


def _asked(spot: Spot, budget_bytes: int) -> str:
    text, others = f"{format_size(budget_bytes)} were asked for", spot.taken_bytes - spot.own_bytes
    if not others:
        return text
    remedy = "fastfeed info --clear-cache removes those that nobody uses"
    return f"{text}, of which other caches of yours in {spot.folder} take {format_size(others)}; {remedy}"


def _space(spot: Spot, reserve_bytes: int) -> str:
    text = f"{format_size(spot.free_bytes)} free of {format_size(spot.size_bytes)} in {spot.folder}, "
    text += f"{format_size(reserve_bytes)} of it for "
    if not spot.is_memory:
        return f"{text}others"
    small = spot.folder == SHARED_MEMORY and spot.size_bytes < 2 * SHARED_RESERVE_BYTES
    hint = " (docker run --shm-size makes it larger)" if small else ""
    return f"{text}batches and others{hint}"


def _told(spot: Spot, room: Room, facts: CacheFacts, why: str) -> str:
    where = f"{spot.folder} ({'memory' if spot.is_memory else spot.system.type})"
    part = spot.part_bytes(room.budget_bytes)
    if part >= facts.data_bytes:
        return f"cache in {where}: all {format_size(facts.data_bytes)} of the data ({why})"
    whole = f"of {format_size(facts.data_bytes)}, so about {part / facts.data_bytes:.0%} of the reads from the second epoch on"
    return f"cache in {where}: up to {format_size(part)} {whole} ({why})"
