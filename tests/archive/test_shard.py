"""fastfeed/archive/shard.py against README.md §2 and §3: names, headers, and shards that are not what they should be."""

import re
import shutil
import string
import tarfile

import pytest
import xxhash
from helpers import (
    ColumnFile,
    flip_bit,
    flipped,
    make_captioned,
    pack_photos,
    packed,
    rewrite_index,
    rewrite_manifest,
    rewrite_shard,
)
from hypothesis import given, settings
from hypothesis import strategies as st

import fastfeed
from fastfeed.archive import tar
from fastfeed.archive.shard import (
    LEGAL_FIELD,
    LEGAL_KEY,
    SHARD_NAME,
    all_legal_keys,
    check_header,
    digest,
    member_name,
    shard_file,
)
from fastfeed.errors import IndexDamaged, ShardDamaged

LETTERS = string.ascii_letters + string.digits + "_+@=,~%^!#()-"


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    return pack_photos(tmp_path_factory.mktemp("shard"), each=2, name="set")


@pytest.fixture
def dataset(original, tmp_path):
    """A copy to damage: one shard of four photos, each with a cls member before it."""
    return shutil.copytree(original, tmp_path / "packed")


def found(dataset) -> str:
    """What verify says, as one text."""
    return "\n".join(f"{finding.kind}: {finding.text}" for finding in fastfeed.verify(dataset).findings)


def test_names():
    assert shard_file("train", 3) == "train-000003.tar"
    assert shard_file("train", 1_234_567) == "train-1234567.tar"
    assert member_name("cat/001", "jpg") == "cat/001.jpg"


@pytest.mark.parametrize("name", ["train-000000.tar", "a_b-c-1234567.tar", "a-000000.tar.zst", "0" * 60 + "-000000.tar"])
def test_n1_shard_names(name):
    assert SHARD_NAME.fullmatch(name)


@pytest.mark.parametrize(
    "name", ["train-00000.tar", "-000000.tar", "a.b-000000.tar", "a b-000000.tar", "a-000000.tar.gz",
             "a-000000.tar.zst.zst", "a-000000.zst", "../a-000000.tar",
             "x" * 61 + "-000000.tar", "é-000000.tar", "a-000000.tar\n"],
)  # fmt: skip
def test_n1_names_that_are_none(name):
    assert not SHARD_NAME.fullmatch(name)


@pytest.mark.parametrize("key", ["a", "a/b/c", "cat/n01_+@=,~%^!#()-", "_a", "a__b", "-", "A"])
def test_n4_legal_keys(key):
    assert LEGAL_KEY.fullmatch(key)


ILLEGAL = ["", "/a", "a/", "a//b", ".a", "a.b", "a/.b", "__a", "a/__b", "./a", "a/../b", "é", "a\0", "a\n"]
ILLEGAL += [f"a{letter}b" for letter in " ;\\:*'\"&$|<>{}[]?`"]


@pytest.mark.parametrize("key", ILLEGAL)
def test_n4_illegal_keys(key):
    assert not LEGAL_KEY.fullmatch(key)


@settings(max_examples=200)
@given(st.text(st.sampled_from(LETTERS + "/. ;é"), max_size=12))
def test_n4_a_key_is_legal_by_the_words_of_the_specification(key):
    parts = key.split("/")
    assert bool(LEGAL_KEY.fullmatch(key)) == all(
        part and not part.startswith("__") and all(letter in LETTERS for letter in part) for part in parts
    )


@settings(max_examples=300)
@given(st.lists(st.text(st.sampled_from("aZ0-_/. \n;é"), max_size=5), max_size=4))
def test_n4_many_keys_at_once_are_legal_exactly_if_each_is(keys):
    assert all_legal_keys(keys) == all(map(LEGAL_KEY.fullmatch, keys))


@pytest.mark.parametrize("name", ["jpg", "mask.png", "a-b_c+d.e0"])
def test_n6_legal_fields(name):
    assert LEGAL_FIELD.fullmatch(name)


@pytest.mark.parametrize("name", ["", "JPG", ".jpg", "jpg.", "a..b", "a b", "a/b", "é", "a;b", "jpg\n"])
def test_n6_illegal_fields(name):
    assert not LEGAL_FIELD.fullmatch(name)


