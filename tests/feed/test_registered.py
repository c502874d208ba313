"""fastfeed/feed/registered.py: memory is locked once, and unlocked before it goes."""

import gc
import logging
import os
from multiprocessing.reduction import ForkingPickler
from typing import Any

import pytest
import torch
from fakecuda import LateCard

from fastfeed.feed import registered as module
from fastfeed.feed.registered import Registered, registered_bytes
from fastfeed.feed.slots import Shelf, Slots

TOKEN = 88_000
SHAPE = (64, 1024)


def received(slots: Slots, value: int) -> torch.Tensor:
    """A batch as it comes from a worker; "worker" and main process are this one."""
    batch = slots.take(SHAPE, torch.uint8)
    assert batch is not None
    batch.fill_(value)
    found: Any = ForkingPickler.loads(bytes(ForkingPickler.dumps(slots.handed(batch, TOKEN))))
    return found


@pytest.fixture(name="shelf")
def _shelf() -> Any:
    found = Shelf()
    found.put_up(TOKEN)
    return found


def test_once_for_all_batches_in_a_slot_and_until_it_goes(shelf):
    card = LateCard()
    registered, slots = Registered(card), Slots(1)
    for value in range(3):
        batch = received(slots, value)
        assert registered.has(batch) and registered.has(batch[3:])
        assert list(card.registered.values()) == [64 << 10] and registered_bytes() >= 64 << 10
        del batch
    address = next(iter(card.registered))
    shelf._memories.clear()
    gc.collect()
    assert card.unregistered == [address] and address not in module._HELD  # the fake has read the memory: it was mapped


def test_a_batch_that_is_kept_keeps_it(shelf):
    card = LateCard()
    registered, slots = Registered(card), Slots(1)
    batch = received(slots, 7)
    assert registered.has(batch)
    shelf._memories.clear()
    gc.collect()
    assert not card.unregistered and int(batch[0, 0]) == 7
    del batch
    gc.collect()
    assert len(card.unregistered) == 1


def test_other_memory_is_not(shelf):
    card = LateCard()
    assert not Registered(card).has(torch.ones(1 << 20)) and not card.registered


def test_a_refusal_is_told_once_and_not_tried_again(shelf, caplog):
    card = LateCard(refuses="no more")
    registered, slots = Registered(card), Slots(2)
    with caplog.at_level(logging.WARNING, "fastfeed.loader"):
        batches = [received(slots, value) for value in range(2)]
        assert not any(map(registered.has, batches))
    assert [record.getMessage() for record in caplog.records] == [
        "batches are copied into pinned memory before they go to the device: no more"
    ]
    assert registered.refused == "no more"


def test_a_forked_process_leaves_it_alone(shelf):
    card = LateCard()
    registered, slots = Registered(card), Slots(1)
    batch = received(slots, 1)
    assert registered.has(batch)
    child = os.fork()
    if not child:
        shelf._memories.clear()
        del batch
        gc.collect()
        os._exit(len(card.unregistered))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert not card.unregistered
