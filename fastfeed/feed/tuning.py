"""The number of workers, corrected while training runs, to where the consumer no longer waits.

Not to the largest throughput: a worker more than needed takes the training process's time. The tuner measures a number of
workers (measuring.py), tries another one only where the measurement says what would be gained, tries none twice, stays below
the plan's ceilings, and stops with a reason. Pure: no clock, no threads; the loader tells it of each batch and does what it
says.
"""

from collections import deque
from dataclasses import dataclass

from fastfeed.feed.ceilings import Ceiling
from fastfeed.feed.costs import START_SECONDS
from fastfeed.feed.measuring import MANY_BLOCKS, MOST_BLOCKS, Block, Observation, Point, Window, figure
from fastfeed.feed.sizing import WorkerPlan
from fastfeed.units import format_count, format_seconds

MOST_TRIALS = 7
BUDGET_BATCHES, BUDGET_SECONDS = 200, 60.0
"""No number of workers is tried once both have passed."""
GROWTH = 4
"""At most so many times as many workers at a step."""
SPARE, SPARE_WHEN_FEWER = 1.1, 1.2
"""Workers beyond the mean need, because batches take unequal times."""
SAME = 0.02
"""Batch times that differ by less are the same; then fewer workers are better."""
LINEAR = 0.7
"""Where at least this part of what more workers should have gained was gained, still more may gain."""
SHRINK_COST = 0.01
"""Fewer workers are worth at most this part of what is left of the epoch."""
REOPENINGS, WATCH_BATCHES, HUNGRY_BLOCKS, HUNGRY = 2, 64, 2, 0.1
"""How often tuning may begin again, and after how many times so many batches for which the consumer waited for more than
this part of its time."""
MOSTLY_WAITING, LEAST_WORKING = 0.7, 0.02
"""A worker that uses a processor for less than this part of its time waits for something else."""
SHORT_EPOCHS = 3
"""After so many epochs in a row that were too short to measure, tuning gives up."""
SATURATED = 0.3
"""Where less than this part was gained, still more workers gain nothing."""
KNEE = 0.75
"""Fewer workers that should give the same are tried where they are at most this part."""
HISTORY = 64
"""Sentences that are kept."""


@dataclass(frozen=True, slots=True)
class Resize:
    """Go on with so many workers, from the next batch on."""

    workers: int
    why: str


@dataclass(frozen=True, slots=True)
class Stop:
    """So many workers are it."""

    workers: int
    why: str


