"""What a Python value is, as far as packing asks: bytes, text, an array, a decoded image, or a value that JSON takes."""

import datetime as dt
import decimal
import json
import operator
import uuid
from collections.abc import Mapping
from typing import Any, Literal, NoReturn

from fastfeed.archive.regular import open_regular
from fastfeed.errors import UsageError
from fastfeed.packer.rows.arrays import is_array, is_pil

Kind = Literal["bytes", "text", "array", "image", "json"]
TOLD: Mapping[Kind, str] = {
    "bytes": "encoded bytes", "text": "text", "array": "an array", "image": "a decoded image", "json": "a number, list or dict",
}  # fmt: skip
"""Kinds as messages call them."""
_ATOMS = frozenset({bool, int, float, str, type(None)})
_KIND_OF: Mapping[type, Kind] = {str: "text", bytes: "bytes", int: "json", float: "json", bool: "json"}
"""Of what plain() gives, most values."""
_AS_TEXT = (dt.date, dt.time, dt.timedelta, decimal.Decimal, uuid.UUID)
_HINT = "Give bytes, str, numbers, lists and dicts of those, or numpy arrays."


def plain(value: Any) -> Any:  # noqa: ANN401 - any value
    """A value without its subclass; None for a missing one."""
    kind = type(value)
    if kind in _ATOMS or kind is bytes:
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if isinstance(value, str):  # numpy's str_ is one
        return str.__str__(value)
    if is_media(value) and value["bytes"] is None and not value["path"]:
        return None
    if is_array(value):  # before numbers: numpy's float64 is a float
        return value
    if isinstance(value, int):
        return int(value)
    return float(value) if isinstance(value, float) else value


def as_text(value: object) -> str | None:
    """Dates and times in ISO 8601, decimals, UUIDs and spans of time as Python writes them; None for any other value."""
    if isinstance(value, dt.date | dt.time):
        return value.isoformat()
    return str(value) if isinstance(value, _AS_TEXT) else None


def kind_of(name: str, value: Any) -> Kind:  # noqa: ANN401 - what plain() gave, not None
    """What it is.

    Raises:
        UsageError: Nothing that can be stored without loss; the part of it that cannot is named.
    """
    known = _KIND_OF.get(type(value))
    if known is not None:
        return known
    if is_media(value):
        return "bytes"
    if is_array(value):
        return "array"
    if is_pil(value):
        return "image"
    try:
        wrong = _not_json(value)
    except RecursionError as error:
        msg = f"column {name!r} is nested too deep, or holds itself"
        raise UsageError(msg, hint=_HINT) from error
    if wrong is not None:
        _refuse(name, *wrong)
    return "json"


def is_media(value: object) -> bool:
    """Whether it is Hugging Face's pair of bytes and path."""
    if not isinstance(value, dict) or value.keys() != {"bytes", "path"}:
        return False
    return isinstance(value["bytes"], bytes | bytearray | memoryview | None) and isinstance(value["path"], str | None)


def is_index(value: Any) -> bool:  # noqa: ANN401 - any value
    """Whether it is one whole number: Python's, numpy's, or a tensor without dimensions; true and false are none."""
    if isinstance(value, bool) or not hasattr(value, "__index__") or getattr(value, "shape", ()) != ():
        return False
    try:
        operator.index(value)
    except (TypeError, RuntimeError):  # a tensor of floats has the method, too
        return False
    return "bool" not in str(getattr(value, "dtype", ""))


def _not_json(value: Any, path: str = "") -> tuple[str, Any] | None:  # noqa: ANN401
    """The first part that JSON would lose: where it is, and what."""
    kind = type(value)
    if kind in _ATOMS or isinstance(value, _AS_TEXT):
        return None
    if isinstance(value, list | tuple):
        if set(map(type, value)) <= _ATOMS:
            return None
        found = (_not_json(part, f"{path}[{at}]") for at, part in enumerate(value))
        return next((wrong for wrong in found if wrong is not None), None)
    if isinstance(value, dict):
        key = next((key for key in value if type(key) is not str), None)
        if key is not None:
            return f"{path}[{key!r}]", key
        found = (_not_json(part, f"{path}[{name!r}]") for name, part in value.items())
        return next((wrong for wrong in found if wrong is not None), None)
    return path, value


def _refuse(name: str, path: str, value: Any) -> NoReturn:  # noqa: ANN401
    what = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
    if not path:
        msg = f"column {name!r} holds a {what}, which cannot be stored without loss"
        raise UsageError(msg, got=what, hint=_HINT)
    is_key = path.endswith(f"[{value!r}]") and not isinstance(value, str)
    msg = f"column {name!r} holds {'the key' if is_key else 'a value'} {name}{path} of type {what}, which JSON would lose"
    hint = "Keys of a dict are str." if is_key else "Give arrays and bytes by a name of their own, or as lists (.tolist())."
    raise UsageError(msg, got=what, hint=hint)


def json_bytes(name: str, value: Any) -> bytes:  # noqa: ANN401
    """A value as JSON in UTF-8; lone surrogates as escapes.

    Raises:
        UsageError: JSON does not take it.
    """
    try:
        text = _PLAIN.encode(value)
        return text.encode() if text.isascii() or _is_unicode(text) else _ESCAPING.encode(value).encode()
    except (ValueError, TypeError, RecursionError) as error:
        msg = f"{name} cannot be written as JSON ({error})"
        raise UsageError(msg, hint=_HINT) from error


def _default(value: object) -> str:
    text = as_text(value)
    if text is None:
        msg = f"of {type(value).__qualname__} JSON knows nothing"
        raise TypeError(msg)
    return text


_PLAIN, _ESCAPING = json.JSONEncoder(ensure_ascii=False, default=_default), json.JSONEncoder(default=_default)


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def utf8(name: str, text: str) -> bytes:
    """A text's bytes.

    Raises:
        UsageError: It holds a lone surrogate, which no Unicode text has.
    """
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        msg = f"column {name!r} holds text that is no Unicode: character {error.start} is a lone surrogate"
        hint = "It was made from bytes that are no UTF-8: give the bytes themselves."
        raise UsageError(msg, got=ascii(text[error.start : error.start + 1]), hint=hint) from error


def json_text(name: str, text: str) -> bytes:
    """The bytes of a text that is JSON.

    Raises:
        UsageError: It is none.
    """
    try:
        json.loads(text)
    except (ValueError, RecursionError) as error:
        msg = f"column {name!r} is a json field and holds text that is no JSON ({error})"
        raise UsageError(msg, got=ascii(text[:80]), hint="Give the value itself, or another name such as txt.") from error
    return utf8(name, text)


def media_bytes(name: str, value: Any) -> tuple[bytes, str]:  # noqa: ANN401 - bytes, or Hugging Face's pair
    """Bytes and path of a media value; the file is read where there are no bytes.

    Raises:
        UsageError: That file cannot be read.
    """
    if isinstance(value, bytes):
        return value, ""
    path = value["path"] or ""
    if value["bytes"] is not None:
        return bytes(value["bytes"]), path
    try:
        with open(path, "rb", opener=open_regular) as file:
            return file.read(), path
    except (OSError, ValueError) as error:
        msg = f"column {name!r} names the file {path!r}, which cannot be read: {getattr(error, 'strerror', None) or error}"
        raise UsageError(msg, got=path) from error
