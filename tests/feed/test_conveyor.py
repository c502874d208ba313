"""fastfeed/feed/conveyor.py: what is moved ahead, how far, and that everything has its turn."""

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from fakecuda import LateCard

from fastfeed.feed.conveyor import LEAST_AHEAD, MOST_AHEAD, Conveyor
from fastfeed.feed.fetch import Failure
from fastfeed.feed.lane import Lane
from fastfeed.feed.timing import Answer

FAILURE = Failure(1, "fetch", "ValueError", "bad", "", 0)


class Source:
    """What comes: batches, Failures, exceptions that are raised.

    Args:
        items: They.
        there: How many have come already.
    """

    def __init__(self, items: list[Any], there: int = 1 << 30) -> None:
        self.items, self.there, self.taken = items, there, 0
        self.waited: list[int] = []
        """Numbers of those that had to be waited for."""

    def take(self) -> Answer:
        number, self.taken = self.taken, self.taken + 1
        if number >= self.there:
            self.waited.append(number)
        if number >= len(self.items):
            raise StopIteration
        item = self.items[number]
        if isinstance(item, Exception):
            raise item
        return Answer(number, item, [])

    def arrived(self, held: int) -> bool:
        return self.taken < min(self.there, len(self.items))


def batches(count: int, size: int = 4) -> list[torch.Tensor]:
    return [torch.full((size,), float(number)) for number in range(count)]


def given(conveyor: Conveyor, source: Source) -> Iterator[Any]:
    while True:
        try:
            yield conveyor.next(source.take, source.arrived).data
        except StopIteration:
            return


def test_all_of_them_in_their_order():
    card, source = LateCard(), Source(batches(20))
    lane = Lane(card)
    found = list(given(Conveyor(lambda: lane), source))
    assert [batch.tolist() for batch in found] == [[float(number)] * 4 for number in range(20)]
    assert card.marked == {batch.data_ptr() for batch in found}


def test_what_has_come_is_moved_before_it_is_asked_for():
    card, source = LateCard(), Source(batches(30))
    lane = Lane(card)
    conveyor = Conveyor(lambda: lane)
    ahead = []
    for number, _ in zip(range(12), given(conveyor, source), strict=False):
        ahead.append(source.taken - number - 1)
    assert ahead == [2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13]


@pytest.mark.parametrize(("free_bytes", "most"), [(0, LEAST_AHEAD), (8 * 5 * 1000, 4), (1 << 40, MOST_AHEAD)])
def test_not_further_than_there_is_memory_for(free_bytes, most):
    card = LateCard()
    card.free_bytes = lambda: free_bytes
    lane, source = Lane(card), Source(batches(60, 250))
    conveyor = Conveyor(lambda: lane)
    ahead = [source.taken - number - 1 for number, _ in zip(range(40), given(conveyor, source), strict=False)]
    assert max(ahead) == most and ahead[-1] == most


def test_nothing_is_waited_for_while_there_is_something_to_hand_out():
    lane, source = Lane(LateCard()), Source(batches(6), there=3)
    conveyor = Conveyor(lambda: lane)
    found = given(conveyor, source)
    assert [int(next(found)[0]) for _ in range(3)] == [0, 1, 2]
    assert not source.waited and source.taken == 3
    assert int(next(found)[0]) == 3 and source.waited == [3]


@pytest.mark.parametrize("error", [ValueError("mine"), RuntimeError("a worker died")])
def test_an_error_ahead_of_its_turn_has_its_turn(error):
    items: list[Any] = batches(6)
    items[2] = error
    lane, source = Lane(LateCard()), Source(items)
    conveyor = Conveyor(lambda: lane)
    found = [conveyor.next(source.take, source.arrived).number for _ in range(2)]
    assert source.taken == 3 and len(conveyor) == 1  # it is there, and nothing is taken behind it
    with pytest.raises(type(error), match=str(error)):
        conveyor.next(source.take, source.arrived)
    found += [conveyor.next(source.take, source.arrived).number for _ in range(3)]
    assert found == [0, 1, 3, 4, 5]


def test_failures_are_batches_that_do_not_move():
    items: list[Any] = batches(4)
    items[1] = FAILURE
    lane, source = Lane(LateCard()), Source(items)
    found = list(given(Conveyor(lambda: lane), source))
    assert found[1] is FAILURE and [int(found[number][0]) for number in (0, 2, 3)] == [0, 2, 3]


@pytest.mark.parametrize("number", [0, 1])
def test_a_device_that_is_full_is_told_in_the_batchs_turn_and_it_comes_if_asked_again(number):
    card = LateCard(fails_at=number)
    lane, source = Lane(card), Source(batches(4))
    conveyor = Conveyor(lambda: lane)
    found = [conveyor.next(source.take, source.arrived).number for _ in range(number)]
    with pytest.raises(RuntimeError, match="the device is full"):
        conveyor.next(source.take, source.arrived)
    assert len(conveyor) == 1
    found += [int(batch[0]) for batch in given(conveyor, source)]
    assert found == [0, 1, 2, 3]


@pytest.mark.parametrize("what", ["move", "hand"])
def test_ctrl_c_costs_no_batch(what, monkeypatch):
    lane, source = Lane(LateCard()), Source(batches(6))
    conveyor = Conveyor(lambda: lane)
    usual, calls = getattr(lane, what), list[int]()

    def interrupted(*given: Any) -> Any:
        done = usual(*given)
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return done

    monkeypatch.setattr(lane, what, interrupted)
    found = list[int]()
    while len(found) < 6:
        try:
            found.append(int(conveyor.next(source.take, source.arrived).data[0]))
        except KeyboardInterrupt:
            calls.append(1)
    assert found == [0, 1, 2, 3, 4, 5] and len(calls) == 8


def test_an_answer_keeps_all_but_its_batch():
    lane = Lane(LateCard())
    answer = Answer(7, torch.ones(2), ["a failure"], None, None)
    found = Conveyor(lambda: lane).next(lambda: answer, lambda held: False)
    assert found._replace(data=None) == answer._replace(data=None) and torch.equal(found.data, answer.data)


class Broken(Lane):
    """A device that never works."""

    def move(self, data: Any, unfinished: Any = None) -> Any:
        del data, unfinished
        msg = "the device is gone"
        raise RuntimeError(msg)


def test_a_device_that_never_works_is_not_tried_for_ever():
    lane, source = Broken(LateCard()), Source(batches(3))
    conveyor = Conveyor(lambda: lane)
    for _ in range(6):
        with pytest.raises(RuntimeError, match="the device is gone"):
            conveyor.next(source.take, source.arrived)
    with pytest.raises(StopIteration):
        conveyor.next(source.take, source.arrived)


def test_the_end_of_a_pass_makes_no_circle():
    lane, source = Lane(LateCard()), Source(batches(2))
    conveyor = Conveyor(lambda: lane)
    assert len(list(given(conveyor, source))) == 2
    known = weakref.ref(source)
    gc.disable()
    try:
        del source
        assert known() is None
    finally:
        gc.enable()
