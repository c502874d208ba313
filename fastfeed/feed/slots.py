"""Memory of batches that is used again: a worker writes a batch into a slot, and gets it back when nobody sees it any more.

Fresh shared memory costs a page fault for every 4 KiB in the worker and again in the main process, and a descriptor to hand
over: 0.1 ms an image of 224 pixels, as much as resizing it. A slot is a memory file (memfd_create(2)) that both have mapped.
The worker takes it, the main process wraps it into a tensor, and when the tensor's memory has died there, with all views and
arrays of it, one byte in a table that both see says so. A slot is never written to while anybody can read it: what a consumer
keeps, it keeps. Where all slots are kept, batches get fresh memory, as torch gives it to every batch. What a forked process may
see as well is given up: its slot gets other memory.

Slots belong to a worker process, and end with it: tensors that were handed out stay as they are.
"""

import math
import os
import weakref
from itertools import count
from multiprocessing.reduction import DupFd
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from fastfeed.feed.parcel import MemoryFile, mapped_bytes

MOST_SLOTS = 64
"""Of a worker. How many it may take follows from how far it works ahead."""
_FREE, _TAKEN, _GIVEN_UP = 0, 1, 2


class Layout(NamedTuple):
    """Where a tensor lies in its slot."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    dtype: torch.dtype
    size_bytes: int
    """Of the memory that it and others of its batch lie in; the slot may have more."""


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
        self.used_bytes = 0
        """By the batch that is in it: what its tensors share, though one that was made of an array may know of less."""
        self.seen: tuple[weakref.ref[Any], ...] = ()
        """The array over it that this process's own tensor holds, and the tensor's storage: see _Loan.tensor."""

    def give_up(self) -> None:
        """Its memory is others' from now on: no batch fits any more."""
        self.memory, self.size_bytes, self.start = self.memory[:0].copy(), 0, 0


