"""Datasets with caches: the same samples, one copy for all processes, and nothing left."""

import copy
import os
import pickle
import shutil
import subprocess
from pathlib import Path

import pytest
from caching import caches_in, folder_of, other_process
from helpers import flip_bit, make_captioned, pack_photos, packed
from tarring import pairs, write_tar, zstandarded
from torchvision.datasets import ImageFolder

import fastfeed
from fastfeed.errors import ShardDamaged, UsageError
from fastfeed.feed.dataset import PackedDataset
from fastfeed.store.cached import CachedStore
from fastfeed.store.members import MemberReader


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "place").mkdir()
    return tmp_path / "place"


def raw(dataset: PackedDataset) -> list[bytes]:
    """All bytes of the images, read in two ways."""
    singly = [dataset.open(number, "jpg").read() for number in range(len(dataset))]
    together = dataset.__getitems__(list(range(len(dataset))))
    return singly + [image.tobytes() for image, _ in together]


def store_of(dataset: PackedDataset) -> CachedStore:
    reader = dataset._reader
    assert isinstance(reader, MemberReader) and isinstance(reader.store, CachedStore)
    return reader.store


@pytest.mark.parametrize("options", [{}, {"compress": "zstd", "frame_bytes": 4096}], ids=["tar", "zst"])
def test_packed_shards(tmp_path: Path, place: Path, options):
    path = pack_photos(tmp_path, shards=2, **options)
    expected = raw(fastfeed.open(path))
    dataset = fastfeed.open(path, cache="8MiB", cache_dir=place)
    assert raw(dataset) == expected == raw(dataset)
    assert len(caches_in(place)) == 1
    for shard in path.glob("*.tar*"):  # every byte comes from the cache by now
        shard.write_bytes(bytes(shard.stat().st_size))
    assert raw(dataset) == expected
    del dataset
    assert not list(place.iterdir())


@pytest.mark.parametrize("name", ["a.tar", "a.tar.zst"])
def test_tars_of_others(tmp_path: Path, place: Path, name):
    plain = write_tar(tmp_path / "plain.tar", pairs(5))
    if name == "a.tar":
        plain.rename(tmp_path / name)
    else:
        (tmp_path / name).write_bytes(zstandarded(plain.read_bytes(), 2048))
    fastfeed.index_tars(tmp_path / name)
    expected = list(fastfeed.open(tmp_path / name))
    dataset = fastfeed.open(tmp_path / name, cache="8MiB", cache_dir=place)
    assert list(dataset) == expected == list(dataset)
    assert len(caches_in(place)) == 1
    store_of(dataset).inner = None  # type: ignore[assignment]  # all of it is kept
    assert list(dataset) == expected


@pytest.mark.parametrize("checksums", [False, True])
def test_damage_of_the_cache_is_found_whether_tars_have_checksums_or_not(tmp_path: Path, place: Path, checksums):
    tar = write_tar(tmp_path / "a.tar", pairs(5))
    fastfeed.index_tars(tar, checksums=checksums)
    expected = list(fastfeed.open(tar))
    kept = fastfeed.open(tar, cache="8MiB", cache_dir=place)
    assert list(kept) == expected
    (data,) = place.glob("*/*/data")
    data.write_bytes(bytes(data.stat().st_size))
    assert list(fastfeed.open(tar, cache="8MiB", cache_dir=place)) == expected


def test_copies_of_packed_data_share_a_cache_and_other_data_has_another(tmp_path: Path, place: Path):
    path = pack_photos(tmp_path)
    copied = tmp_path / "copied"
    shutil.copytree(path, copied)
    packed(make_captioned(tmp_path / "captioned"), tmp_path / "others")
    one, two = (fastfeed.open(folder, cache="8MiB", cache_dir=place) for folder in (path, copied))
    assert len(caches_in(place)) == 1
    three = fastfeed.open(tmp_path / "others", cache="8MiB", cache_dir=place)
    assert len(caches_in(place)) == 2
    assert {str(data.cache.folder) for data in (one, two, three) if data.cache} == {str(place)}


