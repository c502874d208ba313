"""From Python values to members: bytes as they are, text, numbers, arrays without loss; which field each becomes, and why.

=====================================  =====================================================================
value                                  becomes
=====================================  =====================================================================
bytes, {"bytes": ..., "path": ...}     a member, byte for byte; the field's extension by content, else by path
str                                    ``txt`` where it is the sample's text, else a value of the row's JSON
bool, int, float                       a value of the row's JSON and of a typed column
list, tuple, dict of such              a value of the row's JSON (a tuple as a list)
date, time, Decimal, UUID              text, as ISO 8601 or as Python writes them
numpy array, numpy number, CPU tensor  ``npy``; dtype and shape are kept; a single number is a typed column as well
None                                   nothing
PIL image, array that is an image      refused: say how it is to be stored (encode={"image": "png"})
a name such as jpg, txt, mask.png      is the field itself
"cls": whole number, or a class name   the sample's class
=====================================  =====================================================================

The row's JSON is what Python's json writes and reads: NaN and Infinity stand in it as such.
"""

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NoReturn

from fastfeed.archive.shard import CLASS_FIELD, LEGAL_FIELD, MAX_FIELD_BYTES, is_safe_source
from fastfeed.archive.usercolumn import UserColumn, is_user_name
from fastfeed.config import ENCODINGS, RowConfig
from fastfeed.errors import UsageError
from fastfeed.media import IMAGE_EXTENSIONS, sniff
from fastfeed.packer.rows import arrays
from fastfeed.packer.rows.kinds import TOLD, Kind, as_text, is_index, json_bytes, json_text, kind_of, media_bytes, plain, utf8
from fastfeed.packer.rows.source import RowMember, Scalar
from fastfeed.sample import printable
from fastfeed.source.names import canonical, split_name
from fastfeed.source.scan import CONTENT_FIELDS

ROW_JSON, OTHER_ROW_JSON = "json", "row.json"
_TEXTS = ("txt", "text", "caption", "captions", "prompt", "transcript", "transcription", "sentence")
"""A string column of such a name is the sample's text."""
_TEXT_EXTENSIONS = frozenset({"txt", "json", "xml", "csv"})
_OWN_EXTENSIONS = IMAGE_EXTENSIONS | _TEXT_EXTENSIONS | {
    "npy", "npz", "wav", "flac", "mp3", "ogg", "opus", "m4a", "mp4", "webm", "mkv", "avi",
}  # fmt: skip
"""A key that ends in one of these is a field as it is, as in a webdataset sample."""
_NOTES = frozenset({"__url__", "__local_path__"})
"""Where webdataset read a sample: of the reader, not of the sample."""
_SNIFF_BYTES = 512
_AUDIO = ((b"fLaC", "flac"), (b"OggS", "ogg"), (b"ID3", "mp3"), (b"\xff\xfb", "mp3"), (b"\xff\xf3", "mp3"))
MAX_COLUMN_TEXT = 256
"""Texts that are all at most this long (in a few rows) are a typed column; longer ones only if they are asked for."""
_SHOWN, _MAX_SHOWN_NAME = 8, 80


@dataclass(frozen=True, slots=True)
class Encoded:
    """A row's values, told apart."""

    members: tuple[RowMember, ...]
    scalars: dict[str, Scalar]
    label: object
    """As the source gives it, None without one."""


