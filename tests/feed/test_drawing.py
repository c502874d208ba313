"""Which sampler draws, and whether its epochs move on."""

import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from loading import Numbers, indices, seed_all
from torch.utils.data import BatchSampler, Dataset, DistributedSampler, RandomSampler, Sampler, SequentialSampler
from torch.utils.data import DataLoader as TorchDataLoader

from fastfeed.errors import UsageError
from fastfeed.feed.drawing import Asked, EpochWatch, EveryRank, drawn_by_us, drawn_from, own_share, sampler_of, set_epoch
from fastfeed.feed.loader import DataLoader
from fastfeed.feed.order import FeedSampler, OrderSampler

SIZE = 23
DATA = Numbers(SIZE)


class Within:
    """What Lightning's DistributedSampler has for its dataset."""

    def __init__(self, sampler: Any) -> None:
        self._sampler = sampler

    def __len__(self) -> int:
        return len(self._sampler)


def around(sampler: Any, rank: int = 1, world: int = 3) -> Any:
    return DistributedSampler(Within(sampler), world, rank, shuffle=False)  # type: ignore[arg-type]


def asked(**options: Any) -> Asked:
    usual: dict[str, Any] = {
        "sampler": None, "batch_sampler": None, "shuffle": False, "drop_last": False, "generator": None, "seed": None,
        "distributed": None, "shuffle_mode": "full",
    }  # fmt: skip
    return Asked(**{**usual, **options})


# ---------------------------------------------------------------------------------------------------- which
@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({}, type(None)), ({"shuffle": True}, type(None)), ({"sampler": [1]}, type(None)), ({"seed": 1}, OrderSampler),
        ({"distributed": True}, FeedSampler), ({"shuffle": True, "shuffle_mode": "block"}, OrderSampler),
        ({"seed": 1, "sampler": [1]}, type(None)), ({"seed": 1, "batch_sampler": [[1]]}, type(None)),
        ({"distributed": False}, EveryRank), ({"distributed": False, "seed": 1}, FeedSampler),
        ({"distributed": False, "sampler": [1]}, EveryRank), ({"distributed": False, "batch_sampler": [[1]]}, type(None)),
        ({"distributed": False, "sampler": DistributedSampler(DATA, 2, 0)}, type(None)),
        ({"distributed": False, "sampler": [1], "shuffle": True}, type(None)),  # torch says that they exclude each other
        ({"distributed": True, "sampler": OrderSampler(DATA)}, type(None)),
        ({"distributed": True, "batch_sampler": BatchSampler(OrderSampler(DATA), 2, False)}, type(None)),
        ({"seed": 1, "sampler": around(OrderSampler(DATA))}, FeedSampler),
        ({"seed": 1, "batch_sampler": BatchSampler(around(OrderSampler(DATA)), 2, False)}, type(None)),
    ],
)  # fmt: skip
def test_the_sampler_that_draws(options, kind):
    assert type(sampler_of(DATA, asked(**options))) is kind


@pytest.mark.parametrize(
    "options", [{"distributed": True}, {"shuffle_mode": "block"}, {"distributed": (0, 2), "seed": 1}], ids=str
)
def test_a_sampler_of_ones_own_has_another_order(options):
    for given in ({"sampler": [1]}, {"batch_sampler": [[1]]}, {"sampler": RandomSampler(DATA)}):
        with pytest.raises(UsageError, match="needs the loader's own order"):
            sampler_of(DATA, asked(**options, **given))


@pytest.mark.parametrize(
    "options", [{"distributed": (1, 2)}, {"distributed": (1, 2), "shuffle_mode": "block"}, {"seed": 4}], ids=str
)
def test_torchs_sequential_sampler_is_no_shuffle_in_other_words(options):
    found: Any = sampler_of(DATA, asked(sampler=SequentialSampler(DATA), **options))
    assert not found.shuffle
    assert list(found) == (list(range(SIZE)) if "seed" in options else [*range(1, SIZE, 2), 0])


