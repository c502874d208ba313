"""What it costs where the user decided: a sentence for each explicit value that the facts speak against. Pure."""

from dataclasses import dataclass

from fastfeed.feed.ceilings import (
    MORE_SHARED_MEMORY,
    PAST_SHARED_MEMORY,
    Ceiling,
    Gate,
    Setting,
    SizingFacts,
    StartMethod,
    WorkerRequest,
    shared_memory_needed,
)
from fastfeed.units import format_seconds, format_size

START_SECONDS: dict[StartMethod, float] = {"fork": 0.05, "spawn": 3.0, "forkserver": 2.5}
"""Until the first worker gives its first batch; spawned ones import torch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What would be right, and what is done."""

    start: int
    """Workers that would have been started, were nothing but processors to count."""
    count: int
    """Workers that are started."""
    setting: Setting
    ceilings: tuple[Ceiling, ...]
    gate: tuple[Gate, str] | None
    """What speaks against any worker."""

    @property
    def most(self) -> int:
        """The lowest ceiling for workers that compute."""
        return min(each.workers for each in self.ceilings if each.name != "waiting")


def costs(asked: WorkerRequest, facts: SizingFacts, decision: Decision) -> tuple[str, ...]:
    """One sentence for each explicit value that costs something, or that has no effect."""
    return (*_workers(asked, facts, decision), *_without_workers(asked, decision), *_options(asked, facts, decision))


def _workers(asked: WorkerRequest, facts: SizingFacts, decision: Decision) -> list[str]:
    count, gate = asked.num_workers, decision.gate
    if count is None or asked.stream:
        return []
    if count == 0:
        lost = min(decision.start, decision.most)
        return (
            [] if gate else [f"num_workers=0: each batch is made while training waits; {lost} workers would have been started"]
        )
    reasons = [gate[1]] if gate and gate[0] != "ceiling" else []
    over = [each for each in decision.ceilings if count > each.workers and each.name != "waiting"]
    reasons += [_too_many(each, facts, decision.setting, count) for each in over]
    if decision.setting.sharing == "pipe":
        reasons.append(f"{PAST_SHARED_MEMORY} ({MORE_SHARED_MEMORY}; fewer workers, or a smaller prefetch_factor, need less)")
    if not gate and count < min(decision.start, decision.most):
        reasons.append(f"{min(decision.start, decision.most)} would have been started")
    return [f"num_workers={count}: {reason}" for reason in reasons]


def _too_many(ceiling: Ceiling, facts: SizingFacts, setting: Setting, count: int) -> str:
    """What happens beyond a ceiling, and what to do."""
    if ceiling.name == "processors":
        on = f"on {facts.machine.share.processors:.2g} usable processors"
        return f"{on}: they take turns, and the training process's time, unless they mostly wait ({ceiling.why})"
    if ceiling.name == "batches":
        return ceiling.why
    best = f"at most {ceiling.workers} fit" if ceiling.workers else "none fits"
    if ceiling.name == "shared memory":
        need = format_size(shared_memory_needed(facts, setting, count))
        what = f"{need} of /dev/shm are needed, and it fails when that is full; {MORE_SHARED_MEMORY}"
    elif ceiling.name == "memory":
        what = "the kernel kills a worker when memory is used up"
    else:
        what = 'it ends with "Too many open files"; ulimit -n raises the limit'
    return f"{best}: {what} ({ceiling.why})"


def _without_workers(asked: WorkerRequest, decision: Decision) -> list[str]:
    """Explicit values that mean nothing, because we decided for no workers."""
    if decision.count or asked.num_workers is not None:
        return []
    values: dict[str, object] = {
        "prefetch_factor": asked.prefetch_factor,
        "multiprocessing_context": asked.multiprocessing_context,
        "persistent_workers": asked.persistent_workers or None,
    }
    return [f"{name}={value} has no effect without workers" for name, value in values.items() if value is not None]


def _options(asked: WorkerRequest, facts: SizingFacts, decision: Decision) -> list[str]:
    said = []
    gpu = facts.machine.gpus.count > 0 if facts.accelerator is None else facts.accelerator
    if asked.pin_memory is False and gpu:
        said.append("pin_memory=False: copies to the GPU cannot overlap with computing")
    if asked.pin_memory and not gpu:
        said.append(f"pin_memory=True has no effect: {facts.machine.gpus.why}")
    if decision.count and asked.persistent_workers is False and facts.own_dataset:
        begin = format_seconds(START_SECONDS[facts.start_method])
        said.append(f"persistent_workers=False: each epoch begins with starting workers, about {begin} ({facts.start_method})")
    if decision.count and asked.prefetch_factor == 0:
        said.append("prefetch_factor=0: a worker begins a batch only when it is asked for")
    return said
