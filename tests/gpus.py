"""What tests on a GPU share. Without one they are skipped; with FASTFEED_REQUIRE_GPU=1 they fail instead."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers import encoded, packed
from PIL import Image
from torchvision import transforms

from fastfeed.feed.card import Cuda
from fastfeed.feed.lane import Lane, Moved
from fastfeed.feed.loader import DataLoader

POISON = 255
SIZE = 160
NORMAL = transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
TRAIN = transforms.Compose([
    transforms.RandomResizedCrop(SIZE), transforms.RandomHorizontalFlip(), transforms.ToTensor(), NORMAL,
])  # fmt: skip


def gpu() -> torch.device:
    """The GPU of this machine; without one the test ends here."""
    if torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device())
    if os.environ.get("FASTFEED_REQUIRE_GPU") == "1":
        pytest.fail("FASTFEED_REQUIRE_GPU=1, and torch finds no GPU")
    pytest.skip("torch finds no GPU here")


def photos_in(folder: Path, count: int = 96) -> Path:
    """A packed dataset of photos of two classes."""
    generator = np.random.default_rng(0)
    for at in range(count):
        small = Image.fromarray(generator.integers(0, 256, (12, 16, 3), dtype=np.uint8))
        place = folder / "photos" / ("cat", "dog")[at % 2] / f"{at:03d}.jpg"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(encoded(small.resize((240 + at, 300 - at), Image.Resampling.BICUBIC), quality=90))
    packed(folder / "photos", folder / "packed")
    return folder / "packed"


def loaded(dataset: Any, **options: Any) -> DataLoader:
    return DataLoader(dataset, **{"batch_size": 16, "num_workers": 3, "seed": 5, "persistent_workers": True, **options})


def by(lane: Lane, loader: DataLoader) -> DataLoader:
    """A loader whose batches take this lane."""
    assert loader._device_side is not None
    loader._device_side._lane = lane
    return loader


class Poisoning(Lane):
    """Memory of this process is poison as soon as it is said to have been read."""

    poisoned = 0

    def _released(self, sources: list[torch.Tensor]) -> None:
        for source in sources:
            source.fill_(POISON)
            self.poisoned += 1
        super()._released(sources)


class Hasty(Poisoning):
    """The same before it has been read, while the side stream is held up: what the tests have to notice."""

    def move(self, data: Any, unfinished: Any = None) -> Moved:
        with self.card.side():
            torch.cuda._sleep(20_000_000)
        moved = super().move(data, unfinished)
        self._released(self._read.pop()[1])
        return moved


class Impatient(Cuda):
    """The user's stream waits for nothing, while the side stream is held up."""

    def event(self) -> Any:
        with self.side():
            torch.cuda._sleep(20_000_000)
        return super().event()

    def wait(self, event: Any) -> None:
        """It does not."""

    def copied(self, host: torch.Tensor) -> torch.Tensor:
        torch.cuda._sleep(20_000_000)
        return super().copied(host)


def consumed(loader: DataLoader, epochs: int, cycles: int = 10_000_000) -> Iterator[list[torch.Tensor]]:
    """What a slow stream of the user's sees of each batch. This process drops a batch long before that stream reads it."""
    for _ in range(epochs):
        for batch in loader:
            torch.cuda._sleep(cycles)
            yield [part.clone() for part in batch]


def same(found: list[list[torch.Tensor]], expected: list[list[torch.Tensor]]) -> bool:
    """Whether they are equal, bit for bit."""
    torch.cuda.synchronize()
    pairs = zip(found, expected, strict=True)
    return all(torch.equal(one.cpu(), other) for batch, wanted in pairs for one, other in zip(batch, wanted, strict=True))


def timed(next_batch: Callable[[], Any], step: Callable[[Any], Any], count: int) -> dict[str, float]:
    """Milliseconds of this process in next_batch(), over a number of steps."""
    spent = []
    for _ in range(count):
        began = time.perf_counter()
        batch = next_batch()
        spent.append(1e3 * (time.perf_counter() - began))
        step(batch)
    spent.sort()
    return {"p50": spent[count // 2], "p99": spent[int(0.99 * count)], "max": spent[-1]}
