import datetime as dt
from typing import Any

import datasets
import pytest
import torch
from helpers import packed
from packing import manifest_of
from rowsets import fields_of, labels_of, photos, proven

import fastfeed
from fastfeed.config import row_config
from fastfeed.errors import SourceAmbiguous, SourceUnreadable, UsageError
from fastfeed.packer.rows import huggingface

CLASSES = ["cat", "dog", "emu"]
FEATURES = datasets.Features(
    {"image": datasets.Image(), "label": datasets.ClassLabel(names=CLASSES), "caption": datasets.Value("string")}
)


@pytest.fixture(autouse=True)
def quiet(tmp_path, monkeypatch):
    """No progress bars, and no cache but the test's own."""
    datasets.disable_progress_bars()
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


def table(count=7, labels=None, **more):
    """Images with a path each, classes 0 1 2 0 ..., captions."""
    images = photos(count)
    rows = [
        {"image": {"bytes": image, "path": f"{at}.jpg"}, "label": labels[at] if labels else at % 3, "caption": f"c{at}"}
        for at, image in enumerate(images)
    ]
    return datasets.Dataset.from_list([{**row, **more} for row in rows], features=FEATURES)


def test_bytes_as_they_are_and_classes_by_name(tmp_path):
    result = packed(table(), tmp_path / "out", shards=2)
    assert [fields["jpg"] for fields in fields_of(tmp_path / "out")] == photos(7)
    assert [fields["txt"] for fields in fields_of(tmp_path / "out")] == [f"c{at}".encode() for at in range(7)]
    assert manifest_of(tmp_path / "out")["classes"] == CLASSES
    assert labels_of(tmp_path / "out") == [CLASSES[at % 3] for at in range(7)]
    assert [s.sources["jpg"] for s in proven(tmp_path / "out")] == [f"{at}.jpg" for at in range(7)]
    for words in (
        "column 'image': its bytes as they are, not decoded",
        "the class is column 'label': it is the only ClassLabel",
    ):
        assert words in result.datasets[0].why


@pytest.mark.parametrize("form", ["torch", "numpy", "pandas", "arrow"])
def test_a_format_changes_nothing(tmp_path, form):
    result = packed(table().with_format(form), tmp_path / "out")
    assert [fields["jpg"] for fields in fields_of(tmp_path / "out")] == photos(7)
    assert f"its format ({form}) is not applied: what it stores is packed" in result.datasets[0].why


def test_a_transform_is_not_applied_and_that_is_said(tmp_path):
    result = packed(table().with_transform(lambda rows: {"x": [0] * len(rows["label"])}), tmp_path / "out")
    assert [fields["jpg"] for fields in fields_of(tmp_path / "out")] == photos(7)
    assert "its transform is not applied: what it stores is packed" in result.datasets[0].why


def test_columns_that_a_format_hides(tmp_path):
    result = packed(table().with_format("torch", columns=["image", "label"]), tmp_path / "out")
    assert all(set(fields) == {"jpg"} for fields in fields_of(tmp_path / "out"))
    assert "not packed, since its format hides them: caption" in result.datasets[0].why


def test_shuffled_selected_and_mapped(tmp_path):
    found = table().shuffle(seed=3).select(range(1, 6)).map(lambda row: {"length": len(row["caption"])})
    order = [int(text[1:]) for text in found["caption"]]
    assert order != sorted(order)
    packed(found, tmp_path / "out")
    assert [fields["jpg"] for fields in fields_of(tmp_path / "out")] == [photos(7)[at] for at in order]
    assert labels_of(tmp_path / "out") == [CLASSES[at % 3] for at in order]
    assert [s.sources["jpg"] for s in proven(tmp_path / "out")] == [f"{at}.jpg" for at in order]
    assert all(fields["json"] == b'{"length": 2}' for fields in fields_of(tmp_path / "out"))


