"""Several ranks: nothing is sharded silently, and a metric does not depend on how many there are."""

import time
import warnings
from pathlib import Path
from typing import Any, cast

import pytest
import torch
import torch.distributed as dist
from loading import Bunches, Calls, Numbers, indices
from ranked import noted, run_ranks
from torch.utils.data import BatchSampler, DistributedSampler, RandomSampler, Subset

from fastfeed.errors import UsageError
from fastfeed.feed.loader import DataLoader

SIZE = 23


def loader(distributed: Any, batch: int | None = 4, **options: Any) -> DataLoader:
    return DataLoader(Numbers(SIZE), batch, num_workers=0, distributed=distributed, **options)


@pytest.fixture
def two_ranks(monkeypatch):
    """What torch says in the first of two ranks."""
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    monkeypatch.setattr(dist, "get_world_size", lambda *group: 2)
    monkeypatch.setattr(dist, "get_rank", lambda *group: 0)


UNSHARDED = "torch.distributed has 2 ranks, and each of them will read every sample: distributed=True gives each its part"


def told(one: Any) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            list(one)
    return [str(entry.message) for entry in caught]


@pytest.mark.usefixtures("two_ranks")
@pytest.mark.parametrize(
    "options",
    [{}, {"shuffle": True}, {"sampler": RandomSampler(range(SIZE))}, {"seed": 1}, {"batch_size": None, "shuffle": True},
     {"batch_sampler": BatchSampler(RandomSampler(range(SIZE)), 4, drop_last=False)}],
    ids=lambda options: ", ".join(f"{name}={type(value).__name__}" for name, value in options.items()),
)  # fmt: skip
def test_every_rank_reading_everything_is_told_once(options):
    (text,) = told(DataLoader(Numbers(SIZE), num_workers=0, **options))
    assert text.startswith(UNSHARDED)
    assert text.endswith("distributed=False says that it is meant.")


@pytest.mark.usefixtures("two_ranks")
@pytest.mark.parametrize(
    "options",
    [{"distributed": False}, {"distributed": False, "shuffle": True}, {"distributed": True}, {"distributed": "exact"},
     {"distributed": (0, 2)}, {"sampler": DistributedSampler(Numbers(SIZE), 2, 0, shuffle=False)},
     {"batch_sampler": Bunches(SIZE)}, {"sampler": [1, 2]}],
    ids=lambda options: ", ".join(f"{name}={str(value)[:9]}" for name, value in options.items()),
)  # fmt: skip
def test_what_was_said_or_may_be_sharded_is_not_told(options):
    assert told(DataLoader(Numbers(SIZE), num_workers=0, **options)) == []


def test_one_rank_is_not_told():
    assert told(DataLoader(Numbers(SIZE), num_workers=0)) == []


@pytest.mark.usefixtures("two_ranks")
def test_distributed_takes_the_default_group():
    first = loader(True, shuffle=True)
    assert indices(first) == indices(loader((0, 2), shuffle=True))
    assert len(first) == 3


@pytest.mark.parametrize("world", [1, 2, 3, 8])
@pytest.mark.parametrize("drop_last", [False, True])
def test_ranks_have_as_many_batches_of_as_many_samples(world, drop_last):
    sizes = [[len(batch[0]) for batch in loader((rank, world), drop_last=drop_last)] for rank in range(world)]
    assert len({tuple(size) for size in sizes}) == 1
    assert len(loader((0, world), drop_last=drop_last)) == len(sizes[0])
    assert set(sizes[0]) <= {4} if drop_last else True


def test_a_sampler_of_the_users_is_honoured():
    theirs: Any = DistributedSampler(Numbers(SIZE), 2, 1)
    assert indices(DataLoader(Numbers(SIZE), 4, sampler=theirs, num_workers=0)) == [
        list(theirs)[at : at + 4] for at in range(0, 12, 4)
    ]


# ---------------------------------------------------------------------------------------------------- evaluation
class Squares(Calls):
    def __init__(self) -> None:
        super().__init__(int, SIZE)

    def __getitem__(self, index: int) -> Any:
        return float(index * index)


def metric(world: int, batch: int | None, **options: Any) -> tuple[float, int]:
    """Sum and count of all samples over all ranks, as an evaluation gathers them."""
    total, count = 0.0, 0
    for rank in range(world):
        one = DataLoader(Squares(), batch, num_workers=0, distributed="exact", **options)
        cast("Any", one.sampler).distributed = rank, world
        for values in one:
            valid = one.valid
            assert valid.shape == torch.as_tensor(values).reshape(-1).shape
            total += float(torch.as_tensor(values).reshape(-1)[valid].sum())
            count += int(valid.sum())
    return total, count


@pytest.mark.parametrize("world", [1, 3, 8, 30])
@pytest.mark.parametrize("options", [{"batch": 4}, {"batch": None}, {"batch": 4, "shuffle": True, "seed": 5}], ids=str)
def test_exact_gives_the_same_metric_on_any_number_of_ranks(world, options):
    assert metric(world, **options) == (float(sum(i * i for i in range(SIZE))), SIZE)


