"""What index and left-out list promise by themselves: each rule broken by a writer whose digests fit."""

import hashlib
import json
import struct
from array import array
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers import (
    ColumnFile,
    add_columns,
    add_user_columns,
    make_captioned,
    pack_photos,
    packed,
    rewrite_index,
    rewrite_manifest,
)

import fastfeed
from fastfeed.archive.columns import ColumnData
from fastfeed.archive.dataset import Archive
from fastfeed.archive.index import UserColumn
from fastfeed.errors import FastfeedError
from fastfeed.packer.rules import damaged_columns, index_rules


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """Four samples of jpg and txt."""
    packed(make_captioned(tmp_path / "src"), tmp_path / "packed")
    return tmp_path / "packed"


def numbers(code: str, *values: int) -> bytes:
    return struct.pack(f"<{len(values)}{code}", *values)


def broken(path: Path) -> list[FastfeedError]:
    archive = Archive(str(path))
    return [*damaged_columns(archive), *index_rules(archive)]


def test_nothing_is_wrong_with_what_pack_writes(dataset: Path):
    assert broken(dataset) == []


def test_classes_too(tmp_path: Path):
    assert broken(pack_photos(tmp_path)) == []


RULES: dict[str, tuple[Callable[[ColumnFile], object], str, int | None]] = {
    "no member": (
        lambda file: (
            file.replace("sample", "members", numbers("Q", 0, 2, 2, 6, 8)),
            file.replace("member", "field", numbers("H", 0, 1, 0, 1, 2, 3, 0, 1)),
        ),
        "a sample has no member", 1,
    ),
    "field twice": (
        lambda file: file.replace("member", "field", numbers("H", 0, 1, 0, 0, 0, 1, 0, 1)),
        "a sample has a field twice", 1,
    ),
    "order of fields": (
        lambda file: file.replace("member", "field", numbers("H", 0, 1, 0, 1, 0, 1, 1, 0)),
        "do not stand in the order of the fields", 3,
    ),
    "first range": (
        lambda file: file.replace("sample", "members", numbers("Q", 1, 2, 4, 6, 8)),
        "the ranges of column members of sample do not rise from 0 to 8", None,
    ),
    "last range": (
        lambda file: file.replace("sample", "members", numbers("Q", 0, 2, 4, 6, 7)),
        "the ranges of column members of sample do not rise from 0 to 8", None,
    ),
    "falling ranges": (
        lambda file: file.replace("sample", "members", numbers("Q", 0, 4, 2, 6, 8)),
        "the ranges of column members of sample do not rise", None,
    ),
    "strings": (
        lambda file: file.replace("sample", "key", numbers("Q", 0, 3, 6, 9, 11), b"000001002003"),
        "the ranges of column key of sample do not rise from 0 to 12", None,
    ),
    "key twice": (
        lambda file: file.replace("sample", "key", numbers("Q", 0, 3, 6, 9, 12), b"abcdefABC003"),
        "a key is not legal or not unique", 2,
    ),
    "key with a dot": (
        lambda file: file.replace("sample", "key", numbers("Q", 0, 3, 6, 9, 12), b"000001a.b003"),
        "a key is not legal or not unique", 2,
    ),
    "key not ASCII": (
        lambda file: file.replace("sample", "key", numbers("Q", 0, 3, 6, 9, 12), b"000001\xff\xff\xff003"),
        "a key in the index is not ASCII", 2,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", RULES)
def test_a_broken_rule_is_found_and_named(dataset: Path, name: str):
    change, words, sample = RULES[name]
    rewrite_index(dataset, change)
    (error,) = broken(dataset)
    assert words in str(error)
    assert error.sample == sample
    assert error.path == str(dataset / ".fastfeed" / "index")
    assert not fastfeed.verify(dataset).ok


USER = (
    UserColumn("clean", "bool", b"\1\0\0\1"),
    UserColumn("caption", "text", ["a", "ä", "", "d"]),
    UserColumn("length", "float64", array("d", [1.0, 2.0, 3.0, float("nan")])),
)


def test_user_columns_that_are_right(dataset: Path):
    add_user_columns(dataset, *USER)
    assert broken(dataset) == []
    assert fastfeed.verify(dataset).ok


USER_RULES: dict[str, tuple[Callable[[ColumnFile], object], str, int | None]] = {
    "u3 truth": (lambda file: file.replace("sample", "x.clean", b"\1\0\3\1"), "row 2 of column 'clean' is no truth value", 2),
    "u4 text": (
        lambda file: file.replace("sample", "x.caption", numbers("Q", 0, 1, 2, 3, 4), b"a\xc3\xa4d"),
        "row 1 of column 'caption' is no UTF-8 text", 1,
    ),
    "c11 ranges": (
        lambda file: file.replace("sample", "x.caption", numbers("Q", 0, 1, 3, 2, 4), b"a\xc3\xa4d"),
        "the ranges of column x.caption of sample do not rise", None,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", USER_RULES)
def test_a_broken_rule_of_a_user_column_is_found(dataset: Path, name: str):
    change, words, sample = USER_RULES[name]
    add_user_columns(dataset, *USER)
    rewrite_index(dataset, change)
    error, *_ = broken(dataset)
    assert words in str(error)
    assert error.sample == sample
    assert not fastfeed.verify(dataset).ok


@pytest.mark.parametrize("name", ["x.", "x.a\n", "x." + "n" * 201])
def test_u1_a_user_column_has_a_name(dataset: Path, name: str):
    add_columns(dataset, ColumnData("sample", name, "uint8", (bytes(4),), required=False))
    (error,) = broken(dataset)
    assert "a user column has a name that is none: '" in str(error)


@pytest.mark.parametrize(("label", "sample"), [(-1, 0), (2, 5)])
def test_a_label_names_a_class(tmp_path: Path, label: int, sample: int):
    dataset = pack_photos(tmp_path)
    labels = [0, 0, 0, 1, 1, 1]
    labels[sample] = label
    rewrite_index(dataset, lambda file: file.replace("sample", "label", numbers("q", *labels)))
    (error,) = broken(dataset)
    assert f"a label names no class ({dataset}/.fastfeed/index, sample {sample}" in str(error)
    assert str(error).endswith(f"expected below 2, got {label}. Restore it from a copy, or pack again.")


def test_labels_without_classes(tmp_path: Path):
    dataset = pack_photos(tmp_path)
    rewrite_manifest(dataset, lambda body: body.update(classes=None))
    (error,) = broken(dataset)
    assert "the index has labels and the manifest no classes" in str(error)


def _rewrite_raw_index(dataset: Path, change: Callable[[bytearray], None]) -> None:
    path = dataset / ".fastfeed" / "index"
    raw = bytearray(path.read_bytes())
    change(raw)
    path.write_bytes(raw)
    facts = {"file": "index", "size_bytes": len(raw), "sha256": hashlib.sha256(raw).hexdigest()}
    rewrite_manifest(dataset, lambda body: body.update(index=facts))


def test_gaps_between_columns_are_zeros(dataset: Path):
    archive = Archive(str(dataset))
    table = archive.index.table
    ends = [stop for column in table.columns.values() for _, stop in column.extents if stop % 64]
    for end in ends:
        _rewrite_raw_index(dataset, lambda raw, end=end: raw.__setitem__(end, 1))  # type: ignore[misc]
        texts = [str(error) for error in broken(dataset)]
        assert len(texts) == 1
        assert "in the index are not zeros" in texts[0] or "the end of the index is not zeros" in texts[0]
        _rewrite_raw_index(dataset, lambda raw, end=end: raw.__setitem__(end, 0))  # type: ignore[misc]
    assert ends
    assert broken(dataset) == []


def test_each_column_is_proven_by_its_checksum(dataset: Path):
    table = Archive(str(dataset)).index.table
    for column in table.columns.values():
        start, stop = column.extents[-1]
        if column.name in {"width", "height", "xxh3", "codec", "orientation"}:  # no other rule looks at their values
            assert stop > start
            _rewrite_raw_index(dataset, lambda raw, start=start: raw.__setitem__(start, raw[start] ^ 1))  # type: ignore[misc]
            (error,) = broken(dataset)
            assert f"column {column.name} of {column.table} in the index is damaged" in str(error)
            assert (error.start, error.stop) == (start, stop)
            _rewrite_raw_index(dataset, lambda raw, start=start: raw.__setitem__(start, raw[start] ^ 1))  # type: ignore[misc]


def _rewrite_left_out(dataset: Path, raw: bytes, count: int) -> None:
    (dataset / ".fastfeed" / "left-out.jsonl").write_bytes(raw)
    facts = {"file": "left-out.jsonl", "size_bytes": len(raw), "sha256": hashlib.sha256(raw).hexdigest()}
    rewrite_manifest(dataset, lambda body: body.update(left_out=facts, left_out_count=count))


LINE = json.dumps({"source": "a", "kind": "hidden", "why": "b"}).encode() + b"\n"


def test_a_list_that_is_right(dataset: Path):
    _rewrite_left_out(dataset, LINE * 2, 2)
    assert broken(dataset) == []


@pytest.mark.parametrize(
    ("raw", "count", "words"),
    [
        (LINE, 2, "another number of lines than the manifest says"),
        (LINE * 3, 2, "another number of lines than the manifest says"),
        (LINE + LINE[:-1], 2, "line 2 of the list of left-out files is no object"),
        (b"[]\n", 1, "line 1 of the list of left-out files is no object"),
        (b"not json\n", 1, "line 1 of the list of left-out files is no object"),
        (b"\xff\n", 1, "line 1 of the list of left-out files is no object"),
        (b'{"source": "a", "kind": "b"}\n', 1, "line 1 of the list of left-out files is no object"),
        (b'{"source": "a", "kind": "b", "why": 3}\n', 1, "line 1 of the list of left-out files is no object"),
        (b"[" * 100_000 + b"\n", 1, "line 1 of the list of left-out files is no object"),
    ],
    ids=["too few", "too many", "no line feed", "a list", "no JSON", "no UTF-8", "a field less", "a number", "nested"],
)
def test_a_list_that_is_wrong(dataset: Path, raw: bytes, count: int, words: str):
    _rewrite_left_out(dataset, raw, count)
    (error,) = broken(dataset)
    assert words in str(error)
    assert not fastfeed.verify(dataset).ok
