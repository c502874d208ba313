from fastfeed.auditor.judging.codes import TIMING_CODES
from fastfeed.auditor.looking.codes import CODES as LOOKING
from fastfeed.auditor.running.catalogue import CODES, LATE
from fastfeed.auditor.running.codes import RUNNING


def test_every_room_is_in_it():
    assert len(CODES) == len(RUNNING) + len(LOOKING) + len(TIMING_CODES)


def test_what_needs_all_samples_is_found_late():
    assert {"slow", "oversize", "duplicate", "class-tiny"} <= LATE
    assert not LATE & {"truncated", "crash", "html-page"}
    assert set(CODES) >= LATE
