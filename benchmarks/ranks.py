"""One run on several GPUs: a process each under torch's launcher, workers shared out among them, their records merged.

On one GPU there is no launcher and no process group.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from benchmarks.measure import Record

PARTS = {"p50": 0.5, "p99": 0.99, "max": 1.0}
"""Of the times of all steps, by the names in tables."""
TIMES = ("wait", "feed", "thread")
"""Of each step, as bench_gpu.measured() says what they are."""


class Rank(NamedTuple):
    """A process among those of a run."""

    number: int = 0
    world: int = 1
    local: int = 0
    """Among those of this machine: its GPU."""


def launcher(gpus: int) -> list[str]:
    """What comes between python and a script that is to run on each of so many GPUs."""
    return [] if gpus == 1 else ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(gpus)]


def join() -> Rank:
    """This process's place. Where the launcher started it, it is then in torch's default group, with its GPU."""
    import torch
    from torch import distributed

    if not distributed.is_torchelastic_launched():
        return Rank()
    local, backend = distributed.get_node_local_rank(), "gloo"
    if torch.cuda.is_available():
        torch.cuda.set_device(local)
        backend = "cpu:gloo,cuda:nccl"
    distributed.init_process_group(backend)
    return Rank(distributed.get_rank(), distributed.get_world_size(), local)


def share_of(order: Mapping[str, Any], rank: Rank) -> Record:
    """A run's order as one rank's: with its place, and its part of the workers, at least one."""
    return {**order, **rank._asdict(), "workers": max(1, order["workers"] // rank.world)}


def wait_for_all(rank: Rank) -> None:
    """Return when every rank is here."""
    import torch
    from torch import distributed

    if rank.world > 1:
        distributed.all_reduce(torch.zeros(1))


def gathered(record: Record, rank: Rank) -> list[Record]:
    """The records of all ranks, in their order. The group ends with it."""
    from torch import distributed

    if rank.world == 1:
        return [record]
    found: list[Any] = [None] * rank.world
    distributed.all_gather_object(found, record)
    distributed.destroy_process_group()
    return found


def merged(records: Sequence[Mapping[str, Any]]) -> Record:
    """One record of a run's ranks: sums, times of all their steps, memory of the fullest GPU, the first rank's profile.

    Args:
        records: Of each rank: images_s, cores; wait_seconds, feed_seconds, thread_seconds (of each step); gpu, a name; gpu_mib,
            gpu_used_mib; profile (gpuprofile.recorded()), or None.
    """
    sums = {name: sum(record[name] for record in records) for name in ("images_s", "cores")}
    fullest = {name: max(record[name] for record in records) for name in ("gpu_mib", "gpu_used_mib")}
    times = {f"{name}_ms": _parts_ms([one for record in records for one in record[f"{name}_seconds"]]) for name in TIMES}
    first = {name: records[0][name] for name in ("gpu", "profile")}
    return {"gpus": len(records), **first, **sums, **times, **fullest}


def _parts_ms(seconds: list[float]) -> dict[str, float]:
    """Milliseconds, by the parts of a table; none of nothing."""
    ordered = sorted(seconds)
    return {name: 1e3 * ordered[min(len(ordered) - 1, int(part * len(ordered)))] for name, part in PARTS.items() if ordered}
