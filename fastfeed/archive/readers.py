"""What DALI, wids and Hugging Face datasets read beside tars. README.md §9.

Sources of the layouts: DALI 2.4.0 tools/wds2idx.py (index v1.2); webdataset 0.2.111 wids/wids_index.py; datasets 5.2.0
packaged_modules/webdataset/webdataset.py and the YAML head of a dataset card.
"""

import json
import os
import re
from collections.abc import Mapping, Sequence

from fastfeed.archive.beside import Rows, Sidecar, of_bytes
from fastfeed.archive.dataset import Archive
from fastfeed.archive.index import MEMBER
from fastfeed.archive.shard import CLASS_FIELD, SUFFIX, member_name
from fastfeed.media import is_image_field

DALI, WIDS, HF = "dali", "wids", "hf"
CARD = "README.md"

# How datasets names splits that it finds by itself (datasets 5.2.0, data_files.py): a card must not rename them.
_HF_SPLITS = {
    **dict.fromkeys(("train", "training"), "train"), **dict.fromkeys(("validation", "valid", "dev", "val"), "validation"),
    **dict.fromkeys(("test", "testing", "eval", "evaluation"), "test"),
}  # fmt: skip
# What datasets makes of a member by the last part of its field, and under which type of a card that is kept.
_HF_TYPES = {
    **dict.fromkeys(("txt", "text", "transcript"), "string"), **dict.fromkeys(("cls", "cls2", "index", "inx", "id"), "int64"),
    **dict.fromkeys(("json", "jsn"), "json"),
    **dict.fromkeys(("wav", "flac", "mp3", "ogg", "opus", "aiff"), "audio"),
    **dict.fromkeys(("mp4", "mkv", "avi", "mov", "mpeg"), "video"),
}  # fmt: skip
_HF_UNTOLD = {"ten", "tb", "mp", "msg", "npy", "npz", "cbor", "pth", "gz", "bz2", "xz", "zst", "lz4", "zip"}
"""It makes arrays or anything else of these (the last ones it opens first): no type of a card fits before they are read."""

_HALF = re.compile("[\ud800-\udc7f\udd00-\udfff]")
"""Surrogates that stand for no byte."""


def dali_indexes(rows: Rows) -> list[Sidecar]:
    """NAME-000000.idx: a line a sample, with extension, first payload byte, size and name of each member."""

    def content(number: int) -> bytes:
        shard = rows.shard(number)
        lines = [f"v1.2 {len(shard.keys)}"]
        for key, start, stop in zip(shard.keys, shard.starts, shard.starts[1:], strict=False):
            lines.append(
                " ".join(
                    f"{field} {offset} {size} {member_name(key, field)}"
                    for field, offset, size in zip(
                        shard.fields[start:stop], shard.offsets[start:stop], shard.sizes[start:stop], strict=True
                    )
                )
            )
        return ("\n".join(lines) + "\n").encode("ascii")

    def sidecar(number: int, file: str) -> Sidecar:
        return of_bytes(f"{file.removesuffix(SUFFIX)}.idx", DALI, lambda: content(number))

    return [sidecar(number, entry.file) for number, entry in enumerate(rows.archive.manifest.shards)]


def wids_index(archive: Archive) -> Sidecar:
    """NAME.index.json: the shards and how many samples each has."""
    manifest = archive.manifest
    shards = [
        {"url": entry.file, "nsamples": entry.samples, "filesize": entry.size_bytes, "sha256": entry.sha256}
        for entry in manifest.shards
    ]
    body = {"__kind__": "wids-shard-index-v1", "wids_version": 1, "shardlist": shards, "name": manifest.name}
    return of_bytes(f"{manifest.name}.index.json", WIDS, lambda: (json.dumps(body, indent=2) + "\n").encode("ascii"))


# ------------------------------------------------------------------------------------------------ the card
def card(parts: Mapping[str, Archive]) -> Sidecar:
    """README.md: a dataset card that says which files are the data, what the fields are, and how many samples there are.

    Args:
        parts: Folder of each split -> its dataset; an empty name for the dataset that lies beside the card.
    """
    return of_bytes(CARD, HF, lambda: _card(parts).encode(), editable=True)


