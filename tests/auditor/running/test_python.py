import os

import pytest
from helpers import make_photos, pack_photos
from torch.utils.data import DataLoader, IterableDataset, Subset
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2

import fastfeed
from fastfeed.auditor.record import SampleRecord
from fastfeed.auditor.running.python import Indexed, Ours, Streamed, Torch, forget, subject_of
from fastfeed.auditor.running.subject import HOW, How
from fastfeed.errors import SourceUnreadable, UsageError

TRANSFORM = v2.Compose([v2.Resize(8), v2.ToImage()])


class Plain:
    def __init__(self, count=3, error=None):
        self.count, self.error = count, error

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if self.error is not None:
            raise self.error
        return index


class Stream(IterableDataset[str]):
    def __iter__(self):
        yield from "abc"


def load(dataset, index, how=HOW) -> SampleRecord:
    """The record of a sample that comes."""
    record = subject_of(dataset).load(index, how)
    assert record is not None
    return record


def codes(record):
    return [found.code.name for found in record.findings]


def test_kinds(tmp_path):
    folder = ImageFolder(make_photos(tmp_path / "photos"))
    assert type(subject_of(folder)) is Torch
    assert type(subject_of(fastfeed.open(tmp_path / "photos"))) is Ours
    assert type(subject_of(Stream())) is Streamed and type(subject_of(iter("ab"))) is Streamed
    assert type(subject_of([1, 2])) is Torch
    assert subject_of(DataLoader(folder, 4)).count == 6
    with pytest.raises(UsageError, match="neither __getitem__ nor __iter__"):
        subject_of(3)


def test_nothing_is_known_of_a_plain_one():
    subject = Indexed(Plain())
    record = subject.load(2, HOW)
    assert (subject.count, record.index, set(record.times), record.findings) == (3, 2, {"load"}, [])
    assert subject.load(2, How(cold=True)).times == {}
    assert subject.load(2, How(load=False)).times == {}


@pytest.mark.parametrize(
    ("error", "code"),
    [(ValueError("mine"), "fails"), (IndexError("mine"), "stops-early"), (StopIteration("mine"), "stops-early"),
     (SystemExit(3), "fails"), (KeyboardInterrupt("mine"), "fails"), (GeneratorExit("mine"), "fails"),
     (MemoryError("mine"), "memory"), (OSError("mine"), "fails")],
)  # fmt: skip
def test_what_it_raises_is_a_finding_with_its_place(error, code):
    record = Indexed(Plain(error=error)).load(0, HOW)
    assert codes(record) == [code]
    assert type(error).__name__ in record.findings[0].text and "test_python.py:" in record.findings[0].text
    assert set(record.times) == {"load"}


def test_a_length_that_cannot_be_had():
    class Lengthless(Plain):
        def __len__(self):
            raise RuntimeError("not yet")

    with pytest.raises(SourceUnreadable, match="RuntimeError: not yet"):
        Indexed(Lengthless())


def test_a_folder_of_torchvision_behind_a_subset(tmp_path):
    folder = ImageFolder(make_photos(tmp_path / "photos"), TRANSFORM)
    record = load(Subset(folder, [5, 1]), 0, HOW)
    assert (record.path, record.label, record.format, record.width) == ("dog/002.jpg", "dog", "JPEG", 16)
    assert set(record.times) == {"read", "decode", "transform"}
    assert record.size_bytes == os.path.getsize(tmp_path / "photos" / "dog" / "002.jpg")
    assert set(load(folder, 1, How(look=False, cold=True)).times) == {"read", "decode", "transform"}


def test_a_broken_file_is_told_by_its_bytes(tmp_path):
    folder = ImageFolder(make_photos(tmp_path / "photos"), TRANSFORM)
    path = tmp_path / "photos" / "cat" / "001.jpg"
    path.write_bytes(b"<!DOCTYPE html><html></html>")
    assert codes(load(folder, 1, HOW)) == ["html-page"]
    path.unlink()
    assert codes(load(folder, 1, HOW)) == ["unreadable"]
    os.mkfifo(path)
    assert codes(load(folder, 1, HOW)) == ["special-file"]


def test_a_transform_that_fails_is_the_programs(tmp_path):
    def fails(image):
        raise RuntimeError("too small")

    record = load(ImageFolder(make_photos(tmp_path / "photos"), fails), 0, HOW)
    assert codes(record) == ["fails"] and "RuntimeError: too small" in record.findings[0].text


def test_a_dataset_of_ours(tmp_path):
    record = load(fastfeed.open(pack_photos(tmp_path), transform=TRANSFORM), 4, HOW)
    assert (record.path, record.key, record.format) == ("dog/001.jpg", "dog/001", "JPEG")
    assert set(record.times) == {"read", "decode", "transform"}


def test_a_stream_is_read_onwards():
    subject = Streamed(iter("abc"))
    assert subject.count is None
    records = [subject.load(index, HOW) for index in range(4)]
    assert [record and record.index for record in records] == [0, 1, 2, None]
    again = Streamed("abc").load(2, HOW)
    assert again is not None and again.index == 2
    assert Streamed("abc").load(3, HOW) is None


def test_a_stream_that_fails_for_ever_ends():
    class Broken:
        def __iter__(self):
            return self

        def __next__(self):
            raise ValueError("mine")

    subject = Streamed(Broken())
    records = [subject.load(index, HOW) for index in range(102)]
    assert records[0] is not None and codes(records[0]) == ["fails"]
    assert records[-1] is None


def test_forgetting_leaves_the_file(tmp_path):
    (tmp_path / "a").write_bytes(b"abc")
    forget(str(tmp_path / "a"))
    assert (tmp_path / "a").read_bytes() == b"abc"


def test_a_thumbnail_needs_no_run_of_the_programs_code(tmp_path):
    def fails(image):
        raise ValueError

    record = subject_of(ImageFolder(make_photos(tmp_path / "photos"), fails)).load(0, How(thumbnail=True))
    assert record is not None and record.thumbnail is not None
    assert (record.findings, record.times) == ([], {})
    nothing = subject_of(Plain(error=ValueError())).load(0, How(thumbnail=True))
    assert nothing is not None and (nothing.thumbnail, nothing.findings) == (None, [])
