"""The end of a pack: what records say becomes the index. That it is right, every pack's test proves through verify."""

import os
import subprocess
import sys
import textwrap

import pytest
from helpers import ROOT, packed
from packing import manifest_of
from rowsets import Samples, fields_of, proven

from fastfeed.archive.dataset import Archive
from fastfeed.errors import SourceUnreadable
from fastfeed.media import NOT_AN_IMAGE
from fastfeed.packer.rows.finish import publish_rows
from fastfeed.packer.rows.plan import RowPlan, RowShard
from fastfeed.packer.rows.record import RowRecord


def test_fields_and_columns_that_only_some_shards_have(tmp_path):
    rows = [{"txt": "a", "n": 1}, {"txt": "b", "n": 2}, {"jpg": b"c", "n": None}, {"wav": b"d", "n": 2.5}]
    packed(Samples(rows), tmp_path / "out", shards=4)
    assert manifest_of(tmp_path / "out")["fields"] == ["jpg", "json", "txt", "wav"]
    assert [set(fields) for fields in fields_of(tmp_path / "out")] == [
        {"txt", "json"},
        {"txt", "json"},
        {"jpg"},
        {"wav", "json"},
    ]
    index = Archive(str(tmp_path / "out")).index
    assert str(list(index.user_column("n"))) == "[np.float64(1.0), np.float64(2.0), np.float64(nan), np.float64(2.5)]"


def test_columns_in_the_order_that_was_asked_for(tmp_path):
    packed(Samples([{"a": 1, "b": 2, "c": 3, "txt": "x"}]), tmp_path / "out", column=["c", "a"])
    assert list(Archive(str(tmp_path / "out")).index.user) == ["c", "a"]


def test_numbered_classes_go_up_to_the_largest(tmp_path):
    packed(Samples([{"txt": "a", "cls": 4}, {"txt": "b", "cls": 1}]), tmp_path / "out")
    assert manifest_of(tmp_path / "out")["classes"] == ["0", "1", "2", "3", "4"]
    assert [s.label for s in proven(tmp_path / "out")] == [4, 1]


def test_some_samples_without_a_class_are_refused(tmp_path):
    """Whoever reads rows refuses them before; this is for what no reader has seen together."""
    records = []
    for label in (3, None):
        record = RowRecord(sha256="0" * 64, size_bytes=10240, tar_bytes=10240)
        record.add_member("txt", "", offset=512, size_bytes=0, xxh3=0, probe=NOT_AN_IMAGE)
        record.add_sample("k", 1, label, None)
        records.append(record)
    plan = RowPlan(
        name="d", rows=range(2), keys=("a", "b"), shards=(RowShard("d-000000.tar", 0, 1), RowShard("d-000001.tar", 1, 2)),
        order="source", left_out=(), limited=0, source_files=1, about_bytes=0, why=(), notes=(),
    )  # fmt: skip
    with pytest.raises(SourceUnreadable, match="sample 1 has no class, and others have"):
        publish_rows(
            str(tmp_path), plan, records, {"classes": None, "numbered_classes": True, "columns": None, "compression": None}
        )


LARGE = """
    import sys, time
    from array import array
    from fastfeed.media import NOT_AN_IMAGE
    from fastfeed.packer.rows.finish import publish_rows
    from fastfeed.packer.rows.plan import RowPlan, RowShard
    from fastfeed.packer.rows.record import RowRecord
    from rowsets import peak_mebibytes

    count, shards = int(sys.argv[2]), 10
    def records():
        for shard in range(shards):
            record = RowRecord(sha256="0" * 64, size_bytes=10240, tar_bytes=10240)
            for at in range(count // shards):
                number = shard * (count // shards) + at
                for name in ("cls", "jpg", "json"):
                    source = f"images/{number:09d}.jpg" if name == "jpg" else ""
                    facts = {"offset": at, "size_bytes": 1, "xxh3": number, "probe": NOT_AN_IMAGE, "made": name == "cls"}
                    record.add_member(name, source, **facts)
                columns = {"score": at / 2, "n": at, "caption": f"a caption {at}"}
                record.add_sample(f"images/{number:09d}", 3, at % 1000, columns)
            path = f"{sys.argv[1]}/{shard}"
            with open(path, "wb") as file:
                record.save(file)
            yield path
    paths = list(records())
    each = count // shards
    listed = tuple(RowShard(f"d-{at:06d}.tar", at * each, (at + 1) * each) for at in range(shards))
    plan = RowPlan(
        name="d", rows=range(count), keys=(), shards=listed,
        order="source", left_out=(), limited=0, source_files=1, about_bytes=0, why=(), notes=(),
    )
    about = {"classes": None, "numbered_classes": True, "columns": None, "source_digest": "0" * 64, "layout": "table",
             "options": {}, "source_files": 1, "split": "", "compression": None}
    before, began = peak_mebibytes(), time.process_time()
    publish_rows(sys.argv[1], plan, map(RowRecord.load, paths), about)
    print(time.process_time() - began, peak_mebibytes(), before)
"""


def large(folder, count):
    """CPU seconds, and the most memory in MiB after and before, of publishing so many samples of three members."""
    env = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT}/tests"}
    command = [sys.executable, "-c", textwrap.dedent(LARGE), str(folder), str(count)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, env=env)
    return tuple(map(float, done.stdout.split()))


def test_a_hundred_thousand_samples_are_published_in_little_memory(tmp_path):
    seconds, peak, _ = large(tmp_path, 100_000)
    assert peak < 250 and seconds < 10


@pytest.mark.soak
def test_a_million_samples(tmp_path):
    seconds, peak, _ = large(tmp_path, 1_000_000)
    assert peak < 1500 and seconds < 40
