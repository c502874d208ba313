"""Filling in a process of its own: of lowest priority, by the same rules as a thread's, and gone with whoever it is for."""

import gc
import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from caching import NAME, other_process

from fastfeed.feed.fillingapart import FillingApart
from fastfeed.store.cached import FETCH_NS, FETCHED_BYTES
from fastfeed.store.lease import Lease
from fastfeed.store.shelf import Room, Shelf
from fastfeed.trace import count


class Tens:
    """Ten entries of ten bytes; who puts them in is written down. A copy in another process is a guest."""

    entries = 10

    def __init__(self, place: Path, log: Path, hangs_at: int = 99, *, guest: bool = False) -> None:
        self.given = place, log, hangs_at
        self.shelf = Shelf(Lease(str(place), NAME, self.entries, about={}, guest=guest))

    def __reduce__(self) -> Any:
        return again, self.given

    def fill_from(self, number: int) -> int | None:
        _, log, hangs_at = self.given
        if number >= self.entries:
            return None
        with open(log, "a", encoding="ascii") as file:
            file.write(f"{os.getpid()} {os.nice(0)} {number}\n")
        if number == hangs_at:
            time.sleep(600)
        count(FETCHED_BYTES, 10)
        count(FETCH_NS, 1_000)
        with self.shelf.fetching(number, 0) as alone:
            assert alone and self.shelf.put(number, bytes([number] * 10), Room(1 << 30))
        return number + 1


def again(place: Path, log: Path, hangs_at: int) -> Tens:
    return Tens(place, log, hangs_at, guest=True)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "place").mkdir()
    return tmp_path / "place"


def until(done: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 60
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def lines(log: Path) -> list[list[int]]:
    """Process, niceness and number of each entry that was begun."""
    return [list(map(int, line.split())) for line in log.read_text().splitlines()] if log.exists() else []


def is_there(process: int) -> bool:
    """Whether a process runs; one that has ended and waits for its parent does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.long),
                                    pytest.param("forkserver", marks=pytest.mark.long)])  # fmt: skip
def test_all_of_it_in_order_by_another_process_that_is_nice(tmp_path: Path, place: Path, method):
    tens, log = Tens(place, tmp_path / "log"), tmp_path / "log"
    filling = FillingApart.begun(tens, multiprocessing.get_context(method))
    assert filling is not None
    until(lambda: not filling.runs)
    (process,) = {own for own, _, _ in lines(log)}
    assert process != os.getpid() and [rest for _, *rest in lines(log)] == [[19, number] for number in range(10)]
    assert [tens.shelf.find(number) is not None for number in range(10)] == [True] * 10
    assert str(filling.filled) == "10 pieces (100 B) fetched in the background in 0.0 ms (it came to the end)"
    tens.shelf.close()
    assert not list(place.iterdir())


@pytest.mark.parametrize("ends", ["stop", "drop"])
def test_it_ends_at_once_where_it_is_stopped_or_nobody_has_it(tmp_path: Path, place: Path, ends):
    tens, log = Tens(place, tmp_path / "log", hangs_at=4), tmp_path / "log"
    filling = FillingApart.begun(tens, multiprocessing.get_context("fork"))
    assert filling is not None
    until(lambda: len(lines(log)) == 5)
    (process,) = {own for own, _, _ in lines(log)}
    assert filling.filled.state == "it goes on" and filling.filled.pieces == 4
    if ends == "stop":
        filling.stop()
        assert not filling.runs and filling.filled.state == "it was stopped"
    del filling
    gc.collect()
    assert not is_there(process)
    assert tens.shelf.find(3) is not None and tens.shelf.find(4) is None
    tens.shelf.close()


def test_one_process_at_a_time_and_it_takes_over(tmp_path: Path, place: Path):
    tens = Tens(place, tmp_path / "log")
    turn = tens.shelf.take_turn()
    assert turn is not None
    filling = FillingApart.begun(tens, multiprocessing.get_context("fork"))
    assert filling is not None
    until(lambda: filling.filled.state == "another process does it")
    time.sleep(0.1)  # in which it could fetch all, if it did not wait
    assert filling.runs and filling.filled.pieces == 0 and not lines(tmp_path / "log")
    Shelf.give_turn(turn)
    until(lambda: not filling.runs)
    assert len(lines(tmp_path / "log")) == 10
    tens.shelf.close()


KILLED = """
import multiprocessing, sys, time
from pathlib import Path
from feed.test_fillingapart import Tens
from fastfeed.feed.fillingapart import FillingApart

if __name__ == "__main__":
    place, log, method = sys.argv[1:]
    tens = Tens(Path(place), Path(log), hangs_at=1)
    filling = FillingApart.begun(tens, multiprocessing.get_context(method))
    worker = multiprocessing.get_context(method).Process(target=time.sleep, args=(600,), daemon=True)
    worker.start()
    while filling.runs and not filling.filled.pieces:
        time.sleep(0.01)
    print("ready", flush=True)
    print(worker.pid, flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("method", ["fork", pytest.param("forkserver", marks=pytest.mark.long)])
def test_it_ends_with_a_parent_that_is_killed_though_workers_outlive_it(tmp_path: Path, place: Path, method):
    log = tmp_path / "log"
    with other_process(KILLED, place, log, method) as process:
        until(lambda: len(lines(log)) == 2)  # it is in the midst of a sample that takes for ever
        (filler,) = {own for own, _, _ in lines(log)}
        assert process.stdout is not None
        worker = int(process.stdout.readline())
        try:
            process.kill()
            process.wait()
            until(lambda: not is_there(filler))
            assert is_there(worker)
        finally:
            os.kill(worker, signal.SIGKILL)


def test_where_no_process_can_be_started_reads_fill_it(tmp_path: Path, place: Path, caplog):
    caplog.set_level("INFO", "fastfeed.cache")
    tens = Tens(place, tmp_path / "log")
    tens.given = place, lambda: None, 0  # type: ignore[assignment]  # cannot be pickled
    assert FillingApart.begun(tens, multiprocessing.get_context("spawn")) is None
    assert "filled by reads alone: no process could be started for it" in caplog.text
    tens.shelf.close()
