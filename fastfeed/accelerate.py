"""fastfeed under Hugging Face Accelerate; for transformers' Trainer see fastfeed/trainer.py.

``accelerator.prepare(loader)`` makes a plain torch loader of any loader. prepare() of this module lets a
fastfeed.DataLoader stay one, and does what Accelerate's own loader would do: it gives each process its part, moves batches
to the device, and keeps the books that gradient accumulation and gather_for_metrics read::

    import fastfeed.accelerate

    model, optimizer, loader = fastfeed.accelerate.prepare(accelerator, model, optimizer, loader)

What Accelerate's options mean here:

- split_batches: kept; batch_size is that of all processes together.
- even_batches=False and dispatch_batches=True: refused where several processes share. Ranks have equally many samples,
  with less padding over all ranks than there are ranks, and each process reads its own.
- rng_types: kept. "generator" matters for a sampler of one's own alone, and is then always done: else ranks would share
  different orders. An order of fastfeed's is a function of (seed, epoch).
- use_seedable_sampler, data_seed: a shuffle without a seed gets this one.
- non_blocking, device_placement: kept.
- use_stateful_dataloader: refused for a loader without a position, and needs no torchdata. Asked for or not, save_state()
  and load_state() carry the position of each loader that has one.
- accelerator.skip_first_batches(): refused, since it makes a plain loader; this module has one.
- free_memory(), join_uneven_inputs(): as with Accelerate's loaders.

All names of Accelerate's that are not documented are used in this file: the attributes that it reads and sets on its loaders
(_is_accelerate_prepared, end_of_dataloader, remainder, use_stateful_dataloader, batch_sampler.even_batches), the two methods
of GradientState that add and remove a loader, BatchSamplerShard, and the function that skip_first_batches is.
"""

import logging
from typing import Any, Final

import torch

from fastfeed.errors import UsageError
from fastfeed.feed.loader import DataLoader
from fastfeed.feed.prepared import PreparedLoader, uneven
from fastfeed.feed.swapped import asking
from fastfeed.optional import load

LOG = logging.getLogger("fastfeed.loader")
_SEED_BITS: Final = 0x7FFFFFFFFFFFFFFF
_SKIP: Final = "accelerate.data_loader", "skip_first_batches"


def prepare(accelerator: Any, *objects: Any, device_placement: list[bool] | None = None) -> Any:  # noqa: ANN401
    """What accelerator.prepare() does, but that each fastfeed.DataLoader stays one.

    Which samples a process reads follows from the loader:

    - distributed left out: its part, where there are several processes. Step by step and rank by rank, the batches are
      the order that one process would read, so gathered predictions are in the dataset's order.
    - distributed=True, "exact", a group or a pair: as it says. distributed=False: everything.
    - A sampler or batch sampler of one's own: its batches go to the processes in turn, by Accelerate's BatchSamplerShard,
      which fills the last step up with the first batches.
    - An IterableDataset: whatever it gives, on a single process or with distributed=False.

    With shuffle=True and several processes, a loader without seed= gets one that the first process draws. Samples that
    on_error="skip" leaves out of the last step are not known to gather_for_metrics; "replace" has no such gap.

    Args:
        accelerator: accelerate.Accelerator.
        *objects: Models, optimizers, schedulers and loaders, as for accelerator.prepare().
        device_placement: As Accelerate's: for each object, whether it is moved to the device.

    Returns:
        The prepared objects in their order; a single one is not in a tuple.

    Raises:
        UsageError: An option, of the loader or of Accelerate, that cannot be kept; it is named.
    """
    placed = [None] * len(objects) if device_placement is None else device_placement
    ours = [
        AcceleratedLoader(one, accelerator, places=places)
        if isinstance(one, DataLoader) and not isinstance(one, AcceleratedLoader)
        else one
        for one, places in zip(objects, placed, strict=False)  # Accelerate says it where there are too few
    ]
    return accelerator.prepare(*ours, *objects[len(ours) :], device_placement=device_placement)


def skip_first_batches(loader: "AcceleratedLoader", num_batches: int = 0) -> "AcceleratedLoader":
    """Let the next pass of a prepared loader leave out its first batches; later ones are whole.

    In an order of fastfeed's own they are not fetched (seed=, or several processes); else they are read and dropped.

    Args:
        loader: What prepare() gave; it is what is returned, and no copy.
        num_batches: This process's batches.

    Raises:
        UsageError: More batches than the epoch has.
    """
    loader.leave_out(num_batches)
    return loader


