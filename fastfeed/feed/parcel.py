"""A batch as plain bytes: how it goes from a worker to the main process past /dev/shm, and holds no descriptor there.

Everything is pickled as torch's queues do it, but the memory of tensors and arrays goes beside the pickle: small blocks as
bytes through the pipe, large ones in a memory file (memfd_create(2)), which no size of /dev/shm limits and which is mapped, not
copied, by who receives it. Tensors of a batch that share memory share it afterwards, but for small views of something large
(a row of a dataset that is one tensor): those come alone.
"""

import io
import logging
import os
from collections.abc import Sequence
from multiprocessing.reduction import DupFd, ForkingPickler
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fastfeed.feed.pickling import PLAIN

LOG = logging.getLogger("fastfeed.loader")
FILE_BYTES = 512 << 10
"""From this size on a block goes in a memory file: below, a pipe is faster than passing a descriptor (0.3 ms)."""
MOST_FILES = 8
"""Of a batch: each is a descriptor of the worker until it is received."""
_PROTOCOL = 5
"""The first with memory beside the pickle."""
_SLACK_BYTES = 64 << 10
_SEVERAL = 8
"""In a longer list, it is looked first whether there is nothing but numbers and texts."""


class Parcel:
    """A batch that was packed. A queue sends it, and who receives it finds the batch.

    Args:
        data: The batch; it is copied.
        files: Whether memory files may be used.
    """

    def __init__(self, data: Any, *, files: bool) -> None:  # noqa: ANN401 - any batch that can be pickled
        buffers: list[Any] = []
        stream = io.BytesIO()
        _Packer(stream, buffers).dump(data)
        sizes = [buffer.raw().nbytes for buffer in buffers]
        largest = sorted(range(len(sizes)), key=lambda at: -sizes[at])[: MOST_FILES if files else 0]
        in_files = {at for at in largest if sizes[at] >= FILE_BYTES}
        self.payload = stream.getvalue()
        # Now, not when it is sent: a dataset may use its buffers again. Queues pickle by protocol 4, which knows no buffers.
        self.blocks = [_in_memory_file(each) if at in in_files else each.raw().tobytes() for at, each in enumerate(buffers)]

    def __reduce__(self) -> tuple[Any, ...]:
        return unpacked, (self.payload, self.blocks)


def unpacked(payload: bytes, blocks: list[Any]) -> Any:  # noqa: ANN401
    """The batch of a parcel."""
    found = [block.mapped() if isinstance(block, MemoryFile) else bytearray(block) for block in blocks]
    return ForkingPickler.loads(payload, buffers=found)


class MemoryFile:
    """Memory that another process made, on its way: it is mapped once.

    Args:
        descriptor: That travels.
        size_bytes: Of the memory.
    """

    def __init__(self, descriptor: Any, size_bytes: int) -> None:  # noqa: ANN401 - multiprocessing's DupFd
        self.descriptor, self.size_bytes = descriptor, size_bytes

    def __reduce__(self) -> tuple[Any, ...]:
        return MemoryFile, (self.descriptor, self.size_bytes)

    def mapped(self) -> NDArray[np.uint8]:
        """The memory; uint8, shape (size_bytes,). No descriptor stays open."""
        descriptor = self.descriptor.detach()
        try:
            return mapped_bytes(descriptor, self.size_bytes)
        finally:
            os.close(descriptor)


def memory_files_work() -> bool:
    """Whether this system has memory files, and maps them by their number as it should."""
    try:
        descriptor = os.memfd_create("fastfeed")
    except OSError:
        return False
    try:
        os.write(descriptor, b"fastfeed")
        return _bytes_of(_mapped(descriptor, 8)).tobytes() == b"fastfeed"
    except (OSError, RuntimeError):  # no /proc, or one of other processes
        return False
    finally:
        os.close(descriptor)


def _mapped(descriptor: int, size_bytes: int) -> torch.UntypedStorage:
    """Memory of a file; it stays when the descriptor is closed."""
    found: Any = torch.UntypedStorage.from_file(f"/proc/self/fd/{descriptor}", shared=True, nbytes=size_bytes)
    mapped: torch.UntypedStorage = found
    return mapped


def mapped_bytes(descriptor: int, size_bytes: int) -> NDArray[np.uint8]:
    """Memory of a file, shared with all who map it; uint8, shape (size_bytes,). It stays when the descriptor is closed."""
    return _bytes_of(_mapped(descriptor, size_bytes))


