"""A subject whose bytes we read ourselves: what is stored, as it is, without any transform of a program."""

from collections.abc import Sequence

from fastfeed.archive.catalog import Place
from fastfeed.auditor.clock import Clock
from fastfeed.auditor.finding import Finding
from fastfeed.auditor.looking.textlook import Tokenizer
from fastfeed.auditor.record import SampleRecord
from fastfeed.auditor.running.codes import DAMAGED_SHARD, UNREADABLE
from fastfeed.auditor.running.examine import Member, examine_members, told, warm_up
from fastfeed.auditor.running.parts import FILES, Part, Parts, PartSpec
from fastfeed.auditor.running.subject import How
from fastfeed.errors import DatasetError, FastfeedError


class Stored:
    """Samples of datasets that lie one behind the other.

    Args:
        specs: Which.
        tokenizer: Counts the tokens of texts.

    Raises:
        FastfeedError: One of them cannot be opened.
    """

    def __init__(self, specs: Sequence[PartSpec], tokenizer: Tokenizer | None = None) -> None:
        self._parts, self._tokenizer = Parts(specs), tokenizer
        warm_up()

    @property
    def count(self) -> int:
        """How many samples."""
        return len(self._parts)

    def load(self, index: int, how: How) -> SampleRecord:
        """Read a sample, decode its images and look at its members."""
        record = SampleRecord(index)
        part, position = self._parts.find(index)
        try:
            places = list(part.catalog.places(position))
            self._name(record, part, position, places)
            if not how.load:
                return record
            if how.cold:
                part.forget(places)
            payloads = self._read(record, part, position, places)
        except (FastfeedError, OSError) as error:
            code = DAMAGED_SHARD if isinstance(error, DatasetError) else UNREADABLE
            record.findings.append(Finding(code, told(error)))
            return record
        named = zip(places, payloads, strict=True)
        members = [Member(place.field, _name_of(part, position, place), data) for place, data in named]
        examine_members(record, members, how, self._tokenizer)
        return record

    @staticmethod
    def _name(record: SampleRecord, part: Part, position: int, places: Sequence[Place]) -> None:
        record.path = part.source(position, places)
        record.label, record.split = part.label(position), part.split(record.path)
        if part.spec.kind != FILES:
            record.key, record.shard = part.catalog.key(position), places[0].shard
            record.offset = places[0].start

    @staticmethod
    def _read(record: SampleRecord, part: Part, position: int, places: Sequence[Place]) -> list[bytes]:
        clock = Clock()
        try:
            with clock:
                return [part.reader.read(position, place) for place in places]
        finally:
            record.times["read"] = clock.time


def _name_of(part: Part, position: int, place: Place) -> str:
    """A member's file name: of plain files its own, of a member of a tar its field behind the key."""
    if part.spec.kind == FILES:
        return place.shard
    return f"{part.catalog.key(position)}.{place.field}"
