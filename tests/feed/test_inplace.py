"""Tars and plain files as datasets: the values of packed ones, in every kind of worker, with names in every error."""

import io
import json
import os
import pickle
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers import SHARED_DATA, encoded, make_captioned, make_photos, packed, photo
from PIL import Image
from tarring import gzipped, offsets, pairs, replaced, tar_of, webdataset_reads, write_tar, zstandarded
from torch.utils.data import ConcatDataset, DataLoader
from torchvision.datasets import ImageFolder

import fastfeed
from fastfeed.errors import (
    DecodeError,
    FastfeedWarning,
    IndexDamaged,
    ManifestDamaged,
    NotADataset,
    ShardDamaged,
    SourceChanged,
    SourceUnreadable,
    UsageError,
)


def members_below(folder: Path) -> list[tuple[str, bytes]]:
    return [(str(path.relative_to(folder)), path.read_bytes()) for path in sorted(folder.rglob("*")) if path.is_file()]


def open_tars(pattern: Path | str | list[Path], **options: Any) -> fastfeed.PackedDataset:
    """Tars whose index may have to be made."""
    with pytest.warns(FastfeedWarning):
        return fastfeed.open(pattern, **options)


def rich(folder: Path) -> Path:
    """Two samples of nine fields.

    Returns:
        The folder.
    """
    folder.mkdir()
    for number in range(2):
        stem = str(folder / str(number))
        Path(stem + ".jpg").write_bytes(encoded(photo(number, mode="CMYK")))
        Path(stem + ".mask.png").write_bytes(encoded(photo(number, mode="P"), "PNG"))
        Path(stem + ".depth.png").write_bytes(
            encoded(Image.fromarray(np.full((12, 16), 40_000 + number, dtype=np.uint16)), "PNG")
        )
        Path(stem + ".txt").write_text(f"caf\u00e9 {number}")
        Path(stem + ".json").write_text(json.dumps({"boxes": [[0, 1, 2, number]]}))
        Path(stem + ".cls").write_text(f"{number + 7}\n")
        Path(stem + ".wav").write_bytes(b"RIFF" + bytes([number]))
        np.save(stem + ".npy", np.arange(3) + number)
        np.savez(stem + ".npz", a=np.ones(2) * number)
    return folder


def plainly(value: Any) -> Any:
    """A value by what can be compared."""
    if isinstance(value, Image.Image):
        return value.mode, value.size, value.tobytes()
    if isinstance(value, dict):
        return {name: plainly(part) for name, part in value.items()}
    if isinstance(value, tuple):
        return tuple(map(plainly, value))
    return value.tolist() if isinstance(value, np.ndarray) else value


# ------------------------------------------------------------------------------------------------ the values of packed data
OPTIONS: list[dict[str, Any]] = [
    {}, {"fields": ["txt", "cls"]}, {"fields": ["jpg", "cls"]}, {"fields": ["mask.png"]}, {"fields": []},
    {"decoders": {"wav": len, "mask.png": "raw", "png": "rgb", "txt": lambda raw: raw[:2]}},
    {"transform": {"txt": str.upper, "mask.png": np.asarray}, "target_transform": lambda number: number * 10},
]  # fmt: skip


@pytest.mark.parametrize("options", OPTIONS)
def test_values_are_those_of_packed_data(tmp_path: Path, options: dict[str, Any]):
    source = rich(tmp_path / "src")
    packed(source, tmp_path / "packed")
    write_tar(tmp_path / "t" / "a.tar", members_below(source))
    wanted = [plainly(sample) for sample in fastfeed.open(tmp_path / "packed", **options)]
    for dataset in (fastfeed.open(source, **options), open_tars(tmp_path / "t" / "*.tar", **options)):
        assert [plainly(sample) for sample in dataset] == wanted
        assert [plainly(sample) for sample in dataset.__getitems__([0, 1])] == wanted
        assert dataset.fields == fastfeed.open(tmp_path / "packed", **options).fields


def test_wrong_arguments_have_the_words_of_packed_data(tmp_path: Path):
    source = rich(tmp_path / "src")
    packed(source, tmp_path / "packed")
    for options in ({"decoders": {"mp3": "raw"}}, {"transform": {"wave": str}}, {"decode": "fast"}):
        told = set()
        for place in (source, tmp_path / "packed"):
            with pytest.raises(UsageError) as caught:
                fastfeed.open(place, **options)
            told.add(str(caught.value).replace(str(place), "X"))
        assert len(told) == 1


