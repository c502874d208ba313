"""Memory of batches that is used again: a worker writes a batch into a slot, and gets it back when nobody sees it any more.

Fresh shared memory costs a page fault for every 4 KiB in the worker and again in the main process, and a descriptor to hand
over: 0.1 ms an image of 224 pixels, as much as resizing it. A slot is a memory file (memfd_create(2)) that both have mapped.
The worker takes it, the main process wraps it into a tensor, and when the tensor's memory has died there, with all views and
arrays of it, one byte in a table that both see says so. A slot is never written to while anybody can read it: what a consumer
keeps, it keeps. Where all slots are kept, batches get fresh memory, as torch gives it to every batch.

Slots belong to a worker process, and end with it: tensors that were handed out stay as they are.
"""

import math
import os
import weakref
from collections.abc import Callable
from itertools import count
from multiprocessing.reduction import DupFd
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from fastfeed.environment import workers_are_beginning
from fastfeed.feed.parcel import MemoryFile, mapped_bytes

MOST_SLOTS = 64
"""Of a worker. How many it may take follows from how far it works ahead."""
_FREE, _TAKEN = 0, 1


class Layout(NamedTuple):
    """Where a tensor lies in its slot."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    dtype: torch.dtype


class _Slot:
    """One memory file, in the worker."""

    def __init__(self, number: int, size_bytes: int) -> None:
        descriptor = os.memfd_create("fastfeed-slot")
        try:
            os.ftruncate(descriptor, size_bytes)
            self.memory = mapped_bytes(descriptor, size_bytes)
            self.file: MemoryFile | None = MemoryFile(DupFd(descriptor), size_bytes)
        finally:
            os.close(descriptor)
        self.number, self.size_bytes = number, size_bytes
        self.start = int(self.memory.ctypes.data)
        """Its address here."""
        self.seen: weakref.ref[NDArray[np.uint8]] | None = None
        """The array over it that this process's own tensor holds."""