class Slots:
    """The slots of one worker process.

    Args:
        most: How many at most: those that are on their way, and those that the consumer looks at.
    """

    def __init__(self, most: int) -> None:
        self.key = (os.getpid(), next(_KEYS))
        self.most = min(most, MOST_SLOTS)
        self._table: _Slot | None = None
        """Made with the first slot: most workers need none, and a descriptor to hand over takes a thread and a socket."""
        self._slots: list[_Slot] = []
        self._open: list[_Slot] = []
        """Taken, and not sent yet."""

    def take(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor | None:
        """A tensor in a slot, its values undefined; None where all slots are in use, or no memory file can be made."""
        while self._open:  # of a batch that came to nothing
            self._states[self._open.pop().number] = _FREE
        size_bytes = dtype.itemsize * math.prod(shape)
        try:
            if self._table is None:
                self._table = _Slot(-1, MOST_SLOTS)
            slot = self._unseen(size_bytes)
        except (OSError, RuntimeError):  # no descriptor or no memory: fresh memory will tell
            return None
        if slot is None:
            return None
        self._states[slot.number] = _TAKEN
        self._open.append(slot)
        slot.used_bytes = size_bytes
        view = slot.memory[:size_bytes]
        found = torch.from_numpy(view).view(dtype).view(shape)
        slot.seen = weakref.ref(view), weakref.ref(found.untyped_storage())
        return found

    @property
    def _states(self) -> NDArray[np.uint8]:
        """A byte for each slot."""
        assert self._table is not None
        return self._table.memory

    def _unseen(self, size_bytes: int) -> _Slot | None:
        """A slot that nobody sees, here or there."""
        for slot in self._slots:
            if self._states[slot.number] == _GIVEN_UP:
                slot.give_up()
                self._states[slot.number] = _FREE
        unseen = [
            slot for slot in self._slots if self._states[slot.number] == _FREE and all(seen() is None for seen in slot.seen)
        ]
        fitting = [slot for slot in unseen if size_bytes <= slot.size_bytes <= 2 * size_bytes]
        if fitting:
            return fitting[0]
        if len(self._slots) < self.most:
            number = len(self._slots)
        elif unseen:  # of another size: batches have become larger or smaller
            number = unseen[0].number
        else:
            return None
        made = _Slot(number, size_bytes)
        self._slots[number : number + 1] = [made]
        return made

    def holds(self, storage: torch.UntypedStorage) -> bool:
        """Whether memory is that of a slot which was taken, and not handed over yet."""
        start = storage.data_ptr()
        return any(slot.start == start for slot in self._open)

    def handed(self, data: Any, token: int) -> Any:  # noqa: ANN401 - any batch
        """A batch in which tensors that lie in slots are replaced by what opens them on the other side.

        Args:
            data: The batch; lists, tuples, named tuples and dicts are looked into, one below another.
            token: Names what the other side keeps its mappings in.
        """
        sent: set[int] = set()
        found = self._replaced(data, token, sent, {})
        self._open = [slot for slot in self._open if slot.number not in sent]
        return found

    def _replaced(self, data: Any, token: int, sent: set[int], known: dict[int, Any]) -> Any:  # noqa: ANN401
        """Known are the lists and dicts that were met, by id: one may be there twice, or contain itself."""
        kind = type(data)
        if kind is torch.Tensor:
            for slot in self._open:
                if _lies_in(data, slot):
                    sent.add(slot.number)
                    return self._ticket(slot, data, token)
        elif kind is tuple:
            return tuple(self._replaced(part, token, sent, known) for part in data)
        elif isinstance(data, tuple) and hasattr(kind, "_fields"):
            return kind(*(self._replaced(part, token, sent, known) for part in data))
        elif kind is list and id(data) not in known:
            known[id(data)] = found = list[Any]()
            found.extend(self._replaced(part, token, sent, known) for part in data)
        elif kind is dict and id(data) not in known:
            known[id(data)] = named = dict[Any, Any]()
            named.update((name, self._replaced(part, token, sent, known)) for name, part in data.items())
        return known.get(id(data), data)

    def _ticket(self, slot: _Slot, data: torch.Tensor, token: int) -> "Ticket":
        assert self._table is not None
        table, self._table.file = self._table.file, None
        file, slot.file = slot.file, None
        offset = int(data.storage_offset()) * data.element_size()  # an empty tensor has no address
        layout = Layout(tuple(data.shape), data.stride(), offset, data.dtype, slot.used_bytes)
        return Ticket(token, self.key, slot.number, layout, table, file)


def _lies_in(data: torch.Tensor, slot: _Slot) -> bool:
    """Whether a tensor is plain memory of a slot: what a layout does not tell goes the usual way."""
    if data.requires_grad or data.is_conj() or data.is_neg():
        return False
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


class _Memories(dict[int, NDArray[np.uint8]]):
    """The slots of one worker, in the main process. A plain dict has no weak references."""

    __slots__ = ("__weakref__",)


class _Loan:
    """A slot that was handed out, until everything is gone that sees it.

    Args:
        memories: The worker's slots.
        table: Their states.
        number: Of the slot.
    """

    def __init__(self, memories: _Memories, table: NDArray[np.uint8], number: int) -> None:
        self._memories, self._table, self._number = weakref.ref(memories), table, number
        self.memory = memories[number]  # as long as anybody has its address
        self._watched: list[weakref.ref[Any]] = []
        self.view: weakref.ref[NDArray[np.uint8]] | None = None
        """The array over it that tensors hold."""
        self.forked = False
        """Another process may see it, too."""
        self._process = os.getpid()
        """Which alone gives the slot back."""
        _LOANS.add(self)
        _BY_ADDRESS[int(self.memory.ctypes.data)] = self

    def tensor(self, size_bytes: int) -> torch.Tensor:
        """A tensor over what is used of it; uint8, one axis. The tensors of one batch that see a slot share its memory."""
        view = None if self.view is None else self.view()
        if view is None:
            view = self.memory[:size_bytes]
            self.view = self._watch(view)
        flat = torch.from_numpy(view)
        # A tensor that moves to shared memory lets go of the array, while arrays made of it before still have the address:
        # those hold the storage, whose object in Python lives as long as the storage itself.
        self._watch(flat.untyped_storage())
        return flat

    def _watch(self, seen: Any) -> weakref.ref[Any]:  # noqa: ANN401 - whatever has weak references
        watch = weakref.ref(seen, self._gone)
        self._watched.append(watch)
        return watch

    def _gone(self, watch: weakref.ref[Any]) -> None:
        self._watched.remove(watch)
        if self._watched:
            return
        _LOANS.discard(self)
        if self._process != os.getpid():
            return
        memories = self._memories()
        if self.forked and memories is not None:
            memories.pop(self._number, None)
        self._table[self._number] = _GIVEN_UP if self.forked else _FREE


def memory_under(tensor: torch.Tensor) -> NDArray[np.uint8] | None:
    """The whole memory of the slot that a tensor of this process lies in; None for any other tensor.

    It is the same array for all batches in the slot, and while it lives the memory stays mapped where it is.
    """
    loan = _BY_ADDRESS.get(tensor.untyped_storage().data_ptr())
    return None if loan is None or loan not in _LOANS else loan.memory


class Shelf:
    """The slots of all workers of a loader, in the main process."""

    def __init__(self) -> None:
        self._tables: dict[tuple[int, int], NDArray[np.uint8]] = {}
        self._memories: dict[tuple[int, int], _Memories] = {}
        self._loans: weakref.WeakValueDictionary[tuple[tuple[int, int], int], _Loan] = weakref.WeakValueDictionary()

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
        memories = self._memories.setdefault(key, _Memories())
        if file is not None:
            memories[number] = file.mapped()
        loan = self._loans.get((key, number))
        # One that has just ended may still be there, held by the thread in which it ends.
        if loan is None or loan not in _LOANS or file is not None:
            loan = self._loans[key, number] = _Loan(memories, self._tables[key], number)
        flat = loan.tensor(layout.size_bytes)[layout.offset :]
        size_bytes = layout.dtype.itemsize
        whole = flat[: len(flat) // size_bytes * size_bytes].view(layout.dtype)
        return whole.as_strided(layout.shape, layout.strides, whole.storage_offset())

    def forget_the_dead(self) -> None:
        """Let go of the slots of workers that have ended; tensors that were handed out keep theirs."""
        for key in list(self._tables):  # of the moment: the thread that receives may put another there
            if not os.path.exists(f"/proc/{key[0]}"):
                self._tables.pop(key, None)
                self._memories.pop(key, None)


def _seen_by_two() -> None:
    """This process forks: what is on loan is seen by two processes from now on, so its memory is not used again."""
    for loan in _LOANS.copy():  # in one go: other threads lend and take back meanwhile
        loan.forked = True


_KEYS = count()
_LOANS: set[_Loan] = set()
"""What is on loan in this process, and what was in its parent when it was forked: memory that may be seen stays mapped."""
_BY_ADDRESS: weakref.WeakValueDictionary[int, _Loan] = weakref.WeakValueDictionary()
"""The same, by where they begin; one that was given back may be there still."""
_SHELVES: weakref.WeakValueDictionary[int, Shelf] = weakref.WeakValueDictionary()
# Before and after: between the two another thread may receive a batch.
os.register_at_fork(before=_seen_by_two, after_in_parent=_seen_by_two)
