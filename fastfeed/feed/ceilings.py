"""How many workers a machine bears at most: processors, memory, /dev/shm, descriptors, batches; each with its sentence.

Pure: everything comes in as records. What workers cost was measured with torch 2.14 on Linux (see the constants).
"""

from dataclasses import dataclass
from typing import Literal

from fastfeed.machine import Machine
from fastfeed.mounts import FileSystem
from fastfeed.units import format_count, format_size

StartMethod = Literal["fork", "spawn", "forkserver"]
Sharing = Literal["file_descriptor", "file_system", "pipe"]
Option = Literal["num_workers", "prefetch_factor", "pin_memory", "persistent_workers"]
Gate = Literal["daemonic", "cuda", "main", "pickle", "cheap", "short", "ceiling"]
CeilingName = Literal["processors", "waiting", "memory", "shared memory", "descriptors", "batches"]

WORKER_BYTES: dict[StartMethod, int] = {"fork": 64 << 20, "spawn": 320 << 20, "forkserver": 320 << 20}
"""Memory of its own that a worker takes before it holds a sample: 16-24 MiB forked (the rest is shared with the parent; more as
reference counts are touched), 290 MiB spawned, most of it torch."""
DESCRIPTORS_A_WORKER = 7
"""Pipes and the process itself, in the consumer: 5 forked, 6 to 7 spawned; 4 more however many there are."""
SPARE_DESCRIPTORS = 32
"""For files, sockets and NCCL that are opened later."""
HELD_BATCHES = 2
"""Batches in the consumer's hands: the one being worked on and the one just taken."""
MOST_DESCRIPTORS = 65536
"""A soft limit is not raised beyond this: some programs close every number up to it."""
PAGE_BYTES = 4096
LEAST_SHARED_BYTES = 256 << 10
"""Of /dev/shm, for the semaphores of workers' queues, without which none starts."""
MANY_PROCESSORS = 8
"""From here on one processor of a rank is left to the training process; below, it would be too large a part of the supply."""
PAST_SHARED_MEMORY = "batches go past /dev/shm, in memory files and pipes, which copies them once more"
MORE_SHARED_MEMORY = "docker run --shm-size makes it larger, in Kubernetes an emptyDir of medium Memory"


@dataclass(frozen=True, slots=True)
class Ceiling:
    """At most this many workers, and why."""

    name: CeilingName
    workers: int
    """May be 0."""
    why: str
    """A sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What, besides the number of workers, decides what they need."""

    prefetch_factor: int
    """Batches that each worker makes ahead."""
    sharing: Sharing
    """How a batch crosses: a descriptor of shared memory, the name of one, or bytes through a pipe."""
    soft_descriptors: int
    """The limit of open files, as it is or raised."""
    pin_memory: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRequest:
    """What the user passed; None is what they left to us."""

    num_workers: int | None = None
    prefetch_factor: int | None = None
    pin_memory: bool | None = None
    persistent_workers: bool | None = None
    multiprocessing_context: StartMethod | None = None
    override: frozenset[Option] = frozenset()
    """Options whose explicit value gives way to ours (FASTFEED_OVERRIDE)."""
    batches: int | None = None
    """Batches of an epoch on this rank; None for a stream."""
    pipes: bool = False
    """Whether the engine can send batches as bytes through pipes, past /dev/shm."""
    stream: bool = False
    """The number of workers is 0 since the dataset is a stream, not because it was given."""
    moved: bool = False
    """Whether we move batches onto a device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SizingFacts:
    """What is known of machine, dataset and process before workers start; the loader fills it, None is not known."""

    machine: Machine
    start_method: StartMethod = "fork"
    """The platform's, where the user names none."""
    batch_bytes: int | None = None
    """Of one collated batch; None before one was made."""
    batch_tensors: int = 2
    """Tensors in a batch: each has a block of shared memory, and a descriptor, of its own."""
    worker_bytes: int | None = None
    """Memory of its own that a worker was seen to take; None before one ran."""
    dataset_bytes: int = 0
    """Size of the pickled dataset, which each spawned worker holds once."""
    own_dataset: bool = False
    """Whether the dataset is one of ours, of which it is known that workers may outlive an epoch."""
    torch_numbers: bool = False
    """Whether random numbers shall be those of torch's loader, which persistent workers would draw otherwise."""
    file_system: FileSystem | None = None
    """What holds the data; None where that is not known."""
    block_order: bool = False
    """Whether the order is sequential in blocks already."""
    sharing: Sharing = "file_descriptor"
    """torch.multiprocessing's strategy as it is set."""
    accelerator: bool | None = None
    """Whether batches go to a GPU, where the loader knows; None: if there is one."""
    daemonic: bool = False
    """Whether this process is a daemonic one, which may have no children."""
    guarded_main: bool | None = None
    """Whether the main module stands under ``if __name__ == "__main__"``; None where that is not known."""
    cuda_tensors: str | None = None
    """Where the dataset holds CUDA tensors ("dataset.images"); None where none were found."""
    unpicklable: str | None = None
    """Why the dataset, collate_fn or worker_init_fn cannot be pickled; None where they can or it was not tried."""


