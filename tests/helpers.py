"""What tests share: small photo sets made with Pillow, packed datasets, and ways to damage them on purpose."""

import hashlib
import io
import json
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import xxhash
from PIL import Image

import fastfeed
from fastfeed.archive.columns import ColumnData
from fastfeed.archive.index import UserColumn
from fastfeed.packer.result import PackResult

ROOT = Path(__file__).parent.parent
SHARED_DATA = ROOT.parent / "shared" / "data"
"""Real files that a fresh clone does not have: skip, and say so, where it is missing."""


def photo(number: int = 0, size: tuple[int, int] = (16, 12), mode: str = "RGB") -> Image.Image:
    """A small picture with a gradient; another number gives other pixels."""
    width, height = size
    gray = Image.frombytes("L", size, bytes((number * 37 + x * 5 + y * 11) % 256 for y in range(height) for x in range(width)))
    return gray.convert(mode)


def encoded(image: Image.Image, kind: str = "JPEG", **options: Any) -> bytes:
    """An image as the bytes of a file of one of Pillow's formats."""
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def make_photos(folder: Path, classes: Iterable[str] = ("cat", "dog"), each: int = 3) -> Path:
    """A class-per-folder set as ImageFolder reads it: CLASS/000.jpg and so on, each file another picture.

    Returns:
        The folder.
    """
    number = 0
    for name in classes:
        (folder / name).mkdir(parents=True)
        for at in range(each):
            (folder / name / f"{at:03d}.jpg").write_bytes(encoded(photo(number)))
            number += 1
    return folder


def make_captioned(folder: Path, count: int = 4) -> Path:
    """A flat set of pairs 000.jpg and 000.txt.

    Returns:
        The folder.
    """
    folder.mkdir(parents=True)
    for number in range(count):
        (folder / f"{number:03d}.jpg").write_bytes(encoded(photo(number)))
        (folder / f"{number:03d}.txt").write_text(f"picture {number}\n")
    return folder


def pack_photos(folder: Path, *, each: int = 3, **options: Any) -> Path:
    """A packed dataset of make_photos() below a folder.

    Args:
        folder: Gets photos/ and packed/.
        each: Photos a class, of two classes.
        **options: Of fastfeed.pack.

    Returns:
        The packed folder.
    """
    make_photos(folder / "photos", each=each)
    packed(folder / "photos", folder / "packed", **options)
    return folder / "packed"


def packed(source: Path, destination: Path, **options: Any) -> PackResult:
    """fastfeed.pack with one worker process, which is the fastest for a few files."""
    return fastfeed.pack(source, destination, **{"workers": 1, **options})


