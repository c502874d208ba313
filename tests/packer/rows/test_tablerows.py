import json
import os
import random
import subprocess
import sys

import pyarrow as pa
import pytest
from helpers import ROOT
from pyarrow import parquet
from rowsets import read_rows

from fastfeed.config import row_config
from fastfeed.packer.rows import tablerows
from fastfeed.packer.rows.parquet import ParquetRows
from fastfeed.packer.rows.source import RowFailed
from fastfeed.packer.rows.tablefile import Cursor, TableFile
from fastfeed.packer.rows.tablerows import RowNames, TableRows


@pytest.fixture
def table(tmp_path):
    """30 rows in three files, seven groups; row i holds i."""
    for file, first in enumerate((0, 10, 20)):
        rows = pa.table({"x": [b"%d" % at for at in range(first, first + 10)]})
        parquet.write_table(rows, tmp_path / f"{file}.parquet", row_group_size=(4, 10, 5)[file])
    found = ParquetRows([str(tmp_path / f"{file}.parquet") for file in range(3)], row_config({}))
    found.facts()
    return TableRows.from_spec(json.loads(json.dumps(found.spec())))


def numbers(table, wanted):
    return [int(row.members[0].data) for row in read_rows(table, wanted)]


@pytest.mark.parametrize("wanted", [range(30), [3, 4, 29], [0], [29, 0], range(29, -1, -1), []], ids=map(str, range(6)))
def test_rows_by_number(table, wanted):
    assert numbers(table, list(wanted)) == list(wanted)


def test_rows_in_random_order(table):
    wanted = list(range(30))
    random.Random(1).shuffle(wanted)
    assert numbers(table, wanted) == wanted


def test_a_shuffled_shard_is_gathered_in_parts_that_memory_takes(table, monkeypatch):
    monkeypatch.setattr(tablerows, "GATHER_BYTES", 4 * table.mean_bytes(0))
    wanted = list(range(29, -1, -1))
    parts = list(table._parts(wanted))
    assert [at for part in parts for at in part] == wanted and 5 <= max(map(len, parts[:2])) <= 6
    assert numbers(table, wanted) == wanted


def test_orders_that_rise_read_each_group_once(table, monkeypatch):
    opened = []

    class Counting(Cursor):
        def __init__(self, file, group, rows):
            opened.append((os.path.basename(file.path), group))
            super().__init__(file, group, rows)

    monkeypatch.setattr(tablerows, "Cursor", Counting)
    for first in range(0, 30, 3):  # as a worker gets one shard after the other
        assert numbers(table, list(range(first, first + 3))) == list(range(first, first + 3))
    assert opened == [
        ("0.parquet", 0),
        ("0.parquet", 1),
        ("0.parquet", 2),
        ("1.parquet", 0),
        ("2.parquet", 0),
        ("2.parquet", 1),
    ]


def test_few_files_are_open_at_once(tmp_path, monkeypatch):
    closed = []
    monkeypatch.setattr(TableFile, "close", lambda self: closed.append(os.path.basename(self.path)))
    for file in range(9):
        parquet.write_table(pa.table({"x": [b"%d" % file]}), tmp_path / f"{file}.parquet")
    rows = ParquetRows([str(tmp_path / f"{file}.parquet") for file in range(9)], row_config({}))
    rows.facts()
    closed.clear()
    assert numbers(rows, list(range(9))) == list(range(9))
    assert len(closed) >= 5  # all but four


def test_a_file_that_changed_is_noticed_at_each_group_and_at_the_end(table):
    path = table.files[0].path
    assert numbers(table, [0, 1]) == [0, 1]
    os.utime(path, ns=(1, 1))
    found = list(table.rows([2, 3, 4]))
    assert [isinstance(row, RowFailed) and row.kind for row in found] == [False, False, "changed"]
    found = list(table.rows([2]))
    assert isinstance(found[0], RowFailed) and found[0].kind == "changed"  # before the order is done
    os.unlink(path)
    (row,) = table.rows([9])
    assert isinstance(row, RowFailed) and row.kind == "changed" and "the file has gone" in row.why


def test_names_of_rows():
    names = RowNames(["/a/x.parquet", "/b/y.parquet"], [0, 2, 5])
    assert len(names) == 5 and list(names) == [
        "x.parquet row 0",
        "x.parquet row 1",
        *(f"y.parquet row {at}" for at in range(3)),
    ]
    assert names[-1] == "y.parquet row 2" and names[1:3] == ["x.parquet row 1", "y.parquet row 0"]


def test_groups_are_looked_at_evenly(table):
    assert table.spread(3, 2) == [0, 1, 8, 9, 25, 26]
    assert len(table.spread(100, 1)) <= 30 and set(table.spread(1, 5)) == {0, 1, 2, 3}


MEMORY = """
import sys
import pyarrow as pa
from pyarrow import parquet
from fastfeed.config import row_config
from fastfeed.packer.rows.parquet import ParquetRows
from rowsets import peak_mebibytes

path = sys.argv[1]
rows = ParquetRows([path], row_config({}))
count = rows.facts().count
first = sum(len(row.members[0].data) for row in rows.rows(range(0, count // 8)))
early = peak_mebibytes()
rest = sum(len(row.members[0].data) for row in rows.rows(range(count // 8, count)))
print(early, peak_mebibytes(), first + rest)
"""


@pytest.mark.long
def test_the_memory_of_a_worker_stays_flat(tmp_path):
    """200 MB of rows in groups of 10: an eighth of them takes as much as all."""
    path = tmp_path / "x.parquet"
    writer = parquet.ParquetWriter(path, pa.schema([("x", pa.binary())]), compression="none")
    for _ in range(20):
        writer.write_table(pa.table({"x": [os.urandom(1 << 20) for _ in range(10)]}))
    writer.close()
    env = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT}/tests"}
    done = subprocess.run([sys.executable, "-c", MEMORY, path], cwd=ROOT, capture_output=True, text=True, check=True, env=env)
    early, late, size = map(int, done.stdout.split())
    assert size == 200 << 20
    assert late - early < 60, f"{early} MiB after an eighth, {late} MiB at the end"
