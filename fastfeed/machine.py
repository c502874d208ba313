"""What this computer grants: usable processors and free space, each with its reason."""

import os
from dataclasses import dataclass
from pathlib import Path

from fastfeed.units import format_count


@dataclass(frozen=True, slots=True)
class Processors:
    """How many processors this process may use at once."""

    count: int
    """At least 1."""
    why: str
    """Where the number comes from."""


def processors(cgroup_root: str = "/sys/fs/cgroup", self_cgroup: str = "/proc/self/cgroup") -> Processors:
    """Usable processors: the affinity mask, cut by the cgroup's CPU quota (v2 cpu.max of this group or a parent, v1 cfs).

    Args:
        cgroup_root: Where the cgroup file system is mounted.
        self_cgroup: The file that names this process's groups.
    """
    affinity = len(os.sched_getaffinity(0))
    quota = _quota(Path(cgroup_root), Path(self_cgroup))
    if quota is not None and quota < affinity:
        count = max(1, int(quota))
        return Processors(count, f"{format_count(count, 'processor')} (cgroup quota of {round(quota, 2):g})")
    return Processors(affinity, f"{format_count(affinity, 'processor')} (affinity mask)")


def _quota(root: Path, self_cgroup: Path) -> float | None:
    """The tightest CPU quota of this process's cgroups in processors, None without one."""
    found = []
    groups = _read(self_cgroup) or ""
    own = next((line[3:].strip("/") for line in groups.splitlines() if line.startswith("0::")), "")
    for folder in (root / own, *(root / own).parents):
        words = (_read(folder / "cpu.max") or "").split()
        if len(words) == 2 and words[0].isdigit() and int(words[1]) > 0:  # noqa: PLR2004 - "quota period"
            found.append(int(words[0]) / int(words[1]))
        if folder == root:
            break
    quota, period = _read(root / "cpu/cpu.cfs_quota_us"), _read(root / "cpu/cpu.cfs_period_us")
    if quota and period and int(quota) > 0:
        found.append(int(quota) / int(period))
    return min(found, default=None)


def _read(path: Path) -> str | None:
    """A file's text, None where there is no such file: cgroup files are absent on many machines, and that is an answer."""
    try:
        return path.read_text()
    except OSError:
        return None


def free_bytes(folder: str) -> int:
    """Bytes that an unprivileged process may still write to the file system of a folder or of its nearest parent."""
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder) or "."
    facts = os.statvfs(folder)
    return facts.f_bavail * facts.f_frsize
