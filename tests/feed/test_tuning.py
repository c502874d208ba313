"""fastfeed/feed/tuning.py: against a loader that exists in numbers (loadsim.py), over many seeds, and decision by decision."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from loadsim import Load, best_of, simulate, sweep
from machines import machine

from fastfeed.feed.ceilings import SizingFacts, WorkerRequest
from fastfeed.feed.measuring import Observation
from fastfeed.feed.sizing import WorkerPlan, plan_workers
from fastfeed.feed.tuning import MOST_TRIALS, REOPENINGS, Resize, Stop, Tuner

BATCHES = 600

# name -> (load, processors of the plan, most resizes, most of the epoch's time lost against the best number from the start)
LOADS = {
    "the GPU decides": (Load(work=30, step=60), 16, 1, 0.02),
    "nine of sixteen needed": (Load(work=400, step=45, step_work=5), 16, 2, 0.10),
    "never enough": (Load(work=1200, step=40, step_work=5), 16, 2, 0.06),
    "nothing but loading": (Load(work=50, step=0, step_work=0.2), 16, 2, 0.06),
    "latency of a network": (Load(work=20, wait=600, step=15), 16, 4, 0.40),
    "a disk that serves six": (Load(work=20, wait=200, step=15, streams=6), 16, 8, 0.06),
    "others leave nine and a half": (Load(work=600, step=30, cores=9.5, thrash=0.02), 16, 8, 0.20),
    "hyper-threads": (Load(work=200, step=50, cores=8), 8, 2, 0.05),
    "two processors": (Load(work=60, step=20, step_work=10, cores=2), 2, 0, 0.01),
    "four processors, never enough": (Load(work=300, step=30, step_work=5, cores=4), 4, 0, 0.01),
    "a long first step": (Load(work=400, step=45, first_step=20000), 16, 3, 0.10),
    "checkpoints": (Load(work=400, step=45, pauses=(40, 3000)), 16, 2, 0.05),
    "slow batches": (Load(work=9000, step=1000), 16, 2, 0.10),
    "tiny batches": (Load(work=3, step=1.5, step_work=0.3), 16, 1, 0.02),
    "a consumer robbed of its processor": (Load(work=200, step=5, step_work=20, cores=8, thrash=0.03), 8, 2, 0.08),
}


def planned(processors: int = 16, **of_machine) -> WorkerPlan:
    return plan_workers(WorkerRequest(), SizingFacts(machine=machine(processors=processors, **of_machine)))


@cache
def swept(name: str) -> dict[int, float]:
    """Seconds a batch by number of workers: all that the plan's ceilings allow."""
    load, processors, _, _ = LOADS[name]
    most = planned(processors).lowest(waiting=load.wait > load.work).workers
    found: dict[int, float] = sweep(load, [*range(1, min(most, 16) + 1), *range(18, min(most, 48) + 1, 2)])
    return found


def distance(name: str, workers: int) -> int:
    """Workers between this number and the nearest that is as good as the best of the sweep, to 3 %."""
    few, many = best_of(swept(name))
    return int(max(0, few - workers, workers - many))


def tuned(name: str, seed: int, **changed) -> tuple[Tuner, list[tuple[int, int]], float, float]:
    """The tuner, its resizes, when the last one was (s), and what the epoch took more than with the best number throughout."""
    load, processors, _, _ = LOADS[name]
    load = replace(load, **changed)
    tuner = Tuner(planned(processors))
    run = simulate(load, tuner.workers, BATCHES, seed, tuner.observe)
    best = simulate(load, best_of(swept(name))[0], BATCHES, seed)
    last = run.delivered[run.resizes[-1][0] - 1] if run.resizes else 0.0
    return tuner, run.resizes, last, run.seconds / best.seconds - 1


@pytest.mark.long
@pytest.mark.parametrize("name", LOADS)
def test_within_one_worker_of_the_best_of_a_sweep(name):
    _, _, most_resizes, most_lost = LOADS[name]
    far = 0
    for seed in range(3):
        tuner, resizes, last, lost = tuned(name, seed)
        far += distance(name, tuner.workers) > 1
        assert len(resizes) <= most_resizes, list(tuner.log)
        assert lost <= most_lost, list(tuner.log)
        assert not resizes or last <= 60 or resizes[-1][0] <= 200, list(tuner.log)
        assert len(set(resizes)) == len(resizes)
    assert far <= (1 if "others" in name or "disk" in name else 0), (far, best_of(swept(name)))


@pytest.mark.soak
@pytest.mark.parametrize("restart", [False, True], ids=["drained", "thrown away"])
@pytest.mark.parametrize("name", LOADS)
def test_over_many_seeds(name, restart):
    """What a new number of workers does to batches made ahead is the engine's business: both ways of it."""
    near = [distance(name, tuned(name, 100 + seed, restart=restart)[0].workers) <= 1 for seed in range(40)]
    assert sum(near) >= (28 if "others" in name else 34)


