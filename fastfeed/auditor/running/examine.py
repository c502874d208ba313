"""One member's bytes: decoded under a clock, and looked at."""

import io
from typing import Self

from PIL import Image

from fastfeed.auditor.clock import Clock
from fastfeed.auditor.looking.look import look
from fastfeed.auditor.record import SampleRecord
from fastfeed.auditor.running.subject import How
from fastfeed.auditor.running.thumbnail import thumbnail
from fastfeed.errors import FastfeedError


class _Timed(Clock):
    """A clock that knows whether it was used: what is no image is not decoded."""

    used = False

    def __enter__(self) -> Self:
        self.used = True
        super().__enter__()
        return self


def examine(record: SampleRecord, name: str, data: bytes, how: How, *, clocked: bool = True) -> None:
    """Decode an image as a loader does, and note what its bytes show.

    Args:
        record: Gets times, facts and findings.
        name: Of the file or member; its extension says what it should be.
        data: Its bytes.
        how: How closely to look.
        clocked: Whether the time of decoding is that of the stage decode; not where a dataset decodes it itself.
    """
    if how.thumbnail:
        record.thumbnail = thumbnail(data)
        return
    clock = _Timed()
    found = look(data, name, strict=how.full and how.look, band=how.full and how.look, around=clock)
    if clocked and clock.used:
        record.times["decode"] = clock.time
    record.format, record.width, record.height, record.mode = found.format, found.width, found.height, found.mode
    record.digest = found.digest
    if how.look:
        record.findings += found.findings


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
