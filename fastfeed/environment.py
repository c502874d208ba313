"""What the environment tells: launchers, devices, caches, threads, fastfeed's own switches. The only place that reads it."""

import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from fastfeed.errors import UsageError

OVERRIDABLE = frozenset({"num_workers", "prefetch_factor", "pin_memory", "persistent_workers"})
"""Options of a loader that FASTFEED_OVERRIDE may name."""

_LAUNCHERS = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS")
"""torchrun, Lightning and Accelerate; Open MPI; MPICH and Intel MPI; srun (SLURM_NTASKS is there in sbatch's script too)."""


def launched_processes() -> tuple[str, int] | None:
    """How many processes a launcher says that it started together with this one: (the variable, its number), or None.

    Raises:
        UsageError: The variable holds no number.
    """
    for name in _LAUNCHERS:
        text = os.environ.get(name, "")
        if text and not (text.isascii() and text.isdecimal()):
            msg = f"the environment variable {name} should hold the number of processes"
            raise UsageError(msg, got=repr(text))
        if text and int(text) > 1:
            return name, int(text)
    return None


def cache_folders() -> list[str]:
    """Where files that can be made again may be kept, the first choice first: the user's cache, then the temporary folder.

    XDG_CACHE_HOME is as the XDG Base Directory Specification 0.8 has it: ~/.cache where it is not set or not absolute.
    """
    cache = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(cache):
        cache = os.path.join(os.path.expanduser("~"), ".cache")
    return [os.path.join(cache, "fastfeed"), os.path.join(tempfile.gettempdir(), f"fastfeed-{os.getuid()}")]


def temporary_folders(environment: Mapping[str, str] = os.environ) -> list[tuple[str, str]]:
    """(variable, folder): where a job may put large files that are this machine's own, the scheduler's choice first.

    Args:
        environment: The environment, as at the time of the call.
    """
    named = ((name, environment.get(name, "")) for name in ("SLURM_TMPDIR", "TMPDIR"))
    return [(name, folder) for name, folder in named if os.path.isabs(folder)]


def overrides(environment: Mapping[str, str] = os.environ) -> frozenset[str]:
    """FASTFEED_OVERRIDE: names of a loader's options, separated by commas, whose explicit values give way to its decisions.

    Args:
        environment: The environment, as at the time of the call.

    Raises:
        UsageError: A name that is none of OVERRIDABLE.
    """
    text = environment.get("FASTFEED_OVERRIDE", "")
    names = frozenset(name for part in text.split(",") if (name := part.strip()))
    unknown = sorted(names - OVERRIDABLE)
    if unknown:
        msg = f"the environment variable FASTFEED_OVERRIDE names {', '.join(unknown)}, about which a loader decides nothing"
        raise UsageError(msg, expected=f"some of {','.join(sorted(OVERRIDABLE))}", got=repr(text))
    return names


def is_disabled(environment: Mapping[str, str] = os.environ) -> bool:
    """FASTFEED_DISABLE: whether loaders shall be plain torch; 1 says so, 0 and nothing say no.

    Args:
        environment: The environment, as at the time of the call.

    Raises:
        UsageError: Something else.
    """
    text = environment.get("FASTFEED_DISABLE", "").strip()
    if text not in {"", "0", "1"}:
        msg = "the environment variable FASTFEED_DISABLE is a switch"
        raise UsageError(msg, expected="1, 0 or nothing", got=repr(text))
    return text == "1"


def local_rank(environment: Mapping[str, str] = os.environ) -> int | None:
    """LOCAL_RANK: which process of this job on this machine it is, as torchrun says; None where nobody does.

    Args:
        environment: The environment, as at the time of the call.
    """
    text = environment.get("LOCAL_RANK", "").strip()
    return int(text) if text.isascii() and text.isdecimal() else None


_ALONE = "nothing in the environment tells of other ranks"


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchConfig:
    """What the environment says of how this process was started: how many ranks share the machine, which GPUs it may see."""

    local_ranks: int | None = None
    """Processes of this job on this machine; None where nothing tells."""
    local_ranks_why: str = _ALONE
    """The variable that told it."""
    world_ranks: int | None = None
    """Processes of this job on all machines, where WORLD_SIZE tells."""
    cpus_per_task: int | None = None
    """Processors that Slurm gives each rank; None where Slurm's tasks are not the ranks."""
    cuda_visible: str | None = None
    """CUDA_VISIBLE_DEVICES."""
    nvidia_visible: str | None = None
    """NVIDIA_VISIBLE_DEVICES, which the NVIDIA container runtime reads."""
    ignored: tuple[str, ...] = ()
    """Variables that should hold a number and hold something else."""


