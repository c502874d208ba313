"""A tokenizer of the user's: by its name, or itself."""

from typing import Any

from fastfeed.auditor.looking.textlook import Tokenizer
from fastfeed.errors import UsageError
from fastfeed.packer.rows.byname import find_object, is_named, type_name

_HINT = "Give a function of one text, as tokenizers of transformers are; those of tiktoken and tokenizers have one: encode."


def tokenizer_of(given: Any) -> Tokenizer | None:  # noqa: ANN401 - whatever the user has
    """What counts tokens; None where none is given.

    Args:
        given: "module:name", "file.py:name", something to call with a text, or something that has encode().

    Raises:
        UsageError: There is no such thing, or it is no tokenizer.
    """
    if given is None:
        return None
    found = given
    if isinstance(given, str):
        if not is_named(given):
            msg = "this is no name of a tokenizer"
            raise UsageError(msg, expected="package.module:name or path/file.py:name", got=repr(given))
        found = find_object(given)
    if isinstance(found, type) or not (callable(found) or hasattr(found, "encode")):
        msg = "the tokenizer cannot be called with a text"
        raise UsageError(msg, got=found.__qualname__ if isinstance(found, type) else type_name(found), hint=_HINT)
    counts: Tokenizer = found if callable(found) else found.encode
    return counts


def name_of(given: Any) -> str | None:  # noqa: ANN401 - whatever the user has
    """What a report calls a tokenizer, and tells it from another one by; None for none."""
    if given is None or isinstance(given, str):
        return given
    named = f"{getattr(given, '__module__', '')}.{getattr(given, '__qualname__', '')}"
    return str(getattr(given, "name_or_path", "")) or (named if hasattr(given, "__qualname__") else type_name(given))
