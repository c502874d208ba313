"""A loader inside a framework: whose samples, where the pass ends, and what the framework's books are told.

Long, and whole: every test stands on the framework below (Books, Shard), which nothing else uses.
"""

import gc
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from loading import At, Bunches, Calls, Raise
from torch.utils.data import (
    BatchSampler,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    WeightedRandomSampler,
)

from fastfeed.errors import UsageError
from fastfeed.feed.loader import DataLoader
from fastfeed.feed.order import OrderSampler
from fastfeed.feed.prepared import PreparedLoader


class Books:
    """A host of any number of ranks, one after the other in this process."""

    def __init__(self, processes: int = 1, rank: int = 0, *, splits: bool = False, reseeds: bool = False) -> None:
        self.processes, self.rank, self.splits, self.reseeds = processes, rank, splits, reseeds
        self.open: list[PreparedLoader] = []
        self.synchronized: list[Any] = []
        self.proven: list[tuple[bool, bool]] = []

    def prove(self, *, stream: bool, asked: bool) -> None:
        self.proven.append((stream, asked))

    def seed(self, generator: torch.Generator | None) -> int:
        return 11

    def shard(self, batches: Any) -> Any:
        return Shard(batches, self)

    def synchronize(self, generator: torch.Generator | None) -> None:
        self.synchronized.append(generator)

    def begin(self, loader: PreparedLoader) -> None:
        self.open = [one for one in self.open if one is not loader] + [loader]

    def end(self, loader: PreparedLoader) -> None:
        self.open.remove(loader)

    def move(self, batch: Any) -> Any:
        return batch


class Shard(BatchSampler):
    """Every so manieth batch, as many for each rank."""

    split_batches = False

    def __init__(self, batches: Any, host: Books) -> None:
        self.batch_sampler, self.host = batches, host
        self.batch_size, self.num_processes = batches.batch_size, host.processes

    def __len__(self) -> int:
        return len(range(0, len(self.batch_sampler), self.host.processes))

    def __iter__(self) -> Iterator[Any]:
        found = list(self.batch_sampler)
        for at in range(0, len(found), self.host.processes):
            step = found[at : at + self.host.processes]
            yield (step + found)[self.host.rank]


def numbers(size: int) -> Calls:
    return Calls(int, size)


def prepared(size: int, batch: int | None, host: Books, **options: Any) -> PreparedLoader:
    return PreparedLoader(DataLoader(numbers(size), batch, num_workers=0, **options), host)


def read(loader: PreparedLoader) -> list[tuple[list[int], bool, int]]:
    """One pass: each batch, whether it was said to be the last, and the remainder."""
    found = []
    for batch in loader:
        assert loader.host.open == [loader]  # type: ignore[attr-defined]
        found.append((torch.as_tensor(batch).reshape(-1).tolist(), loader.end_of_dataloader, loader.remainder))
    assert loader.host.open == []  # type: ignore[attr-defined]
    return found


def gathered(ranks: list[list[tuple[list[int], bool, int]]]) -> list[int]:
    """What gathering for metrics gives: steps, ranks in turn, cut to the remainder at the end."""
    seen: list[int] = []
    for step in zip(*ranks, strict=True):
        assert len({(len(batch), end, remainder) for batch, end, remainder in step}) == 1
        _, end, remainder = step[0]
        together = [i for batch, _, _ in step for i in batch]
        seen += together[:remainder] if end and remainder > 0 else together
    assert [end for _, end, _ in ranks[0]] == [False] * (len(ranks[0]) - 1) + [True]
    return seen


# ---------------------------------------------------------------------------------------------------- our own order
@settings(max_examples=60, deadline=None)
@given(
    size=st.integers(1, 40), world=st.integers(1, 6), batch=st.integers(1, 9) | st.none(), seed=st.none() | st.integers(0, 3),
    shuffle=st.booleans(),
)  # fmt: skip
def test_gathered_batches_are_the_order_itself(size, world, batch, seed, shuffle):
    options = {"seed": seed, "shuffle": shuffle}
    ranks = [read(prepared(size, batch, Books(world, rank), **options)) for rank in range(world)]
    if world == 1 and shuffle and seed is None:
        assert sorted(gathered(ranks)) == list(range(size))
        return
    drawn = 11 if seed is None else seed
    alone = [i for found, _, _ in read(prepared(size, batch, Books(), shuffle=shuffle, seed=drawn)) for i in found]
    assert gathered(ranks) == alone
    assert shuffle or alone == list(range(size))


