"""Indexes as our own sidecars and as programs write them, beside tars that they fit and that they do not fit."""

import json
import struct
import tarfile
from io import BytesIO

import pytest

import fastfeed
from fastfeed.auditor.indexes import Indexes
from fastfeed.auditor.looking.archives import TarLook
from fastfeed.auditor.together import of_tars
from fastfeed.source.tarrows import open_tar


def tar_of(path, count):
    with tarfile.open(path, "w") as tar:
        for number in range(count):
            for extension, size in (("bin", 700), ("txt", 40)):
                info = tarfile.TarInfo(f"{number:03}.{extension}")
                info.size = size
                tar.addfile(info, BytesIO(b"x" * size))
    return path


@pytest.fixture
def tar(tmp_path):
    return tar_of(tmp_path / "a-000.tar", 4)


def found(tar):
    with open_tar(str(tar)) as blocks:
        rows = TarLook(blocks).rows
    return [(path.rpartition("/")[2], finding.text) for path, finding in Indexes().disagreements(str(tar), rows)]


def energon(tar):
    """Where each sample begins, and the end, as Energon's own preparation writes it."""
    with tarfile.open(tar) as archive:
        members = archive.getmembers()
    end = members[-1].offset_data + 512
    return struct.pack(f"<{len(members) // 2 + 1}Q", *(member.offset for member in members[::2]), end)


def test_without_any_there_is_nothing_to_say(tar):
    (tar.parent / "other.json").write_text("[1, 2")
    (tar.parent / "another.json").write_text(json.dumps({"shardlist": [{"url": 3}, "a-000.tar"]}))
    assert found(tar) == []


def test_indexes_that_fit(tar):
    (tar.parent / "a-000.tar.idx").write_bytes(energon(tar))
    (tar.parent / "shards.json").write_text(json.dumps({"shardlist": [{"url": "s3://b/a-000.tar", "nsamples": 4}]}))
    assert found(tar) == []


def test_an_index_of_energon_that_does_not_fit(tar):
    index = tar.parent / "a-000.tar.idx"
    index.write_bytes(energon(tar)[8:])
    assert found(tar) == [("a-000.tar.idx", "the Energon index states 3 samples, the tar has 4")]
    index.write_bytes(b"")
    assert found(tar) == [("a-000.tar.idx", "0 B are no list of numbers of eight bytes")]
    moved = list(struct.unpack("<5Q", energon(tar)))
    moved[2] += 1024
    index.write_bytes(struct.pack("<5Q", *moved))
    assert [text.partition(" lies ")[0] for _, text in found(tar)] == ["by the Energon index sample 2"]


def test_a_list_of_shards_of_an_earlier_version(tar):
    (tar.parent / "shards.json").write_text(json.dumps({"shardlist": [{"url": "a-000.tar", "nsamples": 10}]}))
    assert found(tar) == [("shards.json", "of a-000.tar it states 10 samples, the tar has 4")]


def test_what_is_no_file(tar):
    (tar.parent / "a-000.idx").symlink_to("nowhere")
    (tar.parent / "a-000.tar.idx").mkdir()
    assert [name for name, text in found(tar) if text.startswith("it cannot be read: ")] == ["a-000.idx", "a-000.tar.idx"]


def test_an_audit_of_tars_tells_of_those_of_dali(tar):
    other = tar_of(tar.parent / "b-000.tar", 2)
    (tar.parent / "a-000.idx").write_text("v1.2 1\nbin 512 700 000.bin\n")
    assert [name for name, _ in of_tars([str(tar), str(other)])] == [str(tar.parent / "a-000.idx")]
    result = fastfeed.audit(tar.parent, workers=1)
    assert [(one.code, one.examples[0][1]) for one in result.found if one.severity == "error"] == [
        ("index-disagrees", "the DALI index states 1 sample, the tar has 4")
    ]
