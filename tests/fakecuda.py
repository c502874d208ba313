"""A fake of the border to CUDA (feed/card.py): a side stream on this processor that does everything as late as it may.

A copy reads its source by address, and only when somebody waits for an event behind it; until then its target is poison, and
so is what is calculated of it on the side stream. So a batch that is handed out without waiting, and memory that is given back
before it was read, show in the values.
"""

import ctypes
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: PLC2701 - torch documents it for this

POISON = 255


class Event:
    """Behind what was given to the side stream so far."""

    def __init__(self, number: int) -> None:
        self.number = number


class LateCard:
    """The device: "its" memory is this process's.

    Args:
        refuses: What registering memory answers; None lets it be registered.
        fails_at: Number of the copy for which there is no memory.
    """

    device = torch.device("cpu")

    def __init__(self, refuses: str | None = None, fails_at: int = -1) -> None:
        self.refuses, self.fails_at = refuses, fails_at
        self._running = threading.Lock()
        self.given: list[Callable[[], object]] = []
        self.ran = self.staged = self.finished = 0
        self.owned: list[torch.UntypedStorage] = []
        """Memory of "the device"."""
        self.registered: dict[int, int] = {}
        self.unregistered: list[int] = []
        self.marked: set[int] = set()
        """Addresses of tensors of which the allocator was told that the user's stream uses them."""

    def side(self) -> AbstractContextManager[Any]:
        return _Side(self)

    def event(self) -> Event:
        return Event(len(self.given))

    def done(self, event: Event) -> bool:
        return self.ran >= event.number

    def run(self, until: int) -> None:
        with self._running:
            while self.ran < until:
                self.given[self.ran]()
                self.ran += 1

    def wait(self, event: Event) -> None:
        self.run(event.number)

    def used(self, tensor: torch.Tensor) -> None:
        self.marked.add(tensor.data_ptr())

    def is_locked(self, host: torch.Tensor) -> bool:
        return False

    def staging(self, host: torch.Tensor) -> torch.Tensor:
        self.staged += 1
        return torch.empty_like(host)

    def copied(self, host: torch.Tensor) -> torch.Tensor:
        if len(self.given) == self.fails_at:
            self.fails_at = -1
            msg = "the device is full"
            raise RuntimeError(msg)
        made = torch.full_like(host, bool(POISON) if host.dtype is torch.bool else POISON % 128)
        source, size_bytes = host.data_ptr(), host.numel() * host.element_size()
        self.given.append(lambda: ctypes.memmove(made.data_ptr(), source, size_bytes))
        self.owned.append(made.untyped_storage())
        return made

    def owns(self, part: Any) -> bool:
        return isinstance(part, torch.Tensor) and part.untyped_storage().data_ptr() in {one.data_ptr() for one in self.owned}

    def register(self, address: int, size_bytes: int) -> str | None:
        if self.refuses is None:
            assert address not in self.registered
            self.registered[address] = size_bytes
        return self.refuses

    def unregister(self, address: int) -> None:
        del self.registered[address]
        self.unregistered.append(address)
        ctypes.string_at(address, 1)  # it has to be mapped still: else this is the end of the process

    def free_bytes(self) -> int:
        return 1 << 30

    def finish(self) -> None:
        self.finished += 1
        self.run(len(self.given))


class _Side(TorchDispatchMode):
    """Operations on the device's memory are done now, for the shapes of results, and again in their turn, for the values."""

    def __init__(self, card: LateCard) -> None:
        super().__init__()
        self.card = card

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        found = func(*args, **kwargs)
        if any(map(self.card.owns, args)):
            self.card.given.append(lambda: self._again(func, args, kwargs, found))
            self.card.owned.append(found.untyped_storage())
        return found

    @staticmethod
    def _again(func: Any, args: Any, kwargs: Any, found: torch.Tensor) -> None:
        again = func(*args, **kwargs)
        if again is not found:
            found.copy_(again)
