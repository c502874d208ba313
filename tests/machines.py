"""Other machines: laid out in a folder (/proc, /sys and /dev as such machines show them), and as records."""

from pathlib import Path

from fastfeed.machine import Descriptors, Gpus, Load, Machine, Memory, Processors, Ranks, SharedMemory

V2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
ROOT = "27 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw,errors=remount-ro\n"
SHM = "25 24 0:23 / /dev/shm rw,nosuid,nodev shared:3 - tmpfs tmpfs rw,inode64\n"
DOCKER_SHM = "1300 1295 0:100 / /dev/shm rw,nosuid,nodev,noexec,relatime - tmpfs shm rw,size=65536k,inode64\n"
DOCKER_ROOT = (
    "1290 1041 0:96 / / rw,relatime master:400 - overlay overlay "
    "rw,lowerdir=/var/lib/docker/overlay2/l/AB:/var/lib/docker/overlay2/l/CD,upperdir=/var/lib/docker/overlay2/9f/diff,workdir=w\n"
)
MEMINFO = (
    "MemTotal:       131072000 kB\nMemFree:        10000000 kB\nMemAvailable:   98304000 kB\nBuffers:          300000 kB\n"
)
NO_LIMIT_V1 = "9223372036854771712\n"
GIB = 1 << 30


def lay_out(root: Path, files: dict[str, str]) -> str:
    """Write files below a folder that stands for /; gives its path."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    root.mkdir(exist_ok=True)
    return str(root)


def mount_v1(number: int, controllers: str, group: str = "/", options: str = "") -> str:
    """The mountinfo line of a version 1 controller."""
    place = f"/sys/fs/cgroup/{controllers}"
    where = f"{number} 31 0:{number} {group} {place} ro,nosuid,nodev,noexec,relatime master:{number}"
    return f"{where} - cgroup cgroup rw,{options or controllers}\n"


def bare() -> dict[str, str]:
    """A machine without control groups."""
    return {"proc/self/mountinfo": ROOT + SHM, "proc/meminfo": MEMINFO}


def systemd_v2() -> dict[str, str]:
    """A workstation: a service of the user's session; the slice has memory.high, the service a quota."""
    own = "/user.slice/user-1000.slice/user@1000.service/app.slice/train.service"
    group = f"sys/fs/cgroup{own}"
    return {
        "proc/self/mountinfo": ROOT + SHM + V2,
        "proc/self/cgroup": f"0::{own}\n",
        "proc/meminfo": MEMINFO,
        "sys/fs/cgroup/cgroup.controllers": "cpuset cpu io memory pids\n",
        "sys/fs/cgroup/cpu.stat": "usage_usec 90000000\nuser_usec 80000000\nsystem_usec 10000000\n",
        "sys/fs/cgroup/user.slice/cpu.max": "max 100000\n",
        "sys/fs/cgroup/user.slice/memory.max": "max\n",
        "sys/fs/cgroup/user.slice/memory.current": f"{20 * GIB}\n",
        "sys/fs/cgroup/user.slice/user-1000.slice/memory.max": "max\n",
        "sys/fs/cgroup/user.slice/user-1000.slice/memory.high": f"{24 * GIB}\n",
        "sys/fs/cgroup/user.slice/user-1000.slice/memory.current": f"{18 * GIB}\n",
        "sys/fs/cgroup/user.slice/user-1000.slice/memory.stat": f"anon {6 * GIB}\nfile {12 * GIB}\n"
        f"active_file {4 * GIB}\ninactive_file {6 * GIB}\nshmem {2 * GIB}\n",
        f"{group}/cpu.max": "350000 100000\n",
        f"{group}/cpu.stat": "usage_usec 5\nnr_periods 1000\nnr_throttled 250\nthrottled_usec 12500000\nnr_bursts 0\n",
        f"{group}/memory.max": "max\n",
        f"{group}/memory.current": f"{3 * GIB}\n",
    }


