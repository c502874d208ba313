"""One member's bytes: decoded under a clock, and looked at."""

import io
from collections.abc import Iterable
from typing import NamedTuple, Self

from PIL import Image

from fastfeed.archive.shard import CLASS_FIELD
from fastfeed.auditor.clock import Clock
from fastfeed.auditor.finding import Finding
from fastfeed.auditor.looking.look import look
from fastfeed.auditor.looking.textlook import Tokenizer, count_tokens
from fastfeed.auditor.record import SampleRecord
from fastfeed.auditor.running.subject import How, Stages
from fastfeed.auditor.running.thumbnail import thumbnail
from fastfeed.errors import FastfeedError
from fastfeed.media import is_image_field

_STRUCTURED = ("json", "jsonl", "csv", "tsv")


class _Timed(Clock):
    """A clock that knows whether it was used: what is no image is not decoded."""

    used = False

    def __enter__(self) -> Self:
        self.used = True
        super().__enter__()
        return self


def examine(
    record: SampleRecord, name: str, data: bytes, how: How, *, clocked: bool = True, tokenizer: Tokenizer | None = None
) -> None:
    """Decode an image as a loader does, and note what its bytes show.

    Args:
        record: Gets times, facts and findings.
        name: Of the file or member; its extension says what it should be.
        data: Its bytes.
        how: How closely to look.
        clocked: Whether the time of decoding is that of the stage decode; not where a dataset decodes it itself.
        tokenizer: Counts the tokens of a text, in the stage tokenize.
    """
    if how.thumbnail:
        record.thumbnail = thumbnail(data)
        return
    clock = _Timed()
    found = look(data, name, strict=how.full and how.look, band=how.full and how.look, around=clock)
    if clocked and clock.used:
        record.times["decode"] = clock.time
    record.format, record.width, record.height, record.mode = found.format, found.width, found.height, found.mode
    record.digest, record.characters = found.digest, found.characters
    if how.look:
        record.findings += found.findings
    if tokenizer is not None and found.text is not None:
        tokenize(record, found.text, tokenizer)


def tokenize(record: SampleRecord, text: str, tokenizer: Tokenizer) -> None:
    """Count the tokens of a text under a clock; a tokenizer that fails is a finding."""
    clock = Clock()
    with clock:
        counted = count_tokens(text, tokenizer)
    record.times["tokenize"] = clock.time
    if isinstance(counted, Finding):
        record.findings.append(counted)
    else:
        record.tokens = counted


class Member(NamedTuple):
    """A part of a sample."""

    field: str
    name: str
    """As a file; its extension says what it should be."""
    data: bytes


def examine_members(record: SampleRecord, members: Iterable[Member], how: How, tokenizer: Tokenizer | None) -> None:
    """All of a sample but its class: images first. The first says what the sample is; findings of the others name their field.

    Args:
        record: Gets their size, times, facts and findings.
        members: One at least.
        how: How closely to look.
        tokenizer: Counts the tokens of texts.
    """
    first, *others = sorted(members, key=lambda member: rank(member.field))
    record.size_bytes = len(first.data) + sum(len(member.data) for member in others)
    examine(record, first.name, first.data, how, tokenizer=tokenizer)
    for member in others:
        if member.field != CLASS_FIELD:
            beside = SampleRecord(record.index)
            examine(beside, member.name, member.data, how, tokenizer=tokenizer)
            _add(record, beside, member.field)


def _add(record: SampleRecord, beside: SampleRecord, field: str) -> None:
    """What another member of a sample shows: its times add up, its format is not the sample's."""
    record.findings += [Finding(found.code, f"{field}: {found.text}") for found in beside.findings]
    take_text(record, beside)
    stages = Stages(record)
    for stage, time in beside.times.items():
        stages.add(stage, time)


def rank(field: str) -> int:
    """In which order the members of a sample are looked at: images, texts and others, tables and JSON beside them."""
    return 0 if is_image_field(field) else 2 if field.rpartition(".")[2] in _STRUCTURED else 1


def take_text(record: SampleRecord, beside: SampleRecord) -> None:
    """The length of a sample's text is that of its first one.

    Args:
        record: Of the sample.
        beside: Of another member of it.
    """
    if record.characters is None:
        record.characters, record.tokens = beside.characters, beside.tokens


def told(error: Exception) -> str:
    """What happened: where is known from the record, and what to do from the code."""
    if not isinstance(error, FastfeedError):
        return str(error)
    facts = {"expected": error.expected, "got": error.got}
    return error.message + "".join(f", {name} {value}" for name, value in facts.items() if value is not None)


def warm_up() -> None:
    """Load decoders: tens of milliseconds at the first picture, and at the first that is none (Pillow then loads all it has).

    They are not that sample's fault.
    """
    for kind in ("JPEG", "PNG"):
        file = io.BytesIO()
        Image.new("RGB", (16, 16)).save(file, kind)
        look(file.getvalue(), f"first.{kind.lower()}")
    look(b"no picture", "first.jpg")