def test_what_indices_come_from():
    inner = RandomSampler(DATA)
    assert drawn_from(inner, None) is inner
    assert drawn_from(SequentialSampler(DATA), BatchSampler(inner, 2, False)) is inner
    assert drawn_from(inner, [[1]]) is None


# ---------------------------------------------------------------------------------------------------- a framework's around ours
def test_an_order_of_ours_within_a_frameworks_sampler():
    order = OrderSampler(DATA, seed=3)
    assert drawn_by_us(order) and drawn_by_us(around(order)) and drawn_by_us(BatchSampler(around(order), 2, False))
    others: list[Any] = [None, [1], RandomSampler(DATA), DistributedSampler(DATA, 2, 0), around(RandomSampler(DATA))]
    for other in others:
        assert not drawn_by_us(other)
        assert own_share(other) is None


def test_its_share_is_drawn_by_ourselves():
    order = OrderSampler(DATA, seed=3, skip=[5])
    whole = list(OrderSampler(DATA, seed=3, skip=[5]))
    found = own_share(around(order))
    assert found is not None and (found.rank, found.num_replicas, found.drop_last) == (1, 3, False)
    assert list(found) == [*whole[1::3], whole[0]][: len(found)]
    assert found.share.epoch == 0 and order.epoch == 0


def test_its_share_goes_on_from_a_loaded_position():
    order, other = (OrderSampler(DATA, seed=3, mode="block", block=2) for _ in range(2))
    list(other)
    state = other.state(10)
    assert state["lanes"] == 16
    order.load(state)
    found = own_share(around(order))
    assert found is not None and found.share.start == 10
    assert order.lanes == 16 and found.lanes == 16


# ---------------------------------------------------------------------------------------------------- every rank
@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("generator", [False, True])
def test_with_false_the_numbers_are_torchs(shuffle, generator):
    def drawn(cls: Any, **options: Any) -> Any:
        seed_all(4)
        given = {"generator": torch.Generator().manual_seed(2)} if generator else {}
        loader = cls(DATA, 4, shuffle=shuffle, num_workers=0, **given, **options)
        return [indices(loader) for _ in range(2)], torch.rand(1).item()

    assert drawn(DataLoader, distributed=False) == drawn(TorchDataLoader)


class Told(Sampler[int]):
    """Knows its epoch."""

    epoch = 0

    def __iter__(self) -> Iterator[int]:
        return iter([self.epoch] * 3)

    def __len__(self) -> int:
        return 3

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch


def test_a_sampler_for_every_rank_hands_on():
    inner = Told()
    one = EveryRank(inner)
    assert DistributedSampler in type(one).__mro__ and len(one) == 3
    one.set_epoch(4)
    assert list(one) == [4, 4, 4] and one.epoch == inner.epoch == 4


# ---------------------------------------------------------------------------------------------------- epochs
def test_set_epoch_reaches_what_draws():
    one, within, batches = Told(), Told(), Told()
    set_epoch(one, None, 7)
    set_epoch(None, BatchSampler(within, 2, False), 7)
    set_epoch(None, batches, 7)
    assert (one.epoch, within.epoch, batches.epoch) == (7, 7, 7)
    set_epoch(RandomSampler(DATA), None, 7)


def test_a_loader_tells_the_epoch_to_its_batch_samplers_sampler():
    one = OrderSampler(DATA, seed=1)
    loader = DataLoader(DATA, batch_sampler=BatchSampler(one, 4, False), num_workers=0)
    loader.set_epoch(5)
    assert next(iter(loader))[0].tolist() == next(iter(again_at(5)))[0].tolist()


def again_at(epoch: int) -> DataLoader:
    found = DataLoader(DATA, 4, shuffle=True, seed=1, num_workers=0)
    found.set_epoch(epoch)
    return found


FORGOTTEN = "the DistributedSampler was not told of a new epoch: this one has the same order as epoch 0"


