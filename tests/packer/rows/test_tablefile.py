import datetime as dt

import pyarrow as pa
import pytest
from pyarrow import feather, ipc, parquet

from fastfeed.errors import SourceUnreadable
from fastfeed.packer.rows.tablefile import Cursor, TableFile, holds_bytes, holds_media, holds_text, is_parquet, read_head

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC).replace(tzinfo=None)
TABLE = pa.table({"n": list(range(10)), "x": [bytes([at]) * at for at in range(10)]})
PAIR = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def write(folder, kind, table=TABLE, group=4):
    path = str(folder / f"x{kind}")
    if kind.lower() in {".parquet", ".pq"}:
        parquet.write_table(table, path, row_group_size=group)
    elif kind == ".feather":
        feather.write_feather(table, path, chunksize=group)
    else:
        make = ipc.new_stream if kind == ".stream.arrow" else ipc.new_file
        with pa.OSFile(path, "wb") as sink, make(sink, table.schema) as writer:
            writer.write_table(table, max_chunksize=group)
    return path


KINDS = [".parquet", ".PARQUET", ".pq", ".arrow", ".stream.arrow", ".feather"]


@pytest.mark.parametrize("kind", KINDS)
def test_groups_and_rows(tmp_path, kind):
    path = write(tmp_path, kind)
    head = read_head(path)
    assert head.counts == (4, 4, 2) and head.schema.names == ["n", "x"] and all(size > 0 for size in head.sizes)
    file = TableFile(path)
    found = [batch.to_pylist() for group in range(3) for batch in file.batches(group, 3)]
    assert [len(batch) for batch in found] == [3, 1, 3, 1, 2]
    assert [row for batch in found for row in batch] == TABLE.to_pylist()
    assert list(file.values("x")) == TABLE["x"].to_pylist()
    file.close()


@pytest.mark.parametrize("kind", KINDS)
def test_a_cursor_goes_forwards(tmp_path, kind):
    file = TableFile(write(tmp_path, kind, group=10))
    cursor = Cursor(file, 0, 3)
    rows = TABLE.to_pylist()
    assert [cursor.row(at) for at in (0, 1, 1, 2, 4)] == [rows[at] for at in (0, 1, 1, 2, 4)]
    assert cursor.can_reach(3) and not cursor.can_reach(2)
    assert [cursor.row(at, alone=True) for at in (5, 9)] == [rows[5], rows[9]]
    file.close()


def test_the_paths_of_media_without_their_bytes(tmp_path):
    table = pa.table({"image": pa.array([{"bytes": b"a", "path": "1.jpg"}, None, {"bytes": b"b", "path": None}], PAIR)})
    for kind in (".parquet", ".arrow"):
        file = TableFile(write(tmp_path, kind, table))
        assert list(file.values("image.path")) == ["1.jpg", None, None]
        file.close()


@pytest.mark.parametrize("kind", [".parquet", ".arrow", ".feather"])
def test_what_is_no_such_file(tmp_path, kind):
    path = tmp_path / f"x{kind}"
    for content in (b"", b"no table at all", b"PAR1 and more"):
        path.write_bytes(content)
        with pytest.raises(SourceUnreadable, match=r"the file cannot be read as (Parquet|Arrow): .*Copy it again"):
            read_head(str(path))
    path.unlink()
    with pytest.raises(SourceUnreadable, match="cannot be read as"):
        read_head(str(path))


def damaged(folder, group):
    """A Parquet file, one group of which does not decompress."""
    path = write(folder, ".parquet", pa.table({"n": list(range(300)), "x": [bytes(50)] * 300}), 100)
    column = parquet.ParquetFile(path).metadata.row_group(group).column(0)
    with open(path, "r+b") as file:
        file.seek(column.data_page_offset)
        file.write(b"\xff" * 20)
    return path


def test_a_damaged_group_is_named(tmp_path):
    file = TableFile(damaged(tmp_path, 1))
    assert Cursor(file, 0, 10).row(99)["n"] == 99
    cursor = Cursor(file, 1, 10)
    for _ in range(2):
        with pytest.raises(SourceUnreadable, match=r"row group 1 is damaged \(.*\).*Copy the file again"):
            cursor.row(5)
    with pytest.raises(SourceUnreadable, match="column 'n' cannot be read"):
        list(file.values("n"))
    assert Cursor(file, 2, 10).row(0)["n"] == 200
    file.close()


def test_a_value_that_python_has_not_spoils_no_other_row(tmp_path):
    stamps = pa.array([0, 2**62, 5_000_000], pa.timestamp("us"))
    file = TableFile(write(tmp_path, ".parquet", pa.table({"when": stamps})))
    cursor = Cursor(file, 0, 10)
    assert cursor.row(0)["when"] == EPOCH
    with pytest.raises((ValueError, OverflowError)):
        cursor.row(1)
    assert cursor.row(2)["when"] == EPOCH + dt.timedelta(seconds=5)
    file.close()


def test_types():
    assert is_parquet("a.PQ") and not is_parquet("a.arrow")
    assert all(map(holds_bytes, (pa.binary(), pa.large_binary(), pa.binary(4)))) and not holds_bytes(pa.string())
    assert holds_media(PAIR) and not holds_media(pa.struct([("bytes", pa.string()), ("path", pa.string())]))
    assert not holds_media(pa.binary()) and not holds_media(pa.struct([("bytes", pa.binary())]))
    assert all(map(holds_text, (pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string()))))
    assert not holds_text(pa.list_(pa.string())) and not holds_text(pa.dictionary(pa.int8(), pa.int64()))


@pytest.mark.parametrize("legacy", [False, True])
def test_a_stream_that_was_cut_between_batches(tmp_path, legacy):
    for table, group in ((TABLE, 4), (TABLE.slice(0, 0), 1)):
        path = str(tmp_path / "x.arrow")
        options = ipc.IpcWriteOptions(use_legacy_format=legacy)
        with pa.OSFile(path, "wb") as sink, ipc.new_stream(sink, table.schema, options=options) as writer:
            writer.write_table(table, max_chunksize=group)
        assert sum(read_head(path).counts) == len(table)
        with open(path, "rb+") as file:
            file.truncate(file.seek(0, 2) - (4 if legacy else 8))
        with pytest.raises(SourceUnreadable, match="cannot be read as Arrow: it ends without the mark of a stream's end"):
            read_head(path)
