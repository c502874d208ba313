"""fastfeed's loaders in transformers' Trainer: samples seen, metrics, resuming, on one process and on two."""

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
import torch.distributed as dist
from ranked import noted, run_ranks
from torch.utils.data import Dataset, IterableDataset, WeightedRandomSampler

from fastfeed.accelerate import AcceleratedLoader
from fastfeed.errors import UsageError
from fastfeed.trainer import TrainerMixin

transformers: Any = pytest.importorskip("transformers", reason="transformers is not installed: pip install 'fastfeed[dev]'")
accelerate: Any = pytest.importorskip("accelerate", reason="accelerate is not installed: pip install 'fastfeed[accelerate]'")

SIZE = 23


class Rows(Dataset[dict[str, Any]]):
    """Row i is i, with a column that the model does not take."""

    def __init__(self, size: int = SIZE) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> dict[str, Any]:
        if index >= self.size:
            raise IndexError(index)  # Trainer reads it as a sequence
        return {"x": torch.tensor([index / self.size]), "row": index, "noise": float(torch.rand(())), "unknown": "text"}


class Model(torch.nn.Module):
    """Keeps which rows it has trained on, with a random number of each."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(1, 1)
        self.rows: list[list[int]] = []
        self.noise: dict[tuple[int, int], float] = {}

    def forward(self, x: Any, row: Any, noise: Any) -> dict[str, Any]:
        if self.training:
            self.rows.append(row.tolist())
            for one, drawn in zip(row.tolist(), noise.tolist(), strict=True):
                self.noise[len(self.rows), one] = drawn
        out = self.linear(x)
        return {"loss": out.square().mean(), "rows": row[:, None].float()}


def trainer(
    folder: Path, *, kind: Any = None, model: Any = None, dataset: Any = None, options: Any = None, **given: Any
) -> Any:
    """Ready to train: without logs, reports and progress bars."""

    class Fed(TrainerMixin, transformers.Trainer if kind is None else kind):  # type: ignore[misc]
        loader_options: ClassVar[Mapping[str, Any]] = {"num_workers": 0, **(options or {})}

    arguments = {
        "output_dir": str(folder), "use_cpu": True, "per_device_train_batch_size": 4, "per_device_eval_batch_size": 4,
        "num_train_epochs": 2, "report_to": "none", "disable_tqdm": True, "save_strategy": "no", "logging_strategy": "no",
        "seed": 3, "label_names": ["row"], **given,
    }  # fmt: skip
    return Fed(
        model=Model(), args=transformers.TrainingArguments(**arguments), train_dataset=dataset or Rows(),
        eval_dataset=Rows(),
    )  # fmt: skip


def epochs(rows: list[list[int]], steps: int = 6) -> list[list[int]]:
    flat = [rows[at : at + steps] for at in range(0, len(rows), steps)]
    return [[i for batch in epoch for i in batch] for epoch in flat]


@pytest.fixture(autouse=True)
def _no_state() -> Iterator[None]:
    reset()
    yield
    reset()


def reset() -> None:
    """Accelerate's state is one for the whole process."""
    accelerate.state.GradientState._reset_state()
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)


# ---------------------------------------------------------------------------------------------------- training
def test_each_epoch_has_every_row_once_in_another_order(tmp_path):
    one = trainer(tmp_path)
    one.train()
    first, second = epochs(one.model.rows)
    assert sorted(first) == sorted(second) == list(range(SIZE)) and first != second != list(range(SIZE))
    assert one.state.global_step == 12


@pytest.mark.long
@pytest.mark.parametrize("given", [{"data_seed": 3, "seed": 8}, {"dataloader_num_workers": 1}], ids=str)
def test_the_order_is_of_the_seed_alone(tmp_path, given):
    options = {"num_workers": given["dataloader_num_workers"]} if "dataloader_num_workers" in given else {}
    one, other = trainer(tmp_path), trainer(tmp_path, options=options, **given)
    one.train()
    other.train()
    assert one.model.rows == other.model.rows and one.model.noise == other.model.noise


def test_another_seed_is_another_order(tmp_path):
    loaders = [trainer(tmp_path, seed=seed).get_train_dataloader() for seed in (3, 4)]
    rows = [[row for batch in loader for row in batch["row"].tolist()] for loader in loaders]
    assert sorted(rows[0]) == sorted(rows[1]) and rows[0] != rows[1]


