"""A pipeline of NVIDIA DALI's: files in the memory of a batch become pictures, on a GPU or by DALI's own code for CPUs.

Nothing else imports nvidia.*.
"""

import ctypes
import io
import logging
from collections import OrderedDict
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from fastfeed.feed.dalioptions import DaliOptions
from fastfeed.feed.decode.encoded import FIRST, HEIGHT, INDEX, LEFT, SIZE, TOP, WIDTH
from fastfeed.optional import load

LOG = logging.getLogger("fastfeed.loader")
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


def prove_installed() -> None:
    """Import DALI.

    Raises:
        UsageError: It is not installed.
    """
    load("nvidia.dali", _EXTRA, _PURPOSE)


class Memories:
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


class Pipeline:
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
        self._memories = Memories()
        self._pipeline = dali.Pipeline(
            batch_size=most, num_threads=options.num_threads, device_id=device.index if device.type == "cuda" else None,
            prefetch_queue_depth=options.in_flight,
        )  # fmt: skip
        with self._pipeline:
            self._pipeline.set_outputs(self._graph())
        self._begin_empty()

    def fits(self, images: int, size: tuple[int, int]) -> bool:
        """Whether a batch can be decoded by it.

        Args:
            images: Of the batch.
            size: Height and width of results, in pixels.
        """
        return images <= self.most and size == self.size

    @property
    def engine(self) -> float:
        """The part of images that the GPU's JPEG engine gets."""
        assert self._options.hw_decoder_load is not None
        return self._options.hw_decoder_load

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
        table = table_of(where, place)
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
            table: As table_of() makes it.
        """
        self._feed(data, table)
        self._pipeline.schedule_run()

    def end(self) -> torch.Tensor:
        """The oldest batch that was begun, in DALI's memory, of the current stream.

        Raises:
            RuntimeError: The pipeline has broken.
        """
        stream = torch.cuda.current_stream(self.device) if self.device.type == "cuda" else None
        try:
            (found,) = self._pipeline.outputs(stream)
        except StopIteration as error:  # DALI's, where it has begun with none; for whoever iterates it would mean the end
            msg = "DALI has no results of a batch that it began with"
            raise RuntimeError(msg) from error
        made: torch.Tensor = torch.utils.dlpack.from_dlpack(found.as_tensor())
        return made

    def drop(self) -> None:
        """Wait for the oldest batch that was begun, whatever becomes of it: then its bytes are read no more."""
        try:
            self._pipeline.outputs()
        except (RuntimeError, StopIteration) as error:  # it has broken; or Ctrl-C came as they had just been taken
            LOG.debug("nobody takes this batch: %s", said_of(error))


def table_of(where: NDArray[np.int64], place: NDArray[np.float32]) -> NDArray[np.int32]:
    """What DALI is told of images: Encoded's where and place beside each other, since each array takes time of this thread.

    Args:
        where: As Encoded's.
        place: Likewise. Its bits are kept.
    """
    found = np.empty((len(where), _PLACE + place.shape[1]), dtype=np.int32)
    found[:, :_PLACE], found[:, _PLACE:] = where, place.view(np.int32)
    return found


def said_of(error: Exception) -> str:
    """What DALI says is wrong, without where in which code."""
    lines = str(error).rpartition("encountered:")[2].split("\n")
    return next((line.strip() for line in lines if line.strip()), "")