@dataclass(slots=True)
class Names:
    """How the columns of a source become fields. Settled from a few rows, so that it is the same for all of them."""

    label: str | None = None
    """The column that holds the class; "cls" holds it in any case."""
    columns: Sequence[str] | None = None
    """The typed columns; None until they are settled: then all single values, texts only if they are short."""
    encode: Mapping[str, str] = field(default_factory=dict)
    """Column -> a lossless codec for decoded images and arrays."""
    row_json: bool = True
    """Whether what is no member also goes into a JSON member a sample."""
    fields: dict[str, str] = field(default_factory=dict)
    """Column -> field, for bytes, text and arrays."""
    kinds: dict[str, Kind] = field(default_factory=dict)
    """Column -> what it holds, of the same columns."""
    why: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """What a worker needs to name fields in the same way."""
        return {
            "label": self.label, "columns": None if self.columns is None else list(self.columns),
            "encode": dict(self.encode), "row_json": self.row_json, "fields": self.fields, "kinds": self.kinds,
        }  # fmt: skip

    @classmethod
    def of(cls, config: RowConfig, label: str | None) -> "Names":
        """As the user configured, with the column of the class."""
        return cls(label=label, columns=config.column, encode=dict(config.encode), row_json=config.row_json is not False)

    @property
    def max_field_bytes(self) -> int:
        """The longest field."""
        return max(map(len, (*self.fields.values(), OTHER_ROW_JSON, CLASS_FIELD)))

    # ------------------------------------------------------------------------------------------------ settled beforehand
    def settle(self, rows: Iterable[Mapping[str, Any]], declared: Sequence[str] = ()) -> None:
        """Choose fields and typed columns from some rows.

        Args:
            rows: Some of the source's.
            declared: Columns that the source says it has, whether these rows have a value there or not.

        Raises:
            UsageError: An option names a column that no row has, or a column holds what cannot be stored.
        """
        seen: dict[str, list[Any]] = {}
        for row in rows:
            for name, given in row.items():
                value = plain(given)
                if value is not None and not self._is_label(name, value) and name not in _NOTES:
                    seen.setdefault(name, []).append(value)
        self._prove_named({*seen, *declared, *([self.label] if self.label is not None else [])})
        kinds = {name: self._kind(name, values) for name, values in seen.items()}
        self._refuse_paths(seen, kinds)
        self._name_members(seen, kinds)
        self._name_text([name for name, kind in kinds.items() if kind == "text" and name not in self.fields])
        self.kinds = {name: kinds[name] for name in self.fields}
        self._settle_columns(seen)

    def _is_label(self, name: str, value: object) -> bool:
        if self.label is not None:
            return name == self.label
        if name != CLASS_FIELD:
            return False
        return is_index(value) or isinstance(value, str) or _digits(value) is not None

    def _prove_named(self, known: set[str]) -> None:
        for option, names in (("column", self.columns or ()), ("encode", self.encode)):
            missing = next((name for name in names if name not in known), None)
            if missing is not None:
                msg = f"{option} names {missing!r}, and no sample that was looked at has it"
                raise UsageError(msg, expected=f"one of {', '.join(sorted(known))}", got=repr(missing))

    @staticmethod
    def _kind(name: str, values: Sequence[Any]) -> Kind:
        """The one kind that a column holds; numbers and lists may be among texts."""
        kinds = {kind_of(name, value) for value in values}
        if len(kinds) > 1 and kinds != {"text", "json"} and not _own_field(name):
            first, second = sorted(TOLD[kind] for kind in kinds)[:2]
            msg = f"column {name!r} holds {first} in some samples and {second} in others"
            raise UsageError(msg, hint="Give one kind, or another name for each.")
        order: tuple[Kind, ...] = ("bytes", "image", "array", "text", "json")
        return next(kind for kind in order if kind in kinds)

    def _refuse_paths(self, seen: Mapping[str, Sequence[Any]], kinds: Mapping[str, Kind]) -> None:
        """Names of files in place of their content are nearly always a mistake, where there is no content at all."""
        if set(kinds.values()) - {"text", "json"}:
            return
        for name, kind in kinds.items():
            texts = [value for value in seen[name] if isinstance(value, str)]
            if kind == "text" and not _own_field(name) and all(map(_is_file, texts)):
                msg = f"column {name!r} holds the paths of files, not their content ({printable(texts[0][:80])!r})"
                hint = "Let samples hold the bytes (open(path, 'rb').read()), or pack a list of them (.csv) with its folder."
                raise UsageError(msg, expected="bytes", got="paths", hint=hint)

    def _name_members(self, seen: Mapping[str, Sequence[Any]], kinds: Mapping[str, Kind]) -> None:
        taken: set[str] = set()
        named = {name: self._own(name, kind) for name, kind in kinds.items()}
        taken.update(filter(None, named.values()))
        for name, kind in kinds.items():
            own = named[name]
            if not own and kind in {"text", "json"}:
                continue
            chosen = own or _free(name, self._extension(name, kind, seen[name]), taken)
            taken.add(chosen)
            self.fields[name] = chosen
            if chosen != name:
                self.why.append(f"column {name!r} is field {chosen}")

    def _name_text(self, texts: Sequence[str]) -> None:
        if "txt" in self.fields.values():
            return
        known = [name for name in texts if name.lower() in _TEXTS]
        text = min(known, key=lambda name: _TEXTS.index(name.lower())) if known else texts[0] if len(texts) == 1 else None
        if text is not None:
            self.fields[text] = "txt"
            self.why.append(f"column {text!r} is field txt ({'the only text' if len(texts) == 1 else 'by its name'})")

    def _settle_columns(self, seen: Mapping[str, Sequence[Any]]) -> None:
        """Typed columns: those asked for, else all single values that are no member and not long."""
        found = {name: [_scalar(value) for value in values] for name, values in seen.items()}
        if self.columns is not None:
            for name in self.columns:
                prove_column_name(name)
                if name in found and all(value is None for value in found[name]):
                    msg = f"column {name!r} holds {TOLD[kind_of(name, seen[name][0])]}, which is no typed column"
                    raise UsageError(msg, expected="single numbers, truth values or texts", hint="Name another with column=.")
        else:
            self.columns = [name for name, values in found.items() if self._is_column(name, values)]
        rest = [name for name in seen if name not in self.fields]
        lost = [name for name in rest if name not in self.columns] if not self.row_json else []
        if lost:
            self.why.append(f"not kept: {_listed(lost)} (no row JSON, and no typed columns)")
        if self.columns:
            self.why.append(f"typed columns: {_listed(self.columns)}")

    def _is_column(self, name: str, values: Sequence[Scalar | None]) -> bool:
        if any(value is None for value in values) or (name in self.fields and self.kinds[name] != "array"):
            return False
        if not is_user_name(name):
            self.why.append(f"{name[:_MAX_SHOWN_NAME]!a} is no typed column: the index takes no such name")
            return False
        return all(len(value) <= MAX_COLUMN_TEXT for value in values if isinstance(value, str))

    # ------------------------------------------------------------------------------------------------ row by row
    def encode_row(self, row: Mapping[str, Any]) -> Encoded:
        """Tell a row's values apart.

        Raises:
            UsageError: A value that cannot be stored without loss.
        """
        members: dict[str, RowMember] = {}
        rest: dict[str, Any] = {}
        scalars: dict[str, Scalar] = {}
        label: object = None
        wanted = self.columns or ()
        values = ((name, plain(given)) for name, given in row.items() if name not in _NOTES)
        for name, value in values:
            if value is None:
                continue
            if name in wanted and (found := _scalar(value)) is not None:
                scalars[name] = found
            if self._is_label(name, value):
                label = digits if name != self.label and (digits := _digits(value)) is not None else value
                continue
            kind = kind_of(name, value)
            chosen = self._field(name, kind, value)
            if not chosen:
                rest[name] = value
            elif chosen in members:
                msg = f"two columns of a sample become field {chosen}"
                raise UsageError(msg, expected="one column a field", got=name, hint="Rename one of them.")
            else:
                members[chosen] = RowMember(chosen, *self._payload(name, kind, value, chosen))
        if rest and self.row_json:
            made = self._row_json(rest, members)
            members[made.field] = made
        return Encoded(tuple(members[name] for name in sorted(members)), scalars, label)

    def _row_json(self, rest: Mapping[str, Any], members: Mapping[str, RowMember]) -> RowMember:
        """What is left of a row, in a field that is free."""
        chosen = OTHER_ROW_JSON if ROW_JSON in members or ROW_JSON in self.fields.values() else ROW_JSON
        if chosen in members:
            msg = f"a sample has a field {chosen} of its own, which is where the rest of its row goes ({_listed(list(rest))})"
            hint = "Rename that column, or keep no row JSON (row_json=False)."
            raise UsageError(msg, expected="another name", got=chosen, hint=hint)
        return RowMember(chosen, json_bytes("the row", rest))

    def _field(self, name: str, kind: Kind, value: Any) -> str:  # noqa: ANN401
        """The field of a value, "" where it goes into the row's JSON."""
        settled = self.kinds.get(name)
        if settled is None:  # a column that no settled row had
            own = self._own(name, kind)
            return own or (
                "" if kind in {"text", "json"} else _free(name, self._extension(name, kind, [value]), set(), first=False)
            )
        if settled == kind or self._own(name, kind) == self.fields[name]:
            return self.fields[name]
        if kind == "json" and settled == "text":
            return ""
        msg = f"column {name!r} holds {TOLD[kind]}, and {TOLD[settled]} in the samples that were looked at first"
        raise UsageError(msg, expected=TOLD[settled], got=type(value).__qualname__, hint="Give one kind, or another name.")

    def _own(self, name: str, kind: Kind) -> str:
        """The name itself where it is a field that takes such a value, else nothing.

        Raises:
            UsageError: It names a kind of file, and the value is a text that cannot be one.
        """
        own = _own_field(name)
        extension = own.rpartition(".")[2]
        if name == CLASS_FIELD:
            if kind != "bytes":
                msg = f"{CLASS_FIELD!r} holds {TOLD[kind]}, and it is the name of the class"
                raise UsageError(msg, expected="a whole number from 0, or a name with classes=", hint="Rename it.")
            return name
        if own and kind == "text" and extension not in _TEXT_EXTENSIONS:
            msg = f"column {name!r} is named as a kind of file, and holds text"
            hint = "If it is a path, give the file's bytes: open(path, 'rb').read(). If it is text, name it otherwise."
            raise UsageError(msg, expected="bytes", got="str", hint=hint)
        fits = {
            "bytes": True, "text": True, "json": extension == "json", "array": extension == self.encode.get(name, "npy"),
            "image": extension == self.encode.get(name),
        }  # fmt: skip
        return own if fits[kind] else ""

    def _extension(self, name: str, kind: Kind, values: Sequence[Any]) -> str:
        """Extension of the field that a column becomes."""
        if kind in {"array", "image"}:
            return self.encode.get(name, "npy")
        found = Counter(_sniffed(value) for value in values)
        return min(found, key=lambda extension: (-found[extension], extension))

    def _payload(self, name: str, kind: Kind, value: Any, chosen: str) -> tuple[bytes, str]:  # noqa: ANN401
        """Bytes of a value, and its original path."""
        if kind == "bytes":
            data, path = media_bytes(name, value)
            return data, safe_path(path)
        is_json = chosen.rpartition(".")[2] == "json"
        if kind == "text":
            return (json_text if is_json else utf8)(name, value), ""
        return (json_bytes(f"column {name!r}", value) if kind == "json" else self._encoded(name, value)), ""

    def _encoded(self, name: str, value: Any) -> bytes:  # noqa: ANN401 - an image or an array
        codec = self.encode.get(name)
        if codec is None and (arrays.is_pil(value) or arrays.looks_like_an_image(value)):
            _refuse_decoded(name, value)
        return arrays.png(name, value) if codec == "png" else arrays.npy(name, value)


