"""The page of an audit in a file, with thumbnails made by children as the samples were: what kills a decoder kills no page."""

import logging
import time
from collections.abc import Iterator, Sequence

from fastfeed.auditor.looking.look import DATA, TEXT
from fastfeed.auditor.places import refusals
from fastfeed.auditor.record import SampleRecord
from fastfeed.auditor.report.gather import Gathered
from fastfeed.auditor.report.page import page
from fastfeed.auditor.result import AuditResult
from fastfeed.auditor.running.codes import CRASH, HANG, MEMORY, SPECIAL, TAKES_LONG, UNREADABLE
from fastfeed.auditor.running.crew import Crew, Task
from fastfeed.auditor.running.subject import How
from fastfeed.disk import publish
from fastfeed.errors import WorkerDied
from fastfeed.units import format_count

LOG = logging.getLogger("fastfeed.audit")
MOST_THUMBNAILS = 300
MOST_BYTES = 3 << 20
"""Of all thumbnails together, in base64."""
KILL_SECONDS = 5.0
"""A thumbnail that takes longer is left out."""
MOST_SECONDS = 60.0
"""None is begun later."""
_NEVER_AGAIN = frozenset(code.name for code in (CRASH, HANG, MEMORY, SPECIAL, TAKES_LONG, UNREADABLE))
"""Samples with one of these are not loaded for the sake of a picture."""
_THUMBNAIL = How(full=False, thumbnail=True)


def write_page(path: str, result: AuditResult, gathered: Gathered, crew: Crew | None, *, continues: bool = False) -> None:
    """Write the page, whole or not at all.

    Args:
        path: The file.
        result: What was found.
        gathered: Each record was given to it.
        crew: Makes thumbnails; None for a page without them.
        continues: Whether the same audit would go on if it ended here.

    Raises:
        DestinationError: It cannot be written.
    """
    rows = gathered.rows()
    thumbnails, notes = thumbnails_of(rows, crew) if crew is not None and rows else ({}, [])
    made = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    whole = page(result, gathered, thumbnails, notes=notes, made=made)
    with refusals(path, continues=continues):
        publish(f"{path}.part", path, lambda file: file.write(whole))


def thumbnails_of(rows: Sequence[SampleRecord], crew: Crew) -> tuple[dict[int, str], list[str]]:
    """Thumbnails of flagged samples.

    Args:
        rows: Flagged samples.
        crew: Not in use yet.

    Returns:
        JPEGs in base64 by position, and what a reader must know of them.
    """
    wanted = [record.index for record in rows if _may_be_seen(record)]
    given, found, sum_bytes, notes = _Given(wanted), dict[int, str](), 0, list[str]()
    try:
        with crew:
            crew.prepare()
            for record in crew.run(given):
                if record.thumbnail is not None and sum_bytes + len(record.thumbnail) <= MOST_BYTES:
                    found[record.index] = record.thumbnail
                    sum_bytes += len(record.thumbnail)
    except WorkerDied as error:
        LOG.warning("some thumbnails are missing: %s", error)
        notes.append("some thumbnails are missing: samples ended the processes that made them")
    if not notes and given.count < len(wanted):
        notes.append(f"thumbnails were made of the first {given.count:,} of {format_count(len(wanted), 'flagged image')}")
    return found, notes


class _Given:
    """The samples that get a thumbnail: so many, and none begun after so long.

    Args:
        wanted: Positions of all that might.
    """

    def __init__(self, wanted: Sequence[int]) -> None:
        self.count = 0
        """Of them, so far."""
        self._wanted = wanted

    def __iter__(self) -> Iterator[Task]:
        deadline = time.monotonic() + MOST_SECONDS
        for index in self._wanted[:MOST_THUMBNAILS]:
            if time.monotonic() > deadline:
                return
            self.count += 1
            yield Task(index, _THUMBNAIL)


def _may_be_seen(record: SampleRecord) -> bool:
    """Whether it is an image, and did nothing to the process that loaded it."""
    is_image = record.format not in {None, DATA, TEXT}
    return is_image and not any(found.code.name in _NEVER_AGAIN for found in record.findings)
