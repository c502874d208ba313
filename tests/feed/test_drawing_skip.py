"""Which sampler a loader gets, with a skip list."""

from typing import Any

import pytest
from loading import Numbers
from torch.utils.data import BatchSampler, DistributedSampler, IterableDataset, RandomSampler, SequentialSampler

from fastfeed.errors import UsageError
from fastfeed.feed.drawing import Asked, EveryRank, leaves_out, sampler_of
from fastfeed.feed.kept import KeptSampler
from fastfeed.feed.order import FeedSampler, OrderSampler
from fastfeed.sample import SampleId, SkipEntry, SkipList


class Named(Numbers):
    def identity(self, index: int) -> SampleId:
        return SampleId(index, str(index), None)


DATA = Named(9)


def chosen(dataset: Any = DATA, **options: Any) -> Any:
    nothing = {"sampler": None, "batch_sampler": None, "shuffle": False, "drop_last": False, "generator": None, "seed": None}
    return sampler_of(dataset, Asked(**{**nothing, "distributed": None, "shuffle_mode": "full", **options}))


def skip(*keys: int) -> SkipList:
    return SkipList([SkipEntry(key=str(key)) for key in keys])


def test_torchs_own_where_nothing_more_is_asked_for():
    assert chosen() is None
    assert chosen(sampler=[1], seed=3) is None


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"seed": 1}, OrderSampler), ({"distributed": (0, 2)}, FeedSampler), ({"seed": 1, "distributed": False}, FeedSampler),
        ({"shuffle_mode": "block"}, OrderSampler), ({}, KeptSampler), ({"distributed": False}, EveryRank),
    ],
    ids=str,
)  # fmt: skip
def test_ours_with_a_skip_list_and_without(options, kind):
    without = chosen(shuffle=True, **options)
    assert type(without) is (type(None) if kind is KeptSampler else kind)
    sampler = chosen(shuffle=True, skip=skip(2, 5), **options)
    assert type(sampler) is kind
    drawn = list(sampler)
    assert set(drawn) < set(range(9)) - {2, 5} or sorted(drawn) == [0, 1, 3, 4, 6, 7, 8]
    assert len(drawn) == len(sampler) == (4 if options.get("distributed") else 7)


def test_samplers_of_ones_own():
    for given in ({"sampler": [1, 2]}, {"batch_sampler": [[1]]}, {"sampler": RandomSampler(DATA)}):
        for asked, name in (({"skip": skip(1)}, "skip"), ({"seed": 1, "distributed": True}, "seed=1, distributed=True")):
            with pytest.raises(
                UsageError, match=f"^{name} needs the loader's own order, and a sampler or batch_sampler of one"
            ):
                chosen(**given, **asked)
    stored = chosen(sampler=SequentialSampler(DATA), skip=skip(4))
    assert list(stored) == [0, 1, 2, 3, 5, 6, 7, 8]


def test_streams_have_no_order():
    class Stream(IterableDataset[Any]):
        def __iter__(self) -> Any:
            return iter([1])

    for asked in ({"skip": skip(1)}, {"seed": 1}):
        with pytest.raises(UsageError, match="an IterableDataset has another"):
            chosen(Stream(), **asked)
    assert chosen(Stream()) is None


def test_modes():
    with pytest.raises(UsageError, match="shuffle_mode is 'full' or 'block'"):
        chosen(shuffle_mode="blocks", shuffle=True)
    with pytest.raises(UsageError, match="shuffle is not asked for"):
        chosen(shuffle_mode="block")


def test_an_order_of_ours_is_known_again_also_within_others():
    class Hidden:
        def __init__(self, sampler: Any) -> None:
            self._sampler = sampler

        def __len__(self) -> int:
            return 9

    for ours in (OrderSampler(9), FeedSampler(9, distributed=(0, 1)), KeptSampler(9, [1])):
        wrapped: Any = DistributedSampler(Hidden(ours), 2, 0)  # type: ignore[arg-type]
        for given in (ours, BatchSampler(ours, 2, drop_last=False), wrapped, BatchSampler(wrapped, 2, drop_last=False)):
            assert leaves_out(given)
            assert isinstance(chosen(sampler=given, skip=skip(1), seed=1), FeedSampler | None)
            assert chosen(batch_sampler=given, skip=skip(1), seed=1) is None
    circle: Any = Hidden(None)
    circle._sampler = circle
    assert not any(map(leaves_out, (None, [1], RandomSampler(DATA), circle)))
