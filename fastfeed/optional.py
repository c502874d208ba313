"""Packages that only some uses need: loaded where they are used, and their absence says what to install."""

from importlib import import_module
from typing import Any

from fastfeed.errors import UsageError


def load(module: str, extra: str, purpose: str) -> Any:  # noqa: ANN401 - a module, typed or not
    """Import a module of an optional package.

    Args:
        module: Its dotted name.
        extra: The extra of fastfeed that asks for the package.
        purpose: What needs it, as the subject of a sentence: "a parquet file".

    Raises:
        UsageError: The package is not installed.
    """
    try:
        return import_module(module)
    except ImportError as error:
        msg = f"{purpose} needs the package {error.name or module}, which cannot be imported ({error})"
        raise UsageError(msg, hint=f"Install it: pip install 'fastfeed[{extra}]'.") from error