def docker_v2() -> dict[str, str]:
    """docker run --cpus 1.5 --memory 4g, with a cgroup namespace of its own: the group sees itself as /."""
    return {
        "proc/self/mountinfo": DOCKER_ROOT
        + "1295 1290 0:99 / /dev rw,nosuid - tmpfs tmpfs rw,size=65536k,mode=755,inode64\n"
        + DOCKER_SHM
        + "1299 1298 0:29 / /sys/fs/cgroup ro,nosuid,nodev,noexec,relatime - cgroup2 cgroup rw,nsdelegate\n",
        "proc/self/cgroup": "0::/\n",
        "proc/meminfo": MEMINFO,
        "sys/fs/cgroup/cpu.max": "150000 100000\n",
        "sys/fs/cgroup/memory.max": f"{4 * GIB}\n",
        "sys/fs/cgroup/memory.high": "max\n",
        "sys/fs/cgroup/memory.current": f"{3 * GIB}\n",
        "sys/fs/cgroup/memory.stat": f"anon {GIB}\nfile {2 * GIB}\ninactive_file {GIB}\nactive_file {GIB // 2}\n",
    }


def docker_v1() -> dict[str, str]:
    """The same on a version 1 host: /proc tells the host's path, and the mounts begin at that group."""
    own = "/docker/3f4a9c0e8d7b"
    groups = (
        f"12:cpuset:{own}\n6:memory:{own}\n4:cpu,cpuacct:{own}\n1:name=systemd:{own}\n0::/system.slice/containerd.service\n"
    )
    return {
        "proc/self/mountinfo": DOCKER_ROOT
        + DOCKER_SHM
        + mount_v1(1310, "cpu,cpuacct", own)
        + mount_v1(1311, "memory", own)
        + mount_v1(1312, "systemd", own, "xattr,name=systemd"),
        "proc/self/cgroup": groups,
        "proc/meminfo": MEMINFO,
        "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "250000\n",
        "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
        "sys/fs/cgroup/cpu,cpuacct/cpu.stat": "nr_periods 400\nnr_throttled 40\nthrottled_time 8000000000\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{8 * GIB}\n",
        "sys/fs/cgroup/memory/memory.usage_in_bytes": f"{6 * GIB}\n",
        "sys/fs/cgroup/memory/memory.stat": f"cache {3 * GIB}\nhierarchical_memory_limit {8 * GIB}\n"
        f"inactive_file 0\ntotal_inactive_file {2 * GIB}\ntotal_active_file {GIB}\n",
    }


def kubernetes_v1() -> dict[str, str]:
    """A pod whose limit stands at the pod, above what the container sees; memory.stat still knows it."""
    own = "/kubepods/burstable/pod7d1c/8a6f"
    return {
        "proc/self/mountinfo": DOCKER_ROOT + mount_v1(1310, "cpu,cpuacct", own) + mount_v1(1311, "memory", own),
        "proc/self/cgroup": f"6:memory:{own}\n4:cpu,cpuacct:{own}\n",
        "proc/meminfo": MEMINFO,
        "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "-1\n",
        "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": NO_LIMIT_V1,
        "sys/fs/cgroup/memory/memory.usage_in_bytes": f"{GIB}\n",
        "sys/fs/cgroup/memory/memory.stat": f"hierarchical_memory_limit {2 * GIB}\ntotal_inactive_file 0\n",
    }


def slurm_v1() -> dict[str, str]:
    """A step of a job on version 1: the limit is the job's, two groups above the task's."""
    own = "/slurm/uid_2687/job_13759490/step_0/task_0"
    job = "sys/fs/cgroup/memory/slurm/uid_2687/job_13759490"
    return {
        "proc/self/mountinfo": ROOT + SHM + mount_v1(40, "cpu,cpuacct") + mount_v1(41, "memory") + mount_v1(42, "cpuset"),
        "proc/self/cgroup": f"9:cpuset:{own}\n8:memory:{own}\n4:cpuacct,cpu:/system.slice/slurmd.service\n",
        "proc/meminfo": MEMINFO,
        "sys/fs/cgroup/memory/memory.limit_in_bytes": NO_LIMIT_V1,
        f"{job}/memory.limit_in_bytes": f"{40 * GIB}\n",
        f"{job}/memory.usage_in_bytes": f"{10 * GIB}\n",
        f"{job}/step_0/memory.limit_in_bytes": f"{40 * GIB}\n",
        f"{job}/step_0/memory.usage_in_bytes": f"{9 * GIB}\n",
        f"{job}/step_0/task_0/memory.limit_in_bytes": NO_LIMIT_V1,
        f"{job}/step_0/task_0/memory.usage_in_bytes": f"{2 * GIB}\n",
    }


