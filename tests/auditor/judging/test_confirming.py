"""What repeats, and how."""

import numpy as np
import pytest

from fastfeed.auditor.judging.codes import RANDOM_SLOW, SLOW, SLOW_COLD, SLOW_UNCONFIRMED, STALL_ONCE
from fastfeed.auditor.judging.confirming import Outcome, confirmed, worst_each
from fastfeed.auditor.judging.controls import Control
from fastfeed.auditor.judging.groups import Group
from fastfeed.auditor.judging.ledger import Ledger
from fastfeed.auditor.judging.repeats import Repeats
from fastfeed.auditor.judging.rules import Cuts
from fastfeed.auditor.judging.suspects import Suspect
from fastfeed.auditor.judging.trial import Case
from fastfeed.auditor.record import SampleRecord, StageTime

GROUP = Group("JPEG", np.arange(4), np.arange(4))


class Script:
    """Repeats as written: for each sample seconds by temperature, the last one again and again."""

    def __init__(self, **samples):
        self.left = {(int(name[1:2]), name.endswith("cold")): list(values) for name, values in samples.items()}
        self.cold_rounds = self.warm_rounds = 0
        self.clock = "cpu"

    def __call__(self, indices, *, cold):
        self.cold_rounds += cold
        self.warm_rounds += not cold
        found = {}
        for index in indices:
            values = self.left.get((index, cold))
            if values:
                value = values.pop(0) if len(values) > 1 else values[0]
                time = StageTime(value, value, 0) if self.clock == "cpu" else StageTime(value, 0, 0)
                found[index] = [dict.fromkeys(("read", "decode", "transform", "load"), time)]
        return found


def outcome(script, *, stage="decode", clock="cpu", seconds=0.1, floor=None, sure=True, controls=(1, 2, 3), cuts=None):
    ledger = Ledger()
    for index in range(4):
        ledger.add(SampleRecord(index, times={stage: StageTime(1, 1, 0)}))
    script.clock = clock
    suspect = Suspect(
        0, GROUP, stage, clock, seconds, 0.01 if clock == "cpu" else 0.0, floor or (1e-3 if clock == "cpu" else 10e-3), sure
    )
    case = Case(suspect, tuple(Control(row, 1.0, 0.01) for row in controls))
    found = confirmed([case], Repeats(ledger.table(), script), cuts or Cuts())
    assert len(found) < 2
    return found[0] if found else None


def test_what_repeats_is_slow():
    script = Script(s0=[0.1, 0.09, 0.12], s1=[0.01], s2=[0.012], s3=[0.5])
    found = outcome(script)
    assert found.code is SLOW
    assert (found.seconds, found.usual_seconds, found.repeats) == (pytest.approx(0.09), pytest.approx(0.012), 3)
    assert (script.warm_rounds, script.cold_rounds) == (3, 0)


def test_what_does_not_repeat_stalled_once():
    found = outcome(Script(s0=[0.011], s1=[0.01], s2=[0.01], s3=[0.01]))
    assert (found.code, found.slow_repeats) == (STALL_ONCE, 0)


def test_what_is_always_a_little_more_than_usual_is_nothing():
    """Progressive photos take 2.4 times as long: no fault, and no stall."""
    assert outcome(Script(s0=[0.024], s1=[0.01], s2=[0.01], s3=[0.01]), seconds=0.025) is None
    assert outcome(Script(s0=[0.049], s1=[0.01], s2=[0.01], s3=[0.01]), seconds=0.051) is None
    assert outcome(Script(s0=[0.051], s1=[0.01], s2=[0.01], s3=[0.01]), seconds=0.051).code is SLOW


def test_where_its_like_are_as_slow_now_it_is_the_machine():
    assert outcome(Script(s0=[0.1], s1=[0.09], s2=[0.1], s3=[0.08])) is None


def test_slow_in_some_repeats():
    script = Script(s0=[0.1, 0.01, 0.01, 0.1, 0.01, 0.1, 0.01], s1=[0.01], s2=[0.01], s3=[0.01])
    found = outcome(script, stage="transform")
    assert found.code is RANDOM_SLOW
    assert (found.slow_repeats, found.repeats, found.seconds) == (3, 9, pytest.approx(0.1))


def test_decoding_draws_nothing():
    """It computes the same each time: what differs is the machine."""
    script = Script(s0=[0.1, 0.01, 0.1], s1=[0.01], s2=[0.01], s3=[0.01])
    assert outcome(script, seconds=0.3).code is STALL_ONCE
    assert script.warm_rounds == 3


