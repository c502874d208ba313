"""Members of a packed dataset as bytes that are proven: every read is checked against the index, every error says where."""

from collections.abc import Sequence

from fastfeed.archive.dataset import Archive, Place
from fastfeed.archive.shard import RESTORE, digest
from fastfeed.errors import FastfeedError, ShardDamaged
from fastfeed.store.base import Range, Store


class MemberReader:
    """Reads members of one dataset.

    Args:
        archive: The dataset.
        store: Where its shards are.
    """

    def __init__(self, archive: Archive, store: Store) -> None:
        self.archive, self.store = archive, store

    def read(self, position: int, place: Place) -> bytes:
        """One member's payload.

        Args:
            position: Of its sample.
            place: As the archive gives it.

        Raises:
            ShardDamaged: The shard is missing or cut, or the bytes differ from their checksum.
        """
        try:
            data = self.store.read(place.shard, place.start, place.stop)
        except FastfeedError as error:
            raise self.located(error, position, place) from error
        self.check(position, place, data)
        return data

    def read_batch(self, wanted: Sequence[tuple[int, Sequence[Place]]]) -> list[list[memoryview]]:
        """The payloads of many samples, read in storage order, each sample in one read where its members are neighbours.

        Args:
            wanted: (position, places) of each sample; the places of one sample lie in one shard.

        Returns:
            A list a sample, in the order of wanted; a view a member. All views share one buffer that nobody else has.

        Raises:
            ShardDamaged: As read().
        """
        spans = [_span(places) for _, places in wanted]
        buffer = memoryview(bytearray(sum(stop - start for start, stop in spans)))
        ranges, views, at = [], [], 0
        for (_, places), (start, stop) in zip(wanted, spans, strict=True):
            window = buffer[at : at + stop - start]
            at += stop - start
            views.append([window[place.start - start : place.stop - start] for place in places])
            if places:
                ranges.append(Range(places[0].shard, start, stop, window))
        try:
            self.store.read_many(sorted(ranges, key=lambda wish: (wish.name, wish.start)))
        except FastfeedError as error:
            for position, places in wanted:
                if places and (places[0].shard, _span(places)[0]) == (error.shard, error.start):
                    raise self.located(error, position, places[0]) from error
            raise
        for (position, places), found in zip(wanted, views, strict=True):
            for place, data in zip(places, found, strict=True):
                self.check(position, place, data)
        return views

    def check(self, position: int, place: Place, data: bytes | memoryview) -> None:
        """Prove a payload by its checksum.

        Raises:
            ShardDamaged: It differs.
        """
        self.check_digest(position, place, digest(data))

    def check_digest(self, position: int, place: Place, got: int) -> None:
        """Prove a payload by the checksum that its bytes gave.

        Raises:
            ShardDamaged: It differs.
        """
        if got != place.xxh3:
            msg = "the bytes of a member differ from their checksum: the shard is damaged"
            error = ShardDamaged(msg, expected=f"xxh3 {place.xxh3:016x}", got=f"{got:016x}", hint=RESTORE)
            raise self.located(error, position, place)

    def located(self, error: FastfeedError, position: int, place: Place) -> FastfeedError:
        """The same error, with shard, sample, key, member and byte range filled in."""
        error.shard, error.sample, error.key = place.shard, position, self.archive.key(position)
        error.member = self.archive.member_name(position, place.field)
        error.start, error.stop = place.start, place.stop
        return error


def _span(places: Sequence[Place]) -> tuple[int, int]:
    """The bytes that hold them all; they ascend in every whole index, and a damaged one must not get us a negative span."""
    if not places:
        return 0, 0
    return min(place.start for place in places), max(place.stop for place in places)
