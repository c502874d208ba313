"""How a loader is sized: workers, prefetching, pinning, sharing, decided from facts with a reason for each.

Pure: no clock, no disk, no torch. What the user passed wins; what that costs is said. What was left out is decided:
ceilings first, then half the physical cores of this rank; the tuner (tuning.py) corrects it while training runs.
"""

from dataclasses import dataclass, replace
from typing import Any

from fastfeed.feed.ceilings import (
    MORE_SHARED_MEMORY,
    MOST_DESCRIPTORS,
    PAST_SHARED_MEMORY,
    Ceiling,
    CeilingName,
    Gate,
    Setting,
    Sharing,
    SizingFacts,
    StartMethod,
    WorkerRequest,
    ceilings,
)
from fastfeed.feed.costs import Decision, costs
from fastfeed.feed.obstacles import GUARD
from fastfeed.units import format_count

PREFETCH_FACTOR = 2
"""As torch does."""
USUAL_WORKERS = 4
"""What scripts ask for by habit: where the processors are there, no fewer are started, so that a short epoch, which ends before
anything can be measured, is not slower than with them."""
AMPLE_SHARED_BYTES = 1 << 30
"""With less of /dev/shm the plan says what happens where that is too little."""
BATCHES_A_WORKER = 10
"""An epoch of fewer batches for each is not worth starting more workers than is usual: 5 for 40 cheap batches were 7 % slower
than 4 on 16 processors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerPlan:
    """The decision. ``print(plan)`` tells it."""

    num_workers: int
    prefetch_factor: int | None
    """None without workers."""
    pin_memory: bool
    persistent_workers: bool
    multiprocessing_context: StartMethod | None
    """None: the platform's own."""
    start_method: StartMethod
    """That, or the platform's."""
    threads_per_worker: int = 1
    """For torch, OpenMP, OpenCV and tokenizers in a worker."""
    sharing: Sharing
    """How batches cross; to be set where it differs from what is set."""
    descriptor_limit: int | None
    """What to raise the soft limit of descriptors to before workers start; None: leave it."""
    decided: bool
    """Whether the number of workers is ours, and may be tuned."""
    gate: Gate | None
    """What allows no workers at all; None where workers are possible."""
    ceilings: tuple[Ceiling, ...]
    why: tuple[str, ...]
    """Sentences, the most important first."""
    costs: tuple[str, ...]
    """What explicit values cost."""
    processors: float
    """This rank's part, for the tuner."""
    data: tuple[str, ...] = ()
    """What the dataset says of how it makes samples; sentences."""

    def lowest(self, *, waiting: bool = False) -> Ceiling:
        """The lowest ceiling.

        Args:
            waiting: For workers that mostly wait for disk or network: then they are not counted by processors.
        """
        left_out: CeilingName = "processors" if waiting else "waiting"
        return min((each for each in self.ceilings if each.name != left_out), key=_workers)

    def __str__(self) -> str:
        parts = [format_count(self.num_workers, "worker")]
        if self.num_workers:
            parts.append(f"prefetch_factor {self.prefetch_factor}")
        parts.append("pinned memory" if self.pin_memory else "no pinned memory")
        if self.num_workers:
            parts.append("workers persist" if self.persistent_workers else "workers are started each epoch")
        lines = [*self.why, *self.data, *(f"costs: {line}" for line in self.costs)]
        return "\n".join([", ".join(parts), *(f"  {line}" for line in lines)])


