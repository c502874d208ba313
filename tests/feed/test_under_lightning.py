"""Lightning's Trainer in one process: what it makes again, saves and resumes stays the loader that was given."""

import importlib
from typing import Any

import pytest
import torch
from lightly import NAMES, SIZE, Flow, flat, loader, module, saver, trainer
from loading import Calls

from fastfeed.feed.faults import ErrorCaps
from fastfeed.feed.loader import DataLoader

pytest.importorskip("lightning", reason="lightning is not installed")

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning warns of much: of few workers, of hooks that are not there


@pytest.fixture(params=NAMES)
def either(request) -> Any:
    """Lightning, by each of its names."""
    return importlib.import_module(request.param)


@pytest.fixture
def pl() -> Any:
    return importlib.import_module(NAMES[0])


# ---------------------------------------------------------------------------------------------------- training
@pytest.mark.parametrize(
    "options", [{}, {"seed": 3}, {"distributed": True}, {"num_workers": 2}, {"num_workers": None}], ids=str
)
@pytest.mark.parametrize("in_hook", [False, True], ids=["outside", "in a hook"])
def test_fit(either, tmp_path, options, in_hook):
    given = loader(shuffle=True, **options)
    made = module(either, **({"train_dataloader": lambda self: given} if in_hook else {}))
    one = trainer(either, tmp_path)
    one.fit(made, None if in_hook else given)
    assert one.train_dataloader is given
    epochs = [flat(made.seen["fit", epoch]) for epoch in range(2)]
    assert [sorted(epoch) for epoch in epochs] == [list(range(SIZE))] * 2
    assert epochs[0] != epochs[1]
    if "seed" in options:
        again = loader(shuffle=True, **options)
        assert epochs == [[index for batch in again for index in batch.tolist()] for _ in range(2)]


def test_epochs_are_counted_once(pl, tmp_path):
    """Lightning tells the sampler its epochs, also the first one after it has begun."""
    given = loader(shuffle=True, seed=3)
    trainer(pl, tmp_path, max_epochs=3, num_sanity_val_steps=1).fit(module(pl), given, loader(seed=1))
    assert given.epoch == 2


def test_validation(either, tmp_path):
    made = module(either)
    trainer(either, tmp_path, num_sanity_val_steps=1).fit(made, loader(shuffle=True), loader())
    assert flat(made.seen["validate", 1]) == list(range(SIZE))
    made = module(either)
    trainer(either, tmp_path).validate(made, loader(num_workers=1), verbose=False)
    assert flat(made.seen["validate", 0]) == list(range(SIZE))


def test_loaders_that_are_made_anew_each_epoch(pl, tmp_path):
    made = module(pl, train_dataloader=lambda self: loader(shuffle=True, seed=3))
    trainer(pl, tmp_path, reload_dataloaders_every_n_epochs=1).fit(made)
    again = loader(shuffle=True, seed=3)
    assert list(made.seen.values()) == [[batch.tolist() for batch in again] for _ in range(2)]


# ---------------------------------------------------------------------------------------------------- made again
EXTRAS: dict[str, Any] = {
    "seed": 5, "rng": "torch", "distributed": (0, 1), "on_error": "skip", "force_on_error": True,
    "error_caps": ErrorCaps(3, 0.5), "with_index": True, "hang_seconds": 7.0,
}  # fmt: skip
NAMED = (
    *EXTRAS,
    "shuffle_mode",
    "autotune",
    "in_order",
    "device",
    "device_decode",
    "pin_memory",
    "timeout",
    "persistent_workers",
    "prefetch_factor",
)
WAYS: list[dict[str, Any]] = [
    {}, {"shuffle": True}, {"seed": 1, "shuffle": True}, {"shuffle": True, "shuffle_mode": "block"}, {"distributed": True},
    {"distributed": False, "shuffle": True}, {"distributed": "exact"}, {"num_workers": 1, "in_order": False},
    {"num_workers": None}, {"num_workers": "auto", "shuffle": True}, {"shuffle": True, **EXTRAS},
    {"shuffle": True, **EXTRAS, "shuffle_mode": "block"}, {"shuffle": True, "on_error": "replace"},
    {"shuffle": True, "device": "cuda", "num_workers": 1},
]  # fmt: skip


def options_of(one: Any) -> dict[str, Any]:
    return {name: getattr(one, name) for name in NAMED}


