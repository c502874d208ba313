"""Tests on several ranks: real processes that leave what they died of."""

import atexit
import multiprocessing
import os
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest


@contextmanager
def noted(note: Path) -> Iterator[None]:
    """What ends this process, an exit too, is written down for the parent, which cannot see it otherwise."""
    try:
        yield
    except BaseException:  # SystemExit and Ctrl-C as well: it is noted and goes on
        note.write_text(traceback.format_exc())
        raise


def _rank(target: Callable[..., None], *arguments: Any) -> None:
    """Call target; where it returns, this process ends after all that is done at exit, and takes no interpreter apart.

    After DistributedDataParallel, gloo's threads outlive destroy_process_group() with a last piece of work, whose tensors have
    Python objects: where it goes while the interpreter is taken apart, the process aborts, "terminate called without an active
    exception" (https://github.com/pytorch/pytorch/pull/179291). Once in some hundred runs, and nothing of what is tested here.
    """
    atexit.register(os._exit, 0)  # before all others, so the last that is called
    try:
        target(*arguments)
    except BaseException:  # SystemExit and Ctrl-C too: its exit code has to say so, and it goes on
        atexit.unregister(os._exit)
        raise


def run_ranks(target: Callable[..., None], world: int, *arguments: Any, folder: Path, seconds: float = 200) -> None:
    """Call target(rank, *arguments) in new processes at once; all of them end well.

    They are spawned: a fork of a process that has trained before hangs in autograd. They see no GPU: there may be fewer of
    these than ranks.

    Args:
        target: What a rank does; noted(folder / "rankN.txt") shows here what it died of.
        world: Ranks.
        *arguments: Of each.
        folder: Where notes are.
        seconds: After which a rank is killed.
    """
    context = multiprocessing.get_context("spawn")
    ranks = [context.Process(target=_rank, args=(target, rank, *arguments)) for rank in range(world)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUDA_VISIBLE_DEVICES", "")
        for rank in ranks:
            rank.start()
    for rank in ranks:
        rank.join(seconds)
        if rank.is_alive():
            rank.kill()
            rank.join()
    notes = "".join(path.read_text() for path in folder.glob("*.txt"))
    codes = [rank.exitcode for rank in ranks]
    assert codes == [0] * world, f"exit codes {codes}\n{notes}"