def test_valid_belongs_to_the_batch_that_was_handed_out_last():
    """Not to what workers have fetched ahead; and index has it for each batch."""
    one = DataLoader(Squares(), 4, num_workers=1, distributed="exact", seed=1)
    cast("Any", one.sampler).distributed = 2, 3
    with pytest.raises(UsageError, match="valid is of the last batch"):
        assert one.valid is None
    found = [one.valid.tolist() for _ in one]
    assert found == [[True] * 4, [True] * 3 + [False]]
    again = DataLoader(Squares(), 4, num_workers=0, distributed=(2, 3), seed=1, with_index=True)
    assert [batch.valid.tolist() for batch in again] == found
    assert [batch.index.tolist() for batch in again] == [[2, 5, 8, 11], [14, 17, 20, 0]]


def test_valid_out_of_order_belongs_to_its_batch():
    class SlowFirst(Squares):
        def __getitem__(self, index: int) -> float:
            time.sleep(0.4 * (index == 0))
            return float(index)

    one = DataLoader(SlowFirst(), 5, num_workers=2, distributed=(0, 1), seed=0, rng="torch", in_order=False, with_index=True)
    found = list(one)
    assert sorted(i for batch in found for i in batch.index.tolist()) == list(range(SIZE))
    for batch in found:
        assert batch.batch.tolist() == batch.index.tolist()
        assert len(batch.valid) == len(batch.index) and batch.valid.all()


def test_data_that_is_split_already_is_read_whole():
    parts = [Subset(Numbers(SIZE), range(rank, SIZE, 2)) for rank in range(2)]
    drawn = [i for part in parts for batch in indices(DataLoader(part, 4, num_workers=0, distributed=False)) for i in batch]
    assert sorted(drawn) == list(range(SIZE))


def test_ranks_of_tensor_parallelism_read_the_same():
    """Of four ranks, two by two hold one model: the pair is of data parallelism alone."""
    drawn = [indices(loader((rank // 2, 2), shuffle=True)) for rank in range(4)]
    assert drawn[0] == drawn[1] != drawn[2] == drawn[3]


def test_ranks_that_a_launcher_started_need_a_group(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    one = loader((0, 2))
    list(one)
    with pytest.raises(UsageError, match=r"no process group yet, but WORLD_SIZE=2 says that there are several"):
        list(loader(True))


# ---------------------------------------------------------------------------------------------------- real ranks
def run_rank(rank: int, folder: Path) -> None:
    """One of two processes: trains, evaluates, resumes."""
    with noted(folder / f"rank{rank}.txt"):
        dist.init_process_group("gloo", init_method=f"file://{folder}/group", rank=rank, world_size=2)
        train = DataLoader(Numbers(SIZE), 4, shuffle=True, num_workers=1, distributed=True, seed=2)
        epochs = [indices(train) for _ in range(2)]
        evaluation = DataLoader(Squares(), 4, num_workers=0, distributed="exact")
        total = torch.zeros(2, dtype=torch.float64)
        for values in evaluation:
            total += torch.tensor([values[evaluation.valid].sum(), evaluation.valid.sum()])
        dist.all_reduce(total)
        passed = iter(train)
        first = next(passed)[0].tolist()
        states: list[Any] = [None, None]
        dist.all_gather_object(states, train.state_dict())
        group: Any = dist.new_group([0, 1])
        own = indices(DataLoader(Numbers(SIZE), 4, num_workers=0, distributed=group, seed=2, shuffle=True))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            everything = indices(DataLoader(Numbers(SIZE), 4, num_workers=0))
        found = {
            "epochs": epochs, "total": total.tolist(), "first": first, "states": states, "own": own,
            "everything": everything, "told": [str(entry.message) for entry in caught],
        }  # fmt: skip
        torch.save(found, folder / f"rank{rank}.pt")
        dist.destroy_process_group()


@pytest.mark.long
def test_two_real_ranks(tmp_path):
    run_ranks(run_rank, 2, tmp_path, folder=tmp_path, seconds=90)
    one, other = (torch.load(tmp_path / f"rank{rank}.pt", weights_only=True) for rank in range(2))
    whole = indices(DataLoader(Numbers(SIZE), 1, shuffle=True, num_workers=0, seed=2))
    flat = [[i for batch in found["epochs"][0] for i in batch] for found in (one, other)]
    assert [i for pair in zip(*flat, strict=True) for i in pair][:SIZE] == [i for batch in whole for i in batch]
    assert one["epochs"][0] != one["epochs"][1]
    assert one["total"] == other["total"] == [float(sum(i * i for i in range(SIZE))), float(SIZE)]
    assert one["states"] == other["states"] and one["states"][0] == one["states"][1]
    assert one["states"][0]["order"]["consumed"] == 8 and one["states"][0]["order"]["epoch"] == 2
    assert one["own"] == one["epochs"][0] and other["own"] == other["epochs"][0]
    assert len(one["everything"]) == 6 and len(one["told"]) == 1 and one["told"][0].startswith(UNSHARDED)