class AcceleratedLoader(PreparedLoader):
    """What prepare() makes of a fastfeed.DataLoader.

    Args:
        loader: It.
        accelerator: accelerate.Accelerator.
        places: Whether batches are moved to its device; None for what it says itself.
    """

    _is_accelerate_prepared = True  # Accelerate sets it as well

    def __init__(self, loader: DataLoader, accelerator: Any, *, places: bool | None = None) -> None:  # noqa: ANN401
        super().__init__(loader, _Accelerate(accelerator, places=places))
        self.plain_skip = False
        """Accelerate's skip_first_batches may make a plain loader of this one: Trainer does with it what is missing."""
        if accelerator.use_stateful_dataloader and not self.use_stateful_dataloader:
            msg = "use_stateful_dataloader=True asks for a loader with a position, and this one has none"
            raise UsageError(msg, hint="Give it seed=, and neither sampler, batch_sampler nor in_order=False.")

    @property
    def use_stateful_dataloader(self) -> bool:
        """Whether there is a position: Accelerate's save_state() and load_state() then carry it."""
        return self._own is not None and (self.in_order or not self.num_workers)

    @property
    def dataset(self) -> Any:  # type: ignore[override]  # noqa: ANN401 - the user's
        """The dataset. Asked by Accelerate's skip_first_batches, it refuses, as that makes a plain loader.

        Raises:
            UsageError: Then.
        """
        asks = asking()
        if asks is not None and (asks.f_globals.get("__name__"), asks.f_code.co_name) == _SKIP:
            if not self.plain_skip:
                msg = "Accelerate's skip_first_batches makes a plain torch loader, without the device and accumulation's books"
                hint = "Use fastfeed.accelerate.skip_first_batches(loader, batches), or the loader's load_state_dict."
                raise UsageError(msg, hint=hint)
            LOG.warning(
                "the rest of this epoch is read by a plain torch DataLoader that Accelerate's skip_first_batches makes: "
                "samples and order are the same; names of failing samples, on_error and sample mode are not there."
            )
        return vars(self)["dataset"]


class _Accelerate:
    """Accelerate, as feed/prepared.py asks for it.

    Args:
        accelerator: It; it keeps its loaders, so it is not kept.
        places: Whether batches are moved to its device; None for what it says itself.
    """

    def __init__(self, accelerator: Any, *, places: bool | None) -> None:  # noqa: ANN401
        if not hasattr(accelerator, "parallelism_config"):
            msg = "fastfeed.accelerate needs Accelerate 1.10 or later"
            raise UsageError(msg, hint="Install it: pip install 'fastfeed[accelerate]'.")
        if accelerator.distributed_type.name in {"XLA", "MEGATRON_LM"}:
            msg = f"fastfeed.accelerate cannot do what Accelerate's loaders do under {accelerator.distributed_type.name}"
            raise UsageError(msg, hint="Give the loader to accelerator.prepare().")
        self.processes, self.rank = int(accelerator.num_processes), int(accelerator.process_index)
        self.splits, self.reseeds = bool(accelerator.split_batches), bool(accelerator.use_seedable_sampler)
        self.device = accelerator.device if (accelerator.device_placement if places is None else places) else None
        self.non_blocking = accelerator.non_blocking
        self._config, self._state = accelerator.dataloader_config, accelerator.gradient_state
        self._rng_types = [kind for kind in accelerator.rng_types if kind != "generator"]
        mesh = accelerator.parallelism_config
        self._one_model = hasattr(accelerator.state, "ds_device_mesh") or (mesh is not None and mesh.non_data_parallel_size > 1)

    def prove(self, *, stream: bool, asked: bool) -> None:
        """Whether several processes can share.

        Raises:
            UsageError: They cannot.
        """
        if self._config.dispatch_batches:
            msg = "dispatch_batches=True has one process read for all, and with fastfeed each process reads its part"
            raise UsageError(msg, hint="Leave it out, or give the loader to accelerator.prepare().")
        if stream:
            msg = f"fastfeed cannot give each of {self.processes} processes its part of an IterableDataset"
            hint = "Where the dataset does so itself, say distributed=False; else give the loader to accelerator.prepare()."
            raise UsageError(msg, hint=hint)
        if not self._config.even_batches:
            raise uneven()
        if self._one_model and not asked:
            msg = "some of the processes hold one model together (tensor, context or sequence parallelism) and read the same"
            hint = "Say who reads what: distributed=(rank, world) of data parallelism alone, or its group."
            raise UsageError(msg, hint=hint)

    def seed(self, generator: torch.Generator | None) -> int:
        """A seed that all processes share: data_seed, or what the first process draws or was seeded with."""
        if self.reseeds and self._config.data_seed is not None:
            return int(self._config.data_seed)
        drawn = torch.initial_seed() if self.reseeds else int(torch.empty((), dtype=torch.int64).random_(generator=generator))
        found = [drawn & _SEED_BITS]
        _module("utils").broadcast_object_list(found)
        return found[0]

    def shard(self, batches: Any) -> Any:  # noqa: ANN401
        """A batch sampler that draws this process's batches of another one."""
        return _module("data_loader").BatchSamplerShard(
            batches, num_processes=self.processes, process_index=self.rank, split_batches=self.splits
        )

    def synchronize(self, generator: torch.Generator | None) -> None:
        """Give random generators the state of the first process."""
        kinds = self._rng_types if generator is None else [*self._rng_types, "generator"]
        if kinds:
            _module("utils").synchronize_rng_states(kinds, generator)

    def begin(self, loader: PreparedLoader) -> None:
        """What Accelerate's loaders do when a pass begins."""
        self._state._remove_dataloader(loader)  # noqa: SLF001 - a pass that was left may still be there
        self._state._add_dataloader(loader)  # noqa: SLF001

    def end(self, loader: PreparedLoader) -> None:
        """What Accelerate's loaders do when a pass has ended."""
        if self._state.initialized:
            self._state._remove_dataloader(loader)  # noqa: SLF001

    def move(self, batch: Any) -> Any:  # noqa: ANN401
        """The batch on the device."""
        if self.device is None:
            return batch
        return _module("utils").send_to_device(batch, self.device, non_blocking=self.non_blocking)


def _module(name: str) -> Any:  # noqa: ANN401 - a module
    return load(f"accelerate.{name}", "accelerate", "fastfeed.accelerate")