def _card(parts: Mapping[str, Archive]) -> str:
    names = split_names([folder or archive.manifest.split or "train" for folder, archive in parts.items()])
    lines = ["---", "configs:", "- config_name: default", "  data_files:"]
    for name, folder in zip(names, parts, strict=True):
        lines += [f"  - split: {name}", f"    path: {_quoted(_pattern(folder))}"]
    lines += ["dataset_info:", "- config_name: default"]
    types = _types(list(parts.values()))
    if types is not None:
        lines += ["  features:", *types]
    lines += ["  splits:"]
    for name, archive in zip(names, parts.values(), strict=True):
        payload = int(archive.index.array(MEMBER, "size").sum())
        lines += [f"  - name: {name}", f"    num_bytes: {payload}", f"    num_examples: {archive.manifest.samples}"]
    return "\n".join([*lines, "---", "", _CARD_TEXT])


_CARD_TEXT = """Packed by fastfeed: tar shards, and a hidden folder `.fastfeed` with their index and checksums.

`datasets.load_dataset("PATH OF THIS FOLDER")` reads the shards by the lines above, batch and streaming. Without `configs`
it would take index files of other readers for data; `features` keeps fields that the first samples do not have, and
`splits` lets it notice that samples are missing. A field of type `json` needs datasets 4.8 or newer. Everything else on
this page is yours to edit.
"""


def split_names(folders: Sequence[str]) -> list[str]:
    """The names under which datasets knows splits: letters, digits and underscores, none twice."""
    names: list[str] = []
    for folder in folders:
        plain = re.sub(r"[^A-Za-z0-9_]", "_", folder)
        name, at = _HF_SPLITS.get(folder, plain), 2
        while name in names:
            name, at = f"{plain}_{at}", at + 1
        names.append(name)
    return names


def _pattern(folder: str) -> str:
    """The shards of a split as a glob; what a glob reads as something else, and what is no UTF-8, matches as any character."""
    safe = "".join(char if char.isprintable() and char not in "*?[]{}\\:" else "?" for char in folder)
    return f"{safe}/*{SUFFIX}" if folder else f"*{SUFFIX}"


def _types(archives: Sequence[Archive]) -> list[str] | None:
    """The fields of all splits with their types; None where one has a type that nobody knows before it is read."""
    fields = sorted({field for archive in archives for field in archive.manifest.fields})
    lines = []
    for field in fields:
        last = field.rpartition(".")[2]
        if last in _HF_UNTOLD:
            return None
        classes = _class_names(archives) if field == CLASS_FIELD else None
        lines += [f"  - name: {_quoted(field)}"]
        if classes:
            lines += ["    dtype:", "      class_label:", "        names:", *(f"        - {_quoted(name)}" for name in classes)]
        else:
            lines += [f"    dtype: {'image' if is_image_field(field) else _HF_TYPES.get(last, 'binary')}"]
    return [*lines, *(f"  - name: {name}\n    dtype: string" for name in ("__key__", "__url__"))]


def _class_names(archives: Sequence[Archive]) -> list[str] | None:
    """The names of the class numbers in cls; None where these are not of the writer's making."""
    names = archives[0].manifest.classes
    if not names or any(archive.manifest.classes != names or not _wrote_classes(archive) for archive in archives):
        return None
    return [_as_utf8(name) for name in names]


def _as_utf8(name: str) -> str:
    r"""What is no UTF-8 as escapes: bytes of a folder's name (\xe9), and halves of a pair that only text can hold (\ud800)."""
    without_halves = _HALF.sub(lambda found: f"\\u{ord(found[0]):04x}", name)
    return os.fsencode(without_halves).decode(errors="backslashreplace")


def _wrote_classes(archive: Archive) -> bool:
    """Whether the field cls is the class number that the writer added, and so a number into the classes."""
    if not archive.index.has(MEMBER, "source") or CLASS_FIELD not in archive.manifest.fields:
        return False
    sources = archive.index.strings(MEMBER, "source")
    own = [place.row for place in archive.places(0) if place.field == CLASS_FIELD]
    return bool(own) and not sources[own[0]]


def _quoted(text: str) -> str:
    """A YAML scalar in double quotes, ASCII only."""
    return '"' + "".join(char if " " <= char <= "~" and char not in '"\\' else f"\\U{ord(char):08x}" for char in text) + '"'
