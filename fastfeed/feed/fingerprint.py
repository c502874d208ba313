"""What a dataset and its functions are, as a digest: attributes, code, closures, versions; equal in every process.

Two datasets with one fingerprint give the same samples as far as Python can tell. What it cannot look into (an open file, an
object of a library without attributes) makes the fingerprint one of a kind, so that nothing is ever found under it again.
"""

import functools
import hashlib
import marshal
import os
import platform
import secrets
import sys
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch

_PLAIN = (int, float, complex, bool, str, bytes, type(None), type(Ellipsis))
_MODULES = "fastfeed", "torch", "torchvision", "numpy", "PIL", "cv2", "albumentations", "simplejpeg"
"""Whose versions may change samples; those that are loaded count."""


class Fingerprint:
    """Digests what it is given."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self._seen: dict[int, int] = {}
        self._alive: list[Any] = []
        """What was looked at, so that no identity is used again meanwhile."""
        self.unknown: list[str] = []
        """Types that could not be looked into."""

    def add(self, value: Any) -> None:  # noqa: ANN401 - anything
        """Look at a value and all that it holds."""
        kind = type(value)
        self._put(f"{kind.__module__}.{kind.__qualname__}")
        if isinstance(value, _PLAIN):
            self._put(repr(value))
            return
        if id(value) in self._seen:
            self._put(f"again {self._seen[id(value)]}")
            return
        self._seen[id(value)] = len(self._seen)
        self._alive.append(value)
        if not (self._holder(value) or self._memory(value) or self._code(value)):
            self._object(value)

    def digest(self) -> str:
        """64 hex digits."""
        if self.unknown:
            self._put(secrets.token_hex(32))
        return self._hash.hexdigest()

    def _put(self, text: str) -> None:
        raw = text.encode("utf-8", "surrogatepass")
        self._hash.update(len(raw).to_bytes(8, "little") + raw)

    def _holder(self, value: Any) -> bool:  # noqa: ANN401
        """Whether it is a collection of others."""
        if isinstance(value, list | tuple) and self._plainly(value):
            return True
        if isinstance(value, dict):
            items = [part for pair in value.items() for part in pair]
        elif isinstance(value, list | tuple):
            items = list(value)
        elif isinstance(value, set | frozenset):
            items = sorted(value, key=repr)
        else:
            return False
        self._put(str(len(items)))
        for item in items:
            self.add(item)
        return True

    def _plainly(self, value: Any) -> bool:  # noqa: ANN401
        """Whether it is nothing but plain values, as a million paths and labels are: taken as a whole, in a second."""
        try:
            raw = marshal.dumps(value, 2)  # a version that does not tell how often an object is referred to
        except ValueError:
            return False
        self._hash.update(raw)
        return True

    def _memory(self, value: Any) -> bool:  # noqa: ANN401
        """Whether it is numbers in memory."""
        if isinstance(value, torch.Tensor) and value.layout is torch.strided:
            self._put(f"{value.dtype} {tuple(value.shape)}")
            value = value.detach().cpu().contiguous().view(-1)
            array = value.view(torch.uint8).numpy() if value.numel() else np.empty(0)
        elif isinstance(value, np.ndarray) and not value.dtype.hasobject:
            self._put(f"{value.dtype.descr} {value.shape}")
            array = np.ascontiguousarray(value)
        elif isinstance(value, bytearray | memoryview):
            array = np.frombuffer(value, np.uint8)
        else:
            return False
        self._hash.update(array.tobytes())
        return True

    def _code(self, value: Any) -> bool:  # noqa: ANN401
        """Whether it is a function, a class or a module."""
        if isinstance(value, FunctionType):
            self._function(value)
        elif isinstance(value, MethodType):
            self.add(value.__func__)
            self.add(value.__self__)
        elif isinstance(value, functools.partial):
            self.add((value.func, value.args, value.keywords))
        elif isinstance(value, type | BuiltinFunctionType | ModuleType):
            self._put(f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', value.__name__)}")
        elif isinstance(value, torch.dtype | torch.device | np.dtype):
            self._put(str(value))
        else:
            return False
        return True

    def _function(self, function: FunctionType) -> None:
        code = function.__code__
        self._instructions(code)
        self.add(function.__defaults__)
        self.add(function.__kwdefaults__)
        for cell in function.__closure__ or ():
            try:
                self.add(cell.cell_contents)
            except ValueError:
                self._put("empty cell")
        used = {name: function.__globals__[name] for name in sorted(_names(code)) if name in function.__globals__}
        self.add(used)

    def _instructions(self, code: CodeType) -> None:
        self._hash.update(code.co_code)
        self._put(repr(code.co_names))
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                self._instructions(constant)
            else:
                self._put(repr(sorted(constant, key=repr) if isinstance(constant, frozenset) else constant))

    def _object(self, value: Any) -> None:  # noqa: ANN401
        """Its attributes, and the functions of its class."""
        slots = [name for kind in type(value).__mro__ for name in _slots(kind)]
        state = {name: getattr(value, name) for name in slots if hasattr(value, name)}
        state.update(getattr(value, "__dict__", {}))
        if not state and not hasattr(value, "__dict__"):
            self.unknown.append(f"{type(value).__module__}.{type(value).__qualname__}")
            return
        digest = state.get("digest")
        if type(value).__module__.startswith("fastfeed.") and isinstance(digest, str):
            self._put(digest)  # one of our datasets: its content is known
            state = {
                name: part for name, part in state.items() if not name.startswith("_") and name not in {"cache", "recorder"}
            }
        self.add({name: state[name] for name in sorted(state)})
        for name, function in sorted(vars(type(value)).items()):
            if isinstance(function, FunctionType) and not type(value).__module__.startswith(("fastfeed.", "torch")):
                self._put(name)
                self._instructions(function.__code__)


def _slots(kind: type) -> tuple[str, ...]:
    slots = vars(kind).get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(name for name in slots if name not in {"__dict__", "__weakref__"})


def _names(code: CodeType) -> set[str]:
    inner = (constant for constant in code.co_consts if isinstance(constant, CodeType))
    return set(code.co_names).union(*map(_names, inner))


def versions() -> list[str]:
    """Of Python and of the packages that are loaded and may change samples."""
    loaded = ((name, getattr(sys.modules.get(name), "__version__", None)) for name in _MODULES)
    return [f"Python {platform.python_version()}", *(f"{name} {number}" for name, number in loaded if number)]


def file_facts(path: Any) -> str:  # noqa: ANN401 - whatever an attribute holds
    """Size and time of a file or folder that a dataset says it is of; "" where that names none."""
    if not isinstance(path, str | os.PathLike):
        return ""
    try:
        facts = os.stat(path)
    except OSError:
        return ""
    return f"{facts.st_size} {facts.st_mtime_ns}"
