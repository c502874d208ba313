"""Batches of images with their channels last in memory, as convolutions on GPUs want them (torch.channels_last)."""

from collections.abc import Callable
from typing import Any

import torch


def channels_last(data: Any) -> Any:  # noqa: ANN401 - any batch
    """A batch whose dense tensors of four axes lie in memory with the second axis last; shapes and values are the same.

    Args:
        data: Tensors, or lists, tuples, named tuples and dicts of them; anything else is given back as it is.
    """
    if isinstance(data, torch.Tensor):
        images = data.dim() == 4 and data.layout is torch.strided  # noqa: PLR2004 - N, C, H, W
        return data.contiguous(memory_format=torch.channels_last) if images else data
    kind = type(data)
    if kind is dict:
        return {name: channels_last(value) for name, value in data.items()}
    if kind in {list, tuple}:
        return kind(map(channels_last, data))
    return kind(*map(channels_last, data)) if isinstance(data, tuple) and hasattr(kind, "_fields") else data


def memory_with_channels_last(
    memory: Callable[..., torch.Tensor], shape: tuple[int, ...], dtype: torch.dtype
) -> torch.Tensor:  # fmt: skip
    """Memory for a batch of images, shape (images, channels, height, width), laid out so."""
    count, channels, height, width = shape
    return memory((count, height, width, channels), dtype=dtype).permute(0, 3, 1, 2)
