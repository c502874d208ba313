"""What a number of workers gives: batches as the consumer sees them, made into one figure that can be compared.

Workers hand over in turn, so waits come in bursts as long as there are workers: a wait of one batch, or a median of waits,
says nothing. Batches are counted in blocks of whole turns, and blocks are looked at until they agree.
Pure: no clock; the loader brings the times.
"""

from collections.abc import Sequence
from dataclasses import dataclass

RECEIVE_SECONDS = 0.5e-3
"""A wait up to this is taken for the handing over itself, where nothing tells when the batch was finished."""
STARVING = 0.03
"""A consumer that waits for less than this part of its time is not waiting: measuring cannot tell it from chance."""
SMALLEST_BLOCK = 5
FEWEST_BLOCKS, MANY_BLOCKS, MOST_BLOCKS = 2, 3, 5
AGREEMENT = 0.06
"""A standard error up to this is enough."""
CLEARLY_STARVING, CLEAR_BATCHES = 0.3, 8
"""Where the workers' own times say that the consumer waits for more than this part, one block of so many batches is enough."""
_ERROR_OF_RANGE = {1: 0.5, 2: 0.5, 3: 0.34, 4: 0.24, 5: 0.19}
"""Standard error of a mean over the range of so many normal values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One delivered batch."""

    wait_seconds: float
    """From the consumer's call to the batch."""
    step_seconds: float
    """The consumer's own time before that call, since the batch before."""
    workers: int
    """Size of the crew that made the batch."""
    late_seconds: float | None = None
    """From the consumer's call until the worker had finished the batch, 0 where it had before (CLOCK_MONOTONIC is one clock
    for all processes of a machine). The rest of the wait is handing over, which more workers do not shorten. None: not told."""
    make_seconds: float | None = None
    """Time that the worker took to make it, waiting included."""
    work_seconds: float | None = None
    """Processor time of that, and waiting for a processor."""
    remaining: int | None = None
    """Batches of this epoch that are still to come; None for a stream."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """What so many workers give."""

    workers: int
    batch_seconds: float
    """From batch to batch in the steady state."""
    own_seconds: float
    """The consumer's part of that: what is left when it never waits."""
    error: float
    """Standard error of batch_seconds, as a part of it."""
    make_seconds: float | None
    working: float | None
    """The part of its time in which a worker that makes a batch uses a processor; None where that was not told."""

    @property
    def waiting(self) -> float:
        """The part of its time that the consumer waits, 0 to 1."""
        return 1.0 - self.own_seconds / self.batch_seconds if self.batch_seconds else 0.0

    @property
    def starving(self) -> bool:
        """Whether the consumer waits."""
        return self.waiting > STARVING


@dataclass(slots=True)
class Block:
    """Sums over batches."""

    batches: int = 0
    total: float = 0.0
    waited: float = 0.0
    longest: float = 0.0
    """The longest wait of one batch."""
    make: float = 0.0
    make_squared: float = 0.0
    work: float = 0.0
    told: int = 0
    """Batches of which the worker's times are known."""

    def add(self, seen: Observation) -> None:
        """One batch more."""
        wait = starved(seen)
        self.batches += 1
        self.total += seen.wait_seconds + seen.step_seconds
        self.waited += wait
        self.longest = max(self.longest, wait)
        if seen.make_seconds is not None:
            self.told += 1
            self.make += seen.make_seconds
            self.make_squared += seen.make_seconds**2
            self.work += seen.make_seconds if seen.work_seconds is None else seen.work_seconds

    @property
    def waiting(self) -> float:
        """The part of the time that the consumer waited, but for the longest wait: one hiccup is not worth a worker."""
        return (self.waited - self.longest) / max(1e-12, self.total - self.longest)

    @property
    def scatter(self) -> float:
        """Standard error of the workers' mean time, as a part of it; half where nothing tells."""
        if not self.told or not self.make:
            return 0.5
        mean = self.make / self.told
        return float((max(0.0, self.make_squared / self.told - mean**2) / self.told) ** 0.5 / mean)


