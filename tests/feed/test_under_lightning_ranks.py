"""Lightning's Trainer with two ranks: each sample once an epoch, whoever gives the ranks their parts, and resumption."""

import json
import os
import socket
import warnings
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from lightly import SIZE, flat, loader, module, saver, trainer
from ranked import noted, run_ranks

pl = pytest.importorskip("lightning.pytorch", reason="lightning is not installed")

WORLD = 2


def ddp(folder: Path, **options: Any) -> Any:
    return trainer(pl, folder, devices=WORLD, strategy="ddp", **options)


def fitted(folder: Path, *, in_hook: bool = False, trainer_options: Any = None, **options: Any) -> Any:
    """What this rank saw, epoch by epoch, and the loader that it came from in the end."""
    made = module(pl, **({"train_dataloader": lambda self: loader(**options)} if in_hook else {}))
    one = ddp(folder, **(trainer_options or {}))
    one.fit(made, None if in_hook else loader(**options))
    used = one.train_dataloader
    return {
        "epochs": [made.seen["fit", epoch] for epoch in range(2)], "kind": type(used).__name__,
        "sampler": type(used.sampler).__name__, "resumable": hasattr(used, "state_dict"),
        "options": [used.rng, used.seed, used.shuffle_mode, used.with_index, used.hang_seconds, used.autotune, used.on_error],
    }  # fmt: skip


def peeked(folder: Path) -> Any:
    """A hook that looks at a batch before it hands its loader over."""

    def train_dataloader(self: Any) -> Any:
        one = loader(shuffle=True)
        next(iter(one))
        return one

    made = module(pl, train_dataloader=train_dataloader)
    ddp(folder).fit(made)
    return [made.seen["fit", epoch] for epoch in range(2)]


def resumed(folder: Path, *, epoch: int, batch: int, **options: Any) -> Any:
    """What was left when a checkpoint was written, and what was seen from there by another run."""
    path = folder / "state.ckpt"
    first, second = module(pl), module(pl)
    ddp(folder, callbacks=[saver(pl, path, epoch, batch)]).fit(first, loader(**options))
    ddp(folder).fit(second, loader(**options), ckpt_path=path)
    left = flat(first.seen["fit", epoch])[4 * (batch + 1) :] + (flat(first.seen["fit", 1]) if epoch == 0 else [])
    return {"left": left, "seen": [index for seen in second.seen.values() for index in flat(seen)]}


def validated(folder: Path, **options: Any) -> Any:
    made = module(pl)
    one = loader(**options)
    ddp(folder).validate(made, one, verbose=False)
    return flat(made.seen["validate", 0])


def masked(folder: Path) -> Any:
    """distributed="exact": what counts, by the loader's mask."""
    one, counted = loader(distributed="exact"), []

    def validation_step(self: Any, batch: Any, batch_idx: int) -> None:
        counted.extend(batch[one.valid].tolist())

    ddp(folder).validate(module(pl, validation_step=validation_step), one, verbose=False)
    return counted


def predicted(folder: Path, **options: Any) -> Any:
    made = module(pl)
    ddp(folder).predict(made, loader(**options), return_predictions=False)
    return flat(made.seen["predict", 0])


def rank_0_only(folder: Path) -> Any:
    """An evaluation in rank 0 alone, between epochs of training."""
    found: list[int] = []

    def on_train_epoch_end(self: Any) -> None:
        if self.global_rank == 0:
            found.extend(index for batch in loader(distributed=False) for index in batch.tolist())

    ddp(folder, max_epochs=1).fit(module(pl, on_train_epoch_end=on_train_epoch_end), loader(distributed=True))
    return found