def plan_workers(request: WorkerRequest, facts: SizingFacts) -> WorkerPlan:
    """Decide what was left out, and say what it costs where the user decided.

    Args:
        request: What the user passed.
        facts: Machine, dataset and process. The more is None, the less is foreseen; ``why`` says so.
    """
    dropped: dict[str, Any] = dict.fromkeys(request.override)
    asked = replace(request, **dropped)
    facts = replace(facts, start_method=asked.multiprocessing_context or facts.start_method)
    pin, pin_why = _pinning(asked, facts)
    start, start_why = _start(facts, asked.batches)
    setting, ladder = _fitting(asked, facts, start if asked.num_workers is None else asked.num_workers, pin=pin)
    known = ceilings(facts, setting, asked.batches)
    gate = _gate(facts) or _no_room(known)
    count, count_why = _count(asked, (start, start_why), known, gate)
    persist, persist_why = _persistence(asked, facts, count)
    works, decided = count > 0, asked.num_workers is None
    soft = facts.machine.descriptors.soft
    return WorkerPlan(
        num_workers=count,
        prefetch_factor=setting.prefetch_factor if works else None if decided else asked.prefetch_factor,
        pin_memory=pin,
        persistent_workers=persist,
        multiprocessing_context=asked.multiprocessing_context if works or not decided else None,
        start_method=facts.start_method,
        sharing=setting.sharing if works else facts.sharing,
        descriptor_limit=setting.soft_descriptors if works and setting.soft_descriptors > soft else None,
        decided=decided,
        gate=gate[0] if gate else None,
        ceilings=known,
        why=(
            count_why,
            *(ladder if works else ()),
            *_reasons(facts, works=works),
            *(_before_the_first_batch(asked, facts) if works and facts.batch_bytes is None else ()),
            *persist_why,
            pin_why,
            *_overridden(request, facts),
        ),
        costs=costs(asked, facts, Decision(start=start, count=count, setting=setting, ceilings=known, gate=gate)),
        processors=facts.machine.share.processors,
    )


