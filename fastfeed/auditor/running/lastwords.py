"""How a child ended and what it said last, in words."""

import os

from fastfeed.auditor.running.process import told_stack
from fastfeed.errors import WorkerDied
from fastfeed.units import format_signal

CLOSED = "closed the pipe by which it answers"
_RAISED_CHARACTERS = 300


def drained(descriptor: int) -> bytes:
    """What a dead process has said and nobody has read; one that it started may hold the pipe open: nothing waits for that."""
    os.set_blocking(descriptor, False)
    found = b""
    try:
        while data := os.read(descriptor, 1 << 16):
            found += data
    except BlockingIOError:
        return found
    return found


def how_ended(code: int) -> str:
    """How a process ended, in words."""
    return f"was killed by {format_signal(-code)}" if code < 0 else f"ended with exit code {code}"


def crashed(how: str, words: str) -> str:
    """What a sample did that killed two processes.

    Args:
        how: As how_ended() gives it, or CLOSED.
        words: What the second one said.
    """
    stood = told_stack(words)
    memory = "; the kernel kills so when memory runs out" if how.endswith("SIGKILL") else ""
    raised = "" if stood else _raised(words)
    last = f"; it stood in {stood}" if stood else f"; it said {raised}" if raised else ""
    return f"its process {how}, twice{memory}{last}"


def _raised(words: str) -> str:
    """The last line of the last Python traceback among a process's words; empty without any."""
    _, traceback, rest = words.rpartition("Traceback (most recent call last):")
    return rest.strip().rpartition("\n")[2][:_RAISED_CHARACTERS] if traceback else ""


def unable(how: str, words: str) -> WorkerDied:
    """Of a process that died before it could load any sample."""
    msg = f"a child process {how} before it could load any sample"
    return WorkerDied(msg, got=words.strip()[-2000:] or "nothing on stderr")


def hopeless(how: str, words: str, crashes: int) -> WorkerDied:
    """After so many crashes in a row, and none in between that was none."""
    msg = f"{crashes} samples in a row killed the process that loaded them, and no other could be loaded: the last {how}"
    hint = "It seems to be the machine, or the code, rather than the samples: try one of them alone."
    return WorkerDied(msg, got=words.strip()[-500:] or "nothing on stderr", hint=hint)
