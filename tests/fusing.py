"""What tests of decoding share: images of every kind, and a transform done while decoding against the same one done after."""

import shutil
import subprocess
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers import SHARED_DATA, encoded
from loading import equal, seed_all, states
from PIL import Image

from fastfeed.feed.decode.arrays import as_function
from fastfeed.feed.decode.images import Images
from fastfeed.feed.fields import decode_rgb
from fastfeed.trace import done_metering, metering

torch.set_num_threads(1)

PHOTOS = SHARED_DATA / "imagenet-sample"
EDGES = SHARED_DATA / "edge-images"


# ------------------------------------------------------------------------------------------------ images
def noisy(size: tuple[int, int] = (70, 50), mode: str = "RGB", seed: int = 0) -> Image.Image:
    """A picture with shapes and noise, so that a pixel in the wrong place is seen."""
    width, height = size
    columns, lines = np.meshgrid(np.arange(width), np.arange(height))
    noise = np.random.default_rng(seed).integers(0, 60, (height, width, 3))
    shapes = np.stack([columns * 3 + seed * 7, lines * 4, columns * lines % 199], 2)
    return Image.fromarray(((shapes + noise) % 256).astype(np.uint8)).convert(mode)


def jpeg(size: tuple[int, int] = (70, 50), mode: str = "RGB", seed: int = 0, **options: Any) -> bytes:
    """Such a picture as a JPEG."""
    return encoded(noisy(size, mode, seed), **{"quality": 85, **options})


def by_cjpeg(*arguments: str, size: tuple[int, int] = (70, 50)) -> bytes:
    """Such a picture as a JPEG of libjpeg-turbo's cjpeg, which writes what Pillow does not; skips where it is missing."""
    if shutil.which("cjpeg") is None:
        pytest.skip("cjpeg is not installed (apt install libjpeg-turbo-progs)")
    picture = encoded(noisy(size), "PPM")
    done = subprocess.run(["cjpeg", *arguments], input=picture, capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"cjpeg {' '.join(arguments)}: {done.stderr.decode(errors='replace').splitlines()[0]}")
    return done.stdout


def with_segment(data: bytes, marker: int, body: bytes) -> bytes:
    """A JPEG with one marker segment more, right behind SOI."""
    return data[:2] + bytes((0xFF, marker)) + (len(body) + 2).to_bytes(2, "big") + body + data[2:]


def photos(every: int = 1) -> Sequence[Path]:
    """Real photos; skips where they are missing."""
    found = sorted(PHOTOS.glob("*/*.JPEG")) or sorted(path for path in PHOTOS.glob("*/*") if path.is_file())
    if not found:
        pytest.skip(f"{PHOTOS} is missing")
    return found[::every]


def edges() -> Iterator[Path]:
    """Real files of every kind of image, broken ones too; skips where they are missing."""
    if not EDGES.is_dir():
        pytest.skip(f"{EDGES} is missing")
    return (path for path in sorted(EDGES.rglob("*")) if path.is_file() and path.suffix not in {".md", ".csv"})


# ------------------------------------------------------------------------------------------------ both ways
def outcome(do: Callable[[], Any], seed: int = 0) -> tuple[Any, Any]:
    """What a call gives from these random numbers, or the type of what it raises; and the generators' states afterwards."""
    seed_all(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = do()
        except Exception as error:  # noqa: BLE001 - whatever Pillow or a transform raises
            found = type(error)
    return found, states()


def unfused(transform: Callable[[Any], Any], data: bytes, seed: int = 0) -> tuple[Any, Any]:
    """Decoded by Pillow, then transformed."""
    return outcome(lambda: as_function(transform)(decode_rgb(data)), seed)


def fused(images: Images, data: bytes, seed: int = 0, rows: Any = None) -> tuple[Any, Any]:
    """Transformed while decoding."""
    return outcome(lambda: images.decoded(data, rows).finished(), seed)


def written(images: Images, data: bytes, seed: int = 0, rows: Any = None) -> tuple[Any, Any]:
    """Written into a batch while decoding."""
    assert images.batch is not None
    shape, dtype = images.batch
    batch = torch.empty(shape, dtype=dtype)

    def do() -> torch.Tensor:
        found = images.put(batch.numpy(), data, rows)
        return batch if type(found).__name__ == "Written" else found.finished()

    return outcome(do, seed)


def numbers(value: Any) -> Any:
    """Images, tensors and arrays as arrays."""
    if isinstance(value, Image.Image):
        return value.mode, np.asarray(value)
    if isinstance(value, list):
        return [numbers(part) for part in value]
    return np.asarray(value) if isinstance(value, torch.Tensor) else value


def assert_same(images: Images, data: bytes, seed: int = 0, rows: Any = None, *, name: str = "") -> None:
    """The same result bit for bit, or the same type of exception, and the same random numbers for what comes next."""
    transform = images.recipe.whole
    assert transform is not None
    expected, ends = unfused(transform, data, seed)
    ways = [fused] if images.batch is None else [fused, written]
    for way in ways:
        found, others = way(images, data, seed, rows)
        if way is fused and not isinstance(expected, type):
            assert type(found) is type(expected), name
        assert equal(numbers(found), numbers(expected)), f"{name}: {way.__name__} differs"
        assert equal(others, ends), f"{name}: {way.__name__} leaves other random numbers"


def levels(one: Any, other: Any) -> tuple[int, float]:
    """How far two images of bytes are apart: the largest difference, and the mean."""
    apart = np.abs(np.asarray(one).astype(np.int16) - np.asarray(other).astype(np.int16))
    return int(apart.max()), float(apart.mean())


class Counted:
    """Hears what is counted in this thread."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def span(self, stage: str, position: int) -> AbstractContextManager[None]:
        return nullcontext()

    def count(self, name: str, amount: int = 1) -> None:
        self.counts[name] += amount


@contextmanager
def counted() -> Iterator[Counter[str]]:
    """What is counted inside."""
    meter = Counted()
    token = metering(meter)
    try:
        yield meter.counts
    finally:
        done_metering(token)
