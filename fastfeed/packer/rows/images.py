"""Images that change while they are packed: made smaller, then their rows indexed (packer/rows/transcode.py).

Made smaller are only the fields that may be, and never a mask, a box or a class unasked. The rules: nothing is enlarged; the
format stays (PNG never becomes JPEG, and a lossless WebP stays lossless); what no option changes keeps its very bytes, and so
does a JPEG or lossy WebP that was only to be re-encoded and would not get smaller; the original width and height become
columns; a JPEG that is written gets a restart marker a row of blocks (ITU-T T.81, F.1.1.5.2), so that rows can be found in it.
"""

import io
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import lru_cache
from typing import Any, cast

from fastfeed.archive.shard import CLASS_FIELD
from fastfeed.config import ImageConfig
from fastfeed.errors import SourceAmbiguous, SourceUnreadable, UsageError
from fastfeed.media import Codec, is_image_field, is_lossless_webp, sniff
from fastfeed.packer.result import told_outcomes
from fastfeed.packer.rows.fork import ask
from fastfeed.packer.rows.source import Reading, Row, RowFacts, RowFailed, RowMember, RowSource, Scalar
from fastfeed.packer.rows.transcode import MOST_PARTS, index_rows, jpegtran

_PROBED_ROWS = 16
HARMLESS = frozenset({CLASS_FIELD, "txt"})
"""Fields that do not speak of pixels."""
PHOTOGRAPHIC = frozenset({"L", "LA", "La", "RGB", "RGBA", "RGBa", "RGBX", "CMYK", "YCbCr", "LAB", "HSV"})
"""Modes whose pixels are brightness or colours. A palette's numbers, bits, and wide integers may mean anything."""
_BOX = re.compile(
    r"(.*[_. -])?(b?box(es)?|bnd_?box|polygon|keypoints?|segmentation|[xy][_-]?(min|max|[012])|(min|max)[_-]?[xy]|c[xy]|"
    r"(bb(ox)?|box)[_-]?([xywh]|[xy][_-]?[0-9]|left|top|right|bottom|width|height|\d))",
    re.IGNORECASE,
)
_BOX_SETS = (frozenset({"x", "y"}), frozenset({"left", "top"}), frozenset({"x", "y", "w", "h"}))
"""Names that are those of a box only together."""
_LOSSY = frozenset({"JPEG", "WEBP"})
ORIGINAL_WIDTH, ORIGINAL_HEIGHT = "original_width", "original_height"


class NotReencoded(ValueError):
    """An image that cannot be made smaller, and why."""


@contextmanager
def opened(member: RowMember) -> Iterator[Any]:
    """An image (PIL's) that is to be written anew, with the name of its field on whatever goes wrong meanwhile.

    Raises:
        NotReencoded: It cannot be decoded or written, or has several frames.
    """
    from PIL import Image, UnidentifiedImageError  # noqa: PLC0415 - packing bytes needs no Pillow

    try:
        with Image.open(io.BytesIO(member.data)) as image:
            if getattr(image, "n_frames", 1) > 1:
                msg = f"{member.field} is animated, and re-encoding would keep one of its {image.n_frames} frames"  # type: ignore[attr-defined]
                raise NotReencoded(msg)
            yield image
    except NotReencoded:
        raise
    except UnidentifiedImageError as error:
        msg = f"{member.field} cannot be re-encoded: Pillow knows no image that begins with {member.data[:16]!r}"
        raise NotReencoded(msg) from error
    except Exception as error:  # a decoder may raise anything on broken bytes: the sample is named, its fault too
        msg = f"{member.field} cannot be re-encoded ({type(error).__name__}: {error})"
        raise NotReencoded(msg) from error


def encoder_versions() -> dict[str, object]:
    """The encoders that decide bytes: another version may write others."""
    import PIL  # noqa: PLC0415 - packing bytes needs no Pillow
    from PIL import features  # noqa: PLC0415

    names = ("jpg", "zlib", "webp")
    return {"pillow": PIL.__version__, **{name: features.version(name) for name in names}}


