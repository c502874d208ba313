"""Threads of libraries inside a worker: no more than the plan says, so that workers together do not outnumber the processors.

torch sets its own to 1 in each worker. Libraries that are loaded already (by a fork, or with the dataset) are told by their own
functions, found in the process itself; those that are loaded later read the environment. What the user has set stays.
"""

import ctypes
import os
import re
import sys
from dataclasses import dataclass
from typing import Any

import torch

from fastfeed.environment import limit_library_threads

_LIBRARY = re.compile(r"(/.*/lib(?:mkl_rt|gomp|iomp5|omp)[^/]*\.so[^/]*)$")
_SETTERS = ("MKL_Set_Num_Threads", "omp_set_num_threads")
"""Each takes an int. OpenBLAS is not among them: in a forked process it starts its whole pool when it is told a number, and
those threads spin; on 16 processors an image took 14 ms of processor time for a while, and 4.5 ms without."""


@dataclass(frozen=True, slots=True)
class WorkerThreads:
    """Called in a worker before its first sample; a worker_init_fn of the user's comes later, and has the last word."""

    count: int
    """Threads of each library."""
    exact: bool
    """Leave libraries alone whose last bits may depend on it (MKL and OpenMP): torch mode promises what torch would give."""

    def __call__(self) -> None:
        """Set them."""
        if torch.get_num_threads() != self.count:
            torch.set_num_threads(self.count)
        given = limit_library_threads(self.count, exact=self.exact)
        if "opencv" not in given and "cv2" in sys.modules:
            limit_opencv(sys.modules["cv2"], self.count)
        if "openmp" not in given and not self.exact:
            for path in loaded_libraries():
                _limit_library(path, self.count)


def limit_opencv(cv2: Any, count: int) -> None:  # noqa: ANN401 - a module
    """Where the user has set another number than OpenCV's own choice, that stays."""
    if cv2.getNumThreads() == cv2.getNumberOfCPUs():
        cv2.setNumThreads(count if count > 1 else 0)  # 0 is without its pool of threads


def loaded_libraries() -> list[str]:
    """Paths of the OpenMP libraries, and MKL's, that this process has loaded."""
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as file:
        found = (_LIBRARY.search(line.rstrip("\n")) for line in file)
        return sorted({match[1] for match in found if match})


def _limit_library(path: str, count: int) -> None:
    try:
        library = ctypes.CDLL(path, mode=os.RTLD_NOLOAD)
    except OSError:  # its file is gone since it was loaded: it keeps its threads
        return
    for name in _SETTERS:
        setter = getattr(library, name, None)
        if setter is not None:
            setter(count)
