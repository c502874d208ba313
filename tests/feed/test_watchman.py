import logging
import time

from fastfeed.feed.watchman import Watchman


def told(caplog, texts, waits):
    """What is logged while the main process waits (True) or works (False) for some seconds."""
    with caplog.at_level(logging.WARNING, "fastfeed.loader"):
        watch = Watchman(lambda: texts, 0.1)
        for waiting, seconds in waits:
            watch.waiting() if waiting else watch.arrived()
            time.sleep(seconds)
        watch.stop()
    return [record.getMessage() for record in caplog.records]


def test_it_tells_once_a_wait(caplog):
    found = told(caplog, ["worker 0 is at sample 3"], [(True, 1.0), (False, 0.1), (True, 1.0)])
    assert len(found) == 2 and all(text.endswith("worker 0 is at sample 3") for text in found)


def test_it_is_silent_where_nobody_waits_or_nobody_hangs(caplog):
    assert told(caplog, ["worker 0"], [(False, 0.5)]) == []
    assert told(caplog, [], [(True, 0.5)]) == []


def test_it_ends(caplog):
    watch = Watchman(lambda: ["late"], 0.1)
    watch.stop()
    watch.waiting()
    time.sleep(0.5)
    assert not caplog.records