@pytest.mark.parametrize("options", WAYS, ids=str)
@pytest.mark.parametrize("in_hook", [False, True], ids=["outside", "in a hook"])
def test_overfit_batches(pl, tmp_path, options, in_hook):
    """Lightning makes the loader again, without a shuffle."""
    given = loader(**options)
    made = module(pl, **({"train_dataloader": lambda self: loader(**options)} if in_hook else {}))
    one = trainer(pl, tmp_path, overfit_batches=2)
    one.fit(made, None if in_hook else given)
    assert [made.seen["fit", epoch] for epoch in range(2)] == [[[0, 1, 2, 3], [4, 5, 6, 7]]] * 2
    used = one.train_dataloader
    assert type(used) is DataLoader
    assert options_of(used) == options_of(given)


@pytest.mark.parametrize("options", WAYS, ids=str)
@pytest.mark.parametrize("in_hook", [False, True], ids=["outside", "in a hook"])
def test_predictions_come_with_their_indices(pl, tmp_path, options, in_hook):
    """Lightning makes the loader again, around a batch sampler of its own."""
    if options.get("on_error") == "replace":
        options = {**options, "force_on_error": True}
    given, writer = loader(**options), Writer(pl)
    made = module(pl, **({"predict_dataloader": lambda self: loader(**options)} if in_hook else {}))
    one = trainer(pl, tmp_path, callbacks=[writer.callback])
    one.predict(made, None if in_hook else given)
    predictions, numbers = writer.found
    assert [batch.tolist() for batch in predictions] == numbers[0] == made.seen["predict", 0]
    assert sorted(flat(numbers[0])) == list(range(SIZE))
    used = one.predict_dataloaders
    assert type(used) is DataLoader and used is not given
    assert options_of(used) == options_of(given)


class Writer:
    """Keeps what a PredictionWriter gets at the end."""

    found: Any

    def __init__(self, pl: Any) -> None:
        def write(callback: Any, trainer: Any, module: Any, predictions: Any, numbers: Any) -> None:
            self.found = predictions, numbers

        self.callback = type("Callback", (pl.callbacks.BasePredictionWriter,), {"write_on_epoch_end": write})("epoch")


def test_a_stream_is_predicted(pl, tmp_path):
    for given in (DataLoader(Flow(), 4), DataLoader(Flow(), 4, num_workers=1)):
        found = trainer(pl, tmp_path).predict(module(pl), given)
        assert flat(batch.tolist() for batch in found) == list(range(9))


def test_workers_that_are_left_to_us_stay_so(pl, tmp_path):
    for workers in (None, "auto"):
        one = trainer(pl, tmp_path)
        one.predict(module(pl), loader(num_workers=workers))
        used = one.predict_dataloaders
        assert used.autotune and used.plan.decided
        assert used.num_workers == loader(num_workers=workers).num_workers


# ---------------------------------------------------------------------------------------------------- checkpoints
@pytest.mark.parametrize("options", [{}, {"shuffle": True}, {"seed": 1, "num_workers": 1, "in_order": False}], ids=str)
def test_a_loader_without_positions_lets_checkpoints_be_written(either, tmp_path, options):
    path = tmp_path / "state.ckpt"
    keeper = either.callbacks.ModelCheckpoint(dirpath=tmp_path, every_n_train_steps=3)
    one = trainer(either, tmp_path, callbacks=[saver(either, path, 0, 2), keeper], enable_checkpointing=True)
    one.fit(module(either), loader(**options), loader())
    assert "combined_loader" not in torch.load(path, weights_only=False)["loops"]["fit_loop"]["state_dict"]
    made = module(either)
    trainer(either, tmp_path).fit(made, loader(**options), ckpt_path=path)
    assert len(flat(made.seen["fit", 1])) == SIZE


@pytest.mark.parametrize(("epoch", "batch"), [(0, 0), (0, 3), (0, 5), (1, 2), (1, 5)])
@pytest.mark.parametrize(("before", "after"), [(0, 0), (2, 0), (0, 1)])
def test_after_a_resumption_the_samples_are_those_that_were_left(pl, tmp_path, epoch, batch, before, after):
    path = tmp_path / "state.ckpt"
    first, second = module(pl), module(pl)
    options: dict[str, Any] = {"shuffle": True, "seed": 3}
    one = trainer(pl, tmp_path, max_epochs=3, callbacks=[saver(pl, path, epoch, batch)])
    one.fit(first, loader(**options, num_workers=before), loader())
    trainer(pl, tmp_path, max_epochs=3).fit(second, loader(**options, num_workers=after), loader(), ckpt_path=path)
    left = [one for number in range(epoch, 3) for one in first.seen["fit", number]][batch + 1 :]
    assert [one for (stage, _), batches in second.seen.items() if stage == "fit" for one in batches] == left


