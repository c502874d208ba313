"""From Python values to members: bytes as they are, text, numbers, arrays without loss; which field each becomes, and why.

=====================================  =====================================================================
value                                  becomes
=====================================  =====================================================================
bytes, {"bytes": ..., "path": ...}     a member, byte for byte; the field's extension by content, else by path
str                                    ``txt`` where it is the sample's text, else a value of the row's JSON
bool, int, float                       a value of the row's JSON and of a typed column
list, dict of such                     a value of the row's JSON
numpy array, numpy number, CPU tensor  ``npy``; dtype and shape are kept
None                                   nothing
PIL image, array that is an image      refused: say how it is to be stored (encode={"image": "png"})
a name such as jpg, txt, mask.png      is the field itself
=====================================  =====================================================================
"""

import io
import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fastfeed.archive.shard import CLASS_FIELD, LEGAL_FIELD, MAX_FIELD_BYTES, is_safe_source
from fastfeed.config import RowConfig
from fastfeed.errors import UsageError
from fastfeed.media import IMAGE_EXTENSIONS, sniff
from fastfeed.packer.rows.source import RowMember, Scalar
from fastfeed.source.names import canonical, split_name
from fastfeed.source.scan import CONTENT_FIELDS

ROW_JSON, OTHER_ROW_JSON = "json", "row.json"
_TEXTS = ("txt", "text", "caption", "captions", "prompt", "transcript", "transcription", "sentence")
"""A string column of such a name is the sample's text."""
_OWN_EXTENSIONS = IMAGE_EXTENSIONS | {
    "txt", "json", "npy", "npz", "cls", "wav", "flac", "mp3", "ogg", "opus", "m4a", "mp4", "webm", "mkv", "avi", "xml", "csv",
}  # fmt: skip
"""A key that ends in one of these is a field as it is, as in a webdataset sample."""
_SNIFF_BYTES = 512
_AUDIO = ((b"RIFF", "wav"), (b"fLaC", "flac"), (b"OggS", "ogg"), (b"ID3", "mp3"), (b"\xff\xfb", "mp3"), (b"\xff\xf3", "mp3"))
_IMAGE_SIDE = 16
ENCODINGS = ("png", "npy")
"""Lossless ways to store an image or an array that encode= may name."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """A row's values, told apart."""

    members: tuple[RowMember, ...]
    scalars: dict[str, Scalar]
    label: object
    """As the source gives it, None without one."""


