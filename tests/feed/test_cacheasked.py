"""DataLoader(cache=): which datasets have it, and what others are told."""

import gc
import os
import sys
import time
from pathlib import Path

import pytest
import torch
from caching import caches_in, folder_of
from helpers import make_photos, pack_photos
from loading import printed
from torch.utils.data import Dataset, Subset

import fastfeed
from fastfeed import DataLoader, PackedDataset
from fastfeed.errors import UsageError
from fastfeed.feed.cacheasked import use_cache
from fastfeed.store.filling import Filled


class Flat(Dataset[int]):
    """One of another kind."""

    def __getitem__(self, index: int) -> int:
        return index

    def __len__(self) -> int:
        return 4


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "place").mkdir()
    return tmp_path / "place"


def test_the_dataset_of_a_loader_or_behind_subsets(tmp_path: Path, place: Path):
    dataset = fastfeed.open(pack_photos(tmp_path))
    use_cache(Subset(Subset(dataset, [1, 2, 3]), [0, 1]), "8MiB", place)
    assert dataset.cache is not None and dataset.cache.folder == str(place)
    assert len(caches_in(place)) == 1


def test_a_dataset_that_has_one_keeps_it(tmp_path: Path, place: Path, caplog):
    dataset = fastfeed.open(pack_photos(tmp_path), cache="8MiB", cache_dir=place)
    had = dataset.cache
    use_cache(dataset, "8MiB", place)
    assert not caplog.records
    use_cache(dataset, "1GiB", None)
    assert dataset.cache is had
    (said,) = [record.getMessage() for record in caplog.records]
    assert said.startswith(
        f"this dataset has a cache already, of 8.0 MiB in {place}, and keeps it: open the data anew for one of 1.0 GiB"
    )


def test_a_dataset_that_could_have_none_may_be_asked_again(tmp_path: Path, place: Path):
    dataset = fastfeed.open(pack_photos(tmp_path), cache="64", cache_dir=place)
    assert dataset.cache is not None and dataset.cache.folder is None
    use_cache(dataset, "8MiB", place)
    assert dataset.cache.folder == str(place)


def test_other_datasets_are_refused_where_a_size_is_given(place: Path, caplog):
    caplog.set_level("INFO", "fastfeed.cache")
    with pytest.raises(UsageError, match="a dataset of type Flat"):
        use_cache(Flat(), "8MiB", place)
    use_cache(Flat(), "auto", place)
    use_cache(Flat(), None, None)
    assert not list(place.iterdir())
    (said,) = [record.getMessage() for record in caplog.records]
    assert said.startswith("no cache: cache keeps the bytes of") and "fastfeed.cached(dataset, ...)" in said


def when_filled(loader: DataLoader) -> Filled:
    """What the background has fetched once there is no more for it to do."""
    deadline = time.monotonic() + 60
    while True:
        cache = loader.stats().cache
        assert cache is not None and cache.filled is not None and time.monotonic() < deadline
        if cache.filled.state not in {"it begins", "it goes on"}:
            return cache.filled
        time.sleep(0.005)


def test_values_that_do_not_fit(tmp_path: Path, place: Path):
    dataset = fastfeed.open(pack_photos(tmp_path))
    for wrong in ("much", "8 parsecs", 0, -1, 1.5):
        with pytest.raises(UsageError, match="cache"):
            DataLoader(dataset, cache=wrong, cache_dir=place)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="nothing says how large"):
        DataLoader(dataset, cache_dir=place)
    assert dataset.cache is None


def test_plan_and_stats_tell(tmp_path: Path, place: Path):
    dataset = fastfeed.open(pack_photos(tmp_path), transform=lambda image: 0)
    loader = DataLoader(dataset, 2, num_workers=0, cache="8MiB", cache_dir=place)
    assert (loader.cache, loader.cache_dir) == ("8MiB", place)
    assert f"cache in {place}" in str(loader.plan) and " were asked for)" in str(loader.plan)
    assert "reads were hits" not in str(loader.plan)
    for _ in range(2):
        list(loader)
    stats = loader.stats()
    assert stats.cache is not None and stats.cache.hits + stats.cache.misses == 12 and stats.cache.misses < 6
    assert stats.cache.fetched_bytes in {0, sum(path.stat().st_size for path in (tmp_path / "packed").glob("*.tar"))}
    assert stats.to_json()["cache"]["hits"] == stats.cache.hits and "reads were hits" in str(stats)
    assert f"\n  {loader.stats().cache}" in str(loader.plan) and "12 reads were hits" in str(loader.plan)
    last = loader.stats("epoch").cache
    assert last is not None and (last.hits, last.misses) == (6, 0)


def test_the_plan_says_what_batches_need_of_shared_memory_first(tmp_path: Path, place: Path):
    dataset = fastfeed.open(pack_photos(tmp_path), transform=lambda image: torch.zeros(100_000), cache="8MiB", cache_dir=place)
    loader = DataLoader(dataset, 2, num_workers=1, multiprocessing_context="fork", prefetch_factor=3)
    list(loader)
    assert "batches need up to 3.8 MiB of /dev/shm: a cache there leaves so much free" in str(loader.plan)  # 5 of 800 kB


