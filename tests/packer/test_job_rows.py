"""pack --jpeg-rows from end to end: which bytes change and which do not, what is told, what a rerun must find equal."""

import io
import json
import os
import shutil
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers import encoded, files_below, packed, photo
from packing import contents, interrupt_after, manifest_of, needs_jpegtran, packed_rows, read_back, tree
from PIL import Image

import fastfeed
from fastfeed.archive.dataset import Archive
from fastfeed.errors import DestinationOccupied, UsageError
from fastfeed.jpegrows import scan_rows
from fastfeed.packer.result import ALREADY, INDEXED
from fastfeed.packer.rows import transcode
from fastfeed.packer.rows.transcode import index_rows

pytestmark = needs_jpegtran


def jpeg(number: int, **options) -> bytes:
    return encoded(photo(number, (40, 48)), **options)


FILES = {
    **{f"cat/{at}.jpg": jpeg(at) for at in range(4)},
    "dog/progressive.jpg": jpeg(5, progressive=True, comment=b"of a dog"),
    "dog/marked.jpg": jpeg(6, restart_marker_rows=1),
    "dog/small.jpg": encoded(photo(7, (40, 8))),
    "dog/no-photo.jpg": encoded(photo(8), "PNG"),
    "dog/broken.jpg": jpeg(9)[:300],
}
OUTCOMES = {INDEXED: 5, ALREADY: 1, transcode.ONE_ROW: 1, transcode.NO_JPEG: 1, transcode.DAMAGED: 1}


@pytest.fixture
def source(tmp_path):
    return tree(tmp_path / "photos", FILES)


def rows_by_source(dataset) -> dict[str, list[int] | None]:
    """What the index says of each photo."""
    archive, found = Archive(str(dataset)), {}
    for position in range(len(archive)):
        for place in archive.places(position):
            starts = archive.jpeg_rows(position, place)
            found[os.fsdecode(archive.source_of(position, place))] = None if starts is None else starts.tolist()
    found.pop("", None)
    return found


def test_only_photos_that_gain_are_changed_and_their_pixels_are_not(source, tmp_path):
    result = packed(source, tmp_path / "packed", jpeg_rows=True)
    assert result.datasets[0].jpeg_rows == OUTCOMES
    stored, rows = contents(read_back(tmp_path / "packed")), rows_by_source(tmp_path / "packed")
    assert {name for name in FILES if stored[name] != FILES[name]} == {
        *(f"cat/{at}.jpg" for at in range(4)),
        "dog/progressive.jpg",
    }
    for name, data in stored.items():
        starts = scan_rows(data)
        assert rows[name] == (None if starts is None else starts.tolist())
        assert (starts is not None) == (name not in {"dog/small.jpg", "dog/no-photo.jpg", "dog/broken.jpg"})
        if starts is not None:
            before, after = Image.open(io.BytesIO(FILES[name])), Image.open(io.BytesIO(data))
            assert np.array_equal(np.asarray(before), np.asarray(after))
            assert before.info.get("comment") == after.info.get("comment")
    assert not Image.open(io.BytesIO(stored["dog/progressive.jpg"])).info.get("progressive")
    assert fastfeed.verify(tmp_path / "packed").ok
    assert manifest_of(tmp_path / "packed")["options"]["jpeg_rows"] is True


def test_the_order_is_imagefolders_and_bytes_do_not_depend_on_the_workers(source, tmp_path):
    packed(source, tmp_path / "one", shards=4, jpeg_rows=True)
    packed(source, tmp_path / "three", shards=4, jpeg_rows=True, workers=3)
    assert files_below(tmp_path / "one") == files_below(tmp_path / "three")
    assert manifest_of(tmp_path / "one")["order"] == "imagefolder"


def test_without_the_option_nothing_is_said_of_rows(source, tmp_path):
    result = packed(source, tmp_path / "packed")
    assert result.datasets[0].jpeg_rows is None
    assert contents(read_back(tmp_path / "packed")) == FILES
    assert Archive(str(tmp_path / "packed")).index.jpeg_rows is None
    assert "jpeg_rows" not in manifest_of(tmp_path / "packed")["options"]


def test_unpacked_photos_have_the_same_pixels(source, tmp_path):
    packed(source, tmp_path / "packed", jpeg_rows=True)
    result = fastfeed.unpack(tmp_path / "packed", tmp_path / "out")
    assert result.jpegs_indexed == OUTCOMES[INDEXED] + OUTCOMES[ALREADY]
    assert files_below(tmp_path / "out") == contents(read_back(tmp_path / "packed"))


