"""Repeats of a suspect against those of its like."""

import numpy as np
import pytest

from fastfeed.auditor.judging.controls import Control
from fastfeed.auditor.judging.groups import Group
from fastfeed.auditor.judging.ledger import Ledger
from fastfeed.auditor.judging.repeats import Repeats
from fastfeed.auditor.judging.rules import Cuts
from fastfeed.auditor.judging.suspects import Suspect
from fastfeed.auditor.judging.trial import Case, trials
from fastfeed.auditor.record import SampleRecord, StageTime

GROUP = Group("JPEG", np.arange(8), np.arange(8))


def case(row=0, controls=((1, 1.0), (2, 1.0), (3, 1.0)), clock="cpu", usual=0.01, **how):
    floor = 1e-3 if clock == "cpu" else 10e-3
    suspect = Suspect(row, GROUP, "load", clock, how.get("seconds", 0.1), usual, floor)
    return Case(suspect, tuple(Control(row, factor, usual) for row, factor in controls))


def tried(*cases, clock="cpu", **seconds):
    """Trials of cases: seconds of each repeat by sample, "s3=[0.1, 0.2]"."""
    ledger = Ledger()
    for index in range(8):
        ledger.add(SampleRecord(index, times={"load": StageTime(1, 1, 0)}))
    known = {int(name[1:]): values for name, values in seconds.items()}

    def remeasure(indices, *, cold):
        times = {index: [StageTime(v, v if clock == "cpu" else 0, 0) for v in known.get(index, ())] for index in indices}
        return {index: [{"load": time} for time in found] for index, found in times.items()}

    repeats = Repeats(ledger.table(), remeasure)
    repeats.take((row for one in cases for row in one.rows), 1)
    return trials(list(cases), repeats, Cuts())


def test_the_usual_is_the_middle_of_the_least():
    (trial,) = tried(case(usual=1e-4), s0=[0.2] * 3, s1=[0.01, 0.09], s2=[0.03, 0.02], s3=[0.5, 0.4])
    assert trial.usual == pytest.approx(0.02)
    assert trial.bar == pytest.approx(0.1)
    assert trial.always


def test_larger_samples_may_take_longer_than_their_controls():
    (trial,) = tried(case(usual=1e-4, controls=((1, 4.0),)), s0=[0.2] * 3, s1=[0.01])
    assert trial.usual == pytest.approx(0.04)


def test_controls_that_are_quick_by_chance():
    """The line says 10 ms, and elsewhere controls take what the line says: three of 5 ms are no measure."""
    others = case(4, controls=((0, 1.0), (5, 1.0), (6, 1.0), (7, 1.0)))
    slower = {f"s{row}": [0.01] for row in (0, 4, 5, 6, 7)}
    first, _ = tried(case(controls=((1, 1.0), (2, 1.0), (3, 1.0))), others, s1=[0.005], s2=[0.005], s3=[0.005], **slower)
    assert first.usual == pytest.approx(0.01)


def test_the_pace_is_that_of_controls_for_their_own_size():
    """A suspect of six times their size says nothing about how fast the machine is now."""
    large = case(4, controls=((5, 6.0), (6, 6.0), (7, 6.0)))
    first, second = tried(case(), large, s0=[0.09], s4=[0.2], **{f"s{row}": [0.01] for row in (1, 2, 3, 5, 6, 7)})
    assert first.usual == pytest.approx(0.01)
    assert second.usual == pytest.approx(0.06)


def test_controls_that_many_suspects_share_count_once_for_the_pace():
    """The nearest of eight scan bombs are the same three progressive photos, which take twice what the line says."""
    bombs = [case(4, controls=((5, 1.0), (6, 1.0), (7, 1.0)))] * 8
    quick = {f"s{row}": [0.01] for row in (1, 2, 3, 5)}
    first, *_ = tried(case(), *bombs, s0=[0.09], s4=[0.3], s6=[0.02], s7=[0.02], **quick)
    assert first.usual == pytest.approx(0.01)


def test_on_a_slower_machine_the_line_is_slower_too():
    (trial,) = tried(case(usual=0.01), s0=[0.04], s1=[0.02], s2=[0.02], s3=[0.02])
    assert trial.usual == pytest.approx(0.02)


def test_without_controls_the_line_alone():
    (trial,) = tried(case(usual=0.01), s0=[0.04])
    assert trial.usual == 0.01
    assert not trial.enough


def test_five_times_nearly_nothing_is_below_the_floor():
    (trial,) = tried(case(usual=1e-4), s0=[0.0009] * 3, s1=[1e-4], s2=[1e-4], s3=[1e-4])
    assert trial.bar == pytest.approx(1.1e-3)
    assert not trial.always


def test_waiting_has_a_floor_of_its_own():
    (trial,) = tried(case(clock="blocked", usual=0.0), clock="blocked", s0=[0.011] * 3, s1=[0], s2=[0], s3=[0])
    assert (trial.usual, trial.bar, trial.always) == (0, 10e-3, True)


def test_at_random_is_more_than_chance_and_more_than_its_like():
    quick = {"s1": [0.01] * 9, "s2": [0.01] * 9, "s3": [0.01] * 9}
    (some,) = tried(case(), s0=[0.01] * 6 + [0.1] * 3, **quick)
    assert some.at_random
    (few,) = tried(case(), s0=[0.01] * 7 + [0.1] * 2, **quick)
    assert not few.at_random
    (near,) = tried(case(), s0=[0.045] * 6 + [0.055] * 3, **quick)
    assert not near.at_random, "once below the bar and once above it is one time"
    (alike,) = tried(case(), s0=[0.01] * 6 + [0.1] * 3, **dict.fromkeys(quick, [0.01] * 6 + [0.1] * 3))
    assert not alike.at_random


def test_a_single_time_is_compared_with_middle_ones():
    """On a busy machine single times are half as long again as the least of some."""
    (trial,) = tried(case(usual=1e-4), s0=[0.02] * 6 + [0.06] * 3, s1=[0.01] + [0.015] * 8)
    assert trial.bar == pytest.approx(0.05)
    assert not trial.at_random


def test_stalled_is_slow_once_and_another_thing_now():
    quick = {"s1": [0.01], "s2": [0.01], "s3": [0.01]}
    assert tried(case(seconds=0.1), s0=[0.01] * 3, **quick)[0].stalled
    assert not tried(case(seconds=0.049), s0=[0.01] * 3, **quick)[0].stalled, "it never was slow"
    assert not tried(case(seconds=0.051), s0=[0.049] * 3, **quick)[0].stalled, "it is the same thing"
