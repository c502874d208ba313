"""benchmarks/bench_faults.py: all that it plants is found, and nothing sound is flagged."""

import subprocess
import sys

import pytest
from helpers import ROOT


@pytest.mark.soak
def test_every_planted_fault_is_named_and_nothing_sound_is():
    script = ROOT / "benchmarks" / "bench_faults.py"
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("\n") > 20