def starved(seen: Observation) -> float:
    """The part of a wait in which there was no batch."""
    return (
        max(0.0, seen.wait_seconds - RECEIVE_SECONDS)
        if seen.late_seconds is None
        else min(seen.wait_seconds, seen.late_seconds)
    )


def figure(workers: int, blocks: Sequence[Block]) -> Point:
    """Blocks as one figure.

    The consumer's own time is the median of the blocks (a checkpoint is no step); waits are averaged (slow samples that come
    again and again are part of the supply), but for the worst of many blocks (one hiccup of the storage is not).
    """
    owns = sorted((block.total - block.waited) / block.batches for block in blocks)
    waits = sorted(block.waited / block.batches for block in blocks)
    own = _median(owns)
    if len(blocks) > MANY_BLOCKS:
        owns.pop()
        waits.pop()
    total = own + sum(waits) / len(waits)
    scatter = max(owns[-1] - owns[0], waits[-1] - waits[0])
    error = _ERROR_OF_RANGE[len(waits)] * scatter / total if total else 0.0
    told = [block for block in blocks if block.told]
    make = _median([block.make / block.told for block in told]) if told else None
    if make is not None and len(blocks) == 1:
        total = max(own, make / workers)  # a single turn has one burst of waits, or half of one, or two
    elif make is not None and total - own <= STARVING * total:
        # What was made ahead before (during a long first step, by another crew) hides for a while that supply is too small.
        total = max(total, make / workers)
    return Point(
        workers=workers,
        batch_seconds=total,
        own_seconds=own,
        error=error if len(blocks) > 1 else max(block.scatter for block in blocks),
        make_seconds=make,
        working=sum(block.work for block in told) / max(1e-12, sum(block.make for block in told)) if told else None,
    )


class Window:
    """Collects batches of one number of workers until they say something.

    Args:
        workers: Size of the crew to look at; batches of another one are left out.
        settle: Batches to leave out first: a crew's first ones hold its start, or are made beside the crew before.
        after_another: Whether there was a crew before. While its batches were used up, this one has made many ahead, so the
            consumer does not wait at first: blocks count from the first wait on, or when there is none in many blocks.
        fewest: Blocks to wait for, at least two.
    """

    def __init__(self, workers: int, settle: int, *, after_another: bool = False, fewest: int = FEWEST_BLOCKS) -> None:
        self.workers, self._settle, self._fewest, self._full = workers, settle, fewest, after_another
        self.size = workers * -(-SMALLEST_BLOCK // workers)
        """Batches of a block: whole turns."""
        self._block = Block()
        self._blocks: list[Block] = []

    def interrupt(self, settle: int) -> None:
        """A pause (the end of an epoch): the unfinished block is dropped, the next batches are left out."""
        self._block, self._settle = Block(), settle

    def add(self, seen: Observation) -> Point | None:
        """One more batch; the figure, as soon as there is one."""
        if seen.workers != self.workers:
            return None
        if self._settle > 0:
            self._settle -= 1
            return None
        if self._full and starved(seen) > CLEARLY_STARVING * seen.step_seconds:
            self._full, self._block, self._blocks = False, Block(), []
        self._block.add(seen)
        if self._block.batches < self.size:
            return None
        self._blocks.append(self._block)
        self._block = Block()
        return self._judge()

    def _judge(self) -> Point | None:
        point, count = figure(self.workers, self._blocks), len(self._blocks)
        supply = (point.make_seconds or 0.0) / self.workers
        if count >= MOST_BLOCKS:
            return point
        if self._full and (not supply or supply > point.own_seconds):
            return None  # it will not last, or nothing tells
        if count >= self._fewest:
            return point if point.error <= AGREEMENT else None
        clear = self.size >= CLEAR_BATCHES and point.own_seconds < (1 - CLEARLY_STARVING) * supply
        return point if clear and self._fewest == FEWEST_BLOCKS else None


def _median(values: list[float]) -> float:
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2
