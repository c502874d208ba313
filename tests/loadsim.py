"""A loader that only exists in numbers: worker processes, processors, a disk and a consumer, event by event.

It does what torch's loader does: batch k of a crew of W workers is made by worker k mod W, at most W x prefetch batches are
asked for and not delivered, and delivery is in order. A batch is a wait (for disk or network) and then work (on a
processor). Everything that wants a processor shares the cores that there are: workers, workers that start, the consumer.
"""

import random
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from fastfeed.feed.measuring import Observation
from fastfeed.feed.tuning import Resize


@dataclass(frozen=True, kw_only=True)
class Load:
    """All times in ms."""

    work: float
    """Processor time of a batch in a worker."""
    wait: float = 0.0
    """Time that a worker waits for a batch's bytes, with the disk to itself."""
    step: float
    """The consumer's time that needs no processor (the GPU computes)."""
    step_work: float = 2.0
    """The consumer's time on a processor, each batch."""
    receive: float = 0.3
    cores: float = 16.0
    streams: float = 1e9
    """Reads that the disk serves at full speed; more share that."""
    thrash: float = 0.0
    """What each process beyond the cores costs all of them: 0.02 is 2 %."""
    cv: float = 0.2
    """Coefficient of variation of a batch's time."""
    tail: tuple[float, float] = (0.0, 1.0)
    """(probability, factor): some batches take longer."""
    step_cv: float = 0.03
    start: float = 40.0
    """Work to start one worker."""
    first_step: float = 0.0
    """What the first step takes besides (compilation)."""
    pauses: tuple[int, float] = (0, 0.0)
    """(every so many batches, ms): checkpoints, validation."""
    neighbours: tuple[tuple[float, float, float], ...] = ()
    """(from ms, to ms, cores taken)."""
    prefetch: int = 2
    restart: bool = False
    """Whether a new number of workers throws away what was made ahead."""


@dataclass
class Run:
    """What came of it."""

    seconds: float
    """From the first request to the end of the last step."""
    workers: list[int]
    """By batch."""
    delivered: list[float]
    """Times in seconds."""
    resizes: list[tuple[int, int]] = field(default_factory=list)
    """(after this many batches, to)."""
    decisions: list[object] = field(default_factory=list)


@dataclass
class _Process:
    """Something that makes progress: on a processor, on the disk, or just in time."""

    kind: str
    left: float


class _Worker:
    def __init__(self, start: float) -> None:
        self.phases = deque([_Process("cpu", start)])
        self.queue: deque[int] = deque()
        self.current: int | None = None
        self.began = 0.0


@dataclass
class _Crew:
    size: int
    first: int
    workers: list[_Worker]
    asked: int = 0
    """Batches given out so far."""
    open: bool = True


Policy = Callable[[Observation], object]


def simulate(load: Load, workers: int, batches: int, seed: int = 0, policy: Policy | None = None) -> Run:
    """Run an epoch.

    Args:
        load: What it is made of.
        workers: To begin with.
        batches: How many the epoch has.
        seed: Of all that is random.
        policy: Hears of each delivered batch; a Resize that it returns is done at once.
    """
    return _Simulation(load, workers, batches, seed, policy).run()


