"""What a dataset and its functions are, as a digest: attributes, code, closures, versions; equal in every process.

Two datasets with one fingerprint give the same samples as far as Python can tell. Code is followed into what it uses: globals,
base classes, other functions and modules, as far as somebody may edit them; of what is installed the version counts. Of files
that are named it counts which they are and when they changed. What cannot be looked into (an open file, an object of a library
that does not show what it holds) makes the fingerprint one of a kind, so that nothing is ever found under it again.
"""

import functools
import hashlib
import marshal
import os
import secrets
from collections import deque
from pathlib import PurePath
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch

from fastfeed.feed import insides, origins


class Fingerprint:
    """Digests what it is given."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self._seen: dict[int, int] = {}
        self._alive: list[Any] = []
        """What was looked at, so that no identity is used again meanwhile."""
        self._modules: set[tuple[int, frozenset[str]]] = set()
        """That were looked at for some names."""
        self._waiting: deque[Any] = deque()
        """What is to be looked at."""
        self.unknown: list[str] = []
        """Types that could not be looked into."""

    def add(self, value: Any) -> None:  # noqa: ANN401 - anything
        """Look at a value and all that it holds."""
        self._refer(value)
        while self._waiting:  # one after another: things may hold one another deeper than Python calls functions
            self._look(self._waiting.popleft())

    def _refer(self, value: Any) -> None:  # noqa: ANN401
        """A plain value itself; of any other its number, and that it is to be looked at."""
        kind = type(value)
        self._put(f"{kind.__module__}.{kind.__qualname__}")
        if insides.is_plain(value):
            self._plain(value)
            return
        if id(value) not in self._seen:
            self._seen[id(value)] = len(self._seen)
            self._alive.append(value)
            self._waiting.append(value)
        self._put(f"number {self._seen[id(value)]}")

    def _look(self, value: Any) -> None:  # noqa: ANN401
        if not (self._holder(value) or self._memory(value) or self._code(value)) and insides.matters(value):
            self._object(value)

    def digest(self) -> str:
        """64 hex digits."""
        if self.unknown:
            self._put(secrets.token_hex(32))
        return self._hash.hexdigest()

    def _put(self, text: str) -> None:
        self._put_bytes(text.encode("utf-8", "surrogatepass"))

    def _put_bytes(self, raw: bytes | memoryview) -> None:
        self._hash.update(len(raw).to_bytes(8, "little"))
        self._hash.update(raw)

    def _plain(self, value: Any) -> None:  # noqa: ANN401
        self._put(repr(value))
        if isinstance(value, str):
            self._put(origins.named_facts(value))

    def _holder(self, value: Any) -> bool:  # noqa: ANN401
        """Whether it is a collection of others, and nothing else."""
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
            self._refer(item)
        return type(value) in {dict, list, tuple, set, frozenset}  # what is made of these may have attributes, too

    def _plainly(self, value: list[Any] | tuple[Any, ...]) -> bool:
        """Whether it is nothing but plain values, as a million paths and labels are: taken as a whole, in a second."""
        try:
            raw = marshal.dumps(value, 2)  # a version that does not tell how often an object is referred to
        except ValueError:
            return False
        if not insides.is_plainly(value):
            return False  # an array, of which this is the memory alone
        self._put_bytes(raw)
        for facts in origins.folders_facts(value):
            self._put(facts)
        return True

    def _memory(self, value: Any) -> bool:  # noqa: ANN401
        """Whether it is numbers in memory."""
        if isinstance(value, torch.Tensor) and value.layout is torch.strided and not value.is_quantized:
            self._put(f"{value.dtype} {tuple(value.shape)}")
            value = value.detach().cpu().resolve_conj().resolve_neg().contiguous().view(-1)
            array = value.view(torch.uint8).numpy() if value.numel() else np.empty(0)
        elif isinstance(value, np.ndarray | np.generic) and not value.dtype.hasobject:
            self._put(f"{value.dtype.descr} {value.shape}")
            file = insides.mapped(value)
            if file is not None:  # maybe larger than memory
                at = value.__array_interface__["data"][0] - file.__array_interface__["data"][0]
                self._put(f"{origins.file_facts(file.filename)} {file.offset} {at} {value.strides}")
                return True
            array = np.ascontiguousarray(value)
        elif isinstance(value, bytearray | memoryview):
            array = np.frombuffer(value, np.uint8)
        else:
            return False
        self._put_bytes(array.reshape(-1).view(np.uint8).data if array.size else b"")
        return True

    # ------------------------------------------------------------------------------------------------------------- code
    def _code(self, value: Any) -> bool:  # noqa: ANN401
        """Whether it is a function, a class or a module."""
        if isinstance(value, FunctionType):
            self._function(value)
        elif isinstance(value, MethodType):
            self._refer([value.__func__, value.__self__])
        elif isinstance(value, functools.partial):
            self._refer([value.func, value.args, value.keywords])
        elif isinstance(value, type):
            self._class(value)
        elif isinstance(value, BuiltinFunctionType):
            self._put(f"{value.__qualname__} {self._origin(value.__module__)}")
            self._refer(None if isinstance(value.__self__, ModuleType | None) else value.__self__)
        elif isinstance(value, ModuleType):
            self._put(f"{value.__name__} {self._origin(value.__name__)} {origins.file_facts(getattr(value, '__file__', None))}")
        elif isinstance(value, torch.dtype | torch.device | np.dtype):
            self._put(str(value))
        else:
            return False
        return True

    @staticmethod
    def _origin(module: str | None) -> str:
        """What tells how code behaves that is not looked into."""
        return origins.version_of(module) if module and origins.is_library(module) else origins.compiled_facts(module)

    def _function(self, function: FunctionType) -> None:
        code = function.__code__
        for cell in function.__closure__ or ():
            try:
                self._refer(cell.cell_contents)
            except ValueError:
                self._put("empty cell")
        self._put(f"{function.__qualname__} {self._origin(function.__module__)}")
        self._instructions(code)
        self._refer(function.__defaults__)
        self._refer(function.__kwdefaults__)
        if origins.is_library(function.__module__):
            return
        self._refer({name: part for name, part in vars(function).items() if name != "__wrapped__"})
        names = insides.names(code)
        known = function.__globals__
        used: dict[str, Any] = origins.imported(names, known.get("__package__"))
        used.update((name, known[name]) for name in sorted(insides.global_names(code)) if name in known)
        self._used(used, names)

    def _used(self, used: dict[str, Any], names: set[str]) -> None:
        """What code uses, and of modules that somebody may edit what it takes out of them."""
        for name, value in used.items():
            self._put(name)
            if not isinstance(value, ModuleType) or origins.is_library(value.__name__):
                self._refer(value)
            elif (id(value), frozenset(names)) not in self._modules:
                self._modules.add((id(value), frozenset(names)))
                self._put(f"{value.__name__} {self._origin(value.__name__)}")
                held = vars(value)
                self._used({inner: held[inner] for inner in sorted(names) if inner in held}, names)

    def _instructions(self, code: CodeType) -> None:
        self._put_bytes(code.co_code + code.co_exceptiontable)
        self._put(repr((code.co_names, code.co_freevars, code.co_cellvars)))
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                self._instructions(constant)
            elif isinstance(constant, frozenset):
                self._put(repr(sorted(constant, key=repr)))
            else:
                self._plain(constant)

    def _class(self, kind: type) -> None:
        """What a class and its bases say, as far as somebody may edit them."""
        self._put(f"{kind.__module__}.{kind.__qualname__} {self._origin(kind.__module__)}")
        for base in kind.__mro__[1:]:
            self._refer(base)
        if not origins.is_library(kind.__module__):
            for name, member in insides.members(kind).items():
                self._put(name)
                self._refer(member)

    # ---------------------------------------------------------------------------------------------------------- objects
    def _object(self, value: Any) -> None:  # noqa: ANN401
        """Its attributes, its class, and what it has besides."""
        if isinstance(value, PurePath):
            self._refer(os.fspath(value))  # besides it keeps hashes, which differ between processes
            return
        self._refer(type(value))
        state = insides.attributes(value)
        library = type(value).__module__.partition(".")[0]
        if library == "fastfeed":
            self._refer(_of_ours(state))
        elif library == "datasets" and isinstance(state.get("_fingerprint"), str):
            # Of Hugging Face, which follows all that is done with the data; the data itself may be larger than memory.
            self._refer([state["_fingerprint"], state.get("_format_type"), state.get("_format_kwargs")])
        else:
            self._foreign(value, state)

    def _foreign(self, value: Any, state: dict[str, Any]) -> None:  # noqa: ANN401
        try:
            told = insides.pickled(value)
        except insides.Unknown as error:
            self.unknown.append(str(error))
        else:
            self._refer(state if told is None else [told, state.get("digest")])  # also of a dataset made from one of ours


def _of_ours(state: dict[str, Any]) -> dict[str, Any]:
    """What counts of an object of fastfeed's: of a dataset, whose content its digest tells, what it was opened with."""
    if not isinstance(state.get("digest"), str):
        return state
    return {name: part for name, part in state.items() if not name.startswith("_") and name not in {"cache", "recorder"}}