def prove_column_name(name: str) -> None:
    """A typed column may be called so.

    Raises:
        UsageError: It may not.
    """
    UserColumn(name, "text", ())


def _refuse_decoded(name: str, value: Any) -> NoReturn:  # noqa: ANN401
    what = "a decoded image" if arrays.is_pil(value) else f"an array like an image ({value.dtype}, {tuple(value.shape)})"
    msg = f"column {name!r} holds {what}: how shall it be stored?"
    hint = (
        f"Give the encoded bytes (best: nothing is lost and nothing grows), or name a lossless codec: "
        f"encode={{{name!r}: 'png'}} or 'npy'."
    )
    raise UsageError(msg, expected=f"encode= one of {', '.join(ENCODINGS)}", got=type(value).__qualname__, hint=hint)


@lru_cache(maxsize=1 << 12)
def _own_field(name: str) -> str:
    """The name itself where it is a field with an extension that is known, else nothing."""
    lower = name.lower()
    legal = LEGAL_FIELD.fullmatch(lower) and len(lower) <= MAX_FIELD_BYTES
    return lower if legal and lower.rpartition(".")[2] in _OWN_EXTENSIONS else ""


def _free(name: str, extension: str, taken: set[str], *, first: bool = True) -> str:
    """A field that is not taken: the bare extension for the first column that has it, else with the column's name."""
    if first and extension not in taken:
        return extension
    word = "".join(c if c.isascii() and (c.isalnum() or c in "_+-") else "_" for c in name.lower())
    marks = ("", *map(str, range(1, len(taken) + 1)))
    names = (f"{word[: MAX_FIELD_BYTES - 1 - len(extension) - len(mark)] or 'field'}{mark}.{extension}" for mark in marks)
    return next(chosen for chosen in names if chosen not in taken)


