import io

import pytest
from helpers import encoded, photo
from packing import tree

from fastfeed.archive.tar import MAX_MEMBER_BYTES
from fastfeed.media import Codec
from fastfeed.packer.rows.record import RowRecord
from fastfeed.packer.rows.source import Row, RowFailed, RowMember
from fastfeed.packer.rows.writer import RowOrder, RowsFailed, RowShardWriter, wrong_with
from fastfeed.packer.worker import DiskFailed
from fastfeed.source import wire


class Rows:
    """Rows from a list; an exception in it is raised."""

    def __init__(self, rows):
        self.given, self.asked = rows, []

    def rows(self, numbers):
        for number in numbers:
            self.asked.append(number)
            if isinstance(self.given[number], Exception):
                raise self.given[number]
            yield self.given[number]


def row(*members, label=None, **scalars):
    return Row(tuple(RowMember(*member) for member in members), label, scalars or None)


def order_for(folder, count, **changes):
    values = {
        "number": 0, "target": str(folder / "d-000000.tar"), "part": str(folder / "part"), "record": str(folder / "record"),
        "digest": "d", "numbers": list(range(count)), "keys": [f"k{at}" for at in range(count)], "write_cls": True,
    }  # fmt: skip
    return RowOrder(**{**values, **changes})


def written(folder, rows, **changes):
    told = []
    order = order_for(folder, len(rows), **changes)
    RowShardWriter(order, lambda files, size: told.append((files, size))).run(Rows(rows))
    record = RowRecord.load(order.record)
    assert record is not None
    return record, told


def test_a_shard_and_its_record(tmp_path):
    image = encoded(photo(1, (20, 10)))
    rows = [row(("jpg", image, "a/1.jpg"), ("txt", b"x", ""), label=3, n=5), row(("jpg", b"no image", ""), label=0)]
    record, told = written(tmp_path, rows)
    assert record.keys == ["k0", "k1"] and list(record.labels) == [3, 0] and list(record.members_per_sample) == [3, 2]
    names = [record.fields[number] for number in record.members["field"]]
    assert names == ["cls", "jpg", "txt", "cls", "jpg"] and list(record.members["made"]) == [1, 0, 0, 1, 0]
    assert record.sources == ["", "a/1.jpg", "", "", ""]
    assert (list(record.members["codec"]), list(record.members["width"])) == ([0, Codec.JPEG, 0, 0, 0], [0, 20, 0, 0, 0])
    assert list(record.scalars["n"].values()) == [5, None]
    raw = (tmp_path / "d-000000.tar").read_bytes()
    assert len(raw) == record.size_bytes
    for at, (offset, size) in enumerate(zip(record.members["offset"], record.members["size"], strict=True)):
        assert raw[offset : offset + size] == [b"3", image, b"x", b"0", b"no image"][at]
    assert sum(files for files, _ in told) == 2 and sum(size for _, size in told) == len(image) + len(b"3x0no image")
    record, _ = written(tmp_path, rows, write_cls=False)
    assert len(record.sources) == 3 and list(record.labels) == [3, 0]


@pytest.mark.parametrize(
    ("bad", "match"),
    [
        (row(), "it has nothing to store: every value is missing"),
        (row(label=3), "it has nothing to store: it is only its class"),
        (row(("jpg", b"", ""), ("jpg", b"", "")), "it has a field twice: jpg, jpg"),
        (row(("cls", b"3", ""), label=3), "it has a field cls of its own beside its class"),
        (row(("JPG", b"", "")), "its field 'JPG' is not legal: words of a-z 0-9"),
        (row(("x" * 33, b"", "")), "is not legal"),
        (row(("x" * 32, b"", "")), None),
    ],
    ids=map(str, range(6)),
)
def test_rows_that_break_a_rule(bad, match):
    found = wrong_with("k" * 60, bad)
    assert found is None if match is None else found is not None and match in found


def test_keys_that_are_too_long_and_members_that_are_too_large():
    assert "is too long for field 'jpg'" in (wrong_with("k" * 97, row(("jpg", b"", ""))) or "")
    assert wrong_with("k" * 96, row(("jpg", b"", ""))) is None

    class Huge(bytes):
        def __len__(self):
            return MAX_MEMBER_BYTES + 1

    assert "8 GiB or more" in (wrong_with("k", row(("jpg", Huge(), ""))) or "")


def failed(number, kind="unreadable"):
    return RowFailed(number, f"sample {number}", kind, "why")


def test_failures_leave_nothing_and_are_all_named(tmp_path):
    rows = [row(("txt", b"%d" % at, "")) for at in range(10)]
    rows[3], rows[7], rows[8] = failed(3), failed(7, "changed"), row()
    with pytest.raises(RowsFailed) as caught:
        written(tmp_path, rows)
    assert [(item.number, item.kind) for item in caught.value.rows] == [(3, "unreadable"), (7, "changed"), (8, "unreadable")]
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_stops_names_only_some_of_very_many(tmp_path):
    for go_on, expected in ((False, 100), (True, 250)):
        with pytest.raises(RowsFailed) as caught:
            written(tmp_path, [failed(at) for at in range(250)], go_on=go_on)
        assert len(caught.value.rows) == expected


def test_a_run_that_stops_does_not_read_on_for_long(tmp_path, monkeypatch):
    now = iter(range(1000))
    monkeypatch.setattr("fastfeed.packer.rows.writer.time.monotonic", lambda: float(next(now)))
    source = Rows([failed(0), *(row(("txt", b"x", "")) for _ in range(500))])
    with pytest.raises(RowsFailed):
        RowShardWriter(order_for(tmp_path, 501), lambda files, size: None).run(source)
    assert len(source.asked) < 10


def test_what_the_system_refuses_to_a_source_is_the_sources(tmp_path):
    rows = [row(("txt", b"x", "")), OSError(5, "Input/output error", "/data/x.jpg")]
    with pytest.raises(RowsFailed) as caught:
        written(tmp_path, rows)
    (item,) = caught.value.rows
    assert (item.number, item.why) == (1, "/data/x.jpg: Input/output error")


def test_what_the_system_refuses_to_the_writer_is_the_disks(tmp_path):
    tree(tmp_path, {"file": "x"})
    with pytest.raises(DiskFailed) as caught:
        written(tmp_path, [row(("txt", b"x", ""))], part=str(tmp_path / "file" / "part"))
    assert "Not a directory" in caught.value.args[0]


def test_orders_pass_the_pipe(tmp_path):
    order = order_for(tmp_path, 3, keys=["a", "ü\udcff", "c"], go_on=True)
    file = io.BytesIO(order.encode())
    message = wire.read(file)
    assert message is not None and RowOrder.decode(message) == order
    assert (order.doing, order.shard) == ("packed 3 samples from sample 0 to sample 2", "d-000000.tar")
