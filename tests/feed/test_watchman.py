import logging
import subprocess
import sys
import time
import weakref

import pytest

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


@pytest.mark.long
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


class Known:
    """What a watchman may be the last to know."""

    def hanging(self):
        return []


def test_what_it_knows_is_let_go_where_it_is_stopped():
    """And not in its thread later on, where freeing a tensor while the interpreter ends would abort the process."""
    known = Known()
    watch, seen = Watchman(known.hanging, 60.0), weakref.ref(known)
    del known
    assert seen() is not None
    watch.stop()
    assert seen() is None


def test_a_process_ends_its_watchmen_first():
    script = (
        "import atexit, threading\n"
        "atexit.register(lambda: print([thread.name for thread in threading.enumerate()]))\n"  # called last
        "from fastfeed.feed.watchman import Watchman\n"
        "watch = Watchman(list, 0.05)\n"
        "watch.waiting()\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "['MainThread']"