def test_compressed_shards(source, tmp_path):
    packed(source, tmp_path / "plain", jpeg_rows=True)
    packed(source, tmp_path / "zst", jpeg_rows=True, compress="zstd")
    assert rows_by_source(tmp_path / "zst") == rows_by_source(tmp_path / "plain")
    assert fastfeed.verify(tmp_path / "zst").ok
    fastfeed.unpack(tmp_path / "zst", tmp_path / "tars", shards=True)
    assert rows_by_source(tmp_path / "tars") == rows_by_source(tmp_path / "plain")
    assert fastfeed.verify(tmp_path / "tars").ok


def test_splits(tmp_path):
    tree(tmp_path / "set", {f"{split}/{name}": data for name, data in FILES.items() for split in ("train", "val")})
    result = packed(tmp_path / "set", tmp_path / "packed", jpeg_rows=True)
    assert [dataset.jpeg_rows for dataset in result.datasets] == [OUTCOMES, OUTCOMES]
    assert fastfeed.verify(tmp_path / "packed").ok


def test_smaller_first_and_then_indexed(tmp_path):
    tree(tmp_path / "photos", {f"{at}.jpg": encoded(photo(at, (80, 96))) for at in range(3)})
    result = packed(tmp_path / "photos", tmp_path / "packed", jpeg_rows=True, max_side=48)
    assert result.datasets[0].jpeg_rows == {ALREADY: 3}
    (found, *_) = contents(read_back(tmp_path / "packed")).values()
    assert Image.open(io.BytesIO(found)).size == (40, 48)
    assert None not in rows_by_source(tmp_path / "packed").values()
    assert manifest_of(tmp_path / "packed")["options"]["max_side"] == 48


def test_masks_and_boxes_are_no_hindrance_and_only_field_names_what_may_change(tmp_path):
    sample = {"0.jpg": jpeg(1), "0.depth.jpg": jpeg(2), "0.json": b'{"bbox": [1, 2, 3, 4]}'}
    tree(tmp_path / "s", sample)
    packed(tmp_path / "s", tmp_path / "all", jpeg_rows=True, group="stem")
    assert {name for name, rows in rows_by_source(tmp_path / "all").items() if rows} == {"0.jpg", "0.depth.jpg"}
    packed(tmp_path / "s", tmp_path / "one", jpeg_rows=True, group="stem", only_field="depth.jpg")
    assert {name for name, rows in rows_by_source(tmp_path / "one").items() if rows} == {"0.depth.jpg"}
    with pytest.raises(UsageError, match="only_field names png, which is no image field here"):
        packed(tmp_path / "s", tmp_path / "none", jpeg_rows=True, group="stem", only_field="png")


# ---------------------------------------------------------------------------------------------------- other sources
def a_list(folder: Path) -> Path:
    (folder / "list.csv").write_text("path\n" + "".join(f"photos/{name}\n" for name in FILES))
    return folder / "list.csv"


def a_table(folder: Path) -> Path:
    table = pa.table({"image": list(FILES.values()), "number": list(range(len(FILES)))})
    pq.write_table(table, folder / "rows.parquet")
    return folder / "rows.parquet"


def a_tar(folder: Path) -> Path:
    with tarfile.open(folder / "a.tar", "w") as tar:
        for at, data in enumerate(FILES.values()):
            info = tarfile.TarInfo(f"{at:03d}.jpg")
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return folder / "a.tar"


def samples(folder: Path) -> list[dict[str, bytes]]:
    return [{"jpg": data} for data in FILES.values()]


GIVEN: dict[str, Any] = {
    "list": a_list, "parquet": a_table, "tars": a_tar, "dataset": samples, "iterable": lambda folder: iter(samples(folder)),
}  # fmt: skip


@pytest.mark.parametrize("kind", GIVEN)
def test_every_kind_of_source(source, tmp_path, kind):
    expected = sorted(index_rows(data)[0] for data in FILES.values())
    given = GIVEN[kind](tmp_path)
    result = packed(given, tmp_path / "packed", jpeg_rows=True)
    assert result.datasets[0].jpeg_rows == OUTCOMES
    found = [
        data for sample in read_back(tmp_path / "packed") for name, data in sample.fields.items() if name not in {"cls", "json"}
    ]
    assert sorted(found) == expected
    assert Archive(str(tmp_path / "packed")).index.jpeg_rows.count() == 6  # type: ignore[union-attr]
    assert fastfeed.verify(tmp_path / "packed").ok


