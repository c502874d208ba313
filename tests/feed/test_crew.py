import logging
import os
import signal
import time

import pytest
from loading import TORCHS_NOISE, At, Calls, Raises
from torch.utils.data import DataLoader as TorchDataLoader

from fastfeed.feed.crew import Crew, WorkerLost, about_workers
from fastfeed.feed.loader import DataLoader
from fastfeed.feed.tasks import Drawn, TaskOrder
from fastfeed.feed.workers import DONE, Workers

pytestmark = TORCHS_NOISE


def kill():
    os.kill(os.getpid(), signal.SIGKILL)


def leave():
    os._exit(3)


def hang():
    time.sleep(2.5)  # torch would wait five seconds for a worker that sleeps on


@pytest.mark.long
@pytest.mark.parametrize("context", ["fork", "spawn", "forkserver"])
def test_a_worker_that_dies_is_named_with_its_sample(context):
    with Raises(RuntimeError, match=r"DataLoader worker \(pid.*at sample 5, number 1 of batch 1 \[4, 5, 6, 7\]"):
        list(DataLoader(Calls(At(5, kill), 16), 4, num_workers=2, multiprocessing_context=context))


def test_a_worker_that_leaves_is_named_too():
    with Raises(RuntimeError, match=r"DataLoader worker \(pid.*exited unexpectedly.*at sample 2, number 2 of batch 0"):
        list(DataLoader(Calls(At(2, leave), 8), 4, num_workers=1))


def test_after_a_death_the_pass_stays_broken_and_a_new_one_begins():
    loader = DataLoader(Calls(At(5, kill), 8), 4, num_workers=1, prefetch_factor=1, persistent_workers=True)
    batches = iter(loader)
    next(batches)
    for _ in range(2):
        with Raises(RuntimeError, match="at sample 5"):
            next(batches)
    assert next(iter(loader)).tolist() == [0, 1, 2, 3]


@pytest.mark.long
def test_a_timeout_names_the_sample_and_shows_the_stack():
    with Raises(RuntimeError, match=r"(?s)timed out after 1 seconds: worker 0 was at sample 1, .*in hang"):
        list(DataLoader(Calls(At(1, hang), 2), 2, num_workers=1, timeout=1))


@pytest.mark.long
def test_a_worker_that_hangs_is_told_with_its_stack(caplog):
    def wait():
        time.sleep(2.5)

    with caplog.at_level(logging.WARNING, "fastfeed.loader"):
        list(DataLoader(Calls(lambda index: wait() or index, 1), 1, num_workers=1, hang_seconds=0.5))
    (text,) = [record.getMessage() for record in caplog.records]
    assert "worker 0 is at sample 0, number 0 of batch 0 [0]" in text and "in wait" in text


def test_torchs_own_words_are_known():
    loader = TorchDataLoader(Calls(At(1, kill), 2), 1, num_workers=1)
    with Raises(RuntimeError) as caught:
        list(loader)
    assert about_workers(caught.value)
    assert not about_workers(RuntimeError("CUDA out of memory")) and not about_workers(ValueError("DataLoader worker (pid 1"))


def test_what_a_worker_is_doing():
    order = TaskOrder([[3, 4]], batched=True)
    order.current.pending[0] = Drawn([3, 4], 0, 2)
    crew = Crew(Workers(1), order, Calls(lambda index: index))
    assert crew.workers is not None
    assert crew.doing(0) == "before its first batch"
    crew.workers.whereabouts.begin(0, 0)
    assert crew.doing(0) == "at batch 0 [3, 4]"
    crew.workers.whereabouts.at(0, 1)
    assert crew.doing(0) == "at sample 4, number 1 of batch 0 [3, 4]"
    crew.workers.whereabouts.at(0, DONE)
    assert crew.doing(0) == "done with batch 0 [3, 4]"
    order.current.pending.clear()
    assert crew.doing(0) == "after batch 0"
    lost = WorkerLost("x")
    assert crew.lost(lost) is lost
