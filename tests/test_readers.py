"""One packed dataset under other readers: all samples, all fields, every byte, as Python's tarfile finds them in the shards.

DALI, wids and Energon are too large or too old for every run: tools/readers tries those, and says what it saw.
"""

import gc
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import webdataset
from helpers import ROOT, SHARED_DATA, encoded, make_photos, packed, photo
from PIL import Image
from tarring import gzipped, pairs, tar_of, write_tar

import fastfeed
from fastfeed.archive.sidecars import READERS

pytestmark = pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # both leave their files to the collector

Samples = dict[str, dict[str, bytes]]


@pytest.fixture(scope="module")
def hf(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Hugging Face datasets, which touches no network and no home here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HOME", str(tmp_path_factory.mktemp("hf")))
        patch.setenv("HF_HUB_OFFLINE", "1")
        patch.setenv("HF_DATASETS_DISABLE_PROGRESS_BARS", "1")
        import datasets

        yield datasets


def in_the_shards(folder: Path) -> Samples:
    """Key -> field -> bytes, over all shards at and below a folder, in order."""
    found: Samples = {}
    for shard in sorted(folder.rglob("*.tar")):
        with tarfile.open(shard, "r:") as tar:
            for info in tar:
                stem, _, last = info.name.rpartition("/")
                key, _, field = last.partition(".")
                stream = tar.extractfile(info)
                assert stream is not None
                found.setdefault(f"{stem}/{key}" if stem else key, {})[field] = stream.read()
    return found


def by_webdataset(folder: Path) -> Iterator[tuple[str, dict[str, bytes]]]:
    urls = [str(path) for path in sorted(folder.rglob("*.tar"))]
    for sample in webdataset.WebDataset(urls, shardshuffle=False):
        yield sample["__key__"], {name: value for name, value in sample.items() if not name.startswith("__")}
    gc.collect()


def by_hf(hf: Any, folder: Path, cache: Path, *, streaming: bool) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Split, key and fields of each row; images as bytes, an absent field left out."""
    found = hf.load_dataset(str(folder), streaming=streaming, cache_dir=str(cache))
    for split, decoded in found.items():
        rows = decoded
        for name, feature in decoded.features.items():
            rows = rows.cast_column(name, hf.Image(decode=False)) if isinstance(feature, hf.Image) else rows
        for row in rows:
            fields = {name: value for name, value in row.items() if value is not None and not name.startswith("__")}
            yield (
                split,
                row["__key__"],
                {name: v["bytes"] if isinstance(v, dict) and "bytes" in v else v for name, v in fields.items()},
            )
    gc.collect()


def same(field: str, value: Any, raw: bytes) -> bool:
    """Whether a value is what the bytes say, by the field's decoder in both readers."""
    if isinstance(value, bytes):
        return value == raw
    if isinstance(value, str):
        return value.encode() == raw
    return bool(value == (json.loads(raw) if field.endswith("json") else int(raw)))


def assert_all_is_read(rows: Iterator[tuple[str, dict[str, Any]]], expected: Samples) -> None:
    got = list(rows)
    assert [key for key, _ in got] == list(expected)
    for key, fields in got:
        assert set(fields) == set(expected[key]), key
        assert [field for field in fields if not same(field, fields[field], expected[key][field])] == [], key


def make_classes(folder: Path) -> None:
    make_photos(folder, classes=("cat", "Füchse & Gänse", "no: yes"), each=5)


def make_splits(folder: Path) -> None:
    for split, each in (("train", 4), ("val", 3)):
        make_photos(folder / split, each=each)


def make_fields(folder: Path) -> None:
    """Images, masks, texts, JSON of differing shapes, any bytes; one field a sample has that the first ones have not."""
    folder.mkdir()
    for number in range(14):
        stem = f"Bild {number:02d}, «groß»"
        (folder / f"{stem}.jpg").write_bytes(encoded(photo(number)))
        (folder / f"{stem}.mask.png").write_bytes(encoded(photo(number, mode="L"), "PNG"))
        (folder / f"{stem}.txt").write_text(f"Überschrift {number}\r\n", newline="")
        (folder / f"{stem}.json").write_text(json.dumps({"n": number} if number % 2 else {"n": "x", "tags": [1, {"a": None}]}))
        (folder / f"{stem}.bin").write_bytes(bytes(range(number)) + b"\0\xff")
        if number > 9:
            (folder / f"{stem}.late.txt").write_text("late")


def make_texts(folder: Path) -> None:
    folder.mkdir()
    for number in range(9):
        (folder / f"{number}.txt").write_text(f"Text {number} äöü\n" * number)


MAKERS = {"classes": make_classes, "splits": make_splits, "fields": make_fields, "texts": make_texts}


@pytest.fixture(scope="module", params=MAKERS)
def dataset(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Packed, with the files of all readers beside the shards."""
    folder: Path = tmp_path_factory.mktemp(request.param)
    MAKERS[request.param](folder / "src")
    packed(folder / "src", folder / "packed", shards=3, readers=READERS)
    assert fastfeed.verify(folder / "packed").findings == []
    return folder / "packed"


def test_webdataset_reads_all_of_it(dataset: Path):
    assert_all_is_read(by_webdataset(dataset), in_the_shards(dataset))


@pytest.mark.long
@pytest.mark.parametrize("streaming", [False, True], ids=["batch", "streaming"])
def test_huggingface_datasets_reads_all_of_it(hf: Any, dataset: Path, tmp_path: Path, *, streaming: bool):
    rows = list(by_hf(hf, dataset, tmp_path, streaming=streaming))
    assert_all_is_read(iter((key, fields) for _, key, fields in rows), in_the_shards(dataset))
    if (dataset / "val").is_dir():
        for split, folder in (("train", "train"), ("validation", "val")):
            assert [key for name, key, _ in rows if name == split] == list(in_the_shards(dataset / folder))
    else:
        assert {name for name, _, _ in rows} == {"train"}


def test_huggingface_datasets_reads_one_split_by_its_own_folder(hf: Any, tmp_path: Path):
    make_splits(tmp_path / "src")
    packed(tmp_path / "src", tmp_path / "packed", shards=2, readers=READERS)
    rows = list(by_hf(hf, tmp_path / "packed" / "val", tmp_path / "cache", streaming=False))
    assert {split for split, _, _ in rows} == {"validation"}
    assert_all_is_read(iter((key, fields) for _, key, fields in rows), in_the_shards(tmp_path / "packed" / "val"))


def test_huggingface_datasets_knows_the_class_names(hf: Any, tmp_path: Path):
    make_classes(tmp_path / "src")
    packed(tmp_path / "src", tmp_path / "packed", readers=["hf"])
    rows = hf.load_dataset(str(tmp_path / "packed"), split="train", cache_dir=str(tmp_path / "cache"))
    assert rows.features["cls"].names == fastfeed.open(tmp_path / "packed").classes
    image = rows[7]["jpg"]
    assert isinstance(image, Image.Image)
    assert image.tobytes() == Image.open(io.BytesIO(in_the_shards(tmp_path / "packed")[rows[7]["__key__"]]["jpg"])).tobytes()


@pytest.mark.parametrize("streaming", [False, True], ids=["batch", "streaming"])
def test_without_a_card_it_drops_fields_that_come_late(hf: Any, tmp_path: Path, *, streaming: bool):
    """Why the card names the fields."""
    make_fields(tmp_path / "src")
    for path in (tmp_path / "src").glob("*.json"):
        path.write_text("{}")  # without a card, JSON that differs in shape is refused
    packed(tmp_path / "src", tmp_path / "packed", shards=3)
    rows = by_hf(hf, tmp_path / "packed", tmp_path / "cache", streaming=streaming)
    assert "late.txt" not in {field for _, _, fields in rows for field in fields}


def test_without_a_card_it_takes_the_files_of_others_for_data(hf: Any, tmp_path: Path):
    """Why a card comes with those of Energon and wids."""
    make_texts(tmp_path / "src")
    packed(tmp_path / "src", tmp_path / "packed", readers=["wids"])
    (tmp_path / "packed" / "README.md").unlink()
    rows = hf.load_dataset(str(tmp_path / "packed"), split="train", cache_dir=str(tmp_path / "cache"))
    assert (rows.num_rows, "shardlist" in rows.features) == (1, True)  # nine texts are there
    fastfeed.write_sidecars(tmp_path / "packed", ["energon"])
    assert len(list(by_hf(hf, tmp_path / "packed", tmp_path / "cache", streaming=False))) == 9
    (tmp_path / "packed" / "README.md").unlink()
    with pytest.raises(Exception, match=r"truncated header|An error occurred while generating the dataset"):
        hf.load_dataset(str(tmp_path / "packed"), cache_dir=str(tmp_path / "cache2"))


def test_with_the_card_it_notices_missing_samples(hf: Any, tmp_path: Path):
    """A shard that is cut at the edge of a sample is a whole tar: only a count can tell."""
    make_texts(tmp_path / "src")
    packed(tmp_path / "src", tmp_path / "packed", shards=3, readers=["hf"])
    shard = tmp_path / "packed" / "src-000001.tar"
    with tarfile.open(shard) as tar:
        edge = tar.getmembers()[1].offset
    os.truncate(shard, edge)
    with pytest.raises(hf.exceptions.NonMatchingSplitsSizesError, match="num_examples=9"):
        hf.load_dataset(str(tmp_path / "packed"), cache_dir=str(tmp_path / "cache"))
    shutil.rmtree(tmp_path / "cache")
    (tmp_path / "packed" / "README.md").unlink()
    assert hf.load_dataset(str(tmp_path / "packed"), split="train", cache_dir=str(tmp_path / "cache")).num_rows == 7


@pytest.mark.parametrize("name", ["small-photos", "text/captions", "text/spdx-json", "text/encodings"])
def test_real_data(hf: Any, tmp_path: Path, name: str):
    source = SHARED_DATA / name
    if not source.is_dir():
        pytest.skip(f"{source} is missing: real data is not part of the tree")
    packed(source, tmp_path / "packed", shards=3, readers=READERS)
    assert fastfeed.verify(tmp_path / "packed").findings == []
    expected = in_the_shards(tmp_path / "packed")
    assert_all_is_read(by_webdataset(tmp_path / "packed"), expected)
    if name != "text/encodings":  # texts that are no UTF-8: datasets decodes every .txt
        for streaming in (False, True):
            rows = by_hf(hf, tmp_path / "packed", tmp_path / "cache", streaming=streaming)
            assert_all_is_read(iter((key, fields) for _, key, fields in rows), expected)


@pytest.mark.soak
def test_the_script_for_the_other_readers_runs():
    done = subprocess.run([sys.executable, str(ROOT / "tools" / "readers")], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "all of it is equal"), done.stdout + done.stderr
    assert len([line for line in done.stdout.splitlines() if line.endswith("every byte equal")]) >= 12


def test_the_index_of_tars_in_place_is_invisible(hf: Any, tmp_path: Path):
    """Beside tars lies a hidden folder: Hugging Face datasets, which looks at all there is, reads the tars alone."""
    for number in range(2):
        write_tar(tmp_path / "tars" / f"train-{number}.tar", pairs(6, 6 * number))
    (tmp_path / "tars" / "more.tgz").write_bytes(gzipped(tar_of(pairs(2, 50))))
    fastfeed.index_tars([str(path) for path in (tmp_path / "tars").iterdir()])
    (tmp_path / "tars" / "more.tgz").unlink()
    assert len(os.listdir(tmp_path / "tars" / ".fastfeed-index")) == 3
    rows = hf.load_dataset(str(tmp_path / "tars"), split="train", cache_dir=str(tmp_path / "cache"))
    assert [row["__key__"] for row in rows] == [f"{number:06d}" for number in range(12)]
    gc.collect()