def test_a_file_over_one_member(tmp_path: Path):
    source = make_captioned(tmp_path / "src")
    for dataset in (fastfeed.open(source), open_tars(write_tar(tmp_path / "a.tar", members_below(source)))):
        with dataset.open(2, "txt") as file:
            assert file.seek(-2, io.SEEK_END) == len("picture 2\n") - 2
            assert file.read() == b"2\n"
        with pytest.raises(UsageError, match="sample 2 has no member of field 'wav'"):
            dataset.open(2, "wav")


# ------------------------------------------------------------------------------------------------ plain folders
def test_a_folder_is_imagefolders(tmp_path: Path):
    source = make_photos(tmp_path / "src", ("b cat", "Dog", "a.t"))
    (source / "Dog" / "deep").mkdir()
    (source / "Dog" / "deep" / "x.JPG").write_bytes(encoded(photo(1, (40, 20))))
    (source / "Dog" / "gray.jpeg").write_bytes(encoded(photo(2, mode="L")))
    (source / "a.t" / "palette.png").write_bytes(encoded(photo(4, mode="P"), "PNG", transparency=3))
    theirs, ours = ImageFolder(str(source)), fastfeed.open(source)
    assert (ours.classes, ours.class_to_idx, ours.targets.tolist()) == (theirs.classes, theirs.class_to_idx, theirs.targets)
    assert [(os.path.join(source, path), number) for path, number in ours.samples] == theirs.samples
    assert [plainly(ours[position]) for position in range(len(theirs))] == [plainly(sample) for sample in theirs]
    assert repr(ours) == f"FileDataset({str(source)!r}: 12 samples of cls+jpg, 3 classes, 12 files)"
    assert "position i and each class number" in " ".join(ours.notes) or "each image is a sample" in ours.notes


def test_real_photos_are_imagefolders():
    source = SHARED_DATA / "small-photos"
    if not source.exists():
        pytest.skip("needs ../shared/data")
    theirs, ours = ImageFolder(str(source)), fastfeed.open(source)
    assert [plainly(sample) for sample in ours.__getitems__(range(len(theirs)))] == [plainly(sample) for sample in theirs]


def test_flat_files_have_no_classes(tmp_path: Path):
    dataset = fastfeed.open(make_captioned(tmp_path / "src"))
    assert dataset[1]["txt"] == "picture 1\n"
    for name in ("classes", "targets"):
        with pytest.raises(UsageError, match="these files have no classes: they neither lie in class folders nor are listed"):
            getattr(dataset, name)
    assert dataset.samples[0] == ("000.jpg", None)


def test_an_undecodable_file_is_named(tmp_path: Path):
    source = make_photos(tmp_path / "src")
    (source / "dog" / "001.jpg").write_bytes(b"<html>")
    with pytest.raises(DecodeError, match=r"jpg of 6 bytes cannot be decoded") as caught:
        fastfeed.open(source)[4]
    error = caught.value
    assert (error.path, error.sample, error.key, error.source) == (str(source / "dog" / "001.jpg"), 4, "dog/001", "dog/001.jpg")
    assert '(a line of the skip list: {"source": "dog/001.jpg", "kind": "undecodable"})' in str(error)


def test_files_that_change_or_go_between_epochs(tmp_path: Path):
    source = make_photos(tmp_path / "src")
    dataset = fastfeed.open(source)
    assert len(list(dataset)) == 6
    os.utime(source / "dog" / "000.jpg", ns=(3, 3))
    with pytest.raises(SourceChanged, match=r"a file has changed since it was listed .*dog/000\.jpg"):
        list(dataset)
    (source / "cat" / "001.jpg").unlink()
    with pytest.raises(SourceUnreadable, match=r"cat/001\.jpg, sample 1"):
        dataset.__getitems__([0, 1])


# ------------------------------------------------------------------------------------------------ tars
def test_tars_are_webdatasets(tmp_path: Path):
    paths = [write_tar(tmp_path / f"{number}.tar", pairs(5, 5 * number)) for number in range(3)]
    dataset = open_tars(tmp_path / "*.tar", decoders={"txt": "raw", "cls": "raw"})
    wanted = webdataset_reads(paths)
    assert [{"__key__": dataset.identity(at).key, **dataset[at]} for at in range(15)] == wanted
    assert dataset.targets.tolist() == [number % 10 for number in range(15)]
    assert dataset.identity(7).source == b"1.tar/000007.txt"
    assert dataset.samples[7] == ("1.tar/000007.txt", 7)
    assert repr(dataset) == f"TarDataset({str(tmp_path)!r}: 15 samples of cls+txt, 3 tars)"
    with pytest.raises(
        UsageError, match=r"tars hold class numbers \(\.targets, where each sample has a cls\), but no class names"
    ):
        _ = dataset.classes


