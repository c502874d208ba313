"""Who has state_dict and load_state_dict, and for whom."""

import copy
import inspect
import pickle
import pydoc
import weakref
from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import pytest
import torch.distributed.checkpoint.stateful
import typing_extensions
from loading import NoCollector, Numbers, children, indices
from torch.utils.data import BatchSampler, IterableDataset

from fastfeed.errors import NotResumable, UsageError
from fastfeed.feed.loader import DataLoader

SIZE = 23


class Flow(IterableDataset[int]):
    def __iter__(self) -> Any:
        return iter(range(3))


def loader(batch: int | None = 4, **options: Any) -> DataLoader:
    return DataLoader(Numbers(SIZE), batch, **{"num_workers": 0, **options})


@runtime_checkable
class Saved(Protocol):
    """Looked for as this Python does it."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state_dict: dict[str, Any], /) -> None: ...


@typing_extensions.runtime_checkable
class StaticallySaved(typing_extensions.Protocol):
    """Looked for as Python 3.12 does it: without calling __getattr__."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state_dict: dict[str, Any], /) -> None: ...


PROTOCOLS: list[Any] = [Saved, StaticallySaved, torch.distributed.checkpoint.stateful.Stateful]
NAMES = ("state_dict", "load_state_dict")


def shows(one: Any) -> set[bool]:
    """The answers of all who ask."""
    found = {hasattr(one, name) for name in NAMES} | {callable(getattr(one, name, None)) for name in NAMES}
    found |= {isinstance(one, protocol) for protocol in PROTOCOLS} | {name in dir(one) for name in NAMES}
    return found | {inspect.getattr_static(one, name, None) is not None for name in NAMES}


WITH: list[dict[str, Any]] = [
    {"seed": 1}, {"distributed": (0, 2)}, {"distributed": "exact"}, {"seed": 1, "shuffle": True, "num_workers": 1},
    {"seed": 1, "in_order": False}, {"shuffle": True, "shuffle_mode": "block"}, {"seed": 1, "batch": None},
    {"distributed": False, "seed": 1},
]  # fmt: skip
WITHOUT: list[dict[str, Any]] = [
    {}, {"shuffle": True}, {"num_workers": None}, {"distributed": False}, {"sampler": [1], "seed": 1}, {"num_workers": 1},
    {"batch": 1, "batch_sampler": [[1]], "seed": 1}, {"seed": 1, "num_workers": 1, "in_order": False},
]  # fmt: skip


@pytest.mark.parametrize("options", WITH, ids=str)
def test_where_there_are_positions_everyone_sees_it(options):
    one = loader(**options)
    for again in (one, copy.copy(one), copy.deepcopy(one), pickle.loads(pickle.dumps(one))):
        assert shows(again) == {True}


@pytest.mark.parametrize("options", WITHOUT, ids=str)
def test_where_there_are_none_nobody_sees_it_and_a_call_says_why(options):
    one = loader(**options)
    missing = "in_order=False" if "in_order" in options else r"Give seed= \(or distributed=\)"
    for again in (one, copy.copy(one), copy.deepcopy(one), pickle.loads(pickle.dumps(one))):
        assert shows(again) == {False}
        for call in (lambda one: one.state_dict(), lambda one: one.load_state_dict({})):
            with pytest.raises(NotResumable, match=missing) as caught:
                call(again)
            assert {UsageError, AttributeError} <= set(type(caught.value).__mro__)


def test_a_stream_has_none():
    assert shows(DataLoader(Flow(), num_workers=0)) == {False}


def test_an_attribute_that_there_is_not_is_told_as_ever():
    one: Any = loader()
    with pytest.raises(AttributeError, match="'DataLoader' object has no attribute 'batchsize'") as caught:
        one.batchsize  # noqa: B018
    assert (caught.value.name, caught.value.obj) == ("batchsize", one)
    assert not isinstance(caught.value, UsageError)


def test_help_tells_of_both():
    text, method = (pydoc.plain(pydoc.render_doc(one)) for one in (DataLoader, loader(seed=1).state_dict))
    assert "state_dict()" in text and "load_state_dict(state)" in text
    assert "Where the epoch is" in method


