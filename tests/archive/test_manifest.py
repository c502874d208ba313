"""fastfeed/archive/manifest.py against README.md §5: canonical, digested, and each field proven."""

import hashlib
import json
from typing import Any

import pytest
from helpers import canonical, flipped
from hypothesis import given, settings
from hypothesis import strategies as st

from fastfeed.archive import manifest
from fastfeed.archive.manifest import Compression, Group, Manifest, OwnedFile, ShardEntry
from fastfeed.errors import DatasetError, ManifestDamaged, VersionUnsupported

SHA = hashlib.sha256(b"").hexdigest()


def example(**changes: Any) -> Manifest:
    facts: dict[str, Any] = {
        "name": "train", "split": "train", "samples": 5, "members": 10, "source_files": 5, "source_bytes": 999,
        "source_digest": SHA, "layout": "classes", "order": "imagefolder", "fields": ("cls", "jpg"),
        "classes": ("cat", "caf\udce9"), "options": {"shards": 2}, "left_out_count": 0,
        "index": OwnedFile("index", 640, SHA), "left_out": OwnedFile("left-out.jsonl", 0, SHA),
        "shards": (ShardEntry("train-000000.tar", 3, 10240, SHA), ShardEntry("train-000001.tar", 2, 10240, SHA)),
    }  # fmt: skip
    return Manifest(**{**facts, **changes})


def refused(change: dict[str, Any], text: str = "the manifest breaks a rule") -> None:
    """A manifest with these fields changed (Ellipsis: removed) and a digest that fits is refused."""
    body = {**json.loads(manifest.encode(example())), **change}
    raw = canonical({name: value for name, value in body.items() if value is not ...})
    with pytest.raises(ManifestDamaged, match=text) as caught:
        manifest.decode(raw, "/data/manifest.json")
    assert caught.value.path == "/data/manifest.json"


counts = st.integers(0, 1 << 50)
shas = st.binary(min_size=32, max_size=32).map(bytes.hex)
names = st.text(max_size=8) | st.binary(max_size=8).map(lambda raw: raw.decode(errors="surrogateescape"))
fields = st.from_regex(r"[a-z0-9_+-]{1,9}(\.[a-z0-9]{1,9})?", fullmatch=True)


def is_folder_name(name: str) -> bool:
    """Whether a folder can be called so."""
    return name not in {"", ".", ".."} and "/" not in name and "\0" not in name


@st.composite
def manifests(draw) -> Manifest:
    count, base = draw(st.integers(1, 5)), draw(st.integers(1, 9))
    more = draw(st.integers(0, count - 1))
    compression = draw(st.none() | st.builds(Compression, st.just("zstd"), names, st.integers(4096, 1 << 26), counts))
    end = "" if compression is None else ".zst"
    listed = [
        ShardEntry(f"train-{at:06d}.tar{end}", base + (at < more), draw(counts), draw(shas), draw(counts) if end else None)
        for at in range(count)
    ]
    return example(
        compression=compression,
        samples=base * count + more,
        shards=tuple(listed),
        members=draw(counts),
        source_files=draw(counts),
        source_bytes=draw(counts),
        left_out_count=draw(counts),
        source_digest=draw(shas),
        classes=draw(st.none() | st.lists(names.filter(is_folder_name), unique=True).map(tuple)),
        fields=tuple(sorted(draw(st.sets(fields, min_size=1, max_size=4)))),
        options=draw(st.dictionaries(names, st.none() | st.booleans() | st.integers() | names, max_size=4)),
    )


@settings(max_examples=80, deadline=None)
@given(manifests())
def test_what_is_encoded_decodes(record):
    raw = manifest.encode(record)
    found = manifest.decode(raw, "x")
    assert found == record
    assert manifest.encode(found) == raw
    assert raw == canonical(json.loads(raw))  # the specification's words, written down a second time


@settings(max_examples=40)
@given(st.dictionaries(st.from_regex(r"[^./\0][^/\0]{0,20}", fullmatch=True), shas, min_size=1, max_size=4))
def test_a_group_decodes(splits):
    found = manifest.decode(manifest.encode(Group(splits=splits)), "x")
    assert isinstance(found, Group)
    assert dict(found.splits) == splits