SAME = """
import json, os, sys
import torch
import fastfeed
from fastfeed import DataLoader
from torchvision.transforms import Compose, RandomResizedCrop, ToTensor

if __name__ == "__main__":
    path, place, method = sys.argv[1:]
    transform = Compose([RandomResizedCrop(8), ToTensor()])
    expected = [[image for image, _ in DataLoader(fastfeed.open(path, transform), 4, shuffle=True, seed=3, num_workers=0)]]
    found = []
    for workers in (0, 1, 2):
        dataset = fastfeed.open(path, transform)
        loader = DataLoader(dataset, 4, shuffle=True, seed=3, num_workers=workers, cache="8MiB", cache_dir=place,
                            multiprocessing_context=method if workers else None)
        for epoch in (0, 0):
            loader.set_epoch(epoch)
            batches = [image for image, _ in loader]
            equal = len(batches) == len(expected[0]) and all(map(torch.equal, batches, expected[0]))
            found.append(equal)
        stats = loader.stats().cache
        found.append(stats.hits > stats.misses)
        del loader, dataset
        found.append(os.listdir(place) == [])
    print(json.dumps(found))
"""


@pytest.mark.long
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_batches_are_the_same_for_each_number_of_workers_and_start_method(tmp_path: Path, place: Path, method):
    script = tmp_path / "script.py"
    script.write_text(SAME)
    path = pack_photos(tmp_path, each=10, shards=2)
    assert printed([sys.executable, "-W", "ignore", str(script), str(path), str(place), method]) == [True] * 12


def test_it_is_filled_in_the_background_from_the_first_pass_on(tmp_path: Path, place: Path):
    path = pack_photos(tmp_path, shards=2)
    dataset = fastfeed.open(path, transform=lambda image: 0)
    loader = DataLoader(Subset(dataset, [0]), num_workers=0, cache="8MiB", cache_dir=place)
    (name,) = caches_in(place)
    data = folder_of(place) / name / "data"
    assert data.stat().st_size == 0
    list(loader)
    whole = sum(shard.stat().st_size for shard in path.glob("*.tar"))
    found = when_filled(loader)
    assert data.stat().st_size == whole
    assert found.fetched_bytes in {whole // 2, whole}  # a reader fetched the other block, or was late
    assert str(found) in str(loader.stats()) and str(found) in str(loader.plan)
    del loader, dataset
    gc.collect()
    assert not list(place.iterdir())


def plain_photos(tmp_path: Path, place: Path) -> tuple[Path, PackedDataset]:
    """A folder of photos, and the dataset of them, with a cache."""
    folder = make_photos(tmp_path / "photos")
    return folder, fastfeed.open(folder, transform=lambda image: 0, cache="8MiB", cache_dir=place)


def test_plain_files_are_filled_as_well(tmp_path: Path, place: Path):
    folder, dataset = plain_photos(tmp_path, place)
    loader = DataLoader(dataset, num_workers=0)
    assert dataset.filled is None
    next(iter(loader))
    found = when_filled(loader)
    assert found.state == "it came to the end" and found.pieces in {5, 6}
    (name,) = caches_in(place)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    assert (folder_of(place) / name / "data").stat().st_size == size
    for path in folder.rglob("*"):  # all of them are kept
        if path.is_file():
            path.unlink()
    assert sum(len(targets) for _, targets in DataLoader(dataset, 2, num_workers=0)) == 6
    del loader, dataset
    gc.collect()
    assert not list(place.iterdir())


def test_of_plain_files_only_those_are_filled_that_are_wanted(tmp_path: Path, place: Path):
    folder, dataset = plain_photos(tmp_path, place)
    view = dataset.select([5, 1, 3])
    loader = DataLoader(Subset(view, [-1, 0]), num_workers=0)
    next(iter(loader))
    assert when_filled(loader).state == "it came to the end"
    (name,) = caches_in(place)
    size = sum(os.stat(folder / dataset.samples[position][0]).st_size for position in (3, 5))
    assert (folder_of(place) / name / "data").stat().st_size == size


class Squares(Dataset[int]):
    """Samples that are heavy to make, written down with the process that made them."""

    def __init__(self, log: Path) -> None:
        self.log = log

    def __getitem__(self, index: int) -> int:
        with open(self.log, "a", encoding="ascii") as file:
            file.write(f"{os.getpid()} {index}\n")
        return index * index

    def __len__(self) -> int:
        return 300


@pytest.mark.parametrize("workers", [0, 1])
def test_samples_of_others_are_filled_beside_workers_as_far_as_they_are_wanted(tmp_path: Path, place: Path, workers):
    squares, context = Squares(tmp_path / "log"), "fork" if workers else None
    kept = fastfeed.cached(squares, "sample", cache="8MiB", cache_dir=place)
    wanted = list(range(299, 99, -1))
    tried = len(squares.log.read_text().splitlines())
    loader = DataLoader(Subset(kept, wanted), 50, num_workers=workers, multiprocessing_context=context, seed=1)
    assert torch.cat(list(loader)).tolist() == [index * index for index in wanted]
    if not workers:
        assert kept.filled is None  # no workers means no process at all
        return
    assert when_filled(loader).state == "it came to the end"
    made = [tuple(map(int, line.split())) for line in squares.log.read_text().splitlines()[tried:]]
    assert os.getpid() not in {process for process, _ in made} and {index for _, index in made} == set(wanted)
    assert torch.cat(list(loader)).tolist() == [index * index for index in wanted]
    stats = loader.stats("epoch").cache
    assert stats is not None and (stats.hits, stats.misses) == (200, 0)
    del loader, kept
    gc.collect()
    assert not list(place.iterdir())