def test_pairs_of_an_image_and_its_class(tmp_path: Path):
    listed = []
    for number in range(4):
        listed += [(f"{number}.JPG", encoded(photo(number))), (f"{number}.cls", b"%d" % number)]
    image, target = open_tars(write_tar(tmp_path / "a.tar", listed))[2]
    assert (image.tobytes(), target) == (Image.open(io.BytesIO(listed[4][1])).tobytes(), 2)


def test_it_is_said_when_an_index_is_made(tmp_path: Path):
    path = write_tar(tmp_path / "a.tar", pairs(2))
    with pytest.warns(
        FastfeedWarning,
        match=r"^1 tar in .*: they have no index yet; their headers are read now, and the index is kept in .*\.fastfeed-index$",
    ) as caught:
        fastfeed.open(path)
    assert caught[0].filename == __file__
    fastfeed.open(path)
    write_tar(path, pairs(3))
    with pytest.warns(FastfeedWarning, match=r"1 tar of them changed since they were indexed \(a\.tar\)"):
        assert len(fastfeed.open(path)) == 3
    with pytest.warns(FastfeedWarning, match=f"the index is kept in {tmp_path / 'mine'}$"):
        fastfeed.open(path, index_dir=tmp_path / "mine")
    assert os.listdir(tmp_path / "mine")


def test_damage_is_said_at_each_opening(tmp_path: Path):
    raw = tar_of(pairs(6))
    (tmp_path / "a.tar").write_bytes(replaced(raw, offsets(raw)[5] + 148, b"\0" * 8))
    open_tars(tmp_path / "a.tar")
    words = r"these tars are damaged: 1 sample left out, 2 findings, the first: a\.tar, bytes \[\d+, \d+\): .*index lists all"
    for _ in range(2):
        with pytest.warns(FastfeedWarning, match=words) as caught:
            dataset = fastfeed.open(tmp_path / "a.tar")
        assert caught[0].filename == __file__
        assert len(dataset) == 5
        assert any(note.startswith("these tars are damaged") for note in dataset.notes)


def test_one_large_frame_is_said_at_each_opening(tmp_path: Path):
    raw = tar_of([(f"{number}.bin", bytes(1 << 20)) for number in range(17)])
    (tmp_path / "a.tar.zst").write_bytes(zstandarded(raw))
    open_tars(tmp_path / "a.tar.zst")
    with pytest.warns(FastfeedWarning, match=r"1 tar cannot be read at random fast: a\.tar\.zst, .*fastfeed pack makes it so"):
        dataset = fastfeed.open(tmp_path / "a.tar.zst")
    assert dataset[3] == dataset[1] == {"bin": bytes(1 << 20)}


@pytest.mark.parametrize("form", [bytes, gzipped, zstandarded], ids=["plain", "gzip", "zstd"])
def test_a_tar_that_changes_while_it_is_open(tmp_path: Path, form: Any):
    """[P5]"""
    path = tmp_path / "a.tar"
    path.write_bytes(form(tar_of(pairs(3))))
    dataset = open_tars(path)
    path.write_bytes(form(tar_of(pairs(3, 3))))
    os.utime(path, ns=(5, 5))
    for read in (lambda: dataset[1], lambda: dataset.__getitems__([1, 2])):
        with pytest.raises(ShardDamaged, match=r"a tar has changed since it was indexed .*shard a\.tar"):
            read()


def test_errors_name_tar_sample_key_member_and_bytes(tmp_path: Path):
    path = write_tar(tmp_path / "a.tar", [("d/x.JSON", b"{}"), ("d/y.JSON", b"{")])
    dataset = open_tars(path)
    with pytest.raises(DecodeError) as caught:
        dataset[1]
    error = caught.value
    assert (error.shard, error.sample, error.key, error.member) == ("a.tar", 1, "d/y", "d/y.JSON")
    assert (error.source, error.start, error.stop) == ("a.tar/d/y.JSON", 1536, 1537)
    assert '{"source": "a.tar/d/y.JSON", "kind": "undecodable"}' in str(error)
    path.unlink()
    with pytest.raises(NotADataset, match=r"a\.tar does not exist"):
        fastfeed.open(path)