def test_arguments_are_kept(tmp_path):
    one = trainer(tmp_path, dataloader_drop_last=True, dataloader_pin_memory=False, dataloader_in_order=False)
    loader = one.get_train_dataloader()
    assert isinstance(loader, AcceleratedLoader)
    assert (len(loader), loader.batch_size, loader.pin_memory, loader.in_order) == (5, 4, False, False)
    assert trainer(tmp_path, options={"batch_size": 5, "on_error": "replace"}).get_train_dataloader().on_error == "replace"


def test_accumulation(tmp_path):
    one = trainer(tmp_path, gradient_accumulation_steps=4)
    one.train()
    assert one.state.global_step == 4 and [len(epoch) for epoch in epochs(one.model.rows)] == [SIZE, SIZE]


@pytest.mark.parametrize("strategy", ["sequential", "group_by_length"])
def test_strategies(tmp_path, strategy):
    class Lengths(Rows):
        def __getitem__(self, index: int) -> dict[str, Any]:
            return {**super().__getitem__(index), "input_ids": [0] * (1 + index % 5)}

    one = trainer(tmp_path, dataset=Lengths(), train_sampling_strategy=strategy)
    one.train()
    for epoch in epochs(one.model.rows):
        assert sorted(epoch) == list(range(SIZE)) and (epoch == list(range(SIZE))) == (strategy == "sequential")


def test_a_sampler_of_ones_own(tmp_path):
    class Weighted(transformers.Trainer):
        def _get_train_sampler(self, dataset: Any = None) -> Any:
            return WeightedRandomSampler([0.0] * 11 + [1.0] * 12, 8)

    one = trainer(tmp_path, kind=Weighted)
    one.train()
    assert len(one.model.rows) == 4 and min(i for batch in one.model.rows for i in batch) >= 11


def test_columns_of_datasets_are_removed(tmp_path):
    datasets = pytest.importorskip("datasets", reason="datasets is not installed: pip install 'fastfeed[dev]'")
    rows = {"x": [[i / SIZE] for i in range(SIZE)], "row": list(range(SIZE)), "noise": [0.0] * SIZE, "unknown": ["text"] * SIZE}
    one = trainer(tmp_path, dataset=datasets.Dataset.from_dict(rows))
    assert one.get_train_dataloader().dataset.column_names == ["x", "row", "noise"]
    one.train()
    assert sorted(epochs(one.model.rows)[0]) == list(range(SIZE))


class Endless(IterableDataset[dict[str, Any]]):
    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (Rows()[i] for i in range(1000))


def test_streams(tmp_path):
    one = trainer(tmp_path, dataset=Endless(), max_steps=3)
    one.train()
    assert one.model.rows == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]


def test_what_is_refused(tmp_path):
    with pytest.raises(UsageError, match="train_sampling_strategy='batch_rebalance'"):
        trainer(tmp_path, train_sampling_strategy="batch_rebalance").get_train_dataloader()
    one = trainer(tmp_path)
    one.train_dataset = one.eval_dataset = None
    with pytest.raises(ValueError, match="training requires a train_dataset"):
        one.get_train_dataloader()
    with pytest.raises(ValueError, match="evaluation requires an eval_dataset"):
        one.get_eval_dataloader()


# ---------------------------------------------------------------------------------------------------- evaluation
@pytest.mark.parametrize("size", [SIZE, 1, 8])
def test_predictions_are_in_the_datasets_order(tmp_path, size):
    one = trainer(tmp_path)
    found = one.predict(Rows(size))
    assert found.predictions.reshape(-1).tolist() == list(range(size))


def test_the_loss_of_an_evaluation_is_that_of_all_rows(tmp_path):
    one = trainer(tmp_path)
    x = torch.arange(SIZE)[:, None] / SIZE
    wanted = one.model.linear(x).square().mean().item()
    assert one.evaluate()["eval_loss"] == pytest.approx(wanted, rel=1e-5)


def test_an_evaluation_loader_is_made_once(tmp_path):
    one = trainer(tmp_path)
    one.eval_dataset = {"a": Rows(3), "b": Rows(5)}
    a, b = one.get_eval_dataloader("a"), one.get_eval_dataloader("b")
    assert one.get_eval_dataloader("a") is a and len(a.dataset) == 3 and len(b.dataset) == 5
    one.eval_dataset = Rows(4)
    assert len(one.get_eval_dataloader().dataset) == 4
    given = one.get_eval_dataloader(Rows(6))
    assert len(given.dataset) == 6 and not given.persistent_workers
    assert one.get_eval_dataloader() is one.get_eval_dataloader()