def test_views_share_it_and_it_goes_with_the_last_of_them(tmp_path: Path, place: Path):
    dataset = fastfeed.open(pack_photos(tmp_path), cache="8MiB", cache_dir=place)
    view = dataset.select([4, 1])
    assert view._reader is dataset._reader
    del dataset
    assert len(caches_in(place)) == 1 and len(view) == 2 and view[0]
    del view
    assert not list(place.iterdir())


def test_keep(tmp_path: Path, place: Path):
    path = pack_photos(tmp_path)
    expected = raw(fastfeed.open(path))
    dataset = fastfeed.open(path, cache=fastfeed.Cache("8MiB", keep=True), cache_dir=place)
    raw(dataset)
    del dataset
    assert len(caches_in(place)) == 1
    again = fastfeed.open(path, cache="8MiB", cache_dir=place)
    store_of(again).inner = None  # type: ignore[assignment]
    assert raw(again) == expected


def test_copies_and_pickles_join_the_same_one(tmp_path: Path, place: Path):
    dataset = fastfeed.open(pack_photos(tmp_path), cache="8MiB", cache_dir=place)
    expected = raw(dataset)
    for other in (copy.copy(dataset), pickle.loads(pickle.dumps(dataset))):
        store_of(other).inner = None  # type: ignore[assignment]
        assert raw(other) == expected and other.cache == dataset.cache
    assert len(caches_in(place)) == 1


def test_errors_are_the_same(tmp_path: Path, place: Path):
    path = pack_photos(tmp_path)
    dataset = fastfeed.open(path)
    start = int(dataset.column("offset")[3])
    flip_bit(path / "photos-000000.tar", start + 100)
    found = []
    for data in (dataset, fastfeed.open(path, cache="8MiB", cache_dir=place)):
        for _ in range(2):
            with pytest.raises(ShardDamaged) as error:
                data[3]
            found.append(str(error.value))
    assert len(set(found)) == 1 and "differ from their checksum" in found[0]


def test_a_cache_that_cannot_be_had_is_said_and_data_is_read_without(tmp_path: Path, place: Path, caplog):
    path = pack_photos(tmp_path)
    expected = raw(fastfeed.open(path))
    folder_of(place).mkdir(mode=0o777)
    folder_of(place).chmod(0o777)
    dataset = fastfeed.open(path, cache="8MiB", cache_dir=place)
    assert raw(dataset) == expected
    assert dataset.cache is not None and dataset.cache.folder is None
    assert "may be entered by others" in str(dataset.cache) and "may be entered by others" in caplog.text
    assert dataset.told[-1] == str(dataset.cache)


def test_no_cache_lies_in_the_folder_of_the_dataset(tmp_path: Path):
    packed_there, photos = pack_photos(tmp_path), tmp_path / "photos"
    (packed_there / "below").mkdir()
    (tmp_path / "link").symlink_to(packed_there)
    (tmp_path / "packed-beside").mkdir()
    before = sorted(packed_there.rglob("*"))
    for place in (packed_there, packed_there / ".fastfeed", packed_there / "below", tmp_path / "link"):
        with pytest.raises(UsageError, match="the cache would lie in the folder of the dataset") as caught:
            fastfeed.open(packed_there, cache="8MiB", cache_dir=place)
        assert caught.value.got == str(place) and str(packed_there) in str(caught.value.expected)
        with pytest.raises(UsageError, match="the cache would lie"):
            fastfeed.DataLoader(fastfeed.open(packed_there), num_workers=0, cache="8MiB", cache_dir=place)
    for dataset, place in [
        (fastfeed.open(packed_there), packed_there), (fastfeed.open(photos), photos), (ImageFolder(str(photos)), photos),
    ]:  # fmt: skip
        with pytest.raises(UsageError, match="the cache would lie"):
            fastfeed.cached(dataset, "sample", cache="8MiB", cache_dir=place)
    with pytest.raises(UsageError, match="the cache would lie"):
        fastfeed.open(photos, cache="8MiB", cache_dir=next(photos.iterdir()))
    assert sorted(packed_there.rglob("*")) == before
    beside = fastfeed.open(packed_there, cache="8MiB", cache_dir=tmp_path / "packed-beside")
    assert beside.cache is not None and beside.cache.folder is not None


