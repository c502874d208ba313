"""Which part of images the GPU's JPEG engine decodes, where the user does not say: found while a loop takes its batches.

Measured on an H200 with 16 cores and 8 threads of DALI's, over photos packed with --jpeg-rows (benchmarks/README.md): while
ResNet-50 trained, decoding without the engine (Huffman codes on the processor, the rest on the GPU's other cores) left 98 % of
a fixed batch's rate, with it 94 to 97 %. But without it 7,600 images a second come at most, with it 19,200. So it is tried,
once, where the loop waits for DALI, and stays where batches come faster with it.
"""

import logging
import time
from collections.abc import Callable
from statistics import median

import torch

from fastfeed.feed.dalioptions import DaliOptions

LOG = logging.getLogger("fastfeed.loader")
WITHOUT, WITH = 0.0, 0.9
"""Parts: none; and the one that loads fastest."""
_SKIPPED = 24
"""Batches that are not counted at first, and behind a change: those are hitches of a new pipeline, or were on their way."""
_COUNTED = 64
"""Batches of which a rate is made."""
_WAITING = 0.1
"""That part of its time a loop has to wait for DALI before the engine is tried."""
_BETTER = 1.02
"""So many times as fast batches have to come for it to stay."""
_HITCH = 8
"""A batch that took so many times the median is not counted: the loop did something else, such as validation."""


class EngineLoad:
    """For the decoders of one loader, which mostly has one.

    Args:
        given: The part that the user chose; None to find one.
        clock: Seconds.

    Attributes:
        part: Of images that the engine gets, from 0 to 1.
    """

    def __init__(self, given: float | None = None, clock: Callable[[], float] = time.perf_counter) -> None:
        self.part = WITHOUT if given is None else given
        self._settled, self._clock = given is not None, clock
        self._last: float | None = None
        self._taker: int | None = None
        """Who took the last batch. Where two passes take turns, neither's times say anything."""
        self._skipped = 0
        self._taken: list[tuple[float, float]] = []
        """Of each batch the seconds since the one before, and those of them that the loop waited for DALI."""
        self._without_seconds: float | None = None
        """A batch without the engine took, once it is tried."""
        self.told = ""
        """What was chosen, and why; a sentence for the plan."""
        why = "which trains fastest as long as the loop does not wait for DALI"
        self._tell(why if given is None else "as was given")

    def _tell(self, why: str) -> None:
        what = f"{self.part:.0%} of images go to the GPU's JPEG engine" if self.part else "the GPU's JPEG engine gets no images"
        self.told = f"DALI: {what}, {why} (hw_decoder_load)"

    def paused(self) -> None:
        """What comes now is no batch of the same pass: the time until then counts for nothing."""
        self._last = None

    def taken(self, waited_seconds: float, taker: object = None) -> None:
        """A batch was taken.

        Args:
            waited_seconds: That the loop waited for DALI, in this.
            taker: By whom.
        """
        if self._settled:
            return
        now = self._clock()
        last, self._last = self._last, now
        before, self._taker = self._taker, id(taker)
        if last is None or before != self._taker:
            return
        if self._skipped < _SKIPPED:
            self._skipped += 1
            return
        self._taken.append((now - last, waited_seconds))
        if len(self._taken) == _COUNTED:
            self._judge(*self._summed())
            self._taken.clear()

    def _summed(self) -> tuple[float, float]:
        """Seconds a batch, and the part of them that was waited."""
        most = _HITCH * median(seconds for seconds, _ in self._taken)
        counted = [(seconds, waited) for seconds, waited in self._taken if seconds <= most]
        seconds, waited = map(sum, zip(*counted, strict=True))
        return seconds / len(counted), waited / seconds if seconds else 0.0

    def _judge(self, batch_seconds: float, waiting: float) -> None:
        before = self._without_seconds
        if before is None and waiting < _WAITING:
            self._tell(f"which trains fastest: the loop waited {waiting:.0%} of its time for DALI")
            return
        if before is None:
            self._without_seconds, self.part, self._skipped = batch_seconds, WITH, 0
            self._tell(f"on trial: the loop waited {waiting:.0%} of its time for DALI without it")
        else:
            self._settled = True
            times = before / batch_seconds if batch_seconds else 1.0
            self.part = WITH if times >= _BETTER else WITHOUT
            only = "" if self.part else "only "
            self._tell(f"since with it batches came {only}{times:.2f} x as fast as without")
        LOG.info("%s", self.told)

    def refused(self, part: float, why: str) -> None:
        """No pipeline could be made for the part that was to be tried.

        Args:
            part: That the pipeline has which goes on.
            why: In the words of the error.
        """
        self.part, self._settled = part, True
        self._tell(f"since no pipeline could be made with another part: {why}")
        LOG.warning("%s", self.told)


def engine_load(device: torch.device, options: DaliOptions) -> EngineLoad:
    """As options say, on a GPU; a CPU has no engine.

    Args:
        device: On which DALI decodes.
        options: How.
    """
    return EngineLoad(options.hw_decoder_load if device.type == "cuda" else WITHOUT)
