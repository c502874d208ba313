"""Whether the machine lets itself be measured."""

import pytest

from fastfeed.auditor.judging.noise import Beat, Noise


def beats(*cpu, delay=0.0):
    return Noise([Beat(seconds, delay) for seconds in cpu])


def test_a_quiet_machine():
    noise = beats(0.0100, 0.0104, 0.0102, delay=0.05)
    assert not noise.host_noisy
    assert noise.why == ()
    assert not Noise().host_noisy
    assert not beats(0.01).host_noisy


def test_work_that_takes_now_this_and_now_that():
    noise = beats(0.010, 0.010, 0.012)
    assert noise.host_noisy
    assert noise.why == ("a fixed piece of work took from 10.0 ms up to 20% more processor time",)


def test_waiting_for_a_processor():
    noise = beats(0.01, 0.01, delay=0.45)
    assert noise.why == ("it waited for a processor in 45% of its time",)
    assert Noise([Beat(0.01, None)]).delay == 0.0


def test_one_delayed_beat_of_many_is_no_noise():
    assert not Noise([Beat(0.01, 0.9), *[Beat(0.01, 0.0)] * 4]).host_noisy


def test_stolen_time():
    noise = Noise([Beat(0.01, 0.0, 100.0, 10_000.0), Beat(0.01, 0.0), Beat(0.01, 0.0, 200.0, 11_000.0)])
    assert noise.steal == pytest.approx(0.1)
    assert noise.why == ("the host gave 10% of the processor time to other guests",)
    assert Noise([Beat(0.01, 0.0, 100.0, 10_000.0)]).steal == 0.0


def test_as_a_report_holds_it():
    found = Noise([Beat(0.01, 0.0, megahertz=2000), Beat(0.02, 0.0, megahertz=1500)]).as_json()
    assert found["host_noisy"] is True
    assert found["megahertz"] == [1500, 2000]
    assert found["beats"] == 2
    assert Noise().as_json()["megahertz"] is None
