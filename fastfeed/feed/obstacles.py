"""What of the user's own speaks against worker processes: tensors on a GPU, what cannot be pickled, a script without a guard.

Workers that are not forked get everything as a pickle, and import the script again. With num_workers given, that fails as in
torch; where the number is left to us, nothing must fail that works in the main process.
"""

import ast
import multiprocessing
import os
import sys
import tokenize
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import torch

from fastfeed.errors import UsageError
from fastfeed.feed.generators import within
from fastfeed.feed.pickling import unsendable

_MAIN = "__main__"
GUARD = 'if __name__ == "__main__":'


def tensors_on(dataset: Any, device: str) -> str | None:  # noqa: ANN401 - any dataset
    """Where a dataset holds a tensor on a kind of device ("dataset.transform.mean"); None where none was found.

    Args:
        dataset: Any dataset; it and what it holds are looked at as generators.within does it.
        device: Such as "cuda".
    """
    found = (path for value, path in within(dataset) if isinstance(value, torch.Tensor) and value.device.type == device)
    first = next(found, None)
    return None if first is None else f"dataset{'' if first.startswith('[') or not first else '.'}{first}"


def against_sending(parts: Mapping[str, Any]) -> tuple[str | None, int]:
    """Why a worker that is not forked cannot be given what it needs, and how many bytes that is.

    Args:
        parts: What it needs, by name: dataset, collate_fn, worker_init_fn.

    Returns:
        None where it can; and the size of all pickles but the memory of tensors, up to what cannot be pickled.
    """
    main, size_bytes = sys.modules.get(_MAIN), 0
    unreachable = None if main is None or getattr(main, "__file__", None) is not None else _MAIN
    for name, part in parts.items():
        why, more = unsendable(part, unreachable)
        size_bytes += more
        if why is not None:
            return f"of {name} there is none: {why}", size_bytes
    return None, size_bytes


def is_guarded(main: ModuleType | None) -> bool | None:
    """Whether a worker that is not forked may import the main module again; None where that cannot be told.

    What it does not import (an interactive session, the __main__ of a package) it may. In any other one it is looked for a
    mention of __name__ in an if: without any, importing would run the training script once more.
    """
    path = getattr(main, "__file__", None)
    spec = getattr(main, "__spec__", None)
    if path is None or (spec is not None and spec.name.rpartition(".")[2] == _MAIN):
        return True
    try:
        with tokenize.open(path) as file:
            tree = ast.parse(file.read())
    except (OSError, SyntaxError, ValueError):  # a program without source
        return None
    tests = (part for node in ast.walk(tree) if isinstance(node, ast.If) for part in ast.walk(node.test))
    return any(isinstance(part, ast.Name) and part.id == "__name__" for part in tests)


def start_method(given: Any) -> str:  # noqa: ANN401 - a name, a context, or None
    """How workers are started.

    Args:
        given: A loader's multiprocessing_context.
    """
    return given if isinstance(given, str) else str((given or multiprocessing).get_start_method())


def imports_unguarded(given: Any) -> str | None:  # noqa: ANN401 - a name, a context, or None
    """Why workers cannot start, and what helps, where they import a main module without a guard; None where they do not.

    Args:
        given: A loader's multiprocessing_context.
    """
    method, main = start_method(given), sys.modules.get(_MAIN)
    if method == "fork" or is_guarded(main) is not False:
        return None
    name = os.path.basename(str(getattr(main, "__file__", _MAIN)))
    return f"{method} imports {name} anew in each worker: what it does has to be under {GUARD}"


def prove_is_not_starting(given: Any) -> None:  # noqa: ANN401 - a name, a context, or None
    """Whether this process may start workers: not while it is started as one, when it imports the script.

    Args:
        given: A loader's multiprocessing_context.

    Raises:
        UsageError: It may not. multiprocessing would say so too, without a word of what to do in a training script.
    """
    # _inheriting is a private name of multiprocessing, and what its own check looks at: tests/feed/test_obstacles.py proves it
    if not getattr(multiprocessing.current_process(), "_inheriting", False) or start_method(given) == "fork":
        return
    msg = "this process is being started as a worker, and the script that it imports for that starts workers itself"
    raise UsageError(msg, hint=f"Put what the script does under {GUARD}")
