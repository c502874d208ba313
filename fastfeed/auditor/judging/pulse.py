"""The fixed piece of work that tells a noisy machine, and what the kernel says beside it."""

import os
import re
import zlib
from functools import cache

from fastfeed.auditor.clock import Clock
from fastfeed.auditor.judging.noise import Beat

_REPEATS = 5
_STEAL = 8
"""Field of /proc/stat's first line: user nice system idle iowait irq softirq steal, then guests, who are in user already."""


def beat(root: str = "/") -> Beat:
    """Does it a few times (10 ms together), in the thread that calls: one that measures samples.

    Args:
        root: The folder that stands for /.
    """
    clock, times, work = Clock(), [], _work()
    for _ in range(_REPEATS):
        with clock:
            zlib.decompress(work)
        times.append(clock.time)
    delays = [time.delay for time in times if time.delay is not None]
    wall = sum(time.wall for time in times)
    stolen, ticks = _processors(root)
    return Beat(
        min(time.cpu for time in times),
        sum(delays) / wall if len(delays) == _REPEATS and wall else None,
        stolen,
        ticks,
        _megahertz(root),
    )


@cache
def _work() -> bytes:
    """Made when it is asked for: this module is also loaded by processes that never do it."""
    return zlib.compress(bytes(range(256)) * 8192, 1)


def _processors(root: str) -> tuple[float | None, float | None]:
    """Stolen ticks and all ticks of all processors since the machine began."""
    match = re.match(r"cpu\s+([\d ]+)", _read(os.path.join(root, "proc/stat")))
    fields = [float(word) for word in match[1].split()][:_STEAL] if match else []
    return (fields[-1], sum(fields)) if len(fields) == _STEAL else (None, None)


def _megahertz(root: str) -> float | None:
    text = _read(os.path.join(root, "sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq")).strip()
    return int(text) / 1000 if text.isdigit() else None


def _read(path: str) -> str:
    """A file's text, "" where there is no such file: what a kernel does not show is an answer."""
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