def test_m2_the_digest_is_that_of_the_rest():
    raw = manifest.encode(example())
    body = json.loads(raw)
    digest = body.pop("digest")
    assert digest == hashlib.sha256((json.dumps(body, sort_keys=True, indent=1) + "\n").encode()).hexdigest()
    assert manifest.decode(raw, "x").digest == digest


@pytest.mark.parametrize("record", [example(), Group(splits={"train": SHA})], ids=["dataset", "group"])
def test_m1_m2_each_flipped_bit_is_refused(record):
    raw = manifest.encode(record)
    for bit in range(len(raw) * 8):
        with pytest.raises(DatasetError, match=r"the manifest is|format version"):
            manifest.decode(flipped(raw, bit), "x")


@settings(max_examples=60)
@given(st.integers(0, 1 << 20), st.binary(max_size=4))
def test_m1_m2_no_cut_and_no_insertion_is_accepted(at, more):
    raw = manifest.encode(example())
    at %= len(raw)
    for changed in (raw[:at], raw[:at] + (more or b" ") + raw[at:]):
        with pytest.raises(DatasetError, match=r"the manifest is|format version"):
            manifest.decode(changed, "x")


def test_m1_other_white_space_is_refused():
    raw = manifest.encode(example())
    for changed in (
        json.dumps(json.loads(raw)).encode(),
        raw + b"\n",
        b"\n" + raw,
        raw.replace(b"\n", b"\r\n"),
        raw.decode().encode("utf-16"),
    ):
        with pytest.raises(ManifestDamaged, match="the manifest is damaged: its own digest does not fit"):
            manifest.decode(changed, "x")


@pytest.mark.parametrize(
    "raw",
    [b"", b"{", b"[]", b"3", b"null", b'"version"', b"\xff\xfe", b"{}", b"[" * 100_000, b'{"version": ' + b"9" * 9999 + b"}"],
)
def test_m1_what_is_no_manifest(raw):
    with pytest.raises(ManifestDamaged, match="the manifest is not the JSON that it should be"):
        manifest.decode(raw, "x")


def test_m1_json_as_deep_as_the_parser_goes():
    for depth in range(100, 1200, 50):
        with pytest.raises(ManifestDamaged, match="the manifest is"):
            manifest.decode(b'{"version": 1, "x": ' + b"[" * depth + b"]" * depth + b"}", "x")


@pytest.mark.parametrize("version", [0, 2, 99, "1", 1.0, True, None, [1]])
def test_v1_another_version_is_refused_as_such(version):
    body = {**json.loads(manifest.encode(example())), "version": version}
    with pytest.raises(VersionUnsupported, match=r"the dataset has format version .*, this release reads 1.*Install a newer"):
        manifest.decode(canonical(body), "x")


@pytest.mark.parametrize("field", sorted(set(json.loads(manifest.encode(example()))) - {"version", "digest"}))
def test_m3_a_field_that_lacks(field):
    refused({field: ...})


def test_m3_a_field_too_many():
    refused({"colour": "green"}, "nobody knows: colour")
    refused({"index": {"file": "index", "size_bytes": 1, "sha256": SHA, "more": 1}}, "unexpected keyword argument 'more'")


@pytest.mark.parametrize("kind", ["group", "tree", None, 1])
def test_m3_a_kind_that_does_not_fit(kind):
    refused({"kind": kind})


@pytest.mark.parametrize("field", ["samples", "members", "source_files", "source_bytes", "left_out_count", "writer"])
@pytest.mark.parametrize("value", [-1, 1.5, "5", None, True, [5]], ids=str)
def test_m4_a_number_that_is_none(field, value):
    refused({field: value})


@pytest.mark.parametrize("value", ["", "0" * 63, "0" * 65, "G" * 64, "A" * 64, 0, None, "0" * 63 + "\n"])
def test_m4_a_sha256_that_is_none(value):
    refused({"source_digest": value}, "is not a sha256")
    refused({"index": {"file": "index", "size_bytes": 1, "sha256": value}}, "is not a sha256")
    refused({"shards": [{"file": "train-000000.tar", "samples": 5, "size_bytes": 1, "sha256": value}]}, "is not a sha256")


