"""Samples as bytes that anybody may read: no pickle. What these bytes cannot hold exactly is refused.

A head in JSON says how the sample is built; the memory of arrays, tensors and images, and bytes, lie behind it in the order in
which the head names them.
"""

import json
import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from PIL import Image

_HEAD = struct.Struct("<I")
_MODES = {"1", "L", "LA", "RGB", "RGBA", "CMYK", "YCbCr", "HSV", "I", "F", "I;16"}
"""Of images that are their pixels and nothing else: no palette."""


class Unkeepable(Exception):
    """A sample holds something that cannot be kept; a sentence. It never leaves feed/."""


def encoded(sample: Any) -> bytes:  # noqa: ANN401 - any sample
    """A sample as bytes.

    Raises:
        Unkeepable: It holds something else than numbers, texts, bytes, arrays, tensors, images, tuples, lists and dicts.
    """
    buffers: list[bytes] = []
    try:
        head = json.dumps(_built(sample, buffers), separators=(",", ":")).encode("ascii")
    except (ValueError, TypeError, RuntimeError) as error:  # a number of thousands of digits, a circle, a foreign type
        msg = f"samples hold what a cache cannot hold ({error})"
        raise Unkeepable(msg) from error
    return b"".join([_HEAD.pack(len(head)), head, *buffers])


def decoded(data: bytes | bytearray | memoryview) -> Any:  # noqa: ANN401 - any sample
    """The sample; its arrays and tensors are its own and may be written to."""
    view = memoryview(data)
    (length,) = _HEAD.unpack_from(view)
    at = _HEAD.size + length

    def take(size: int) -> memoryview:
        nonlocal at
        part = view[at : at + size]
        at += size
        return part

    return _rebuilt(json.loads(bytes(view[_HEAD.size : _HEAD.size + length])), take)


def _built(value: Any, buffers: list[bytes]) -> Any:  # noqa: ANN401
    """What the head says of a value: itself, or a list that begins with a letter."""
    kind = type(value)
    if value is None or kind in {bool, int, float, str}:
        return value
    if kind in {tuple, list}:
        return ["t" if kind is tuple else "l", *(_built(each, buffers) for each in value)]
    if kind is dict and all(type(name) is str for name in value):
        return ["d", {name: _built(each, buffers) for name, each in value.items()}]
    if kind is bytes:
        return ["b", _put(value, buffers)]
    if (kind is np.ndarray or isinstance(value, np.generic)) and not value.dtype.hasobject:
        return _array("a" if kind is np.ndarray else "s", value, buffers)
    if kind is torch.Tensor and _is_numbers(value):
        return _tensor(value, buffers)
    if isinstance(value, Image.Image) and value.mode in _MODES:
        return ["i", value.mode, list(value.size), _put(value.tobytes(), buffers), _info(value, buffers)]
    msg = f"samples hold a {kind.__module__}.{kind.__qualname__}, which a cache cannot hold"
    raise Unkeepable(msg)


def _put(data: bytes, buffers: list[bytes]) -> int:
    buffers.append(data)
    return len(data)


def _is_numbers(value: torch.Tensor) -> bool:
    """Whether a tensor is numbers in memory and nothing else."""
    return value.layout is torch.strided and value.device.type == "cpu" and not (value.requires_grad or value.is_quantized)


def _info(image: Image.Image, buffers: list[bytes]) -> dict[str, Any]:
    """What an image says besides its pixels, as far as it can be held: later steps may turn it as its EXIF says."""
    found: dict[str, Any] = {}
    for name, value in image.info.items():
        own: list[bytes] = []
        with suppress(Unkeepable):
            found[str(name)] = _built(value, own)
            buffers += own
    return found


def _array(letter: str, value: Any, buffers: list[bytes]) -> list[Any]:  # noqa: ANN401 - an array or a scalar
    if np.dtype(value.dtype.str) != value.dtype:  # records, and types that numpy does not know by itself
        msg = f"samples hold arrays of {value.dtype}, which a cache cannot hold"
        raise Unkeepable(msg)
    plain = np.ascontiguousarray(value)
    return [letter, plain.dtype.str, list(np.shape(value)), _put(plain.tobytes(), buffers)]


def _tensor(value: torch.Tensor, buffers: list[bytes]) -> list[Any]:
    flat = (
        value.resolve_conj().resolve_neg().contiguous().view(-1).view(torch.uint8)
        if value.numel()
        else torch.empty(0, dtype=torch.uint8)
    )
    name = str(value.dtype).removeprefix("torch.")
    return ["T", name, list(value.shape), _put(flat.numpy().tobytes(), buffers)]


def _rebuilt(told: Any, take: Callable[[int], memoryview]) -> Any:  # noqa: ANN401
    if not isinstance(told, list):
        return told
    letter, *rest = told
    return _REBUILT[letter](rest, take)


def _array_again(rest: list[Any], take: Callable[[int], memoryview]) -> Any:  # noqa: ANN401
    name, shape, size = rest
    if not size:
        return np.empty(shape, np.dtype(name))
    return np.frombuffer(bytearray(take(size)), dtype=np.dtype(name)).reshape(shape)


def _tensor_again(rest: list[Any], take: Callable[[int], memoryview]) -> torch.Tensor:
    name, shape, size = rest
    dtype = getattr(torch, name)
    if not size:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(bytearray(take(size)), dtype=dtype).reshape(shape)


def _image_again(rest: list[Any], take: Callable[[int], memoryview]) -> Image.Image:
    mode, size, count, info = rest
    image = Image.frombytes(mode, tuple(size), bytes(take(count)))
    image.info.update((name, _rebuilt(each, take)) for name, each in info.items())
    return image


_REBUILT: dict[str, Callable[[list[Any], Callable[[int], memoryview]], Any]] = {
    "t": lambda rest, take: tuple(_rebuilt(each, take) for each in rest),
    "l": lambda rest, take: [_rebuilt(each, take) for each in rest],
    "d": lambda rest, take: {name: _rebuilt(each, take) for name, each in rest[0].items()},
    "b": lambda rest, take: bytes(take(rest[0])),
    "a": _array_again,
    "s": lambda rest, take: _array_again(rest, take)[()],
    "T": _tensor_again,
    "i": _image_again,
}
