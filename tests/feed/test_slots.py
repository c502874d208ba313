"""Memory of batches that is used again: never while anybody can see it.

Long, and whole: each test lends with the few helpers below, and all are about one sentence, the one above.
"""

import copy
import gc
import os
import pickle
import random
import sys
import threading
import time
import weakref
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from loading import Numbers, equal
from torch import multiprocessing

from fastfeed.feed import slots as module
from fastfeed.feed.loader import DataLoader
from fastfeed.feed.slots import Shelf, Slots

SHAPE = (3, 4, 5)
TOKEN = 77_000


@pytest.fixture(autouse=True)
def shelf():
    found = Shelf()
    found.put_up(TOKEN)
    return found


def taken(slots: Slots, shape: tuple[int, ...], dtype: torch.dtype = torch.uint8) -> torch.Tensor:
    found = slots.take(shape, dtype)
    assert found is not None
    return found


def in_a_cycle(batch: torch.Tensor) -> list[Any]:
    found: list[Any] = [batch]
    found.append(found)
    return found


def handed(slots: Slots, *values: Any) -> Any:
    """A batch with a tensor in a slot, as the other side gets it; values go through the same pipe."""
    made = slots.take(SHAPE, torch.uint8)
    if made is None:
        return None
    made.random_(0, 256)
    expected = made.clone()
    sent = slots.handed([made, *values], TOKEN)
    del made
    batch = ForkingPickler.loads(ForkingPickler.dumps(sent))
    del sent
    assert torch.equal(batch[0], expected)
    return batch


def test_a_slot_comes_back_when_its_tensor_has_died():
    slots = Slots(2)
    first = handed(slots, torch.arange(3), "text")
    assert first[0].shape == SHAPE and first[1].tolist() == [0, 1, 2] and first[2] == "text"
    second = handed(slots)
    assert handed(slots) is None and slots.take(SHAPE, torch.uint8) is None
    place = first[0].data_ptr()
    del first
    third = handed(slots)
    assert third[0].data_ptr() == place and second[0].data_ptr() != place
    assert handed(slots) is None


KEEPERS: dict[str, Callable[[torch.Tensor], Any]] = {
    "view": lambda batch: batch[1:, ::2],
    "numpy": lambda batch: batch.numpy(),
    "numpy view": lambda batch: batch.numpy()[0, 1],
    "memoryview": lambda batch: memoryview(batch.numpy()),  # type: ignore[arg-type]  # numpy's arrays are buffers
    "storage": lambda batch: batch.untyped_storage(),
    "other dtype": lambda batch: batch.view(torch.int8),
    "detached": lambda batch: batch.detach(),
    "in a cycle": in_a_cycle,
    "dlpack": torch.utils.dlpack.from_dlpack,
    "unbound": list,
    "set": lambda batch: torch.empty(0, dtype=torch.uint8).set_(batch.untyped_storage()),
}


@pytest.mark.long
@pytest.mark.parametrize("keeper", KEEPERS)
def test_whatever_sees_its_memory_keeps_it(keeper):
    slots = Slots(1)
    kept = KEEPERS[keeper](handed(slots)[0])
    gc.collect()
    assert handed(slots) is None, keeper
    del kept
    gc.collect()
    assert handed(slots) is not None


@pytest.mark.parametrize("copied", [copy.deepcopy, torch.clone, lambda batch: pickle.loads(pickle.dumps(batch))])
def test_a_copy_has_memory_of_its_own(copied):
    slots = Slots(1)
    batch = handed(slots)[0]
    found, expected = copied(batch), batch.tolist()
    del batch
    other = handed(slots)
    assert other is not None and found.tolist() == expected


def test_the_worker_own_tensor_counts_as_well():
    slots = Slots(1)
    made = taken(slots, SHAPE)
    batch = ForkingPickler.loads(ForkingPickler.dumps(slots.handed([made], TOKEN)))
    del batch
    assert slots.take(SHAPE, torch.uint8) is None  # made is still here
    del made
    assert slots.take(SHAPE, torch.uint8) is not None


