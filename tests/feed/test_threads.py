import json
import os
import subprocess
import sys
from types import SimpleNamespace

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


SCRIPT = """
import ctypes, json, os, sys
import numpy as np
import torch
from fastfeed.feed.loader import DataLoader
from fastfeed.feed.threads import loaded_libraries

class Threads:
    def __len__(self):
        return 1
    def __getitem__(self, index):
        return blas()

def blas():
    for path in loaded_libraries():
        library = ctypes.CDLL(path, mode=os.RTLD_NOLOAD)
        for name in ("scipy_openblas_get_num_threads64_", "openblas_get_num_threads64_", "openblas_get_num_threads"):
            if hasattr(library, name):
                return getattr(library, name)()
    return None

found = [blas()]
for options in ({"seed": 1}, {}):
    (value,) = DataLoader(Threads(), None, collate_fn=int, num_workers=1, **options) if found[0] else [None]
    found.append(value)
print(json.dumps([*found, blas()]))
"""


def test_blas_that_is_loaded_already_is_told_in_sample_mode():
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "2"}
    code = f"import os\nimport numpy\ndel os.environ['OPENBLAS_NUM_THREADS']\n{SCRIPT}"
    out = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, env=environment, check=True
    )
    before, sample, torchs, after = json.loads(out.stdout)
    if before is None:
        pytest.skip("this NumPy has no OpenBLAS that can be asked")
    if before == 1:
        pytest.skip("with one processor OpenBLAS has one thread anyway")
    assert (before, sample, torchs, after) == (2, 1, 2, 2)


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
