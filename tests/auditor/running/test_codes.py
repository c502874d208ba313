from fastfeed.auditor.finding import Severity
from fastfeed.auditor.running.codes import CRASH_ONCE, HANG, RUNNING


def test_names_stay_and_say_what_to_do():
    assert set(RUNNING) == {
        "unreadable", "special-file", "left-out-image", "folder-loop", "kernel-folder", "damaged-shard", "fails", "stops-early",
        "unpicklable", "crash", "crash-once", "hang", "takes-long", "memory",
    }  # fmt: skip
    assert all(code.advice.endswith(".") and not code.title.endswith(".") for code in RUNNING.values())


def test_what_may_be_chance_is_no_error():
    assert (HANG.severity, CRASH_ONCE.severity) == (Severity.ERROR, Severity.WARNING)