def _digits(value: object) -> int | None:
    """The class number that bytes are in decimal digits, as webdataset has them."""
    number = int(value) if isinstance(value, bytes) and 0 < len(value) < 19 and value.isdigit() else None  # noqa: PLR2004 - int64
    return number if number is not None and b"%d" % number == value else None


def _scalar(value: Any) -> Scalar | None:  # noqa: ANN401
    """What a typed column takes of a value, None where it takes nothing."""
    if arrays.is_array(value):
        return arrays.scalar(value)
    return value if isinstance(value, bool | int | float | str) else as_text(value)


def _is_file(text: str) -> bool:
    extension = split_name(os.path.basename(text))[1] if len(text) < 4096 and "\0" not in text else ""  # noqa: PLR2004 - PATH_MAX
    return bool(extension) and os.path.isfile(text)


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def _sniffed(value: Any) -> str:  # noqa: ANN401 - bytes, or a pair of bytes and path
    data, path = (value["bytes"], value["path"]) if isinstance(value, dict) else (value, None)
    head = bytes(data[:_SNIFF_BYTES]) if data is not None else b""
    if head[:4] == b"RIFF" and head[8:12] in {b"WAVE", b"AVI "}:
        return "wav" if head[8:12] == b"WAVE" else "avi"
    by_content = CONTENT_FIELDS.get(sniff(head)) or next((ext for magic, ext in _AUDIO if head.startswith(magic)), "")
    named = canonical(split_name(os.path.basename(path))[1]) if path else ""
    return by_content or (named if len(named) <= MAX_FIELD_BYTES // 2 else "") or "bin"


def safe_path(path: str) -> str:
    """An original path as the index takes it: relative, without the parts that lead elsewhere; empty where nothing is left."""
    if not path:
        return ""
    parts = [part for part in path.split("/") if part not in {"", ".", ".."}]
    try:
        raw = os.fsencode("/".join(parts))
    except UnicodeEncodeError:
        return ""
    return os.fsdecode(raw) if is_safe_source(raw) else ""
