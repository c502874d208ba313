"""How each batch crosses from a worker: in shared memory where there is room, past it where there is none, never failing.

The worker decides as it has the batch: /dev/shm is looked at when something is about to be put there, and a shared table holds
how many descriptors the main process can spare, and how large the largest batch was, for which caches leave room. What cannot
go there is a parcel (parcel.py). The main process hears of each batch as it is received, and says once why batches go past
/dev/shm.
"""

import logging
import math
import os
import resource
import weakref
from collections import Counter
from contextlib import ExitStack
from itertools import count
from typing import Any

import torch

from fastfeed.errors import UsageError
from fastfeed.feed.ahead import SHARED_FOLDER, shared_free_bytes
from fastfeed.feed.ceilings import (
    DESCRIPTORS_A_WORKER,
    HELD_BATCHES,
    LEAST_SHARED_BYTES,
    MORE_SHARED_MEMORY,
    MOST_DESCRIPTORS,
    PAST_SHARED_MEMORY,
    SPARE_DESCRIPTORS,
)
from fastfeed.feed.inner import ask_before_sharing
from fastfeed.feed.parcel import Parcel, memory_files_work, storages_of
from fastfeed.feed.slots import Shelf, Slots
from fastfeed.store.firstneeds import comes_first
from fastfeed.units import format_count, format_size

LOG = logging.getLogger("fastfeed.loader")
SMALL_BYTES = 128 << 10
"""Batches up to this size go as bytes through the pipe: received in 0.05 ms of the main process instead of 0.3 ms."""
SPARE_BYTES = 1 << 20
"""Of /dev/shm, for semaphores and others' small things."""
_BUDGET, _WORKERS, _AHEAD, _PAST, _LARGEST = range(5)
_UNLIMITED = 1 << 40
_SMALL, _ROOM, _DESCRIPTORS, _ASKED = "small", "room", "descriptors", "asked"


