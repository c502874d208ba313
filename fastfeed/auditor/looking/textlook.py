"""What is wrong or odd about one text's characters and shape."""

import re
import zlib
from collections.abc import Callable, Mapping, Sized
from typing import Any

from fastfeed.auditor.finding import Code, Finding
from fastfeed.auditor.looking import textcodes
from fastfeed.auditor.looking.decoding import told
from fastfeed.units import format_count

Tokenizer = Callable[[str], Any]
"""Gives something with a length, or a mapping with "input_ids", as those of transformers do."""
LONG_LINE, LONG_RUN, LONG_BLANK = 1_000_000, 20_000, 10_000
"""Characters. A paragraph without spaces (Chinese, Thai) stays far below LONG_RUN; \\s+$ over LONG_BLANK takes 0.3 s."""
MAX_RATIO = 25
"""Size to compressed size: prose has 2 to 4, logs and tables up to 15."""
_RATIO_FROM, _RATIO_UP_TO = 2000, 4000
"""Characters in the middle of the text that are compressed: compressing all of it costs more than all the rest."""
_LINES = re.compile(rf"(?<![^\n])[^\n]{{{LONG_LINE},}}")
_RUNS = re.compile(rf"(?<!\S)\S{{{LONG_RUN},}}")  # begun at a run's start alone: else its time is the square of a run
_BLANKS = re.compile(rf"(?<!\s)\s{{{LONG_BLANK},}}")
_CONTROL = re.compile("[\x01-\x08\x0e-\x1f\x7f]")
_OTHER_ENDS = re.compile("\r(?!\n)|[\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
"""What str.splitlines() takes for the end of a line, and `wc -l` does not."""
_RARE_BYTES = bytes((*range(1, 9), *range(11, 32), 127))
_RARE_ENDS = ("\x85", "\u2028", "\u2029")
"""What the two patterns above look for, for a test at a tenth of their cost: most texts have none of it."""


def findings_of(text: str) -> list[Finding]:
    """What there is to say about a text.

    Args:
        text: Decoded, not empty.
    """
    if not text.strip():
        return [Finding(textcodes.BLANK, format_count(len(text), "character"))]
    try:
        raw = text.encode()
    except UnicodeEncodeError as error:
        return [Finding(textcodes.HALF, f"character {error.start} is U+{ord(text[error.start]):04X}")]
    return [*_characters(text, raw), *_shape(text)]


def _characters(text: str, raw: bytes) -> list[Finding]:
    found = list[Finding]()
    for code, character in ((textcodes.NUL, "\0"), (textcodes.REPLACEMENT, "\ufffd")):
        count = text.count(character)
        if count:
            found.append(Finding(code, f"{count:,} of them, the first in line {_line(text, text.index(character))}"))
    rare = len(raw.translate(None, _RARE_BYTES)) < len(raw)
    control = _CONTROL.search(text) if rare else None
    if control:
        found.append(Finding(textcodes.CONTROL, f"U+{ord(control[0]):04X} in line {_line(text, control.start())}"))
    other = _OTHER_ENDS.search(text) if rare or any(end in text for end in _RARE_ENDS) else None
    if other:
        numbers = f"{format_count(text.count(chr(10)), 'line feed')}, {len(text.splitlines()):,} lines by splitlines()"
        place = f"the first other end is U+{ord(other[0]):04X} in line {_line(text, other.start())}"
        found.append(Finding(textcodes.LINE_ENDS, f"{numbers}; {place}"))
    return found


def _shape(text: str) -> list[Finding]:
    found = list[Finding]()
    for code, pattern, least, fills in _EXTREMES:
        step = least // 2  # a run of that length fills at least one of the pieces that begin at multiples of half of it
        if not any(fills(text[start : start + step]) for start in range(0, len(text) - step + 1, step)):
            continue
        longest = max(pattern.finditer(text), key=lambda match: match.end() - match.start(), default=None)
        if longest is not None:
            size = format_count(longest.end() - longest.start(), "character")
            found.append(Finding(code, f"{size} from line {_line(text, longest.start())} on"))
    start = max(0, (len(text) - _RATIO_UP_TO) // 2)
    part = text[start : start + _RATIO_UP_TO].encode()
    ratio = len(part) / len(zlib.compress(part, 1)) if len(part) >= _RATIO_FROM else 0.0
    if ratio > MAX_RATIO:
        found.append(Finding(textcodes.REPETITIVE, f"its middle compresses {ratio:.0f} times; prose does 2 to 4 times"))
    return found


_EXTREMES: tuple[tuple[Code, re.Pattern[str], int, Callable[[str], bool]], ...] = (
    (textcodes.LONG_LINE, _LINES, LONG_LINE, lambda piece: "\n" not in piece),
    (textcodes.LONG_RUN, _RUNS, LONG_RUN, lambda piece: piece.split(None, 1) == [piece]),
    (textcodes.LONG_BLANK, _BLANKS, LONG_BLANK, str.isspace),
)
"""Code, pattern, least length, and whether all of a piece may be of such a run: each of these ends at the first that is not."""


def _line(text: str, at: int) -> int:
    """Its number, from 1 on: a line ends with a line feed."""
    return text.count("\n", 0, at) + 1


def count_tokens(text: str, tokenizer: Tokenizer) -> int | Finding:
    """How many tokens a text has by a tokenizer of the user's.

    Args:
        text: Decoded.
        tokenizer: Of the user.

    Returns:
        The number, or what the tokenizer raised.
    """
    try:
        tokens = tokenizer(text)
        ids: Sized = tokens["input_ids"] if isinstance(tokens, Mapping) else tokens
        return len(ids)
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - foreign code over any text: what it raises is what is asked
        return Finding(textcodes.TOKENIZER_FAILS, told(error))
