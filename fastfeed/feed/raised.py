"""Failures of samples as exceptions again: of their own type, with the sample's name, the worker and the original traceback."""

import sys
from importlib import import_module
from typing import Any

from fastfeed.feed.fetch import MAIN, Failure
from fastfeed.feed.naming import sample_name

_MAIN_MODULES = {"__mp_main__": "__main__"}
"""What a spawned process calls the script that is run."""
_ENDS = StopIteration, StopAsyncIteration
"""Raised to a loop they would end it."""


def raised(failure: Failure, dataset: Any, batch: int, original: Exception | None = None) -> Exception:  # noqa: ANN401 - any dataset
    """The exception to raise for a failure, with its cause.

    It is of the type that was raised, where that can be found and made from a text; its message begins as torch's does.
    A StopIteration of user code is a RuntimeError: it would end the epoch as if all were well. In the main process the
    original exception is its cause; where its type cannot be found or made it is raised itself, with a note.

    Args:
        failure: What a sample did.
        dataset: The user's, which may know more of the sample.
        batch: Number of the batch in the pass.
        original: What was raised, where that was in this process.
    """
    where = "in the main process" if failure.worker == MAIN else f"in DataLoader worker process {failure.worker}"
    if failure.index is not None:
        who = f"{sample_name(dataset, failure.index)} of batch {batch}"
    else:
        who = f"batch {batch} ({failure.stage} of {failure.count} samples)"
    head = f"Caught {failure.kind} {where}, {who}"
    trace = f"Original {failure.trace}" if original is None else "\n".join(getattr(original, "__notes__", ()))
    msg = f"{head}: {failure.message}" + (f"\n{trace}" if trace else "")
    kind = _found(failure.importable)
    error = None if kind is None else _built(kind, msg, failure, head)
    if error is None and original is not None and not isinstance(original, _ENDS):
        original.add_note(head)
        return original
    error = error or RuntimeError(msg)
    if original is not None:
        error.__cause__ = original
    elif failure.facts:  # one of ours, which has no place for a traceback in its message
        error.add_note(trace)
    return error


def _found(importable: tuple[str, str] | None) -> type[Exception] | None:
    """An exception's type by its name; None for those that would not be seen as faults."""
    if importable is None:
        return None
    module, name = _MAIN_MODULES.get(importable[0], importable[0]), importable[1]
    try:
        found: Any = sys.modules.get(module) or import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError):
        return None
    fault = isinstance(found, type) and issubclass(found, Exception) and not issubclass(found, _ENDS)
    return found if fault else None


class _KeyErrorText(str):
    """KeyError shows the repr of its argument, which would make a traceback one long line."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _built(kind: Any, msg: str, failure: Failure, head: str) -> Exception | None:  # noqa: ANN401 - an exception's type
    """An exception of a type; None where it cannot be made from a text alone, or does not show it."""
    facts = {name: value for name, value in failure.facts.items() if name != "message"}
    try:
        if failure.facts:  # one of ours: it tells where, expected, got and a hint itself
            built = kind(f"{head}: {failure.facts['message']}", **facts)
        else:
            built = kind(_KeyErrorText(msg) if issubclass(kind, KeyError) else msg)
        return built if isinstance(built, Exception) and head in str(built) else None
    except Exception:  # noqa: BLE001 - a type that wants other arguments: its name and words go into another's message
        return None
