"""DataLoader(audit=): who judges the samples of a loader while it is used.

Judging lives above reading: auditor imports feed, and feed must never import it back, or a loader could not be had without the
whole auditor, and neither could change without the other. So the judge is named here and not imported: the name is looked up
when a loader is asked to audit, as a plug-in is, and what is found there has to be a Judge. Nothing else of it is known here.
"""

import os
import pkgutil
import weakref
from typing import Any, Protocol

from torch import distributed

from fastfeed.errors import UsageError
from fastfeed.feed.timing import Delivery, Listener

HOME = "fastfeed.auditor.training:TrainingAudit"
DEFAULT_REPORT = "fastfeed-audit.jsonl"


class Judge(Listener, Protocol):
    """Hears of each batch that is handed out, and judges when the last one of a pass was."""

    def close(self) -> None:
        """The loader and its passes are gone, or the program ends: judge what was heard since the last time."""


class Ear:
    """What passes tell of their batches. It lives as long as its loader or any of its passes, and its end is the judge's cue.

    A pass outlives its loader where that has no name: ``for batch in DataLoader(...)``.

    Args:
        judge: Hears what this hears.
    """

    needs_length = True
    """The last batch of an epoch is known by how many are to come."""

    def __init__(self, judge: Judge) -> None:
        self.judge = judge
        weakref.finalize(self, judge.close)

    def delivered(self, delivery: Delivery) -> None:
        """A batch was handed out."""
        self.judge.delivered(delivery)


class Judges:
    """Who judges the samples of one loader: nobody, or one judge from the first pass on.

    Args:
        audit: As DataLoader has it.
        record: Whether times are recorded at all.

    Raises:
        UsageError: They are not, the report cannot be written, or audit is something else.
    """

    def __init__(self, audit: "bool | str | os.PathLike[str]", *, record: bool = True) -> None:
        self._audit = audit
        self._ear: Ear | None = None
        if audit is not False:
            _prove(audit, record=record)

    def __reduce__(self) -> tuple[Any, ...]:
        return Judges, (self._audit,)  # a loader elsewhere is another one

    def begin(self, dataset: Any) -> list[Listener]:  # noqa: ANN401 - any dataset
        """Who hears of the next pass.

        Args:
            dataset: Tells the names of samples.
        """
        if self._audit is False:
            return []
        if self._ear is None:
            self._ear = Ear(pkgutil.resolve_name(HOME)(dataset, _of_rank(os.path.abspath(_path(self._audit)))))
        return [self._ear]


def _prove(audit: object, *, record: bool) -> None:
    if not (audit is True or isinstance(audit, str | os.PathLike)):
        msg = "audit is True, False, or the file that the report goes to"
        raise UsageError(msg, got=repr(audit))
    if not record:
        msg = "audit judges what record=True records"
        raise UsageError(msg, hint="Leave record out.")
    folder = os.path.dirname(os.path.abspath(_path(audit)))
    if not os.access(folder, os.W_OK | os.X_OK):
        msg = "the audit's report cannot be written there"
        raise UsageError(msg, path=folder, hint="Name a file in a folder that is there: audit='/data/audit.jsonl'.")


def _path(audit: object) -> str:
    return DEFAULT_REPORT if audit is True else os.fsdecode(audit)  # type: ignore[arg-type]


def _of_rank(path: str) -> str:
    """Each rank but the first has a report of its own."""
    rank = distributed.get_rank() if distributed.is_available() and distributed.is_initialized() else 0
    stem, extension = os.path.splitext(path)
    return f"{stem}.rank{rank}{extension}" if rank else path
