"""fastfeed/trace.py: recorders and progress."""

import threading
import time
from contextlib import contextmanager
from multiprocessing.reduction import ForkingPickler

import pytest

from fastfeed.trace import (
    NULL,
    QUIET,
    NullProgress,
    SlowestRecorder,
    Span,
    count,
    done_metering,
    epoch_read,
    listening,
    metering,
    reading_epoch,
)


def test_the_null_recorder_is_one_context_for_all():
    with NULL.span("read", 0), NULL.span("decode", 1):
        assert NULL.span("read", 2) is NULL.span("decode", 3)


def test_the_null_progress_takes_any_order_of_calls():
    QUIET.advance(1, 2)
    QUIET.start("pack", None, None)
    QUIET.finish()
    assert isinstance(QUIET, NullProgress)


def test_the_slowest_spans_are_kept_slowest_first():
    recorder = SlowestRecorder(keep=2)
    for position, seconds in enumerate((0.0, 0.03, 0.0, 0.015)):
        with recorder.span("read" if position % 2 else "decode", position):
            time.sleep(seconds)
    kept = recorder.slowest()
    assert [span.position for span in kept] == [1, 3]
    assert kept[0].seconds >= 0.03 > kept[1].seconds >= 0.015
    assert recorder.spans == 4
    assert recorder.total_seconds["read"] == pytest.approx(sum(span.seconds for span in kept))
    assert set(recorder.total_seconds) == {"read", "decode"}


def test_memory_does_not_grow_with_spans():
    recorder = SlowestRecorder(keep=3)
    for position in range(200):
        with recorder.span("read", position):
            pass
    assert len(recorder.slowest()) == 3
    assert recorder.spans == 200


def test_a_stage_that_raises_is_timed_and_its_error_passes():
    recorder = SlowestRecorder()
    with pytest.raises(KeyError, match="gone"), recorder.span("decode", 7):
        raise KeyError("gone")
    assert [(span.stage, span.position) for span in recorder.slowest()] == [("decode", 7)]


def test_spans_order_by_time():
    assert Span(0.1, "z", 9) < Span(0.2, "a", 0)


class Heard:
    def __init__(self):
        self.stages, self.counted = [], []

    @contextmanager
    def span(self, stage, position):
        self.stages.append((stage, position))
        yield

    def count(self, name, amount=1):
        self.counted.append((name, amount))


def test_a_meter_hears_what_its_thread_does_and_nobody_elses():
    meter = Heard()
    token = metering(meter)
    try:
        count("hits")
        count("bytes", 12)
        assert listening(NULL) is meter
        other = threading.Thread(target=count, args=("elsewhere",))
        other.start()
        other.join()
    finally:
        done_metering(token)
    count("afterwards")
    assert meter.counted == [("hits", 1), ("bytes", 12)]
    assert listening(NULL) is NULL


def test_a_recorder_of_ones_own_is_heard_beside_the_meter():
    own, meter = Heard(), Heard()
    assert listening(own) is own
    token = metering(meter)
    try:
        with listening(own).span("read", 4):
            pass
    finally:
        done_metering(token)
    assert own.stages == meter.stages == [("read", 4)]


def test_each_thread_says_which_epoch_it_reads_for():
    assert epoch_read() is None
    found: list[int | None] = []

    def read() -> None:
        with reading_epoch(3):
            found.append(epoch_read())
        found.append(epoch_read())

    other = threading.Thread(target=read)
    other.start()
    other.join()
    assert found == [3, None] and epoch_read() is None


def test_the_null_recorder_stays_the_one():
    assert ForkingPickler.loads(ForkingPickler.dumps(NULL)) is NULL
