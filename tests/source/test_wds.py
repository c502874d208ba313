"""Which members make a sample: webdataset's rules, compared with webdataset itself, and what it would lose or break."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tarring import BLOCK, offsets, pairs, replaced, tar_of, webdataset_reads, write_tar

from fastfeed.archive.tars import NO_LABEL
from fastfeed.source.tarwalk import Walk
from fastfeed.source.wds import Grouper, TarRows, key_and_extension, why_none
from fastfeed.store.blocks import PlainBlocks


def rows_of(raw: bytes) -> TarRows:
    with tempfile.TemporaryFile() as file:
        file.write(raw)
        file.flush()
        return Grouper().take(Walk(PlainBlocks(file.fileno())).run())


def samples(raw: bytes) -> list[tuple[str, dict[str, bytes]]]:
    """Key and content by field of each sample."""
    rows, found, at = rows_of(raw), [], 0
    for key, count in zip(rows.keys, rows.counts, strict=True):
        own = {}
        for row in range(at, at + count):
            start, size = rows.offsets[row], rows.sizes[row]
            own[rows.fields[rows.member_fields[row]]] = raw[start : start + size]
        assert len(own) == count
        found.append((key.decode(), own))
        at += count
    assert at == len(rows.offsets) == len(rows.sizes) == len(rows.digests) == len(rows.member_fields)
    assert len(rows.labels) == len(rows.keys)
    return found


def kinds(raw: bytes) -> list[str]:
    return [finding.kind for finding in rows_of(raw).findings]


# ------------------------------------------------------------------------------------------------ names
@pytest.mark.parametrize(
    ("name", "key", "extension"),
    [
        (b"a.jpg", b"a", b"jpg"),
        (b"a/b.seg.PNG", b"a/b", b"seg.PNG"),
        (b"a.b/c.txt", b"a.b/c", b"txt"),
        (b"./a.jpg", b"./a", b"jpg"),
        (b"22.05.png", b"22", b"05.png"),
        (b"a//b.c", b"a//b", b"c"),
        (b"a", b"a", b""),
        (b"a.", b"a", b""),
        (b".a.jpg", b"", b"a.jpg"),
    ],
)
def test_key_and_extension(name: bytes, key: bytes, extension: bytes):
    """[P13]"""
    assert key_and_extension(name) == (key, extension)


@settings(deadline=None)
@given(st.text(st.sampled_from("ab./_\u00e9 A"), min_size=1, max_size=12))
def test_names_as_webdataset_splits_them(name: str):
    """[P13]: but for hidden names, of which webdataset makes samples called like their folder."""
    from webdataset.tariterators import base_plus_ext

    key, extension = base_plus_ext(name)
    ours = key_and_extension(name.encode())
    none = why_none(name.encode())
    if none is not None and none[0] in {"hidden", "meta"}:
        return
    if key is None or not extension:
        assert none is not None and none[0] == "no-field"
    else:
        assert (none, ours) == (None, (key.encode(), extension.encode()))


def test_what_is_no_member_is_told():
    """[P13] [P16]"""
    names = ["a.txt", "README", "d/.b.txt", "._a.txt", "d/.txt", "__meta__", "__x__/a.txt", "d/__y__.txt", "b.", "__z__.txt"]
    raw = tar_of((name, b"%d" % number) for number, name in enumerate(names))
    assert samples(raw) == [("a", {"txt": b"0"}), ("d/__y__", {"txt": b"7"}), ("__z__", {"txt": b"9"})]
    assert kinds(raw) == ["no-field", "hidden", "hidden", "hidden", "meta", "meta", "no-field"]
    finding = rows_of(raw).findings[0]
    assert (finding.start, finding.stop) == (offsets(raw)[1], offsets(raw)[1] + BLOCK + 1)
    assert finding.text == "README is part of no sample: its name has no extension"


# ------------------------------------------------------------------------------------------------ grouping
@settings(max_examples=150, deadline=None)
@given(st.data())
def test_tars_that_webdataset_reads_are_read_as_it_reads_them(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject):
    keys = data.draw(st.lists(st.text(st.sampled_from("ab/x_"), min_size=1, max_size=6), unique=True, max_size=6))
    extensions = st.lists(st.sampled_from(["jpg", "JSON", "seg.png", "cls", "txt"]), unique=True, max_size=4)
    names = [f"{key}.{extension}" for key in keys for extension in data.draw(extensions)]
    listed = [(name, data.draw(st.binary(max_size=30))) for name in names if why_none(name.encode()) is None]
    path = write_tar(tmp_path_factory.mktemp("wds") / "a.tar", listed)
    theirs = [(sample.pop("__key__"), sample) for sample in webdataset_reads([path])]
    assert samples(path.read_bytes()) == theirs


def test_members_that_do_not_stand_together_are_joined():
    """[P14]: webdataset makes four broken samples of them."""
    listed = [("a.jpg", b"1"), ("b.jpg", b"2"), ("a.cls", b"3"), ("b.cls", b"4")]
    raw = tar_of(listed)
    assert samples(raw) == [("a", {"jpg": b"1", "cls": b"3"}), ("b", {"jpg": b"2", "cls": b"4"})]
    assert kinds(raw) == ["joined", "joined"]
    finding = rows_of(raw).findings[0]
    assert finding.text == "members of a do not stand together: joined with those from byte 0 on"
    assert finding.start == offsets(raw)[2]


def test_a_field_that_comes_again_begins_a_new_sample(tmp_path: Path):
    """[P14]: both samples are kept, as webdataset keeps them where they do not touch; where they touch, it stops."""
    raw = tar_of([("a.jpg", b"1"), ("a.cls", b"2"), ("b.jpg", b"3"), ("a.jpg", b"4"), ("a.cls", b"5")])
    assert samples(raw) == [("a", {"jpg": b"1", "cls": b"2"}), ("b", {"jpg": b"3"}), ("a", {"jpg": b"4", "cls": b"5"})]
    assert kinds(raw) == ["repeated-key"]
    assert rows_of(raw).findings[0].text == "a.jpg comes again, as at byte 0: the key has two samples"
    touching = tar_of([("a.jpg", b"1"), ("a.jpg", b"2"), ("a.JPG", b"3"), ("a.cls", b"4")])
    assert samples(touching) == [("a", {"jpg": b"1"}), ("a", {"jpg": b"2"}), ("a", {"jpg": b"3", "cls": b"4"})]
    (tmp_path / "a.tar").write_bytes(touching)
    with pytest.raises(ValueError, match="duplicate file name in tar file"):
        webdataset_reads([tmp_path / "a.tar"])


def test_names_whose_case_is_not_the_fields():
    raw = tar_of([("a.JPG", b"1"), ("b.jpg", b"2"), ("c.Seg.PNG", b"3")])
    rows = rows_of(raw)
    assert rows.fields == ["jpg", "seg.png"]
    assert rows.names == {0: b"a.JPG", 2: b"c.Seg.PNG"}
    joined = rows_of(tar_of([("a.txt", b"1"), ("b.txt", b"2"), ("a.JPG", b"3")]))
    assert joined.names == {1: b"a.JPG"}


def test_names_that_are_not_utf_8(tmp_path: Path):
    path = write_tar(tmp_path / "a.tar", [("caf\udce9.t\udcffXT", b"1")])
    assert rows_of(path.read_bytes()).keys == [b"caf\xe9"]
    assert rows_of(path.read_bytes()).fields == ["t\udcffxt"]
    assert webdataset_reads([path]) == [{"__key__": "caf\udce9", "t\udcffxt": b"1"}]


def test_labels():
    assert list(rows_of(tar_of(pairs(12))).labels) == [number % 10 for number in range(12)]
    odd = [
        ("a.cls", b"7\n"),
        ("b.cls", b"-3"),
        ("c.cls", b"cat"),
        ("d.txt", b"1"),
        ("e.cls", b""),
        ("f.cls", b"1" * 30),
        ("f.txt", b"2"),
    ]
    assert list(rows_of(tar_of(odd)).labels) == [7, -3, NO_LABEL, NO_LABEL, NO_LABEL, NO_LABEL]
    apart = [("a.txt", b"1"), ("b.txt", b"2"), ("b.cls", b"5"), ("a.cls", b"4")]
    assert list(rows_of(tar_of(apart)).labels) == [4, 5]


# ------------------------------------------------------------------------------------------------ damage
def test_a_sample_that_damage_has_taken_a_member_of_is_left_out():
    """[P15]"""
    raw = tar_of(pairs(6))
    for member in range(12):
        rows = rows_of(replaced(raw, offsets(raw)[member] + 148, b"\0" * 8))
        gone = f"{member // 2:06d}".encode()
        assert rows.keys == [f"{number:06d}".encode() for number in range(6) if number != member // 2]
        assert list(rows.counts) == [2] * 5
        assert rows.dropped == 1
        assert [finding.kind for finding in rows.findings] == ["damaged", "dropped"]
        has = "txt" if member % 2 else "cls"
        took = "what is damaged beside it took members of it"
        text = f"sample {gone.decode()} is left out: {took}; it still has {has}, others have cls+txt"
        assert rows.findings[1].text == text


def test_whole_samples_beside_damage_stay():
    """[P15]: what lies between two samples costs neither."""
    listed = pairs(5)
    raw = tar_of([*listed[:4], ("000001b.txt", b"x"), ("000001b.cls", b"1"), *listed[4:]])
    start, stop = offsets(raw)[4], offsets(raw)[6]
    rows = rows_of(replaced(raw, start, b"\xa5" * (stop - start)))
    assert len(rows.keys) == 5
    assert rows.dropped == 0
    assert [finding.kind for finding in rows.findings] == ["damaged"]


def test_a_cut_tar_loses_its_last_sample_and_says_so():
    raw = tar_of(pairs(5))
    for cut, kind in ((offsets(raw)[9], "open-end"), (offsets(raw)[9] + 100, "cut"), (offsets(raw)[8] + BLOCK + 5, "cut")):
        rows = rows_of(raw[:cut])
        assert (len(rows.keys), rows.dropped) == (4, 1), cut
        assert rows.findings[0].kind == kind
    whole = rows_of(raw[: offsets(raw)[8]])
    assert (len(whole.keys), whole.dropped, [finding.kind for finding in whole.findings]) == (4, 0, ["open-end"])


def test_a_sample_without_other_members_is_counted_by_its_name():
    raw = tar_of([(f"{number}.bin", b"x" * 3000) for number in range(3)])
    rows = rows_of(raw[: offsets(raw)[2] + BLOCK + 1000])
    assert (len(rows.keys), rows.dropped) == (2, 1)


def test_where_members_lie_apart_the_usual_fields_decide():
    """[P15]"""
    texts, classes = [item for item in pairs(6) if "txt" in item[0]], [item for item in pairs(6) if "cls" in item[0]]
    raw = tar_of(texts + classes)
    rows = rows_of(replaced(raw, offsets(raw)[2] + 148, b"\0" * 8))
    assert rows.keys == [f"{number:06d}".encode() for number in (0, 1, 3, 4, 5)]
    assert rows.dropped == 1
    assert list(rows.labels) == [0, 1, 3, 4, 5]


def test_one_sample_alone_has_nothing_to_compare_with():
    raw = tar_of([("a.txt", b"1"), ("a.cls", b"2"), ("a.json", b"{}")])
    rows = rows_of(replaced(raw, offsets(raw)[1] + 148, b"\0" * 8))
    assert (rows.keys, rows.dropped) == ([b"a"], 0)
    assert [finding.kind for finding in rows.findings] == ["damaged"]
