"""Many that take longer are another kind."""

import numpy as np
import pytest

from fastfeed.auditor.judging.codes import SLOW_KIND
from fastfeed.auditor.judging.groups import Group
from fastfeed.auditor.judging.kinds import without_kinds
from fastfeed.auditor.judging.rules import Cuts
from fastfeed.auditor.judging.suspects import Suspect

GROUP = Group("JPEG", np.arange(400), np.arange(400))


def suspects(*seconds, clock="cpu", stage="load", group=GROUP):
    return [Suspect(row, group, stage, clock, value, 0.001, 0.001) for row, value in enumerate(seconds)]


def test_a_tenth_of_the_samples_is_a_kind():
    left, findings, notes = without_kinds(suspects(*[0.010] * 40), Cuts())
    assert left == [] and sorted(findings) == list(range(40))
    assert findings[7].code is SLOW_KIND
    assert findings[7].text.startswith("load takes 10.0 ms, and its like 1.0 ms; 40 samples of JPEG (10%) take 10 times")
    (note,) = notes
    assert note.startswith(
        "40 samples of JPEG (10%) take 10 times as long as the others in load: so many are a kind of their own"
    )


@pytest.mark.parametrize("count", [1, 29, 39])
def test_fewer_are_suspects(count):
    found = suspects(*[0.010] * count)
    assert without_kinds(found, Cuts()) == (found, {}, [])


def test_a_tenth_of_few_samples_are_suspects():
    found = suspects(*[0.010] * 10, group=Group("JPEG", np.arange(100), np.arange(100)))
    assert without_kinds(found, Cuts()) == (found, {}, [])


def test_what_stands_out_among_them_is_a_suspect():
    found = suspects(*[0.010, 0.011, 0.012, 0.009] * 12, 0.5)
    left, findings, notes = without_kinds(found, Cuts())
    assert left == found[-1:] and found[-1].row not in findings
    assert notes[0].startswith("48 samples")


def test_waiting_is_no_kind():
    found = suspects(*[0.010] * 100, clock="blocked")
    assert without_kinds(found, Cuts()) == (found, {}, [])


def test_each_stage_for_itself():
    found = [*suspects(*[0.010] * 30), *suspects(*[0.010] * 30, stage="decode")]
    assert without_kinds(found, Cuts()) == (found, {}, [])
    assert without_kinds([], Cuts()) == ([], {}, [])