class _Simulation:
    def __init__(self, load: Load, workers: int, batches: int, seed: int, policy: Policy | None) -> None:
        self.load, self.batches, self.policy = load, batches, policy
        random_ = random.Random(seed)
        sigma = max(1e-9, load.cv)
        self.factors = []
        for _ in range(batches):
            factor = random_.lognormvariate(-sigma * sigma / 2, sigma)
            self.factors.append(factor * (load.tail[1] if random_.random() < load.tail[0] else 1.0))
        self.steps = [max(0.0, random_.gauss(load.step, load.step * load.step_cv)) for _ in range(batches)]
        self.now = 0.0
        self.made: dict[int, tuple[float, float, int]] = {}  # batch -> wall ms, work ms, size of its crew
        self.crews: list[_Crew] = []
        self.result = Run(0.0, [], [])
        self.new_crew(workers, 0)

    def new_crew(self, size: int, first: int) -> None:
        self.crews.append(_Crew(size, first, [_Worker(self.load.start) for _ in range(size)]))
        self.ask(size * self.load.prefetch)

    def ask(self, count: int) -> None:
        crew = self.crews[-1]
        for _ in range(count):
            if crew.first + crew.asked < self.batches:
                crew.workers[crew.asked % crew.size].queue.append(crew.first + crew.asked)
                crew.asked += 1

    def active(self) -> list[tuple[_Worker, _Process]]:
        found = []
        for crew in self.crews:
            for worker in crew.workers:
                if not worker.phases and worker.queue:
                    worker.current = worker.queue.popleft()
                    worker.began = self.now
                    factor = self.factors[worker.current]
                    worker.phases.append(_Process("disk", self.load.wait * factor))
                    worker.phases.append(_Process("cpu", self.load.work * factor))
                if worker.phases:
                    found.append((worker, worker.phases[0]))
        return found

    def advance(self, own: _Process | None) -> bool:
        """Until something ends; whether the consumer's own process did."""
        active = self.active()
        on_cpu = sum(1 for _, process in active if process.kind == "cpu") + (own is not None and own.kind == "cpu")
        on_disk = sum(1 for _, process in active if process.kind == "disk")
        taken = sum(cores for begin, end, cores in self.load.neighbours if begin <= self.now < end)
        cores = max(0.5, self.load.cores - taken)
        cpu = min(1.0, cores / max(1, on_cpu)) / (1.0 + self.load.thrash * max(0.0, on_cpu - cores))
        rates = {"cpu": cpu, "disk": min(1.0, self.load.streams / max(1, on_disk)), "time": 1.0}
        every = [process for _, process in active] + ([own] if own else [])
        if not every:
            raise AssertionError("nothing is going on")
        passed = min(process.left / rates[process.kind] for process in every)
        edges = [edge - self.now for begin, end, _ in self.load.neighbours for edge in (begin, end) if edge > self.now]
        passed = min([passed, *edges])
        self.now += passed
        for process in every:
            process.left -= passed * rates[process.kind]
        for worker, process in active:
            if process.left <= 1e-9:
                worker.phases.popleft()
                if not worker.phases and worker.current is not None:
                    size = next(crew.size for crew in self.crews if worker in crew.workers)
                    self.made[worker.current] = (self.now - worker.began, self.load.work * self.factors[worker.current], size)
                    worker.current = None
        return own is not None and own.left <= 1e-9

    def spend(self, kind: str, ms: float) -> None:
        own = _Process(kind, ms)
        while own.left > 1e-9 and not self.advance(own):
            pass

    def run(self) -> Run:
        ended = 0.0
        for batch in range(self.batches):
            called = self.now
            while batch not in self.made:
                self.advance(None)
            late = self.now - called
            self.spend("cpu", self.load.receive)
            wall, work, size = self.made[batch]
            seen = Observation(
                wait_seconds=(self.now - called) / 1e3,
                step_seconds=(called - ended) / 1e3,
                workers=size,
                late_seconds=late / 1e3,
                make_seconds=wall / 1e3,
                work_seconds=work / 1e3,
                remaining=self.batches - batch - 1,
            )
            ended = self.now
            self.result.delivered.append(self.now / 1e3)
            self.result.workers.append(size)
            if self.crews[-1].first <= batch:
                del self.crews[:-1]  # the crew before has given all that it was asked for
                self.ask(1)
            self.decide(seen, batch)
            self.step(batch)
        self.result.seconds = self.now / 1e3
        return self.result

    def decide(self, seen: Observation, batch: int) -> None:
        decision = self.policy(seen) if self.policy else None
        if decision is not None:
            self.result.decisions.append(decision)
        if isinstance(decision, Resize):
            self.result.resizes.append((batch + 1, decision.workers))
            crew = self.crews[-1]
            following = crew.first + crew.asked
            if self.load.restart:
                following = batch + 1
                self.crews.clear()
                self.made = {}
            self.new_crew(decision.workers, following)

    def step(self, batch: int) -> None:
        self.spend("cpu", self.load.step_work)
        every, pause = self.load.pauses
        extra = self.load.first_step if batch == 0 else pause if every and batch % every == every - 1 else 0.0
        self.spend("time", self.steps[batch] + extra)


def sweep(load: Load, counts: Iterable[int], turns: int = 12, seed: int = 0) -> dict[int, float]:
    """Seconds a batch, by number of workers, in the steady state (after what was made ahead at the start is used up)."""
    quiet = replace(load, pauses=(0, 0.0), first_step=0.0)
    found = {}
    for workers in counts:
        begin = 3 * workers * load.prefetch
        batches = begin + max(200, turns * workers)
        times = simulate(quiet, workers, batches + workers * load.prefetch, seed).delivered[:batches]
        found[workers] = (times[-1] - times[begin]) / (batches - 1 - begin)
    return found


def best_of(swept: dict[int, float], tolerance: float = 0.03) -> tuple[int, int]:
    """The fewest and the most workers whose batch time is the best but for the tolerance."""
    least = min(swept.values())
    good = [workers for workers, seconds in swept.items() if seconds <= least * (1 + tolerance)]
    return min(good), max(good)
