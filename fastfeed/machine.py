"""What this computer grants: processors, memory, shared memory, descriptors, GPUs, load, each with its reason.

Throughout, ``root`` is the folder that stands for / (tests lay out other machines in one), and the environment comes from
environment.launch_config. Nothing is divided by the ranks of a job but in :func:`share`.
"""

import os
import re
import sys
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from fastfeed.cgroups import cpu_quota, cpu_set, memory_limit, throttling
from fastfeed.environment import LaunchConfig, launch_config
from fastfeed.mounts import mount_of, mounts
from fastfeed.units import format_count, format_seconds, format_size


@dataclass(frozen=True, slots=True)
class Processors:
    """How many processors this process may use at once."""

    count: int
    """Whole processors, at least 1."""
    why: str
    """Where the number comes from."""
    usable: float
    """Not rounded: the affinity mask, or the quota where that is less."""
    logical: int
    """Processors in the affinity mask."""
    cores: int
    """Physical cores of those: two hyper-threads are one."""
    cores_why: str
    quota: float | None = None
    """The cgroup's quota in processors."""
    allowed: int = 0
    """Processors that the cgroup's cpuset, or else the machine, has: a mask may be widened to them. 0 where nothing tells."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory that this process and those beside it may use."""

    limit_bytes: int
    """0 where nothing tells."""
    used_bytes: int
    """Without file cache, which the kernel takes back."""
    why: str

    @property
    def free_bytes(self) -> int:
        """What is left, at least 0."""
        return max(0, self.limit_bytes - self.used_bytes)


@dataclass(frozen=True, slots=True)
class SharedMemory:
    """The tmpfs at /dev/shm, where batches cross from worker to consumer."""

    mounted: bool
    """Whether it is a file system of its own."""
    size_bytes: int
    """0 where there is none."""
    free_bytes: int
    why: str


@dataclass(frozen=True, slots=True)
class Descriptors:
    """File descriptors of this process."""

    soft: int
    """``ulimit -Sn``."""
    hard: int
    """``ulimit -Hn``: how far a process may raise it by itself."""
    used: int
    why: str


@dataclass(frozen=True, slots=True)
class Gpus:
    """NVIDIA GPUs that this process may see, told without CUDA."""

    count: int
    why: str


@dataclass(frozen=True, slots=True)
class Load:
    """What the processors are busy with already."""

    runnable: float
    """Threads of the whole machine that ran or waited for a processor, averaged over the last minute."""
    periods: int
    """Periods of the quota so far; 0 without a quota."""
    throttled: int
    """Those in which the kernel stopped this group because its quota was used up."""
    why: str


@dataclass(frozen=True, slots=True)
class Ranks:
    """Processes of the same job on this machine."""

    count: int
    """At least 1."""
    own_mask: bool
    """Whether the affinity mask is this rank's alone (srun and mpirun bind ranks), so that it is not to be divided."""
    why: str


@dataclass(frozen=True, slots=True)
class Share:
    """One rank's part of the processors."""

    processors: float
    cores: float
    """Physical cores."""
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """All of it."""

    processors: Processors
    ranks: Ranks
    memory: Memory
    shared_memory: SharedMemory
    descriptors: Descriptors
    gpus: Gpus
    load: Load

    @property
    def share(self) -> Share:
        """This rank's part of the processors."""
        return share(self.processors, self.ranks)


def survey(root: str = "/", launch: LaunchConfig | None = None) -> Machine:
    """Look at everything once (some 5 ms).

    Args:
        root: The folder that stands for /.
        launch: What the environment says; None reads it.
    """
    known = launch or launch_config()
    found = gpus(known, root)
    return Machine(
        processors=processors(root),
        ranks=ranks(known, found, root),
        memory=memory(root),
        shared_memory=shared_memory(root),
        descriptors=descriptors(root),
        gpus=found,
        load=load(root),
    )


def processors(root: str = "/", affinity: Collection[int] | None = None) -> Processors:
    """Usable processors: the affinity mask, cut by the tightest CPU quota of the cgroups (v1 cfs, v2 cpu.max).

    Args:
        root: The folder that stands for /.
        affinity: Numbers of the processors that the scheduler may use; None asks the kernel.
    """
    mask = frozenset(os.sched_getaffinity(0) if affinity is None else affinity)
    cores, cores_why = _cores(mask, root)
    quota = cpu_quota(root)
    limit = quota.processors if quota else None
    allowed = len(_cpu_list((cpu_set(root) or _read(os.path.join(root, "sys/devices/system/cpu/online")) or "").strip()))
    if quota is not None and quota.processors < len(mask):
        count = max(1, int(quota.processors))
        why = f"{format_count(count, 'processor')} (cgroup quota of {round(quota.processors, 2):g})"
        return Processors(count, why, quota.processors, len(mask), cores, cores_why, limit, allowed)
    why = f"{format_count(len(mask), 'processor')} (affinity mask)"
    return Processors(len(mask), why, float(len(mask)), len(mask), cores, cores_why, limit, allowed)