@pytest.mark.parametrize("size", [16, 17, 23])
def test_drop_last_leaves_out_what_makes_no_whole_step(size):
    ranks = [read(prepared(size, 4, Books(2, rank), drop_last=True)) for rank in range(2)]
    assert gathered(ranks) == list(range(size // 8 * 8))


@pytest.mark.parametrize("distributed", [True, "exact", (1, 3)])
def test_what_was_said_of_ranks_is_kept(distributed, monkeypatch):
    loader = prepared(23, 4, Books(3, 1), distributed=distributed, seed=5, shuffle=True)
    assert loader.distributed == distributed
    assert loader.host.proven == [(False, True)]  # type: ignore[attr-defined]


def test_everything_is_read_where_that_is_meant():
    loader = prepared(23, 4, Books(2, 1), distributed=False)
    found = read(loader)
    assert [i for batch, _, _ in found for i in batch] == list(range(23))
    assert {remainder for _, _, remainder in found} == {-1}
    assert loader.host.proven == []  # type: ignore[attr-defined]


def test_a_batch_of_all_processes_is_split():
    ranks = [read(prepared(23, 4, Books(2, rank, splits=True))) for rank in range(2)]
    assert [len(batch) for batch, _, _ in ranks[0]] == [2, 2, 2, 2, 2, 2]
    assert gathered(ranks) == list(range(23))
    with pytest.raises(UsageError, match="split_batches=True: batch_size=5 does not go round 2 processes"):
        prepared(23, 5, Books(2, 0, splits=True))


def test_blocks_leave_lanes_to_ranks():
    """More padding than one sample cannot be told from the end of a step then."""
    ranks = [read(prepared(21, 4, Books(2, rank), shuffle=True, shuffle_mode="block", seed=1)) for rank in range(2)]
    assert sorted(gathered(ranks)) == list(range(21))
    three = read(prepared(22, 4, Books(3, 0), shuffle=True, shuffle_mode="block", seed=1))
    assert {remainder for _, _, remainder in three} == {-1}


def test_a_shuffle_gets_a_seed_where_it_is_asked_for():
    assert prepared(23, 4, Books(), shuffle=True).seed is None
    assert prepared(23, 4, Books(reseeds=True), shuffle=True).seed == 11
    assert prepared(23, 4, Books(reseeds=True), shuffle=True, seed=3).seed == 3
    assert prepared(23, 4, Books(reseeds=True)).seed is None


def test_torchs_numbers_stay_on_one_process():
    torch.manual_seed(4)
    plain = [i for batch in DataLoader(numbers(23), 4, shuffle=True, num_workers=0) for i in batch.tolist()]
    torch.manual_seed(4)
    assert [i for batch, _, _ in read(prepared(23, 4, Books(), shuffle=True)) for i in batch] == plain


def test_the_original_is_left_as_it_was():
    one = DataLoader(numbers(23), 4, num_workers=0, seed=2)
    PreparedLoader(one, Books(2, 0))
    assert [i for batch in one for i in batch.tolist()] == list(range(23)) and one.distributed is None


# ---------------------------------------------------------------------------------------------------- positions
@pytest.mark.parametrize("world", [1, 2, 3])
def test_a_position_goes_on_and_on_another_world(world):
    loaders = [prepared(23, 4, Books(world, rank), shuffle=True, seed=7) for rank in range(world)]
    passes = [iter(loader) for loader in loaders]
    before = [i for _ in range(1) for one in passes for i in next(one).tolist()]
    states = [loader.state_dict() for loader in loaders]
    assert all(state == states[0] for state in states)
    for other in (1, 2):
        resumed = [prepared(23, 4, Books(other, rank), shuffle=True, seed=7) for rank in range(other)]
        for loader in resumed:
            loader.load_state_dict(states[0])
        whole = [i for batch, _, _ in read(prepared(23, 4, Books(), shuffle=True, seed=7)) for i in batch]
        assert before + gathered([read(loader) for loader in resumed]) == whole


def test_a_position_from_before_is_kept():
    one = DataLoader(numbers(23), 4, num_workers=0, seed=2)
    other = DataLoader(numbers(23), 4, num_workers=0, seed=2)
    passed = iter(one)
    next(passed)
    other.load_state_dict(one.state_dict())
    loader = PreparedLoader(other, Books())
    assert [i for batch, _, _ in read(loader) for i in batch] == list(range(4, 23))
    assert [i for batch, _, _ in read(loader) for i in batch] == list(range(23))


@pytest.mark.parametrize("options", [{"seed": 3}, {}], ids=["own order", "torch's"])
@pytest.mark.parametrize("batches", [0, 1, 5, 6])
def test_first_batches_are_left_out_once(options, batches):
    loader = prepared(23, 4, Books(), **options)
    whole = list(range(23))
    assert [i for batch, _, _ in read(loader) for i in batch] == whole
    loader.leave_out(batches)
    found = [batch for batch, _, _ in read(loader)]
    assert [i for batch in found for i in batch] == whole[4 * batches :]
    assert [i for batch, _, _ in read(loader) for i in batch] == whole
    assert loader.epoch == 2


@pytest.mark.parametrize(("options", "batches"), [({"seed": 1}, 7), ({"seed": 1}, -1), ({}, -1)])
def test_more_than_an_epoch_cannot_be_left_out(options, batches):
    with pytest.raises(UsageError, match="not so many batches to leave out"):
        prepared(23, 4, Books(), **options).leave_out(batches)


def test_first_batches_of_the_rest():
    loader = prepared(23, 4, Books(), seed=3)
    loader.leave_out(2)
    loader.leave_out(1)
    assert [i for batch, _, _ in read(loader) for i in batch] == list(range(12, 23))


def test_set_epoch():
    loader = prepared(23, 4, Books(2, 0), shuffle=True)
    first, second = read(loader), read(loader)
    assert first != second
    loader.set_epoch(0)
    assert read(loader) == first
    batches: Any = loader.batch_sampler
    batches.set_epoch(1)
    assert read(loader) == second
    assert batches.even_batches
    batches.even_batches = True
    with pytest.raises(UsageError, match="even_batches=False asks for ranks with unequal batches"):
        batches.even_batches = False


# ---------------------------------------------------------------------------------------------------- samplers of the user's
class Told(SequentialSampler):
    """Keeps the epochs that it was told."""

    def __init__(self, size: int) -> None:
        super().__init__(range(size))
        self.epochs: list[int] = []

    def set_epoch(self, epoch: int) -> None:
        self.epochs.append(epoch)


@pytest.mark.parametrize("size", [16, 23])
def test_batches_of_a_sampler_go_round(size):
    ranks = [read(prepared(size, 4, Books(2, rank), sampler=Told(size))) for rank in range(2)]
    assert ranks[0][1][0] == [8, 9, 10, 11] and ranks[1][1][0] == [12, 13, 14, 15]
    assert {remainder for _, _, remainder in ranks[0]} == {size % 8}


def test_samplers_are_told_the_epoch():
    sampler = Told(23)
    loader = prepared(23, 4, Books(2, 0), sampler=sampler)
    read(loader)
    read(loader)
    loader.set_epoch(5)
    read(loader)
    assert sampler.epochs[-1] == 5 and sampler.epochs[:2] == [0, 1]


@pytest.mark.parametrize("order", ["torch's", "ours", "of a batch sampler"])
def test_datasets_are_told_the_epoch(order):
    class Told(Calls):
        epochs: ClassVar[list[int]] = []

        def set_epoch(self, epoch: int) -> None:
            self.epochs.append(epoch)

    options: dict[str, Any] = {"ours": {"seed": 1}, "torch's": {}}.get(
        order, {"batch_sampler": BatchSampler(OrderSampler(23), 4, drop_last=False)}
    )
    loader = PreparedLoader(DataLoader(Told(int, 23), num_workers=0, **options), Books())
    read(loader)
    read(loader)
    loader.set_epoch(7)
    read(loader)
    assert Told.epochs == [0, 1, 7]


@pytest.mark.parametrize("own", [None, 3], ids=["without a generator", "with one"])
def test_generators_of_samplers_are_synchronized(own):
    generator = None if own is None else torch.Generator().manual_seed(own)
    sampler = WeightedRandomSampler([1.0] * 23, 23, generator=generator)
    loader = prepared(23, 4, Books(2, 0), sampler=sampler)
    read(loader)
    assert loader.host.synchronized == [sampler.generator] and sampler.generator is not None  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("options", "what"),
    [({"sampler": DistributedSampler(numbers(23), 2, 0)}, "DistributedSampler gives each rank its part already"),
     ({"sampler": Told(23), "batch": None}, "batch_size=None with a sampler of one's own cannot be shared by 2 processes"),
     ({"sampler": Told(23), "with_index": True}, "with_index cannot tell the padding")],
    ids=["sharded", "unbatched", "valid"],
)  # fmt: skip
def test_what_cannot_be_shared_is_told(options, what):
    with pytest.raises(UsageError, match=what):
        prepared(23, options.pop("batch", 4), Books(2, 0), **options)


@pytest.mark.parametrize(
    ("options", "remainder"),
    [({"batch_size": 4, "sampler": range(10)}, 2), ({"batch_size": 4, "sampler": range(10), "drop_last": True}, 0),
     ({"batch_sampler": BatchSampler(RandomSampler(range(23)), 5, drop_last=False)}, 3), ({"batch_sampler": Bunches(23)}, -1),
     ({"batch_size": None}, 0), ({"batch_size": None, "sampler": BatchSampler(range(23), 4, drop_last=False)}, 3)],
    ids=["sampler", "drop_last", "batches", "bunches", "unbatched", "batches as sampler"],
)  # fmt: skip
def test_the_last_batch_is_known_whatever_draws(options, remainder):
    dataset = BatchNumbers(23) if isinstance(options.get("sampler"), BatchSampler) else numbers(23)
    found = read(PreparedLoader(DataLoader(dataset, num_workers=0, **options), Books()))
    assert [end for _, end, _ in found] == [False] * (len(found) - 1) + [True]
    assert {one[2] for one in found} == {remainder}


class BatchNumbers(Calls):
    """Asked for a list, as some datasets are."""

    def __init__(self, size: int) -> None:
        super().__init__(int, size)

    def __getitem__(self, index: Any) -> Any:
        return torch.tensor(index)


class Stream(IterableDataset[int]):
    def __init__(self, size: int) -> None:
        self.size, self.epochs = size, list[int]()

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.size))

    def set_epoch(self, epoch: int) -> None:
        self.epochs.append(epoch)


