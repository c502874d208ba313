"""What control groups grant: processors, memory and throttling, of version 1, version 2 and both at once.

Sources: the kernel's Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst; cgroups(7). A limit of any group on
the path from the own group up counts. Where a container sees its own group as /, what lies above cannot be seen.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass

from fastfeed.mounts import Mount, mounts

_NO_LIMIT = 1 << 60
"""Version 1 writes "none" as the largest multiple of the page size, 9223372036854771712."""


@dataclass(frozen=True, slots=True)
class Group:
    """A control group of this process, or a parent of it."""

    folder: str
    name: str
    """As the kernel names it, from the mounted top."""
    version: int

    def read(self, file: str) -> str | None:
        """The text of a control file; None where the kernel has no such file for this group."""
        try:
            with open(os.path.join(self.folder, file), encoding="ascii", errors="replace") as stream:
                return stream.read()
        except OSError:
            return None

    def number(self, file: str) -> int | None:
        """The number in a control file; None for "max", for none, and where there is no such file."""
        text = (self.read(file) or "").strip()
        return int(text) if text.isdigit() and int(text) < _NO_LIMIT else None

    def table(self, file: str) -> dict[str, int]:
        """A control file of lines "name number"."""
        pairs = (line.split() for line in (self.read(file) or "").splitlines())
        return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}  # noqa: PLR2004 - a pair


@dataclass(frozen=True, slots=True)
class Quota:
    """Processor time that a group may use, in processors."""

    processors: float
    group: str


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """Memory that a group may use."""

    limit_bytes: int
    used_bytes: int
    """In use, without the file cache that the kernel takes back when memory is short."""
    group: str

    @property
    def free_bytes(self) -> int:
        """What is left, at least 0."""
        return max(0, self.limit_bytes - self.used_bytes)


@dataclass(frozen=True, slots=True)
class Throttling:
    """How often a group had used up its quota before a period was over, since the group was made."""

    periods: int
    throttled: int
    """Periods in which it had to stop."""
    throttled_seconds: float
    group: str


def groups(controller: str, root: str = "/") -> list[Group]:
    """The groups that rule this process for a controller ("cpu", "memory"): its own first, then each parent.

    Of both versions where both are mounted; a controller lives in one of them, the files of the other are not there.

    Args:
        controller: Its name in version 1.
        root: The folder that stands for /.
    """
    own: dict[str, str] = {}
    for line in _lines(os.path.join(root, "proc/self/cgroup")):
        _, _, rest = line.partition(":")
        names, colon, path = rest.partition(":")
        if colon:
            own.update(dict.fromkeys(names.split(","), path))  # version 2 is the line without names
    found: list[Group] = []
    known = mounts(root)
    for version, name, type_ in ((2, "", "cgroup2"), (1, controller, "cgroup")):
        fitting = [m for m in known if m.type == type_ and (version == 2 or controller in m.options.split(","))]  # noqa: PLR2004
        if name in own and fitting:
            # The one that shows the own group, and most of what is above it.
            mount = max(fitting, key=lambda m: (_parts(own[name], m.root) is not None, -len(m.root), m.number))
            found += _path(mount, own[name], version, root)
    return found


def _parts(own: str, top: str) -> list[str] | None:
    """The own group's path below the mounted one; None where it does not lie there, or its name leads out of what is seen."""
    if ".." in own.split("/") or ".." in top.split("/"):
        return None
    if top not in {"/", own} and not own.startswith(top + "/"):
        return None
    return [part for part in own[len(top.rstrip("/")) :].split("/") if part]


def _path(mount: Mount, own: str, version: int, root: str) -> Iterator[Group]:
    """The own group and its parents up to the mounted one, which alone stands for them where the own one cannot be seen."""
    parts = _parts(own, mount.root) or []
    top = os.path.join(root, mount.point.lstrip("/"))
    for depth in range(len(parts), -1, -1):
        yield Group(os.path.join(top, *parts[:depth]), "/" + "/".join(parts[:depth]), version)


def _lines(path: str) -> list[str]:
    """The lines of a file; none where there is none: not every kernel has groups, and that is an answer."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read().splitlines()
    except OSError:
        return []


def cpu_quota(root: str = "/") -> Quota | None:
    """The tightest quota of processor time on the path; None without one."""
    found = []
    for group in groups("cpu", root):
        if group.version == 2:  # noqa: PLR2004
            words = (group.read("cpu.max") or "").split()  # "quota period" or "max period", in us
            quota, period = (int(word) if word.isdigit() else 0 for word in (words if len(words) == 2 else ("", "")))  # noqa: PLR2004
        else:
            quota, period = group.number("cpu.cfs_quota_us") or 0, group.number("cpu.cfs_period_us") or 0  # -1: none
        if quota > 0 and period > 0:
            found.append(Quota(quota / period, group.name))
    return min(found, key=lambda each: each.processors, default=None)


def cpu_set(root: str = "/") -> str | None:
    """The processors that the nearest group on the path allows ("0-3,8"); None where no group tells."""
    for group in groups("cpuset", root):
        text = (group.read("cpuset.cpus.effective" if group.version == 2 else "cpuset.effective_cpus") or "").strip()  # noqa: PLR2004
        if text:
            return text
    return None


def memory_limit(root: str = "/") -> MemoryLimit | None:
    """The group on the path with the least memory left; None where none has a limit."""
    found = []
    for group in groups("memory", root):
        stat = group.table("memory.stat")
        if group.version == 2:  # noqa: PLR2004
            used, names = group.number("memory.current"), ("inactive_file", "active_file")
            limits = [group.number("memory.max"), group.number("memory.high")]  # above high, a group is slowed to a crawl
        else:
            used, names = group.number("memory.usage_in_bytes"), ("total_inactive_file", "total_active_file")
            inherited = stat.get("hierarchical_memory_limit", _NO_LIMIT)  # knows of parents that a container cannot see
            limits = [group.number("memory.limit_in_bytes"), inherited if inherited < _NO_LIMIT else None]
        limit = min((each for each in limits if each is not None), default=None)
        if limit is not None and used is not None:
            cache = sum(stat.get(name, 0) for name in names)
            found.append(MemoryLimit(limit, max(0, used - cache), group.name))
    return min(found, key=lambda each: each.free_bytes, default=None)


def throttling(root: str = "/") -> Throttling | None:
    """The group on the path that was throttled most often; None where no group counts it (no quota anywhere)."""
    found = []
    for group in groups("cpu", root):
        stat = group.table("cpu.stat")
        if stat.get("nr_periods"):
            seconds = stat["throttled_usec"] / 1e6 if "throttled_usec" in stat else stat.get("throttled_time", 0) / 1e9
            found.append(Throttling(stat["nr_periods"], stat.get("nr_throttled", 0), seconds, group.name))
    return max(found, key=lambda each: each.throttled / each.periods, default=None)
