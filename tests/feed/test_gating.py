import pytest

from fastfeed.feed.gating import Thrift, against_workers, receive_seconds

MIB = 1 << 20


@pytest.mark.parametrize(
    ("seconds", "size_bytes", "batches", "method", "persists", "gate"),
    [
        (0.0002, 0, None, "fork", True, "cheap"),
        (0.0004, 0, None, "fork", True, None),
        (0.003, 37 * MIB, None, "fork", True, "cheap"),
        (0.001, 0, 40, "fork", False, "short"),
        (0.001, 0, 40, "fork", True, None),
        (0.001, 0, 60, "fork", False, None),
        (0.02, 0, 100, "spawn", False, "short"),
    ],
)
def test_what_speaks_against_workers(seconds, size_bytes, batches, method, persists, gate):
    found = against_workers(seconds, size_bytes, batches, method, persists=persists)
    assert (found and found[0]) == gate
    assert found is None or "a batch is made here in" in found[1] or "an epoch is" in found[1]


def judged(thrift: Thrift, batches: int, make: float, take: float, *, workers: int = 2, size_bytes: int = 1000) -> list[str]:
    """What is said about batches that came alike."""
    told = [thrift.add(number % workers, make, take + 0.01, 0.01, size_bytes) for number in range(batches)]
    return [why for why in told if why is not None]


def test_batches_that_cost_less_to_make_than_to_take():
    (why,) = judged(Thrift(), 18, 0.0002, 0.0005)
    assert why == "a worker makes a batch in 0.2 ms; taking it from the worker costs 0.5 ms"


def test_too_few_to_judge():
    assert judged(Thrift(), 17, 0.0002, 0.0005) == []  # the first of each worker is left out


def test_batches_that_cost_more():
    assert judged(Thrift(), 500, 0.0006, 0.0005) == []


def test_a_busy_machine_in_which_taking_takes_long_says_nothing():
    assert judged(Thrift(), 500, 0.005, 0.02) == []


def test_large_batches_cost_more_to_take():
    assert receive_seconds(37 * MIB) > 10 * receive_seconds(1000)
    assert judged(Thrift(), 18, 0.003, 0.004, size_bytes=37 * MIB)


def test_it_is_judged_a_few_times_only():
    thrift = Thrift()
    assert judged(thrift, 100, 0.1, 0.001) == []
    assert judged(thrift, 100, 0.0001, 0.001) == []


def epoch(thrift: Thrift, batches: int, make: float, start: float) -> None:
    for number in range(batches):
        thrift.add(number % 2, make, start + make if not number else 0.001, 0.0, 100)


def test_an_epoch_in_which_starting_workers_took_longest():
    thrift = Thrift()
    epoch(thrift, 10, 0.004, 0.1)
    why = thrift.epoch_over("fork", complete=True)
    assert why == "an epoch is 10 batches, made in 40.0 ms in all, and it takes 100.0 ms until workers have started"
    assert thrift.epoch_over("fork", complete=True) is None  # each epoch for itself


def test_an_epoch_that_was_worth_its_workers():
    thrift = Thrift()
    epoch(thrift, 100, 0.004, 0.1)
    assert thrift.epoch_over("fork", complete=True) is None
    epoch(thrift, 10, 0.1, 5.0)  # a start that took longer than starts take says that the machine is busy
    assert thrift.epoch_over("fork", complete=True) is None


def test_an_epoch_that_was_left_tells_nothing():
    thrift = Thrift()
    epoch(thrift, 1, 0.004, 0.1)
    assert thrift.epoch_over("fork", complete=False) is None
