"""DataLoader(device=): what is asked for, which device that is, and a pass whose batches come there."""

import logging
import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch.utils.data import IterDataPipe

from fastfeed.environment import local_rank
from fastfeed.errors import UsageError, warn
from fastfeed.feed.conveyor import DECODE, LEAST_AHEAD, Conveyor
from fastfeed.feed.decode.levels import Levels
from fastfeed.feed.decode.whole import Tells
from fastfeed.feed.decodedby import Batching, Decode, decoders_of
from fastfeed.feed.decodinglane import Decoders
from fastfeed.feed.fetch import Failure, Fetcher
from fastfeed.feed.lane import Lane, lane_onto
from fastfeed.feed.receiving import Receiver
from fastfeed.feed.registered import registered_bytes
from fastfeed.feed.seeds import states_kept
from fastfeed.feed.shifts import Shifts
from fastfeed.feed.tasks import BatchTask
from fastfeed.feed.timing import Answer
from fastfeed.units import format_size

LOG = logging.getLogger("fastfeed.loader")
Device = str | torch.device | None


class DeviceSide(Tells):
    """Of one loader: where its batches go.

    Args:
        wish: A GPU, with or without its number; "cpu" where a decoder shall have its batches.
        decoders: Who decodes images on the way; None for the workers.
        why: It is so, in a sentence; "" for none.
    """

    def __init__(self, wish: torch.device, decoders: Decoders | None = None, why: str = "") -> None:
        self._wish, self.decoders, self._why = wish, decoders, why
        self._lane: Lane | None = None
        self._lines: tuple[str, ...] = ()
        self._levels: Levels | None = None
        """That were made of the last batch of bytes."""

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_lane": None}

    def lane(self) -> Lane:
        """The way onto the device, which is settled with the first batch: then workers have been started, without CUDA."""
        if self._lane is None or self._lane.process != os.getpid():
            device, why = found(self._wish)
            if device.type != self._wish.type:
                warn(why)
            self._lane, self._lines = lane_onto(device), (why,)
        return self._lane

    @property
    def encoded_bytes(self) -> int:
        """Bytes of pixels of a batch that its decoder gets at most; 0 where workers decode."""
        return 0 if self.decoders is None else self.decoders.options.batch_bytes

    def receiver(self, shifts: Shifts) -> Receiver:
        """What a pass takes its batches from."""
        return MovingReceiver(shifts, self.conveyor(), _nothing if self.decoders is None else self.decoders.counted)

    def conveyor(self) -> Conveyor:
        """For the batches of a pass."""
        return Conveyor(self.lane if self.decoders is None else self.decoders.lanes(self.lane), self._finishes)

    def _finishes(self, levels: Levels) -> None:
        self._levels = levels

    @property
    def stays(self) -> bool:
        """Whether batches are known to stay on the CPU: it was asked for, or the first batch has shown that there is no GPU."""
        return (self._wish if self._lane is None else self._lane.card.device).type == "cpu"

    @property
    def told(self) -> tuple[str, ...]:
        """Where batches go, and how, and who decodes; sentences for the plan."""
        decoding = () if self.decoders is None else self.decoders.told(None if self._lane is None else self._lane.card.device)
        return (*((self._why,) if self._why else ()), *decoding, *self._told())

    def _told(self) -> tuple[str, ...]:
        lane = self._lane
        if lane is None:
            return (f"device: {self._wish}; which one it is, and whether it is there, is settled with the first batch",)
        if lane.card.device.type == "cpu":
            return self._lines
        ahead = f"{format_size(lane.ahead_bytes)} of its memory, but {LEAST_AHEAD} batches at least"
        lines = [*self._lines, f"device: batches are moved ahead of their turn, on a side stream, up to {ahead}"]
        if self._levels is not None:
            lines.append(f"device: images cross as bytes; {self._levels} on the side stream, bit for bit as on the CPU")
        if lane.registered.refused is not None:
            lines.append(f"device: they are copied into pinned memory first: {lane.registered.refused}")
        elif registered_bytes():
            lines.append(f"device: it reads them where workers wrote them, {format_size(registered_bytes())} of locked memory")
        return tuple(lines)