class Reencoder:
    """Makes images of samples smaller, and indexes the rows of JPEGs.

    Args:
        config: What is wanted.
    """

    def __init__(self, config: ImageConfig) -> None:
        self.config = config

    def prove(self, fields: Sequence[str], where: str) -> None:
        """Whether samples with these fields may be changed.

        Raises:
            SourceAmbiguous: Other fields may speak of pixels, and only_field does not say which images to change.
            UsageError: only_field names what is no image or is not there.
        """
        images = [name for name in fields if is_image_field(name)]
        wrong = [name for name in self.config.only_field if name not in images]
        if wrong and fields:
            msg = f"only_field names {', '.join(wrong)}, which {'is' if len(wrong) == 1 else 'are'} no image field here"
            raise UsageError(msg, path=where, expected=f"among {', '.join(images) or 'none'}", got=", ".join(wrong))
        if self.config.only_field or not self.config.changes_pixels:
            return
        others = [name for name in fields if name not in HARMLESS and name not in images[:1]]
        if len(images) > 1 or others:
            named = ", ".join(others)
            msg = f"samples hold {named} beside their image, which may be masks, boxes or other facts about its pixels"
            raise SourceAmbiguous(msg, path=where, hint=_hint(images[0] if images else "jpg"))

    def columns(self, fields: Sequence[str]) -> tuple[str, ...]:
        """The typed columns that are added to samples with these fields."""
        if not self.config.changes_pixels:
            return ()
        images = self.config.only_field or tuple(name for name in fields if is_image_field(name))
        return tuple(
            ("" if len(images) == 1 else f"{name}.") + side for name in images for side in (ORIGINAL_WIDTH, ORIGINAL_HEIGHT)
        )

    def prove_columns(self, names: Sequence[str], fields: Sequence[str], where: str) -> None:
        """Whether samples with these typed columns and fields may be changed.

        Raises:
            UsageError: A column is called as one that is added.
            SourceAmbiguous: Columns may be boxes, and only_field does not say that images change all the same.
        """
        if not self.config.only_field and self.config.changes_pixels and (boxes := _boxes(tuple(names))):
            msg = f"samples have columns that may speak of their image's pixels: {', '.join(boxes)}"
            hint = _hint(next(filter(is_image_field, fields), "jpg"))
            raise SourceAmbiguous(msg, path=where, hint=hint)
        added = self.columns(fields)
        twice = next((name for name in names if name in added), None)
        if twice is not None:
            msg = f"column {twice!r} is called as the one that keeps the sizes of images before they are made smaller"
            hint = "Rename it, or leave it out: --column names those to keep."
            raise UsageError(msg, path=where, expected="another name", got=repr(twice), hint=hint)

    def apply(self, row: Row) -> Row:
        """A sample with its images changed.

        Raises:
            SourceAmbiguous: As prove().
            UsageError: As prove_columns(), and where jpegtran is not installed.
            SourceUnreadable: jpegtran was killed.
            NotReencoded: An image that cannot be made smaller.
        """
        row = self._smaller(row) if self.config.changes_pixels else row
        return self._indexed(row) if self.config.jpeg_rows else row

    def _indexed(self, row: Row) -> Row:
        """A sample with the rows of its images indexed."""
        members, indexed = list[RowMember](), {}
        for member in row.members:
            is_image = is_image_field(member.field) or sniff(member.data[:64]) is not Codec.UNKNOWN
            if is_image and member.field in (self.config.only_field or (member.field,)):
                data, indexed[member.field] = index_rows(member.data)
                member = member._replace(data=data)  # noqa: PLW2901 - the same member
            members.append(member)
        return replace(row, members=tuple(members), indexed=indexed)

    def _smaller(self, row: Row) -> Row:
        if not self.config.only_field:  # else a sample without that field is no fault
            self.prove([member.field for member in row.members], "")
        wanted = self.config.only_field or tuple(m.field for m in row.members if is_image_field(m.field))
        members: list[RowMember] = []
        scalars: dict[str, Scalar] = dict(row.scalars or {})
        if scalars:
            self.prove_columns(tuple(scalars), wanted, "")
        for member in row.members:
            if member.field not in wanted:
                members.append(member)
                continue
            data, width, height = self.image(member)
            members.append(member._replace(data=data))
            before = "" if len(wanted) == 1 else f"{member.field}."
            scalars.update({before + ORIGINAL_WIDTH: width, before + ORIGINAL_HEIGHT: height})
        return replace(row, members=tuple(members), scalars=scalars)

    def image(self, member: RowMember) -> tuple[bytes, int, int]:
        """Bytes of one image, and its width and height before.

        Raises:
            NotReencoded: It cannot be decoded or written.
        """
        with opened(member) as image:
            width, height = image.size
            return self._changed(image, member), width, height

    def _changed(self, image: Any, member: RowMember) -> bytes:  # noqa: ANN401 - a PIL image
        from PIL import ImageOps  # noqa: PLC0415

        data = member.data
        size = self._target(image.size)
        kind: str = image.format
        rotates = self.config.apply_exif and image.getexif().get(0x0112, 1) not in {0, 1}
        lossless = kind == "WEBP" and is_lossless_webp(data)
        recodes = self.config.quality is not None and kind in _LOSSY and not lossless
        if size == image.size and not rotates and not recodes:
            return data
        options = self._options(image, kind, lossless=lossless)
        pixels = image
        if rotates:
            pixels = ImageOps.exif_transpose(image)
            size = self._target(pixels.size)
            options["exif"] = pixels.getexif().tobytes()
        if size != pixels.size:
            if image.mode not in PHOTOGRAPHIC and not self.config.only_field:
                msg = (
                    f"pixels of {member.field} are of mode {image.mode}, which may be labels, depths or a mask, and a smaller "
                    f"image would mix them. If they are colours, say so: --only-field {member.field}"
                )
                raise NotReencoded(msg)
            pixels = _resized(pixels, size)
        out = io.BytesIO()
        pixels.save(out, kind, **{name: value for name, value in options.items() if value is not None})
        kept = size == image.size and not rotates and len(out.getvalue()) >= len(data)
        return data if kept else out.getvalue()

    def _target(self, size: tuple[int, int]) -> tuple[int, int]:
        """Width and height after: never larger than before."""
        width, height = size
        scale = 1.0
        if self.config.max_side is not None:
            scale = min(scale, self.config.max_side / max(size))
        if self.config.resize_short is not None:
            scale = min(scale, self.config.resize_short / min(size))
        return max(1, round(width * scale)), max(1, round(height * scale))

    def _options(self, image: Any, kind: str, *, lossless: bool) -> dict[str, Any]:  # noqa: ANN401 - a PIL image
        """Of the encoder: what the file said beside its pixels is kept."""
        kept = {"exif": image.info.get("exif"), "icc_profile": image.info.get("icc_profile")}
        quality = self.config.quality if self.config.quality is not None else 90
        if kind == "JPEG":
            from PIL import JpegImagePlugin  # noqa: PLC0415

            sampling = JpegImagePlugin.get_sampling(image)
            return {**kept, "quality": quality, "subsampling": max(sampling, 0), "restart_marker_rows": 1}
        if kind == "WEBP":
            return {**kept, "lossless": True, "exact": True} if lossless else {**kept, "quality": quality}
        if kind == "TIFF":
            return {**kept, "compression": image.info.get("compression")}
        return kept if kind == "PNG" else {}


