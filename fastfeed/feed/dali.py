"""JPEGs that NVIDIA DALI decodes, crops, resizes and mirrors: on a GPU, or by DALI's own code for CPUs.

Which samples, in which order, and which part of each becomes the result, is decided before (decode/encoded.py): DALI draws
nothing, and sees only what its decoders surely take. One pipeline serves for as long as it works. A file that is damaged where
no header tells breaks a pipeline for good: then its batch is decoded by Pillow, which says what is wrong with the file, and the
others that were on their way begin anew in a new pipeline.
"""

import logging
import time
import weakref
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby, islice

import torch

from fastfeed.feed.dalioptions import DaliOptions
from fastfeed.feed.dalipipeline import Pipeline, prove_installed, said_of, table_of
from fastfeed.feed.decode.encoded import INDEX, SIZE, Encoded
from fastfeed.feed.decode.placed import decoded_by_pillow
from fastfeed.feed.engineload import EngineLoad, engine_load
from fastfeed.feed.naming import indices_text

LOG = logging.getLogger("fastfeed.loader")
_MOST_IN_ROW = 3
"""Pipelines that may break without a batch between them."""


class Begun:
    """A batch that was begun.

    Args:
        encoded: It.
    """

    def __init__(self, encoded: Encoded) -> None:
        self.encoded = encoded
        self.pipeline: Pipeline | None = None
        """Which works at it; None where none does yet, or where all images were decoded before."""
        self.error: RuntimeError | None = None
        """What DALI raised instead of beginning with it."""
        where = encoded.where.numpy()
        chosen = where[:, SIZE] > 0
        self.table = table_of(where[chosen], encoded.place.numpy()[chosen])
        """Of the images that DALI decodes."""


