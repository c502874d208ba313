import os
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fastfeed.media import Codec, Probe
from fastfeed.packer.rows.record import RowRecord
from fastfeed.packer.rows.source import RowIndex

SAMPLES = st.lists(
    st.tuples(
        st.lists(st.tuples(st.sampled_from(["jpg", "txt", "cls", "json"]), st.text(st.characters(codec="utf-8"), max_size=5)),
                 min_size=1, max_size=3),
        st.none() | st.integers(0, 2**62),
        st.dictionaries(st.sampled_from("abc"), st.booleans() | st.integers() | st.floats() | st.text(max_size=3)),
    ),
    min_size=1, max_size=6,
)  # fmt: skip


def record_of(samples):
    record = RowRecord(sha256="ab", size_bytes=5, tar_bytes=6, order="order")
    for at, (members, label, scalars) in enumerate(samples):
        for number, (name, source) in enumerate(members):
            facts: dict[str, Any] = {
                "offset": at,
                "size_bytes": number,
                "xxh3": 2**64 - 1 - at,
                "probe": Probe(Codec.PNG, at, 3, 6),
            }
            record.add_member(name, source, made=name == "cls", **facts)
        record.add_sample(f"k{at}", len(members), label, scalars)
    return record


@given(SAMPLES)
def test_a_record_comes_back(tmp_path_factory, samples):
    path = tmp_path_factory.getbasetemp() / "record"
    record = record_of(samples)
    with open(path, "wb") as file:
        record.save(file)
    found = RowRecord.load(str(path))
    assert found is not None
    for name in (
        "keys",
        "members_per_sample",
        "labels",
        "fields",
        "sources",
        "members",
        "sha256",
        "size_bytes",
        "tar_bytes",
        "order",
    ):
        assert getattr(found, name) == getattr(record, name)
    for name, column in record.scalars.items():
        assert repr(list(found.scalars[name].values())) == repr(list(column.values()))
    assert [found.label(at) for at in range(len(samples))] == [label for _, label, _ in samples]
    missing = [label is None for _, label, _ in samples]
    assert found.is_labelled == (None if len(set(missing)) == 2 else not missing[0])
    assert list(found.samples()) == [
        (f"k{at}", [(name, 2**64 - 1 - at) for name, _ in members]) for at, (members, _, _) in enumerate(samples)
    ]


def test_rows_of_jpegs_come_back_where_they_were_wanted(tmp_path):
    record = record_of([([("jpg", "a"), ("txt", "b")], 3, {}), ([("jpg", "c")], 4, {})])
    assert not record.pixels
    for index in (RowIndex("indexed", b"12345678", 2**64 - 1), None, RowIndex("no JPEG")):
        record.add_rows(index)
    with open(tmp_path / "record", "wb") as file:
        record.save(file)
    found = RowRecord.load(str(tmp_path / "record"))
    assert found is not None
    assert list(found.jpeg_rows) == [b"12345678", b"", b""]
    assert found.pixels.tolist() == [2**64 - 1, 0, 0]
    assert found.outcomes == {"indexed": 1, "no JPEG": 1}
    found.jpeg_rows.extend([b"x"])
    assert found.jpeg_rows[3] == b"x"


def test_a_damaged_record_is_none(tmp_path):
    path = tmp_path / "record"
    assert RowRecord.load(str(path)) is None
    with open(path, "wb") as file:
        record_of([([("jpg", "a")], 3, {"n": 5})]).save(file)
    raw = path.read_bytes()
    for at in range(0, len(raw), 31):
        path.write_bytes(raw[:at] + bytes([raw[at] ^ 4]) + raw[at + 1 :])
        found = RowRecord.load(str(path))
        assert found is None or found.keys == ["k0"]  # a flipped bit of the padding between columns
    for at in range(0, len(raw), 53):
        os.truncate(path, 0)
        path.write_bytes(raw[:at])
        assert RowRecord.load(str(path)) is None
