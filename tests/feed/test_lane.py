"""fastfeed/feed/lane.py on a fake of CUDA that does everything as late as it may (tests/fakecuda.py)."""

import gc
import threading
import weakref
from typing import Any

import numpy as np
import pytest
import torch
from fakecuda import LateCard
from torch.nn.utils.rnn import PackedSequence, pack_sequence

from fastfeed.feed.card import Here
from fastfeed.feed.decode.levels import Levels, Step
from fastfeed.feed.decode.whole import Unfinished
from fastfeed.feed.lane import Lane, lane_onto


def host() -> torch.Tensor:
    return torch.arange(12.0).view(3, 4)


def test_values_are_there_behind_the_event_and_not_before():
    lane = Lane(LateCard())
    moved = lane.move({"x": host(), "name": "a"})
    assert moved.data["x"].tolist() == [[127.0] * 4] * 3 and moved.size_bytes == 48
    found = lane.hand(moved)
    assert torch.equal(found["x"], host()) and found["name"] == "a"


def test_the_allocator_is_told_of_each_tensor():
    card = LateCard()
    lane = Lane(card)
    found = lane.hand(lane.move([host(), (host(), 3)]))
    assert card.marked == {found[0].data_ptr(), found[1][0].data_ptr()}


def test_what_is_read_is_held_until_it_was_read():
    card = LateCard()
    lane = Lane(card)
    card.is_locked = lambda host: True  # so that it is read where it lies
    batch = host()
    alive = weakref.ref(batch)
    moved = lane.move([batch])
    del batch
    lane.release()
    assert alive() is not None
    lane.hand(moved)
    lane.release()
    assert alive() is None


def test_other_memory_goes_through_pinned_memory_and_is_free_at_once():
    card = LateCard()
    lane, batch = Lane(card), host()
    moved = lane.move([batch])
    batch.fill_(-1)
    assert card.staged == 1 and torch.equal(lane.hand(moved)[0], host())


@pytest.mark.parametrize("kind", ["transposed", "expanded", "channels last", "empty", "scalar", "bool"])
def test_tensors_of_every_layout(kind):
    made = {
        "transposed": host().t(), "expanded": torch.arange(3.0)[:, None].expand(3, 4), "empty": torch.empty(0, 3),
        "channels last": torch.rand(2, 3, 4, 5).contiguous(memory_format=torch.channels_last), "scalar": torch.tensor(3.5),
        "bool": torch.tensor([True, False]),
    }[kind]  # fmt: skip
    lane = Lane(LateCard())
    found = lane.hand(lane.move([made]))[0]
    assert torch.equal(found, made) and found.dtype == made.dtype
    assert kind != "channels last" or found.is_contiguous(memory_format=torch.channels_last)


def test_a_tensor_that_is_there_twice_is_moved_once():
    lane, one = Lane(LateCard()), host()
    found = lane.hand(lane.move([one, {"again": one}]))
    assert found[0] is found[1]["again"]


@pytest.mark.parametrize(
    "part", [host().requires_grad_(), host().to_sparse(), torch.nn.Parameter(host()), pack_sequence([host()[0], host()[1]])],
    ids=["with gradient", "sparse", "parameter", "packed"],
)  # fmt: skip
def test_others_move_themselves_when_they_are_handed_out(part):
    lane = Lane(LateCard())
    moved = lane.move([part, host()])
    assert moved.left and len(moved.tensors) == 1 and moved.data[0] is part
    found = lane.hand(moved)
    assert type(found[0]) is type(part) and torch.equal(found[1], host())
    if isinstance(part, PackedSequence):
        assert torch.equal(found[0].data, part.data)


def test_an_object_is_asked_to_move_to_the_device_and_no_more():
    class Graph:
        def to(self, device: torch.device) -> Any:
            return "moved", device

    lane = Lane(LateCard())
    assert lane.hand(lane.move({"graph": Graph()})) == {"graph": ("moved", torch.device("cpu"))}


def test_what_is_unfinished_is_finished_there():
    table = np.tile(np.arange(256, dtype=np.float32) / 2, (3, 1))
    levels = Levels(table, (Step("mul", (0.5,)),), ())
    lane, images = Lane(Here()), torch.randint(0, 256, (2, 3, 4, 4), dtype=torch.uint8)
    moved = lane.move([images, torch.arange(2)], Unfinished(0, levels))
    assert torch.equal(moved.data[0], images / 2) and len(moved.tensors) == 2
    assert all(tensor.dtype is not torch.uint8 for tensor in moved.tensors)


def test_a_device_that_is_full_says_so_and_what_was_begun_is_held():
    card = LateCard(fails_at=1)
    lane = Lane(card)
    with pytest.raises(RuntimeError, match="the device is full"):
        lane.move([host(), host()])
    lane.release()
    assert len(lane._read) == 1
    card.run(1)
    lane.release()
    assert not lane._read and torch.equal(lane.hand(lane.move([host()]))[0], host())


def test_its_end_waits_for_what_is_read():
    card = LateCard()
    lane = Lane(card)
    moved = lane.move([host()])
    del lane
    gc.collect()
    assert card.finished == 1 and torch.equal(moved.data[0], host())


def test_all_loaders_of_a_process_have_the_same():
    one = lane_onto(torch.device("cpu"))
    assert lane_onto(torch.device("cpu")) is one
    key = weakref.ref(one)
    del one
    gc.collect()
    assert key() is None


def test_several_threads():
    lane = Lane(LateCard())
    wrong: list[Any] = []

    def moves(value: int) -> None:
        for number in range(50):
            lane.release()
            batch = torch.full((64,), float(1000 * value + number))
            if not torch.equal(lane.hand(lane.move([batch]))[0], batch):
                wrong.append((value, number))

    threads = [threading.Thread(target=moves, args=(value,)) for value in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lane.release()
    assert not wrong


def test_a_batch_that_is_moved_under_inference_mode_may_be_trained_on():
    levels = Levels(np.tile(np.arange(256, dtype=np.float32) / 2, (3, 1)), (Step("mul", (0.5,)),), ())
    lane, images = Lane(LateCard()), torch.randint(0, 256, (2, 3, 4, 4), dtype=torch.uint8)
    with torch.inference_mode():
        found = lane.hand(lane.move([images, host()], Unfinished(0, levels)))
    assert not any(part.is_inference() for part in found) and torch.equal(found[0], images / 2)
