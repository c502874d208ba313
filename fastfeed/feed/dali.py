"""JPEGs that NVIDIA DALI decodes, crops, resizes and mirrors: on a GPU, or by DALI's own code for CPUs.

Which samples, in which order, and which part of each becomes the result, is decided before (decode/encoded.py): DALI draws
nothing, and sees only what its decoders surely take. One pipeline serves for as long as it works. A file that is damaged where
no header tells breaks a pipeline for good: then its batch is decoded by Pillow, which says what is wrong with the file, and the
others that were on their way begin anew in a new pipeline.

Nothing else imports nvidia.*.
"""

import ctypes
import io
import logging
import time
import weakref
from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from itertools import groupby, islice
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from fastfeed.feed.dalioptions import DaliOptions
from fastfeed.feed.decode.encoded import FIRST, HEIGHT, INDEX, LEFT, SIZE, TOP, WIDTH, Encoded
from fastfeed.feed.decode.placed import decoded_by_pillow
from fastfeed.feed.engineload import EngineLoad
from fastfeed.feed.naming import indices_text
from fastfeed.optional import load

LOG = logging.getLogger("fastfeed.loader")
_MOST_IN_ROW = 3
"""Pipelines that may break without a batch between them."""
_MOST_MEMORIES = 256
"""Whose views are kept: those of all batches that are on their way, and some."""
_EXTRA, _PURPOSE = "dali", 'device_decode="dali"'
_NAMES = ("data", "table")
"""Of what a pipeline is fed with."""
_PLACE = INDEX + 1
"""First column of Encoded.place in a table."""


def is_installed() -> bool:
    """Whether DALI can be imported; it is not."""
    return find_spec("nvidia") is not None and find_spec("nvidia.dali") is not None


class _Memories:
    """DALI's view of the memory of batches, made once: workers use the same memory again and again.

    It is all of a batch's files, once for each image, and DALI's own threads cut each file out of it. A tensor of DALI's for
    each file takes three times as long in the thread that trains.
    """

    def __init__(self) -> None:
        tensors = load("nvidia.dali.tensors", _EXTRA, _PURPOSE)
        self._tensor, self._tensors = tensors.TensorCPU, tensors.TensorListCPU
        self._known: OrderedDict[tuple[int, int, int], Any] = OrderedDict()

    def of(self, data: torch.Tensor, count: int) -> Any:  # noqa: ANN401 - DALI's list of tensors
        """The memory in which a tensor lies, from where that begins, so many times. It does not keep the memory.

        Args:
            data: uint8, shape (bytes,).
            count: Images.
        """
        size_bytes = data.untyped_storage().nbytes() - int(data.storage_offset())
        key = data.data_ptr(), size_bytes, count
        found = self._known.get(key)
        if found is None:
            memory = (ctypes.c_uint8 * size_bytes).from_address(data.data_ptr())
            found = self._tensors([self._tensor(np.ctypeslib.as_array(memory))] * count, contiguous=False)
            self._known[key] = found
            if len(self._known) > _MOST_MEMORIES:
                self._known.popitem(last=False)
        self._known.move_to_end(key)
        return found


