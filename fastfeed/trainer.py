"""fastfeed's loaders in Hugging Face's transformers.Trainer.

Trainer makes torch loaders itself and gives them to Accelerate. With the mixin it gets fastfeed's, from its own arguments::

    from fastfeed.trainer import TrainerMixin

    class Trainer(TrainerMixin, transformers.Trainer):
        loader_options = {"on_error": "replace"}

What becomes of Trainer's arguments:

- dataloader_num_workers=0 (the default), dataloader_pin_memory=True and dataloader_persistent_workers=False leave these to
  fastfeed; other values are kept. num_workers=0 in loader_options is 0.
- The order of training is a function of (data_seed, or else seed; epoch), and random numbers follow sample and epoch: the
  same on any number of workers. A sampler of another strategy, or of an overridden _get_train_sampler, is kept;
  train_sampling_strategy="batch_rebalance" is refused.
- remove_unused_columns, dataloader_drop_last, dataloader_prefetch_factor, dataloader_in_order,
  dataloader_multiprocessing_context and the per-device batch sizes are kept.
- accelerator_config is kept or refused as fastfeed/accelerate.py says.
- resume_from_checkpoint goes on with the first sample that was not trained on. Trainer reads the rest of that epoch with a
  plain torch loader, in the same order, and a warning of the logger fastfeed.loader says so; later epochs are fastfeed's.
  ignore_data_skip=True begins the epoch again, as always.
- Evaluation gives metrics every sample once, in the dataset's order. eval_loss is weighted as Trainer does it, with each
  rank's mean loss for each of its samples: in a last, shorter step over several ranks that is near, and not exact.

All names of transformers' that are not documented are used in this file: _train_batch_size, _get_train_sampler,
_get_eval_sampler, _remove_unused_columns and _get_collator_with_removed_columns.
"""

import sys
from collections.abc import Mapping
from typing import Any, ClassVar

from torch.utils.data import IterableDataset, RandomSampler, SequentialSampler

from fastfeed.accelerate import AcceleratedLoader, prepare
from fastfeed.errors import UsageError
from fastfeed.feed.loader import DataLoader


class TrainerMixin:
    """Before transformers.Trainer among the bases of a class, its loaders are fastfeed's."""

    loader_options: ClassVar[Mapping[str, Any]] = {}
    """Arguments of fastfeed.DataLoader that go before Trainer's, for all of its loaders."""

    def get_train_dataloader(self) -> AcceleratedLoader:
        """The training loader.

        Raises:
            ValueError: There is no training dataset; as UsageError, an option that cannot be kept.
        """
        trainer: Any = self
        if trainer.train_dataset is None:
            msg = "Trainer: training requires a train_dataset"
            raise UsageError(msg)
        if trainer.args.train_sampling_strategy == "batch_rebalance":
            msg = "train_sampling_strategy='batch_rebalance' gives ranks their parts itself, which fastfeed's loaders do"
            raise UsageError(msg, hint="Use another strategy, or Trainer's own get_train_dataloader.")
        seed = trainer.args.seed if trainer.args.data_seed is None else trainer.args.data_seed
        loader = self._loader(
            trainer.train_dataset, "Training", trainer._get_train_sampler,  # noqa: SLF001 - see above
            {"batch_size": trainer._train_batch_size, "seed": seed},  # noqa: SLF001
        )  # fmt: skip
        loader.plain_skip = True  # Trainer moves batches to the device and counts steps of accumulation itself
        return loader

    def get_eval_dataloader(self, eval_dataset: Any = None) -> AcceleratedLoader:  # noqa: ANN401 - str, or any dataset
        """A loader for evaluation; the same one for the same of Trainer's own datasets, which may keep its workers.

        Raises:
            ValueError: There is no dataset; as UsageError, an option that cannot be kept.
        """
        trainer: Any = self
        named = eval_dataset is None or isinstance(eval_dataset, str)
        dataset = trainer.eval_dataset if eval_dataset is None else eval_dataset
        if isinstance(eval_dataset, str):
            dataset = trainer.eval_dataset[eval_dataset]
        if dataset is None:
            msg = "Trainer: evaluation requires an eval_dataset"
            raise UsageError(msg)
        if not named:
            return self._once(dataset, "Evaluation")
        kept: dict[Any, tuple[Any, AcceleratedLoader]] = vars(self).setdefault("_fastfeed_loaders", {})
        if eval_dataset not in kept or kept[eval_dataset][0] is not dataset:
            kept[eval_dataset] = dataset, self._evaluating(dataset, "Evaluation", {})
        return kept[eval_dataset][1]

    def get_test_dataloader(self, test_dataset: Any) -> AcceleratedLoader:  # noqa: ANN401 - any dataset
        """A loader for predictions.

        Raises:
            UsageError: An option that cannot be kept.
        """
        return self._once(test_dataset, "test")

    def _once(self, dataset: Any, what: str) -> AcceleratedLoader:  # noqa: ANN401
        """A loader for one pass: the accelerator keeps it, so it shall not keep workers."""
        return self._evaluating(dataset, what, {"persistent_workers": False})

    def _evaluating(self, dataset: Any, what: str, options: Mapping[str, Any]) -> AcceleratedLoader:  # noqa: ANN401
        trainer: Any = self
        given = {"batch_size": trainer.args.eval_batch_size, **options}
        return self._loader(dataset, what, trainer._get_eval_sampler, given)  # noqa: SLF001

    def _loader(self, dataset: Any, what: str, sampler_of: Any, given: Mapping[str, Any]) -> AcceleratedLoader:  # noqa: ANN401
        trainer: Any = self
        args, collate = trainer.args, trainer.data_collator
        datasets = sys.modules.get("datasets")
        if datasets is not None and isinstance(dataset, datasets.Dataset):
            dataset = trainer._remove_unused_columns(dataset, description=what)  # noqa: SLF001
        else:
            collate = trainer._get_collator_with_removed_columns(collate, description=what)  # noqa: SLF001
        options = {
            "collate_fn": collate,
            "num_workers": args.dataloader_num_workers or None,
            "pin_memory": None if args.dataloader_pin_memory else False,
            "persistent_workers": args.dataloader_persistent_workers or None,
            "prefetch_factor": args.dataloader_prefetch_factor,
            "multiprocessing_context": args.dataloader_multiprocessing_context,
            "in_order": args.dataloader_in_order,
            **given,
        }
        if isinstance(dataset, IterableDataset):
            options.pop("seed", None)
        else:
            options["drop_last"] = args.dataloader_drop_last
            options.update(_order(sampler_of(dataset), dataset, options.pop("seed", None)))
        loader: AcceleratedLoader = prepare(trainer.accelerator, DataLoader(dataset, **{**options, **self.loader_options}))
        return loader


def _order(sampler: Any, dataset: Any, seed: int | None) -> dict[str, Any]:  # noqa: ANN401 - a sampler, a dataset
    """What makes a loader draw as a sampler of Trainer's does: torch's common ones become fastfeed's order."""
    if sampler is None or type(sampler) is SequentialSampler:
        return {"seed": seed}
    whole = type(sampler) is RandomSampler and not sampler.replacement and sampler.num_samples == len(dataset)
    if whole and sampler.generator is None:
        return {"shuffle": True, "seed": seed}
    return {"sampler": sampler, "seed": seed}
