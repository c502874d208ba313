"""What FASTFEED_OVERRIDE and FASTFEED_DISABLE make of a loader, and whether its options can be kept."""

import multiprocessing
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

import torch
from torch.utils.data import IterableDataset

from fastfeed.environment import is_disabled, overrides
from fastfeed.errors import UsageError, warn
from fastfeed.feed.ceilings import Option, StartMethod, WorkerRequest
from fastfeed.feed.sizing import PREFETCH_FACTOR, WorkerPlan

_DISABLED = "FASTFEED_DISABLE=1: fastfeed's loaders are plain torch"


@dataclass(frozen=True, slots=True, kw_only=True)
class Switches:
    """What the environment said when a loader was made."""

    disabled: bool
    """The loader is plain torch, but for the order of its samples."""
    gives_way: frozenset[Option]
    """Options whose explicit values give way to the loader's decision."""

    def workers(self, num_workers: Any, *, autotune: bool | None) -> tuple[Any, Any]:  # noqa: ANN401 - as the user gave it
        """(the user's value, None where it is left to us; the value that counts, None where it is decided)."""
        given = None if num_workers is None or num_workers == "auto" or autotune else num_workers
        if self.disabled:
            return given, 0 if given is None else given  # torch's default
        gives_way = "num_workers" in self.gives_way and isinstance(given, int) and given >= 0  # others are torch's errors
        return given, None if gives_way else given

    def settled(self, plan: WorkerPlan, asked: Any, given: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:  # noqa: ANN401
        """What torch's loader is made with: workers, and options by name.

        Args:
            plan: The decisions.
            asked: The number of workers that counts; None where it is decided.
            given: prefetch_factor, pin_memory, persistent_workers, multiprocessing_context: as the user gave them.
        """
        values = {name: None if name in self.gives_way else value for name, value in given.items()}
        workers = plan.num_workers if asked is None else asked
        if asked is None and not workers:  # torch would refuse them
            values.update(prefetch_factor=None, multiprocessing_context=None, persistent_workers=False)
        decided = {
            "prefetch_factor": plan.prefetch_factor if workers else None, "pin_memory": plan.pin_memory,
            "persistent_workers": plan.persistent_workers,
        }  # fmt: skip
        return workers, {**values, **{name: value for name, value in decided.items() if values[name] is None}}

    def rng(self, rng: str | None, *, decided: bool, seeded: bool) -> str:
        """The mode of random numbers: results must not depend on workers that are decided."""
        return "torch" if self.disabled else rng or ("sample" if decided or seeded else "torch")


def switches(only_ours: Mapping[str, bool]) -> Switches:
    """Read the switches; warn once in a process where fastfeed is disabled.

    Args:
        only_ours: Options of ours that change results and that torch's loader cannot do -> whether they are asked for.

    Raises:
        UsageError: A switch that does not say what it should; or fastfeed is disabled, and one of these is asked for.
    """
    if not is_disabled():
        return Switches(disabled=False, gives_way=cast("frozenset[Option]", overrides()))
    asked = [name for name, is_asked in only_ours.items() if is_asked]
    if asked:
        msg = f"FASTFEED_DISABLE=1 leaves torch's own loader, which cannot do {', '.join(asked)}"
        raise UsageError(msg, hint="Leave these out as well to see what plain torch does.")
    _tell()
    return Switches(disabled=True, gives_way=frozenset())


@cache
def _tell() -> None:
    warn(f"{_DISABLED}. Only the order of samples is still as asked for (seed, distributed, shuffle_mode, skip).")


def plain_plan(request: WorkerRequest) -> WorkerPlan:
    """What torch's loader does with the user's values: nothing is decided, and the machine is not looked at.

    Args:
        request: The user's values; None where torch's default holds.
    """
    workers = request.num_workers or 0
    method = multiprocessing.get_start_method(allow_none=True) or multiprocessing.get_all_start_methods()[0]
    return WorkerPlan(
        num_workers=workers,
        prefetch_factor=request.prefetch_factor or (PREFETCH_FACTOR if workers else None),
        pin_memory=bool(request.pin_memory),
        persistent_workers=bool(request.persistent_workers),
        multiprocessing_context=request.multiprocessing_context,
        start_method=request.multiprocessing_context or cast("StartMethod", method),
        sharing=torch.multiprocessing.get_sharing_strategy(),  # type: ignore[no-untyped-call]
        descriptor_limit=None,
        decided=False,
        gate=None,
        ceilings=(),
        why=(f"{_DISABLED}: nothing is decided, and what was left out has torch's default",),
        costs=(),
        processors=float(os.cpu_count() or 1),
    )


def prove_rng(rng: object) -> None:
    """Whether it is a mode of random numbers.

    Raises:
        UsageError: It is none.
    """
    if rng not in {None, "torch", "sample"}:
        msg = "rng is 'torch' or 'sample'"
        raise UsageError(msg, got=repr(rng))


def prove_batches(transform: object, *, channels_last: bool, batched: bool) -> None:
    """Whether batch_transform is a function, and there are batches for what is asked of batches.

    Raises:
        UsageError: It is none, or there are none.
    """
    if channels_last and not batched:
        msg = "channels_last is about batches, and with batch_size=None there are none"
        raise UsageError(msg, hint="Give a batch_size, or lay out tensors in the dataset.")
    if transform is not None and not callable(transform):
        msg = "batch_transform is a function of a batch"
        raise UsageError(msg, got=repr(transform)[:80])
    if transform is not None and not batched:
        msg = "batch_transform needs batches, and with batch_size=None there are none"
        raise UsageError(msg, hint="Give a batch_size, or transform samples in the dataset.")


def prove_stream(dataset: object, asked: Mapping[str, bool]) -> None:
    """Whether options about single samples can be kept.

    Raises:
        UsageError: An IterableDataset, whose samples have no index.
    """
    wanted = [name for name, is_asked in asked.items() if is_asked]
    if wanted and isinstance(dataset, IterableDataset):
        msg = f"{' and '.join(wanted)} is about samples by index, and those of an IterableDataset have none"
        raise UsageError(msg, hint="Leave it out, or give the dataset __len__ and __getitem__.")
