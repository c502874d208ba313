"""Rows some of whose images are made smaller or re-encoded, as an audit's report says. All others stay the same."""

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, cast

from fastfeed.config import ImageConfig
from fastfeed.errors import SourceUnreadable
from fastfeed.media import HEAD_BYTES, is_image_field, probe
from fastfeed.packer.rows.images import ORIGINAL_HEIGHT, ORIGINAL_WIDTH, NotReencoded, Reencoder, encoder_versions, opened
from fastfeed.packer.rows.remedies import SMALLER, Change, Remedies, jpeg_name
from fastfeed.packer.rows.source import Row, RowFacts, RowFailed, RowMember, RowSource

_QUALITY = 90
"""Of what was no JPEG before. A JPEG keeps its own tables, unless a quality is asked for."""


@dataclass(frozen=True)  # no slots: a property of it is cached
class TreatedRows:
    """The samples of one split of a folder, or of any other source, with remedies applied."""

    inner: RowSource
    remedies: Remedies
    images: ImageConfig
    told: bool = True
    """Whether these rows tell what is done: of several splits the first does."""
    by_number: Mapping[int, Change] | None = None
    """Where samples are no files: what is done to the first image of a sample. Without it files are known by their paths."""
    known: RowFacts | None = None
    """The rows' facts, where they were asked for already."""

    def facts(self) -> RowFacts:
        """Of the rows, and what is done to some of them.

        Raises:
            UsageError: only_field names what is no image or is not there.
        """
        facts, told = self.known or self.inner.facts(), self.told
        if self.images.only_field:
            Reencoder(self.images).prove(facts.fields, facts.layout)
        encoders = {"encoders": encoder_versions()} if self.remedies.changes else {}
        return replace(
            facts, identity={**facts.identity, **encoders},
            extra_columns=(ORIGINAL_WIDTH, ORIGINAL_HEIGHT) if self._makes_smaller else (),
            why=(*facts.why, *(self.remedies.why(self.images) if told else ())),
            notes=(*facts.notes, *(self.remedies.notes() if told else ())),
        )  # fmt: skip

    @cached_property
    def _makes_smaller(self) -> bool:
        return bool(self.remedies.codes(SMALLER))

    def rows(self, numbers: Sequence[int]) -> Iterator[Row | RowFailed]:
        """Rows in order."""
        for number, row in zip(numbers, self.inner.rows(numbers), strict=True):
            yield self._one(number, row)

    def _one(self, number: int, row: Row | RowFailed) -> Row | RowFailed:
        if isinstance(row, RowFailed):
            return row
        try:
            members = [
                self._treated(member, change) for member, change in zip(row.members, self._changes(number, row), strict=True)
            ]
        except (NotReencoded, SourceUnreadable) as error:
            return RowFailed(number, row.members[0].source, "unreadable", str(error))
        scalars = {**(row.scalars or {}), **self._sizes(row)} if self._makes_smaller else row.scalars
        return replace(row, members=tuple(members), scalars=scalars)

    def _sizes(self, row: Row) -> dict[str, int]:
        """Width and height of the sample's image before, of whichever image, so that the columns have no gaps."""
        image = next((member for member in row.members if is_image_field(member.field)), None)
        if image is None:
            return {}
        seen = probe(image.data[:HEAD_BYTES])
        return {ORIGINAL_WIDTH: seen.width, ORIGINAL_HEIGHT: seen.height}

    def _changes(self, number: int, row: Row) -> Iterator[Change | None]:
        """What is done to each member."""
        if self.by_number is None:
            yield from (self.remedies.changes.get(member.source) for member in row.members)
            return
        change = self.by_number.get(number)
        for member in row.members:
            is_first = change is not None and is_image_field(member.field)
            yield change if is_first else None
            change = None if is_first else change

    def _treated(self, member: RowMember, change: Change | None) -> RowMember:
        if change is None:
            return member
        if change.what == SMALLER:
            config = ImageConfig(max_side=self.images.max_side, quality=self.images.quality, only_field=(member.field,))
            return member._replace(data=Reencoder(config).image(member)[0])
        return baseline(member, self.images.quality)

    def spec(self) -> Mapping[str, object] | None:
        """With that of the rows in it; None where there is none, as of a folder."""
        inner = self.inner.spec()
        if inner is None:
            return None
        return {
            "kind": "treated",
            "inner": inner,
            "images": asdict(self.images),
            "changes": list((self.by_number or {}).items()),
        }

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> "TreatedRows":
        """In a worker."""
        from fastfeed.packer.rows.worker import rebuild  # noqa: PLC0415 - each needs the other

        images = ImageConfig(**{**spec["images"], "only_field": tuple(spec["images"]["only_field"])})
        changes = {int(number): Change(*change) for number, change in spec["changes"]}
        remedies = Remedies(changes={str(number): change for number, change in changes.items()})
        return cls(
            cast("RowSource", rebuild(spec["inner"])), remedies, images, by_number=changes
        )  # only its rows are asked for


def baseline(member: RowMember, quality: int | None) -> RowMember:
    """A baseline JPEG of an image, with its EXIF data and colour profile.

    Args:
        member: The image. One that was no JPEG gets the path of one; its field stays that of the dataset's images.
        quality: 1 to 100; None keeps the tables of a JPEG, and so nearly each coefficient, and is 90 for others.

    Raises:
        NotReencoded: It cannot be decoded or written.
    """
    with opened(member) as image:
        was_jpeg = image.format == "JPEG"
        as_before = "keep" if was_jpeg else _QUALITY
        said = {name: image.info[name] for name in ("exif", "icc_profile") if image.info.get(name)}
        out = io.BytesIO()
        image.save(out, "JPEG", quality=as_before if quality is None else quality, restart_marker_rows=1, **said)
    return member._replace(
        data=out.getvalue(), source=jpeg_name(member.source) if member.source and not was_jpeg else member.source
    )
