import os

from fastfeed.auditor.running.lastwords import CLOSED, crashed, drained, hopeless, how_ended, unable

TRACEBACK = 'Traceback (most recent call last):\n  File "/x/a.py", line 1, in load\nValueError: mine\n'
STACK = 'Current thread 0x1 (most recent call first):\n  File "/x/codec.py", line 5 in decode\n'


def test_how_a_process_ended():
    assert how_ended(3) == "ended with exit code 3"
    assert [how_ended(code) for code in (-11, -40)] == ["was killed by SIGSEGV", "was killed by signal 40"]


def test_a_crash_is_told_with_where_it_stood_or_what_was_raised():
    assert crashed(how_ended(-11), STACK) == "its process was killed by SIGSEGV, twice; it stood in decode (/x/codec.py:5)"
    assert crashed(how_ended(1), f"some\n{TRACEBACK}") == "its process ended with exit code 1, twice; it said ValueError: mine"
    assert crashed(how_ended(1), "some words") == "its process ended with exit code 1, twice"
    assert len(crashed(how_ended(1), TRACEBACK + "x" * 5000)) < 400


def test_memory_is_guessed_only_where_something_killed_it():
    assert crashed(how_ended(-9), "").endswith("twice; the kernel kills so when memory runs out")
    assert "memory" not in crashed(CLOSED, "") and "memory" not in crashed(how_ended(137), "")


def test_what_was_said_is_read_though_another_holds_the_pipe():
    reads, writes = os.pipe()
    try:
        os.write(writes, b"words")
        assert drained(reads) == b"words" and drained(reads) == b""
    finally:
        os.close(reads)
        os.close(writes)


def test_why_an_audit_ends():
    assert "ended with exit code 2 before it could load any sample" in str(unable(how_ended(2), ""))
    assert "8 samples in a row" in str(hopeless(how_ended(2), "", 8))
