"""The same photos through every kind of source: the same samples each time, byte for byte, and back to files."""

import csv
import json

import datasets
import pyarrow as pa
import pytest
from helpers import files_below, packed
from packing import manifest_of
from pyarrow import parquet
from rowsets import SMALL_PHOTOS, labels_of, proven

import fastfeed

pytestmark = pytest.mark.skipif(not SMALL_PHOTOS.is_dir(), reason=f"{SMALL_PHOTOS} is not on this machine")


@pytest.fixture(scope="module")
def photos():
    """Path below the folder, class number, bytes; in ImageFolder's order."""
    names = sorted(path.name for path in SMALL_PHOTOS.iterdir() if path.is_dir())
    return names, [
        (str(path.relative_to(SMALL_PHOTOS)), names.index(path.parent.name), path.read_bytes())
        for name in names for path in sorted((SMALL_PHOTOS / name).iterdir())
    ]  # fmt: skip


class Photos:
    """A map-style dataset of dicts or of pairs."""

    def __init__(self, rows, names, *, pairs):
        self.rows, self.names, self.pairs = rows, names, pairs

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, at):
        path, label, data = self.rows[at]
        return (data, label) if self.pairs else {"image": {"bytes": data, "path": path}, "label": self.names[label]}


def as_csv(folder, names, rows):
    with open(folder / "l.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["path", "label"])
        writer.writerows((path, names[label]) for path, label, _ in rows)
    return folder / "l.csv", {"root": SMALL_PHOTOS, "label": "label"}


def as_jsonl(folder, names, rows):
    lines = (json.dumps({"file_name": str(SMALL_PHOTOS / path), "label": names[label]}) for path, label, _ in rows)
    (folder / "l.jsonl").write_text("\n".join(lines))
    return folder / "l.jsonl", {"root": SMALL_PHOTOS, "label": "label"}


def as_parquet_list(folder, names, rows):
    table = pa.table({"file": [path for path, _, _ in rows], "label": [names[label] for _, label, _ in rows]})
    parquet.write_table(table, folder / "list.parquet")
    return folder / "list.parquet", {"field": {"image": "{file}"}, "root": SMALL_PHOTOS, "label": "label"}


def as_parquet(folder, names, rows):
    images = [{"bytes": data, "path": path} for path, _, data in rows]
    table = pa.table({"image": images, "label": [names[label] for _, label, _ in rows]})
    parquet.write_table(table, folder / "x.parquet", row_group_size=17)
    return folder / "x.parquet", {"label": "label"}


def as_hugging_face(folder, names, rows):
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=names)})
    found = [{"image": {"bytes": data, "path": path}, "label": label} for path, label, data in rows]
    return datasets.Dataset.from_list(found, features=features), {}


def as_dataset(folder, names, rows):
    return Photos(rows, names, pairs=False), {"label": "label", "classes": names}


def as_pairs(folder, names, rows):
    return Photos(rows, names, pairs=True), {"classes": names}


def as_stream(folder, names, rows):
    samples = ({"__key__": path.rpartition(".")[0], "jpg": data, "cls": label} for path, label, data in rows)
    return samples, {"classes": names}


SOURCES = [as_csv, as_jsonl, as_parquet_list, as_parquet, as_hugging_face, as_dataset, as_pairs, as_stream]
WITH_PATHS = SOURCES[:6]


@pytest.mark.parametrize("make", SOURCES, ids=lambda make: make.__name__)
def test_the_same_samples_each_time(tmp_path, photos, make):
    names, rows = photos
    source, options = make(tmp_path, names, rows)
    packed(source, tmp_path / "out", workers=2, samples_per_shard=34, **options)
    samples = proven(tmp_path / "out")
    assert [s.fields["jpg"] for s in samples] == [data for _, _, data in rows]
    assert all(set(s.fields) == {"cls", "jpg"} for s in samples)
    assert labels_of(tmp_path / "out") == [names[label] for _, label, _ in rows]
    assert manifest_of(tmp_path / "out")["classes"] == names
    image, target = fastfeed.open(tmp_path / "out")[7]
    assert image.mode == "RGB" and target == rows[7][1]
    fastfeed.unpack(tmp_path / "out", tmp_path / "back")
    back = files_below(tmp_path / "back")
    if make in WITH_PATHS:
        assert back == {path: data for path, _, data in rows}  # under their original names
    else:
        assert sorted(back.values()) == sorted(data for _, _, data in rows)


def test_the_folder_itself_gives_the_same_samples(tmp_path, photos):
    packed(SMALL_PHOTOS, tmp_path / "folder")
    source, options = as_csv(tmp_path, *photos)
    packed(source, tmp_path / "list", **options)
    folder, listed = proven(tmp_path / "folder"), proven(tmp_path / "list")
    assert [(s.key, s.label, s.fields, s.sources) for s in folder] == [(s.key, s.label, s.fields, s.sources) for s in listed]