_LOCAL_RANKS = (
    ("LOCAL_WORLD_SIZE", "torchrun, torchelastic, Accelerate"),
    ("LOCAL_SIZE", "DeepSpeed"),
    ("HOROVOD_LOCAL_SIZE", "Horovod"),
    ("OMPI_COMM_WORLD_LOCAL_SIZE", "Open MPI"),
    ("MPI_LOCALNRANKS", "MPICH, Intel MPI"),
    ("MV2_COMM_WORLD_LOCAL_SIZE", "MVAPICH"),
)
"""Variables with the number of ranks on this machine, and who sets them; an inner launcher comes before an outer one."""
_SLURM_TASKS = re.compile(r"(\d+)(?:\(x(\d+)\))?")


def launch_config(environment: Mapping[str, str] = os.environ) -> LaunchConfig:
    """Read what launchers say of this process.

    Args:
        environment: The environment, as at the time of the call.
    """
    ignored: list[str] = []

    def number(name: str) -> int | None:
        text = environment.get(name, "").strip()
        if text and not (text.isascii() and text.isdigit() and int(text) > 0):
            ignored.append(f"{name}={text!r} is not a number from 1 and is ignored")
            return None
        return int(text) if text else None

    inner = next(((count, f"{name}={count}, set by {who}") for name, who in _LOCAL_RANKS if (count := number(name))), None)
    slurm = None if inner else _slurm_tasks(environment, ignored)
    ranks, why = inner or slurm or (None, _ALONE)
    return LaunchConfig(
        local_ranks=ranks,
        local_ranks_why=why,
        world_ranks=number("WORLD_SIZE"),
        cpus_per_task=number("SLURM_CPUS_PER_TASK") if slurm else None,
        cuda_visible=environment.get("CUDA_VISIBLE_DEVICES"),
        nvidia_visible=environment.get("NVIDIA_VISIBLE_DEVICES"),
        ignored=tuple(ignored),
    )


def _slurm_tasks(environment: Mapping[str, str], ignored: list[str]) -> tuple[int, str] | None:
    """Tasks of this Slurm step on this node: the list is by node, run-length coded, "5,4(x3)" (man srun).

    Only what srun sets for a step counts: in a batch script, SLURM_NTASKS_PER_NODE tells of tasks that are not running.
    """
    text, node = environment.get("SLURM_STEP_TASKS_PER_NODE"), environment.get("SLURM_NODEID", "0")
    if text is None:
        return None
    counts: list[int] = []
    for part in text.split(","):
        match = _SLURM_TASKS.fullmatch(part.strip())
        counts += [int(match[1])] * int(match[2] or 1) if match else []
    if not (node.isdigit() and int(node) < len(counts) and counts[int(node)] > 0):
        ignored.append(f"SLURM_STEP_TASKS_PER_NODE={text!r} does not tell of node {node} and is ignored")
        return None
    return counts[int(node)], f"SLURM_STEP_TASKS_PER_NODE={text}, set by srun"


_BLAS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_OPENCV, _TOKENIZERS = "OPENCV_FOR_THREADS_NUM", "TOKENIZERS_PARALLELISM"


def limit_library_threads(count: int, *, exact: bool) -> frozenset[str]:
    """Tell the libraries that this process loads later how many threads to use, where the user has not.

    Args:
        count: Threads.
        exact: Leave BLAS and OpenMP alone.

    Returns:
        What the user has set: some of "openmp", "opencv", "tokenizers".
    """
    given = {"openmp"} if any(name in os.environ for name in _BLAS) else set()
    given |= {name for name, variable in (("opencv", _OPENCV), ("tokenizers", _TOKENIZERS)) if variable in os.environ}
    values = {_OPENCV: str(count), _TOKENIZERS: str(count > 1).lower()}
    if not exact and "openmp" not in given:
        values.update(dict.fromkeys(_BLAS, str(count)))
    for variable, value in values.items():
        os.environ.setdefault(variable, value)
    return frozenset(given)


@contextmanager
def workers_begin() -> Iterator[None]:
    """Around the start of worker processes: Hugging Face tokenizers would print a warning in each that was forked.

    They look for their variable while the process is forked, before any code of ours runs in it. In this process they keep
    their threads.
    """
    if "tokenizers" not in sys.modules or _TOKENIZERS in os.environ:
        yield
        return
    os.environ[_TOKENIZERS] = "false"
    try:
        yield
    finally:
        del os.environ[_TOKENIZERS]
