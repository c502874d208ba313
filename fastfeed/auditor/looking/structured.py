"""Texts that should parse: JSON, JSON lines, tables in CSV and TSV. Lines end with a line feed and count from 1."""

import csv
import io
import json
import re

from fastfeed.auditor.finding import Finding
from fastfeed.auditor.looking import textcodes
from fastfeed.units import format_count, format_size

MAX_PARSED_CHARACTERS = 64 << 20
"""A document of more is not parsed: its objects take many times its size in memory."""
_HALF = re.compile(r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|.)", re.DOTALL)
_HIGH, _LOW = 0xD800, 0xDC00
"""The six upper bits of the first half of a pair, and of the second."""
_JSON, _LINES = frozenset({"json", "geojson", "ipynb"}), frozenset({"jsonl", "ndjson"})
_TABLES = {"csv": ",;\t|", "tsv": "\t"}
"""What may stand between cells: where numbers have commas, tables have semicolons."""
_SHOWN = 3


def findings_of(text: str, extension: str) -> list[Finding]:
    """What does not parse.

    Args:
        text: Decoded.
        extension: Of its name: it says what the text should be.
    """
    if extension not in _JSON and extension not in _LINES and extension not in _TABLES:
        return []
    if extension in _JSON and len(text) > MAX_PARSED_CHARACTERS:
        return [
            Finding(textcodes.NOT_PARSED, f"{format_size(len(text))}; up to {format_size(MAX_PARSED_CHARACTERS)} is parsed")
        ]
    if extension in _JSON:
        return _json(text)
    return _json_lines(text) if extension in _LINES else _table(text, extension)


def _json(text: str) -> list[Finding]:
    error, loose = _parse(text)
    if error is not None:
        return [Finding(textcodes.JSON_BAD, _told(error))]
    return [*([Finding(textcodes.JSON_LOOSE, f"it holds {loose}")] if loose else []), *_surrogates(text)]


def _parse(text: str) -> tuple[Exception | None, str]:
    """What json.loads raises, and the first constant that JSON does not know and Python does."""
    constants = list[str]()
    try:
        json.loads(text, parse_constant=constants.append)
    except (ValueError, RecursionError) as error:
        return error, ""
    return None, constants[0] if constants else ""


def _surrogates(text: str) -> list[Finding]:
    """Strings that hold half a character: only an escape can make one."""
    if not _HALF.search(text):  # most documents end here
        return []
    pending: re.Match[str] | None = None
    for match in _ESCAPE.finditer(text):
        half = int(match[1], 16) & 0xFC00 if match[1] else 0
        joined = pending is not None and pending.end() == match.start() and half == _LOW
        if pending is not None and not joined:
            break
        if half == _LOW and not joined:
            pending = match
            break
        pending = match if half == _HIGH else None
    if pending is None:
        return []
    return [Finding(textcodes.SURROGATE, f"line {text.count(chr(10), 0, pending.start()) + 1}: {pending[0]} has no other half")]


def _json_lines(text: str) -> list[Finding]:
    bad, first, loose, halves, at = 0, "", "", list[Finding](), 0
    for number, line in enumerate(text.split("\n"), 1):
        error, constant = _parse(line) if line.strip() else (None, "")
        if error is not None:
            bad, first = bad + 1, first or f"line {number}, from character {at} on: {_told(error)}"
        if constant and not loose:
            loose = f"line {number} holds {constant}"
        halves = halves or [Finding(one.code, f"of line {number}, {one.text}") for one in _surrogates(line)]
        at += len(line) + 1
    found = [Finding(textcodes.JSONL_BAD, f"{format_count(bad, 'line')}, the first: {first}")] if bad else []
    return [*found, *([Finding(textcodes.JSON_LOOSE, loose)] if loose else []), *halves]


def _table(text: str, extension: str) -> list[Finding]:
    first = text.partition("\n")[0]
    delimiter = max(_TABLES[extension], key=first.count)  # the first of equals
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    width, odd, examples = 0, 0, list[str]()
    before = csv.field_size_limit(len(text) + 1)  # of the module, not of tables: other readers take cells of any length
    try:
        for row in rows:
            width = width or len(row)
            if row and len(row) != width:
                odd += 1
                examples += [f"line {rows.line_num} has {len(row)}"] if odd <= _SHOWN else []
    except csv.Error as error:
        return [Finding(textcodes.CSV_BAD, f"line {rows.line_num}: {error}")]
    finally:
        csv.field_size_limit(before)
    if not odd:
        return []
    return [Finding(textcodes.CSV_RAGGED, f"{format_count(odd, 'row')} of others than {width} cells: {', '.join(examples)}")]


def _told(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at line {error.lineno}, column {error.colno}"
    return f"{type(error).__name__}: {error}"