class DaliDecoder:
    """Decodes batches, several at a time, in order.

    Args:
        device: Where the results shall be: "cpu", or a GPU with its number.
        options: How.
        engine: Which part of images the GPU's JPEG engine gets; None to find it for this decoder alone.

    Raises:
        UsageError: DALI is not installed.
    """

    def __init__(self, device: torch.device, options: DaliOptions | None = None, engine: EngineLoad | None = None) -> None:
        prove_installed()
        self.device, self.options = device, options or DaliOptions()
        self._pipeline: Pipeline | None = None
        self._begun: deque[Begun] = deque()
        self._reading: deque[_Read] = deque()
        """Batches whose results are being copied out of DALI's memory, with that."""
        weakref.finalize(self, _let_go, self._begun, self._reading).atexit = False  # DALI ends its pipelines there
        self.broken = 0
        """Pipelines that broke."""
        self._broken_in_row = 0
        self.engine = engine or engine_load(device, self.options)

    def __len__(self) -> int:
        """Batches that were begun and not taken."""
        return len(self._begun)

    def begin(self, encoded: Encoded) -> Begun:
        """Begin to decode a batch, whose memory must not change until it was taken and is there; what take() knows it by."""
        begun = Begun(encoded)
        self._begun.append(begun)
        try:
            self._work()
        except BaseException:  # Ctrl-C, or a full device: nobody will take it
            self._begun.remove(begun)
            raise
        return begun

    def _work(self) -> None:
        """Have DALI begin with as many batches as it may work at."""
        try:
            for begun in islice(self._begun, self.options.in_flight):
                if begun.pipeline is None and len(begun.table):
                    self._begin_with(begun)
        except BaseException:  # Ctrl-C, or no memory for a pipeline
            self._begin_anew()
            raise

    def _begin_with(self, begun: Begun) -> None:
        begun.pipeline = self._fitting(begun)
        try:
            begun.pipeline.begin(begun.encoded.data, begun.table)
        except RuntimeError as error:  # of a batch before it, which breaks the pipeline; it is raised in its turn
            begun.error = error

    def _fitting(self, begun: Begun) -> Pipeline:
        most, size, before = begun.encoded.images, begun.encoded.size, self._pipeline
        fits = before is not None and before.fits(most, size)
        if before is not None and fits and before.engine == self.engine.part:
            return before
        most = most if before is None else max(most, before.most)
        try:
            made = Pipeline(most, size, self.device, replace(self.options, hw_decoder_load=self.engine.part))
        except (RuntimeError, MemoryError) as error:
            if before is None or not fits:
                raise
            self.engine.refused(before.engine, said_of(error) or type(error).__name__)  # it was a trial: what there is goes on
            return before
        self._pipeline = made
        return made

    def take(self, wanted: Begun | None = None) -> torch.Tensor:
        """The oldest batch that was begun; uint8, shape (images, height, width, 3), on the device, of the current stream.

        Args:
            wanted: Which one it has to be, as begin() gave it. Where Ctrl-C or a full device came between, others may be
                before it, which nobody takes any more, or it was taken and came to nothing: then it is decoded again.

        Raises:
            DecodeError: A file is damaged, and Pillow refuses it too.
            RuntimeError: DALI's, where one pipeline after another breaks: that is no file's fault.
        """
        self._bring_forward(wanted)
        self._work()
        begun, began = self._begun[0], time.perf_counter()
        behind = len(self._begun) > 1  # else DALI may wait for what it is fed with, not the loop for DALI
        try:
            decoded = self._ended(begun)
            self._begun.popleft()
        except RuntimeError as error:
            return self._mended(self._begun.popleft(), error)
        except BaseException:  # Ctrl-C
            self._begin_anew()
            raise
        self._broken_in_row = 0
        self.engine.taken(time.perf_counter() - began if behind else 0.0, self)
        made = self._gathered(begun.encoded, decoded)
        self._release(begun, decoded)
        self._work()
        return made

    def _bring_forward(self, wanted: Begun | None) -> None:
        """Make it the oldest one, which it mostly is."""
        if wanted is None or wanted is next(iter(self._begun), None):
            return
        others = []
        while wanted in self._begun and self._begun[0] is not wanted:
            others.append(self._begun.popleft())
        if wanted not in self._begun:
            self._begun.appendleft(wanted)
        for begun in others:  # the pipeline ends below, and reads their memory until then
            begun.pipeline = None
        self._begin_anew()

    def _begin_anew(self) -> None:
        """Do without pipelines that broke, or of which it is not known whose images they give next."""
        self._pipeline = None
        for begun in self._begun:
            begun.pipeline = begun.error = None

    def forget(self) -> None:
        """Let go of batches that nobody will take."""
        self.engine.paused()
        if any(begun.pipeline is not None for begun in self._begun):
            self._pipeline = None  # one of them may have broken it
        _let_go(self._begun, self._reading)

    @staticmethod
    def _ended(begun: Begun) -> torch.Tensor | None:
        if begun.error is not None:
            raise begun.error
        return None if begun.pipeline is None else begun.pipeline.end()

    def _gathered(self, encoded: Encoded, decoded: torch.Tensor | None) -> torch.Tensor:
        """All images of a batch in memory of torch's: DALI does not know which streams use what it has given away."""
        shape = (*encoded.size, 3)
        made = torch.empty((encoded.images, *shape), dtype=torch.uint8, device=self.device)
        if decoded is not None and len(decoded) == len(made):
            return made.copy_(decoded, non_blocking=True)
        pixels = encoded.pixels
        for ready, target, source in _runs(encoded.where[:, SIZE].eq(0).tolist()):
            given = pixels if ready else decoded
            assert given is not None
            made[target].copy_(given[source].view(-1, *shape), non_blocking=True)
        return made

    def _release(self, begun: Begun, decoded: torch.Tensor | None) -> None:
        """Let go of a batch's bytes, and of DALI's memory, when results are there: until then the GPU may read both."""
        if self.device.type != "cuda":
            return
        self._reading.append((torch.cuda.current_stream(self.device).record_event(), begun, decoded))
        while self._reading and self._reading[0][0].query():  # type: ignore[no-untyped-call]
            self._reading.popleft()

    # ------------------------------------------------------------------------------------------------ pipelines that break
    def _mended(self, begun: Begun, error: RuntimeError) -> torch.Tensor:
        """A batch whose pipeline broke, decoded by Pillow; those behind it begin anew.

        Raises:
            DecodeError: Pillow refuses a file.
            RuntimeError: One pipeline after another has broken.
        """
        self.broken += 1
        self._begin_anew()
        if self._broken_in_row == _MOST_IN_ROW:
            self._broken_in_row = 0
            raise error
        LOG.warning(
            "DALI's pipeline broke, and is made anew; this batch is decoded on the CPU (samples %s): %s",
            indices_text(begun.encoded.where[:, INDEX].tolist()), said_of(error),
        )  # fmt: skip
        self._work()
        in_row, self._broken_in_row = self._broken_in_row, 0  # where Pillow refuses it as well, it is the file's fault
        made = decoded_by_pillow(begun.encoded).to(self.device)
        self._broken_in_row = in_row + 1
        return made


_Read = tuple[torch.cuda.Event, Begun, torch.Tensor | None]


def _let_go(begun: deque[Begun], reading: deque[_Read]) -> None:
    """Nobody takes these batches; their bytes are read until DALI, and the GPU, are done with them."""
    while begun:
        pipeline = begun[0].pipeline
        if pipeline is not None and begun[0].error is None:
            pipeline.drop()
        begun.popleft()
    while reading:
        reading[0][0].synchronize()
        reading.popleft()


def _runs(ready: list[bool]) -> Iterator[tuple[bool, slice, slice]]:
    """Images beside each other that are ready, or are not: whether they are; where in the batch; where among their like."""
    at, counts = 0, {True: 0, False: 0}
    for kind, group in groupby(ready):
        count = len(list(group))
        yield kind, slice(at, at + count), slice(counts[kind], counts[kind] + count)
        at, counts[kind] = at + count, counts[kind] + count
