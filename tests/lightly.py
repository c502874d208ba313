"""What the tests under Lightning share."""

from typing import Any

import torch
from loading import Calls
from torch.utils.data import IterableDataset

from fastfeed.feed.loader import DataLoader

NAMES = ("lightning.pytorch", "pytorch_lightning")
"""Each is a package of its own, with classes of its own."""
SIZE = 23


def loader(batch: int | None = 4, size: int = SIZE, **options: Any) -> DataLoader:
    """Its sample i is i. Pinning is said: left out it waits for CUDA, and a loader that Lightning makes again asks for it."""
    return DataLoader(Calls(int, size), batch_size=batch, **{"num_workers": 0, "pin_memory": False, **options})


class Flow(IterableDataset[int]):
    """Of 9 numbers."""

    def __iter__(self) -> Any:
        return iter(range(9))


def module(pl: Any, **hooks: Any) -> Any:
    """A LightningModule that keeps what it is given: seen, by stage and epoch.

    Args:
        pl: Lightning.
        **hooks: Attributes of its class, such as train_dataloader.
    """

    def keep(self: Any, stage: str, batch: Any) -> None:
        batch = getattr(batch, "batch", batch)
        batches = self.seen.setdefault((stage, self.current_epoch), [])
        batches.append(batch.tolist() if isinstance(batch, torch.Tensor) else [batch])

    def training_step(self: Any, batch: Any, batch_idx: int) -> Any:
        keep(self, "fit", batch)
        return self.layer(torch.ones(1, 1)).sum()

    def validation_step(self: Any, batch: Any, batch_idx: int) -> None:
        keep(self, "validate", batch)

    def predict_step(self: Any, batch: Any, batch_idx: int) -> Any:
        keep(self, "predict", batch)
        return getattr(batch, "batch", batch)

    def configure_optimizers(self: Any) -> Any:
        return torch.optim.SGD(self.parameters(), 0.1)

    steps = [training_step, validation_step, predict_step, configure_optimizers]
    kind = type("Keeper", (pl.LightningModule,), {**{step.__name__: step for step in steps}, **hooks})
    made = kind()
    made.layer, made.seen = torch.nn.Linear(1, 1), {}
    return made


def trainer(pl: Any, folder: Any, **options: Any) -> Any:
    """A Trainer that writes and prints nothing that is not asked for."""
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}
    usual = {"accelerator": "cpu", "devices": 1, "default_root_dir": str(folder), "max_epochs": 2, "num_sanity_val_steps": 0}
    return pl.Trainer(**{**quiet, **usual, **options})


def flat(batches: Any) -> list[int]:
    """Batches' samples."""
    return [index for batch in batches for index in batch]


def saver(pl: Any, path: Any, epoch: int, batch: int) -> Any:
    """A callback that saves a checkpoint behind a batch of an epoch, as ModelCheckpoint(every_n_train_steps=) does."""

    def on_train_batch_end(self: Any, trainer: Any, module: Any, outputs: Any, given: Any, batch_idx: int) -> None:
        if (module.current_epoch, batch_idx) == (epoch, batch):
            trainer.save_checkpoint(path)

    return type("Saver", (pl.Callback,), {"on_train_batch_end": on_train_batch_end})()