@pytest.mark.parametrize("size", [0, 1, 8, 9])
def test_streams(size):
    stream = Stream(size)
    loader = PreparedLoader(DataLoader(stream, 4, num_workers=0), Books())
    for _ in range(2):
        found = read(loader)
        assert [i for batch, _, _ in found for i in batch] == list(range(size))
        assert [end for _, end, _ in found] == [False] * (len(found) - 1) + [True] * bool(found)
    assert stream.epochs == [0, 1]


def test_first_batches_of_a_stream():
    loader = PreparedLoader(DataLoader(Stream(9), 4, num_workers=0), Books())
    loader.leave_out(1)
    assert [batch for batch, _, _ in read(loader)] == [[4, 5, 6, 7], [8]]
    assert len(read(loader)) == 3


# ---------------------------------------------------------------------------------------------------- passes that are left
def test_a_pass_that_is_left_is_out_of_the_books():
    loader = prepared(23, 4, Books())
    for _ in loader:
        break
    assert loader.host.open == []  # type: ignore[attr-defined]


def test_a_pass_that_is_replaced_closes_no_other():
    loader = prepared(23, 4, Books())
    first, second = iter(loader), iter(loader)
    next(first)
    next(second)
    del first
    gc.collect()
    assert loader.host.open == [loader]  # type: ignore[attr-defined]
    assert len(list(second)) == 5
    assert loader.host.open == []  # type: ignore[attr-defined]


