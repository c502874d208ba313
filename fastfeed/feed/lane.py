"""The way of batches onto a device: one side stream for all loaders of a process, with events both ways.

A batch is copied on the side stream, an event behind it. The stream of who gets the batch waits for the event, not the
process. Memory of the device is the user's from then on; torch's allocator is told that two streams use it (record_stream), so
it gives it to nobody before both are done. Memory of this process that the device reads (a worker's slot, a pinned buffer) is
held until the event has come, then its worker may write to it again.
"""

import os
import threading
import weakref
from collections import deque
from typing import Any, NamedTuple

import torch

from fastfeed.feed.card import Card, Cuda, Here
from fastfeed.feed.decode.whole import Unfinished
from fastfeed.feed.ontensors import exchanged
from fastfeed.feed.registered import Registered

MOST_AHEAD_BYTES = 1 << 30
"""Of the device, by batches of one pass that are there before they are asked for."""
_PART = 8
"""That part of the device's free memory at most."""


class Moved(NamedTuple):
    """A batch on its way onto the device."""

    data: Any
    """With tensors of the device, their values still to come."""
    event: Any
    """Behind which they are there."""
    tensors: list[torch.Tensor]
    """Those of the side stream."""
    left: bool
    """Some parts move when they are handed out."""

    @property
    def size_bytes(self) -> int:
        """Memory of the device."""
        return sum(tensor.numel() * tensor.element_size() for tensor in self.tensors)


class Lane:
    """The way onto one device.

    Args:
        card: The device.
    """

    def __init__(self, card: Card) -> None:
        self.card = card
        self.registered = Registered(card)
        self.ahead_bytes = min(MOST_AHEAD_BYTES, card.free_bytes() // _PART)
        self._read: deque[tuple[Any, list[torch.Tensor]]] = deque()
        """Memory of this process that is being read, with the event behind that."""
        self._lock = threading.Lock()
        self.process = os.getpid()
        """Which alone can use it."""
        weakref.finalize(self, _finish, card, self._read, self.process)

    def move(self, data: Any, unfinished: Unfinished | None = None) -> Moved:  # noqa: ANN401 - any batch
        """Begin to move a batch.

        Args:
            data: The batch. Who has it writes to it no more.
            unfinished: What is still to be done to it, there.

        Raises:
            RuntimeError: The device has no memory for it, or fails.
        """
        loading = _Loading(self)
        with self.card.side(), torch.inference_mode(mode=False):  # whoever asks: it may be moved for another one
            try:
                found = exchanged(data, loading)
                if unfinished is not None:
                    self._finish(found, unfinished, loading)
            finally:  # what was begun goes on
                event = self.card.event()
                with self._lock:
                    self._read.append((event, loading.sources))
        return Moved(found, event, loading.made, loading.left)

    @staticmethod
    def _finish(found: Any, unfinished: Unfinished, loading: "_Loading") -> None:  # noqa: ANN401 - a list or a dict
        image, levels = unfinished
        raw = found[image]
        found[image] = finished = levels.applied(raw)
        loading.made = [tensor for tensor in loading.made if tensor is not raw]  # it is used on the side stream alone
        loading.made.append(finished)

    def hand(self, moved: Moved) -> Any:  # noqa: ANN401 - the batch
        """A batch for the user's current stream, which waits until it is there.

        Raises:
            Exception: What objects raise that move themselves.
        """
        self.card.wait(moved.event)
        for tensor in moved.tensors:
            self.card.used(tensor)
        return exchanged(moved.data, self._moved_now) if moved.left else moved.data

    def _moved_now(self, part: Any) -> Any:  # noqa: ANN401 - a tensor, or an object that moves itself
        if not isinstance(part, torch.Tensor):
            return part.to(self.card.device)  # more than this, not every class takes
        return part if part.device == self.card.device else part.to(self.card.device, non_blocking=True)

    def release(self) -> None:
        """Let go of memory that was read."""
        with self._lock:
            while self._read and self.card.done(self._read[0][0]):
                self._released(self._read.popleft()[1])

    def ended(self) -> None:
        """All batches of a pass were handed out."""

    def _released(self, sources: list[torch.Tensor]) -> None:
        """Who wrote it may write again."""
        sources.clear()


def _finish(card: Card, read: deque[Any], process: int) -> None:
    """Nobody needs the lane any more, or the process ends: what is being read stays until it was read."""
    if read and process == os.getpid():
        card.finish()
        read.clear()


class _Loading:
    """Exchanges the tensors of one batch.

    Args:
        lane: On which.
    """

    def __init__(self, lane: Lane) -> None:
        self._card, self._registered = lane.card, lane.registered
        self.sources: list[torch.Tensor] = []
        """Memory that the device reads."""
        self.made: list[torch.Tensor] = []
        self.left = False
        self._seen: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def __call__(self, part: Any) -> Any:  # noqa: ANN401 - a tensor, or an object that moves itself
        if not _is_plain(part):
            self.left = True
            return part
        if id(part) not in self._seen:
            self._seen[id(part)] = part, self._copied(part)  # one that is there twice is so on the device
        return self._seen[id(part)][1]

    def _copied(self, host: torch.Tensor) -> torch.Tensor:
        if not (_is_dense(host) and (self._card.is_locked(host) or self._registered.has(host))):
            staged = self._card.staging(host)
            staged.copy_(host)
            host = staged
        self.sources.append(host)
        made = self._card.copied(host)
        self.made.append(made)
        return made


def _is_plain(part: Any) -> bool:  # noqa: ANN401
    """Whether it is a tensor of this process's memory of which nothing but its values counts. Others move themselves."""
    if type(part) is not torch.Tensor or not part.is_cpu or part.layout is not torch.strided:
        return False
    return not (part.requires_grad or part.is_conj() or part.is_neg() or part.is_nested)


_IMAGES = 4
"""Axes of a batch of images."""


def _is_dense(host: torch.Tensor) -> bool:
    """Whether its memory goes as it lies."""
    return host.is_contiguous() or (host.dim() == _IMAGES and host.is_contiguous(memory_format=torch.channels_last))


def lane_onto(device: torch.device) -> Lane:
    """The way onto a device, the same one for all loaders of this process.

    Args:
        device: "cpu", or a GPU with its number.
    """
    key = os.getpid(), device
    with _LOCK:
        lane = _LANES.get(key)
        if lane is None:
            lane = _LANES[key] = Lane(Cuda(device) if device.type == "cuda" else Here())
        return lane


_LOCK = threading.Lock()
_LANES: weakref.WeakValueDictionary[tuple[int, torch.device], Lane] = weakref.WeakValueDictionary()
"""By process, since a forked one can do nothing with its parent's."""
