"""Whether something can be sent to another process: a batch, where its samples are known; a dataset, before workers start."""

from multiprocessing.reduction import ForkingPickler
from types import FunctionType
from typing import Any

import numpy as np
import torch

from fastfeed.sample import printable

PLAIN = frozenset({int, float, complex, bool, str, bytes, bytearray, type(None), range, slice})
"""Exact types: a subclass may say for itself how it is pickled."""
_SHOWN = 300
_GIVEN_BY_A_START = "through inheritance"
"""multiprocessing's words about shared memory, locks and queues that only a process that is being started can be given."""


def unpicklable(data: Any) -> str | None:  # noqa: ANN401 - any batch
    """Why data cannot be sent to another process, None where it can. Tensors and arrays are not copied for it.

    torch's workers pickle in a thread of a queue, where a fault is printed and the batch never arrives.
    """
    try:
        if _surely(data):
            return None
        _Trial(_Nowhere()).dump(data)
    except Exception as error:  # noqa: BLE001 - pickling runs code of any class
        return _why(data, error)
    return None


def unsendable(data: Any, unreachable: str | None = None) -> tuple[str | None, int]:  # noqa: ANN401 - what a worker needs
    """Why data cannot be given to a process that is started, not forked; and how many bytes it is.

    Args:
        data: Any object. Tensors are not copied for it.
        unreachable: A module that such a process cannot import.

    Returns:
        None where it can; and the size of the pickle without the memory of tensors, as far as it came.
    """
    nowhere = _Nowhere()
    try:
        _StartTrial(nowhere, unreachable).dump(data)
    except Exception as error:  # noqa: BLE001 - pickling runs code of any class
        return (None if _GIVEN_BY_A_START in str(error) else _why(data, error)), nowhere.size_bytes
    return None, nowhere.size_bytes


def _why(data: object, error: Exception) -> str:
    return f"a {type(data).__qualname__} cannot be pickled ({type(error).__name__}: {printable(str(error))[:_SHOWN]})"


def _surely(data: Any) -> bool:  # noqa: ANN401
    try:
        return _is_plain(data)
    except RecursionError:
        return False  # a list in itself, or one too deep: which of them, the trial tells


def _is_plain(data: Any) -> bool:  # noqa: ANN401
    """Whether it consists of nothing but what surely can be pickled.

    Raises:
        RecursionError: It contains itself too deeply.
        TypeError: A tensor that cannot be sent.
    """
    kind = type(data)
    if kind in PLAIN or issubclass(kind, np.generic):
        return True
    if kind is torch.Tensor or kind is torch.nn.Parameter:
        _prove_tensor(data)
        return True
    if kind is np.ndarray:
        return not data.dtype.hasobject
    if kind is list or kind is tuple:
        return set(map(type, data)) <= PLAIN or all(map(_is_plain, data))
    return kind is dict and _is_plain(list(data)) and _is_plain(list(data.values()))


def _prove_tensor(tensor: torch.Tensor) -> None:
    """Raises TypeError with torch's reason, which torch would raise when it is sent."""
    if tensor.requires_grad and not tensor.is_leaf:
        msg = "a tensor with a gradient history (requires_grad, no leaf) stays in its process: detach() it"
        raise TypeError(msg)
    if tensor.is_mkldnn:
        msg = "a tensor in MKLDNN's layout has no memory that can be shared: to_dense() it"
        raise TypeError(msg)


class _Nowhere:
    """A file that forgets."""

    size_bytes = 0
    """That were written."""

    def write(self, data: Any) -> int:  # noqa: ANN401 - bytes, or anything with memory
        """Nothing is kept."""
        size = memoryview(data).nbytes
        self.size_bytes += size
        return size


def _attributes(attributes: dict[str, Any]) -> dict[str, Any]:
    """What stands for a tensor with attributes of its own in a trial."""
    return attributes


class _Trial(ForkingPickler):
    """Pickles as a queue would, but leaves tensors' memory alone: it only finds out whether it can be done."""

    def reducer_override(self, obj: Any) -> Any:  # noqa: ANN401
        """Tensors stand for themselves, and for the attributes that a subclass gives them."""
        if isinstance(obj, torch.Tensor):
            _prove_tensor(obj)
            own = type(obj) is torch.Tensor or type(obj) is torch.nn.Parameter
            return _attributes, ({} if own else dict(vars(obj)),)
        if isinstance(obj, torch.UntypedStorage | torch.storage.TypedStorage):
            return _attributes, ({},)
        return NotImplemented


class _StartTrial(_Trial):
    """Pickles as the start of a process would."""

    def __init__(self, file: _Nowhere, unreachable: str | None) -> None:
        super().__init__(file)
        self._unreachable = unreachable

    def reducer_override(self, obj: Any) -> Any:  # noqa: ANN401
        """As a trial's, but what multiprocessing gives to a process that is being started is not looked into."""
        if any(str(kind.__module__).startswith("multiprocessing.") for kind in type(obj).__mro__):
            return _attributes, ({},)
        if self._unreachable is not None and isinstance(obj, type | FunctionType) and obj.__module__ == self._unreachable:
            msg = f"{obj.__qualname__} is of this session, of which there is no file that a worker could import"
            raise TypeError(msg)
        return super().reducer_override(obj)
