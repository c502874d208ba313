"""Children as forks of one small process that has loaded what they need: a start takes a twentieth of a new interpreter's.

The process in between is a fresh interpreter of one thread, which opens nothing that is audited and runs no code of the user's:
it forks, kills and waits, so that no lock is inherited held and no thread is missing. When its parent goes, so do all of them.
"""

import os
import signal
import socket
import subprocess
import weakref
from collections.abc import Sequence

from fastfeed.environment import limit_library_threads
from fastfeed.errors import WorkerDied
from fastfeed.packer.crew import start_worker
from fastfeed.packer.rows import fork

_MODULE = "fastfeed.auditor.running.nursery"
_START, _END = b"start", b"end"
_MESSAGE_BYTES = 64
_PIPES = 3


# ------------------------------------------------------------------------------------------------ the process in between
def main() -> None:
    """Do what is asked through the socket that was stdin, until its other end is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to answer
    limit_library_threads(1, exact=False)  # threads that numpy starts at its import would be missing in forks
    from fastfeed.auditor.running.child import open_subject, serve  # noqa: PLC0415 - numpy comes with it
    from fastfeed.auditor.running.examine import warm_up  # noqa: PLC0415

    warm_up()
    with socket.socket(fileno=0) as asked:
        while True:
            message, descriptors, *_ = socket.recv_fds(asked, _MESSAGE_BYTES, _PIPES)
            if not message:
                return
            if message == _START:
                takes, gives, says = descriptors
                found = fork.start(lambda: serve(open_subject, takes, gives), says)  # noqa: B023 - it is called at once
            else:
                found = _ended(int(message.removeprefix(_END)))
            for descriptor in descriptors:
                os.close(descriptor)
            asked.send(str(found).encode())


def _ended(pid: int) -> int:
    """Kill a child; its exit code, negative for a signal."""
    fork.kill(pid)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


# ------------------------------------------------------------------------------------------------ its parent's end
class Nursery:
    """Starts children that open what they are told to open. The process in between starts with the first of them.

    close() ends all of it; so does the end of this object.
    """

    def __init__(self) -> None:
        self._between: _Between | None = None

    def __call__(self) -> "Nursling":
        """A child.

        Raises:
            WorkerDied: None can be started.
        """
        if self._between is None or self._between.gone:
            self.close()
            self._between = _Between()
        return Nursling(self._between)

    def close(self) -> None:
        """End the process in between."""
        if self._between is not None:
            self._between.close()
            self._between = None


class _Between:
    """The process in between."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = start_worker(_MODULE, stdin=theirs.fileno())
        assert isinstance(self._process, subprocess.Popen)
        self.close = weakref.finalize(self, _closed, self._socket, self._process)

    @property
    def gone(self) -> bool:
        """Whether it has ended."""
        return self._process.poll() is not None

    def ask(self, message: bytes, descriptors: Sequence[int] = ()) -> int:
        """Have something done.

        Raises:
            EOFError: It has ended.
        """
        try:
            socket.send_fds(self._socket, [message], descriptors)
            answer = self._socket.recv(_MESSAGE_BYTES)
        except ConnectionError:
            answer = b""
        if not answer:
            raise EOFError
        return int(answer)

    def last_words(self) -> str:
        """What it said when it ended."""
        self._process.wait()
        assert self._process.stderr is not None
        return self._process.stderr.read().decode(errors="replace").strip()


def _closed(ours: socket.socket, process: "subprocess.Popen[bytes]") -> None:
    ours.close()
    process.wait()
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()


class Nursling:
    """A child.

    Args:
        between: The process that forks it.

    Raises:
        WorkerDied: It cannot.
    """

    def __init__(self, between: _Between) -> None:
        self._between = between
        takes, self.orders = os.pipe()
        self.answers, gives = os.pipe()
        self.words, says = os.pipe()
        try:
            self.pid = between.ask(_START, [takes, gives, says])
        except EOFError:
            self._close()
            msg = "the process that starts children ended"
            raise WorkerDied(msg, got=between.last_words()[-2000:] or "nothing on stderr") from None
        finally:
            for descriptor in (takes, gives, says):
                os.close(descriptor)

    def end(self) -> int:
        """Kill it, and give its exit code."""
        try:
            return self._between.ask(b"%b%d" % (_END, self.pid))
        except EOFError:  # what it was forked by has ended, and so has it
            return -signal.SIGKILL
        finally:
            self._close()

    def _close(self) -> None:
        for descriptor in (self.orders, self.answers, self.words):
            os.close(descriptor)


if __name__ == "__main__":
    main()
