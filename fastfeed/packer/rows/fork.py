"""Forks of this process that run a user's own code: a live object is inherited whole, nothing is pickled.

The parent itself never asks a dataset for a sample. What a dataset opens when it is first asked (a file, a database) is then
opened by each fork for itself, as in the workers of torch's DataLoader; shared with others it would give wrong bytes.
"""

import ctypes
import faulthandler
import gc
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from fastfeed import errors
from fastfeed.packer.rows.source import Reading
from fastfeed.source import wire
from fastfeed.units import format_signal

_PR_SET_PDEATHSIG = 1
_HELD = (signal.SIGINT, signal.SIGTERM)


def start(life: Callable[[], object], words: int, foreign: Sequence[int] = ()) -> int:
    """Fork.

    Args:
        life: All that the fork does. It ends with exit code 0 if life returns, else with 1 and a traceback.
        words: Descriptor that becomes its stdout and stderr.
        foreign: Descriptors that it must not keep: a lock lives as long as any process holds it.

    Returns:
        Its process id.
    """
    parent, prctl = os.getpid(), ctypes.CDLL(None, use_errno=True).prctl  # loaded here: a fork should load nothing
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # what waits in a buffer would be written twice
            stream.flush()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _HELD)  # a signal must not meet the fork in the midst of our callers
    try:
        pid = _fork()
        if pid == 0:
            _live(life, words, foreign, (parent, prctl))
        return pid
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _fork() -> int:
    """Python 3.12 warns in programs with threads; what it warns of (locks that are never released) is provided for."""
    import warnings  # noqa: PLC0415 - here alone

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _live(life: Callable[[], object], words: int, foreign: Sequence[int], bond: tuple[int, Any]) -> NoReturn:
    code = 1
    try:
        _settle_in(words, foreign, bond)
        life()
        code = 0
    except BaseException:  # noqa: BLE001 - the process ends here, and its last words go to the parent
        os.write(words, traceback.format_exc().encode(errors="backslashreplace"))
    finally:
        os._exit(code)


def _settle_in(words: int, foreign: Sequence[int], bond: tuple[int, Any]) -> None:
    """A process of its own: it dies with its parent, Ctrl-C is its parent's to answer, and it has no terminal."""
    parent, prctl = bond
    prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # also while its own code never comes to listen
    if os.getppid() != parent:
        os._exit(1)
    os.setpgid(0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _HELD)
    for descriptor in foreign:
        os.close(descriptor)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)  # whoever asks the terminal would be stopped, and wait for ever
    os.dup2(words, 1)
    os.dup2(words, 2)
    sys.stdin = os.fdopen(0, closefd=False)  # whatever a test or a notebook has put there
    sys.stdout = sys.stderr = os.fdopen(2, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)
    faulthandler.enable(2, all_threads=False)
    gc.freeze()  # what the parent has is not looked through, and stays shared
    torch = sys.modules.get("torch")
    if torch is not None:  # OpenMP's threads are not in the fork, and waiting for them would be forever
        torch.set_num_threads(1)


def kill(pid: int) -> None:
    """SIGKILL to a fork, and to all that it started."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:  # it has not come to have a group of its own
        os.kill(pid, signal.SIGKILL)


def ask(work: Callable[[], Any], reading: Reading) -> Any:  # noqa: ANN401 - whatever it gives
    """Have something found out by a fork. What it prints goes to stderr.

    Args:
        work: Gives something that JSON takes.
        reading: Where the fork notes which sample it reads.

    Raises:
        FastfeedError: What work raised.
        WorkerDied: The fork died.
    """
    receive, send = os.pipe()

    def life() -> None:
        try:
            found = {"found": work()}
        except errors.FastfeedError as error:
            found = wire.error_head(error)
        with os.fdopen(send, "wb") as file:
            file.write(json.dumps(found).encode() + b"\n")

    pid = start(life, 2, [receive])
    os.close(send)
    try:
        with os.fdopen(receive, "rb") as file:
            line = file.readline()
    finally:
        kill(pid)
        _, status = os.waitpid(pid, 0)
    if not line.endswith(b"\n"):
        raise _died(os.waitstatus_to_exitcode(status), reading)
    answer = json.loads(line)
    if "error" in answer:
        raise wire.error_of(answer)
    return answer["found"]


def _died(code: int, reading: Reading) -> errors.WorkerDied:
    how = f"was killed by {format_signal(-code)}" if code < 0 else f"ended with exit code {code}"
    told = f", while {reading.told()}" if reading.told() else ""
    msg = f"the process that looks at samples before the plan {how}{told}"
    return errors.WorkerDied(msg, hint="Mend the dataset, or give one without that sample (a Subset).")
