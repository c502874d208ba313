"""A dataset may take minutes to open, or hang at it: a crew says where it stands, and gives it up only where that is asked."""

import logging
import time

from fastfeed.auditor.running.limits import Limits
from fastfeed.auditor.running.member import Member
from fastfeed.auditor.running.process import stack_of
from fastfeed.errors import WorkerDied
from fastfeed.units import format_seconds

LOG = logging.getLogger("fastfeed.audit")


class Opening:
    """Watches the children of a crew that are not ready yet.

    Args:
        limits: Say when to speak, and when to give up.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits, self._speak_seconds = limits, limits.least_seconds
        self.done = False
        """Whether any child has opened it."""

    def watch(self, child: Member, took: float) -> None:
        """Speak of a child that takes long, again when it takes twice as long; that others do the same is not told again.

        Args:
            child: Not ready.
            took: Seconds, so far.

        Raises:
            WorkerDied: It takes longer than it may.
        """
        option = self._ended_by(took)
        if option is not None:
            msg = f"what is audited could not be opened: it was given up after {format_seconds(took)}; {_stood(child)}"
            raise WorkerDied(msg, hint=f"Mend what it waits for; or, where it needs so long, give more: {option}.")
        if took > self._speak_seconds:
            self._speak_seconds = 2 * took
            LOG.warning(
                "opening what is audited takes long: %s so far; %s. %s", format_seconds(took), _stood(child), self._end()
            )

    def _ended_by(self, took: float) -> str | None:
        """The option by which it is over."""
        limits = self._limits
        if limits.open_seconds is not None and took > limits.open_seconds:
            return "--kill-after"
        late = limits.open_deadline is not None and time.monotonic() > limits.open_deadline
        return "--max-minutes" if late and not self.done else None

    def _end(self) -> str:
        if self._limits.open_seconds is None:
            return "It may take as long as it needs; --kill-after would end it."
        return f"It is given up after {format_seconds(self._limits.open_seconds)} (--kill-after)."


def _stood(child: Member) -> str:
    if child.stack < 0:  # it would die of the signal that asks for its stack
        return "its process has not come to run it yet"
    return stack_of(child.process.pid, child.stack)
