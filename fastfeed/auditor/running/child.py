"""A child process: it loads the samples that it is told to, one after the other, and answers each before it begins the next.

So the first sample that is not answered is the one that it hangs at, or that it died of. Whatever the samples' code prints
goes to stderr. When the parent dies, so does this process.
"""

import ctypes
import faulthandler
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from fastfeed.auditor.finding import Finding
from fastfeed.auditor.judging.pulse import beat
from fastfeed.auditor.record import SampleRecord
from fastfeed.auditor.running import memory
from fastfeed.auditor.running.codes import MEMORY
from fastfeed.auditor.running.parts import PartSpec
from fastfeed.auditor.running.python import subject_of
from fastfeed.auditor.running.rowed import Rowed
from fastfeed.auditor.running.stored import Stored
from fastfeed.auditor.running.subject import How, Subject, one_thread, other_draws
from fastfeed.auditor.running.tokenizing import tokenizer_of
from fastfeed.errors import FastfeedError
from fastfeed.packer.rows.byname import load_object
from fastfeed.source import wire

_PR_SET_PDEATHSIG = 1
_END = b'{"event": "end"}\n'
_BEAT_SECONDS = 30.0
"""How often a fixed piece of work is timed, which tells whether the machine is quiet."""


def main() -> None:
    """The life of a fresh interpreter: orders come from what was stdin, answers go to what was stdout."""
    parent = int(sys.argv[-1])
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # also while foreign code never comes to read its orders
    if os.getppid() != parent:  # it died before that call, and the signal will never come
        os._exit(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to answer
    orders, answers = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    faulthandler.enable(2, all_threads=False)
    serve(open_subject, orders, answers)


def open_subject(spec: dict[str, Any], dataset: Any = None, tokenizer: Any = None) -> Subject:  # noqa: ANN401 - foreign
    """What a description describes.

    Args:
        spec: The description.
        dataset: Of a live dataset: itself.
        tokenizer: Of a live tokenizer: itself.

    Raises:
        FastfeedError: It cannot be opened.
    """
    counts = tokenizer_of(spec.get("tokenizer") if tokenizer is None else tokenizer)
    if "live" in spec:
        return subject_of(dataset, counts)
    if "object" in spec:
        return subject_of(load_object(spec["object"]), counts)
    if "rows" in spec:
        return Rowed(spec, counts)
    return Stored([PartSpec.from_json(part) for part in spec["parts"]], counts)


def serve(open_it: Callable[[dict[str, Any]], Subject], orders: int, answers: int) -> None:
    """Carry out orders until the parent closes the pipe.

    Args:
        open_it: Gives what is audited, of the description in the first order.
        orders: Descriptor that they come from.
        answers: Descriptor that answers go to.
    """
    stack = os.memfd_create("fastfeed-stack")
    faulthandler.register(signal.SIGUSR1, file=stack, all_threads=True, chain=False)
    with os.fdopen(orders, "rb") as file:
        first = wire.read(file)
        if first is None:
            return
        _say(answers, {"event": "opening", "stack": stack})
        try:
            subject = open_it(first.head["spec"])
        except FastfeedError as error:
            _say(answers, wire.error_head(error))
            return
        one_thread()
        other_draws()
        if first.head["memory_bytes"] is not None:
            memory.limit(first.head["memory_bytes"])
        _say(answers, {"event": "ready", "count": subject.count, "beat": asdict(beat())})
        loader, felt = _Loader(subject), time.monotonic()
        while order := wire.read(file):
            how = How(*order.head["how"])
            for index in order.head["indices"]:
                _write(answers, loader.answer(index, how))
                if time.monotonic() > felt + _BEAT_SECONDS:
                    _say(answers, {"event": "beat", "beat": asdict(beat())})
                    felt = time.monotonic()


class _Loader:
    """Loads samples, and what each takes of memory."""

    def __init__(self, subject: Subject) -> None:
        self._subject, self._peak = subject, memory.Peak()

    def answer(self, index: int, how: How) -> bytes:
        """A sample's record as a line; an event where a stream has ended."""
        self._peak.reset()
        try:
            record = self._subject.load(index, how)
        except MemoryError:
            record = SampleRecord(index, findings=[Finding(MEMORY, "an allocation failed")])
        if record is None:
            return _END
        record.peak_bytes = self._peak.taken_bytes()
        return json.dumps(record.as_row()).encode() + b"\n"


def _say(answers: int, event: dict[str, object]) -> None:
    """Something else than a record: it names an event, or an error."""
    _write(answers, json.dumps(event).encode() + b"\n")


def _write(answers: int, line: bytes) -> None:
    view = memoryview(line)
    while view:
        view = view[os.write(answers, view) :]


if __name__ == "__main__":
    main()
