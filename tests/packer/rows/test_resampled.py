"""Lists, tables and tars, packed with the report of a real audit of them."""

import io
import json
import tarfile

import pyarrow as pa
import pytest
from helpers import encoded, photo
from oddities import jpeg, scan_bomb
from packing import tree
from PIL import Image
from pyarrow import parquet

import fastfeed
from fastfeed.errors import UsageError

GOOD, LARGE, BOMB = jpeg((40, 30)), jpeg((60, 40), seed=1), scan_bomb(150)
CUT = GOOD[: len(GOOD) // 2]
PICTURES = {"0.jpg": GOOD, "1.jpg": LARGE, "2.jpg": BOMB, "3.jpg": CUT, "4.jpg": jpeg((40, 30), seed=2)}


def as_list(tmp_path):
    tree(tmp_path / "files", PICTURES)
    (tmp_path / "list.csv").write_text("path,kind\n" + "".join(f"files/{name},a\n" for name in PICTURES))
    return tmp_path / "list.csv", {"label": "kind"}


def as_table(tmp_path):
    parquet.write_table(pa.table({"jpg": list(PICTURES.values())}), tmp_path / "a.parquet")
    return tmp_path / "a.parquet", {}


def as_tars(tmp_path):
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for name, data in PICTURES.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return str(tmp_path / "*.tar"), {}


def with_oversize(report, name):
    """Say of a sample that it is oversize, which takes a hundred others to be found."""
    lines = [json.loads(line) for line in report.read_text().splitlines()]
    for line in lines:
        if str(line.get("path")).endswith(name):
            line["findings"].append({"code": "oversize", "severity": "warning", "text": "large"})
    report.write_text("".join(json.dumps(line) + "\n" for line in lines))


def images(path):
    ds = fastfeed.open(path)
    found = []
    for index in range(len(ds)):
        with ds.open(index, "jpg") as file:
            found.append(file.read())
    return found


@pytest.mark.parametrize(("make", "large"), [(as_list, "1.jpg"), (as_table, "row 1"), (as_tars, "1.jpg")])
def test_errors_go_large_ones_shrink_and_bombs_are_re_encoded(tmp_path, make, large):
    source, options = make(tmp_path)
    report = tmp_path / "r.jsonl"
    fastfeed.audit(source, jsonl=report, workers=1, **options)
    with_oversize(report, large)
    result = fastfeed.pack(source, tmp_path / "p", from_audit=report, max_side=20, samples_per_shard=2, workers=2, **options)
    told = [why for why in result.datasets[0].why if why.startswith("audit: ")]
    assert told == [
        "audit: 1 sample with an error left out (truncated 1)",
        "audit: 1 image made smaller, the longer side at most 20 (oversize 1)",
        "audit: 1 image re-encoded as baseline JPEG (scan-bomb 1)",
    ]
    assert fastfeed.verify(tmp_path / "p").ok
    found = images(tmp_path / "p")
    assert [found[0], found[3]] == [PICTURES["0.jpg"], PICTURES["4.jpg"]] and len(found) == 4
    assert Image.open(io.BytesIO(found[1])).size == (20, 13)
    assert found[2].count(b"\xff\xda") == 1 and Image.open(io.BytesIO(found[2])).size == (64, 64)
    again = fastfeed.pack(source, tmp_path / "p", from_audit=report, max_side=20, samples_per_shard=2, **options)
    assert again.already_packed


def test_json_lines_without_what_is_wrong(tmp_path):
    source, report = tmp_path / "a.jsonl", tmp_path / "r.jsonl"
    source.write_text('{"text": "one"}\n{"text": "half \\ud83d"}\n{"text": "three"}\n')
    fastfeed.audit(source, jsonl=report, workers=1)
    fastfeed.pack(source, tmp_path / "p", from_audit=report)
    assert [sample["json"]["text"] for sample in fastfeed.open(tmp_path / "p")] == ["one", "three"]


def test_what_is_not_sure_stays_as_it_is(tmp_path):
    slow = encoded(photo(3, (40, 20)), "JPEG2000", irreversible=True)
    tree(tmp_path, {"a.jpg": BOMB, "b.jpg": GOOD, "c.jp2": slow, "d.jpg": GOOD})
    (tmp_path / "two.csv").write_text("left,right\na.jpg,b.jpg\n")
    (tmp_path / "one.csv").write_text("path\nc.jp2\n")
    whys = {"two": "it has several images, and the report does not tell which", "one": "its field is called jp2"}
    for name, why in whys.items():
        source, report = tmp_path / f"{name}.csv", tmp_path / f"{name}.jsonl"
        fastfeed.audit(source, jsonl=report, workers=1)
        fields = ["jpg", "right.jpg"] if name == "two" else []
        result = fastfeed.pack(source, tmp_path / name, from_audit=report, dry_run=True, only_field=fields)
        assert any(why in told for told in result.datasets[0].why), result.datasets[0].why


def test_what_changed_since_and_what_is_of_another_source(tmp_path):
    source, options = as_list(tmp_path)
    report = tmp_path / "r.jsonl"
    fastfeed.audit(source, jsonl=report, workers=1, **options)
    (tmp_path / "files" / "3.jpg").write_bytes(GOOD)
    result = fastfeed.pack(source, tmp_path / "p", from_audit=report, dry_run=True, **options)
    assert any("1 file changed since the audit" in note and "files/3.jpg" in note for note in result.notes)
    other, _ = as_table(tmp_path)
    with pytest.raises(UsageError, match="the audit report has no sample of this source"):
        fastfeed.pack(other, tmp_path / "q", from_audit=report)
