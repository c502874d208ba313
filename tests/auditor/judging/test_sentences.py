"""Findings in words."""

import numpy as np
import pytest

from fastfeed.auditor.judging.codes import RANDOM_SLOW, SLOW, SLOW_COLD, SLOW_UNCONFIRMED, STALL_ONCE
from fastfeed.auditor.judging.confirming import Outcome, unconfirmed
from fastfeed.auditor.judging.groups import Group
from fastfeed.auditor.judging.sentences import told
from fastfeed.auditor.judging.suspects import Suspect

GROUP = Group("JPEG", np.arange(9), np.arange(1), {"JPEG2000": 8})
COMPUTING = Suspect(0, GROUP, "decode", "cpu", 0.09, 0.003, 0.001)
WAITING = Suspect(0, GROUP, "read", "blocked", 0.06, 0.0, 0.01)
CPU = "of processor time"
BLOCKED = "for something else than a processor"


@pytest.mark.parametrize(
    ("outcome", "format_name", "text"),
    [
        (
            Outcome(COMPUTING, SLOW, 0.084, 0.004, 3, 3),
            "JPEG",
            f"decode takes 84.0 ms {CPU}, 21.0 times the 4.0 ms that its like take (least of 3 repeats)",
        ),
        (
            Outcome(COMPUTING, SLOW, 0.084, 0.004, 3, 3),
            "JPEG2000",
            (
                f"decode takes 84.0 ms {CPU}, 21.0 times the 4.0 ms that JPEG of its size takes, as few samples are "
                f"JPEG2000 (least of 3 repeats)"
            ),
        ),
        (
            Outcome(WAITING, SLOW, 0.06, 0.0, 3, 3),
            "JPEG",
            f"read waits 60.0 ms {BLOCKED}, and not the 0.0 ms that its like take (least of 3 repeats)",
        ),
        (
            Outcome(WAITING, SLOW_COLD, 0.06, 0.01, 3, 3),
            "JPEG",
            (
                f"read waits 60.0 ms {BLOCKED}, 6.0 times the 10.0 ms that its like take, when its file is not in memory "
                f"(least of 3 repeats)"
            ),
        ),
        (
            Outcome(COMPUTING, RANDOM_SLOW, 0.1, 0.01, 9, 4),
            None,
            f"decode takes 100.0 ms {CPU}, 10.0 times the 10.0 ms that its like take, in 4 of 9 repeats (this is the longest)",
        ),
        (
            Outcome(COMPUTING, STALL_ONCE, 0.004, 0.003, 3, 0),
            None,
            f"decode took 90.0 ms {CPU} once, and at most 4.0 ms in 3 repeats",
        ),
        (
            Outcome(WAITING, STALL_ONCE, 0.0, 0.0, 3, 0),
            None,
            f"read waited 60.0 ms {BLOCKED} once, and at most 0.0 ms in 3 repeats",
        ),
        (
            unconfirmed(COMPUTING, "others cost more"),
            None,
            f"decode takes 90.0 ms {CPU}, 30.0 times the 3.0 ms that its like take; unconfirmed: others cost more",
        ),
        (
            Outcome(WAITING, SLOW_UNCONFIRMED, 0.06, 0.01, 3, 3, "nobody knows"),
            None,
            (
                f"read waits 60.0 ms {BLOCKED}, 6.0 times the 10.0 ms that its like take (least of 3 repeats); unconfirmed: "
                f"nobody knows"
            ),
        ),
    ],
)
def test_each_kind(outcome, format_name, text):
    finding = told(outcome, format_name)
    assert finding.text == text
    assert finding.code is outcome.code


def test_times_of_the_wall_clock_are_called_so():
    text = told(Outcome(COMPUTING, SLOW, 0.084, 0.004, 3, 3), "JPEG", wall_only=True).text
    assert text == "decode takes 84.0 ms by the wall clock, 21.0 times the 4.0 ms that its like take (least of 3 repeats)"
