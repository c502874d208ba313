"""How the batches of a pass come back: in the sampler's order, or as they come; all of them, or an error says why."""

import time
from functools import partial

from fastfeed.feed.crew import DYING_SECONDS, about_workers
from fastfeed.feed.inner import has_arrived
from fastfeed.feed.naming import indices_text
from fastfeed.feed.shifts import Shift, Shifts, hanging
from fastfeed.feed.timing import Answer
from fastfeed.feed.watchman import Watchman

_AT_ONCE = 4
"""So many batches are received at most when it is only looked whether one is there."""


class Receiver:
    """What a pass takes its batches from.

    Args:
        shifts: The inner loaders that make them.
    """

    def __init__(self, shifts: Shifts) -> None:
        self._shifts = shifts
        self._options = shifts.front.made.options
        self._pass = shifts.front.made.order.current
        self._watch: Watchman | None = None
        self.early: dict[int, Answer] = {}
        """Batches that came before their turn."""
        self.next = 0
        """Number of the batch whose turn it is."""
        self._begun_ns = time.monotonic_ns()
        self._broken: str | None = None

    @property
    def broken(self) -> str | None:
        """Why nothing more can come."""
        return self._broken

    @broken.setter
    def broken(self, why: str | None) -> None:
        self._broken = why

    def take(self) -> Answer:
        """The batch whose turn it is.

        Raises:
            StopIteration: There is none.
            RuntimeError: In torch's words: a worker died or took longer than timeout.
        """
        self._shifts.turn(self.next)
        if self.next not in self.early:
            self.next = self._await()
        answer = self.early.pop(self.next)
        self.next += 1
        return answer

    def arrived(self, held: int) -> bool:
        """Whether take() would give a batch now, without waiting, as far as it can be told: it may be a moment before it does.

        Args:
            held: Batches that were taken and not handed out yet.

        Raises:
            Exception: As take().
        """
        if self.next in self.early:
            return True
        if len(self._pass.pending) <= held + len(self.early):
            return False  # none is on its way
        self._shifts.turn(self.next)
        front = self._shifts.front
        if self._options.in_order:
            return self._is_made(front)
        if not self._options.sorts:
            return has_arrived(front.inner)
        for _ in range(_AT_ONCE):
            if self.next in self.early or not has_arrived(self._shifts.front.inner):
                break
            answer = self._receive()
            if answer.number >= 0:
                self._keep(answer)
        return self.next in self.early

    def _is_made(self, shift: Shift) -> bool:
        """Whether the batch whose turn it is was made, by the table in which workers say what they are at.

        With in_order, torch deals batches to workers in turn. What it receives before a batch's turn waits inside of torch.
        """
        workers = shift.made.crew.workers
        return workers is not None and workers.has_made(self.next, self.next % workers.count, self._begun_ns)

    def greet(self, shift: Shift) -> None:
        """Take from a crew that has just taken over the answers to its tasks without work: only then it gets others."""
        waiting = shift.made.options.in_flight
        while waiting:
            answer = next(shift.inner)
            if answer.number >= 0:
                self._keep(answer)
            else:
                waiting -= 1

    def _await(self) -> int:
        """Receive until the batch whose turn it is has come; its number. Where nothing is sorted, any batch has its turn."""
        since = time.monotonic()
        watch = self._watchman()
        if watch is not None:
            watch.waiting()
        try:
            while True:
                answer = self._receive()
                if answer.number >= 0:
                    self._keep(answer)
                    if answer.number == self.next or not self._options.sorts:
                        return answer.number
                if 0 < self._options.timeout < time.monotonic() - since:
                    msg = f"DataLoader timed out after {self._options.timeout} seconds"
                    raise RuntimeError(msg)  # torch's words: it heard from the other workers
        finally:
            if watch is not None:
                watch.arrived()

    def _keep(self, answer: Answer) -> None:
        self.early[answer.number] = answer
        if answer.times is not None:
            self._shifts.received(answer.times.size_bytes, answer.times.tensors)

    def _receive(self) -> Answer:
        try:
            found: Answer = self._shifts.receive()
        except StopIteration:
            self._prove_complete()
            self._shifts.ended()
            raise
        except Exception as error:  # torch gives on whatever went wrong in a worker: here it is told apart, and raised
            if self._pass.sampler_failed or about_workers(error):
                raise
            if str(error).startswith("Caught "):  # of worker_init_fn: such a worker cannot go on
                self.broken = str(error)
                error.__traceback__ = None  # torch's frames make a circle with it, which would keep the workers for a while
                raise
            crew = self._shifts.front.made.crew
            lost = crew.obituary(DYING_SECONDS) if isinstance(error, OSError | EOFError | RuntimeError) else None
            if lost is None:
                raise
            raise RuntimeError(lost) from error  # a worker died while it handed over a tensor
        return found

    def _prove_complete(self) -> None:
        """Everything that the sampler gave was delivered."""
        pending = self._pass.pending
        if pending:
            first = next(iter(pending))
            msg = (
                f"the epoch ended with {len(pending)} batches missing, the first is batch {first} "
                f"{indices_text(pending[first].indices)}: this is a fault of the loader, please report it"
            )
            raise RuntimeError(msg)

    def _watchman(self) -> Watchman | None:
        """Who looks after workers while they are waited for."""
        seconds = self._options.hang_seconds
        if self._watch is None and seconds > 0 and self._shifts.front.made.options.num_workers:
            self._watch = Watchman(partial(hanging, self._shifts.crews, seconds), seconds)
        return self._watch

    def stop(self) -> None:
        """Nobody is looked after any more."""
        if self._watch is not None:
            self._watch.stop()

    def __del__(self) -> None:
        self.stop()