def epochs_of(loader: Any, count: int = 3, tell: Any = None) -> tuple[list[Any], list[str]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = []
        for epoch in range(count):
            if tell is not None:
                tell(epoch)
            found.append(indices(loader))
    return found, [text for entry in caught if "use of fork" not in (text := str(entry.message))]  # Python's own


def shared(**options: Any) -> Any:
    return DistributedSampler(DATA, 2, 0, **options)


@pytest.mark.parametrize("batched", [False, True])
def test_in_torch_mode_a_forgotten_set_epoch_is_told_once(batched):
    options: Any = {"batch_sampler": BatchSampler(shared(), 4, False)} if batched else {"batch_size": 4, "sampler": shared()}
    found, told = epochs_of(DataLoader(DATA, num_workers=0, **options))
    assert found[0] == found[1] == found[2]
    assert [text.startswith(FORGOTTEN) for text in told] == [True]
    assert "Call set_epoch(epoch) before each epoch" in told[0]


@pytest.mark.parametrize("options", [{"seed": 1}, {"num_workers": None}, {"rng": "sample"}], ids=str)
def test_in_sample_mode_it_is_called(options):
    found, told = epochs_of(DataLoader(DATA, 4, sampler=shared(), **{"num_workers": 0, **options}))
    wanted = shared()
    assert (found, told) == epochs_of(TorchDataLoader(DATA, 4, sampler=wanted), tell=wanted.set_epoch)
    assert found[0] != found[1] != found[2]


@pytest.mark.parametrize("mode", ["torch", "sample"])
@pytest.mark.parametrize("by", ["sampler", "loader"])
@pytest.mark.parametrize("step", [1, 2])
def test_who_calls_it_is_left_alone(mode, by, step):
    """Each epoch is told, or every second one."""
    one, wanted = shared(), shared()
    loader = DataLoader(DATA, 4, sampler=one, num_workers=0, rng=mode)
    teller = one if by == "sampler" else loader
    found, told = epochs_of(loader, tell=lambda epoch: teller.set_epoch(step * epoch))
    expected, _ = epochs_of(TorchDataLoader(DATA, 4, sampler=wanted), tell=lambda epoch: wanted.set_epoch(step * epoch))
    assert (found, told) == (expected, [])


@pytest.mark.parametrize("mode", ["torch", "sample"])
def test_the_loader_may_be_told_the_same_epoch_again(mode):
    loader = DataLoader(DATA, 4, sampler=shared(), num_workers=0, rng=mode)
    found, told = epochs_of(loader, tell=lambda _: loader.set_epoch(2))
    assert found[0] == found[1] == found[2] and told == []


@pytest.mark.parametrize(
    "sampler",
    [shared(shuffle=False), RandomSampler(DATA), FeedSampler(DATA, distributed=(0, 2)), EveryRank(RandomSampler(DATA))],
    ids=lambda sampler: type(sampler).__name__,
)
def test_others_are_not_watched(sampler):
    for moves in (False, True):
        watch, before = EpochWatch(), getattr(sampler, "epoch", None)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for _ in range(3):
                watch.begin(sampler, moves=moves)
        assert getattr(sampler, "epoch", None) == before


# ---------------------------------------------------------------------------------------------------- sorted classes
class Sorted(Dataset[int]):
    """As torchvision's folders: a class after the other, and targets."""

    def __init__(self) -> None:
        self.targets = [index // 100 for index in range(1000)]

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int) -> int:
        return self.targets[index]


@pytest.mark.parametrize("options", [{}, {"distributed": (0, 2)}], ids=str)
def test_block_order_over_sorted_classes_is_told_at_the_users_line(options):
    with pytest.warns(UserWarning, match=r"equal labels stand together in runs of 100\.0 samples on average") as caught:
        DataLoader(Sorted(), 8, shuffle=True, shuffle_mode="block", num_workers=0, **options)
    assert [one.filename for one in caught] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        DataLoader(Sorted(), 8, shuffle=True, seed=1, num_workers=0, **options)