def test_noise_of_one_kind_or_another_moves_nothing():
    """Enough workers, uneven batches and steps, checkpoints, a neighbour for two seconds: no resize at all."""
    load = Load(work=330, step=60, cv=0.3, step_cv=0.2, pauses=(37, 900), neighbours=((4000, 6000, 8),))
    for seed in range(5):
        tuner = Tuner(planned(16))
        assert simulate(load, tuner.workers, 400, seed, tuner.observe).resizes == []
        assert tuner.stopped is not None


def test_a_consumer_that_speeds_up_later_is_followed():
    """Steps of 200 ms that become 40: after it had stopped, tuning goes on."""
    slow, tuner = Load(work=400, step=200), Tuner(planned(16))
    run = simulate(slow, 8, 200, 0, tuner.observe)
    before = tuner.workers
    assert tuner.stopped is not None
    simulate(replace(slow, step=40), before, BATCHES, 1, tuner.observe)
    assert len(run.resizes) <= 1
    assert tuner.workers >= 9
    assert any(line.startswith("tuning goes on: the consumer waits again") for line in tuner.log)


# ---------------------------------------------------------------------------------------------- decision by decision


def batch(workers: int, wait: float = 0.0, step: float = 0.05, **more) -> Observation:
    return Observation(wait_seconds=wait, step_seconds=step, workers=workers, **more)


def drive(tuner: Tuner, waits: Callable[[int], float], batches: int, **more: Any) -> list[Resize | Stop]:
    """Batches whose wait depends on the number of workers alone."""
    made = []
    for _ in range(batches):
        decision = tuner.observe(batch(tuner.workers, waits(tuner.workers), **more))
        if decision is not None:
            made.append(decision)
    return made


def test_a_given_number_is_never_tuned():
    plan = plan_workers(WorkerRequest(num_workers=2), SizingFacts(machine=machine()))
    assert drive(Tuner(plan), lambda _: 9.0, 300) == [Stop(2, "2 workers: num_workers was given")]


def test_where_no_worker_is_allowed_there_is_nothing_to_tune():
    plan = plan_workers(WorkerRequest(), SizingFacts(machine=machine(), daemonic=True))
    (stop,) = drive(Tuner(plan), lambda _: 9.0, 300)
    assert isinstance(stop, Stop)
    assert (stop.workers, stop.why.startswith("no workers: this process is a daemonic child")) == (0, True)


def test_a_consumer_that_does_not_wait_is_left_alone():
    tuner = Tuner(planned())
    assert drive(tuner, lambda _: 0.0, 200) == [Stop(8, "the consumer no longer waits (0.0% of its time)")]
    assert list(tuner.log) == [
        "8 workers: 50.0 ms a batch (within 0%), of which the consumer waits 0%",
        "stopped at 8 workers: the consumer no longer waits (0.0% of its time)",
    ]


def test_up_to_the_ceiling_and_no_further():
    tuner = Tuner(planned())
    first, last = drive(tuner, lambda workers: 3.2 / workers, 300, make_seconds=3.6)
    assert isinstance(first, Resize)
    assert (first.workers, first.why) == (15, "15 workers: with 8 the consumer waits 89% of its time")
    assert isinstance(last, Stop)
    assert last.why.startswith("the consumer waits 81% of its time, and there is no room for more workers: 16 processors")


def test_more_workers_than_processors_where_they_mostly_wait():
    tuner = Tuner(planned())
    made = drive(tuner, lambda workers: max(0.0, 1.6 / workers - 0.05), 900, make_seconds=1.6, work_seconds=0.1)
    assert made[0].workers == 32  # four times as many at a step
    assert isinstance(made[-1], Stop)
    assert 15 < made[-1].workers <= tuner._plan.lowest(waiting=True).workers


def test_a_quota_of_half_a_processor_still_bears_workers_that_wait():
    tuner = Tuner(planned(quota=0.5))
    assert tuner.workers == 1
    made = drive(tuner, lambda workers: max(0.0, 0.3 / workers - 0.05), 900, make_seconds=0.3, work_seconds=0.01)
    assert made[-1].workers == pytest.approx(6, abs=2)


def test_more_that_gives_no_more_is_taken_back():
    tuner = Tuner(planned())
    made = drive(tuner, lambda _: 0.1, 900, make_seconds=1.2)
    assert [type(decision) for decision in made] == [Resize, Resize, Resize, Stop]
    assert [decision.workers for decision in made] == [15, 11, 8, 8]
    assert made[-1].why == "11 workers gave no more than 8 (150.0 ms a batch, 150.0 ms with 8)"


def test_fewer_where_far_too_many_run():
    tuner = Tuner(planned())
    first, last = drive(tuner, lambda _: 0.0, 300, make_seconds=0.1)
    assert first == Resize(3, "3 workers are enough: a batch takes a worker 100.0 ms, the consumer 50.0 ms")
    assert isinstance(last, Stop)


def test_slow_batches_that_come_again_keep_their_workers():
    tuner = Tuner(planned())
    made = []
    for index in range(300):
        slow = 0.7 if index % 10 == 9 else 0.1
        made += [each for each in [tuner.observe(batch(tuner.workers, make_seconds=slow))] if each]
    assert (
        made[0].workers == 8
    )  # 700 ms of a slow batch, two batches ahead of 50 ms each: seven workers; one less is not worth it


