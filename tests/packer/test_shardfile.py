"""Where a shard's bytes go: whole or not at all, hashed as they pass."""

import errno
import hashlib
import io
import os
import tarfile
from itertools import accumulate

import pytest

from fastfeed.archive import tar
from fastfeed.packer.shardfile import FLUSH_BYTES, Finished, ShardFile


def member(name: bytes, payload: bytes) -> tuple[bytes, bytes, bytes]:
    return tar.header(name, len(payload)), payload, tar.padding(len(payload))


@pytest.fixture
def paths(tmp_path):
    return str(tmp_path / "part"), str(tmp_path / "x-000000.tar")


@pytest.mark.parametrize("size", [0, 1, 511, 512, FLUSH_BYTES - 1, FLUSH_BYTES, 3 * FLUSH_BYTES + 7])
def test_what_is_written_is_there_with_its_trailer(paths, size):
    part, target = paths
    payload = os.urandom(size)
    with ShardFile(part, target) as out:
        for number in range(3):
            out.begin_sample()
            out.write(*member(b"%d.bin" % number, payload))
        done = out.finish(lambda _: None)
    with open(target, "rb") as file:
        raw = file.read()
    assert done == Finished(hashlib.sha256(raw).hexdigest(), len(raw), len(raw))
    assert len(raw) % tar.RECORD_BYTES == 0
    with tarfile.open(fileobj=io.BytesIO(raw)) as archive:
        files = [archive.extractfile(info) for info in archive]
        assert [file.read() for file in files if file is not None] == [payload] * 3
    assert os.listdir(os.path.dirname(target)) == [os.path.basename(target)]


def test_how_it_was_cut_into_pieces_changes_nothing(paths):
    part, target = paths
    stream = b"".join(member(b"1.bin", bytes(range(256)) * 5000))
    found = []
    for step in (997, 65536, len(stream)):
        with ShardFile(part, target) as out:
            for at in range(0, len(stream), step):
                out.write(stream[at : at + step])
            found.append(out.finish(lambda _: None))
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("refused", [False, True])
def test_the_disk_is_asked_to_begin_before_the_end(paths, monkeypatch, refused):
    part, target = paths
    asked: list[tuple[int, int]] = []

    def advise(descriptor, offset, size, advice):
        assert os.fstat(descriptor).st_size == offset + size  # what is written, and no more
        asked.append((offset, size))
        if refused:
            raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr("fastfeed.packer.shardfile._WRITEBACK_BYTES", 2 * FLUSH_BYTES)
    monkeypatch.setattr("fastfeed.packer.shardfile.os.posix_fadvise", advise)
    with ShardFile(part, target) as out:
        for number in range(40):
            out.write(*member(b"%d.bin" % number, bytes([number]) * 100_000))
        done = out.finish(lambda _: None)
    with open(target, "rb") as file:
        assert hashlib.sha256(file.read()).hexdigest() == done.sha256
    assert [offset for offset, _ in asked] == [0, *accumulate(size for _, size in asked[:-1])]
    assert len(asked) == 3 and all(size >= 2 * FLUSH_BYTES for _, size in asked)


def test_its_facts_are_kept_when_the_bytes_are_there_and_the_name_is_not(paths):
    part, target = paths
    seen = []

    def save(done):
        seen.append((os.path.getsize(part) == done.size_bytes, os.path.exists(target)))

    with ShardFile(part, target) as out:
        out.write(*member(b"1.bin", b"x"))
        out.finish(save)
    assert seen == [(True, False)]
    assert os.path.exists(target) and not os.path.exists(part)


class Refused(Exception):
    pass


def refuse(*_):
    raise Refused("no room")


def written(part, target, *, reading=lambda: None, save=lambda _: None):
    """One member, with something that may fail before its end and before its name."""
    with ShardFile(part, target) as out:
        out.write(*member(b"1.bin", b"x"))
        reading()
        return out.finish(save)


@pytest.mark.parametrize("when", ["reading", "save"])
def test_what_fails_in_between_leaves_nothing(paths, tmp_path, when):
    with pytest.raises(Refused, match="no room"):
        written(*paths, **{when: refuse})
    assert not list(tmp_path.iterdir())


def test_a_target_that_is_a_folder_leaves_only_that(paths, tmp_path):
    os.mkdir(paths[1])
    with pytest.raises(IsADirectoryError):
        written(*paths)
    assert [path.name for path in tmp_path.iterdir()] == ["x-000000.tar"]
