"""Samples measured again: in rounds, each in another random order, so that no suspect is always after the same one."""

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import numpy as np

from fastfeed.auditor.judging.ledger import Floats, Table
from fastfeed.auditor.judging.suspects import ClockName
from fastfeed.auditor.record import StageTime

_SEED = 6
"""Any: the order only has to be another one in each round."""


class Remeasure(Protocol):
    """Measures samples again: later than the first time, in another process than that which measured them first.

    Random numbers that a transform draws have to be other ones each time.
    """

    def __call__(self, indices: Sequence[int], *, cold: bool) -> Mapping[int, Sequence[Mapping[str, StageTime]]]:
        """Each of the samples once, in this order.

        Args:
            indices: Positions in what is audited (SampleRecord.index), each once.
            cold: Let the system forget what it has of the sample's file first (posix_fadvise).

        Returns:
            By index the measurements, each a time by stage. A sample is left out where it could not be measured: it failed,
            time was up, or nothing can be made cold.
        """


class Repeats:
    """What measuring again gave.

    Args:
        table: The first measurement.
        remeasure: Does the work.
        deadline: Of time.monotonic(): no round is begun later. None for none.
    """

    def __init__(self, table: Table, remeasure: Remeasure, deadline: float | None = None) -> None:
        self._table, self._remeasure, self._deadline = table, remeasure, deadline
        self._random = np.random.default_rng(_SEED)
        self._taken: dict[tuple[int, bool], list[Mapping[str, StageTime]]] = {}

    @property
    def time_is_up(self) -> bool:
        """Whether what is not measured by now will not be."""
        return self._deadline is not None and time.monotonic() > self._deadline

    def take(self, rows: Iterable[int], rounds: int, *, cold: bool = False) -> None:
        """So many rounds more of these rows; a row named twice is measured once a round."""
        distinct = np.unique(np.fromiter(rows, np.int64))
        if not len(distinct):
            return
        for _ in range(rounds):
            if self.time_is_up:
                return
            order = self._random.permutation(distinct)
            indices = self._table.index[order].tolist()
            found = self._remeasure(indices, cold=cold)
            for row, index in zip(order.tolist(), indices, strict=True):
                self._taken.setdefault((row, cold), []).extend(found.get(index, ()))

    def seconds(self, row: int, stage: str, clock: ClockName, *, cold: bool = False) -> Floats:
        """Of each repeat."""
        times = [measured[stage] for measured in self._taken.get((row, cold), ()) if stage in measured]
        return np.array([taken.cpu if clock == "cpu" else _blocked(taken) for taken in times])


def _blocked(taken: StageTime) -> float:
    """At most: with the waiting for a processor, where nobody tells how long that was."""
    return max(0.0, taken.wall - taken.cpu) if taken.blocked is None else taken.blocked