def test_a_method_may_outlive_its_loader():
    assert loader(seed=1).state_dict()["order"]["consumed"] == 0
    one = loader(seed=1)
    next(iter(one))
    save = one.state_dict
    del one
    assert save()["order"]["consumed"] == 4


def test_the_methods_keep_no_loader_and_no_workers():
    before = children()
    with NoCollector():
        one = loader(seed=1, num_workers=1, persistent_workers=True)
        seen = weakref.ref(one)
        save, _ = one.state_dict, next(iter(one))
        assert children() != before
        del one
        assert seen() is None
        assert children() == before
    assert save()["order"]["consumed"] == 4


def test_a_copy_has_a_position_of_its_own():
    one = loader(seed=1, shuffle=True)
    next(iter(one))
    again = copy.deepcopy(one)
    wanted = indices(loader(seed=1, shuffle=True))
    again.load_state_dict(again.state_dict())
    assert indices(again) == wanted[1:]
    assert one.state_dict()["order"]["consumed"] == 4
    shallow = copy.copy(one)
    list(shallow)
    assert one.state_dict()["order"]["consumed"] == 4


class Both(DataLoader):
    """A subclass that keeps something itself."""

    def state_dict(self) -> dict[str, Any]:
        return {"mine": 1}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        self.loaded = state_dict


def test_a_subclass_has_its_own():
    for seed in (None, 1):
        one: Any = Both(Numbers(), 4, num_workers=0, seed=seed)
        assert one.state_dict() == {"mine": 1}
        one.load_state_dict({"mine": 2})
        assert one.loaded == {"mine": 2}


def test_workers_that_came_later_hand_out_of_order():
    """num_workers may be set until a pass begins."""
    one = loader(seed=1, in_order=False)
    one.num_workers = 1
    next(iter(one))
    with pytest.raises(UsageError, match="in_order=False"):
        one.state_dict()


def test_drop_last_ends_with_the_last_whole_batch():
    one = loader(seed=1, drop_last=True)
    for _ in one:
        pass
    assert one.state_dict()["order"]["consumed"] == SIZE
    again = DataLoader(Numbers(SIZE), batch_sampler=BatchSampler(one.sampler, 5, False), num_workers=0)
    assert again.state_dict()["order"]["consumed"] == 0


# ---------------------------------------------------------------------------------------------------- epochs named late
@pytest.mark.parametrize(
    "options",
    [{}, {"num_workers": 2}, {"num_workers": 2, "persistent_workers": True}, {"rng": "torch", "num_workers": 1},
     {"distributed": (1, 2)}, {"with_index": True}],
    ids=str,
)  # fmt: skip
def test_an_epoch_may_be_named_until_the_first_batch(options):
    """Lightning names the first epoch after it has begun it, and after a resumption it is another one."""
    reference = loader(seed=1, shuffle=True, distributed=options.get("distributed"))
    wanted = [indices(reference) for _ in range(4)]
    one: Any = loader(seed=1, shuffle=True, **options)
    passed = iter(one)
    one.sampler.set_epoch(2)
    found = [getattr(batch, "batch", batch)[0].tolist() for batch in passed]
    assert found == wanted[2]
    assert one.epoch == 2 and one.state_dict()["order"]["epoch"] == 2
    assert [getattr(batch, "batch", batch)[0].tolist() for batch in one] == wanted[3]


def test_an_epoch_that_is_named_later_is_the_next_one():
    one: Any = loader(seed=1, shuffle=True)
    reference = loader(seed=1, shuffle=True)
    wanted = [indices(reference) for _ in range(4)]
    passed = iter(one)
    first = next(passed)[0].tolist()
    one.sampler.set_epoch(3)
    assert [first, *indices(passed)] == wanted[0]
    assert one.state_dict()["order"]["epoch"] == 0
    assert indices(one) == wanted[3]


def test_naming_the_same_epoch_changes_nothing():
    one: Any = loader(seed=1, shuffle=True, num_workers=1)
    before = children()
    passed = iter(one)
    (worker,) = children() - before
    one.sampler.set_epoch(0)
    assert indices(passed) == indices(loader(seed=1, shuffle=True))
    assert worker  # it was one and the same