# ------------------------------------------------------------------------------------------------ workers and pickles
@pytest.fixture(params=["plain", "tars", "gzip", "zstd"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    source = make_photos(tmp_path / "src", each=8)
    listed = [(f"{number:02d}.jpg", path.read_bytes()) for number, path in enumerate(sorted(source.rglob("*.jpg")))]
    listed = [member for number, item in enumerate(listed) for member in (item, (f"{number:02d}.cls", b"%d" % (number // 8)))]
    raw = {"tars": bytes, "gzip": gzipped, "zstd": zstandarded}
    if request.param == "plain":
        return str(source)
    path = tmp_path / "a.tar"
    path.write_bytes(raw[request.param](tar_of(listed)))
    open_tars(path)
    return str(path)


def to_tensor(image: Image.Image) -> torch.Tensor:
    return torch.from_numpy(np.asarray(image).copy())


def test_workers_by_fork(place: str):
    dataset = fastfeed.open(place, transform=to_tensor)
    _read_by(dataset, "fork")


@pytest.mark.long
@pytest.mark.parametrize("context", ["spawn", "forkserver"])
def test_workers_by_pickle(tmp_path: Path, context: str):
    """Both kinds in one loader: a worker takes seconds to import torch."""
    source = make_photos(tmp_path / "src", each=8)
    listed = [(f"{number:02d}.jpg", path.read_bytes()) for number, path in enumerate(sorted(source.rglob("*.jpg")))]
    listed = [member for number, item in enumerate(listed) for member in (item, (f"{number:02d}.cls", b"%d" % (number // 8)))]
    (tmp_path / "a.tgz").write_bytes(gzipped(tar_of(listed[:16])))
    (tmp_path / "b.tar").write_bytes(tar_of(listed[16:]))
    tars = open_tars([tmp_path / "a.tgz", tmp_path / "b.tar"], transform=to_tensor)
    both: ConcatDataset[Any] = ConcatDataset([fastfeed.open(source, transform=to_tensor), tars])
    loader = DataLoader(both, batch_size=4, num_workers=1, multiprocessing_context=context)
    images, targets = zip(*loader, strict=True)
    assert torch.cat(targets).tolist() == ([0] * 8 + [1] * 8) * 2
    assert torch.equal(torch.cat(images)[16:], torch.cat(images)[:16])


def _read_by(dataset: Any, context: str) -> None:
    dataset[3], dataset[15]  # what is open here must not disturb what a fork reads
    loader = DataLoader(dataset, batch_size=4, num_workers=2, multiprocessing_context=context, persistent_workers=True)
    for _ in range(2):
        images, targets = zip(*loader, strict=True)
        assert torch.cat(targets).tolist() == [0] * 8 + [1] * 8
        assert torch.equal(torch.cat(images)[11], dataset[11][0])
    del loader


def test_a_pickle_is_small_and_finds_its_way(place: str):
    raw = pickle.dumps(fastfeed.open(place))
    assert len(raw) < 1200
    dataset = fastfeed.open(place)
    assert plainly(pickle.loads(pickle.dumps(dataset))[9]) == plainly(dataset[9])


def test_files_are_listed_again_where_the_columns_are_gone(tmp_path: Path):
    source = make_photos(tmp_path / "src")
    raw = pickle.dumps(fastfeed.open(source))  # the dataset is gone when this is loaded
    assert plainly(pickle.loads(raw)[5]) == plainly(fastfeed.open(source)[5])
    (source / "dog" / "new.jpg").write_bytes(encoded(photo()))
    with pytest.raises(SourceChanged, match="the files have changed since this object was made"):
        pickle.loads(raw)


def test_tars_that_were_indexed_anew(tmp_path: Path):
    path = write_tar(tmp_path / "a.tar", pairs(3))
    raw = pickle.dumps(open_tars(path))
    write_tar(path, pairs(4))
    open_tars(path)
    with pytest.raises(ManifestDamaged, match="the tars were indexed anew since this object was made"):
        pickle.loads(raw)
    shutil.rmtree(tmp_path / ".fastfeed-index")
    with pytest.raises(IndexDamaged, match="the index cannot be opened"):
        pickle.loads(raw)


def test_an_index_opens_as_fast_for_many_as_for_few(tmp_path: Path):
    seconds = []
    for count in (10, 20_000):
        path = write_tar(tmp_path / f"{count}.tar", ((f"{number}.t", b"") for number in range(count)))
        open_tars(path)
        began = time.perf_counter()
        for _ in range(20):
            fastfeed.open(path)
        seconds.append(time.perf_counter() - began)
    assert seconds[1] < 4 * seconds[0] + 0.05
