"""The numbers of the rule."""

from fastfeed.auditor.judging.rules import Cuts


def test_a_noisy_machine_raises_what_noise_moves():
    usual, raised = Cuts(), Cuts().raised()
    assert (raised.z_alone, raised.z_with_ratio) == (9.0, 5.25)
    assert raised.blocked_seconds > usual.blocked_seconds
    assert raised.repeats > usual.repeats
    assert raised.ratio == usual.ratio


def test_raising_keeps_what_was_set():
    assert Cuts(z_alone=4, most_suspects=7).raised().z_alone == 6
    assert Cuts(most_suspects=7).raised().most_suspects == 7