@pytest.mark.parametrize("options", [{}, {"num_workers": 2}, {"distributed": True}], ids=str)
def test_a_checkpoint_at_the_end_of_an_epoch(pl, tmp_path, options):
    """Lightning does not load the loader's state then: it names the epoch, after it has begun the first one."""
    keeper = pl.callbacks.ModelCheckpoint(dirpath=tmp_path, filename="end", save_top_k=-1, every_n_epochs=1)
    first, second = module(pl), module(pl)
    trainer(pl, tmp_path, max_epochs=1, callbacks=[keeper], enable_checkpointing=True).fit(
        first, loader(shuffle=True, seed=3, **options)
    )
    trainer(pl, tmp_path, max_epochs=3).fit(second, loader(shuffle=True, seed=3, **options), ckpt_path=tmp_path / "end.ckpt")
    again = loader(shuffle=True, seed=3)
    epochs = [[batch.tolist() for batch in again] for _ in range(3)]
    assert first.seen == {("fit", 0): epochs[0]}
    assert second.seen == {("fit", 1): epochs[1], ("fit", 2): epochs[2]}


def test_several_loaders_at_once(pl, tmp_path):
    """Those with positions are saved, the others are not looked at."""
    path = tmp_path / "state.ckpt"

    def given() -> Any:
        return {"a": loader(shuffle=True, seed=1), "b": loader(size=9, batch=2), "c": loader(shuffle=True, seed=2)}

    def training_step(self: Any, batch: Any, batch_idx: int) -> Any:
        self.seen.setdefault(self.current_epoch, []).append(
            {name: part.tolist() for name, part in batch.items() if name != "b"}
        )
        return self.layer(torch.ones(1, 1)).sum()

    first, second = (module(pl, training_step=training_step) for _ in range(2))
    trainer(pl, tmp_path, callbacks=[saver(pl, path, 1, 1)]).fit(first, given())
    assert len(torch.load(path, weights_only=False)["loops"]["fit_loop"]["state_dict"]["combined_loader"]) == 2
    trainer(pl, tmp_path).fit(second, given(), ckpt_path=path)
    assert second.seen == {1: first.seen[1][2:]}


def test_fabric_saves_and_loads_it(tmp_path):
    fabric = importlib.import_module("lightning.fabric").Fabric(accelerator="cpu", devices=1)
    one, again, without = (fabric.setup_dataloaders(loader(shuffle=True, seed=seed)) for seed in (1, 1, None))
    passed = iter(one)
    next(passed)
    fabric.save(tmp_path / "state.ckpt", {"loader": one})
    fabric.load(tmp_path / "state.ckpt", {"loader": again})
    assert [batch.tolist() for batch in again] == [batch.tolist() for batch in passed]
    assert not hasattr(without, "state_dict")


# ---------------------------------------------------------------------------------------------------- what is told
def test_lightnings_own_question(either):
    name = either.__name__.replace("lightning.pytorch", "lightning.fabric").replace("pytorch_lightning", "lightning_fabric")
    stateful = importlib.import_module(f"{name}.utilities.types")._Stateful
    assert isinstance(loader(seed=1), stateful)
    assert not isinstance(loader(), stateful)


def test_the_recipe(pl, tmp_path):
    """README: what Lightning's users write."""
    path = tmp_path / "last.ckpt"
    train = DataLoader(Calls(int, SIZE), batch_size=4, shuffle=True, seed=0)
    keeper = pl.callbacks.ModelCheckpoint(dirpath=tmp_path, every_n_train_steps=4, save_last=True, save_top_k=0)
    first, second = module(pl), module(pl)
    trainer(pl, tmp_path, max_epochs=1, callbacks=[keeper], enable_checkpointing=True).fit(first, train)
    train = DataLoader(Calls(int, SIZE), batch_size=4, shuffle=True, seed=0)
    trainer(pl, tmp_path, max_epochs=1).fit(second, train, ckpt_path=path)
    assert second.seen["fit", 0] == first.seen["fit", 0][4:]
