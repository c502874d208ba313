"""A subject whose bytes we read ourselves: what is stored, as it is, without any transform of a program."""

from collections.abc import Sequence

from fastfeed.archive.catalog import Place
from fastfeed.archive.shard import CLASS_FIELD
from fastfeed.auditor.clock import Clock
from fastfeed.auditor.finding import Finding
from fastfeed.auditor.record import SampleRecord
from fastfeed.auditor.running.codes import DAMAGED_SHARD, UNREADABLE
from fastfeed.auditor.running.examine import examine, told, warm_up
from fastfeed.auditor.running.parts import FILES, Part, Parts, PartSpec
from fastfeed.auditor.running.subject import How, Stages
from fastfeed.errors import DatasetError, FastfeedError
from fastfeed.media import is_image_field


class Stored:
    """Samples of datasets that lie one behind the other.

    Args:
        specs: Which.

    Raises:
        FastfeedError: One of them cannot be opened.
    """

    def __init__(self, specs: Sequence[PartSpec]) -> None:
        self._parts = Parts(specs)
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
        record.size_bytes = sum(map(len, payloads))
        first, *others = sorted(zip(places, payloads, strict=True), key=lambda pair: not is_image_field(pair[0].field))
        examine(record, _name_of(part, position, first[0]), first[1], how)
        for place, data in others:
            if place.field != CLASS_FIELD:
                _add(record, part, position, place, data, how)
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


def _add(record: SampleRecord, part: Part, position: int, place: Place, data: bytes, how: How) -> None:  # noqa: PLR0917
    """Another member of a sample: its findings say which it is, its times add up, its format is not the sample's."""
    beside = SampleRecord(record.index)
    examine(beside, _name_of(part, position, place), data, how)
    record.findings += [Finding(found.code, f"{place.field}: {found.text}") for found in beside.findings]
    stages = Stages(record)
    for stage, time in beside.times.items():
        stages.add(stage, time)


def _name_of(part: Part, position: int, place: Place) -> str:
    """A member's file name: of plain files its own, of a member of a tar its field behind the key."""
    if part.spec.kind == FILES:
        return place.shard
    return f"{part.catalog.key(position)}.{place.field}"