def test_a_folder_of_save_to_disk(tmp_path):
    table().shuffle(seed=1).select([2, 0, 1]).save_to_disk(str(tmp_path / "saved"))
    packed(str(tmp_path / "saved"), tmp_path / "out")
    again = datasets.load_from_disk(str(tmp_path / "saved"))
    assert [fields["txt"].decode() for fields in fields_of(tmp_path / "out")] == list(again["caption"])
    assert manifest_of(tmp_path / "out")["classes"] == CLASSES
    datasets.DatasetDict(train=table(), test=table(3)).save_to_disk(str(tmp_path / "splits"))
    with pytest.raises(
        SourceAmbiguous, match=r"holds the splits test, train of Hugging Face's save_to_disk.*Pack each on its own"
    ):
        packed(str(tmp_path / "splits"), tmp_path / "none")
    packed(str(tmp_path / "splits" / "test"), tmp_path / "test")
    assert len(proven(tmp_path / "test")) == 3


def test_a_dict_of_splits(tmp_path):
    with pytest.raises(
        UsageError, match=r"DatasetDict cannot be packed as it is.*splits 'a', 'b'.*pack\(dataset\['a'\], ...\)"
    ):
        packed(datasets.DatasetDict(a=table(), b=table()), tmp_path / "out")


def test_labels_of_minus_one_are_no_classes(tmp_path):
    """As the test splits of many datasets have them: all, and one of many."""
    result = packed(table(3, [-1, -1, -1]), tmp_path / "all")
    assert manifest_of(tmp_path / "all")["classes"] is None
    assert [fields["json"] for fields in fields_of(tmp_path / "all")] == [b'{"label": -1}'] * 3
    assert "column 'label' is not taken as the class: 3 rows have none (-1)" in result.datasets[0].why
    packed(table(3, [0, -1, 1]), tmp_path / "one")
    assert [fields["json"] for fields in fields_of(tmp_path / "one")] == [f'{{"label": {n}}}'.encode() for n in (0, -1, 1)]
    with pytest.raises(UsageError, match="1 of 3 samples that were looked at have no class"):
        packed(table(3, [0, -1, 1]), tmp_path / "asked", label="label")


def test_several_class_labels(tmp_path):
    features = datasets.Features({"a": datasets.ClassLabel(names=["x"]), "b": datasets.ClassLabel(names=["y", "z"])})
    found = datasets.Dataset.from_list([{"a": 0, "b": 1}], features=features)
    result = packed(found, tmp_path / "out")
    assert manifest_of(tmp_path / "out")["classes"] is None
    assert "no class: a, b are all ClassLabels (label= chooses one)" in result.datasets[0].why
    packed(found, tmp_path / "b", label="b")
    assert labels_of(tmp_path / "b") == ["z"]


def test_a_column_of_texts_as_the_class(tmp_path):
    result = packed(table().shuffle(seed=1), tmp_path / "out", label="caption")
    assert manifest_of(tmp_path / "out")["classes"] == [f"c{at}" for at in range(7)]
    assert "classes are the 7 values of column 'caption', sorted" in result.datasets[0].why


def test_all_sorts_of_features(tmp_path):
    features = datasets.Features(
        {
            "audio": {"bytes": datasets.Value("binary"), "path": datasets.Value("string")},
            "when": datasets.Value("timestamp[us]"), "vector": datasets.List(datasets.Value("float32")),
            "grid": datasets.Array2D((2, 2), "int32"), "nested": {"a": datasets.Value("int8"), "b": [datasets.Value("string")]},
            "blob": datasets.Value("binary"), "none": datasets.Value("string"),
        }
    )  # fmt: skip
    row: dict[str, Any] = {
        "audio": {"bytes": b"RIFF\x24\0\0\0WAVEfmt ", "path": None}, "when": dt.datetime.fromisoformat("2024-02-29T01:02:03"),
        "vector": [0.5, 1.0], "grid": [[1, 2], [3, 4]], "nested": {"a": 1, "b": ["x"]}, "blob": b"\0\1", "none": None,
    }  # fmt: skip
    found = datasets.Dataset.from_list([row], features=features).cast_column("audio", datasets.Audio())
    result = packed(found, tmp_path / "out")
    assert "column 'audio': its bytes as they are, not decoded" in result.datasets[0].why
    (fields,) = fields_of(tmp_path / "out")
    assert fields["wav"] == row["audio"]["bytes"] and fields["bin"] == b"\0\1"
    ds = fastfeed.open(tmp_path / "out")
    assert ds[0]["json"] == {"when": "2024-02-29T01:02:03", "vector": [0.5, 1.0], "grid": [[1, 2], [3, 4]],
                             "nested": {"a": 1, "b": ["x"]}}  # fmt: skip


