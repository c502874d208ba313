"""Tests on several ranks: real processes that leave what they died of."""

import multiprocessing
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
    ranks = [context.Process(target=target, args=(rank, *arguments)) for rank in range(world)]
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
    assert [rank.exitcode for rank in ranks] == [0] * world, notes