class _Pipeline:
    """A pipeline of DALI's.

    Args:
        most: Images that a batch may have.
        size: Height and width of results, in pixels.
        device: Where they are made.
        options: How; hw_decoder_load is settled.
    """

    def __init__(self, most: int, size: tuple[int, int], device: torch.device, options: DaliOptions) -> None:
        self.most, self.size, self.device, self._options = most, size, device, options
        dali = load("nvidia.dali", _EXTRA, _PURPOSE)
        self._memories = _Memories()
        self._pipeline = dali.Pipeline(
            batch_size=most, num_threads=options.num_threads, device_id=device.index if device.type == "cuda" else None,
            prefetch_queue_depth=options.in_flight,
        )  # fmt: skip
        with self._pipeline:
            self._pipeline.set_outputs(self._graph())
        self._begin_empty()

    def fits(self, images: int, size: tuple[int, int], engine: float) -> bool:
        """Whether a batch can be decoded by it.

        Args:
            images: Of the batch.
            size: Height and width of results, in pixels.
            engine: The part of images that the GPU's JPEG engine shall get.
        """
        return images <= self.most and size == self.size and engine == self._options.hw_decoder_load

    def _graph(self) -> Any:  # noqa: ANN401 - DALI's
        fn, types = load("nvidia.dali.fn", _EXTRA, _PURPOSE), load("nvidia.dali.types", _EXTRA, _PURPOSE)
        data, table = (
            fn.external_source(name=name, dtype=kind, ndim=1, batch=True, no_copy=True)
            for name, kind in zip(_NAMES, (types.UINT8, types.INT32), strict=True)
        )
        files = fn.slice(data, start=table[FIRST : FIRST + 1], shape=table[SIZE : SIZE + 1], axes=[0])
        place = fn.reinterpret(table[_PLACE:], dtype=types.FLOAT)
        on_gpu = self.device.type == "cuda"
        options = self._options
        of_gpu = (
            {"hw_decoder_load": options.hw_decoder_load, "jpeg_fancy_upsampling": options.fancy_upsampling} if on_gpu else {}
        )
        parts = fn.decoders.image_slice(
            files, start=table[TOP : LEFT + 1], shape=table[HEIGHT : WIDTH + 1], axes=[0, 1],
            device="mixed" if on_gpu else "cpu", output_type=types.RGB, adjust_orientation=False, **of_gpu,
        )  # fmt: skip
        return fn.resize(
            parts, size=list(self.size), roi_start=place[:2], roi_end=place[2:], dtype=types.UINT8,
            interp_type=types.INTERP_LINEAR, antialias=True,
        )  # fmt: skip

    def _begin_empty(self) -> None:
        """Run tiny pictures through: DALI's first run is as many runs as it may work at, whatever was fed.

        They are as many as a batch may have: nvImageCodec 0.9 (in DALI 2.4) settles by the first batch that it sees how many
        images of every batch the GPU's JPEG engine gets, for good. After a batch of one it gets seven of 256.
        """
        stream = io.BytesIO()
        Image.new("RGB", (16, 16)).save(stream, "JPEG")
        file = torch.frombuffer(bytearray(stream.getvalue()), dtype=torch.uint8)
        where, place = np.zeros((self.most, INDEX + 1), dtype=np.int64), np.zeros((self.most, 4), dtype=np.float32)
        where[:, SIZE], where[:, [HEIGHT, WIDTH]], place[:, 2:] = len(file), 16, 16
        table = _table_of(where, place)
        for _ in range(self._options.in_flight):
            self._feed(file, table)
        self._pipeline.schedule_run()
        for _ in range(self._options.in_flight):
            self._pipeline.outputs()

    def _feed(self, data: torch.Tensor, table: NDArray[np.int32]) -> None:
        for name, values in zip(_NAMES, (self._memories.of(data, len(table)), table), strict=True):
            self._pipeline.feed_input(name, values)

    def begin(self, data: torch.Tensor, table: NDArray[np.int32]) -> None:
        """Begin with a batch, of which DALI copies nothing: it has to stay until the results are there.

        Args:
            data: As Encoded's.
            table: As _table_of() makes it.
        """
        self._feed(data, table)
        self._pipeline.schedule_run()

    def end(self) -> torch.Tensor:
        """The oldest batch that was begun, in DALI's memory, of the current stream.

        Raises:
            RuntimeError: The pipeline has broken.
        """
        stream = torch.cuda.current_stream(self.device) if self.device.type == "cuda" else None
        (found,) = self._pipeline.outputs(stream)
        made: torch.Tensor = torch.utils.dlpack.from_dlpack(found.as_tensor())
        return made

    def drop(self) -> None:
        """Wait for the oldest batch that was begun, whatever becomes of it: then its bytes are read no more."""
        try:
            self._pipeline.outputs()
        except RuntimeError as error:
            LOG.debug("nobody takes this batch: %s", _said(error))


class Begun:
    """A batch that was begun.

    Args:
        encoded: It.
    """

    def __init__(self, encoded: Encoded) -> None:
        self.encoded = encoded
        self.pipeline: _Pipeline | None = None
        """Which works at it; None where none does yet, or where all images were decoded before."""
        self.error: RuntimeError | None = None
        """What DALI raised instead of beginning with it."""
        where = encoded.where.numpy()
        chosen = where[:, SIZE] > 0
        self.table = _table_of(where[chosen], encoded.place.numpy()[chosen])
        """Of the images that DALI decodes."""