def test_a_list_of_images_is_refused_with_words(tmp_path):
    features = datasets.Features({"images": datasets.List(datasets.Image())})
    found = datasets.Dataset.from_list([{"images": [{"bytes": photos(1)[0], "path": None}]}], features=features)
    with pytest.raises(UsageError, match=r"column 'images' holds a value images\[0\].* of type .*, which JSON would lose"):
        packed(found, tmp_path / "out")


def test_images_of_local_files(tmp_path):
    for at, image in enumerate(photos(2)):
        (tmp_path / f"{at}.jpg").write_bytes(image)
    paths = [str(tmp_path / f"{at}.jpg") for at in range(2)]
    found = datasets.Dataset.from_dict({"image": paths}).cast_column("image", datasets.Image())
    packed(found, tmp_path / "out")
    assert [fields["jpg"] for fields in fields_of(tmp_path / "out")] == photos(2)
    assert [s.sources["jpg"] for s in proven(tmp_path / "out")] == [path.lstrip("/") for path in paths]


def test_an_iterable_dataset(tmp_path):
    result = packed(table().to_iterable_dataset(), tmp_path / "out", samples_per_shard=3)
    assert [fields["jpg"] for fields in fields_of(tmp_path / "out")] == photos(7)
    assert labels_of(tmp_path / "out") == [CLASSES[at % 3] for at in range(7)]
    assert "the class is column 'label': it is the only ClassLabel" in result.datasets[0].why
    assert huggingface.is_stream(table().to_iterable_dataset()) and not huggingface.is_table(table().to_iterable_dataset())


def test_an_iterable_dataset_that_says_nothing_of_its_features(tmp_path):
    found = datasets.IterableDataset.from_generator(lambda: iter([{"txt": "a"}, {"txt": "b"}]))
    assert found.features is None
    packed(found, tmp_path / "out")
    assert fields_of(tmp_path / "out") == [{"txt": b"a"}, {"txt": b"b"}]


def test_the_same_bytes_as_any_other_dataset(tmp_path):
    found = huggingface.prepare(table(), row_config({}))
    assert (found.label, found.classes, found.columns) == ("label", tuple(CLASSES), ("image", "label", "caption"))
    assert found.names == [f"{at}.jpg" for at in range(7)]
    assert not huggingface.is_table([1]) and not huggingface.is_table(torch.utils.data.Subset(table(), [1]))


def test_a_skip_list_names_the_original_paths(tmp_path):
    skip = fastfeed.sample.SkipList([fastfeed.sample.SkipEntry(source="3.jpg"), fastfeed.sample.SkipEntry(key="000000005")])
    packed(table(), tmp_path / "out", exclude=skip)
    assert [fields["txt"] for fields in fields_of(tmp_path / "out")] == [f"c{at}".encode() for at in (0, 1, 2, 4, 6)]


def test_a_broken_file_is_named(tmp_path):
    found = datasets.Dataset.from_dict({"image": [str(tmp_path / "gone.jpg")]}).cast_column("image", datasets.Image())
    with pytest.raises(
        (UsageError, SourceUnreadable), match=r"gone.jpg cannot be packed: column 'image' names the file '.*gone.jpg'"
    ):
        packed(found, tmp_path / "out")
