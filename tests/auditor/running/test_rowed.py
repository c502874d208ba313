import json

import pyarrow as pa
from helpers import encoded, photo
from pyarrow import parquet

from fastfeed.auditor.running.rowed import Rowed
from fastfeed.auditor.running.subject import HOW, How
from fastfeed.auditor.running.targets import find_target
from fastfeed.config import row_config

JPEG = encoded(photo(1, (64, 48)))


def subject(path, **options):
    spec = find_target(path, rows=row_config(options)).spec
    return Rowed(json.loads(json.dumps(spec)), options.get("tokenizer"))  # as it passes a pipe


def table(tmp_path, **columns):
    path = tmp_path / "a.parquet"
    parquet.write_table(pa.table(columns), path)
    return path


def test_rows_of_a_table(tmp_path):
    path = table(tmp_path, jpg=[JPEG, JPEG[:-300], JPEG], kind=["tabby", "pug", "pug"], caption=["a cat", "a dog", "two"])
    rows = subject(path, label="kind")
    records = [rows.load(index, HOW) for index in range(3)]
    assert rows.count == 3
    assert [record.path for record in records] == [f"{path.name} row {index}" for index in range(3)]
    assert [(record.format, record.width, record.label) for record in records] == [
        ("JPEG", 64, "tabby"), ("JPEG", 64, "pug"), ("JPEG", 64, "pug"),
    ]  # fmt: skip
    assert [[found.code.name for found in record.findings] for record in records] == [[], ["truncated"], []]
    assert set(records[0].times) == {"read", "decode"} and records[0].digest == records[2].digest != records[1].digest
    assert records[0].size_bytes is not None and records[0].size_bytes > len(JPEG)


def test_names_alone_and_no_time_from_the_disk(tmp_path):
    rows = subject(table(tmp_path, jpg=[JPEG]))
    assert rows.load(0, How(load=False)).times == rows.load(0, How(cold=True)).times == {}
    assert set(rows.load(0, How(look=False)).times) == {"read", "decode"}


def test_rows_with_names(tmp_path):
    assert subject(table(tmp_path, jpg=[JPEG], name=["first"]), key="name").load(0, HOW).path == "first"


def test_json_lines(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "one"}\n\n{"text": "half \\ud83d"}\n')
    rows = subject(path)
    records = [rows.load(index, HOW) for index in range(2)]
    assert [(record.format, record.characters) for record in records] == [("text", 15), ("text", 23)]
    assert [[found.code.name for found in record.findings] for record in records] == [[], ["json-lone-surrogate"]]
    assert [str(record.path).rpartition("/")[2] for record in records] == ["a.jsonl line 1", "a.jsonl line 3"]


def test_a_file_that_changes_meanwhile(tmp_path):
    rows = subject(table(tmp_path, jpg=[JPEG]))
    table(tmp_path, jpg=[JPEG, JPEG])
    assert [found.code.name for found in rows.load(0, HOW).findings] == ["unreadable"]