EXTRAS: Any = {"seed": 3, "shuffle": True, "with_index": True, "hang_seconds": 7.0, "on_error": "skip"}
FITS: dict[str, dict[str, Any]] = {
    "left out": {"shuffle": True}, "left out, in a hook": {"shuffle": True, "in_hook": True},
    "seed": {"shuffle": True, "seed": 3}, "seed, in a hook": {"shuffle": True, "seed": 3, "in_hook": True},
    "True": {"shuffle": True, "seed": 3, "distributed": True},
    "True, in a hook": {"shuffle": True, "distributed": True, "in_hook": True},
    "exact": {"shuffle": True, "distributed": "exact"},
    "block": {**EXTRAS, "shuffle_mode": "block"}, "block, in a hook": {**EXTRAS, "shuffle_mode": "block", "in_hook": True},
    "workers": {"shuffle": True, "num_workers": 1}, "workers left to us": {"shuffle": True, "num_workers": None},
    "unbatched": {"shuffle": True, "batch": None},
}  # fmt: skip
OVERFIT: Any = {"trainer_options": {"overfit_batches": 2}, "shuffle": True}
PLAYS: dict[str, Callable[[Path], Any]] = {
    **{name: partial(fitted, **options) for name, options in FITS.items()},
    "everything": partial(fitted, shuffle=True, distributed=False),
    "everything, in a hook": partial(fitted, shuffle=True, distributed=False, in_hook=True),
    "overfit": partial(fitted, **OVERFIT),
    "overfit, True": partial(fitted, **{**EXTRAS, **OVERFIT}, distributed=True),
    "overfit, block": partial(fitted, **{**EXTRAS, **OVERFIT}, shuffle_mode="block"),
    "overfit, everything": partial(fitted, **OVERFIT, distributed=False),
    "peeked": peeked,
    "resumed, True": partial(resumed, epoch=0, batch=1, shuffle=True, seed=3, distributed=True),
    "resumed, second epoch": partial(resumed, epoch=1, batch=0, shuffle=True, seed=3, distributed=True, num_workers=1),
    "resumed, seed": partial(resumed, epoch=0, batch=1, shuffle=True, seed=3),
    "resumed, end of an epoch": partial(resumed, epoch=0, batch=2, shuffle=True, seed=3, distributed=True),
    "validated": validated,
    "validated, everything": partial(validated, distributed=False),
    "masked": masked,
    "rank 0 only": rank_0_only,
    "predicted": predicted,
    "predicted, block": partial(predicted, **EXTRAS, shuffle_mode="block"),
    "predicted, everything": partial(predicted, distributed=False),
}


def play_rank(rank: int, port: int, folder: Path) -> None:
    """One of two processes, which Lightning takes for one that a launcher has started."""
    with noted(folder / f"rank{rank}.txt"):
        os.environ.update(
            MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), NODE_RANK="0", LOCAL_RANK=str(rank), WORLD_SIZE=str(WORLD)
        )
        warnings.simplefilter("ignore")
        for number, (name, play) in enumerate(PLAYS.items()):
            own = folder / str(number)
            own.mkdir(exist_ok=True)
            (folder / f"{name}.{rank}.json").write_text(json.dumps(play(own)))


@pytest.fixture(scope="module")
def played(tmp_path_factory) -> Callable[[str], list[Any]]:
    """What came of a play, rank by rank. All plays run in one pair of processes: the most that they cost is the start."""
    folder = tmp_path_factory.mktemp("ranks")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    run_ranks(play_rank, WORLD, port, folder, folder=folder, seconds=240)
    return lambda name: [json.loads((folder / f"{name}.{rank}.json").read_text()) for rank in range(WORLD)]


def epochs(ranks: list[Any]) -> list[Counter[int]]:
    """How often each sample was seen by all ranks together, epoch by epoch."""
    return [Counter(index for rank in ranks for index in flat(rank["epochs"][epoch])) for epoch in range(2)]


@pytest.mark.long
@pytest.mark.parametrize("name", FITS)
def test_each_sample_comes_once_an_epoch(played, name):
    """But for the one that makes the ranks equal: 23 samples are 12 a rank."""
    ranks = played(name)
    for seen in epochs(ranks):
        assert set(seen) == set(range(SIZE)) and seen.total() == SIZE + 1
    for rank in ranks:
        assert rank["epochs"][0] != rank["epochs"][1]
        assert [len(batch) for batch in rank["epochs"][0]] == ([1] * 12 if name == "unbatched" else [4] * 3)


