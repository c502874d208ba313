"""Where code and data come from: libraries and their versions, files and when they changed."""

import os
import platform
import site
import stat
import sys
import sysconfig
from itertools import chain
from types import ModuleType
from typing import Any

_MODULES = "fastfeed", "torch", "torchvision", "numpy", "PIL", "cv2", "albumentations", "simplejpeg"
"""Whose versions may change samples whatever a dataset says that it uses; those that are loaded count."""
_MOST_CHARACTERS = 4096
"""Of a path."""
_LIBRARIES = tuple({
    os.path.realpath(path) + os.sep
    for path in (*(sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")),
                 *site.getsitepackages(), site.getusersitepackages())
})  # fmt: skip


def versions() -> list[str]:
    """Of Python and of the packages that are loaded and may change samples."""
    return [f"Python {platform.python_version()}", *(version_of(name) for name in _MODULES if name in sys.modules)]


def version_of(module: str) -> str:
    """Of the package that a module belongs to; of one that does not say, its file and when that changed."""
    top = module.partition(".")[0]
    loaded = sys.modules.get(top)
    number = getattr(loaded, "__version__", None)
    if number is not None or loaded is None or top in sys.stdlib_module_names:
        return f"{top} {number or ''}"
    return f"{top} {file_facts(getattr(loaded, '__file__', None))}"


def is_library(module: str | None) -> bool:
    """Whether a module is Python's, or was installed: then its version tells what it does, and nobody edits it."""
    top = (module or "").partition(".")[0]
    if top == "fastfeed" or top in sys.stdlib_module_names:
        return True
    loaded = sys.modules.get(module or "", sys.modules.get(top))
    file = getattr(loaded, "__file__", None)
    return file is not None and os.path.realpath(file).startswith(_LIBRARIES)


def compiled_facts(module: str | None) -> str:
    """Of the file of a module without Python code, which nobody can look into; "" for any other."""
    file = getattr(sys.modules.get(module or ""), "__file__", None)
    return "" if file is None or file.endswith(".py") else file_facts(file)


def imported(names: set[str], package: str | None) -> dict[str, ModuleType]:
    """The modules among the names in a function's code: it imports them itself when it is called."""
    found = {name: sys.modules.get(name) or sys.modules.get(f"{package}.{name}") for name in sorted(names)}
    return {name: module for name, module in found.items() if isinstance(module, ModuleType)}


def file_facts(path: Any) -> str:  # noqa: ANN401 - whatever an attribute holds
    """Which file or folder a path names and when that changed, replacing included; "" where it names none."""
    facts = _facts(path)
    return "" if facts is None else f"{facts.st_dev} {facts.st_ino} {facts.st_size} {facts.st_mtime_ns} {facts.st_ctime_ns}"


def named_facts(text: str) -> str:
    """As file_facts(), of a text that may be a path. Of a folder, only which one it is: others may write into it meanwhile."""
    if not 0 < len(text) < _MOST_CHARACTERS or not ("/" in text or "." in text):
        return ""
    facts = _facts(text)
    return f"{facts.st_dev} {facts.st_ino}" if facts is not None and stat.S_ISDIR(facts.st_mode) else file_facts(text)


def folders_facts(values: list[Any] | tuple[Any, ...]) -> list[str]:
    """Facts of the folders that hold the files that a long list names, by itself or in tuples.

    A folder changes when a file in it is added, removed, or replaced by another one; looking at a million files takes minutes
    across a network. Where the first of them is not there, they are no paths.
    """
    rows = chain.from_iterable(value if isinstance(value, list | tuple) else (value,) for value in values)
    paths = [text for text in rows if isinstance(text, str) and "/" in text and len(text) < _MOST_CHARACTERS]
    if not paths or _facts(paths[0]) is None:
        return []
    return [file_facts(folder) for folder in sorted({path.rpartition("/")[0] or "/" for path in paths})]


def _facts(path: Any) -> os.stat_result | None:  # noqa: ANN401
    if not isinstance(path, str | os.PathLike):
        return None
    try:
        return os.stat(path)
    except (OSError, ValueError):  # there is none; or a text that can be no path
        return None
