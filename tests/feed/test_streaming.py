"""IterableDatasets whose workers hang, die, or read the same; what samples do is in test_streams.py."""

import logging
import os
import signal
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from loading import TORCHS_NOISE, NoCollector, Raises, own_temporary_folder, remains, settled, settles
from torch.utils.data import DataLoader as TorchDataLoader
from torch.utils.data import IterableDataset, get_worker_info

from fastfeed.feed.inner import HAS_IN_ORDER, has_arrived
from fastfeed.feed.loader import DataLoader
from fastfeed.feed.streaming import Streaming

pytestmark = [pytest.mark.filterwarnings("ignore:This DataLoader will create"), *TORCHS_NOISE]


class Parts(IterableDataset[Any]):
    """Each worker gives its part of 64 numbers; at one of them something happens."""

    def __init__(self, at: int = -1, call: Any = None) -> None:
        self.at, self.call = at, call

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        for number in range(first, 64, step):
            if number == self.at:
                self.call()
            yield number


class Whole(IterableDataset[Any]):
    """A stream that knows of no workers."""

    def __init__(self, samples: list[Any]) -> None:
        self.samples = samples

    def __iter__(self) -> Iterator[Any]:
        return iter(self.samples)


def hang() -> None:
    time.sleep(60)


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_worker_that_dies_is_named_with_its_sample():
    loader = DataLoader(Parts(37, kill), 4, num_workers=2)
    with Raises(RuntimeError) as caught:
        list(loader)
    assert "worker 1 was at sample 18 of its stream, its batch 4" in str(caught.value)


def test_a_broken_pass_stays_broken():
    batches = iter(DataLoader(Parts(1, kill), 4, num_workers=2))
    with Raises(RuntimeError):
        list(batches)
    with Raises(RuntimeError, match="worker 1 was at sample 0"):
        next(batches)


@pytest.mark.long
def test_a_hanging_sample_is_logged_with_the_stack_of_its_worker(caplog):
    with caplog.at_level(logging.WARNING, "fastfeed.loader"), Raises(RuntimeError, match="timed out"):
        list(DataLoader(Parts(21, hang), 4, num_workers=1, hang_seconds=0.4, timeout=3))
    assert "worker 0 is at sample 21 of its stream, its batch 5" in caplog.text and "in hang" in caplog.text


@pytest.mark.long
def test_a_timeout_names_the_sample_too():
    with Raises(RuntimeError, match="timed out after 2 seconds") as caught:
        list(DataLoader(Parts(5, hang), 4, num_workers=1, timeout=2))
    assert "worker 0 was at sample 5 of its stream, its batch 1" in str(caught.value) and "in hang" in str(caught.value)


SAMPLES: dict[str, Callable[[int], Any]] = {
    "numbers": int,
    "dicts": lambda n: {"x": torch.full((3,), n), "y": f"text {n}"},
    "arrays": lambda n: (torch.full((2,), n).numpy(), 0.5),
}


@pytest.mark.parametrize("sample", SAMPLES.values(), ids=SAMPLES)
def test_workers_that_read_the_same_are_warned_about(sample):
    loader = DataLoader(Whole([sample(number) for number in range(12)]), 2, num_workers=3, collate_fn=list)
    with pytest.warns(UserWarning, match=r"the streams of [23] workers begin with the same 3 samples"):
        assert sum(map(len, loader)) == 36
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(list(DataLoader(Whole([0] * 12), 2, num_workers=1))) == 6  # one worker repeats nothing


def test_workers_that_read_their_parts_are_not():
    found = torch.cat(list(DataLoader(Parts(), 2, num_workers=4))).tolist()
    assert sorted(found) == list(range(64))


def test_what_cannot_be_compared_is_not():
    assert len(list(DataLoader(Whole([object] * 6), None, num_workers=2))) == 12


def test_batches_are_torchs_with_persistent_workers_too():
    for workers, persistent in ((2, False), (2, True), (0, False)):
        ours = DataLoader(Parts(), 4, num_workers=workers, persistent_workers=persistent)
        theirs: Any = TorchDataLoader(Parts(), 4, num_workers=workers, persistent_workers=persistent)
        for _ in range(3):
            assert [batch.tolist() for batch in ours] == [batch.tolist() for batch in theirs]


class Waits:
    """A sample that is not there before a file is."""

    def __init__(self, gate: Path) -> None:
        self.gate = gate

    def __call__(self) -> None:
        while not self.gate.exists():
            time.sleep(0.005)


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("persistent", [False, True])
def test_a_batch_that_is_made_is_seen_without_waiting_for_it(workers, persistent):
    """It is not once a stream has ended: whose turn it is is unknown then."""
    streaming = Streaming(DataLoader(Parts(), 4, num_workers=workers, persistent_workers=persistent))
    for _ in range(2 if persistent else 1):
        passed = iter(streaming)
        for _ in range(12):
            assert settles(partial(passed._arrived, 0))
            passed._take()
        assert len(list(passed)) == (4 if workers == 1 else 6)
        assert not passed._arrived(0)


def test_others_batches_do_not_count_before_their_turn(tmp_path):
    """Worker 1 waits with its first sample; worker 2 is far."""
    streaming = Streaming(DataLoader(Parts(1, Waits(tmp_path / "gate")), 4, num_workers=3))
    passed = iter(streaming)
    assert settles(lambda: passed._arrived(0))
    passed._take()
    assert settles(lambda: has_arrived(passed._inner)) and not passed._arrived(0)
    (tmp_path / "gate").touch()
    assert settles(lambda: passed._arrived(0)) and passed._take().data.tolist() == [1, 4, 7, 10]


@pytest.mark.skipif(not HAS_IN_ORDER, reason="this torch has no in_order")
def test_as_they_come_any_batch_counts(tmp_path):
    streaming = Streaming(DataLoader(Parts(0, Waits(tmp_path / "gate")), 4, num_workers=2, in_order=False))
    passed = iter(streaming)
    assert settles(lambda: passed._arrived(0)) and passed._take().data.tolist() == [1, 3, 5, 7]
    (tmp_path / "gate").touch()
    assert len(list(passed)) == 15


def test_without_workers_nothing_is_made_ahead():
    assert not iter(Streaming(DataLoader(Parts(), 4, num_workers=0)))._arrived(0)


def test_nothing_is_left_of_a_pass_that_is_dropped():
    with own_temporary_folder():
        before = remains()
        with NoCollector():
            batches = iter(DataLoader(Parts(), 4, num_workers=2))
            next(batches)
            del batches
            assert settled(before) == {}


def test_its_length_is_torchs():
    class Long(Whole):
        def __len__(self) -> int:
            return len(self.samples)

    ours = Streaming(DataLoader(Long([1] * 7), 2))
    assert len(ours) == len(iter(ours)) == len(TorchDataLoader(Long([1] * 7), 2)) == 4