def test_an_array_keeps_it_in_the_worker_though_the_tensor_moves_to_shared_memory():
    slots = Slots(1)
    made = taken(slots, SHAPE).fill_(1)
    seen = made.numpy()
    made.share_memory_()
    del made
    assert slots.take(SHAPE, torch.uint8) is None and seen.min() == 1
    del seen
    assert slots.take(SHAPE, torch.uint8) is not None


def test_what_was_taken_and_not_sent_comes_back():
    slots = Slots(1)
    for _ in range(3):
        made = taken(slots, SHAPE, torch.float32)
        assert made.dtype is torch.float32 and made.is_contiguous()
        assert slots.holds(made.untyped_storage()) and not slots.holds(torch.empty(3).untyped_storage())
        del made


def test_parts_and_other_shapes_of_a_slot_arrive_as_they_are():
    slots = Slots(1)
    made = taken(slots, (4, 6), torch.int32)
    made.copy_(torch.arange(24, dtype=torch.int32).reshape(4, 6))
    expected = {"whole": made.clone(), "part": (made[1:3, ::2].clone(), made.t().clone())}
    sent = slots.handed({"whole": made, "part": (made[1:3, ::2], made.t())}, TOKEN)
    found = ForkingPickler.loads(ForkingPickler.dumps(sent))
    assert equal(found, expected) and found["part"][1].stride() == (1, 6)


class Pair(NamedTuple):
    one: torch.Tensor
    other: torch.Tensor


def test_named_tuples_are_looked_into():
    slots = Slots(1)
    made = taken(slots, SHAPE).fill_(7)
    found = pickle.loads(ForkingPickler.dumps(slots.handed([Pair(made[1:], made[0])], TOKEN)))
    assert type(found[0]) is Pair and found[0].one.shape == (2, 4, 5) and int(found[0].other.sum()) == 7 * 20
    del made
    assert slots.take(SHAPE, torch.uint8) is None
    del found
    assert slots.take(SHAPE, torch.uint8) is not None


def test_lists_and_dicts_that_are_there_twice_are_one_afterwards():
    slots, part = Slots(1), [1]
    made = taken(slots, SHAPE).fill_(1)
    batch: list[Any] = [made, part, {"part": part, "parts": (part,)}]
    batch.append(batch)
    found = ForkingPickler.loads(ForkingPickler.dumps(slots.handed(batch, TOKEN)))
    assert torch.equal(found[0], made) and found[3] is found
    assert found[1] is found[2]["part"] is found[2]["parts"][0] and found[1] == [1]


def test_batches_of_other_sizes_replace_slots():
    slots = Slots(1)
    assert handed(slots) is not None
    for length in (1000, 10, 5000):
        made = taken(slots, (length,))
        made.fill_(length % 251)
        large = ForkingPickler.loads(ForkingPickler.dumps(slots.handed([made], TOKEN)))[0]
        del made
        assert large.shape == (length,) and bool((large == length % 251).all())
        del large


def test_a_smaller_batch_brings_no_more_memory_than_its_own():
    slots = Slots(1)
    assert handed(slots) is not None
    made = taken(slots, (40,))
    found = ForkingPickler.loads(ForkingPickler.dumps(slots.handed([made], TOKEN)))[0]
    assert found.untyped_storage().nbytes() == 40  # so much torch.save writes, and a queue sends


def test_what_two_processes_see_is_never_used_again():
    slots = Slots(2)
    batch = handed(slots)[0]
    expected = batch.tolist()
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.read(reading, 1)
        os._exit(0 if batch.tolist() == expected else 1)
    del batch
    gc.collect()
    kept = [handed(slots) for _ in range(3)]
    full = [one is None for one in kept]
    os.write(writing, b"x")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    os.close(reading)
    os.close(writing)
    assert full == [False, False, True]  # the slot has other memory


def test_a_forked_process_gives_nothing_back():
    slots = Slots(1)
    batch = handed(slots)[0]
    child = os.fork()
    if not child:
        del batch
        os._exit(0)
    os.waitpid(child, 0)
    assert handed(slots) is None and batch.shape == SHAPE