def _hint(image: str) -> str:
    """What to do where something may speak of pixels."""
    return (
        f"Say which images may change: --only-field {image}. Whatever speaks of pixels must "
        f"then be scaled by you: the columns {ORIGINAL_WIDTH} and {ORIGINAL_HEIGHT} keep the sizes."
    )


@lru_cache(maxsize=64)
def _boxes(names: tuple[str, ...]) -> tuple[str, ...]:
    """The columns that may be boxes or points, by their names."""
    lower = {name.lower() for name in names}
    together = {name for group in _BOX_SETS if group <= lower for name in group}
    return tuple(name for name in names if _BOX.fullmatch(name) or name.lower() in together)


def _resized(image: Any, size: tuple[int, int]) -> Any:  # noqa: ANN401 - PIL images
    """With Lanczos' filter; a palette or a bitmap, which cannot be filtered, as the colours that it stands for."""
    from PIL import Image  # noqa: PLC0415

    if image.mode == "P":
        image = image.convert("RGBA" if "transparency" in image.info else "RGB")
    elif image.mode == "1":
        image = image.convert("L")
    return image.resize(size, Image.Resampling.LANCZOS)


class ReencodedRows:
    """Rows whose images are changed.

    Args:
        inner: The rows as they are.
        config: What is wanted.
    """

    def __init__(self, inner: RowSource, config: ImageConfig) -> None:
        self.inner, self.config, self._reencoder = inner, config, Reencoder(config)

    def facts(self) -> RowFacts:
        """Of the rows, their size estimated from a few.

        Raises:
            SourceAmbiguous: Other fields may speak of pixels.
            UsageError: A column is called as one that is added.
        """
        facts = self.inner.facts()
        if facts.fields:
            self._reencoder.prove(facts.fields, facts.layout)
        self._reencoder.prove_columns(facts.columns or (), facts.fields, facts.layout)
        numbers = sorted({at * (facts.count - 1) // max(1, _PROBED_ROWS - 1) for at in range(_PROBED_ROWS)})
        reading = Reading()
        # a live object here stays as it is, for its workers
        before, after, outcomes = ask(lambda: self._look(numbers), reading)
        reading.close()
        share = after / before if before else 1.0
        encoders = {"encoders": encoder_versions()} if self.config.changes_pixels else {}
        return replace(
            facts, source_bytes=int(facts.source_bytes * share), exact=False, identity={**facts.identity, **encoders},
            extra_columns=self._reencoder.columns(facts.fields), why=(*facts.why, *self._why(share, outcomes)),
        )  # fmt: skip

    def _why(self, share: float, outcomes: Mapping[str, int]) -> Iterator[str]:
        """What is done to images, and what it came to with those that were looked at."""
        if self.config.changes_pixels:
            wanted = {name: value for name, value in asdict(self.config).items() if value not in {None, False, ()}}
            wanted.pop("jpeg_rows", None)
            told = ", ".join(f"{name} {value}" if value is not True else name for name, value in wanted.items())
            yield f"images are re-encoded ({told}): about {share:.0%} of their bytes stay"
        if self.config.jpeg_rows:
            what = f"JPEGs get restart markers between their blocks, up to {MOST_PARTS} in a row, without loss"
            looked = f"of those looked at {told_outcomes(outcomes)}, in {share:.1%} of their bytes"
            yield f"{what}, by jpegtran ({jpegtran().version}): {looked}"

    def _look(self, numbers: Sequence[int]) -> tuple[int, int, dict[str, int]]:
        """Bytes of some rows, before and after, and what indexing their images came to."""
        before, after, outcomes = 0, 0, Counter[str]()
        for number, row in zip(numbers, self.inner.rows(numbers), strict=True):
            changed = self._one(number, row)
            if isinstance(row, Row) and isinstance(changed, Row):
                before += sum(len(member.data) for member in row.members)
                after += sum(len(member.data) for member in changed.members)
                outcomes.update(index.outcome for index in (changed.indexed or {}).values())
        return before, after, dict(outcomes)

    def rows(self, numbers: Sequence[int]) -> Iterator[Row | RowFailed]:
        """Rows in order."""
        for number, row in zip(numbers, self.inner.rows(numbers), strict=True):
            yield self._one(number, row)

    def _one(self, number: int, row: Row | RowFailed) -> Row | RowFailed:
        if isinstance(row, RowFailed):
            return row
        try:
            return self._reencoder.apply(row)
        except (NotReencoded, SourceAmbiguous, SourceUnreadable, UsageError) as error:
            name = next((member.source for member in row.members if member.source), f"sample {number}")
            return RowFailed(number, name, "unreadable", str(error))

    def spec(self) -> Mapping[str, object] | None:
        """With that of the rows in it."""
        inner = self.inner.spec()
        return None if inner is None else {"kind": "images", "inner": inner, "config": asdict(self.config)}

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> "ReencodedRows":
        """In a worker."""
        from fastfeed.packer.rows.worker import rebuild  # noqa: PLC0415 - each needs the other

        config = ImageConfig(**{**spec["config"], "only_field": tuple(spec["config"]["only_field"])})
        return cls(cast("RowSource", rebuild(spec["inner"])), config)  # only its rows are asked for