def test_evaluations_between_epochs(tmp_path):
    one = trainer(tmp_path, eval_strategy="steps", eval_steps=5)
    one.train()
    assert [sorted(epoch) for epoch in epochs(one.model.rows)] == [list(range(SIZE))] * 2


# ---------------------------------------------------------------------------------------------------- resuming
@pytest.mark.long
@pytest.mark.parametrize(("accumulate", "step"), [(1, 2), (1, 6), (1, 8), (4, 1), (4, 3)])
def test_resuming_goes_on_with_the_next_row(tmp_path, caplog, accumulate, step):
    given = {"gradient_accumulation_steps": accumulate, "save_strategy": "steps", "save_steps": step}
    whole = trainer(tmp_path, **given)
    whole.train()
    resumed = trainer(tmp_path, **given)
    with caplog.at_level(logging.WARNING, logger="fastfeed.loader"):
        resumed.train(resume_from_checkpoint=str(tmp_path / f"checkpoint-{step}"))
    per_epoch = -(-6 // accumulate)
    done = step // per_epoch * 6 + step % per_epoch * accumulate
    assert resumed.model.rows == whole.model.rows[done:]
    assert resumed.state.global_step == whole.state.global_step
    told = [record.message for record in caplog.records if "read by a plain torch DataLoader" in record.message]
    assert len(told) == (1 if step % per_epoch else 0)


# ---------------------------------------------------------------------------------------------------- contract
def test_names_of_transformers_that_are_relied_on(tmp_path):
    """What is not documented and used in fastfeed/trainer.py; the other tests use each of them as well."""
    for name in ("_get_train_sampler", "_get_eval_sampler", "_remove_unused_columns", "_get_collator_with_removed_columns"):
        assert callable(getattr(transformers.Trainer, name))
    assert trainer(tmp_path)._train_batch_size == 4
    assert {"get_train_dataloader", "get_eval_dataloader", "get_test_dataloader"} <= set(dir(transformers.Trainer))


# ---------------------------------------------------------------------------------------------------- two ranks
def run_rank(rank: int, folder: Path) -> None:
    """One of two processes: trains, evaluates, predicts, resumes; and Trainer without the mixin, to compare."""
    with noted(folder / f"rank{rank}.txt"), pytest.MonkeyPatch.context() as patch:
        for name, value in {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2}.items():
            patch.setenv(name, str(value))
        patch.setenv("OMP_NUM_THREADS", "1")  # Accelerate warns where nothing is said
        dist.init_process_group("gloo", init_method=f"file://{folder}/group", rank=rank, world_size=2)
        reset()
        given = {"save_strategy": "steps", "save_steps": 2, "ddp_find_unused_parameters": False, "ddp_backend": "gloo"}
        one = trainer(folder, **given)
        one.train()
        resumed = trainer(folder, **given)
        resumed.train(resume_from_checkpoint=str(folder / "checkpoint-2"))
        plain = transformers.Trainer(model=Model(), args=one.args, train_dataset=Rows(), eval_dataset=Rows())
        plain.train()
        found = {
            "rows": one.model.rows, "resumed": resumed.model.rows, "steps": one.state.global_step,
            "predicted": one.predict(Rows(SIZE)).predictions.reshape(-1).tolist(),
            "plain predicted": plain.predict(Rows(SIZE)).predictions.reshape(-1).tolist(),
            "plain rows": plain.model.rows, "plain steps": plain.state.global_step,
            "few": one.predict(Rows(3)).predictions.reshape(-1).tolist(), "loss": one.evaluate()["eval_loss"],
        }  # fmt: skip
        torch.save(found, folder / f"rank{rank}.pt")
        dist.destroy_process_group()


@pytest.mark.long
def test_two_real_ranks(tmp_path):
    run_ranks(run_rank, 2, tmp_path, folder=tmp_path)
    one, other = (torch.load(tmp_path / f"rank{rank}.pt", weights_only=True) for rank in range(2))
    for start in (0, 3):
        drawn = [i for found in (one, other) for batch in found["rows"][start : start + 3] for i in batch]
        assert set(drawn) == set(range(SIZE)) and len(drawn) == SIZE + 1
    for found in (one, other):
        assert found["resumed"] == found["rows"][2:]
        assert found["predicted"] == found["plain predicted"] == list(range(SIZE))
        assert found["few"] == [0, 1, 2]
        assert found["steps"] == found["plain steps"] == 6 and len(found["plain rows"]) == len(found["rows"])
        assert np.isfinite(found["loss"]) and found["loss"] == one["loss"]