class Tuner:
    """Hears of each delivered batch and says what to do.

    Args:
        plan: Where to start, and the ceilings.
        start_seconds: What a new number of workers costs the consumer; the loader may correct the attribute of this name
            when it has measured that.
    """

    def __init__(self, plan: WorkerPlan, start_seconds: float | None = None) -> None:
        self.start_seconds = START_SECONDS[plan.start_method] if start_seconds is None else start_seconds
        self.workers = plan.num_workers
        """What should be running."""
        self.stopped: Stop | None = None
        """Why tuning stopped; None while it goes on."""
        self.log: deque[str] = deque(maxlen=HISTORY)
        """Sentences: what was measured, what was decided."""
        self._plan = plan
        self._points: dict[int, Point] = {}
        self._trials = 0
        self._batches, self._seconds = 0, 0.0
        self._remaining: int | None = None
        self._deferred: Resize | None = None
        self._ending: Stop | None = None
        self._reopened, self._sated = 0, False
        self._epoch_batches, self._short_epochs = 0, 0
        self._slowest = [0.0, 0.0]
        self._watched = [Block()]
        self._window = Window(max(1, self.workers), settle=max(5, self.workers))

    def observe(self, seen: Observation) -> Resize | Stop | None:
        """A batch was delivered.

        The loader need not do a Resize at once, but batches of another number of workers than ``self.workers`` are not
        counted. Counted are batches made after it: those that the crew before has made ahead carry that crew's number.

        Returns:
            What to do now; None: nothing. A Stop comes when there is nothing left to try. It is the last word, except where
            a consumer that did not wait waits for long later on (its steps got shorter, the cache colder): then there are
            at most two more rounds, upwards only.
        """
        self._batches, self._epoch_batches = self._batches + 1, self._epoch_batches + 1
        self._seconds += seen.wait_seconds + seen.step_seconds
        self._remaining = seen.remaining
        if seen.make_seconds is not None and self._batches > self.workers:
            _, *slowest = sorted((*self._slowest, seen.make_seconds))
            self._slowest = slowest
        if self.stopped is not None:
            return self._watch(seen)
        ended = self._ending.why if self._ending else self._closed()
        if ended is not None:
            return self._stop(ended)
        point = self._window.add(seen)
        if point is None:
            return None
        self._points[point.workers] = point
        self.log.append(_figures(point))
        self._window = Window(self.workers, settle=0)
        return self._decide()

    def learn(self, plan: WorkerPlan) -> Resize | None:
        """The plan was made anew, since more is known, such as the size of batches.

        Returns:
            Fewer workers, where there is no room for as many as there are.
        """
        self._plan = plan
        lowest = plan.lowest(waiting=True)
        if not 0 < lowest.workers < self.workers:
            return None
        return self._resize(Resize(lowest.workers, f"{format_count(lowest.workers, 'worker')}: {lowest.why}"))

    def epoch_began(self) -> Resize | None:
        """A new epoch begins, perhaps with new workers.

        Returns:
            A number of workers that was not worth a restart within the epoch before.
        """
        short = 0 < self._epoch_batches < self.workers + self._window.size
        batches, self._epoch_batches = self._epoch_batches, 0
        self._short_epochs = self._short_epochs + 1 if short else 0
        self._window.interrupt(settle=max(1, self.workers))
        deferred, self._deferred = self._deferred, None
        if deferred is None or self._trials >= MOST_TRIALS or not self._worth_starting(deferred, batches):
            return None
        self._trials += 1
        self.stopped = None
        return self._resize(deferred)

    def _closed(self) -> str | None:
        """Why there is nothing to tune."""
        if not self._plan.decided:
            return f"{format_count(self.workers, 'worker')}: num_workers was given"
        if self._short_epochs >= SHORT_EPOCHS:
            return f"an epoch ends before {format_count(self.workers, 'worker')} can be measured"
        return None if self.workers else self._plan.why[0]

    def _decide(self) -> Resize | Stop | None:
        before, self._deferred = self._deferred, None
        found = self._proposal()
        over = self._batches >= BUDGET_BATCHES and self._seconds >= BUDGET_SECONDS
        if isinstance(found, Resize) and (over or self._trials >= MOST_TRIALS):
            spent = f"{self._trials} trials, {self._batches} batches, {format_seconds(self._seconds)}"
            found = Stop(self._best().workers, f"measuring has taken long enough ({spent})")
        if isinstance(found, Resize):
            if self._worth(found):
                self._trials += 1
                return self._resize(found)
            if found != before:
                self.log.append(f"not within this epoch, whose rest gains less than the change costs: {found.why}")
            self._deferred = found
            return self._stop(f"the consumer no longer waits; {found.why}") if found.workers < self.workers else None
        if found.workers == self.workers:
            return self._stop(found.why)
        self._ending = found
        return self._resize(Resize(found.workers, f"back to {format_count(found.workers, 'worker')}: {found.why}"))

    def _resize(self, to: Resize) -> Resize:
        self.workers = to.workers
        settle = to.workers * max(1, self._plan.prefetch_factor or 1)
        self._window = Window(to.workers, settle, after_another=True, fewest=MOST_BLOCKS if self._reopened else MANY_BLOCKS)
        self.log.append(to.why)
        return to

    def _stop(self, why: str) -> Stop:
        self.stopped, self._ending = Stop(self.workers, why), None
        self._sated = self.workers in self._points and not self._points[self.workers].starving
        self._watched = [Block()]
        self.log.append(f"stopped at {format_count(self.workers, 'worker')}: {why}")
        return self.stopped

    def _worth(self, to: Resize) -> bool:
        """Whether the rest of the epoch gains what the change costs."""
        here = self._points[self.workers]
        if to.workers < self.workers:
            rest = BUDGET_SECONDS if self._remaining is None else self._remaining * here.batch_seconds
            return self.start_seconds <= SHRINK_COST * rest
        return self._remaining is None or self._saved(to) * self._remaining > self.start_seconds

    def _worth_starting(self, to: Resize, batches: int) -> bool:
        """Whether an epoch of so many batches gains what starting more workers each time costs."""
        if to.workers < self.workers or self._plan.persistent_workers:
            return True
        return self._saved(to) * batches > self.start_seconds * (to.workers / self.workers - 1)

    def _saved(self, to: Resize) -> float:
        """Seconds a batch that more workers should gain."""
        here = self._points[self.workers]
        return here.batch_seconds - max(here.own_seconds, here.batch_seconds * self.workers / to.workers)

    def _watch(self, seen: Observation) -> Resize | Stop | None:
        """After the stop: begin again where the consumer waits, again and again, and did not before."""
        if self._reopened >= REOPENINGS or not self._sated or self.workers >= self._most().workers:
            return None
        self._watched[-1].add(seen)
        if self._watched[-1].batches < WATCH_BATCHES:
            return None
        if any(block.waiting <= HUNGRY for block in self._watched):
            self._watched = [Block()]
            return None
        if len(self._watched) < HUNGRY_BLOCKS:
            self._watched.append(Block())
            return None
        point = figure(self.workers, self._watched)
        self._reopened, self._trials, self.stopped = self._reopened + 1, 0, None
        self._batches, self._seconds = 0, 0.0
        self._points = {self.workers: point}
        self.log.append(f"tuning goes on: the consumer waits again, {point.waiting:.0%} of its time")
        return self._decide()

    def _best(self) -> Point:
        """The fewest workers that are as good as any."""
        least = min(self._points.values(), key=_at_worst)
        return next(point for _, point in sorted(self._points.items()) if _as_good(point, least))

    def _most(self) -> Ceiling:
        """The lowest ceiling: where workers mostly wait, by the processor time that they were seen to take."""
        lowest = self._plan.lowest()
        told = [point.working for point in self._points.values() if point.working is not None]
        if not told or max(told) > MOSTLY_WAITING or lowest.name != "processors":
            return lowest
        working = max(*told, LEAST_WORKING)
        bearable = int(self._plan.processors / working)
        why = f"they use a processor for {working:.0%} of their time, and there are {self._plan.processors:.3g}"
        waiting = min(self._plan.lowest(waiting=True), Ceiling("processors", bearable, why), key=_size)
        return max(lowest, waiting, key=_size)

    def _proposal(self) -> Resize | Stop:
        """What to try next, or why nothing."""
        best = self._best()
        left = max((point for point in self._points.values() if point.workers < best.workers), key=_size, default=None)
        right = min((point for point in self._points.values() if point.workers > best.workers), key=_size, default=None)
        if not best.starving:
            to, stop = self._fewer(best, left), f"the consumer no longer waits ({best.waiting:.1%} of its time)"
        elif right is None:
            to, stop = self._more(best, left)
        else:
            to, stop = self._between(best, left, right)
        return to if to is not None and to.workers not in self._points else Stop(best.workers, stop)

    def _more(self, best: Point, left: Point | None) -> tuple[Resize | None, str]:
        """Upwards, as far as the supply that was measured says, if the last step upwards did gain."""
        gained = 1.0 if left is None else _gained(left, best)
        if gained < SATURATED and left is not None:
            return _knee(left, best), _no_more(left, best)
        most = self._most()
        if best.workers >= most.workers:
            stop = f"the consumer waits {best.waiting:.0%} of its time, and there is no room for more workers: {most.why}"
            return (_knee(left, best) if left else None), stop
        need = max(best.workers * best.batch_seconds / max(best.own_seconds, 1e-9) * SPARE, self._for_slow(best))
        to = int(max(best.workers + 1, min(-(-need // 1), GROWTH * best.workers, most.workers)))
        why = f"{to} workers: with {best.workers} the consumer waits {best.waiting:.0%} of its time"
        return Resize(to, why), ""

    def _for_slow(self, point: Point) -> float:
        """Workers whose batches ahead last while a slow batch is made: what follows it waits for it.

        The second slowest counts: one hiccup is none that comes again.
        """
        return self._slowest[0] / (max(point.own_seconds, 1e-9) * max(1, self._plan.prefetch_factor or 1))

    def _between(self, best: Point, left: Point | None, right: Point) -> tuple[Resize | None, str]:
        """More did not gain: the best may lie before it, if supply still grew evenly up to here."""
        tried = sum(1 for workers in self._points if workers > best.workers)
        even = tried == 1 if left is None else _gained(left, best) >= LINEAR
        if even and right.workers - best.workers > 2:  # noqa: PLR2004 - then nothing is further than one from either
            to = (best.workers + right.workers) // 2
            return Resize(to, f"{to} workers: {_no_more(best, right)}, but fewer may"), _no_more(best, right)
        return (_knee(left, best) if left else None), _no_more(best, right)

    def _fewer(self, best: Point, left: Point | None) -> Resize | None:
        """Downwards, to what the workers' own times say is needed: the rest only takes processors from the consumer."""
        if best.make_seconds is None or self._reopened:
            return None
        need = max(-(-best.make_seconds * SPARE_WHEN_FEWER // max(best.own_seconds, 1e-9)), -(-self._for_slow(best) // 1))
        if left is not None:
            need = max(need, left.workers + 1, -(-left.workers * left.batch_seconds * SPARE // max(left.own_seconds, 1e-9)))
        to = int(max(2, need))  # with a single one, nothing is made while it is slow
        if best.workers - to < 2:  # noqa: PLR2004 - one worker is not worth it
            return None
        why = f"a batch takes a worker {format_seconds(best.make_seconds)}, the consumer {format_seconds(best.own_seconds)}"
        return Resize(to, f"{to} workers are enough: {why}")


def _size(counted: Point | Ceiling) -> int:
    return counted.workers


def _as_good(point: Point, other: Point) -> bool:
    """Whether a batch takes no longer than with the other, as far as was measured."""
    return _at_worst(point) <= _at_worst(other) * (1 + SAME)


def _at_worst(point: Point) -> float:
    """A figure of few batches has to be better by its error."""
    return point.batch_seconds * (1 + point.error)


def _gained(few: Point, many: Point) -> float:
    """How much of what more workers should have gained they did gain: 1 where supply grows with them, 0 where it does not."""
    return (few.batch_seconds / many.batch_seconds - 1) / (many.workers / few.workers - 1)


def _knee(few: Point, many: Point) -> Resize | None:
    """As many as give what many do, had supply grown evenly from few on; None where that is (nearly) many or few."""
    to = int(-(-few.workers * few.batch_seconds // many.batch_seconds))
    if not few.workers < to <= KNEE * many.workers:
        return None
    return Resize(to, f"{to} workers should give what {many.workers} gave ({format_seconds(many.batch_seconds)} a batch)")


def _no_more(few: Point, many: Point) -> str:
    before, after = format_seconds(few.batch_seconds), format_seconds(many.batch_seconds)
    return f"{many.workers} workers gave no more than {few.workers} ({after} a batch, {before} with {few.workers})"


def _figures(point: Point) -> str:
    """A measurement as a sentence."""
    text = f"{format_count(point.workers, 'worker')}: {format_seconds(point.batch_seconds)} a batch"
    return f"{text} (within {point.error:.0%}), of which the consumer waits {point.waiting:.0%}"
