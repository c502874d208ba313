import subprocess
import sys


def said(code):
    """What a fresh process prints: an allocator that has kept memory of other tests would spoil it."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_the_peak_is_that_of_a_sample():
    code = (
        "from fastfeed.auditor.running.memory import Peak\n"
        "peak = Peak()\n"
        "peak.reset()\n"
        "data = bytearray(64 << 20)\n"
        "del data\n"
        "print(peak.taken_bytes() >> 20)\n"
        "peak.reset()\n"
        "print(peak.taken_bytes())\n"
        "peak.close()\n"
    )
    first, second = said(code)
    assert 60 < int(first) < 80
    assert second == "None", "a sample that takes no new memory has no peak of 0 bytes: it is unknown"


def test_the_peak_of_the_program_before_exec_is_not_that_of_a_sample():
    peak = (
        "from fastfeed.auditor.running.memory import Peak; peak = Peak(); peak.reset(); print((peak.taken_bytes() or 0) >> 20)"
    )
    code = f"import os, sys\ndata = bytearray(200 << 20)\nos.execv(sys.executable, [sys.executable, '-c', {peak!r}])"
    (taken,) = map(int, said(code))
    assert taken < 4


def test_beyond_the_limit_nothing_can_be_allocated():
    code = (
        "from fastfeed.auditor.running import memory\n"
        "memory.limit(100 << 20)\n"
        "bytearray(60 << 20)\n"
        "try:\n    bytearray(200 << 20)\n"
        "except MemoryError:\n    print('refused')\n"
    )
    assert said(code) == ["refused"]
