"""A Python object by its name: "package.module:name" or "path/file.py:name"."""

import os
import re
import sys
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType
from typing import Any

from fastfeed.errors import UsageError

_NAMED = re.compile(r"(?:[^:]+\.py|[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")
_PREFIX = "fastfeed_source_"
"""Before the name of a module that is loaded from a file, so that no other is called so."""
MAX_WHY = 500
"""Characters of a reason that are kept."""
_HINT = "A Python object is package.module:name or path/file.py:name."


def is_named(text: str) -> bool:
    """Whether a text may be the name of an object."""
    return _NAMED.fullmatch(text) is not None


def load_object(text: str) -> Any:  # noqa: ANN401 - whatever is there
    """The object that a name names, called without arguments if it is no dataset itself.

    Raises:
        UsageError: There is no such module or name, or making it fails.
    """
    found = find_object(text)
    is_data = not isinstance(found, type) and (hasattr(found, "__getitem__") or hasattr(found, "__iter__"))
    if not callable(found) or is_data:
        return found
    try:
        return found()
    except (Exception, SystemExit) as error:
        msg = f"{text} is called without arguments to give the dataset, and that fails ({_named(error)})"
        hint = "Name a dataset, or a function without arguments that gives one."
        raise UsageError(msg, got=text, hint=hint) from error


def find_object(text: str) -> Any:  # noqa: ANN401 - whatever is there
    """The object that a name names, as it is.

    Raises:
        UsageError: There is no such module or name.
    """
    home, _, name = text.rpartition(":")
    try:
        found: Any = _module(home)
    except (Exception, SystemExit) as error:  # whatever the module's own code raises
        msg = f"{home} cannot be imported ({_named(error)})"
        raise UsageError(msg, got=text, hint=_HINT) from error
    for part in name.split("."):
        if not hasattr(found, part):
            msg = f"{home} has nothing that is called {name}"
            raise UsageError(msg, got=text, hint=_HINT)
        found = getattr(found, part)
    return found


def type_name(thing: object) -> str:
    """How messages call the type of an object."""
    return f"{type(thing).__module__.removeprefix(_PREFIX)}.{type(thing).__qualname__}"


def told_error(error: BaseException) -> str:
    """An exception in one line, with the place where it was raised."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = f" ({os.path.basename(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno})" if trace is not None else ""
    return _named(error)[:MAX_WHY] + where


def _named(error: BaseException) -> str:
    """Type and text. The text is made by foreign code, which may fail as well."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception as another:  # noqa: BLE001 - whatever the __str__ of a foreign exception raises
        return f"{type(error).__name__}, whose text cannot be made ({type(another).__name__})"


def _module(home: str) -> ModuleType:
    """A module by its name, as seen from the working directory, or by its file."""
    if not home.endswith(".py"):
        _first_on_path(os.getcwd())
        return import_module(home)
    path = os.path.abspath(home)
    name = _PREFIX + os.path.basename(home)[:-3]
    spec = spec_from_file_location(name, path)
    assert spec is not None  # the name ends in .py
    assert spec.loader is not None
    module = module_from_spec(spec)
    _first_on_path(os.path.dirname(path))
    sys.modules[name] = module  # dataclasses and others look their module up
    spec.loader.exec_module(module)
    return module


def _first_on_path(folder: str) -> None:
    if folder not in sys.path:
        sys.path.insert(0, folder)