def _cores(mask: Iterable[int], root: str) -> tuple[int, str]:
    """Physical cores in a mask, from the kernel's topology (core_cpus_list; before Linux 5.4 thread_siblings_list)."""
    seen, unknown, total = set(), 0, 0
    for cpu in mask:
        total += 1
        folder = os.path.join(root, f"sys/devices/system/cpu/cpu{cpu}/topology")
        siblings = _read(os.path.join(folder, "core_cpus_list")) or _read(os.path.join(folder, "thread_siblings_list"))
        if siblings:
            seen.add(siblings.strip())
        else:
            unknown += 1
    count = len(seen) + unknown
    if unknown:
        return count, f"{format_count(count, 'core')} (the kernel shows no topology: each processor counts as a core)"
    if count < total:
        return count, f"{format_count(count, 'core')} ({total:,} processors are hyper-threads of them)"
    return count, f"{format_count(count, 'core')} (one thread each)"


def memory(root: str = "/") -> Memory:
    """Memory left: the tightest of the cgroups (v1, v2, the whole path) and of the machine."""
    facts = _table(os.path.join(root, "proc/meminfo"))
    total, available = facts.get("MemTotal", 0) << 10, facts.get("MemAvailable", facts.get("MemFree", 0)) << 10
    group = memory_limit(root)
    if group is not None and (not total or group.free_bytes < available):
        why = f"{format_size(group.free_bytes)} of memory left of {format_size(group.limit_bytes)} (cgroup {group.group})"
        return Memory(group.limit_bytes, group.used_bytes, why)
    if not total:
        return Memory(0, 0, "nothing tells how much memory is left: there is no /proc/meminfo and no limit of a cgroup")
    return Memory(total, total - available, f"{format_size(available)} of memory left of {format_size(total)} (the machine's)")


def shared_memory(root: str = "/", statvfs: Callable[[str], os.statvfs_result] = os.statvfs) -> SharedMemory:
    """What there is at /dev/shm: whether it is mounted, how large, how much is free.

    Args:
        root: The folder that stands for /.
        statvfs: Asks a file system for its size.
    """
    folder = os.path.realpath(os.path.join(root, "dev/shm"))
    try:
        facts = statvfs(folder)
    except OSError as error:
        return SharedMemory(mounted=False, size_bytes=0, free_bytes=0, why=f"no usable /dev/shm: {error.strerror}")
    inside = "/" + os.path.relpath(folder, os.path.realpath(root))
    mount = mount_of(inside, mounts(root))
    mounted = mount is not None and mount.point == inside
    size, free = facts.f_blocks * facts.f_frsize, facts.f_bavail * facts.f_frsize
    where = "" if mounted else f", a plain folder on {mount.type}" if mount else ", a plain folder"
    return SharedMemory(mounted, size, free, f"{format_size(free)} free of {format_size(size)} in /dev/shm{where}")


def descriptors(root: str = "/") -> Descriptors:
    """The limit of open files (soft, hard) and how many are in use."""
    match = re.search(r"^Max open files\s+(\S+)\s+(\S+)", _read(os.path.join(root, "proc/self/limits")) or "", re.MULTILINE)
    soft, hard = (int(word) if word.isdigit() else sys.maxsize for word in (match.groups() if match else ("", "")))
    try:
        used = len(os.listdir(os.path.join(root, "proc/self/fd")))
    except OSError:  # hidden in some sandboxes
        used = 0
    return Descriptors(soft, hard, used, f"{used:,} of {soft:,} descriptors in use (ulimit -n; it may be raised to {hard:,})")


def gpus(launch: LaunchConfig, root: str = "/") -> Gpus:
    """NVIDIA GPUs: those that the driver shows, cut by CUDA_VISIBLE_DEVICES."""
    shown = _names(os.path.join(root, "proc/driver/nvidia/gpus"))
    nodes = [name for name in _names(os.path.join(root, "dev")) if re.fullmatch(r"nvidia\d+", name)]
    count, source = len(nodes), "/dev/nvidia*"
    if shown and not nodes:
        return Gpus(
            0, f"no GPU: the driver has {format_count(len(shown), 'GPU')}, and none is passed to this container (/dev/nvidia0)"
        )
    if not nodes:
        if not os.path.exists(os.path.join(root, "usr/lib/wsl/lib/libcuda.so.1")):
            why = f", NVIDIA_VISIBLE_DEVICES={launch.nvidia_visible}" if launch.nvidia_visible else ""
            return Gpus(0, f"no GPU (there is no /dev/nvidia0{why})")
        count, source = 1, "libcuda of WSL"
    if launch.cuda_visible is None:
        return Gpus(count, f"{format_count(count, 'GPU')} ({source})")
    listed = 0
    for name in launch.cuda_visible.split(","):
        if not name.strip() or name.strip().startswith("-"):
            break  # CUDA stops at the first that is none
        listed += 1
    found = min(count, listed) if "MIG-" not in launch.cuda_visible else listed  # one GPU holds several MIG devices
    return Gpus(found, f"{format_count(found, 'GPU')} (CUDA_VISIBLE_DEVICES={launch.cuda_visible})")


