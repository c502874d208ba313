"""Where workers cost more than they save: told from what making a batch and taking it from a worker take. Pure."""

from dataclasses import dataclass
from statistics import median

from fastfeed.feed.ceilings import Gate, StartMethod
from fastfeed.feed.costs import START_SECONDS
from fastfeed.units import format_count, format_seconds

RECEIVE_SECONDS, RECEIVE_SECONDS_A_BYTE = 0.3e-3, 0.1e-9
"""What taking a batch from a worker costs the consumer's processor: measured 0.26 ms for 512 bytes, 3 ms for 37 MiB."""
_CREDIBLE = 3.0
"""A measured cost of taking batches counts up to so many times that: what is more is a busy machine."""
_ENOUGH = 16
"""Batches to judge from, each worker's first left out: it holds imports and cold caches."""
_LOOKS = 4
"""How often it is judged, each time from as many new batches."""


def receive_seconds(batch_bytes: int) -> float:
    """What taking a batch of this size from a worker costs, as it was measured elsewhere."""
    return RECEIVE_SECONDS + RECEIVE_SECONDS_A_BYTE * batch_bytes


def against_workers(
    batch_seconds: float, batch_bytes: int, batches: int | None, start_method: StartMethod, *, persists: bool
) -> tuple[Gate, str] | None:
    """The reason against any worker, from a batch that was made in this process; None where there is none.

    Args:
        batch_seconds: What making it took.
        batch_bytes: Its size.
        batches: Of an epoch; None where that is not known.
        start_method: How workers would start.
        persists: They would live longer than an epoch.
    """
    made, receive = format_seconds(batch_seconds), receive_seconds(batch_bytes)
    if batch_seconds <= receive:
        return "cheap", f"a batch is made here in {made}; taking it from a worker would cost about {format_seconds(receive)}"
    begin = START_SECONDS[start_method]
    if batches is not None and not persists and batches * batch_seconds < begin:
        work = format_seconds(batches * batch_seconds)
        how = f"starting workers ({start_method}) takes about {format_seconds(begin)} each epoch"
        return "short", f"an epoch is {format_count(batches, 'batch', 'batches')} of {made}, {work} in all, and {how}"
    return None


@dataclass(slots=True)
class _Epoch:
    """Sums of one pass."""

    batches: int = 0
    made: float = 0.0
    start: float | None = None
    """The wait for the first batch, but for its making."""


class Thrift:
    """Judges workers by the batches that they make."""

    def __init__(self) -> None:
        self._epoch = _Epoch()
        self._known: set[int] = set()
        self._made: list[float] = []
        self._taken: list[float] = []
        self._size_bytes = self._looks = 0

    def add(self, worker: int, make_seconds: float, wait_seconds: float, late_seconds: float, size_bytes: int) -> str | None:  # noqa: PLR0917
        """A batch came from a worker.

        Args:
            worker: Its number.
            make_seconds: What making the batch took it.
            wait_seconds: What the consumer waited.
            late_seconds: The part of that in which the batch was not finished; the rest is what taking it cost.
            size_bytes: Of the batch.

        Returns:
            Why workers are not worth it, where they are not.
        """
        epoch = self._epoch
        if epoch.start is None:
            epoch.start = max(0.0, wait_seconds - make_seconds)
        epoch.batches, epoch.made = epoch.batches + 1, epoch.made + make_seconds
        if self._looks >= _LOOKS:
            return None
        if worker not in self._known:
            self._known.add(worker)
            return None
        self._made.append(make_seconds)
        self._taken.append(wait_seconds - late_seconds)
        self._size_bytes = max(self._size_bytes, size_bytes)
        return self._look() if len(self._made) == _ENOUGH else None

    def _look(self) -> str | None:
        made, taken = median(self._made), median(self._taken)
        self._looks += 1
        self._made, self._taken = [], []
        if made > min(taken, _CREDIBLE * receive_seconds(self._size_bytes)):
            return None
        return f"a worker makes a batch in {format_seconds(made)}; taking it from the worker costs {format_seconds(taken)}"

    def epoch_over(self, start_method: StartMethod, *, complete: bool) -> str | None:
        """A pass has ended; why it was too short for workers that are started each time, where it was.

        Args:
            start_method: How they are.
            complete: All batches were taken; others tell nothing.
        """
        epoch, self._epoch = self._epoch, _Epoch()
        if epoch.start is None or not complete or epoch.made >= min(epoch.start, _CREDIBLE * START_SECONDS[start_method]):
            return None
        work = f"{format_count(epoch.batches, 'batch', 'batches')}, made in {format_seconds(epoch.made)}"
        return f"an epoch is {work} in all, and it takes {format_seconds(epoch.start)} until workers have started"