@pytest.mark.parametrize("size", [-1, "1", None, False, 0.5])
def test_m4_a_file_size_that_is_none(size):
    refused({"index": {"file": "index", "size_bytes": size, "sha256": SHA}}, "size_bytes of 'index' is")
    refused({"shards": [{"file": "a", "samples": 5, "size_bytes": size, "sha256": SHA}]}, "size_bytes of 'a' is")


def shards(*samples: Any, name: str = "train") -> list[dict[str, Any]]:
    return [{"file": f"{name}-{at:06d}.tar", "samples": n, "size_bytes": 512, "sha256": SHA} for at, n in enumerate(samples)]


def test_m5_samples_that_are_not_the_shards_sum():
    refused({"samples": 6}, "6 samples, but the shards sum up to 5")


@pytest.mark.parametrize("listed", [shards(3, 2)[::-1], shards(5, name="other"), [{**shards(5)[0], "file": "train-000001.tar"}],
    [{**shards(5)[0], "file": "train-0.tar"}], [{**shards(5)[0], "file": "../train-000000.tar"}]], ids=str)  # fmt: skip
def test_n1_m5_shards_that_have_other_names(listed):
    refused({"shards": listed}, "the shards are not called train-000000.tar and so on")


@pytest.mark.parametrize("name", ["../evil", "a/b", "/etc/passwd", "a.b", "", "x" * 61, "é", ".hidden"])
def test_n1_a_name_that_leads_out_of_the_folder_or_breaks_readers(name):
    refused({"name": name, "shards": shards(5, name=name)}, "the shards are not called")


@pytest.mark.parametrize("counts", [(), (0,), (5, 0), (4, 1), (1, 3, 1), (2, 2, 2, 0)])
def test_n2_shards_of_unequal_counts(counts):
    refused({"shards": shards(*counts), "samples": sum(counts)}, "none may be empty, and they may differ by one")


@pytest.mark.parametrize("listed", [None, "train", {"a": 1}, [None], [[]], ["train-000000.tar"]], ids=str)
def test_m5_shards_that_are_no_list_of_entries(listed):
    refused({"shards": listed})


@pytest.mark.parametrize(
    "fields",
    [[], ["jpg", "cls"], ["cls", "cls"], ["JPG"], ["a b"], ["x" * 33], [""], [1], "jpg", None, {"jpg": 1}, ["é"], ["jpg\n"]],
)
def test_n6_m6_fields_that_are_illegal(fields):
    refused({"fields": fields})


@pytest.mark.parametrize("classes", [["a", "a"], ["a", 1], "ab", 3, {"a": 0}, [None]])
def test_m6_classes_that_are_no_distinct_names(classes):
    refused({"classes": classes}, "classes are not a list of distinct names")


@pytest.mark.parametrize("field", ["name", "split", "layout", "order"])
def test_m3_a_text_that_is_none(field):
    refused({field: 3})


def test_m3_owned_files_have_their_names():
    refused({"index": {"file": "../index", "size_bytes": 1, "sha256": SHA}}, "are not called index and left-out.jsonl")
    refused({"left_out": {"file": "index", "size_bytes": 1, "sha256": SHA}}, "are not called index and left-out.jsonl")


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", "/a", ".hidden", "a\0b"])
def test_g1_a_split_that_leads_elsewhere(name):
    with pytest.raises(ManifestDamaged, match="a split is called"):
        manifest.decode(manifest.encode(Group(splits={name: SHA})), "x")
    if name:
        refused({"split": name}, "a split is called")


@pytest.mark.parametrize("splits", [{}, [], None, "train", {"train": "no digest"}, {"train": None}])
def test_g1_splits_that_are_no_mapping_to_digests(splits):
    with pytest.raises(ManifestDamaged, match="the manifest breaks a rule"):
        manifest.decode(canonical({"version": 1, "kind": "group", "splits": splits}), "x")


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/", "a\0"])
def test_m6_a_class_that_no_folder_can_be_called(name):
    refused({"layout": "classes", "classes": ["cat", name]}, "a class has a name that no folder can have")
    other = example(layout="table", classes=("cat", name))
    assert manifest.decode(manifest.encode(other), "x") == other


