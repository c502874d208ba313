"""device_decode=: what decodes the images of a loader, and why."""

from collections.abc import Callable
from typing import Any, NamedTuple

from torch.utils.data import default_collate

from fastfeed.errors import UsageError
from fastfeed.feed.dalioptions import DaliOptions
from fastfeed.feed.dalipipeline import is_installed
from fastfeed.feed.decodinglane import Decoders
from fastfeed.feed.imagefield import ImageField
from fastfeed.feed.splitting import behind_views
from fastfeed.machine import survey

NAMED = ("cpu", "dali", "auto")
"""What decodes, by name."""
Decode = str | DaliOptions
_JPEG = frozenset({"jpg", "jpeg"})
_NO_NVJPEG = (
    "of torchvision's nvJPEG decoder only whole images come, which then are cropped and resized one by one: "
    "15,200 images a second of an H200 before any resizing, where DALI makes 21,400 with it"
)


class Batching(NamedTuple):
    """How a loader makes batches, as far as that decides who can decode."""

    batched: bool
    """Whether a batch has several samples."""
    collate: Callable[[Any], Any] | None
    transform: Callable[[Any], Any] | None
    """What is done to each batch behind collate."""
    channels_last: bool


def decoders_of(decode: Decode, dataset: object, batching: Batching, device: str | None) -> tuple[Decoders | None, str]:
    """Who decodes; None for the workers, on the CPU. And why, in a sentence; "" where nothing was decided.

    Args:
        decode: As the user gave it.
        dataset: Of the loader.
        batching: How it makes batches.
        device: Kind of the device on which they shall be; None for none.

    Raises:
        UsageError: It is not known, or cannot be done.
    """
    options = decode if isinstance(decode, DaliOptions) else DaliOptions()
    if decode == "cpu":
        return None, ""
    if decode == "nvjpeg":
        msg = f'device_decode="nvjpeg" is not there: {_NO_NVJPEG}'
        raise UsageError(msg, hint='Give device_decode="dali" instead.')
    if decode not in NAMED and not isinstance(decode, DaliOptions):
        msg = "device_decode says what decodes images"
        raise UsageError(msg, expected=f"{', '.join(map(repr, NAMED))} or fastfeed.DaliOptions", got=repr(decode))
    why = _against(dataset, batching)
    if decode == "auto":
        why = _against_trying(dataset, device) if why is None else why
        if why is not None:
            return None, f'device_decode="auto": images are decoded on the CPU: {why}'
        reason = 'device_decode="auto": DALI decodes: it is installed, a GPU is there, images are JPEGs and it knows all steps'
        return Decoders(options, last=batching.channels_last), reason
    _prove(why, device)
    return Decoders(options, last=batching.channels_last), 'device_decode="dali" was given'


def _prove(why: str | None, device: str | None) -> None:
    """DALI was asked for by name.

    Args:
        why: Why it cannot decode these images; None where it can.
        device: As decoders_of().

    Raises:
        UsageError: It cannot, there is no device, or it is not installed.
    """
    if device is None:
        msg = 'device_decode="dali" needs a device to decode on'
        raise UsageError(msg, hint='Give device="cuda"; with device="cpu" DALI decodes by its own code for CPUs.')
    if why is not None:
        msg = f'device_decode="dali" cannot be done: {why}'
        raise UsageError(msg, hint='device_decode="auto" decodes on the CPU where DALI cannot.')
    if not is_installed():
        msg = 'device_decode="dali" needs NVIDIA DALI, which is not installed'
        raise UsageError(msg, hint="Install it: pip install 'fastfeed[dali]'.")


def _against(dataset: object, batching: Batching) -> str | None:
    """Why DALI cannot decode, whether it is there or not; None where it can."""
    base, _ = behind_views(dataset)
    if not isinstance(base, ImageField):
        return f"a {type(base).__name__} gives decoded samples; it has to be a dataset of fastfeed.open"
    if not batching.batched:
        return "there are no batches (batch_size=None)"
    if batching.collate is not None and batching.collate is not default_collate:  # which may have no hash: a dataclass
        return "collate_fn gets decoded samples"
    if batching.transform is not None:
        return "batch_transform gets decoded batches, where workers make them"
    return base.why_not_encoded


def _against_trying(dataset: object, device: str | None) -> str | None:
    """Why it is not worth trying; None where it is."""
    base, _ = behind_views(dataset)
    assert isinstance(base, ImageField)
    if device != "cuda":
        return "no GPU was asked for (device=)"
    gpus = survey().gpus
    if not gpus.count:
        return gpus.why
    if base.image_kind not in _JPEG:
        return f"images are {base.image_kind}, which DALI would leave to the CPU"
    if not is_installed():
        return "NVIDIA DALI is not installed (pip install 'fastfeed[dali]')"
    return None