def _table_of(where: NDArray[np.int64], place: NDArray[np.float32]) -> NDArray[np.int32]:
    """What DALI is told of images: Encoded's where and place beside each other, since each array takes time of this thread.

    Args:
        where: As Encoded's.
        place: Likewise. Its bits are kept.
    """
    found = np.empty((len(where), _PLACE + place.shape[1]), dtype=np.int32)
    found[:, :_PLACE], found[:, _PLACE:] = where, place.view(np.int32)
    return found


class DaliDecoder:
    """Decodes batches, several at a time, in order.

    Args:
        device: Where the results shall be: "cpu", or a GPU with its number.
        options: How.

    Raises:
        UsageError: DALI is not installed.
    """

    def __init__(self, device: torch.device, options: DaliOptions | None = None) -> None:
        load("nvidia.dali", _EXTRA, _PURPOSE)
        self.device, self.options = device, options or DaliOptions()
        self._pipeline: _Pipeline | None = None
        self._begun: deque[Begun] = deque()
        self._reading: deque[_Read] = deque()
        """Batches whose results are being copied out of DALI's memory, with that."""
        weakref.finalize(self, _let_go, self._begun, self._reading).atexit = False  # DALI ends its pipelines there
        self.broken = 0
        """Pipelines that broke."""
        self._broken_in_row = 0
        self.load = EngineLoad(self.options.hw_decoder_load)
        """Which part of images the GPU's JPEG engine gets."""

    def __len__(self) -> int:
        """Batches that were begun and not taken."""
        return len(self._begun)

    def begin(self, encoded: Encoded) -> Begun:
        """Begin to decode a batch, whose memory must not change until it was taken and is there; what take() knows it by."""
        begun = Begun(encoded)
        self._begun.append(begun)
        self._work()
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

    def _fitting(self, begun: Begun) -> _Pipeline:
        most, size, before = len(begun.encoded.where), begun.encoded.size, self._pipeline
        if before is not None and before.fits(most, size, self.load.part):
            return before
        most = most if before is None else max(most, before.most)
        self._pipeline = _Pipeline(most, size, self.device, replace(self.options, hw_decoder_load=self.load.part))
        return self._pipeline

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
        try:
            decoded = self._ended(begun)
            self._begun.popleft()
        except RuntimeError as error:
            return self._mended(self._begun.popleft(), error)
        except BaseException:  # Ctrl-C
            self._begin_anew()
            raise
        self._broken_in_row = 0
        if self.device.type == "cuda":
            self.load.taken(time.perf_counter() - began)
        made = self._gathered(begun.encoded, decoded)
        self._release(begun, decoded)
        self._work()
        return made

    def _bring_forward(self, wanted: Begun | None) -> None:
        """Make it the oldest one, which it mostly is."""
        if wanted is None or wanted is next(iter(self._begun), None):
            return
        while wanted in self._begun and self._begun[0] is not wanted:
            self._begun.popleft()
        if wanted not in self._begun:
            self._begun.appendleft(wanted)
        self._begin_anew()

    def _begin_anew(self) -> None:
        """Do without pipelines that broke, or of which it is not known whose images they give next."""
        self._pipeline = None
        for begun in self._begun:
            begun.pipeline = begun.error = None

    def forget(self) -> None:
        """Let go of batches that nobody will take."""
        self.load.paused()
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
        made = torch.empty((len(encoded.where), *shape), dtype=torch.uint8, device=self.device)
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
            indices_text(begun.encoded.where[:, INDEX].tolist()), _said(error),
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


def _said(error: RuntimeError) -> str:
    """What DALI says is wrong, without where in which code."""
    lines = str(error).rpartition("encountered:")[2].split("\n")
    return next((line.strip() for line in lines if line.strip()), "")


def _runs(ready: list[bool]) -> Iterator[tuple[bool, slice, slice]]:
    """Images beside each other that are ready, or are not: whether they are; where in the batch; where among their like."""
    at, counts = 0, {True: 0, False: 0}
    for kind, group in groupby(ready):
        count = len(list(group))
        yield kind, slice(at, at + count), slice(counts[kind], counts[kind] + count)
        at, counts[kind] = at + count, counts[kind] + count