def test_waiting_may_differ_in_any_stage():
    script = Script(s0=[0.1, 0.0, 0.0, 0.1, 0.0, 0.1, 0.0], s1=[0.0], s2=[0.0], s3=[0.0])
    assert outcome(script, stage="decode", clock="blocked").code is RANDOM_SLOW


def test_slow_in_one_of_nine_is_the_machine():
    script = Script(s0=[0.1, 0.01], s1=[0.01], s2=[0.01], s3=[0.01])
    assert outcome(script, stage="load").code is STALL_ONCE
    assert script.warm_rounds == 9


def test_where_its_like_are_slow_at_random_too_it_is_the_machine():
    pattern = [0.1, 0.01, 0.01, 0.1, 0.01, 0.1, 0.01]
    assert outcome(Script(s0=pattern, s1=pattern[::-1], s2=pattern, s3=pattern), stage="load").code is STALL_ONCE


@pytest.mark.parametrize(("stage", "rounds"), [("transform", 9), ("load", 9), ("decode", 3)])
def test_what_may_draw_is_looked_at_longer(stage, rounds):
    script = Script(s0=[0.01], s1=[0.01], s2=[0.01], s3=[0.01])
    assert outcome(script, stage=stage).code is STALL_ONCE
    assert script.warm_rounds == rounds


def test_slow_when_cold():
    script = Script(s0=[0.0], s1=[0.0], s2=[0.0], s3=[0.0], s0cold=[0.3, 0.2], s1cold=[0.01], s2cold=[0.01], s3cold=[0.02])
    found = outcome(script, stage="read", clock="blocked")
    assert (found.code, found.seconds, found.usual_seconds) == (SLOW_COLD, pytest.approx(0.2), pytest.approx(0.01))
    assert script.cold_rounds == 3


def test_where_all_are_slow_when_cold_it_is_the_storage():
    script = Script(s0=[0.0], s1=[0.0], s2=[0.0], s3=[0.0], s0cold=[0.3], s1cold=[0.2], s2cold=[0.2], s3cold=[0.2])
    assert outcome(script, stage="read", clock="blocked").code is STALL_ONCE


def test_where_nothing_can_be_made_cold():
    script = Script(s0=[0.0], s1=[0.0], s2=[0.0], s3=[0.0])
    found = outcome(script, stage="read", clock="blocked")
    assert (found.code, script.cold_rounds) == (STALL_ONCE, 3)


def test_computing_is_not_tried_cold():
    script = Script(s0=[0.01], s1=[0.01], s2=[0.01], s3=[0.01])
    outcome(script, stage="read")
    assert script.cold_rounds == 0


def test_waiting_that_repeats():
    script = Script(s0=[0.06], s1=[0.0], s2=[0.0], s3=[0.0])
    assert outcome(script, stage="read", clock="blocked").code is SLOW
    assert outcome(script, stage="read", clock="blocked", floor=0.07) is None


def test_a_clock_that_is_not_sure_proves_nothing():
    found = outcome(Script(s0=[0.06], s1=[0.0], s2=[0.0], s3=[0.0]), stage="read", clock="blocked", sure=False)
    assert (found.code, found.repeats) == (SLOW_UNCONFIRMED, 3)
    assert "waiting for a processor" in found.why


def test_a_clock_that_is_not_sure_has_seen_no_stall():
    assert outcome(Script(s0=[0.0], s1=[0.0], s2=[0.0], s3=[0.0]), stage="read", clock="blocked", sure=False) is None


@pytest.mark.parametrize("script", [Script(s1=[0.01]), Script()], ids=["the suspect alone", "none"])
def test_what_cannot_be_measured_again(script):
    found = outcome(script)
    assert (found.code, found.seconds, found.why) == (SLOW_UNCONFIRMED, 0.1, "it could not be measured again")


def test_without_controls_the_line_counts():
    assert outcome(Script(s0=[0.06]), controls=()).code is SLOW
    assert outcome(Script(s0=[0.025]), controls=()).code is STALL_ONCE
    assert outcome(Script(s0=[0.06]), controls=(1,)).code is SLOW, "a control that failed counts as none"


def test_the_worst_of_a_samples_outcomes():
    def made(row, code, seconds):
        return Outcome(Suspect(row, GROUP, "decode", "cpu", seconds, 0.0, 0.0), code, seconds, 0.0)

    outcomes = [made(1, STALL_ONCE, 9), made(1, SLOW, 1), made(1, SLOW, 2), made(2, RANDOM_SLOW, 1), made(2, SLOW_COLD, 1)]
    found = worst_each(outcomes)
    assert {row: (one.code.name, one.seconds) for row, one in found.items()} == {1: ("slow", 2), 2: ("slow-cold", 1)}
