import subprocess
import sys

from fastfeed.auditor.running.memory import Peak

MIB = 1 << 20


def test_the_peak_is_that_of_a_sample():
    peak = Peak()
    peak.reset()
    data = bytearray(64 * MIB)
    del data
    taken = peak.taken_bytes()
    assert taken is not None and 60 * MIB < taken < 80 * MIB
    peak.reset()
    taken = peak.taken_bytes()
    assert taken is not None and taken < 4 * MIB
    peak.close()


def test_beyond_the_limit_nothing_can_be_allocated():
    code = (
        "from fastfeed.auditor.running import memory\n"
        "memory.limit(100 << 20)\n"
        "bytearray(60 << 20)\n"
        "try:\n    bytearray(200 << 20)\n"
        "except MemoryError:\n    print('refused')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "refused\n"