@dataclass(slots=True)
class Names:
    """How the columns of a source become fields. Settled from a few rows, so that it is the same for all of them.

    Args:
        label: The column that holds the class.
        columns: The typed columns that are wanted; None for all scalars.
        encode: Column -> a lossless codec for images and arrays.
        row_json: Whether scalars, lists and dicts also go into a JSON member a sample.
    """

    label: str | None = None
    columns: Sequence[str] | None = None
    encode: Mapping[str, str] = field(default_factory=dict)
    row_json: bool = True
    fields: dict[str, str] = field(default_factory=dict)
    """Column -> field, for bytes, text and arrays."""
    why: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """What a worker needs to name fields in the same way."""
        return {
            "label": self.label, "columns": None if self.columns is None else list(self.columns),
            "encode": dict(self.encode), "row_json": self.row_json, "fields": self.fields,
        }  # fmt: skip

    @classmethod
    def of(cls, config: RowConfig, label: str | None) -> "Names":
        """As the user configured, with the column of the class."""
        return cls(label=label, columns=config.column, encode=dict(config.encode), row_json=config.row_json is not False)

    @property
    def max_field_bytes(self) -> int:
        """The longest field."""
        return max(map(len, (*self.fields.values(), OTHER_ROW_JSON, CLASS_FIELD)))

    def settle(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Choose fields from some rows."""
        seen: dict[str, list[Any]] = {}
        for row in rows:
            for name, value in row.items():
                if value is not None and name != self.label:
                    seen.setdefault(name, []).append(value)
        extensions = {name: _extension(name, values, self.encode) for name, values in seen.items()}
        media = {name: extension for name, extension in extensions.items() if extension and extension != "txt"}
        texts = [name for name, extension in extensions.items() if extension == "txt"]
        self._name_media(media)
        if texts:
            text = min((name for name in texts if name.lower() in _TEXTS), key=lambda n: _TEXTS.index(n.lower()), default=None)
            text = text if text is not None else texts[0] if len(texts) == 1 else None
            if text is not None:
                self.fields[text] = "txt"
                why = "the only text" if len(texts) == 1 else "by its name"
                if text != "txt":
                    self.why.append(f"column {text!r} is field txt ({why})")

    def _name_media(self, media: Mapping[str, str]) -> None:
        taken: set[str] = set()
        for name, extension in media.items():
            own = _own_field(name)
            chosen = own or (extension if extension not in taken else f"{_word(name)}.{extension}")
            while chosen in taken:
                chosen = f"{_word(name)}{len(taken)}.{extension}"
            taken.add(chosen)
            self.fields[name] = chosen
            if chosen != name:
                self.why.append(f"column {name!r} is field {chosen}")

    @property
    def json_field(self) -> str:
        """The field of the row's JSON."""
        return OTHER_ROW_JSON if ROW_JSON in self.fields.values() else ROW_JSON

    def encode_row(self, row: Mapping[str, Any]) -> Encoded:
        """Tell a row's values apart.

        Raises:
            UsageError: A value that cannot be stored without loss.
        """
        members: dict[str, RowMember] = {}
        rest: dict[str, Any] = {}
        scalars: dict[str, Scalar] = {}
        label: object = None
        for name, value in row.items():
            if name == self.label or (name == CLASS_FIELD and self.label is None and _is_int(value)):
                label = value
            elif value is None:
                continue
            elif name in self.fields or isinstance(value, bytes | bytearray | memoryview) or not _is_json(value):
                member = self._member(name, value)
                if member.field in members:
                    msg = f"two columns of a sample become field {member.field}"
                    raise UsageError(msg, expected="one column a field", got=name, hint="Rename one of them.")
                members[member.field] = member
            else:
                rest[name] = value
                if isinstance(value, bool | int | float | str) and (self.columns is None or name in self.columns):
                    scalars[name] = value
        if rest and self.row_json:
            raw = json.dumps(rest, ensure_ascii=False).encode("utf-8", "surrogatepass")
            members[self.json_field] = RowMember(self.json_field, raw)
        return Encoded(tuple(members[name] for name in sorted(members)), scalars, label)

    def _member(self, name: str, value: Any) -> RowMember:  # noqa: ANN401 - any value
        data, path = _payload(name, value, self.encode)
        chosen = self.fields.get(name)
        if chosen is None:  # a column that no settled row had
            chosen = _own_field(name) or f"{_word(name)}.{_extension(name, [value], self.encode) or 'bin'}"
        return RowMember(chosen, data, path)


def _own_field(name: str) -> str:
    """The name itself where it is a field with an extension that is known, else nothing."""
    lower = name.lower()
    legal = LEGAL_FIELD.fullmatch(lower) and len(lower) <= MAX_FIELD_BYTES
    return lower if legal and lower.rpartition(".")[2] in _OWN_EXTENSIONS else ""


def _word(name: str) -> str:
    """A name as a word of a field."""
    word = "".join(c if c.isascii() and (c.isalnum() or c in "_+-") else "_" for c in name.lower())
    return word[: MAX_FIELD_BYTES - 8] or "field"


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_json(value: object) -> bool:
    """Whether JSON takes it without loss, but for tuples, which come back as lists."""
    if isinstance(value, str | bool | int | float) or value is None:
        return type(value).__module__ == "builtins"  # a numpy float is a float too, and JSON would lose its dtype
    if isinstance(value, list | tuple):
        return all(map(_is_json, value))
    return (
        isinstance(value, dict) and not _is_media(value) and all(isinstance(k, str) and _is_json(v) for k, v in value.items())
    )


def _is_media(value: object) -> bool:
    """Whether it is Hugging Face's pair of bytes and path."""
    return isinstance(value, dict) and set(value) == {"bytes", "path"}


def _is_array(value: object) -> bool:
    """Whether numpy or torch made it, without importing either."""
    return hasattr(value, "dtype") and hasattr(value, "shape")


def _is_pil(value: object) -> bool:
    return any(base.__module__ == "PIL.Image" and base.__name__ == "Image" for base in type(value).__mro__)


def _extension(name: str, values: Sequence[Any], encode: Mapping[str, str]) -> str:
    """Extension of the field that a column becomes, "" where it becomes none."""
    if name in encode:
        return encode[name]
    if any(isinstance(value, str) for value in values):
        own = _own_field(name)
        return own.rpartition(".")[2] if own else "txt"
    if any(map(_is_array, values)):
        return "npy"
    if any(map(_is_pil, values)):
        return "png"  # refused when it is encoded, since encode= does not name it
    found = Counter(
        _sniffed(value) for value in values if isinstance(value, bytes | bytearray | memoryview) or _is_media(value)
    )
    return min(found, key=lambda extension: (-found[extension], extension), default="")


def _sniffed(value: Any) -> str:  # noqa: ANN401 - bytes, or a pair of bytes and path
    data, path = (value["bytes"], value["path"]) if isinstance(value, dict) else (value, None)
    head = bytes(data[:_SNIFF_BYTES]) if data is not None else b""
    by_content = CONTENT_FIELDS.get(sniff(head)) or next((ext for magic, ext in _AUDIO if head.startswith(magic)), "")
    return by_content or (canonical(split_name(os.path.basename(path))[1]) if path else "") or "bin"


def _payload(name: str, value: Any, encode: Mapping[str, str]) -> tuple[bytes, str]:  # noqa: ANN401
    """Bytes of a value, and its original path."""
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value), ""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass"), ""
    if _is_media(value):
        return _media(name, value)
    if _is_pil(value) or _is_array(value):
        return _encoded(name, value, encode.get(name)), ""
    if _is_json(value):  # where a field of that name is JSON itself
        return json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass"), ""
    msg = f"column {name!r} holds a {type(value).__module__}.{type(value).__qualname__}, which cannot be stored without loss"
    hint = "Give bytes, str, numbers, lists and dicts of those, or numpy arrays."
    raise UsageError(msg, expected="a value of packer/rows/values.py's table", got=type(value).__qualname__, hint=hint)