def _in_memory_file(buffer: Any) -> Any:  # noqa: ANN401 - a pickle.PickleBuffer
    """A buffer's memory as a file; as bytes, for the pipe, where there is no descriptor or memory for one."""
    view = buffer.raw()
    try:
        descriptor = os.memfd_create("fastfeed")
    except OSError:
        return view.tobytes()
    try:
        done = 0
        while done < view.nbytes:
            done += os.write(descriptor, view[done:])
        return MemoryFile(DupFd(descriptor), view.nbytes)
    except OSError:
        return view.tobytes()
    finally:
        os.close(descriptor)


def storages_of(data: Any) -> list[torch.UntypedStorage]:  # noqa: ANN401 - any batch that can be pickled
    """The memory of all tensors of a batch in this process's main memory; the same one may be there twice."""
    found: list[torch.UntypedStorage] = []
    try:
        if _plain_storages(data, found):
            return found
    except RecursionError:
        LOG.debug("a batch contains itself, or is too deep: it is looked through by pickling")
    collector = _Collector(io.BytesIO())
    collector.dump(data)
    return collector.found


def _plain_storages(data: Any, found: list[torch.UntypedStorage]) -> bool:  # noqa: ANN401
    """Whether a batch consists of nothing else than what can be looked into here, which takes a microsecond."""
    kind = type(data)
    if kind is torch.Tensor:
        if data.layout is not torch.strided:
            return False
        if data.is_cpu:
            found.append(data.untyped_storage())
        return True
    if kind is dict:
        return all(_plain_storages(value, found) for value in data.values())
    if kind is list or issubclass(kind, tuple):
        return _plain_parts(data, found)
    return kind in PLAIN or issubclass(kind, np.generic) or (kind is np.ndarray and not data.dtype.hasobject)


def _plain_parts(parts: Sequence[Any], found: list[torch.UntypedStorage]) -> bool:
    if len(parts) > _SEVERAL and set(map(type, parts)) <= PLAIN:
        return True
    for part in parts:  # noqa: SIM110 - a generator would take longer than what it does
        if not _plain_storages(part, found):
            return False
    return True


def _bytes_of(storage: torch.UntypedStorage) -> NDArray[np.uint8]:
    return torch.empty(0, dtype=torch.uint8).set_(storage).numpy()


def _storage(memory: NDArray[np.uint8]) -> torch.UntypedStorage:
    return torch.from_numpy(memory).untyped_storage()


class _Packer(ForkingPickler):
    """Pickles as torch's queues do, with memory beside it.

    Args:
        stream: Gets the pickle.
        buffers: Gets the memory.
    """

    def __init__(self, stream: io.BytesIO, buffers: list[Any]) -> None:
        super().__init__(stream, _PROTOCOL, True, buffers.append)  # noqa: FBT003

    def reducer_override(self, obj: Any) -> Any:  # noqa: ANN401
        """Memory is bytes. A small view of large memory does not bring all of it along."""
        if isinstance(obj, torch.UntypedStorage) and obj.device.type == "cpu":
            return _storage, (_bytes_of(obj),)
        if type(obj) is torch.Tensor and _sees_little(obj):
            return _own, (obj.detach().clone(), obj.requires_grad)
        if type(obj) is np.ndarray and not obj.flags.writeable and not obj.dtype.hasobject:
            return _array, (obj.copy(order="K"),)  # a queue's arrays may be written to
        return NotImplemented


def _sees_little(tensor: torch.Tensor) -> bool:
    """Whether a tensor is a view of much more memory than its own."""
    if tensor.layout is not torch.strided or tensor.device.type != "cpu" or not tensor.is_contiguous():
        return False
    return tensor.untyped_storage().nbytes() > 2 * tensor.numel() * tensor.element_size() + _SLACK_BYTES


def _own(tensor: torch.Tensor, requires_grad: bool) -> torch.Tensor:  # noqa: FBT001 - it is called by position
    return tensor.requires_grad_(requires_grad)


def _array(array: NDArray[Any]) -> NDArray[Any]:
    return array


def _nothing() -> None:
    """What stands for memory that is not pickled."""


class _Collector(ForkingPickler):
    """Finds the memory of tensors in containers of any class."""

    def __init__(self, stream: io.BytesIO) -> None:
        super().__init__(stream, _PROTOCOL, True, _forget)  # noqa: FBT003
        self.found: list[torch.UntypedStorage] = []

    def reducer_override(self, obj: Any) -> Any:  # noqa: ANN401
        """Memory is noted down, not pickled."""
        if isinstance(obj, torch.UntypedStorage):
            if obj.device.type == "cpu":
                self.found.append(obj)
            return _nothing, ()
        return NotImplemented


def _forget(buffer: object) -> None:
    """Arrays' memory is not looked at."""