def slurm_v2() -> dict[str, str]:
    """The same on version 2: the limit stands at .../user, the task has none."""
    own = "/system.slice/node17_slurmstepd.scope/job_4749/step_0/user/task_0"
    step = "sys/fs/cgroup/system.slice/node17_slurmstepd.scope/job_4749/step_0"
    return {
        "proc/self/mountinfo": ROOT + SHM + V2,
        "proc/self/cgroup": f"0::{own}\n",
        "proc/meminfo": MEMINFO,
        f"{step}/user/task_0/memory.max": "max\n",
        f"{step}/user/task_0/memory.current": f"{GIB}\n",
        f"{step}/user/memory.max": f"{4 * GIB}\n",
        f"{step}/user/memory.current": f"{3 * GIB}\n",
        f"{step}/memory.max": f"{4 * GIB}\n",
        f"{step}/memory.current": f"{2 * GIB}\n",
        f"{step}/cpu.max": "max 100000\n",
    }


def hybrid() -> dict[str, str]:
    """systemd's hybrid: version 1 controllers, and a version 2 tree without any beside them."""
    return {
        "proc/self/mountinfo": ROOT
        + mount_v1(40, "cpu", "/", "cpu")
        + mount_v1(41, "memory")
        + "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n".replace("41 31", "43 31"),
        "proc/self/cgroup": "9:name=systemd:/\n4:memory:/batch/e570f777\n1:cpu:/batch\n0::/batch\n",
        "proc/meminfo": MEMINFO,
        "sys/fs/cgroup/unified/batch/cgroup.procs": "1\n",
        "sys/fs/cgroup/cpu/batch/cpu.cfs_quota_us": "600000\n",
        "sys/fs/cgroup/cpu/batch/cpu.cfs_period_us": "100000\n",
        "sys/fs/cgroup/memory/batch/memory.limit_in_bytes": f"{16 * GIB}\n",
        "sys/fs/cgroup/memory/batch/memory.usage_in_bytes": f"{GIB}\n",
        "sys/fs/cgroup/memory/batch/e570f777/memory.limit_in_bytes": NO_LIMIT_V1,
        "sys/fs/cgroup/memory/batch/e570f777/memory.usage_in_bytes": f"{GIB}\n",
    }


def topology(processors: int, threads: int) -> dict[str, str]:
    """Hyper-threads as Linux numbers them: core c has the processors c and c + cores."""
    cores = processors // threads
    files = {}
    for cpu in range(processors):
        siblings = ",".join(str(cpu % cores + turn * cores) for turn in range(threads))
        files[f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"] = siblings + "\n"
        files[f"sys/devices/system/cpu/cpu{cpu}/topology/core_cpus_list"] = siblings + "\n"
    return files


def machine(
    *,
    processors: int = 16,
    cores: int | None = None,
    quota: float | None = None,
    ranks: int = 1,
    memory: int = 100 * GIB,
    shared: int = 50 * GIB,
    soft: int = 1024,
    hard: int = 1 << 20,
    used: int = 20,
    gpus: int = 0,
    throttled: int = 0,
    runnable: float = 0.5,
    allowed: int | None = None,
) -> Machine:
    """What survey() would tell of a machine: bytes and counts of what is free."""
    usable = min(float(processors), quota if quota is not None else float(processors))
    why = f"{processors} processors (affinity mask)" if quota is None else f"{usable:g} processors (cgroup quota)"
    count = max(1, int(usable))
    size = max(shared, 64 << 20)
    return Machine(
        processors=Processors(
            count, why, usable, processors, cores or processors, f"{cores or processors} cores", quota, allowed or processors
        ),
        ranks=Ranks(ranks, own_mask=False, why=f"{ranks} ranks (LOCAL_WORLD_SIZE)"),
        memory=Memory(2 * memory, memory, f"{memory >> 20} MiB of memory left"),
        shared_memory=SharedMemory(bool(shared), size if shared else 0, shared, f"{shared >> 20} MiB free in /dev/shm"),
        descriptors=Descriptors(soft, hard, used, f"{used} of {soft} descriptors in use"),
        gpus=Gpus(gpus, f"{gpus} GPUs (/dev/nvidia*)" if gpus else "no GPU (there is no /dev/nvidia0)"),
        load=Load(runnable, 1000 if throttled else 0, throttled, f"load {runnable:.2f}"),
    )
