"""Whether a worker could send a sample to the process that trains: it is pickled for that."""

import pickle  # noqa: TID251 - as the workers of a loader do; what comes of it goes nowhere
import sys
from typing import Any

import PIL.Image

from fastfeed.packer.rows.byname import told_error

_PLAIN = frozenset({type(None), bool, int, float, complex, str, bytes, bytearray, PIL.Image.Image})


def why_unsendable(sample: object) -> str | None:
    """What pickling a sample raises; None where it can be sent.

    Args:
        sample: As a dataset gave it.

    Raises:
        MemoryError: There is not enough for a copy; that is the caller's affair.
    """
    if _is_plain(sample):  # nearly all: their pixels need not be copied to know it
        return None
    try:
        pickle.dumps(sample, pickle.HIGHEST_PROTOCOL)
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever foreign objects raise is what is asked
        return told_error(error)
    return None


def _is_plain(thing: Any) -> bool:  # noqa: ANN401 - any object
    """Whether it is made of what can always be pickled."""
    kind = type(thing)
    if kind in _PLAIN:
        return True
    if kind is dict:
        return all(map(_is_plain, thing)) and all(map(_is_plain, thing.values()))
    if kind in {list, tuple, set, frozenset}:
        return all(map(_is_plain, thing))
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch is not None and kind is torch.Tensor:
        return bool(thing.device.type == "cpu")
    return numpy is not None and bool(kind is numpy.ndarray and not thing.dtype.hasobject)
