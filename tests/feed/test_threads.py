import os
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from loading import Calls

from fastfeed.feed.loader import DataLoader
from fastfeed.feed.threads import WorkerThreads, limit_opencv, loaded_libraries

NAMES = ["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OPENCV_FOR_THREADS_NUM", "TOKENIZERS_PARALLELISM"]


def seen(index: int) -> list[str]:
    return [str(torch.get_num_threads()), *(str(os.environ.get(name)) for name in NAMES)]


@pytest.fixture(autouse=True)
def unset(monkeypatch):
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)


def in_a_worker(**options):
    (found,) = DataLoader(Calls(seen, 1), None, collate_fn=list, num_workers=1, **options)
    return found


@pytest.mark.long
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_what_is_loaded_in_a_worker_later_is_told_by_its_environment(method):
    assert in_a_worker(multiprocessing_context=method, seed=1) == ["1", "1", "1", "1", "1", "false"]
    assert not any(name in os.environ for name in NAMES)  # in this process nothing has changed


def test_torch_mode_leaves_alone_what_could_change_last_bits():
    assert in_a_worker() == ["1", "None", "None", "None", "1", "false"]


def test_what_the_user_has_set_stays(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "true")
    assert in_a_worker(seed=1) == ["1", "3", "None", "None", "1", "true"]


def tasks(index: int) -> int:
    return len(os.listdir("/proc/self/task"))


def test_an_openblas_that_is_loaded_already_starts_no_threads_in_a_worker():
    """Told a number after a fork it would start its whole pool, whose threads spin."""
    np.ones((64, 64)) @ np.ones((64, 64))
    data = Calls(tasks, 1)
    sample, torchs = (list(DataLoader(data, None, collate_fn=int, num_workers=1, seed=seed)) for seed in (1, None))
    assert sample == torchs


def test_libraries_that_are_loaded_are_found_by_their_names():
    assert all(os.path.basename(path).startswith("lib") and ".so" in path for path in loaded_libraries())


def opencv(threads: int, processors: int = 8) -> SimpleNamespace:
    found = SimpleNamespace(threads=threads, getNumberOfCPUs=lambda: processors)
    found.getNumThreads = lambda: found.threads
    found.setNumThreads = lambda count: setattr(found, "threads", count)
    return found


def test_opencv_has_no_pool_of_threads_unless_the_user_has_set_a_number():
    for before, count, after in ((8, 1, 0), (8, 3, 3), (2, 1, 2)):
        cv2 = opencv(before)
        limit_opencv(cv2, count)
        assert cv2.threads == after


def test_it_is_a_value():
    assert WorkerThreads(1, exact=True) == WorkerThreads(1, exact=True) != WorkerThreads(1, exact=False)