def test_seed_is_the_same_order_whoever_shares_it_out(played):
    """Lightning, which is given a loader without distributed=, or the loader itself; within a hook and outside."""
    assert played("seed") == played("seed, in a hook") == played("True")
    assert played("block") == played("block, in a hook")


def test_exact_draws_what_true_draws(played):
    assert [rank["epochs"] for rank in played("exact")] == [rank["epochs"] for rank in played("True, in a hook")]


@pytest.mark.parametrize(
    ("name", "kind"), [("left out", "DistributedSampler"), ("seed", "FeedSampler"), ("everything", "EveryRank")]
)
def test_every_option_survives(played, name, kind):
    for rank in played(name):
        assert (rank["kind"], rank["sampler"], rank["resumable"]) == ("DataLoader", kind, name == "seed")
    torchs, ours = ["torch", None, "full", False, 30.0, False, "raise"], ["sample", 3, "block", True, 7.0, False, "skip"]
    for rank in range(WORLD):
        assert played("left out")[rank]["options"] == played("left out, in a hook")[rank]["options"] == torchs
        assert played("block")[rank]["options"] == played("block, in a hook")[rank]["options"] == ours
        assert played("workers left to us")[rank]["options"] == ["sample", None, "full", False, 30.0, True, "raise"]


@pytest.mark.parametrize("name", ["everything", "everything, in a hook"])
def test_with_false_every_rank_trains_on_everything(played, name):
    for rank in played(name):
        for epoch in rank["epochs"]:
            assert sorted(flat(epoch)) == list(range(SIZE))


@pytest.mark.parametrize("name", ["overfit", "overfit, True", "overfit, block"])
def test_overfit_batches_are_the_first_ones_shared_out(played, name):
    found = [rank["epochs"] for rank in played(name)]
    assert found == [[[[0, 2, 4, 6], [8, 10, 12, 14]]] * 2, [[[1, 3, 5, 7], [9, 11, 13, 15]]] * 2]


def test_overfit_batches_may_be_everyones(played):
    assert [rank["epochs"] for rank in played("overfit, everything")] == [[[[0, 1, 2, 3], [4, 5, 6, 7]]] * 2] * 2


def test_a_loader_that_was_used_in_its_hook_is_shared_out(played):
    """Lightning makes it again, and copies what was set on it meanwhile."""
    assert epochs([{"epochs": rank} for rank in played("peeked")])[0].total() == SIZE + 1
    assert played("peeked") == [rank["epochs"] for rank in played("left out")]


@pytest.mark.parametrize(
    ("name", "left"),
    [("resumed, True", 16), ("resumed, seed", 16), ("resumed, second epoch", 8), ("resumed, end of an epoch", 12)],
)
def test_after_a_resumption_the_samples_are_those_that_were_left(played, name, left):
    for rank in played(name):
        assert rank["seen"] == rank["left"]
        assert len(rank["left"]) == left


def test_evaluation(played):
    """Shared out, with padding that counts; with exact's mask, without; or everything on every rank, or in rank 0."""
    whole = list(range(SIZE))
    assert sorted(index for rank in played("validated") for index in rank) == [0, *whole]
    assert sorted(index for rank in played("masked") for index in rank) == whole
    assert played("validated, everything") == [whole, whole]
    assert played("rank 0 only") == [whole, []]


@pytest.mark.parametrize("name", ["predicted", "predicted, block"])
def test_each_sample_is_predicted_once(played, name):
    ranks = played(name)
    assert sorted(index for rank in ranks for index in rank) == list(range(SIZE))
    assert [len(rank) for rank in ranks] == [12, 11]


def test_predictions_may_be_of_everything(played):
    assert played("predicted, everything") == [list(range(SIZE))] * 2