class Slots:
    """The slots of one worker process.

    Args:
        most: How many at most: those that are on their way, and those that the consumer looks at.
    """

    def __init__(self, most: int) -> None:
        self.key = (os.getpid(), next(_KEYS))
        self.most = min(most, MOST_SLOTS)
        self._table = _Slot(-1, MOST_SLOTS)
        self._states = self._table.memory
        self._slots: list[_Slot] = []
        self._open: list[_Slot] = []
        """Taken, and not sent yet."""

    def take(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor | None:
        """A tensor in a slot, its values undefined; None where all slots are in use, or no memory file can be made."""
        while self._open:  # of a batch that came to nothing
            self._states[self._open.pop().number] = _FREE
        size_bytes = dtype.itemsize * math.prod(shape)
        slot = self._unseen(size_bytes)
        if slot is None:
            return None
        self._states[slot.number] = _TAKEN
        self._open.append(slot)
        view = slot.memory[:size_bytes]
        slot.seen = weakref.ref(view)
        return torch.from_numpy(view).view(dtype).view(shape)

    def _unseen(self, size_bytes: int) -> _Slot | None:
        """A slot that nobody sees, here or there."""
        unseen = [
            slot for slot in self._slots if self._states[slot.number] == _FREE and (slot.seen is None or slot.seen() is None)
        ]
        fitting = [slot for slot in unseen if size_bytes <= slot.size_bytes <= 2 * size_bytes]
        if fitting:
            return fitting[0]
        if len(self._slots) < self.most:
            number = len(self._slots)
        elif unseen:  # of another size: batches have become larger or smaller
            number = unseen[0].number
            self._states[number] = _FREE
        else:
            return None
        try:
            made = _Slot(number, size_bytes)
        except (OSError, RuntimeError):  # no descriptor or no memory: fresh memory will tell
            return None
        self._slots[number : number + 1] = [made]
        return made

    def holds(self, storage: torch.UntypedStorage) -> bool:
        """Whether memory is that of a slot which was taken, and not handed over yet."""
        start = storage.data_ptr()
        return any(slot.start == start for slot in self._open)

    def handed(self, data: Any, token: int) -> Any:  # noqa: ANN401 - any batch
        """A batch in which tensors that lie in slots are replaced by what opens them on the other side.

        Args:
            data: The batch; lists, tuples and dicts are looked into, one below another.
            token: Names what the other side keeps its mappings in.
        """
        sent: set[int] = set()
        found = self._replaced(data, token, sent)
        self._open = [slot for slot in self._open if slot.number not in sent]
        return found

    def _replaced(self, data: Any, token: int, sent: set[int]) -> Any:  # noqa: ANN401
        kind = type(data)
        if kind is torch.Tensor:
            for slot in self._open:
                if _lies_in(data, slot):
                    sent.add(slot.number)
                    return self._ticket(slot, data, token)
            return data
        if kind is list or kind is tuple:
            return kind(self._replaced(part, token, sent) for part in data)
        if kind is dict:
            return {name: self._replaced(part, token, sent) for name, part in data.items()}
        return data

    def _ticket(self, slot: _Slot, data: torch.Tensor, token: int) -> "Ticket":
        table, self._table.file = self._table.file, None
        file, slot.file = slot.file, None
        offset = data.data_ptr() - slot.start
        layout = Layout(tuple(data.shape), data.stride(), offset, data.dtype)
        return Ticket(token, self.key, slot.number, layout, table, file)


def _lies_in(data: torch.Tensor, slot: _Slot) -> bool:
    return data.layout is torch.strided and data.is_cpu and data.untyped_storage().data_ptr() == slot.start


class Ticket:
    """A tensor in a slot, on its way: who receives it finds the tensor."""

    __slots__ = ("facts",)

    def __init__(self, *facts: Any) -> None:  # noqa: ANN401 - token, key, number, layout, the table's file, the slot's file
        self.facts = facts

    def __reduce__(self) -> tuple[Any, ...]:
        return opened, self.facts


def opened(  # noqa: PLR0917
    token: int, key: tuple[int, int], number: int, layout: Layout, table: MemoryFile | None, file: MemoryFile | None
) -> torch.Tensor:  # fmt: skip
    """The tensor of a ticket."""
    shelf = _SHELVES.get(token)
    shelf = Shelf() if shelf is None else shelf  # its loader is gone, and this batch was on its way
    return shelf.opened(key, number, layout, table, file)


class Shelf:
    """The slots of all workers of a loader, in the main process."""

    def __init__(self) -> None:
        self._tables: dict[tuple[int, int], NDArray[np.uint8]] = {}
        self._memories: dict[tuple[int, int], dict[int, NDArray[np.uint8]]] = {}

    def put_up(self, token: int) -> None:
        """Tickets with this token find it."""
        _SHELVES[token] = self

    def opened(  # noqa: PLR0917
        self, key: tuple[int, int], number: int, layout: Layout, table: MemoryFile | None, file: MemoryFile | None
    ) -> torch.Tensor:
        """The tensor in a slot; when its memory dies, the worker gets the slot back.

        Args:
            key: Of the worker.
            number: Of the slot.
            layout: Of the tensor in it.
            table: The worker's table, with the first ticket of a worker.
            file: The slot's memory, with its first ticket.
        """
        if table is not None:
            self._tables[key] = table.mapped()
        memories = self._memories.setdefault(key, {})
        if file is not None:
            memories[number] = file.mapped()
        view = memories[number][:]
        _LENT[id(view)] = weakref.ref(view, _back(id(view), self._tables[key], number))
        flat = torch.from_numpy(view)[layout.offset :]
        size_bytes = layout.dtype.itemsize
        whole = flat[: len(flat) // size_bytes * size_bytes].view(layout.dtype)
        return whole.as_strided(layout.shape, layout.strides, whole.storage_offset())

    def forget_the_dead(self) -> None:
        """Let go of the slots of workers that have ended; tensors that were handed out keep theirs."""
        for key in [key for key in self._tables if not os.path.exists(f"/proc/{key[0]}")]:
            del self._tables[key]
            self._memories.pop(key, None)


def _back(name: int, table: NDArray[np.uint8], number: int) -> Callable[[object], None]:
    """What is done when a tensor's memory has died."""

    def give(_: object) -> None:
        if _LENT.pop(name, None) is not None:
            table[number] = _FREE

    return give


def _keep_what_is_lent() -> None:
    """Before this process forks: what is lent is seen by two processes from now on, so no slot of it is used again.

    Workers of a loader do not count. What they have of a batch is a copy of their parent's variables: what their dataset looks
    at is held by the loader here as well.
    """
    if not workers_are_beginning():
        _LENT.clear()


_KEYS = count()
_LENT: dict[int, weakref.ref[NDArray[np.uint8]]] = {}
"""What watches the arrays behind tensors that were handed out, by their id."""
_SHELVES: weakref.WeakValueDictionary[int, Shelf] = weakref.WeakValueDictionary()
os.register_at_fork(before=_keep_what_is_lent)