def files_below(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, hidden ones too: path -> content."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def flipped(raw: bytes, bit: int) -> bytes:
    """The same bytes with one bit flipped."""
    changed = bytearray(raw)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def flip_bit(path: Path, byte: int, bit: int = 0) -> None:
    """Flip one bit of a file in place."""
    path.write_bytes(flipped(path.read_bytes(), byte * 8 + bit))


def canonical(body: Mapping[str, object]) -> bytes:
    """Canonical JSON by the words of archive/README.md §5.1, with a digest that fits."""

    def text(value: Mapping[str, object]) -> bytes:
        return (json.dumps(value, sort_keys=True, indent=1) + "\n").encode("ascii")

    rest = {name: value for name, value in body.items() if name != "digest"}
    return text({**rest, "digest": hashlib.sha256(text(rest)).hexdigest()})


def rewrite_manifest(dataset: Path, change: Callable[[dict[str, Any]], object], name: str = "manifest.json") -> None:
    """Change a manifest's content and give it a digest that fits: a wrong writer, not a flipped bit."""
    path = dataset / ".fastfeed" / name
    body = json.loads(path.read_bytes())
    change(body)
    path.write_bytes(canonical(body))


@dataclass
class ColumnFile:
    """A column file taken apart by the words of archive/README.md §4, without the package's own reader.

    Change it and write it back: digests and sizes are made to fit, so that what a test broke is all that is broken.
    """

    table: dict[str, Any]
    parts: list[bytes]
    """Of all columns, in file order."""

    @classmethod
    def parse(cls, raw: bytes) -> "ColumnFile":
        """Take a file apart; asserts [C1] to [C10] on the way."""
        magic, version, table_bytes, file_bytes, digest = struct.unpack_from("<8sIIQQ", raw)
        assert (magic, version, file_bytes) == (bytes.fromhex("8946 4643 0d0a 1a0a"), 1, len(raw))  # C1 C2 C3
        text = raw[32 : 32 + table_bytes]
        assert len(text) == table_bytes <= 16_777_216  # C4
        assert xxhash.xxh3_64_intdigest(text) == digest  # C5
        table = json.loads(text)
        at, parts = 32 + table_bytes, []
        for entry in table["columns"]:
            assert set(entry) == {"table", "name", "type", "required", "bytes", "xxh3"}  # C7
            own = []
            for size in entry["bytes"]:
                start = -(-at // 64) * 64
                assert not any(raw[at:start])  # C10
                own.append(raw[start : start + size])
                at = start + size
            assert xxhash.xxh3_64_hexdigest(b"".join(own)) == entry["xxh3"]  # C10
            parts += own
        assert not any(raw[at:])  # C10
        assert len(raw) == -(-at // 64) * 64  # C9
        return cls(table, parts)

    def column(self, table: str, name: str) -> list[bytes]:
        """The parts of one column."""
        at = 0
        for entry in self.table["columns"]:
            if (entry["table"], entry["name"]) == (table, name):
                return self.parts[at : at + len(entry["bytes"])]
            at += len(entry["bytes"])
        raise KeyError(table, name)

    def numbers(self, table: str, name: str) -> list[int]:
        """The numbers of a column's first part."""
        kinds = {"uint8": "B", "uint16": "H", "uint32": "I", "uint64": "Q", "int64": "q", "starts": "Q", "bytes": "Q"}
        kind = kinds[self.entry(table, name)["type"]]
        raw = self.column(table, name)[0]
        return list(struct.unpack(f"<{len(raw) // struct.calcsize(kind)}{kind}", raw))

    def strings(self, table: str, name: str) -> list[bytes]:
        """The rows of a column of byte strings."""
        starts, data = self.numbers(table, name), self.column(table, name)[1]
        assert [0, *sorted(starts), len(data)] == [starts[0], *starts, starts[-1]]  # C11
        return [data[start:stop] for start, stop in pairwise(starts)]

    def entry(self, table: str, name: str) -> dict[str, Any]:
        """A column's entry in the column table."""
        return next(entry for entry in self.table["columns"] if (entry["table"], entry["name"]) == (table, name))

    def replace(self, table: str, name: str, *parts: bytes) -> None:
        """Give a column another content."""
        at = 0
        for entry in self.table["columns"]:
            if (entry["table"], entry["name"]) == (table, name):
                self.parts[at : at + len(entry["bytes"])] = parts
                entry["bytes"] = [len(part) for part in parts]
                return
            at += len(entry["bytes"])
        raise KeyError(table, name)

    def build(self) -> bytes:
        """The bytes of the file, every digest and size fitting."""
        at = 0
        for entry in self.table["columns"]:
            count = len(entry["bytes"]) if isinstance(entry.get("bytes"), list) else 1
            entry["xxh3"] = xxhash.xxh3_64_hexdigest(b"".join(self.parts[at : at + count]))
            at += count
        return column_file(json.dumps(self.table, sort_keys=True, separators=(",", ":")).encode(), self.parts)


def column_file(table: bytes, parts: Iterable[bytes] = ()) -> bytes:
    """A column file with any table bytes, its head made to fit them."""
    body = bytes(32) + table
    for part in (b"", *parts):
        body += bytes(-len(body) % 64) + part
    body += bytes(-len(body) % 64)
    magic = bytes.fromhex("8946 4643 0d0a 1a0a")
    return struct.pack("<8sIIQQ", magic, 1, len(table), len(body), xxhash.xxh3_64_intdigest(table)) + body[32:]


def rewrite_index(dataset: Path, change: Callable[[ColumnFile], object]) -> None:
    """Change an index and write it back with digests that fit, the manifest's too: a wrong writer, not a flipped bit."""
    path = dataset / ".fastfeed" / "index"
    file = ColumnFile.parse(path.read_bytes())
    change(file)
    raw = file.build()
    path.write_bytes(raw)
    facts = {"file": "index", "size_bytes": len(raw), "sha256": hashlib.sha256(raw).hexdigest()}
    rewrite_manifest(dataset, lambda body: body.update(index=facts))


def add_columns(dataset: Path, *added: ColumnData) -> None:
    """Give an index more columns, behind those that it has, with digests that fit."""

    def change(file: ColumnFile) -> None:
        for column in added:
            raw = [bytes(part) for part in column.parts]  # type: ignore[call-overload]
            entry = {"table": column.table, "name": column.name, "type": column.type, "required": column.required}
            file.table["columns"].append({**entry, "bytes": [len(part) for part in raw]})
            file.parts += raw

    rewrite_index(dataset, change)


def add_user_columns(dataset: Path, *added: UserColumn) -> None:
    """Give a packed dataset columns of the user's, as pack writes them."""
    samples = json.loads((dataset / ".fastfeed" / "manifest.json").read_bytes())["samples"]
    add_columns(dataset, *(ColumnData("sample", "x." + c.name, *c.stored(samples), required=False) for c in added))


def rewrite_shard(dataset: Path, change: Callable[[bytearray], object], number: int = 0) -> None:
    """Change a shard's bytes and write them back with size and sha256 that fit: a wrong writer, not a flipped bit."""
    (path, *_) = sorted(dataset.glob(f"*-{number:06d}.tar"))
    raw = bytearray(path.read_bytes())
    change(raw)
    path.write_bytes(raw)
    facts = {"size_bytes": len(raw), "sha256": hashlib.sha256(raw).hexdigest()}
    rewrite_manifest(dataset, lambda body: body["shards"][number].update(facts))


def findings_of(path: Path) -> str:
    """What verify finds, a line each: its kind and its text."""
    return "\n".join(f"{finding.kind}: {finding.text}" for finding in fastfeed.verify(path).findings)


def row_set(name: str, row: int, value: int, table: str = "member") -> Callable[[ColumnFile], None]:
    """A change of one number of the index, for rewrite_index."""

    def change(index: ColumnFile) -> None:
        first, *rest = index.column(table, name)
        size = {"uint16": 2}.get(index.entry(table, name)["type"], 8)
        raw = first[: row * size] + value.to_bytes(size, "little", signed=value < 0) + first[(row + 1) * size :]
        index.replace(table, name, raw, *rest)

    return change
