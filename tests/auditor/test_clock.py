"""Clocks of one stage."""

import os
import threading
import time

import pytest

from fastfeed.auditor.clock import Clock


def spin(seconds):
    """Computes for so much processor time."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def test_what_is_computed_is_processor_time():
    with Clock() as clock:
        spin(0.03)
    assert clock.time.cpu >= 0.03
    assert clock.time.wall >= clock.time.cpu * 0.99


def test_what_sleeps_is_blocked():
    with Clock() as clock:
        time.sleep(0.05)
    assert clock.time.cpu < 0.04
    assert clock.time.wall >= 0.05
    assert clock.time.blocked is None or clock.time.blocked <= clock.time.wall
    if clock.time.delay is not None:
        assert clock.time.wall - clock.time.cpu - clock.time.delay == pytest.approx(clock.time.blocked)


def test_waiting_for_a_processor_is_no_blocking():
    """Two spinning threads of one process share the interpreter, so processes: pinned to one processor, they take turns."""
    mine = os.sched_getaffinity(0)
    one = {min(mine)}
    others = []
    try:
        os.sched_setaffinity(0, one)
        for _ in range(2):
            child = os.fork()
            if not child:
                spin(2.0)
                os._exit(0)
            others.append(child)
        with Clock() as clock:
            spin(0.2)
    finally:
        os.sched_setaffinity(0, mine)
        for child in others:
            os.kill(child, 9)
            os.waitpid(child, 0)
    if clock.time.delay is None:
        pytest.skip("this kernel does not tell how long a processor was waited for")
    assert clock.time.delay > 0.05, "two others wanted the same processor"
    assert clock.time.blocked is not None
    assert clock.time.blocked < clock.time.wall / 4


@pytest.mark.parametrize("text", [None, "0 0 0\n"], ids=["no file", "a kernel that does not count"])
def test_a_kernel_that_tells_nothing(tmp_path, text):
    path = tmp_path / "schedstat"
    if text is not None:
        path.write_text(text)
    with Clock(schedstat=str(path)) as clock:
        spin(0.06)
    assert clock.time.delay is None
    assert clock.time.blocked is None
    assert clock.time.cpu > 0


def test_what_only_computes_has_waited_for_nothing_and_the_kernel_is_asked_once(tmp_path):
    path = tmp_path / "schedstat"
    path.write_text("5000000 1000000000 7\n")
    clock = Clock(schedstat=str(path))
    with clock:
        pass
    assert (clock.time.delay, clock.time.major_faults) == (0.0, 0)


def test_the_kernels_own_figures_are_read(tmp_path):
    path = tmp_path / "schedstat"
    path.write_text("5000000 1000000000 7\n")
    with Clock(schedstat=str(path)) as clock:
        time.sleep(0.03)
        path.write_text("9000000 1025000000 9\n")
    assert clock.time.delay == pytest.approx(0.025)
    assert clock.time.blocked == pytest.approx(clock.time.wall - clock.time.cpu - 0.025)


def test_nothing_waits_longer_than_it_takes(tmp_path):
    path = tmp_path / "schedstat"
    path.write_text("5000000 1000000000 7\n")
    with Clock(schedstat=str(path)) as clock:
        time.sleep(0.001)  # the kernel is asked where there was time to wait
        path.write_text("9000000 2000000000 9\n")  # as where a processor was lost between the reading of two clocks
    assert clock.time.delay == pytest.approx(max(0.0, clock.time.wall - clock.time.cpu))
    assert clock.time.blocked == pytest.approx(0.0, abs=1e-9)


def test_other_threads_count_where_asked():
    def work():
        spin(0.03)

    clocks = Clock(), Clock(process=True)
    for clock in clocks:
        with clock:
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
    own, whole = (clock.time for clock in clocks)
    assert own.cpu < 0.03 <= whole.cpu


def test_a_clock_is_used_again_in_another_thread():
    clock = Clock()

    def use():
        with clock:
            spin(0.005)

    for _ in range(3):
        thread = threading.Thread(target=use)
        thread.start()
        thread.join()
        assert clock.time.cpu >= 0.005
    use()
    assert clock.time.cpu >= 0.005


def test_no_descriptor_outlives_its_thread():
    def use():
        with Clock():
            pass

    def descriptors():
        return len(os.listdir("/proc/self/fd"))

    use()
    before = descriptors()
    for _ in range(5):
        thread = threading.Thread(target=use)
        thread.start()
        thread.join()
    assert descriptors() == before


def test_a_forked_child_asks_for_itself():
    with Clock() as clock:
        spin(0.001)
    read_end, write_end = os.pipe()
    child = os.fork()
    if not child:
        with clock:
            time.sleep(0.01)
        os.write(write_end, f"{clock.time.delay is None} {clock.time.wall}".encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(write_end)
    with open(read_end, encoding="ascii") as pipe:
        missing, wall = pipe.read().split()
    assert missing == str(clock.time.delay is None)
    assert float(wall) >= 0.01


def test_time_survives_an_exception():
    clock = Clock()

    def fails():
        spin(0.002)
        raise KeyError("no such")

    with pytest.raises(KeyError, match="no such"), clock:
        fails()
    assert clock.time.cpu >= 0.002


def test_no_time_before_the_end():
    clock = Clock()
    with pytest.raises(RuntimeError, match="once its with block has ended"):
        _ = clock.time
    with clock, pytest.raises(RuntimeError, match="has ended"):
        _ = clock.time