def ceilings(facts: SizingFacts, setting: Setting, batches: int | None = None) -> tuple[Ceiling, ...]:
    """Every ceiling that is known, each for itself.

    Args:
        facts: The machine and the load.
        setting: Prefetching, sharing, descriptors.
        batches: Batches of an epoch, None where that is not known.
    """
    found = [*_processors(facts.machine), _memory(facts, setting), _shared_memory(facts, setting), _descriptors(facts, setting)]
    if batches is not None:
        text = f"{format_count(batches, 'batch', 'batches')} an epoch: a worker without one is started for nothing"
        found.append(Ceiling("batches", batches, text))
    return tuple(each for each in found if each is not None)


def _processors(machine: Machine) -> tuple[Ceiling, Ceiling]:
    """For workers that compute, and for workers that mostly wait for disks and networks.

    A quota counts processor seconds, not processes: what waits uses none of it.
    """
    share = machine.share
    count = max(1, int(share.processors))
    left = 1 if count >= MANY_PROCESSORS else 0
    why = f"{share.why}; one is left to the training process" if left else share.why
    waiting = max(count, min(64, max(16, 8 * count)))
    return (
        Ceiling("processors", count - left, why),
        Ceiling(
            "waiting", waiting, f"{waiting} workers where they mostly wait: eight to a processor, from 16 to 64, or one to each"
        ),
    )


def worker_bytes(facts: SizingFacts) -> tuple[int, str]:
    """Memory that one worker takes before it holds a sample, and words for it."""
    if facts.worker_bytes is not None:
        return facts.worker_bytes, f"{format_size(facts.worker_bytes)} (measured)"
    size = WORKER_BYTES[facts.start_method] + (facts.dataset_bytes if facts.start_method != "fork" else 0)
    return size, f"{format_size(size)} (assumed for {facts.start_method})"


def _memory(facts: SizingFacts, setting: Setting) -> Ceiling | None:
    memory, ranks = facts.machine.memory, facts.machine.ranks.count
    if not memory.limit_bytes:
        return None
    own, how = worker_bytes(facts)
    # Pinned blocks are rounded up to powers of two; one more batch is being made.
    ahead = (setting.prefetch_factor * (2 if setting.pin_memory else 1) + 1) * (facts.batch_bytes or 0)
    grant = memory.free_bytes * 4 // 5 // ranks
    batch = (
        f" and {format_size(ahead)} of batches" if facts.batch_bytes else ", batches not counted: their size is not known yet"
    )
    why = f"{memory.why}, a fifth of it for training{_over(ranks)}; a worker takes {how}{batch}"
    return Ceiling("memory", grant // max(1, own + ahead), why)


def _shared_memory(facts: SizingFacts, setting: Setting) -> Ceiling | None:
    """None where batches go past it, or their size is not known."""
    shared, ranks = facts.machine.shared_memory, facts.machine.ranks.count
    if shared.free_bytes < LEAST_SHARED_BYTES:
        return Ceiling("shared memory", 0, f"{shared.why}: workers cannot hand over tensors")
    if facts.batch_bytes is None or setting.sharing == "pipe":
        return None
    batch = _block(facts)
    grant = shared.free_bytes * 9 // 10 // ranks
    each = max(1, setting.prefetch_factor) * batch
    ahead = f"{format_count(setting.prefetch_factor, 'batch', 'batches')} of {format_size(batch)}"
    why = f"{shared.why}{_over(ranks)}; a worker has {ahead} there"
    return Ceiling("shared memory", max(0, (grant - HELD_BATCHES * batch) // each), why)


def _over(ranks: int) -> str:
    return f", over {ranks} ranks" if ranks > 1 else ""


def _block(facts: SizingFacts) -> int:
    """What a batch takes in /dev/shm: whole pages for each tensor."""
    return max(PAGE_BYTES, (facts.batch_bytes or 0) + facts.batch_tensors * (PAGE_BYTES // 2))


def shared_memory_needed(facts: SizingFacts, setting: Setting, workers: int) -> int:
    """Bytes of /dev/shm that this many workers fill at most."""
    return (workers * max(1, setting.prefetch_factor) + HELD_BATCHES) * _block(facts)


def _descriptors(facts: SizingFacts, setting: Setting) -> Ceiling:
    used = facts.machine.descriptors.used
    by_descriptor = setting.sharing == "file_descriptor"
    # A tensor in shared memory holds a descriptor for as long as it lives.
    each = DESCRIPTORS_A_WORKER + (setting.prefetch_factor * facts.batch_tensors if by_descriptor else 0)
    held = HELD_BATCHES * facts.batch_tensors if by_descriptor else 0
    left = setting.soft_descriptors - used - SPARE_DESCRIPTORS - held
    limit = f"{setting.soft_descriptors:,} descriptors (ulimit -n)"
    why = f"{limit}, {used:,} in use, {SPARE_DESCRIPTORS} spare; a worker takes {each}"
    return Ceiling("descriptors", max(0, left // each), why)