@pytest.mark.parametrize("options", [{"seed": 1}, {}], ids=["own order", "torch's"])
def test_a_fault_ends_nothing(options):
    bad = Calls(At(5, Raise(KeyError("bad"))), 11)
    loader = PreparedLoader(DataLoader(bad, 4, num_workers=0, **options), Books())
    passed, found, faults = iter(loader), [], []
    for _ in range(3):
        try:
            found.append(next(passed).tolist())
        except KeyError as error:
            faults.append(str(error))
    assert next(passed, None) is None
    assert found == [[0, 1, 2, 3], [8, 9, 10]] and len(faults) == 1 and loader.end_of_dataloader
    assert "sample 5" in faults[0]


def test_index_and_validity():
    ranks = []
    for rank in range(2):
        loader = prepared(7, 2, Books(2, rank), distributed=(rank, 2), with_index=True)
        ranks.append([(one.index.tolist(), one.valid.tolist()) for one in loader])
    assert ranks[0] == [([0, 1], [True, True]), ([4, 5], [True, True])]
    assert ranks[1] == [([2, 3], [True, True]), ([6, 0], [True, False])]


def test_sizes():
    loader = prepared(23, 4, Books(2, 0))
    assert (loader.total_batch_size, loader.total_dataset_length, loader.batch_size, len(loader)) == (8, 23, 4, 3)
    assert prepared(23, 4, Books(2, 0), sampler=Told(23)).total_batch_size == 8
    assert PreparedLoader(DataLoader(Subset(numbers(23), range(3)), num_workers=0), Books()).total_batch_size == 1
    bunches: Any = Bunches(23)
    assert PreparedLoader(DataLoader(numbers(23), batch_sampler=bunches, num_workers=0), Books()).total_batch_size is None
