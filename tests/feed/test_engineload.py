"""EngineLoad: what it comes to for loops that wait for DALI and loops that do not, by a clock of the test's own."""

from dataclasses import dataclass, field

import pytest
import torch

from fastfeed.feed.dalioptions import DaliOptions
from fastfeed.feed.engineload import WITH, WITHOUT, EngineLoad, engine_load

MANY = 1000


@dataclass
class Loop:
    """A training loop, and a decoder that works beside it.

    Args:
        step: Seconds of its own a batch.
        without: Seconds that the decoder takes for a batch without the JPEG engine.
        engine: With it.
    """

    step: float
    without: float
    engine: float
    now: float = 0.0
    load: EngineLoad = field(init=False)

    def __post_init__(self) -> None:
        self.load = EngineLoad(clock=lambda: self.now)

    def run(self, batches: int) -> list[float]:
        """The engine's part at each batch."""
        parts = []
        for _ in range(batches):
            took = self.engine if self.load.part else self.without
            waited = max(0.0, took - self.step)
            self.now += self.step + waited
            self.load.taken(waited)
            parts.append(self.load.part)
        return parts


def test_a_loop_that_does_not_wait_keeps_the_engine_out():
    loop = Loop(step=0.055, without=0.034, engine=0.013)
    assert set(loop.run(MANY)) == {WITHOUT}
    why = "which trains fastest: the loop waited 0% of its time for DALI"
    assert loop.load.told == f"DALI: the GPU's JPEG engine gets no images, {why} (hw_decoder_load)"


def test_a_loop_that_waits_gets_it_where_it_is_faster():
    loop = Loop(step=0.02, without=0.034, engine=0.013)
    parts = loop.run(MANY)
    assert 50 < parts.index(WITH) < 150 and set(parts[parts.index(WITH) :]) == {WITH}
    assert "90% of images go to the GPU's JPEG engine, since with it batches came 1.70 x as fast as without" in loop.load.told


def test_what_is_on_trial_says_so():
    loop = Loop(step=0.02, without=0.04, engine=0.013)
    while loop.load.part == WITHOUT:
        loop.run(1)
    assert "on trial: the loop waited 50% of its time for DALI without it" in loop.load.told


@pytest.mark.parametrize(("without", "tried"), [(0.0217, False), (0.0227, True)], ids=["8 %", "12 %"])
def test_it_is_tried_where_a_tenth_of_the_time_is_waited(without, tried):
    loop = Loop(step=0.02, without=without, engine=0.01)
    assert (WITH in loop.run(MANY)) == tried


@pytest.mark.parametrize(("times", "stays"), [(1.01, False), (1.03, True)])
def test_it_stays_where_batches_come_two_hundredths_faster(times, stays):
    loop = Loop(step=0.02, without=0.034, engine=0.034 / times)
    assert loop.run(MANY)[-1] == (WITH if stays else WITHOUT)
    assert f"came {'' if stays else 'only '}{times:.2f} x as fast" in loop.load.told


@pytest.mark.parametrize("engine", [0.034, 0.05], ids=["no engine", "a slow one"])
def test_it_is_tried_once_where_it_is_no_faster(engine):
    loop = Loop(step=0.02, without=0.034, engine=engine)
    parts = loop.run(MANY)
    first = parts.index(WITH)
    last = MANY - 1 - parts[::-1].index(WITH)
    assert last - first < 150 and set(parts[first : last + 1]) == {WITH} and set(parts[last + 1 :]) == {WITHOUT}
    assert f"came only {0.034 / engine:.2f} x as fast" in loop.load.told


def test_the_first_batches_do_not_count_nor_those_behind_a_change():
    """A new pipeline's hitches: not long enough to be left out for that."""
    loop = Loop(step=0.02, without=0.034, engine=0.033)
    before = loop.load.part
    for number in range(20):
        loop.run(1)
        loop.now += 0.1 if number else 0.0
    for _ in range(MANY):
        loop.run(1)
        if loop.load.part != before:
            before = loop.load.part
            for _ in range(20):
                loop.now += 0.1
                loop.run(1)
    assert "came 1.03 x as fast" in loop.load.told and loop.load.part == WITH


def test_hitches_count_for_nothing():
    """Validation, or a checkpoint: what a step takes beside them decides."""
    loop = Loop(step=0.02, without=0.034, engine=0.033)
    for number in range(MANY):
        loop.run(1)
        if number % 50 == 10:
            loop.now += 60.0
    assert "came 1.03 x as fast" in loop.load.told and loop.load.part == WITH


def test_the_time_between_two_passes_counts_for_nothing():
    """Short enough to be a batch's: it would make the engine look slower than it is."""
    loop = Loop(step=0.02, without=0.034, engine=0.033)
    for number in range(MANY):
        if number % 20 == 19:
            loop.load.paused()
            loop.now += 0.2 if loop.load.part else 0.0
        loop.run(1)
    assert "came 1.03 x as fast" in loop.load.told and loop.load.part == WITH


def test_passes_that_take_turns_find_nothing():
    loop, others = Loop(step=0.02, without=0.034, engine=0.013), (object(), object())
    for number in range(MANY):
        loop.now += 0.02
        loop.load.taken(0.02, others[number % 2])
    assert loop.load.part == WITHOUT and "as long as the loop does not wait" in loop.load.told
    loop.run(MANY)
    assert loop.load.part == WITH


def test_where_no_pipeline_can_be_made_it_is_settled():
    loop = Loop(step=0.02, without=0.034, engine=0.013)
    while loop.load.part == WITHOUT:
        loop.run(1)
    loop.load.refused(WITHOUT, "out of memory")
    assert set(loop.run(MANY)) == {WITHOUT}
    why = "since no pipeline could be made with another part: out of memory"
    assert loop.load.told == f"DALI: the GPU's JPEG engine gets no images, {why} (hw_decoder_load)"


@pytest.mark.parametrize(("given", "device", "part"), [(None, "cuda", WITHOUT), (0.5, "cuda", 0.5), (0.5, "cpu", WITHOUT)])
def test_a_cpu_has_none(given, device, part):
    load = engine_load(torch.device(device), DaliOptions(hw_decoder_load=given))
    assert load.part == part


def test_what_was_given_stays():
    loop = Loop(step=0.0, without=1.0, engine=0.5)
    loop.load = EngineLoad(0.25, clock=lambda: loop.now)
    assert set(loop.run(MANY)) == {0.25}
    assert loop.load.told == "DALI: 25% of images go to the GPU's JPEG engine, as was given (hw_decoder_load)"
