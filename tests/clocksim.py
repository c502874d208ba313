"""A machine whose clocks are drawn from a seed: samples with known costs, measured as an idle or a busy machine would."""

from dataclasses import dataclass, field

import numpy as np

from fastfeed.auditor.record import SampleRecord, StageTime

MEGAPIXEL = 1_000_000
JPEG_SECONDS = 7e-3
"""A megapixel."""


@dataclass
class Sample:
    """What is true of a sample, whatever a clock shows."""

    format: str | None = "JPEG"
    pixels: int | None = 200_000
    size_bytes: int | None = 40_000
    read: float = 30e-6
    """Processor seconds."""
    decode: float = 1.4e-3
    blocked: float = 0.0
    """Seconds that each reading waits."""
    cold_blocked: float = 0.0
    """The same, if its file is not in memory."""
    once: float = 0.0
    """The same, the first time only."""
    sometimes: tuple[float, float] = (0.0, 0.0)
    """How often its transform takes how much longer (processor seconds)."""


@dataclass
class Scene:
    """Samples and the machine that measures them."""

    samples: list[Sample]
    seed: int = 0
    busy: bool = False
    schedstat: bool = True
    opaque: bool = False
    """One stage "load", and nothing is known of sizes."""
    transform: bool = False
    cold_first: bool = False
    """Whether the first measurement found no file in memory."""
    can_be_cold: bool = True
    calls: list[tuple[tuple[int, ...], bool]] = field(default_factory=list)
    """Each call of remeasure: indices, cold."""

    def __post_init__(self):
        self.random = np.random.default_rng(self.seed)

    def clock(self, cpu, blocked):
        """What the clocks show."""
        random = self.random
        if self.busy:
            cpu *= (1 + 0.3 * random.random()) * random.lognormal(0, 0.10)
            cpu *= random.uniform(1.3, 2.2) if random.random() < 0.03 else 1
            delay = random.exponential(12e-3) if random.random() < 0.6 else 0.0
            blocked += random.exponential(100e-6) + (random.exponential(6e-3) if random.random() < 0.003 else 0.0)
        else:
            cpu *= random.lognormal(0, 0.04) * (random.uniform(1.2, 2.0) if random.random() < 0.01 else 1)
            delay = random.exponential(1e-3) if random.random() < 0.01 else 0.0
            blocked += random.exponential(20e-6) + (random.exponential(3e-3) if random.random() < 0.002 else 0.0)
        return StageTime(cpu + delay + blocked, cpu, delay if self.schedstat else None)

    def measure(self, index, *, first=False, cold=False):
        """One measurement."""
        sample = self.samples[index]
        waits = sample.blocked + (sample.once if first else 0.0) + (sample.cold_blocked if cold else 0.0)
        often, extra = sample.sometimes
        drawn = extra if self.random.random() < often else 0.0
        if self.opaque:
            return {"load": self.clock(sample.read + sample.decode + drawn, waits)}
        times = {"read": self.clock(sample.read, waits), "decode": self.clock(sample.decode, 0.0)}
        if self.transform:
            times["transform"] = self.clock(0.5e-3 + drawn, 0.0)
        return times

    def records(self):
        """The first measurement."""
        return [self.record(index) for index in range(len(self.samples))]

    def record(self, index):
        """The first measurement of one sample."""
        sample = self.samples[index]
        times = self.measure(index, first=True, cold=self.cold_first)
        if self.opaque:
            return SampleRecord(index, times=times)
        width = None if sample.pixels is None else sample.pixels
        height = None if sample.pixels is None else 1
        return SampleRecord(index, size_bytes=sample.size_bytes, format=sample.format, width=width, height=height, times=times)

    def remeasure(self, indices, *, cold):
        """As repeats.Remeasure has it."""
        self.calls.append((tuple(indices), cold))
        if cold and not self.can_be_cold:
            return {}
        return {index: [self.measure(index, cold=cold)] for index in indices}


def photo(random, pixels=None, **other):
    """A JPEG of a log-normal size, whose cost follows its size but for what is in the picture."""
    pixels = int(170_000 * random.lognormal(0, 0.5)) if pixels is None else pixels
    size = int(pixels * 0.2 * random.lognormal(0, 0.3))
    decode = 60e-6 + pixels / MEGAPIXEL * JPEG_SECONDS * np.exp(0.13 * random.standard_t(8))
    return Sample(pixels=pixels, size_bytes=size, read=25e-6 + size / 4e9, decode=float(decode), **other)


def photos(seed, count):
    """Ordinary ones."""
    random = np.random.default_rng((seed, 1))
    return [photo(random) for _ in range(count)]


def planted(seed, count=4000, **machine):
    """A scene of photos with 8 scan bombs, 8 JPEG 2000, 8 that always wait 60 ms; and, as traps, 16 of 4.3 megapixels, 16 that
    stall once for 60 ms, 100 progressive ones. Returned with the places of the first 24.
    """
    random = np.random.default_rng((seed, 2))
    samples = photos(seed, count)
    places = random.permutation(count)[:156].tolist()
    bombs, jp2, waits, large, stalls, progressive = (
        places[a:b] for a, b in ((0, 8), (8, 16), (16, 24), (24, 40), (40, 56), (56, 156))
    )
    for place in bombs:
        samples[place] = Sample(pixels=1_500_000, size_bytes=60_000, decode=0.25 * float(random.lognormal(0, 0.3)))
    for place in jp2:
        one = photo(random)
        one.format, one.decode = "JPEG2000", one.decode * 300e-3 / JPEG_SECONDS
        samples[place] = one
    for place in waits:
        samples[place].blocked = 60e-3
    for place in large:
        samples[place] = photo(random, pixels=4_300_000)
    for place in stalls:
        samples[place].once = 60e-3
    for place in progressive:
        samples[place].decode *= 2.4
        samples[place].size_bytes = int(samples[place].size_bytes * 0.95)
    return Scene(samples, seed=seed, **machine), set(bombs + jp2 + waits), set(stalls)
