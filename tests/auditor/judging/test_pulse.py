"""The fixed piece of work, on this machine."""

import pytest

from fastfeed.auditor.judging.pulse import beat


def test_it_takes_processor_time():
    found = beat()
    assert found.cpu_seconds > 0
    assert found.delay is None or found.delay >= 0


def test_what_the_kernel_tells(tmp_path):
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/stat").write_text("cpu  1 2 3 4 5 6 7 8 90 90\ncpu0 1 1\n")
    speed = tmp_path / "sys/devices/system/cpu/cpu0/cpufreq"
    speed.mkdir(parents=True)
    (speed / "scaling_cur_freq").write_text("2400000\n")
    found = beat(str(tmp_path))
    assert (found.stolen, found.ticks, found.megahertz) == (8, 36, 2400)


@pytest.mark.parametrize("text", [None, "intr 5\n", "cpu  1 2 3\n"])
def test_a_kernel_that_tells_nothing(tmp_path, text):
    if text is not None:
        (tmp_path / "proc").mkdir()
        (tmp_path / "proc/stat").write_text(text)
    found = beat(str(tmp_path))
    assert (found.stolen, found.ticks, found.megahertz) == (None, None, None)
