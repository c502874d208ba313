"""What a reader of samples needs of a set of them, whether packed, in tars of others, or plain files.

Three classes keep it: archive/dataset.py's Archive, archive/tars.py's TarSet, source/plain.py's PlainFiles.
"""

from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from typing import NamedTuple, Protocol, TypeVar

from fastfeed.archive.index import UNREAD as UNREAD  # noqa: PLC0414 - what a Place may say
from fastfeed.archive.index import DatasetIndex
from fastfeed.errors import FastfeedError
from fastfeed.jpegrows import Edges
from fastfeed.media import is_image_field

_Error = TypeVar("_Error", bound=FastfeedError)


class Place(NamedTuple):
    """Where one member lies, proven to be inside its shard."""

    shard: str
    """The tar, or the file, below the set's folder."""
    field: str
    start: int
    """First payload byte."""
    stop: int
    xxh3: int
    """Of the payload; UNREAD where nobody has read it before."""
    row: int
    """Of the index's member table."""


class Catalog(Protocol):
    """Samples by position: what they have, where it lies, and what to call them in an error."""

    @property
    def path(self) -> str:
        """What errors name."""

    @property
    def index(self) -> DatasetIndex:
        """The columns."""

    @property
    def digest(self) -> str:
        """64 hex digits that change with anything that the set is made of."""

    @property
    def fields(self) -> tuple[str, ...]:
        """Sorted; the index's field numbers count in it. A class that is in the index alone is not among them."""

    @property
    def classes(self) -> tuple[str, ...] | None:
        """Class names by number, None where they are not known."""

    @property
    def remedy(self) -> str:
        """What to do where bytes are not what they were."""

    @property
    def undecodable(self) -> str:
        """What to do where bytes are what they were, and no decoder takes them."""

    def __len__(self) -> int:
        """How many samples."""

    def key(self, position: int) -> str:
        """A sample's key.

        Raises:
            IndexDamaged: The index says none.
        """

    def places(self, position: int) -> Iterator[Place]:
        """Each member of a sample.

        Raises:
            IndexDamaged: A member lies outside of its shard or names no field.
        """

    def source(self, position: int) -> bytes | None:
        """By what a skip list names a sample: the path of its image, else of its first member that has one."""

    def source_of(self, position: int, place: Place) -> bytes:
        """The same of one member; empty where it has none."""

    def members_with(self, sources: AbstractSet[bytes]) -> Iterator[tuple[int, bytes]]:
        """(position, source) of each member that has one of these sources."""

    def jpeg_rows(self, position: int, place: Place) -> Edges | None:
        """Where the rows of a JPEG begin, within the member, and last where the marker stands that ends its scan.

        Args:
            position: Of the sample.
            place: Of the member, from places().

        Returns:
            uint32 of shape (rows + 1,), rising: the first byte of each MCU row's entropy-coded data, at last the first byte
            of that marker. None where the member's rows are not indexed.

        Raises:
            IndexDamaged: The index says places outside of the member.
        """

    def label(self, position: int) -> int:
        """A sample's class number, where the index has labels."""

    def at(self, error: _Error, position: int, place: Place) -> _Error:
        """The same error, with all that is known of the place filled in."""

    def prove(self) -> None:
        """Look whether shards or files are still what the index says, as far as that costs O(shards).

        Raises:
            FastfeedError: They are not.
        """

    def parts(self) -> str:
        """What it is made of, in words: "3 shards"."""


class WithoutRows:
    """A catalog whose index says nothing of the rows of JPEGs."""

    def jpeg_rows(self, position: int, place: Place) -> Edges | None:  # noqa: ARG002 - Catalog's signature
        """None: nobody has indexed them."""
        return None


def source_of_sample(catalog: Catalog, position: int, places: Iterable[Place] | None = None) -> bytes | None:
    """The source of a sample's image, else of its first member that has one; None where none has.

    Args:
        catalog: Knows it.
        position: Of the sample.
        places: Its members, where they are at hand.
    """
    first = None
    for place in catalog.places(position) if places is None else places:
        source = catalog.source_of(position, place)
        if source and is_image_field(place.field):
            return source
        first = first or source or None
    return first
