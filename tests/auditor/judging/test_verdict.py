"""What a judge says of a whole audit."""

import json

import numpy as np

from fastfeed.auditor.finding import Finding
from fastfeed.auditor.judging.codes import OVERSIZE, SLOW
from fastfeed.auditor.judging.expectation import Line
from fastfeed.auditor.judging.groups import Group
from fastfeed.auditor.judging.impact import Costly, Impact
from fastfeed.auditor.judging.noise import Beat, Noise
from fastfeed.auditor.judging.regression import Fit
from fastfeed.auditor.judging.verdict import Verdict

GROUP = Group("JPEG", np.arange(30), np.arange(30))
FIT = Fit(-6.0, np.array([0.5, 0.5]), np.zeros(2), 0.1, np.zeros((3, 3)))
LINE = Line("decode", GROUP, np.arange(30), FIT, np.zeros(2), 30)


def verdict(**changed):
    slow = Impact(3, 0.1, "decode", 0.5, 0.4, 0.06, 1.0)
    usual = {
        "samples": 30, "timed": 29, "slow": slow, "oversize": None, "top": (Costly(4, 1.0, 0.2, 0.2),),
        "findings": {4: [Finding(SLOW, "x"), Finding(OVERSIZE, "y")], 5: [Finding(SLOW, "x")]},
        "lines": (LINE,), "noise": Noise([Beat(0.01, 0.5)]), "notes": ("a note",),
    }  # fmt: skip
    return Verdict(**{**usual, **changed})


def test_samples_by_code():
    assert verdict().counts == {"slow": 2, "oversize": 1}
    assert verdict(findings={}).counts == {}


def test_sentences_of_what_there_is():
    (sentence,) = verdict().sentences()
    assert sentence.startswith("slow: 10 % of samples take 50 % of decode time")
    assert verdict(slow=None).sentences() == []


def test_a_report_can_hold_it():
    found = json.loads(json.dumps(verdict().as_json()))
    assert found["noise"]["host_noisy"] is True
    assert found["oversize"] is None
    assert found["slow"]["samples"] == 3
    assert found["usual"][0]["format"] == "JPEG"
    assert found["notes"] == ["a note"]
