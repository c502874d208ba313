"""Who is told that a plain loader takes another's place. What asks stands in for Accelerate here."""

import gc
import sys
import types
import weakref
from typing import Any

import pytest
from loading import NoCollector, Numbers

from fastfeed.errors import FastfeedWarning, UsageError
from fastfeed.feed import swapped
from fastfeed.feed.loader import DataLoader
from fastfeed.feed.order import FeedSampler
from fastfeed.feed.swapped import asking, notice_swap


def module(name: str) -> types.ModuleType:
    """One that asks, and that passes an asker on."""
    made = types.ModuleType(name)
    exec("def ask(one): return one._is_accelerate_prepared\ndef outer(call, one): return call(one)", made.__dict__)
    return made


def loader(**options: Any) -> DataLoader:
    return DataLoader(Numbers(9), 4, num_workers=0, **options)


@pytest.mark.parametrize("name", ["accelerate", "accelerate.accelerator"])
def test_accelerate_is_told_at_the_line_that_called_it(name):
    asks, between = module(name), module("accelerate.other")
    with pytest.warns(FastfeedWarning, match="puts a plain torch DataLoader in the place") as caught:
        assert between.outer(asks.ask, loader()) is False
    assert [entry.filename for entry in caught] == [__file__]


@pytest.mark.parametrize("name", ["accelerated", "lightning.accelerate", "__main__"])
@pytest.mark.parametrize("options", [{}, {"distributed": (0, 2)}], ids=str)
def test_others_are_not(name, options):
    assert module(name).ask(loader(**options)) is False


def test_a_part_of_a_part_is_refused(monkeypatch):
    asks = module("accelerate")
    monkeypatch.setattr(swapped, "unsharded_ranks", lambda: 2)
    with pytest.raises(UsageError, match=r"gives each of 2 ranks its part \(distributed=\)"):
        asks.ask(loader(distributed=(1, 2)))
    for options in ({"distributed": False}, {"seed": 3}, {"distributed": (0, 1)}):
        with pytest.warns(FastfeedWarning):
            assert asks.ask(loader(**options)) is False


def test_parts_of_a_single_process_are_not_refused():
    """(rank, world) of something that Accelerate does not know."""
    with pytest.warns(FastfeedWarning):
        assert module("accelerate").ask(loader(distributed=(1, 2))) is False


def test_nothing_is_told_where_loaders_are_made_of_another_class(monkeypatch):
    theirs: Any = types.ModuleType("accelerate.data_loader")
    theirs.DataLoader = DataLoader
    monkeypatch.setitem(sys.modules, "accelerate.data_loader", theirs)
    assert module("accelerate").ask(loader()) is False
    monkeypatch.setattr(swapped, "unsharded_ranks", lambda: 2)
    with pytest.raises(UsageError):
        module("accelerate").ask(loader(distributed=(1, 2)))


def test_who_asks_is_not_kept():
    """Its frame holds what the user's function holds."""

    class Held:
        @property
        def asked(self) -> str:
            frame = asking()
            assert frame is not None
            return frame.f_code.co_name

    def ask() -> tuple[str, weakref.ref[Any]]:
        held = Held()
        return held.asked, weakref.ref(held)

    gc.collect()
    with NoCollector():
        name, held = ask()
        assert (name, held()) == ("ask", None)


def test_nobody_asks():
    notice_swap(FeedSampler(9, distributed=(0, 2)), None)
