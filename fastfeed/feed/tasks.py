"""What the inner loader's sampler gives: each batch of the outer loader as a task, and what is on its way."""

from collections.abc import Callable, Iterable, Iterator, Sized
from dataclasses import dataclass, field
from typing import Any


class BatchTask:
    """What goes to a worker for one batch.

    Args:
        number: Of the batch within the pass; negative: there is nothing to do, since enough is fetched ahead.
        indices: As the batch sampler gave them; a single index without batching.
        epoch: Which epoch it is; it travels with each task, so persistent workers know.
        base: What sample mode draws from; None in torch mode.
    """

    __slots__ = ("base", "epoch", "indices", "number")

    def __init__(self, number: int, indices: Any, epoch: int, base: int | None) -> None:  # noqa: ANN401 - any index
        self.number, self.indices, self.epoch, self.base = number, indices, epoch, base

    def __reduce__(self) -> tuple[Any, ...]:
        return BatchTask, (self.number, self.indices, self.epoch, self.base)


@dataclass(frozen=True, slots=True)
class Drawn:
    """A batch that the sampler gave."""

    indices: Any
    """Of its samples; a single index without batching."""
    start: int
    """Samples of this pass in the batches before it."""
    count: int
    """Samples in it."""


@dataclass(slots=True)
class Pass:
    """One pass over a sampler."""

    epoch: int
    base: int | None
    pending: dict[int, Drawn] = field(default_factory=dict)
    """Batches that are on their way, by number."""
    sampler_failed: bool = False
    """The sampler raised; the exception itself is not kept, since its traceback would keep the pass."""


class TaskOrder:
    """The inner loader's sampler.

    torch asks a sampler for its iterator once without workers, and twice with them; a sampler that draws random numbers
    at once draws them as often. Torch mode does the same. Otherwise the sampler is asked once for each pass, so that
    neither its random numbers nor its epoch depend on workers.

    Args:
        batches: The outer loader's batch sampler, or its sampler without batching.
        batched: Which of the two.
        once: Ask the sampler once a pass.
        early: Draw the first batch when the pass begins: a sampler of ours settles its epoch then.
    """

    def __init__(self, batches: Iterable[Any], *, batched: bool, once: bool = False, early: bool = False) -> None:
        self.batches, self.batched, self._once, self._early = batches, batched, once, early
        self.current = Pass(0, None)
        """The pass that was begun last."""
        self.most_ahead: int | None = None
        """So many batches may be on their way or waiting for their turn; None for as many as the workers take."""
        self._epoch_of: Callable[[], int] = int
        self._base: int | None = None
        self.round: int | None = None
        """So many batches are an epoch, where a pass has several; None where it has one."""
        self._tasks: _Tasks | None = None

    def begin(
        self, base: int | None, epoch_of: Callable[[], int], most_ahead: int | None, round_batches: int | None = None
    ) -> None:
        """The iterators that are asked for next are of a new pass.

        Args:
            base: What sample mode draws from; None in torch mode.
            epoch_of: Which epoch the pass is, once the sampler was asked for its iterator (and its first batch, if early).
            most_ahead: As the attribute.
            round_batches: As the attribute round.
        """
        self._base, self._epoch_of, self.most_ahead, self._tasks = base, epoch_of, most_ahead, None
        self.round = round_batches

    def begin_anew(self) -> None:
        """The pass that was begun last begins again: the sampler is asked for its iterator once more."""
        self._tasks = None

    def __iter__(self) -> Iterator[BatchTask]:
        if self._tasks is None or not self._once:
            self.current = Pass(-1, self._base)
            self._tasks = _Tasks(self, self.current, iter(self.batches))
            if self._early:
                self._tasks.look()
            self.current.epoch = self._epoch_of()
        return self._tasks

    def __len__(self) -> int:
        return len(self.batches)  # type: ignore[arg-type]


class _Tasks:
    """The tasks of one pass."""

    def __init__(self, order: TaskOrder, current: Pass, batches: Iterator[Any]) -> None:
        self._most_ahead, self._batched, self._pass, self._batches = order.most_ahead, order.batched, current, batches
        self._round = order.round
        self._number = self._start = 0
        self._first: list[Any] = []

    def __iter__(self) -> "_Tasks":
        return self

    def look(self) -> None:
        """Draw the first batch now."""
        self._first += [indices for indices in [next(self._batches, _END)] if indices is not _END]

    def __next__(self) -> BatchTask:
        """The next batch's task; or one without work, because torch asks for a task for each batch that came."""
        current = self._pass
        if self._most_ahead is not None and len(current.pending) >= self._most_ahead:
            return BatchTask(-1, None, current.epoch, current.base)
        try:
            indices = self._first.pop() if self._first else next(self._batches)
        except StopIteration:
            raise
        except Exception:  # whatever a sampler raises: it goes on as it is, and is not taken for a fault of a worker
            current.sampler_failed = True
            raise
        if self._batched and not isinstance(indices, Sized):
            indices = list(indices)  # an iterator can be read once, and failures name what was in it
        number, count = self._number, len(indices) if self._batched else 1
        current.pending[number] = Drawn(indices, self._start, count)
        self._number, self._start = number + 1, self._start + count
        epoch = current.epoch + (number // self._round if self._round else 0)
        return BatchTask(number, indices, epoch, current.base)


_END = object()