def test_the_checksum_of_a_payload_takes_any_buffer():
    right = xxhash.xxh3_64_intdigest(b"payload")
    assert digest(b"payload") == digest(bytearray(b"payload")) == digest(memoryview(b"payload")) == right


def test_t1_each_flipped_bit_of_a_header_is_refused():
    right = tar.header(b"cat/1.jpg", 700)
    check_header(right, "cat/1.jpg", 700)
    for bit in range(len(right) * 8):
        with pytest.raises(ShardDamaged, match=f"the tar header of a member is damaged at its byte {bit // 8} "):
            check_header(flipped(right, bit), "cat/1.jpg", 700)


def test_t1_the_error_says_where():
    with pytest.raises(
        ShardDamaged, match=r"byte 5 \(shard s-000000.tar, sample 3, key 'a', member 'a.jpg', bytes \[512, 1024\)\)"
    ):
        check_header(tar.header(b"a.jpgx", 1), "a.jpg", 1, shard="s-000000.tar", sample=3, key="a", start=512, stop=1024)
    with pytest.raises(ShardDamaged, match="damaged at its byte 100 "):
        check_header(tar.header(b"a.jpg", 1)[:100], "a.jpg", 1)


def test_t2_a_name_that_no_header_holds_is_the_indexs_fault():
    with pytest.raises(IndexDamaged, match="the index names a member that no tar header holds"):
        check_header(bytes(512), "a" * 97 + ".jpg", 1)


def test_a_packed_shard_is_what_the_specification_says(original):
    """T4 T5 N3 N7 N8 R1, read with Python's tarfile and a reader of the index written from the specification."""
    raw = (original / "set-000000.tar").read_bytes()
    index = ColumnFile.parse((original / ".fastfeed" / "index").read_bytes())
    with tarfile.open(original / "set-000000.tar") as file:
        infos = list(file)
    assert [info.name for info in infos] == [
        f"{key}.{field}" for key in ("cat/000", "cat/001", "dog/000", "dog/001") for field in ("cls", "jpg")
    ]
    at = 0
    for info, offset, size, source in zip(
        infos,
        index.numbers("member", "offset"),
        index.numbers("member", "size"),
        index.strings("member", "source"),
        strict=True,
    ):
        assert (info.offset, info.offset_data, info.size) == (at, offset, size)
        payload = raw[offset : offset + size]
        if info.name.endswith(".cls"):
            assert (payload, source) == ((b"0" if info.name.startswith("cat") else b"1"), b"")
        else:
            assert payload == (original.parent / "photos" / source.decode()).read_bytes()
        at = offset + size + -size % 512
    assert raw[at:] == bytes(len(raw) - at)
    assert len(raw) % 10240 == 0
    assert 1024 <= len(raw) - at < 1024 + 10240


def test_members_of_a_sample_are_sorted_by_field(tmp_path):
    """N7, and a shard of unequal files."""
    make_captioned(tmp_path / "in")
    packed(tmp_path / "in", tmp_path / "out", name="set")
    with tarfile.open(tmp_path / "out" / "set-000000.tar") as file:
        assert file.getnames()[:4] == ["000.jpg", "000.txt", "001.jpg", "001.txt"]


def test_an_undamaged_dataset_has_no_findings(dataset):
    assert found(dataset) == ""


@pytest.mark.parametrize(
    ("rule", "byte", "text"),
    [
        ("T1", 0, r"ShardDamaged: the tar header of a member is damaged at its byte 0 \(shard set-000000.tar, sample 0"),
        ("T1", 300, "the tar header of a member is damaged at its byte 300 .*sample 0, key 'cat/000', member 'cat/000.cls'"),
        ("T8", 512, "the bytes of a member differ from their checksum .*'cat/000.cls'"),
        ("T3", 513, r"the padding behind a member is not zeros .*bytes \[513, 1024\)"),
        (
            "T8",
            2000,
            (
                "the bytes of a member differ from their checksum "
                r"\(shard set-000000\.tar, sample 0, key 'cat/000', source 'cat/000\.jpg', member 'cat/000\.jpg'"
            ),
        ),
        ("T5", -1, "the end of a shard is not zeros"),
        ("T5", -10240 + 9000, "the end of a shard is not zeros"),
    ],
)
def test_a_flipped_bit_of_a_shard_is_found_and_told_apart(dataset, rule, byte, text):
    """T1 T3 T5 T7 T8: by verify, also where the manifest's sha256 was made to fit."""
    path = dataset / "set-000000.tar"
    flip_bit(path, byte % path.stat().st_size)
    assert re.search(text, found(dataset)), rule

    rewrite_shard(dataset, lambda raw: None)
    assert re.search(text, found(dataset)), rule


