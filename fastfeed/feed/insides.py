"""What objects, classes and code hold, as far as Python lets one look."""

import copyreg
import dis
import logging
import random
import threading
from collections.abc import Iterable
from itertools import chain
from types import CodeType, FunctionType
from typing import Any

import numpy as np
import torch

_PLAIN = {int, float, complex, bool, str, bytes, type(None), type(Ellipsis)}
_SEQUENCES = {list, tuple}
_NO_MATTER = (
    logging.Logger, logging.LoggerAdapter, type(threading.Lock()), type(threading.RLock()), random.Random,
    np.random.Generator, np.random.RandomState, np.random.BitGenerator, torch.Generator,
)  # fmt: skip
"""What code uses and samples that are kept do not depend on: from generators none of them draws, which is proven."""
MOST_BYTES = 1 << 30
"""Of a table of Arrow's, which shows what it holds by copying it."""
_LOADS = "GLOBAL", "LOAD_NAME"
_CLASS_FACTS = {"__dict__", "__weakref__", "__doc__", "__module__", "__annotations__", "__slots__", "__qualname__"}


class Unknown(Exception):
    """An object has something in it that Python does not show. It never leaves feed/."""


def is_plain(value: Any) -> bool:  # noqa: ANN401 - anything
    """Whether it is a plain value: a number, a text, bytes, None."""
    return type(value) in _PLAIN


def is_plainly(value: list[Any] | tuple[Any, ...]) -> bool:
    """Whether a list holds nothing but plain values, or lists of them; quickly, of a million. It must be no circle."""
    level: Iterable[Any] = value
    while True:
        kinds = {type(each) for each in level}
        if not kinds - _PLAIN:
            return True
        if kinds - _PLAIN - _SEQUENCES:
            return False
        level = list(chain.from_iterable(each for each in level if type(each) in _SEQUENCES))


def matters(value: Any) -> bool:  # noqa: ANN401
    """Whether samples may depend on what it holds."""
    return not isinstance(value, _NO_MATTER)


def attributes(value: Any) -> dict[str, Any]:  # noqa: ANN401
    """What an object has, by name."""
    slots = [name for kind in type(value).__mro__ for name in _slots(kind)]
    found = {name: getattr(value, name) for name in slots if hasattr(value, name)}
    found.update(getattr(value, "__dict__", {}))
    return {name: found[name] for name in sorted(found)}


def pickled(value: Any) -> Any:  # noqa: ANN401
    """What an object's own code says of it when it is pickled, which is all that a spawned worker gets of it; else None.

    Raises:
        Unknown: It has more than attributes, and does not show it, or too much to look at.
    """
    kind = type(value)
    try:
        parts = _reduced(kind, value)
    except Exception as error:  # the object's own code: it may raise anything
        raise Unknown(f"{kind.__module__}.{kind.__qualname__}") from error
    return [list(part) if hasattr(part, "__next__") else part for part in parts] if isinstance(parts, tuple) else parts


def _reduced(kind: type, value: Any) -> Any:  # noqa: ANN401
    if kind.__module__.startswith("pyarrow.") and getattr(value, "nbytes", 0) > MOST_BYTES:
        msg = "it would be copied, and may be larger than memory"
        raise ValueError(msg)
    reduce = copyreg.dispatch_table.get(kind)
    if reduce is not None:
        return reduce(value)
    if not all(_is_default(kind, name) for name in ("__reduce_ex__", "__reduce__")):
        return value.__reduce_ex__(2)
    if not _is_default(kind, "__getstate__"):
        return value.__getstate__()
    object.__reduce_ex__(value, 2)  # refuses an object that has more than attributes
    return None


def mapped(value: Any) -> "np.memmap[Any, Any] | None":  # noqa: ANN401 - an array or a scalar
    """The file of which an array shows a part as it is there; None where its numbers are in memory."""
    found = None
    while value is not None:
        found = value if isinstance(value, np.memmap) else found
        value = getattr(value, "base", None)
    return found if found is not None and found.filename is not None and found.mode != "c" else None


def members(kind: type) -> dict[str, Any]:
    """What a class itself says, its bases not counted: functions, and values."""
    found: dict[str, Any] = {}
    for name, value in sorted(vars(kind).items()):
        inner = _functions(value)
        if inner:
            found[name] = inner
        elif name not in _CLASS_FACTS and not name.startswith(("__", "_abc_")) and not hasattr(type(value), "__get__"):
            found[name] = value
    return found


def names(code: CodeType) -> set[str]:
    """All names of globals, attributes and modules that code uses, functions within it included."""
    return set(code.co_names).union(*map(names, inner(code)))


def global_names(code: CodeType) -> set[str]:
    """Names of globals that code uses, functions within it included."""
    own = {str(each.argval) for each in dis.get_instructions(code) if any(load in each.opname for load in _LOADS)}
    return own.union(*map(global_names, inner(code)))


def inner(code: CodeType) -> list[CodeType]:
    """The functions and classes within code."""
    return [constant for constant in code.co_consts if isinstance(constant, CodeType)]


def _is_default(kind: type, name: str) -> bool:
    """Whether a class has a method as Python has it for all."""
    return getattr(kind, name) is getattr(object, name)


def _functions(value: Any) -> list[Any]:  # noqa: ANN401
    """The functions that a value of a class is, or is made of."""
    if isinstance(value, FunctionType):
        return [value]
    if isinstance(value, staticmethod | classmethod):
        return [value.__func__]
    if isinstance(value, property):
        return [part for part in (value.fget, value.fset) if part is not None]
    if not hasattr(type(value), "__get__"):
        return []
    wrapped = (getattr(value, name, None) for name in ("func", "__wrapped__"))  # of cached_property, lru_cache and their like
    return [part for part in wrapped if part is not None]


def _slots(kind: type) -> tuple[str, ...]:
    slots = vars(kind).get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(name for name in slots if name not in {"__dict__", "__weakref__"})
