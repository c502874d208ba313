"""Workers that die or hang: the loader does not, and names the sample."""

import logging
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from typing import Any

import pytest
import torch
from loading import TORCHS_NOISE, At, Calls, Raises, fault

from fastfeed.feed.loader import DataLoader

pytestmark = [pytest.mark.filterwarnings("ignore:This DataLoader will create"), *TORCHS_NOISE]


# ---------------------------------------------------------------------------------------------------- workers that die
class Signal:
    def __init__(self, number: int) -> None:
        self.number = number

    def __call__(self) -> None:
        os.kill(os.getpid(), self.number)
        time.sleep(60)


class Exit:
    def __call__(self) -> None:
        os._exit(3)


DEATHS = {"SIGSEGV": Signal(signal.SIGSEGV), "SIGKILL": Signal(signal.SIGKILL), "exit": Exit()}


@pytest.mark.parametrize("death", DEATHS)
@pytest.mark.parametrize("rng", ["torch", "sample"])
def test_a_worker_that_dies_names_the_sample(death, rng):
    found = fault(DEATHS[death], num_workers=2, rng=rng).value
    assert isinstance(found, RuntimeError)
    assert str(found).startswith("DataLoader worker (pid")
    assert re.search(r"worker [01] was at sample 37, number 5 of batch 4 \[32, 33, 34, 35, 36, 37, 38, 39\]", str(found))
    assert found.__cause__ is not None


def test_a_worker_that_dies_in_collate_names_the_batch():
    def collate(samples: list[int]) -> Any:
        if 37 in samples:
            os.kill(os.getpid(), signal.SIGKILL)
        return samples

    assert "was at batch 4 [32, 33, 34, 35, 36, 37, 38, 39]" in str(fault(lambda: 37, collate_fn=collate).value)


def test_a_worker_that_dies_while_the_loop_trains_names_the_sample():
    """torch raises from a signal handler wherever the main thread is; a pid is all that it says."""

    def train() -> None:
        for _ in DataLoader(Calls(At(3, Signal(signal.SIGKILL))), None, num_workers=1):
            time.sleep(0.5)  # a training step

    with Raises(RuntimeError, match=r"worker 0 was at sample 3, batch 3") as caught:
        train()
    assert "time.sleep(0.5)  # a training step" in caught.printed


def test_after_a_death_persistent_workers_are_started_anew():
    loader = DataLoader(Calls(DieOnce(torch.zeros(1).share_memory_()), 8), 2, num_workers=1, persistent_workers=True)
    with Raises(RuntimeError, match="was at sample 4"):
        list(loader)
    assert [batch.tolist() for batch in loader] == [[0, 1], [2, 3], [4, 5], [6, 7]]


class DieOnce:
    def __init__(self, done: torch.Tensor) -> None:
        self.done = done

    def __call__(self, index: int) -> int:
        if index == 4 and not self.done.item():
            self.done.fill_(1)
            os.kill(os.getpid(), signal.SIGKILL)
        return index


# ---------------------------------------------------------------------------------------------------- workers that hang
class Sleep:
    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __call__(self) -> int:
        time.sleep(self.seconds)
        return 37


def test_a_hanging_sample_is_told_with_its_stack_and_not_killed(caplog):
    loader = DataLoader(Calls(At(37, Sleep(1.5))), 8, num_workers=2, hang_seconds=0.4)
    with caplog.at_level(logging.WARNING, logger="fastfeed.loader"):
        assert [n for batch in loader for n in batch.tolist()] == list(range(64))
    (record,) = [record.getMessage() for record in caplog.records]
    assert re.match(r"no batch for \d s: worker [01] is at sample 37, number 5 of batch 4 \[32, 33", record)
    assert "Its stack, most recent call first:" in record
    assert "test_loader_deaths.py" in record and "in __call__" in record and "loading.py" in record
    assert "_one" not in record and "fetch.py" not in record  # down to the user's code


@pytest.mark.long
@pytest.mark.parametrize(("rng", "size"), [("torch", 64), ("sample", 64), ("sample", 6400)])
def test_a_hanging_sample_with_a_timeout(rng, size):
    """With 6,400 samples the other worker of sample mode has nothing to do, and torch hears from it all the time."""
    batches = iter(DataLoader(Calls(At(37, Sleep(2.2)), size), 8, num_workers=2, timeout=1, rng=rng, hang_seconds=0))
    with Raises(RuntimeError, match=r"^DataLoader timed out after 1 seconds: ") as caught:
        list(batches)
    text = str(caught.value)
    assert "was at sample 37, number 5 of batch 4" in text
    assert "Its stack, most recent call first:" in text and "in __call__" in text


@pytest.mark.long
def test_a_loader_works_where_the_main_process_watches_itself(tmp_path):
    """faulthandler's timer in a process used to hang all workers that were forked from it at their first batch."""
    script = tmp_path / "watched.py"
    script.write_text(
        textwrap.dedent("""
        import faulthandler
        from fastfeed.feed.loader import DataLoader
        faulthandler.dump_traceback_later(60, exit=True)
        print([b.item() for b in DataLoader(list(range(3)), num_workers=1)])
        faulthandler.cancel_dump_traceback_later()
        """)
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout == "[0, 1, 2]\n", done.stderr
