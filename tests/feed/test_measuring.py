"""fastfeed/feed/measuring.py: batches become one figure, whatever comes in bursts, late or once."""

import pytest

from fastfeed.feed.measuring import MOST_BLOCKS, Block, Observation, Point, Window, figure, starved


def seen(wait: float = 0.0, step: float = 0.01, workers: int = 4, **more) -> Observation:
    return Observation(wait_seconds=wait, step_seconds=step, workers=workers, **more)


def feed(window: Window, waits, step: float = 0.01, **more) -> tuple[Point | None, int]:
    """The first figure, and after how many batches it came."""
    for count, wait in enumerate(waits, start=1):
        point = window.add(seen(wait, step, window.workers, **more))
        if point is not None:
            return point, count
    return None, len(waits)


def test_waits_in_bursts_are_averaged_over_turns():
    # four workers hand over together: three batches are there, the fourth is waited for
    point, count = feed(Window(4, settle=0), [0.0, 0.0, 0.0, 0.08] * 10)
    assert point is not None and count == 16  # two blocks of eight
    assert point.batch_seconds == pytest.approx(0.03)
    assert point.own_seconds == pytest.approx(0.01 + 0.0005 / 4)
    assert point.waiting == pytest.approx(0.66, abs=0.01)
    assert point.starving
    assert (point.workers, point.make_seconds, point.working) == (4, None, None)


def test_a_consumer_that_never_waits():
    point, count = feed(Window(8, settle=0), [0.0] * 20)
    assert point is not None and count == 16
    assert point.batch_seconds == pytest.approx(0.01)
    assert (point.waiting, point.starving, point.error) == (0.0, False, 0.0)


def test_the_first_batches_are_left_out():
    point, count = feed(Window(5, settle=7), [9.0] * 7 + [0.0] * 20)
    assert point is not None and count == 17
    assert not point.starving


def test_batches_of_another_crew_are_left_out():
    window = Window(4, settle=0)
    assert all(window.add(seen(9.0, workers=2)) is None for _ in range(50))
    point, _ = feed(window, [0.0] * 16)
    assert point is not None and not point.starving


def test_one_checkpoint_is_no_step_and_one_hiccup_is_no_supply():
    window = Window(5, settle=0)
    point = None
    for batch in range(100):
        step = 30.0 if batch == 3 else 0.01
        point = window.add(seen(5.0 if batch == 12 else 0.0, step, workers=5))
        if point is not None:
            break
    assert point is not None
    assert batch > 5 * 2  # blocks that differ are looked at for longer
    assert point.own_seconds == pytest.approx(0.01, rel=0.01)
    assert not point.starving


def test_slow_samples_that_come_again_and_again_are_supply():
    point, _ = feed(Window(5, settle=0), [0.0, 0.0, 0.0, 0.0, 0.05] * 10)
    assert point is not None and point.waiting == pytest.approx(0.5, abs=0.01)


def test_a_batch_that_was_ready_was_not_waited_for():
    assert starved(seen(0.02, late_seconds=0.0)) == 0.0
    assert starved(seen(0.02, late_seconds=0.015)) == 0.015
    assert starved(seen(0.02, late_seconds=9.0)) == 0.02  # clocks that differ
    assert starved(seen(0.02)) == pytest.approx(0.0195)  # less what handing over takes
    assert starved(seen(0.0001)) == 0.0


def test_one_turn_is_enough_where_the_workers_own_times_are_clear():
    point, count = feed(Window(8, settle=0), [0.04] * 20, make_seconds=0.4, work_seconds=0.1)
    assert point is not None and count == 8
    assert point.batch_seconds == pytest.approx(0.05)
    assert point.working == pytest.approx(0.25)
    assert point.make_seconds == pytest.approx(0.4)
    assert point.error == pytest.approx(0.0, abs=1e-6)
    _, count = feed(Window(8, settle=0, fewest=5), [0.04] * 40, make_seconds=0.4)
    assert count == 40


def test_what_a_long_first_step_hid_is_seen_by_the_workers_times():
    # 400 ms for a batch and four workers: one each 100 ms, though the consumer (10 ms) finds some ready
    point, _ = feed(Window(4, settle=0), [0.0] * 20, make_seconds=0.4)
    assert point is not None
    assert point.batch_seconds == pytest.approx(0.1)
    assert point.starving


def test_after_another_crew_blocks_count_from_the_first_wait():
    waits = [0.0] * 12 + [0.04] * 30
    point, count = feed(Window(8, settle=0, after_another=True), waits)
    assert point is not None and count == 12 + 16
    assert point.batch_seconds == pytest.approx(0.05)


def test_after_another_crew_no_wait_in_many_blocks_is_none():
    point, count = feed(Window(8, settle=0, after_another=True), [0.0] * 99)
    assert point is not None and (count, point.starving) == (8 * MOST_BLOCKS, False)
    point, count = feed(Window(8, settle=0, after_another=True), [0.0] * 99, make_seconds=0.02)
    assert point is not None and (count, point.starving) == (16, False)  # the workers' times say that it lasts


def test_the_end_of_an_epoch_drops_the_unfinished_block():
    window = Window(5, settle=0)
    for _ in range(8):
        window.add(seen(0.0, workers=5))
    window.interrupt(settle=2)
    point, count = feed(window, [9.0, 9.0] + [0.0] * 20)
    assert point is not None and count == 7
    assert not point.starving


def test_blocks_are_whole_turns():
    assert [Window(workers, 0).size for workers in (1, 2, 3, 4, 5, 8, 32)] == [5, 6, 6, 8, 5, 8, 32]


def test_a_block_without_its_longest_wait():
    block = Block()
    for wait in (0.0, 0.01, 5.0):
        block.add(seen(wait, late_seconds=wait))
    assert block.waiting == pytest.approx(0.01 / 0.04)
    assert block.scatter == 0.5  # nothing tells


def test_the_error_of_one_block_is_that_of_its_batches():
    block = Block()
    for make in (0.1, 0.2, 0.3, 0.2):
        block.add(seen(0.0, make_seconds=make))
    assert figure(4, [block]).error == pytest.approx((0.005 / 4) ** 0.5 / 0.2)
    assert figure(4, [block]).working == 1.0  # processor times that are not told are taken to be all of it


def test_nothing_that_takes_no_time_divides_by_zero():
    point, _ = feed(Window(5, settle=0), [0.0] * 10, step=0.0)
    assert point is not None and (point.waiting, point.starving) == (0.0, False)