def _start(facts: SizingFacts, batches: int | None) -> tuple[int, str]:
    """Workers to start with, were nothing but processors and the length of an epoch to count."""
    share = facts.machine.share
    half = max(1, int(share.cores / 2))
    room = next(each for each in ceilings(facts, _first(facts), None) if each.name == "processors")
    count = min(room.workers, max(USUAL_WORKERS, half))
    worth = count if batches is None else max(USUAL_WORKERS, batches // BATCHES_A_WORKER)
    if worth < count:
        text = format_count(batches or 0, "batch", "batches")
        return (
            worth,
            f"{worth} workers to start with: {text} an epoch are not worth starting {count}",
        )
    workers = f"{format_count(count, 'worker')} to start with"
    if count == half:
        return count, f"{workers}: half of the physical cores ({share.why})"
    if count == USUAL_WORKERS:
        return count, f"{workers}, as is usual: half of the physical cores would be {half} ({share.why})"
    return count, f"{workers}, all that the processors bear ({share.why})"


def _first(facts: SizingFacts) -> Setting:
    """The setting that no ceiling has changed."""
    return Setting(
        prefetch_factor=PREFETCH_FACTOR,
        sharing="file_descriptor",
        soft_descriptors=facts.machine.descriptors.soft,
        pin_memory=False,
    )


def _fitting(asked: WorkerRequest, facts: SizingFacts, wanted: int, *, pin: bool) -> tuple[Setting, list[str]]:
    """The first rung of the ladder that bears the wanted workers, else the one that bears most; and what it changed."""
    prefetch = PREFETCH_FACTOR if asked.prefetch_factor is None else asked.prefetch_factor
    files = facts.machine.descriptors
    first = replace(_first(facts), prefetch_factor=prefetch, sharing=facts.sharing, pin_memory=pin)
    rungs = [first, replace(first, soft_descriptors=max(files.soft, min(files.hard, MOST_DESCRIPTORS)))]
    if asked.prefetch_factor is None:
        rungs.append(replace(rungs[-1], prefetch_factor=1))
    if asked.pipes:  # hold no descriptors either, and leave no names behind if a process is killed
        rungs.append(replace(rungs[-1], sharing="pipe"))
    elif facts.sharing == "file_descriptor":
        rungs.append(replace(rungs[-1], sharing="file_system"))

    def bears(setting: Setting) -> int:
        counted = ("memory", "shared memory", "descriptors")
        return min(each.workers for each in ceilings(facts, setting) if each.name in counted)

    enough = next((rung for rung in rungs if bears(rung) >= wanted), None)
    chosen = enough or max(reversed(rungs), key=bears)  # the most frugal of those that bear most
    for back in ("soft_descriptors", "sharing", "prefetch_factor"):  # only what helps is changed
        value: dict[str, Any] = {back: getattr(first, back)}
        plainer = replace(chosen, **value)
        # Too many workers that run all the same, because they were asked for, run on little.
        frugal = back == "prefetch_factor" and enough is None and (asked.num_workers is not None or not bears(plainer))
        if bears(plainer) >= min(bears(chosen), wanted) and not frugal:
            chosen = plainer
    if chosen == first:
        return first, []
    tight = min(
        (each for each in ceilings(facts, first) if each.name in {"memory", "shared memory", "descriptors"}), key=_workers
    )
    return chosen, _rungs(first, chosen, f"otherwise there is room for {format_count(tight.workers, 'worker')} ({tight.why})")


def _workers(ceiling: Ceiling) -> int:
    return ceiling.workers


def _rungs(first: Setting, chosen: Setting, why: str) -> list[str]:
    """What was changed, one sentence a rung."""
    said = []
    if chosen.soft_descriptors != first.soft_descriptors:
        said.append(f"the limit of descriptors is raised from {first.soft_descriptors:,} to {chosen.soft_descriptors:,}: {why}")
    if chosen.prefetch_factor != first.prefetch_factor:
        said.append(f"prefetch_factor {chosen.prefetch_factor} instead of {first.prefetch_factor}: {why}")
    if chosen.sharing == "file_system" != first.sharing:
        said.append(f"tensors are shared by name (file_system), which holds no descriptor for each: {why}")
    if chosen.sharing == "pipe":
        said.append(f"{PAST_SHARED_MEMORY}: {why}")
    return said


def _gate(facts: SizingFacts) -> tuple[Gate, str] | None:
    """The first reason against any worker that is known before a batch was made; for the others see gating.py."""
    if facts.daemonic:
        return "daemonic", "this process is a daemonic child, which may have no children of its own"
    if facts.cuda_tensors:
        return (
            "cuda",
            f"{facts.cuda_tensors} holds CUDA tensors: a forked worker cannot use them, a spawned one copies its CUDA context",
        )
    if facts.start_method != "fork":
        if facts.guarded_main is False:
            return (
                "main",
                f"{facts.start_method} imports the main module anew in each worker, and what it does is not under {GUARD}",
            )
        if facts.unpicklable:
            return "pickle", f"{facts.start_method} gives each worker a pickle of what it needs, and {facts.unpicklable}"
    return None


def _no_room(known: tuple[Ceiling, ...]) -> tuple[Gate, str] | None:
    """A ceiling of 0."""
    lowest = min(known, key=_workers)
    return None if lowest.workers else ("ceiling", f"there is no room for one: {lowest.why}")


def _count(
    asked: WorkerRequest, start: tuple[int, str], known: tuple[Ceiling, ...], gate: tuple[Gate, str] | None
) -> tuple[int, str]:
    """The number of workers, and why."""
    if asked.stream:
        return 0, "no workers: each would read all of a stream that does not share itself out; num_workers= starts them"
    if asked.num_workers is not None:
        return asked.num_workers, f"{format_count(asked.num_workers, 'worker')}: num_workers was given"
    if gate is not None:
        return 0, f"no workers: {gate[1]}"
    lowest = min((each for each in known if each.name != "waiting"), key=_workers)
    if start[0] <= lowest.workers:
        return start
    return lowest.workers, f"{format_count(lowest.workers, 'worker')}, not {start[0]}: {lowest.why}"


MOVED = "no pinning by torch: fastfeed itself moves batches onto the device (device=)"


def _pinning(asked: WorkerRequest, facts: SizingFacts) -> tuple[bool, str]:
    if asked.pin_memory is not None:
        return asked.pin_memory, f"pin_memory={asked.pin_memory} was given"
    if asked.moved:
        return False, MOVED
    gpus = facts.machine.gpus
    used = gpus.count > 0 if facts.accelerator is None else facts.accelerator
    if used:
        return True, f"pinned memory, so that copies to the GPU overlap with computing: {gpus.why}"
    return False, f"no pinned memory: {gpus.why if not gpus.count else 'batches do not go to a GPU'}"


def _persistence(asked: WorkerRequest, facts: SizingFacts, count: int) -> tuple[bool, list[str]]:
    """Without workers that we decided against, torch would refuse persistent ones: False then."""
    if asked.persistent_workers is not None and (count or asked.num_workers is not None):
        return asked.persistent_workers, [f"persistent_workers={asked.persistent_workers} was given"]
    if not count:
        return False, []
    if facts.own_dataset and facts.torch_numbers:
        return False, [
            "workers are started anew each epoch: persistent ones would draw other random numbers than torch's loader"
        ]
    if facts.own_dataset:
        return True, ["workers persist between epochs: the dataset is one of fastfeed's, which takes the epoch with each batch"]
    return False, ["workers are started anew each epoch: a foreign dataset may rely on it (persistent_workers=True keeps them)"]


def _reasons(facts: SizingFacts, *, works: bool) -> list[str]:
    """What else is to be known."""
    said = []
    if works:
        left = "; OpenMP and MKL are left alone, whose last bits may depend on it" if facts.torch_numbers else ""
        said.append(f"one thread a worker: threads inside workers were slower at every split{left}")
    if facts.file_system is not None and facts.file_system.slow_at_random:
        order = "" if facts.block_order else 'shuffle_mode="block" reads one part after the other, and '
        said.append(f"{facts.file_system.why}: {order}cache_dir= on a disk of this machine keeps what was read")
    said += _narrow(facts)
    load = facts.machine.load
    if load.throttled * 10 > load.periods:
        said.append(f"{load.why}: more processes do not get more done")
    elif load.runnable > facts.machine.processors.logical:
        said.append(f"others are at work here ({load.why} on {format_count(facts.machine.processors.logical, 'processor')})")
    return said


def _narrow(facts: SizingFacts) -> list[str]:
    """Where fewer processors may be used than there are, mostly unawares: importing a library may bind the process."""
    processors, ranks = facts.machine.processors, facts.machine.ranks
    if ranks.own_mask or 2 * processors.logical > processors.allowed:
        return []
    may = f"this process and its workers may use {processors.logical} of {processors.allowed} processors (its affinity mask)"
    fix = f"os.sched_setaffinity(0, range({processors.allowed})) before the loader is made allows them all"
    return [f"{may}: if that is not meant (OMP_PROC_BIND, GOMP_CPU_AFFINITY, taskset, a library that was imported), {fix}"]


def _before_the_first_batch(asked: WorkerRequest, facts: SizingFacts) -> list[str]:
    """What cannot be foreseen yet, and what happens meanwhile."""
    said = ["how large a batch is, is known with the first one: /dev/shm and memory are judged then"]
    shared = facts.machine.shared_memory
    if asked.pipes and shared.free_bytes < AMPLE_SHARED_BYTES:
        said.append(f"{shared.why}: batches for which that is too little go past it, copied once more ({MORE_SHARED_MEMORY})")
    return said


def _overridden(request: WorkerRequest, facts: SizingFacts) -> list[str]:
    given = [name for name in sorted(request.override) if getattr(request, name) is not None]
    said = [f"{name}={getattr(request, name)} was given and gives way to ours (FASTFEED_OVERRIDE)" for name in given]
    if "num_workers" in given and not facts.torch_numbers:
        said.append("random numbers are drawn anew for each sample, so that results do not depend on our number of workers")
    return said
