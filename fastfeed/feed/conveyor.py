"""Batches of one pass, moved onto a device before they are asked for, and handed out in their turn.

There is no thread: each call for a batch takes what has come meanwhile, and begins to move it, so that the copy runs beside
the step that follows. It waits for workers only where nothing is there to be handed out. What goes wrong ahead of its turn is
raised in its turn.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, Protocol

from fastfeed.errors import DecodeError
from fastfeed.feed.decode.levels import Levels
from fastfeed.feed.decode.whole import Unfinished
from fastfeed.feed.fetch import Failure
from fastfeed.feed.timing import Answer

LEAST_AHEAD = 2
"""Batches, however large they are."""
MOST_AHEAD = 16
"""However small."""
DECODE = "decode"
"""Stage of a Failure of an image that could not be decoded on the way."""
_AT_ONCE = 2
"""Batches that one call begins to move, besides the one that it hands out: one in its place and one more."""


class Way(Protocol):
    """A way onto a device: Lane, or DecodingLane, whose docstrings say more."""

    @property
    def ahead_bytes(self) -> int:
        """Of the device, by batches that are there before they are asked for."""

    def move(self, data: Any, unfinished: Unfinished | None = None) -> Any:  # noqa: ANN401 - any batch
        """Begin to move a batch; what hand() takes, with an attribute size_bytes."""

    def hand(self, moved: Any) -> Any:  # noqa: ANN401
        """The batch, for the user's current stream."""

    def release(self) -> None:
        """Let go of memory that was read."""

    def ended(self) -> None:
        """All batches of the pass were handed out."""


class _Ready(NamedTuple):
    """A batch that waits for its turn."""

    answer: Answer
    moved: Any
    """As Way.move gave it; None for a Failure, which moves nowhere."""
    size_bytes: int


def _handed(lane: Way, ready: _Ready) -> Answer:
    """The batch, or the Failure of an image that could not be decoded on the way."""
    try:
        data = lane.hand(ready.moved)
    except DecodeError as error:
        data = Failure.of(error, None, DECODE)
    return ready.answer._replace(data=data, unfinished=None)


class _Fault(NamedTuple):
    """What came instead of a batch."""

    error: Exception
    taken: Answer | None
    """The batch, where it came and could not be moved."""


def _is_waited_for() -> bool:
    return True


class Conveyor:
    """The batches of one pass.

    Args:
        lane_of: Gives the way onto the device; asked with the first batch, when workers have been started.
        finishes: Is told what is done to a batch on the device.
    """

    def __init__(self, lane_of: Callable[[], Way], finishes: Callable[[Levels], None] | None = None) -> None:
        self._lane_of, self._finishes = lane_of, finishes
        self._waiting: deque[_Ready | _Fault] = deque()
        self._bytes = self._largest = 0
        self._taken: Answer | None = None
        """A batch that came, and is not on its way yet. It stays where Ctrl-C, or a device that is full, comes between."""
        self._failed: object = None
        """What failed last. It is tried again if somebody asks again, but once."""

    def __len__(self) -> int:
        """Batches, and faults, that wait for their turn."""
        return len(self._waiting) + (self._taken is not None)

    def next(self, take: Callable[[], Answer], arrived: Callable[[int], bool]) -> Answer:
        """The batch whose turn it is, on the device.

        Args:
            take: Gives the batch that comes next, and waits for it.
            arrived: Whether it would give one without waiting, where so many are waiting for their turn.

        Raises:
            Exception: What take raised instead of this batch, or the device.
        """
        lane = self._lane_of()
        lane.release()
        if not self._waiting:
            self._bring(lane, take, _is_waited_for)
        self._look_ahead(lane, take, arrived)
        ready = self._waiting[0]
        if isinstance(ready, _Fault):
            del ready  # it would make a circle with this frame, which keeps the pass and its workers
            raise self._fault()
        try:
            answer = ready.answer if ready.moved is None else _handed(lane, ready)
        except Exception:  # of the device, or of objects that move themselves: it stays, to be asked for once more
            if self._failed_before(ready):
                self._leave(ready)
            raise
        self._leave(ready)  # only now: what comes between costs no batch
        self._failed = None
        return answer

    def _fault(self) -> Exception:
        """What is to be raised now."""
        fault = self._waiting.popleft()
        assert isinstance(fault, _Fault)
        if isinstance(fault.error, StopIteration):
            self._lane_of().ended()
        self._taken = None if self._failed_before(fault.taken) else fault.taken
        return fault.error

    def moved(self, answer: Answer) -> Answer:
        """A batch that was made in the place of one that was handed out, on the device.

        Args:
            answer: The batch, or a Failure.
        """
        if isinstance(answer.data, Failure):
            return answer
        lane = self._lane_of()
        return answer._replace(data=lane.hand(lane.move(answer.data, answer.unfinished)), unfinished=None)

    def _leave(self, ready: _Ready) -> None:
        self._waiting.popleft()
        self._bytes -= ready.size_bytes

    def _failed_before(self, what: object) -> bool:
        """Whether it was this, too, that failed last; from now on it is."""
        before, self._failed = self._failed, what
        return before is what

    def _look_ahead(self, lane: Way, take: Callable[[], Answer], arrived: Callable[[int], bool]) -> None:
        for _ in range(_AT_ONCE):
            count = len(self._waiting)
            if isinstance(self._waiting[-1], _Fault) or not self._has_room(lane):
                return
            self._bring(lane, take, partial(arrived, count))
            if len(self._waiting) == count:
                return

    def _bring(self, lane: Way, take: Callable[[], Answer], arrived: Callable[[], bool]) -> None:
        """Begin to move the batch that comes next, where one is there."""
        try:
            if self._taken is None:
                if not arrived():
                    return
                self._taken = take()
            self._move(lane, self._taken)
            self._taken = None
        except Exception as error:  # noqa: BLE001 - whatever it is, it has its turn
            taken, self._taken = self._taken, None
            self._waiting.append(_Fault(error, taken))

    def _has_room(self, lane: Way) -> bool:
        count = len(self._waiting)
        return count <= LEAST_AHEAD or (count <= MOST_AHEAD and self._bytes + self._largest <= lane.ahead_bytes)

    def _move(self, lane: Way, answer: Answer) -> None:
        if isinstance(answer.data, Failure):
            self._waiting.append(_Ready(answer, None, 0))
            return
        if answer.unfinished is not None and self._finishes is not None:
            self._finishes(answer.unfinished.levels)
        moved = lane.move(answer.data, answer.unfinished)
        size_bytes = moved.size_bytes
        self._waiting.append(_Ready(answer._replace(data=None), moved, size_bytes))
        self._bytes += size_bytes
        self._largest = max(self._largest, size_bytes)
