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
    most_ahead: int | None = None
    """So many batches may be on their way or waiting for their turn; None for as many as the workers take."""
    round_batches: int | None = None
    """So many batches are an epoch, where a pass has several; None where it has one."""
    pending: dict[int, Drawn] = field(default_factory=dict)
    """Batches that are on their way, by number."""
    number: int = 0
    """Of the batch that is drawn next."""
    start: int = 0
    """Samples in the batches before it."""
    ended: bool = False
    """The sampler has no more."""
    sampler_failed: bool = False
    """The sampler raised; the exception itself is not kept, since its traceback would keep the pass."""


class TaskOrder:
    """The inner loader's sampler.

    torch asks a sampler for its iterator once without workers, and twice with them; a sampler that draws random numbers
    at once draws them as often. Torch mode does the same. Otherwise the sampler is asked once for each pass, so that
    neither its random numbers nor its epoch depend on workers. Such a pass can be handed over to another inner loader.

    Args:
        batches: The outer loader's batch sampler, or its sampler without batching.
        batched: Which of the two.
        once: Ask the sampler once a pass.
        early: Draw the first batch when the pass begins: a sampler of ours settles its epoch then.
    """

    def __init__(self, batches: Iterable[Any], *, batched: bool, once: bool = False, early: bool = False) -> None:
        self.batches, self.batched, self.once, self._early = batches, batched, once, early
        self.current = Pass(0, None)
        """The pass that was begun last."""
        self._epoch_of: Callable[[], int] = int
        self._base: int | None = None
        self._most_ahead: int | None = None
        self._round: int | None = None
        self._tasks: Tasks | None = None

    def begin(
        self, base: int | None, epoch_of: Callable[[], int], most_ahead: int | None, round_batches: int | None = None
    ) -> None:
        """The iterators that are asked for next are of a new pass.

        Args:
            base: What sample mode draws from; None in torch mode.
            epoch_of: Which epoch the pass is, once the sampler was asked for its iterator (and its first batch, if early).
            most_ahead: As a pass's attribute, to begin with.
            round_batches: As a pass's attribute.
        """
        self._base, self._epoch_of, self._most_ahead, self._tasks = base, epoch_of, most_ahead, None
        self._round = round_batches

    def begin_anew(self) -> None:
        """The pass that was begun last begins again: the sampler is asked for its iterator once more."""
        self._tasks = None

    def hand_over(self, *, later: bool = False) -> "Handover":
        """The iterators that are asked for next go on with the current pass; those before as well, until it is done.

        Args:
            later: Until then the next ones give tasks without work.
        """
        assert self._tasks is not None
        before, self._tasks = self._tasks, self._tasks.beside(later=later)
        return Handover(before, self._tasks, None if later else self.current.number)

    def take_back(self, handover: "Handover") -> None:
        """Nothing came of it."""
        self._tasks = handover.before

    def __iter__(self) -> Iterator[BatchTask]:
        if self._tasks is None or not self.once:
            self.current = Pass(-1, self._base, self._most_ahead, self._round)
            self._tasks = Tasks(self.current, iter(self.batches), batched=self.batched)
            if self._early:
                self._tasks.look()
            self.current.epoch = self._epoch_of()
        return self._tasks

    def __len__(self) -> int:
        return len(self.batches)  # type: ignore[arg-type]


class Tasks:
    """The tasks of one pass, for one inner loader."""

    def __init__(self, current: Pass, batches: Iterator[Any], *, batched: bool, first: list[Any] | None = None) -> None:
        self._pass, self._batches, self._batched = current, batches, batched
        self._first: list[Any] = [] if first is None else first
        self.ended = self.rests = False
        """No more for this inner loader; or none with work for now."""

    def __iter__(self) -> "Tasks":
        return self

    def beside(self, *, later: bool) -> "Tasks":
        """Those of another inner loader: each batch goes to one of the two."""
        other = Tasks(self._pass, self._batches, batched=self._batched, first=self._first)
        other.rests = later
        return other

    @property
    def coming(self) -> int:
        """Number of the batch that is drawn next."""
        return self._pass.number

    def look(self) -> None:
        """Draw the first batch now."""
        self._first += [indices for indices in [next(self._batches, _END)] if indices is not _END]

    def __next__(self) -> BatchTask:
        """The next batch's task; or one without work, because torch asks for a task for each batch that came."""
        current = self._pass
        if self.ended or current.ended:
            raise StopIteration
        if self.rests or (current.most_ahead is not None and len(current.pending) >= current.most_ahead):
            return BatchTask(-1, None, current.epoch, current.base)
        try:
            indices = self._first.pop() if self._first else next(self._batches)
        except StopIteration:
            current.ended = True
            raise
        except Exception:  # whatever a sampler raises: it goes on as it is, and is not taken for a fault of a worker
            current.sampler_failed = True
            raise
        if self._batched and not isinstance(indices, Sized):
            indices = list(indices)  # an iterator can be read once, and failures name what was in it
        number, count = current.number, len(indices) if self._batched else 1
        current.pending[number] = Drawn(indices, current.start, count)
        current.number, current.start = number + 1, current.start + count
        epoch = current.epoch + (number // current.round_batches if current.round_batches else 0)
        return BatchTask(number, indices, epoch, current.base)


@dataclass(frozen=True, slots=True)
class Handover:
    """From the tasks of one inner loader to those of the next."""

    before: Tasks
    after: Tasks
    first: int | None
    """Number of the first batch that the next one has; None while it rests."""

    def __call__(self) -> int:
        """From here on all batches go to the next.

        Returns:
            Number of its first one.
        """
        self.before.ended, self.after.rests = True, False
        return self.after.coming if self.first is None else self.first


_END = object()