class MovingReceiver(Receiver):
    """A receiver whose batches are moved onto a device before their turn.

    Args:
        shifts: As Receiver.
        conveyor: Moves them.
        counted: What has happened on the way since it was asked last, by the name of its counter.
    """

    def __init__(self, shifts: Shifts, conveyor: Conveyor, counted: Callable[[], dict[str, int]]) -> None:
        super().__init__(shifts)
        self._conveyor, self._counted = conveyor, counted

    @property
    def broken(self) -> str | None:
        """Why nothing more can come, once all that has come was handed out."""
        return None if len(self._conveyor) else self._broken

    @broken.setter
    def broken(self, why: str | None) -> None:
        self._broken = why

    def take(self) -> Answer:
        """As Receiver's; the batch is on the device.

        Raises:
            Exception: As Receiver's; or what the device raises.
        """
        answer = self._conveyor.next(super().take, self.arrived)
        if isinstance(answer.data, Failure) and answer.data.stage == DECODE:
            answer = self._conveyor.moved(self._made_here(answer.number))
        happened = self._counted()
        if happened and answer.times is not None:
            answer.times.counters = {**(answer.times.counters or {}), **happened}
        return answer

    def _made_here(self, number: int) -> Answer:
        """A batch of which the decoder on the way refused a file: as workers make it, who name the sample and know on_error."""
        made, drawn = self._shifts.front.made, self._pass.pending[number]
        fetcher = Fetcher(made.fetcher.dataset, replace(made.rules, encoded_bytes=0, passage=None))
        with states_kept():  # those of the training loop; in sample mode each sample draws what it drew before
            return fetcher[BatchTask(number, drawn.indices, self._pass.epoch, self._pass.base)]


def _nothing() -> dict[str, int]:
    return {}


def found(wish: torch.device) -> tuple[torch.device, str]:
    """Which device is meant, and why it is that one, in a sentence.

    Args:
        wish: A GPU, with or without its number; or "cpu".

    Raises:
        UsageError: There are GPUs, but none of that number.
    """
    if wish.type == "cpu":
        return wish, "device: cpu was given"
    if not torch.cuda.is_available():
        why = "torch finds no GPU that it can use" if torch.version.cuda else "this torch is built without CUDA"
        return torch.device("cpu"), f"device: {wish} was asked for, and batches stay on the CPU: {why}"
    index: Any = wish.index  # annotated as a number by torch, which it need not be
    if index is not None:
        if index >= torch.cuda.device_count():
            msg = f"device: there is no {wish}"
            raise UsageError(msg, expected=f"a number below {torch.cuda.device_count()}, of the GPUs that this process sees")
        return wish, f"device: {wish} was given"
    rank = local_rank()
    if rank is not None and rank < torch.cuda.device_count():
        return torch.device("cuda", rank), f"device: cuda:{rank}, since LOCAL_RANK={rank}"
    current = torch.cuda.current_device()
    return torch.device("cuda", current), f"device: cuda:{current}, the current one"


def side_of(device: Device, decode: Decode, dataset: object, batching: Batching) -> DeviceSide | None:
    """Where batches of a loader go; None where they stay.

    Args:
        device: As the user gave it.
        decode: What decodes, as the user gave it.
        dataset: Of the loader.
        batching: How it makes batches.

    Raises:
        UsageError: It is no such device or decoder, or batches cannot be moved there or decoded so.
    """
    wish = _parsed(device)
    decoders, why = decoders_of(decode, dataset, batching, None if wish is None else wish.type)
    if wish is None or (wish.type == "cpu" and decoders is None):
        if why:
            LOG.info("%s", why)
        return None
    if isinstance(dataset, IterDataPipe):
        msg = "device is not for DataPipes, which torch's own loader reads"
        raise UsageError(msg, hint="Leave it out, and move batches in the training loop.")
    return DeviceSide(wish, decoders, why)


def _parsed(device: object) -> torch.device | None:
    msg, expected = "device is where batches shall come", '"cuda", "cuda:1", "cpu", or a torch.device of these'
    if device is None:
        return None
    try:
        wish = torch.device(device) if isinstance(device, str | torch.device) else None
    except RuntimeError as error:  # torch knows no such device
        raise UsageError(msg, expected=expected, got=repr(device)) from error
    if wish is None or wish.type not in {"cuda", "cpu"}:
        raise UsageError(msg, expected=expected, got=repr(device))
    return wish