def test_an_epoch_that_ends_soon_is_not_disturbed():
    tuner = Tuner(planned(), start_seconds=3.0)
    assert drive(tuner, lambda workers: 1.0 / workers, 100, make_seconds=1.4, remaining=10) == []
    assert tuner.epoch_began() == Resize(15, "15 workers: with 8 the consumer waits 71% of its time")
    assert tuner.epoch_began() is None


def test_fewer_workers_are_not_worth_a_costly_restart():
    tuner = Tuner(planned(), start_seconds=3.0)
    (stop,) = drive(tuner, lambda _: 0.0, 300, make_seconds=0.1, remaining=500)
    assert isinstance(stop, Stop)
    assert stop.why.startswith("the consumer no longer waits; 3 workers are enough")
    assert tuner.epoch_began() == Resize(3, "3 workers are enough: a batch takes a worker 100.0 ms, the consumer 50.0 ms")


def test_short_epochs_do_not_pay_for_starting_many_workers():
    """Waits of 5 ms a batch: twenty batches gain less than seven more workers take to start, each epoch anew."""
    for batches, wanted in ((20, None), (300, 15)):
        tuner = Tuner(planned(), start_seconds=0.4)
        assert drive(tuner, lambda workers: 0.04 / workers, batches, step=0.001, make_seconds=0.05, remaining=5) == []
        found = tuner.epoch_began()
        assert (found and found.workers) == wanted


def test_a_change_put_off_is_forgotten_where_the_consumer_no_longer_waits():
    tuner = Tuner(planned(), start_seconds=3.0)
    assert drive(tuner, lambda workers: 1.0 / workers, 20, make_seconds=1.4, remaining=10) == []
    assert tuner._deferred is not None
    (stop,) = drive(tuner, lambda _: 0.0, 300, make_seconds=0.3, remaining=10)
    assert stop.why.startswith("the consumer no longer waits")
    assert tuner.epoch_began() is None


def test_epochs_too_short_to_measure():
    tuner, made = Tuner(planned()), []
    for _ in range(5):
        made += drive(tuner, lambda _: 1.0, 10)
        assert tuner.epoch_began() is None
    assert made == [Stop(8, "an epoch ends before 8 workers can be measured")]


def test_short_epochs_add_up():
    tuner, made = Tuner(planned()), []
    for _ in range(8):
        made += drive(tuner, lambda _: 1.0, 20)
        tuner.epoch_began()
    assert made and made[0].workers == 15


def test_two_more_rounds_at_most():
    tuner = Tuner(planned())
    made = drive(tuner, lambda _: 0.0, 100)
    for _ in range(6):
        made += drive(tuner, lambda workers: 0.4 / workers, 500)
        made += drive(tuner, lambda _: 0.0, 500)
    assert tuner._reopened <= REOPENINGS
    assert sum(isinstance(decision, Stop) for decision in made) <= 1 + REOPENINGS


OBSERVED = st.lists(
    st.tuples(st.floats(0, 2), st.floats(0, 2), st.floats(0, 1), st.none() | st.floats(0, 5), st.integers(0, 2000)),
    min_size=1,
    max_size=12,
)


@given(OBSERVED, st.integers(1, 64), st.integers(0, 2**32))
def test_whatever_is_observed(pattern, processors, seed):
    """At most so many changes, none beyond a ceiling, no number twice in a round but to go back, and always a reason."""
    tuner = Tuner(planned(processors, cores=max(1, processors // 2)))
    most = tuner._plan.lowest(waiting=True).workers
    resizes: list[int] = []
    for index in range(1500):
        wait, step, late, make, remaining = pattern[(index // 7 + seed) % len(pattern)]
        more = {
            "late_seconds": wait * late if late else None,
            "make_seconds": make,
            "work_seconds": None if make is None else make / 2,
        }
        seen = Observation(wait_seconds=wait, step_seconds=step, workers=tuner.workers, remaining=remaining, **more)
        decision = tuner.observe(seen)
        if decision is not None:
            assert decision.why
            assert 1 <= decision.workers <= most
            assert tuner.workers == decision.workers
        if isinstance(decision, Resize):
            resizes.append(decision.workers)
            assert tuner.stopped is None
        if isinstance(decision, Stop):
            assert tuner.stopped == decision
    assert len(resizes) <= (MOST_TRIALS + 1) * (1 + REOPENINGS)


def test_a_plan_made_anew_may_leave_room_for_fewer():
    tuner = Tuner(planned(16))
    facts = SizingFacts(machine=machine(processors=16), batch_bytes=1 << 10)
    assert tuner.learn(plan_workers(WorkerRequest(), facts)) is None
    large = replace(facts, machine=machine(processors=16, memory=4 << 30), batch_bytes=300 << 20)
    fewer = tuner.learn(plan_workers(WorkerRequest(), large))
    assert fewer is not None and 0 < fewer.workers < 8 and fewer.workers == tuner.workers
    assert "memory" in fewer.why
