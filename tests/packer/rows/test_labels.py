import numpy as np
import pyarrow as pa
import pytest
import torch
from helpers import packed
from pyarrow import parquet
from rowsets import photos

import fastfeed
from fastfeed.errors import UsageError
from fastfeed.packer.rows.labels import MAX_NUMBERED_CLASSES, LabelReader, to_row
from fastfeed.packer.rows.source import RowMember
from fastfeed.packer.rows.values import Encoded


@pytest.mark.parametrize(
    ("value", "number"),
    [(0, 0), (5, 5), (np.uint8(5), 5), (torch.tensor(5), 5), (True, 1), (False, 0), (None, None), (-1, None),
     (np.int64(-1), None),     (MAX_NUMBERED_CLASSES - 1, MAX_NUMBERED_CLASSES - 1)],
    ids=map(str, range(10)),
)  # fmt: skip
def test_numbers(value, number):
    assert LabelReader(None).number(value) == number


def test_names():
    labels = LabelReader(["cat", "dog"])
    assert [labels.number(value) for value in ("dog", "cat", 1, None, -1)] == [1, 0, 1, None, None]


@pytest.mark.parametrize(
    ("classes", "value", "match"),
    [
        (None, "cat", r"the class is the text 'cat', and nothing says which number it is.*classes=\[...\], or --classes FILE"),
        (["cat"], "dog", "the class 'dog' is not among the 1 names that are known"),
        (None, 0.5, "the class '0.5' is no whole number.*got float"),
        (None, np.float32(1), "the class '1.0' is no whole number"),
        (None, [1, 0], r"the class '\[1, 0\]' is no whole number"),
        (None, b"3", "is no whole number"),
        (["cat"], 1, "the class 1 is none: there are 1 classes at most: expected 0 to 0, got 1"),
        (None, -2, "the class -2 is none: classes are numbered from 0"),
        (None, MAX_NUMBERED_CLASSES, "there are 1,048,576 classes at most.*Keep the number as a column"),
    ],
    ids=map(str, range(9)),
)
def test_what_is_no_class_is_refused(classes, value, match):
    with pytest.raises(UsageError, match=match):
        LabelReader(classes).number(value)


def test_all_samples_have_a_class_or_none_has():
    labels = LabelReader(None)
    labels.settle([1, 2, 0])
    assert labels.labelled and labels.number(3) == 3
    with pytest.raises(UsageError, match="it has no class, and the samples that were looked at first have one"):
        labels.number(-1)
    without = LabelReader(None)
    without.settle([None, None])
    assert without.labelled is False and without.number(None) is None
    with pytest.raises(UsageError, match="it has the class 3, and the samples that were looked at first have none"):
        without.number(3)
    with pytest.raises(UsageError, match=r"1 of 3 samples that were looked at have no class.*got sample 1 of those"):
        LabelReader(None).settle([1, None, 2])


def test_rows():
    members = (RowMember("txt", b"x"),)
    row = to_row(Encoded(members, {"n": 1}, "dog"), LabelReader(["cat", "dog"]), "key")
    assert (row.members, row.label, row.scalars, row.key) == (members, 1, {"n": 1}, "key")
    assert to_row(Encoded(members, {}, None), LabelReader(None)).scalars is None


@pytest.mark.parametrize("kind", ["list", "iterable", "parquet", "lines"])
def test_samples_that_all_say_that_they_have_no_class(tmp_path, kind):
    rows = [{"jpg": image, "cls": -1} for image in photos(3)]
    source, options, name = rows if kind == "list" else iter(rows), {}, "cls"
    if kind == "parquet":
        source, options, name = tmp_path / "x.parquet", {"label": "y"}, "y"
        parquet.write_table(pa.table({"jpg": photos(3), "y": [-1] * 3}), source)
    if kind == "lines":
        source, options, name = tmp_path / "x.jsonl", {"label": "y"}, "y"
        source.write_text('{"t": "a", "y": -1}\n' * 3)
    result = packed(source, tmp_path / "out", **options)
    assert list(fastfeed.open(tmp_path / "out").column(name)) == [-1] * 3
    assert not any("another at each reading" in note for note in result.notes)
    assert any("is no class, but a typed column" in why for why in result.datasets[0].why)
