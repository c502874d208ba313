"""Options that an audit was given, as the next command, or fastfeed.open, has to repeat them: else it reads something else."""

import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from fastfeed.cli.common import pairs

_ROWS = ("root", "fields", "label", "key", "class_names")
_HOW_READ: Mapping[str, tuple[str, ...]] = {"folder": ("hidden",), "list": _ROWS, "table": _ROWS}
"""By the kind of what is audited: options that say what its samples are. Other kinds have none."""
_HOW_LOOKED = ("tokenizer", "fast", "kill_after", "memory_limit", "workers")
"""Not how many samples: what comes next is for all of them."""
_FLAGS = {"fields": "--field", "class_names": "--classes"}
"""Where a flag is not called as its option is."""


class Given:
    """Options of an audit.

    Args:
        options: As click gives them.
        kind: What was audited: folder, list, table, packed, tars, python.
    """

    def __init__(self, options: Mapping[str, Any], kind: str) -> None:
        self._options = options
        self._read = [name for name in _HOW_READ.get(kind, ()) if options.get(name)]

    def for_pack(self) -> str:
        """What a command line of pack has behind its paths: empty, or beginning with a space."""
        return self._flags(self._read)

    def for_audit(self) -> str:
        """The same of another audit."""
        return self._flags([*self._read, *(name for name in _HOW_LOOKED if self._options.get(name))])

    def for_open(self) -> str:
        """What a call of fastfeed.open has behind its path: empty, or beginning with a comma."""
        return "".join(f", {self._argument(name)}" for name in self._read)

    def _flags(self, names: Iterable[str]) -> str:
        words = list[str]()
        for name in names:
            value, flag = self._options[name], _FLAGS.get(name, f"--{name.replace('_', '-')}")
            for one in value if isinstance(value, tuple) else (value,):
                words += [flag] if one is True else [flag, shlex.quote(str(one))]
        return "".join(f" {word}" for word in words)

    def _argument(self, name: str) -> str:
        value = self._options[name]
        if name == "fields":
            return f"field={pairs(value, 'field')!r}"
        if name == "class_names":
            return f"classes=[line.strip() for line in open({value!r})]"
        return f"{name}={value!r}"
