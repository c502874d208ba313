"""The text in what a Python dataset hands out: of it there is no file whose bytes could be looked at."""

from collections.abc import Sequence

from fastfeed.auditor.looking.look import TEXT
from fastfeed.auditor.looking.textlook import Tokenizer, findings_of
from fastfeed.auditor.record import SampleRecord
from fastfeed.auditor.running.examine import tokenize
from fastfeed.auditor.running.subject import How

_BESIDE = (str, int, float, type(None))
"""What a text may have beside it and still be all that the sample takes time for."""


def look_at_text(record: SampleRecord, samples: Sequence[object], how: How, tokenizer: Tokenizer | None) -> None:
    """Note how long the text of a sample is, and what is odd about it.

    Args:
        record: Of the sample; one whose files were looked at keeps what they show.
        samples: What came: the sample, or nothing.
        how: Whether more than its times is wanted.
        tokenizer: Counts its tokens.
    """
    parts = parts_of(samples[0]) if samples else []
    text = max((part for part in parts if isinstance(part, str)), key=len, default=None)
    if text is None or record.characters is not None:
        return
    record.characters = len(text)
    if how.look and text:
        record.findings += findings_of(text)
    if tokenizer is not None:
        tokenize(record, text, tokenizer)
    if all(isinstance(part, _BESIDE) for part in parts):
        record.format, record.size_bytes = TEXT, len(text.encode("utf-8", "surrogatepass"))
    else:
        record.times.pop("tokenize", None)  # it would be judged by a size that is not its own


def parts_of(sample: object) -> list[object]:
    """Where the texts of a sample may be: itself, the values of a dict, the items of a tuple.

    Args:
        sample: As a dataset gave it.
    """
    if isinstance(sample, dict):
        return list(sample.values())
    return list(sample) if isinstance(sample, tuple | list) else [sample]