def ranks(launch: LaunchConfig, visible: Gpus, root: str = "/", affinity: Collection[int] | None = None) -> Ranks:
    """Ranks on this machine, and whether each has an affinity mask of its own.

    A mask is a rank's own if it is no larger than what Slurm gives a task, or narrower than the parent's: the launcher
    has bound it. A mask that all ranks inherit (taskset before torchrun) is shared.

    Args:
        launch: What the environment says.
        visible: The GPUs, which tell where only WORLD_SIZE is known.
        root: The folder that stands for /.
        affinity: As for :func:`processors`.
    """
    count, why = launch.local_ranks or 1, launch.local_ranks_why
    world = launch.world_ranks or 1
    if launch.local_ranks is None and world > 1:
        count = min(world, visible.count or world)
        how = "all of them are taken to be" if count == world else f"as many as GPUs, {count}"
        why = f"WORLD_SIZE={world} and nothing tells how many of them are on this machine: {how}"
    mask = frozenset(os.sched_getaffinity(0) if affinity is None else affinity)
    parent = _table(os.path.join(root, "proc/self/status")).get("PPid", 0)
    above = _cpu_list(_field(os.path.join(root, f"proc/{parent}/status"), "Cpus_allowed_list"))
    own = count > 1 and (len(mask) <= (launch.cpus_per_task or 0) or mask < above)
    text = f"{format_count(count, 'rank')} on this machine ({'; '.join([why, *launch.ignored])})"
    return Ranks(count, own, text)


def share(processors: Processors, ranks: Ranks) -> Share:
    """One rank's part: the mask over the ranks that share it, the quota over all ranks (they are in one cgroup)."""
    sharing = 1 if ranks.own_mask else ranks.count
    quota = processors.quota / ranks.count if processors.quota is not None else float("inf")
    part = min(processors.logical / sharing, quota)
    cores = min(processors.cores / sharing, quota)
    if ranks.count == 1:
        return Share(part, cores, f"{processors.why}, {processors.cores_why}")
    each = f"{round(part, 2):g} of {processors.logical} processors a rank"
    how = "bound to this rank" if ranks.own_mask and part < quota else processors.why
    return Share(part, cores, f"{each} ({how}, {ranks.why}), {processors.cores_why}")


def load(root: str = "/") -> Load:
    """How busy the processors are, and whether the quota is used up again and again."""
    words = (_read(os.path.join(root, "proc/loadavg")) or "0").split()
    runnable = float(words[0])
    text = f"load {runnable:.2f}"
    found = throttling(root)
    if found is None:
        return Load(runnable, 0, 0, text)
    stopped = f"stopped by its quota in {found.throttled / found.periods:.0%} of the time so far"
    text += f", {stopped} ({found.throttled:,} of {found.periods:,} periods, {format_seconds(found.throttled_seconds)} in all)"
    return Load(runnable, found.periods, found.throttled, text)


def free_bytes(folder: str) -> int:
    """Bytes that an unprivileged process may still write to the file system of a folder or of its nearest parent."""
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder) or "."
    facts = os.statvfs(folder)
    return facts.f_bavail * facts.f_frsize


def _read(path: str) -> str | None:
    """A file's text, None where there is no such file: what a kernel or a sandbox does not show is an answer."""
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read()
    except OSError:
        return None


def _names(folder: str) -> list[str]:
    """The names in a folder; none where there is none."""
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _field(path: str, name: str) -> str:
    """A field of a file of lines "name: value"; "" where there is none."""
    match = re.search(rf"^{name}:\s*(.*)$", _read(path) or "", re.MULTILINE)
    return match[1].strip() if match else ""


def _table(path: str) -> dict[str, int]:
    """A file of lines "name: number unit"."""
    return {name: int(value) for name, value in re.findall(r"^(\w+):\s+(\d+)", _read(path) or "", re.MULTILINE)}


def _cpu_list(text: str) -> frozenset[int]:
    """The kernel's list format: "0-3,8" -> {0, 1, 2, 3, 8}."""
    ranges = [part.partition("-") for part in text.split(",") if part]
    return frozenset(cpu for first, _, last in ranges for cpu in range(int(first), int(last or first) + 1))