def _media(name: str, value: Mapping[str, Any]) -> tuple[bytes, str]:
    path = value["path"] or ""
    if value["bytes"] is None:
        try:
            with open(path, "rb") as file:
                return file.read(), safe_path(path)
        except OSError as error:
            msg = f"column {name!r} names the file {path!r}, which cannot be read: {error.strerror or error}"
            raise UsageError(msg, got=path) from error
    return bytes(value["bytes"]), safe_path(path)


def safe_path(path: str) -> str:
    """An original path as the index takes it: relative, without the parts that lead elsewhere; empty where nothing is left."""
    parts = [part for part in path.split("/") if part not in {"", ".", ".."}]
    try:
        raw = os.fsencode("/".join(parts))
    except UnicodeEncodeError:
        return ""
    return os.fsdecode(raw) if is_safe_source(raw) else ""


def _encoded(name: str, value: Any, codec: str | None) -> bytes:  # noqa: ANN401 - an image or an array
    if codec is None and (_is_pil(value) or _looks_like_an_image(value)):
        what = (
            "a decoded image" if _is_pil(value) else f"an array that looks like an image ({value.dtype}, {tuple(value.shape)})"
        )
        msg = f"column {name!r} holds {what}: how shall it be stored?"
        hint = (
            f"Give the encoded bytes (best: nothing is lost and nothing grows), or name a lossless codec: "
            f"encode={{{name!r}: 'png'}} or 'npy'."
        )
        raise UsageError(msg, expected=f"encode= one of {', '.join(ENCODINGS)}", got=type(value).__qualname__, hint=hint)
    if codec == "png":
        return _png(name, value)
    return _npy(name, value)


def _looks_like_an_image(value: Any) -> bool:  # noqa: ANN401
    shape = tuple(value.shape)
    if "uint8" not in str(value.dtype) or len(shape) not in {2, 3}:
        return False
    sides = [side for side in shape if side not in {1, 3, 4}]
    return len(sides) == 2 and min(sides) >= _IMAGE_SIDE  # noqa: PLR2004 - height and width


def _npy(name: str, value: Any) -> bytes:  # noqa: ANN401
    import numpy as np  # noqa: PLC0415 - only who gives arrays has it loaded already

    if type(value).__module__.partition(".")[0] == "torch":
        if str(value.dtype) == "torch.bfloat16" or value.is_quantized:
            msg = f"column {name!r} holds a tensor of {value.dtype}, which numpy has not"
            raise UsageError(msg, got=str(value.dtype), hint="Convert it (.float() is exact), or view it as int16.")
        value = value.detach().cpu().numpy()
    array = np.asarray(value)
    if array.dtype.hasobject:
        msg = f"column {name!r} holds an array of Python objects"
        raise UsageError(msg, expected="numbers, bytes or text", got=str(array.dtype), hint="Nothing is ever pickled.")
    out = io.BytesIO()
    np.lib.format.write_array(out, array, allow_pickle=False)
    return out.getvalue()


def _png(name: str, value: Any) -> bytes:  # noqa: ANN401
    from PIL import Image  # noqa: PLC0415 - packing bytes needs no Pillow

    image = value if _is_pil(value) else Image.fromarray(value)
    out = io.BytesIO()
    try:
        image.save(out, "PNG")
    except OSError as error:
        msg = f"column {name!r} holds an image of mode {image.mode}, which PNG has not"
        raise UsageError(msg, got=image.mode, hint=f"Use encode={{{name!r}: 'npy'}}.") from error
    return out.getvalue()


def distinct_sources(keys: Sequence[str], fields: Sequence[str], sources: Sequence[str]) -> list[str]:
    """Original path of each member, made where there was none and where another has it: no two members get one path.

    Args:
        keys: Key of the sample of each member.
        fields: Its field.
        sources: Its original path, empty for none.
    """
    counts = Counter(source for source in sources if source)
    made = {f"{key}.{name}" for key, name in zip(keys, fields, strict=True)}
    folders = {folder for path in (*counts, *made) for folder in _folders(path)}
    found = []
    for key, name, source in zip(keys, fields, sources, strict=True):
        alone = source and counts[source] == 1 and source not in made and source not in folders
        found.append(source if alone and made.isdisjoint(_folders(source)) else f"{key}.{name}")
    return found


def _folders(path: str) -> Iterable[str]:
    parts = path.split("/")
    return ("/".join(parts[: at + 1]) for at in range(len(parts) - 1))