class Passage:
    """The way of the batches of one loader. It is made in the main process; workers have copies."""

    def __init__(self) -> None:
        self.token = next(_TOKENS)
        self.files = memory_files_work()
        self._table = torch.zeros(5, dtype=torch.int64)
        self._table.share_memory_()  # type: ignore[no-untyped-call]
        self._rows = self._table.numpy()
        self.first: tuple[int, int] | None = None
        """Bytes and tensors of the first batch that was received."""
        self.went: Counter[str] = Counter()
        """Batches that were received, by why they went past /dev/shm; "" for those that did not."""
        self.said: list[str] = []
        """Sentences about what went past /dev/shm, for the plan."""
        self._left = self._rest = 0
        self._own = _UNLIMITED
        self._slots: Slots | None = None
        """Of this process, a worker."""
        self._shelf = Shelf()
        _PASSAGES[self.token] = self
        self._shelf.put_up(self.token)
        comes_first(self)

    def __getstate__(self) -> dict[str, Any]:
        return {"token": self.token, "files": self.files, "_table": self._table, "_own": _UNLIMITED, "_slots": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._rows = self._table.numpy()
        comes_first(self)

    @property
    def needed_bytes(self) -> int:
        """What batches that are on their way take of /dev/shm at most, as large as the largest one so far."""
        return int(self._rows[_LARGEST] * (self._rows[_WORKERS] * max(1, int(self._rows[_AHEAD])) + HELD_BATCHES))

    # ------------------------------------------------------------------------------------------------ the main process
    def sized(self, workers: int, prefetch_factor: int) -> None:
        """How many workers there are, or will be in a moment, and how far they work ahead."""
        self._rows[_WORKERS], self._rows[_AHEAD] = workers, prefetch_factor
        self._shelf.forget_the_dead()
        self._recount(DESCRIPTORS_A_WORKER * workers)

    def rests(self) -> None:
        """A pass has ended: the slots of its workers are let go, unless they persist."""
        self._shelf.forget_the_dead()

    def go_past(self) -> None:
        """From now on every batch goes past /dev/shm."""
        self._rows[_PAST] = 1

    def arrived(self, size_bytes: int, tensors: int, why: str) -> None:
        """A batch was received. It is called in the thread that receives: torch's for pinning, where there is one.

        Args:
            size_bytes: Of its tensors and arrays.
            tensors: How many.
            why: Why it went past /dev/shm; "" if it did not.
        """
        if self.first is None:
            self.first = size_bytes, tensors
        self.went[why] += 1
        if why:
            self._rest -= 1
            if self.went[why] == 1 and why != _SMALL:
                self._tell(why, size_bytes)
        else:
            self._left -= tensors
        if self._left < 0 or self._rest < 0:
            self._recount()

    def _recount(self, needed: int = 0) -> None:
        """Look at the descriptors of this process: how many tensors a batch may have that holds one for each.

        All batches that are on their way take half of what is left at most, and those that come until the next look a
        quarter.
        """
        used = len(os.listdir("/proc/self/fd")) + SPARE_DESCRIPTORS + needed
        soft, hard = _limits()
        on_their_way = max(1, int(self._rows[_WORKERS] * (self._rows[_AHEAD] + 1)))
        if used > soft // 2 and soft < min(hard, MOST_DESCRIPTORS):
            soft, before = min(hard, MOST_DESCRIPTORS, 4 * soft), soft
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            LOG.info("the limit of descriptors is raised from %s to %s: tensors in shared memory hold them", before, soft)
        free = max(0, soft - used)
        self._rows[_BUDGET] = free // (2 * on_their_way)
        self._left, self._rest = free // 4, 16 + used // 64

    def _tell(self, why: str, size_bytes: int) -> None:
        text = f"{PAST_SHARED_MEMORY}: "
        workers = format_count(int(self._rows[_WORKERS]), "worker")
        if why == _ROOM:
            facts = _shared_facts()
            text += f"{facts} is too little for batches of {format_size(size_bytes)} from {workers} at once"
            text += f" ({MORE_SHARED_MEMORY})"
        elif why == _DESCRIPTORS:
            text += f"a tensor in shared memory holds a descriptor, and of {_limits()[0]:,} (ulimit -n) too few are left"
            text += " (a higher hard limit, or keeping fewer batches, leaves more)"
        else:
            text += "the plan says so"
        self.said.append(text)
        LOG.warning("%s", text)

    # ------------------------------------------------------------------------------------------------ a worker
    def begun(self) -> None:
        """This process is a worker: what torch's collate function puts into shared memory is asked for first."""
        if self._strategy() == "file_descriptor":
            used = len(os.listdir("/proc/self/fd")) + SPARE_DESCRIPTORS
            # Each tensor is there twice, once for who receives it, and a batch more is on its way.
            self._own = max(0, _limits()[0] - used) // (4 * int(self._rows[_AHEAD] + 1))
        ask_before_sharing(self._has_room)
        if self.files:
            self._slots = Slots(2 * int(self._rows[_AHEAD]) + 4)

    def memory(self, shape: tuple[int, ...], *, dtype: torch.dtype) -> torch.Tensor:
        """Memory for a batch: a slot that is used again (slots.py), or the process's own."""
        size_bytes = dtype.itemsize * math.prod(shape)
        slot = self._slots.take(shape, dtype) if self._slots is not None and size_bytes > SMALL_BYTES else None
        return torch.empty(shape, dtype=dtype) if slot is None else slot

    @staticmethod
    def _strategy() -> str:
        return str(torch.multiprocessing.get_sharing_strategy())  # type: ignore[no-untyped-call]

    def _has_room(self, size_bytes: int) -> bool:
        """Whether /dev/shm has room for this, though every worker takes as much at this moment."""
        if size_bytes <= SMALL_BYTES // 2 or self._rows[_PAST]:
            return False  # it may still be moved there, if the batch is not small
        return shared_free_bytes() >= size_bytes * int(self._rows[_WORKERS]) + SPARE_BYTES

    def sent(self, data: Any, size_bytes: int, tensors: int) -> "Crossing":  # noqa: ANN401 - any batch that can be pickled
        """What to send instead of a batch: who receives it gets the batch.

        Args:
            data: The batch.
            size_bytes: Of its tensors and arrays.
            tensors: How many.

        Raises:
            Exception: What pickling raises.
        """
        sent, storages, left_bytes = data, storages_of(data), size_bytes
        slots = self._slots
        in_slots = [] if slots is None else [storage for storage in storages if slots.holds(storage)]
        if slots is not None and in_slots:
            sent = slots.handed(data, self.token)
            gone = {storage.data_ptr() for storage in in_slots if not slots.holds(storage)}
            storages = [storage for storage in storages if storage.data_ptr() not in gone]
            left_bytes, tensors = sum(storage.nbytes() for storage in storages), len(storages)
        why = self._against(storages, left_bytes)
        if storages and why in {"", _ROOM}:
            self._rows[_LARGEST] = max(int(self._rows[_LARGEST]), left_bytes)
        with ExitStack() as unless_done:
            if in_slots:  # what opens slots on the other side goes with the first batch, and would be lost
                unless_done.callback(self._begin_slots_anew)
            crossing = Crossing(self.token, Parcel(sent, files=self.files) if why else sent, size_bytes, tensors, why)
            unless_done.pop_all()
        return crossing

    def _begin_slots_anew(self) -> None:
        assert self._slots is not None
        self._slots = Slots(self._slots.most)

    def _against(self, storages: list[torch.UntypedStorage], size_bytes: int) -> str:
        """Why a batch goes past /dev/shm; "" where all of it is there now."""
        if self._rows[_PAST]:
            return _ASKED
        if not storages:
            return ""
        if 0 < size_bytes <= SMALL_BYTES or sum(storage.nbytes() for storage in storages) <= SMALL_BYTES:
            return _SMALL
        if len(storages) > min(self._own, self._rows[_BUDGET]) and self._strategy() == "file_descriptor":
            return _DESCRIPTORS
        private = [storage for storage in storages if not storage.is_shared()]
        return "" if not private or self._moved(private) else _ROOM

    def _moved(self, private: list[torch.UntypedStorage]) -> bool:
        """Put memory into /dev/shm, as torch would in the thread of a queue, where a failure loses the batch."""
        if not self._has_room(max(SMALL_BYTES, sum(storage.nbytes() for storage in private))):
            return False
        try:
            for storage in private:
                storage.share_memory_()
        except (RuntimeError, OSError):
            return False  # others were quicker
        return True


class Crossing:
    """A batch on its way: who receives it finds the batch, and the loader hears of it.

    Args:
        token: Of the passage.
        data: The batch, or a parcel with it.
        size_bytes: Of its tensors and arrays.
        tensors: How many.
        why: Why it goes past /dev/shm.
    """

    __slots__ = ("facts",)

    def __init__(self, token: int, data: Any, size_bytes: int, tensors: int, why: str) -> None:  # noqa: ANN401, PLR0917
        self.facts = token, data, size_bytes, tensors, why

    def __reduce__(self) -> tuple[Any, ...]:
        return _received, self.facts


def _received(token: int, data: Any, size_bytes: int, tensors: int, why: str) -> Any:  # noqa: ANN401, PLR0917
    """The batch, in the process that receives it."""
    passage = _PASSAGES.get(token)
    if passage is not None:  # None: its loader is gone, and this batch was on its way
        passage.arrived(size_bytes, tensors, why)
    return data


def passage_of(passage: Passage | None, *, past: bool, workers: int, prefetch_factor: int | None) -> Passage:
    """The passage for the next pass of a loader with workers: the one that it has, or a new one.

    Args:
        passage: That it has; None for none.
        past: Whether all batches shall go past /dev/shm.
        workers: How many.
        prefetch_factor: As torch's loader has it; None for its default.
    """
    passage = passage or Passage()
    if past:
        passage.go_past()
    passage.sized(workers, 2 if prefetch_factor is None else prefetch_factor)
    return passage


def can_start(*, torch_numbers: bool) -> bool:
    """Whether workers can be started: their semaphores are files in /dev/shm. Where they cannot, it is told.

    Args:
        torch_numbers: Whether random numbers are torch's, and so would be others without workers.

    Raises:
        UsageError: There is no room, and no way without.
    """
    if shared_free_bytes() >= LEAST_SHARED_BYTES:
        return True
    text = f"{_shared_facts()} in /dev/shm is too little for their semaphores"
    if torch_numbers:
        msg = f"workers cannot be started: {text}"
        raise UsageError(msg, hint=f"With num_workers=0 none are needed; {MORE_SHARED_MEMORY}.")
    LOG.warning("this epoch is read without workers, which gives the same batches: %s (%s)", text, MORE_SHARED_MEMORY)
    return False


def _limits() -> tuple[int, int]:
    """Soft and hard limit of descriptors."""
    soft, hard = (
        _UNLIMITED if limit == resource.RLIM_INFINITY else limit for limit in resource.getrlimit(resource.RLIMIT_NOFILE)
    )
    return soft, hard


def _shared_facts() -> str:
    try:
        facts = os.statvfs(SHARED_FOLDER)
    except OSError as error:
        return f"no usable /dev/shm ({error.strerror})"
    return f"{format_size(facts.f_bavail * facts.f_frsize)} free of {format_size(facts.f_blocks * facts.f_frsize)}"


_TOKENS = count()
_PASSAGES: weakref.WeakValueDictionary[int, Passage] = weakref.WeakValueDictionary()