def test_t4_a_foreign_entry_between_members(dataset):
    def insert(raw: bytearray) -> None:
        raw[0:0] = tar.header(b"foreign.txt", 0)
        del raw[-512:]

    rewrite_shard(dataset, insert)
    assert "the tar header of a member is damaged at its byte 0 " in found(dataset)

    def move(index: ColumnFile) -> None:
        for row, offset in enumerate(index.numbers("member", "offset")):
            _set_number(index, "offset", row, offset + 512)

    rewrite_index(dataset, move)  # now the index leaves a gap where the foreign entry is
    assert "index and shard disagree where a member begins" in found(dataset)


def test_t6_a_cut_or_grown_shard(dataset):
    raw = (dataset / "set-000000.tar").read_bytes()
    (dataset / "set-000000.tar").write_bytes(raw[:-512])
    assert "a shard has the wrong size" in found(dataset)
    (dataset / "set-000000.tar").write_bytes(raw + bytes(512))
    assert "a shard has the wrong size" in found(dataset)


def test_t5_a_trailer_that_is_longer_than_it_may_be(dataset):
    rewrite_shard(dataset, lambda raw: raw.extend(bytes(10240)))
    assert "the end of a shard is not zeros up to a whole record" in found(dataset)


def test_t7_a_shard_of_another_pack_with_equal_layout(dataset):
    """Each byte fits its checksum in the index, but the manifest's sha256 is another's."""
    rewrite_manifest(dataset, lambda body: body["shards"][0].update(sha256="0" * 64))
    assert "a shard's sha256 differs from the manifest's" in found(dataset)


def test_n3_a_member_with_another_name(dataset):
    rewrite_shard(dataset, lambda raw: raw.__setitem__(slice(0, 512), tar.header(b"cat/999.cls", 1)))
    assert "the tar header of a member is damaged at its byte 4 " in found(dataset)


def test_n4_n5_a_key_that_is_illegal_or_there_twice(dataset):
    def change(index: ColumnFile) -> None:
        starts, data = index.column("sample", "key")
        index.replace("sample", "key", starts, data.replace(b"cat/001", b"CAT/000").replace(b"dog/001", b"dog.001"))

    rewrite_index(dataset, change)
    text = found(dataset)
    assert text.count("a key is not legal or not unique") == 2
    assert "'CAT/000'" in text
    assert "'dog.001'" in text


def test_n8_a_class_member_with_another_number(dataset):
    def change(raw: bytearray) -> None:
        raw[512:513] = b"1"

    rewrite_shard(dataset, change)
    rewrite_index(dataset, lambda index: _set_number(index, "xxh3", 0, digest(b"1")))
    assert "a class member holds another number than the index" in found(dataset)


def _set_number(index: ColumnFile, name: str, row: int, value: int) -> None:
    (raw,) = index.column("member", name)
    index.replace("member", name, raw[: row * 8] + value.to_bytes(8, "little") + raw[row * 8 + 8 :])


def test_n7_members_out_of_the_order_of_their_fields(dataset):
    """The two members of sample 1 change their names; everything else fits."""

    def rename(raw: bytearray) -> None:
        index = ColumnFile.parse((dataset / ".fastfeed" / "index").read_bytes())
        for row, name in ((2, b"cat/001.jpg"), (3, b"cat/001.cls")):
            offset, size = index.numbers("member", "offset")[row], index.numbers("member", "size")[row]
            raw[offset - 512 : offset] = tar.header(name, size)

    def swap(index: ColumnFile) -> None:
        (raw,) = index.column("member", "field")
        index.replace("member", "field", raw[:4] + raw[6:8] + raw[4:6] + raw[8:])

    rewrite_shard(dataset, rename)
    rewrite_index(dataset, swap)
    assert "its members do not stand in the order of the fields" in found(dataset)