@pytest.mark.filterwarnings("ignore:1 tar in")
def test_a_cache_may_lie_beside_tars_and_beside_a_table(tmp_path: Path):
    """Nobody looks at what else is there."""
    write_tar(tmp_path / "plain.tar", pairs(5))
    (tmp_path / "a.txt").write_text("a")
    (tmp_path / "list.csv").write_text("file\na.txt\n")
    for path in (tmp_path / "plain.tar", tmp_path / "list.csv"):
        dataset = fastfeed.open(path, cache="8MiB", cache_dir=tmp_path)
        assert dataset.cache is not None and dataset.cache.folder == str(tmp_path)


def test_auto_on_a_local_disk_says_why_not(tmp_path: Path, place: Path, caplog):
    dataset = fastfeed.open(pack_photos(tmp_path), cache="auto", cache_dir=place)
    if dataset.cache is None or "page cache" not in str(dataset.cache):
        pytest.skip(f"this machine's temporary files are no local disk: {dataset.cache}")
    assert dataset.cache.folder is None and not list(place.iterdir()) and not caplog.records


def test_plain_files(tmp_path: Path, place: Path):
    folder = make_captioned(tmp_path / "files")
    expected = [(sample["jpg"].tobytes(), sample["txt"]) for sample in fastfeed.open(folder)]
    dataset = fastfeed.open(folder, cache="8MiB", cache_dir=place)
    assert "cache in" in str(dataset.cache) and len(caches_in(place)) == 1
    for _ in range(2):
        assert [(sample["jpg"].tobytes(), sample["txt"]) for sample in dataset] == expected
    for file in folder.iterdir():  # all of them are kept
        file.unlink()
    assert [(sample["jpg"].tobytes(), sample["txt"]) for sample in dataset] == expected
    assert dataset.open(2, "txt").read().decode() == expected[2][1]
    del dataset
    assert not list(place.iterdir())


def test_a_list_of_files_in_two_processes(tmp_path: Path, place: Path):
    folder = make_captioned(tmp_path / "files")
    with other_process(RANK, folder, place) as one, other_process(RANK, folder, place) as two:
        read_by(one, two)
        (name,) = caches_in(place)
        size = sum(file.stat().st_size for file in folder.iterdir())
        assert os.stat(folder_of(place) / name / "data").st_size == size
        for process in (one, two):
            process.communicate()
    assert not list(place.iterdir())


def test_without_asking_nothing_is_cached(tmp_path: Path):
    dataset = fastfeed.open(pack_photos(tmp_path))
    assert dataset.cache is None and dataset.told == dataset.decoding


def read_by(*processes: "subprocess.Popen[str]") -> None:
    """Each of them reads all of its dataset, one after another."""
    for process in processes:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write("go\n")
        process.stdin.flush()
        process.stdout.readline()


RANK = """
import sys
import fastfeed
dataset = fastfeed.open(sys.argv[1], cache="8MiB", cache_dir=sys.argv[2])
print("ready", flush=True)
sys.stdin.readline()
for _ in dataset:
    pass
print("read", flush=True)
sys.stdin.read()
"""


def test_processes_share_one_copy(tmp_path: Path, place: Path):
    path = pack_photos(tmp_path, shards=2)
    with other_process(RANK, path, place) as one, other_process(RANK, path, place) as two:
        read_by(one, two)
        (name,) = caches_in(place)
        assert os.stat(folder_of(place) / name / "data").st_size == sum(shard.stat().st_size for shard in path.glob("*.tar"))
        one.kill()
        one.wait()
        assert caches_in(place) == [name]
        two.communicate()
    assert not list(place.iterdir())