@pytest.mark.parametrize("change", [{"options": 5}, {"options": [1]}, {"layout": "weird"}, {"order": "nonsense"}])
def test_m3_options_layout_and_order(change):
    refused(change, "options, layout or order is")


# ------------------------------------------------------------------------------------------------ compressed shards
PLAIN = json.loads(manifest.encode(example()))
FACTS = {"codec": "zstd", "encoder": "zstd 1.5.7", "frame_bytes": 262144, "level": 3}
ENTRIES = [{**entry, "file": entry["file"] + ".zst", "tar_bytes": 20480} for entry in PLAIN["shards"]]


def compressed(**changes: Any) -> Manifest:
    found = manifest.decode(canonical({**PLAIN, "compression": FACTS, "shards": ENTRIES, **changes}), "x")
    assert isinstance(found, Manifest)
    return found


def test_z1_z2_what_a_manifest_says_of_compression():
    record = compressed()
    assert record.compression == Compression("zstd", "zstd 1.5.7", 262144, 3)
    assert (record.size_bytes, record.tar_bytes) == (20480, 40960)
    first = record.shards[0]
    assert (first.size_bytes, first.tar_bytes, first.stream_bytes) == (10240, 20480, 20480)
    assert record.framed(first) == ("train-000000.tar.zst", 10240, 20480, 262144)
    assert manifest.encode(record) == canonical({**PLAIN, "compression": FACTS, "shards": ENTRIES})


def test_z1_z2_without_it_there_is_no_word_of_it():
    plain = example()
    assert (plain.tar_bytes, plain.framed(plain.shards[0]), plain.shards[0].stream_bytes) == (None, None, 10240)
    assert b"compression" not in manifest.encode(plain) and b"tar_bytes" not in manifest.encode(plain)


@pytest.mark.parametrize(
    "facts",
    [None, {}, [], "zstd", {**FACTS, "codec": "gzip"}, {**FACTS, "more": 1}, {k: v for k, v in FACTS.items() if k != "level"},
     {**FACTS, "encoder": None}, {**FACTS, "level": -1}, {**FACTS, "level": "3"}, {**FACTS, "level": True},
     {**FACTS, "frame_bytes": 4095}, {**FACTS, "frame_bytes": (1 << 26) + 1}, {**FACTS, "frame_bytes": 1 << 80},
     {**FACTS, "frame_bytes": 262144.0}],
    ids=str,
)  # fmt: skip
def test_z1_what_is_no_compression(facts):
    refused({"compression": facts, "shards": ENTRIES})


@pytest.mark.parametrize("size", [..., None, -1, "5", 1.5, True])
def test_z2_a_tar_size_that_is_none(size):
    entry = {name: value for name, value in {**ENTRIES[1], "tar_bytes": size}.items() if value is not ...}
    refused({"compression": FACTS, "shards": [ENTRIES[0], entry]})


def test_z2_a_tar_size_without_compression():
    refused({"shards": [{**entry, "tar_bytes": 10240} for entry in PLAIN["shards"]]}, "tar_bytes, but there is no compression")
    refused({"shards": [{**entry, "tar_bytes": None} for entry in PLAIN["shards"]]}, "tar_bytes, but there is no compression")


def test_n1_compressed_shards_are_called_so_and_others_not():
    plain = [{**entry, "tar_bytes": 1} for entry in PLAIN["shards"]]
    refused({"compression": FACTS, "shards": plain}, r"not called train-000000\.tar\.zst and so on")
    suffixed = [{**entry, "file": entry["file"] + ".zst"} for entry in PLAIN["shards"]]
    refused({"shards": suffixed}, r"not called train-000000\.tar and so on")


def test_z1_a_group_has_none():
    with pytest.raises(ManifestDamaged, match="compression"):
        manifest.decode(canonical({"version": 1, "kind": "group", "splits": {"train": SHA}, "compression": FACTS}), "x")