def test_memory_that_a_forked_process_sees_stays_there_without_tensor_and_loader(shelf):
    slots = Slots(1)
    batch = handed(slots)[0]
    seen, expected = batch.numpy(), batch.tolist()
    child = os.fork()
    if not child:
        shelf._memories.clear()
        batch.share_memory_()
        gc.collect()
        os._exit(0 if seen.tolist() == expected else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_fork_while_another_thread_receives_marks_all_that_is_on_loan():
    slots = Slots(30)
    kept = [handed(slots) for _ in range(25)]
    stopping, before = threading.Event(), sys.getswitchinterval()

    def receive() -> None:
        while not stopping.is_set():
            handed(slots)

    thread = threading.Thread(target=receive)
    sys.setswitchinterval(1e-6)
    thread.start()
    try:
        for _ in range(3000):
            module._seen_by_two()  # a fork each would take a minute
    finally:
        stopping.set()
        thread.join()
        sys.setswitchinterval(before)
    assert None not in kept


def test_the_dead_are_forgotten_while_another_thread_receives(shelf):
    first = handed(Slots(1))
    receiving = threading.Thread(target=lambda: [handed(Slots(1)) for _ in range(100)])
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    receiving.start()
    try:
        while receiving.is_alive():
            shelf.forget_the_dead()
    finally:
        receiving.join()
        sys.setswitchinterval(before)
    assert len(shelf._tables) == 101 and first[0].shape == SHAPE


def test_a_slot_comes_back_though_its_last_loan_is_only_just_ending(shelf):
    slots = Slots(1)
    batch = handed(slots)
    (ending,) = shelf._loans.values()  # as the thread has it in which the batch dies
    del batch
    batch = handed(slots)
    assert batch is not None and list(shelf._loans.values()) != [ending]
    del batch
    assert handed(slots) is not None


def two_views(batch: list[torch.Tensor]) -> list[torch.Tensor]:
    return [batch[0], batch[0][1:, ::2]]


def twice(batch: list[torch.Tensor]) -> list[torch.Tensor]:
    return [batch[0], batch[0]]


def an_empty_view(batch: list[torch.Tensor]) -> list[torch.Tensor]:
    return [batch[0], batch[0][:0]]


@pytest.mark.parametrize("made_of", [two_views, twice, an_empty_view])
@pytest.mark.parametrize("kept", [0, 1])
def test_tensors_of_a_batch_that_share_a_slot_keep_it_together(made_of, kept):
    slots = Slots(1)
    made = taken(slots, SHAPE).random_(0, 256)
    expected = [one.clone() for one in made_of([made])]
    sent = slots.handed(made_of([made]), TOKEN)
    del made
    batch = ForkingPickler.loads(ForkingPickler.dumps(sent))
    assert equal(batch, expected)
    batch[0][1] = expected[0][1] = 7
    assert torch.equal(batch[1], made_of([expected[0]])[1])  # one memory, as before
    seen, expected_seen = batch[kept], batch[kept].clone()
    del batch
    assert handed(slots) is None and torch.equal(seen, expected_seen)
    del seen
    assert handed(slots) is not None


def test_a_tensor_of_an_array_that_sees_a_part_comes_with_the_whole():
    slots = Slots(1)
    made = taken(slots, SHAPE).random_(0, 256)
    expected = made.clone()
    part = torch.from_numpy(made.numpy()[:2])  # a storage of its own, which ends with the part
    sent = slots.handed([part, made], TOKEN)
    del made, part
    batch = ForkingPickler.loads(ForkingPickler.dumps(sent))
    assert equal(batch, [expected[:2], expected])
    batch[0][1] = 7
    assert bool((batch[1][1] == 7).all())  # one memory, as before


@pytest.mark.parametrize("address", [torch.Tensor.numpy, torch.utils.dlpack.from_dlpack])
def test_what_has_the_address_keeps_it_though_the_tensor_moves_to_shared_memory(address):
    slots = Slots(1)
    batch = handed(slots)[0]
    seen, expected = address(batch), batch.clone()
    batch.share_memory_()
    assert handed(slots) is None
    del batch
    assert handed(slots) is None and torch.equal(torch.as_tensor(seen), expected)
    del seen
    assert handed(slots) is not None


def test_what_a_layout_does_not_tell_goes_the_usual_way():
    slots = Slots(1)
    made = taken(slots, (2, 2), torch.float32).fill_(2.0)
    batch = [made.view(torch.complex64).conj(), made.detach().requires_grad_()]
    assert slots.handed(batch, TOKEN)[0] is batch[0] and slots.handed(batch, TOKEN)[1] is batch[1]


def test_without_a_slot_there_is_no_descriptor():
    before = len(os.listdir("/proc/self/fd"))
    slots = Slots(4)
    assert len(os.listdir("/proc/self/fd")) == before and not slots.holds(torch.empty(3).untyped_storage())


def test_a_kept_batch_keeps_its_own_memory_alone(shelf):
    slots = Slots(3)
    kept = handed(slots)
    others = [handed(slots), handed(slots)]
    watched = [weakref.ref(memory) for memories in shelf._memories.values() for memory in memories.values()]
    shelf._memories.clear()
    del others
    assert len(watched) == 3 and sum(memory() is not None for memory in watched) == 1 and kept[0].shape == SHAPE


def test_workers_that_are_started_meanwhile_cost_no_slot():
    slots = Slots(1)
    batch = handed(slots)[0]
    assert list(DataLoader(Numbers(4), 2, num_workers=1)) != [] and batch.shape == SHAPE
    del batch
    assert handed(slots) is not None


def test_slots_of_workers_that_have_ended_are_let_go(shelf):
    context = multiprocessing.get_context("fork")
    queue, done = context.Queue(), context.Event()
    child = context.Process(target=_send, args=(queue, done))
    child.start()
    batch = queue.get(timeout=60)
    done.set()
    child.join()
    assert len(shelf._tables) == 1
    shelf.forget_the_dead()
    assert not shelf._tables and not shelf._memories and batch[0].tolist() == list(range(60))
    queue.close()


def _send(queue: Any, done: Any) -> None:
    torch.set_num_threads(1)
    slots = Slots(1)
    made = taken(slots, (60,))
    made.copy_(torch.arange(60))
    queue.put(slots.handed([made], TOKEN))
    done.wait()


@given(seed=st.integers(0, 1 << 32), most=st.integers(1, 5))
@settings(deadline=None, max_examples=30)
def test_nobody_ever_sees_it_change(seed, most):
    draw, slots = random.Random(seed), Slots(most)
    Shelf().put_up(TOKEN + 1)
    held: list[tuple[Any, torch.Tensor]] = []
    for _ in range(40):
        if draw.random() < 0.6:
            batch = handed(slots)
            if batch is not None:
                seen = draw.choice([lambda one: one, lambda one: one[1], lambda one: one.numpy()[:, 2]])(batch[0])
                held.append((seen, torch.as_tensor(seen).clone()))
                del seen
            else:
                assert len(held) >= most
            del batch
        elif held:
            del held[draw.randrange(len(held))]
        assert all(torch.equal(torch.as_tensor(seen), expected) for seen, expected in held)


def test_a_queue_delivers_them_in_any_order_and_late():
    slots = Slots(3)
    sent = []
    for number in range(3):
        made = taken(slots, (8,))
        made.fill_(number)
        sent.append(ForkingPickler.dumps(slots.handed([made], TOKEN)))
        del made
        time.sleep(0.001)
    found = [ForkingPickler.loads(data)[0] for data in sent]
    assert [one.unique().tolist() for one in found] == [[0], [1], [2]]


def test_the_memory_under_a_tensor_is_the_whole_slot_while_it_is_lent():
    slots = Slots(1)
    batch = handed(slots)[0]
    memory = module.memory_under(batch)
    assert memory is not None and memory.ctypes.data == batch.data_ptr() and memory.nbytes == batch.numel()
    assert module.memory_under(batch[1:, ::2]) is memory
    place = weakref.ref(memory)
    del batch, memory
    again = handed(slots)[0]
    assert module.memory_under(again) is place()  # one array for all batches
    assert module.memory_under(torch.ones(3)) is None