# ---------------------------------------------------------------------------------------------------- again
def test_a_plan_tells_what_it_would_come_to(source, tmp_path):
    result = packed(source, tmp_path / "packed", jpeg_rows=True, dry_run=True)
    (told,) = (line for line in result.datasets[0].why if "restart marker" in line)
    assert "without loss, by jpegtran (libjpeg-turbo version" in told
    assert "of those looked at 5 indexed, 1 with such markers already, 3 stay as they are (1 a single row of blocks, " in told
    assert result.datasets[0].jpeg_rows is None
    assert not (tmp_path / "packed").exists()


def another_version(tmp_path, monkeypatch) -> None:
    """The same program, which says to be of another version."""
    real = shutil.which("jpegtran")
    (tmp_path / "bin").mkdir()
    other = tmp_path / "bin" / "jpegtran"
    other.write_text(
        f'#!/bin/sh\nif [ "$1" = -version ]; then echo "libjpeg-turbo version 9.9.9" >&2; else exec {real} "$@"; fi\n'
    )
    other.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    transcode.jpegtran.cache_clear()


@pytest.fixture
def forget():
    """The program is looked for anew afterwards."""
    yield
    transcode.jpegtran.cache_clear()


@pytest.mark.parametrize("kind", ["folder", "dataset", "iterable"])
def test_an_unfinished_pack_by_another_version_is_refused_and_a_finished_one_left_alone(
    source, tmp_path, monkeypatch, forget, kind
):
    given: Any = {"folder": lambda: source, "dataset": lambda: samples(tmp_path), "iterable": lambda: iter(samples(tmp_path))}[
        kind
    ]
    cut = {} if kind == "iterable" else {"shards": 3}
    with pytest.raises(Exception, match="enough is written"):
        packed(given(), tmp_path / "begun", jpeg_rows=True, progress=interrupt_after(1), samples_per_shard=None, **cut)
    packed(given(), tmp_path / "done", jpeg_rows=True)
    another_version(tmp_path, monkeypatch)
    with pytest.raises(
        DestinationOccupied, match=r"whose JPEGs another version of jpegtran wrote.*Install libjpeg-turbo version"
    ):
        packed(given(), tmp_path / "begun", jpeg_rows=True, **cut)
    assert packed(given(), tmp_path / "done", jpeg_rows=True).already_packed


def test_an_interrupted_pack_continues_to_the_same_bytes_and_counts_all(source, tmp_path):
    whole = packed(source, tmp_path / "whole", shards=3, jpeg_rows=True)
    with pytest.raises(Exception, match="enough is written"):
        packed(source, tmp_path / "cut", shards=3, jpeg_rows=True, progress=interrupt_after(2))
    result = packed(source, tmp_path / "cut", shards=3, jpeg_rows=True)
    assert result.shards_kept > 0
    assert result.datasets[0].jpeg_rows == whole.datasets[0].jpeg_rows == OUTCOMES
    assert files_below(tmp_path / "cut") == files_below(tmp_path / "whole")


def test_a_finished_pack_without_rows_is_another_one(source, tmp_path):
    packed(source, tmp_path / "packed")
    with pytest.raises(DestinationOccupied, match="of a folder of files is there"):
        packed(source, tmp_path / "packed", jpeg_rows=True)


def test_without_the_program_nothing_is_written(source, tmp_path, monkeypatch, forget):
    monkeypatch.setenv("PATH", str(tmp_path))
    transcode.jpegtran.cache_clear()
    for given in (source, [{"jpg": FILES["cat/0.jpg"]}], iter([{"jpg": FILES["cat/0.jpg"]}])):
        with pytest.raises(UsageError, match="needs the program jpegtran, which is not installed"):
            packed(given, tmp_path / "packed", jpeg_rows=True)
        assert not list((tmp_path / "packed").glob("*.tar"))


def test_old_readers_find_the_same_samples(tmp_path):
    """The columns are optional: what reads the tars, or the index without knowing of rows, reads on."""
    dataset = packed_rows(tmp_path)
    index = json.loads((dataset / ".fastfeed" / "manifest.json").read_bytes())
    assert index["version"] == 1
    assert [sample[0].size for sample in fastfeed.open(dataset)] == [(40, 40)] * 3
