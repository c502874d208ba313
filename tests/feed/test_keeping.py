"""fastfeed.cached: any dataset's samples with and without it, shared by processes, believed only as long as they are true.

Long, and whole: all tests keep samples of the same few datasets below, which count how often they make one.
"""

import copy
import logging
import os
import pickle
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from caching import caches_in, folder_of, other_process
from helpers import make_photos, pack_photos
from loading import printed
from torch.utils.data import DataLoader as TorchDataLoader
from torchvision.datasets import ImageFolder

import fastfeed
from fastfeed import DataLoader
from fastfeed.errors import UsageError
from fastfeed.feed import keeping
from fastfeed.feed.naming import sample_name
from fastfeed.feed.prefix import TRIALS
from fastfeed.store.cachelist import caches
from fastfeed.trace import reading_epoch


class Heavy(torch.utils.data.Dataset[Any]):
    """Samples that are heavy to make, each of which is written down."""

    def __init__(self, log: Path, transform: Any = None, factor: int = 2) -> None:
        # In two parts: a file that is named and that changes all the while would make it another dataset each time.
        self.log, self.transform, self.factor = os.path.split(log), transform, factor

    def __len__(self) -> int:
        return 80

    def __getitem__(self, index: int) -> Any:
        with open(os.path.join(*self.log), "a", encoding="ascii") as file:
            file.write(f"{index}\n")
        sample = {"number": index, "values": torch.arange(20) * index * self.factor}
        return sample if self.transform is None else self.transform(sample)


def values(samples: list[dict[str, Any]]) -> list[int]:
    return [int(sample["values"][1]) for sample in samples]


def noisy(sample: dict[str, Any]) -> dict[str, Any]:
    return {**sample, "values": sample["values"] + torch.rand(20)}


def doubled(sample: dict[str, Any]) -> dict[str, Any]:
    return {**sample, "values": sample["values"] * 2}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "place").mkdir()
    return tmp_path / "place"


def made(log: Path) -> int:
    """How many samples were made so far."""
    return len(log.read_text().splitlines()) if log.exists() else 0


def test_each_sample_is_made_once_and_random_steps_each_time(tmp_path: Path, place: Path, monkeypatch):
    monkeypatch.setattr(keeping, "LEAST_RECHECKS", 1)
    heavy = Heavy(tmp_path / "log", noisy)
    dataset = fastfeed.cached(heavy, cache="8MiB", cache_dir=place)
    assert str(dataset.cache).startswith(f"cache in {place}") and len(caches_in(place)) == 1
    tried = made(tmp_path / "log")
    assert tried == 3 * TRIALS
    found = []
    for source in (heavy, dataset, dataset):
        torch.manual_seed(3)
        found.append([(sample["number"], sample["values"].tolist()) for sample in (source[index] for index in range(80))])
    assert found[0] == found[1] == found[2]
    assert made(tmp_path / "log") <= tried + 2 * 80 + 1
    assert dataset[-1]["number"] == 79 and len(dataset) == 80
    with pytest.raises(TypeError):
        dataset["80"]
    del dataset, source
    assert not list(place.iterdir())


def test_other_attributes_functions_and_versions_have_other_caches(tmp_path: Path, place: Path):
    log = tmp_path / "log"
    kept = [
        fastfeed.cached(Heavy(log, noisy), cache="8MiB", cache_dir=place),
        fastfeed.cached(Heavy(log, lambda sample: sample), cache="8MiB", cache_dir=place),  # only what is kept counts
        fastfeed.cached(Heavy(log, noisy, factor=3), cache="8MiB", cache_dir=place),
        fastfeed.cached(Heavy(log, noisy), cache="8MiB", cache_dir=place, version="2"),
        fastfeed.cached(Heavy(log), "sample", cache="8MiB", cache_dir=place),
    ]
    names = [data.cache.name for data in kept]
    assert names[0] == names[1] and len(set(names)) == 4 == len(caches_in(place))


def test_what_has_changed_is_found_and_nothing_kept_is_believed_any_more(tmp_path: Path, place: Path, caplog):
    heavy = Heavy(tmp_path / "log")
    dataset = fastfeed.cached(heavy, "sample", cache="8MiB", cache_dir=place)
    for index in range(80):
        dataset[index]
    heavy.factor = 10  # behind its back
    with reading_epoch(3):
        found = [int(dataset[index]["values"][1]) for index in range(80)]
    assert found == [index * 2 for index in range(3)] + [index * 10 for index in range(3, 80)]
    assert "is not what was kept of it" in caplog.text and "the cache was emptied" in caplog.text
    assert not caches_in(place)  # this was its only user
    other = fastfeed.cached(Heavy(tmp_path / "log"), "sample", cache="8MiB", cache_dir=place)
    assert [int(other[index]["values"][1]) for index in range(80)] == [index * 2 for index in range(80)]


def read_anew(log: Path, before: int) -> list[int]:
    """Which samples were made since so many were."""
    return sorted(map(int, log.read_text().split()[before:]))


@pytest.mark.parametrize("workers", [0, 2])
def test_each_epoch_others_are_compared_whatever_the_number_of_workers(tmp_path: Path, place: Path, workers):
    log = tmp_path / "log"
    kept = fastfeed.cached(Heavy(log), "sample", cache="8MiB", cache_dir=place)
    loader = DataLoader(kept, 4, shuffle=True, seed=1, num_workers=workers, multiprocessing_context="fork" if workers else None)
    list(loader)
    for epoch in (1, 2, 11):
        loader.set_epoch(epoch)
        before = made(log)
        list(loader)
        assert read_anew(log, before) == list(range(epoch % 10, 80, 10))
        stats = loader.stats("epoch").cache
        assert stats is not None and (stats.rechecks, stats.purges, stats.hits) == (8, 0, 80)


def test_without_a_loader_of_ours_some_are_compared_as_well(tmp_path: Path, place: Path):
    log = tmp_path / "log"
    kept = fastfeed.cached(Heavy(log), "sample", cache="8MiB", cache_dir=place)
    list(TorchDataLoader(kept, 4, collate_fn=len))
    found = []
    for _ in range(2):
        before = made(log)
        list(TorchDataLoader(kept, 4, collate_fn=len))
        found.append(read_anew(log, before))
    assert [len(again) for again in found] == [8, 8] and not set(found[0]) & set(found[1])


@pytest.mark.parametrize("workers", [0, 2])
def test_a_sample_that_differs_empties_the_cache_and_it_is_said(tmp_path: Path, place: Path, workers):
    heavy, said = Heavy(tmp_path / "log"), logging.FileHandler(tmp_path / "said")  # of all processes
    kept = fastfeed.cached(heavy, "sample", cache="8MiB", cache_dir=place)
    context = "fork" if workers else None
    loader = DataLoader(kept, 4, num_workers=workers, multiprocessing_context=context, collate_fn=values)
    list(loader)
    while kept.filled is not None and kept.filled.state in {"it begins", "it goes on"}:
        time.sleep(0.005)
    heavy.factor = 10
    keeping.LOG.addHandler(said)
    try:
        list(loader)
        stats = loader.stats("epoch").cache
        assert stats is not None and 1 <= stats.purges <= max(1, workers)
        assert "emptied" in str(loader.stats())
        assert (tmp_path / "said").read_text().count("and the cache was emptied; samples are made without it") == stats.purges
        assert [value for batch in loader for value in batch] == [index * 10 for index in range(80)]
    finally:
        keeping.LOG.removeHandler(said)
        said.close()


class Opened:
    """Begins a stream at the first sample, as datasets do whose file no two processes may share; one sample is random."""

    def __init__(self, rare: int = -1) -> None:
        self.rare = rare
        self.stream: Any = None

    def __len__(self) -> int:
        return 1000

    def __getitem__(self, index: int) -> Any:
        self.stream = self.stream or iter(number for number in range(5))
        return index, torch.rand(2) if index == self.rare else torch.zeros(2)


def test_what_a_dataset_opens_at_its_first_sample_is_not_open_when_workers_are_forked(place: Path):
    kept = [fastfeed.cached(Opened(), "sample", cache="8MiB", cache_dir=place) for _ in range(2)]
    assert kept[0].dataset.stream is None and kept[0].cache.name == kept[1].cache.name
    assert kept[0][3][0] == 3 and kept[0].dataset.stream is not None


def test_a_sample_that_is_random_is_not_kept_however_rare_it_is(place: Path, caplog):
    plain = Opened(rare=777)
    kept = fastfeed.cached(plain, "sample", cache="8MiB", cache_dir=place)
    found = []
    for dataset in (plain, kept, kept):
        torch.manual_seed(3)
        found.append([dataset[index][1].tolist() for index in range(770, 780)] + torch.rand(1).tolist())
    assert found[0] == found[1] == found[2]
    (record,) = caplog.records
    assert "sample 777 is not kept: it draws random numbers (torch)" in record.getMessage()


def test_caches_of_samples_are_listed_with_the_folder_that_they_are_of(tmp_path: Path, place: Path):
    make_photos(tmp_path / "photos")
    kept = [
        fastfeed.cached(ImageFolder(tmp_path / "photos"), "sample", cache="8MiB", cache_dir=place),
        fastfeed.cached([1, 2], "sample", cache="8MiB", cache_dir=place),
    ]
    (found,) = caches([str(place)], data=str(tmp_path / "photos")).caches
    assert found.data == str(tmp_path / "photos") and found.holds.endswith(" of samples (ImageFolder)") and found.in_use
    assert {info.data for info in caches([str(place)]).caches} == {"list", found.data} and len(kept) == 2


def test_data_that_is_replaced_has_another_cache(tmp_path: Path, place: Path):
    make_photos(tmp_path / "photos")

    def name(root: Path) -> str:
        return fastfeed.cached(ImageFolder(root), "sample", cache="8MiB", cache_dir=place).cache.name

    before = name(tmp_path / "photos")
    assert before == name(tmp_path / "photos")
    file = next((tmp_path / "photos").rglob("*.jpg"))
    shutil.copy2(file, tmp_path / "copy")
    os.replace(tmp_path / "copy", file)
    assert name(tmp_path / "photos") != before


def test_programs_in_other_folders_have_other_caches_where_nothing_says_where_data_is(tmp_path: Path, place: Path, monkeypatch):
    names = []
    for folder in ("one", "two", "one"):
        (tmp_path / folder).mkdir(exist_ok=True)
        monkeypatch.chdir(tmp_path / folder)
        names.append(fastfeed.cached(["a.jpg", "b.jpg"], "sample", cache="8MiB", cache_dir=place).cache.name)
    assert names[0] == names[2] != names[1]


def test_what_cannot_be_looked_into_is_said(place: Path):
    dataset = Opened()
    assert dataset[0][0] == 0
    kept = fastfeed.cached(dataset, "sample", cache="8MiB", cache_dir=place)
    assert "only this process and its workers use it: nobody can look into builtins.generator" in kept.told[-1]


@pytest.mark.parametrize("wrong", ["photos", Path("photos"), None, iter([1])], ids=["text", "path", "none", "iterator"])
def test_what_is_no_dataset_of_positions_is_told(wrong):
    with pytest.raises(UsageError, match="keeps samples of an object with a length and positions"):
        fastfeed.cached(wrong, "sample")


def test_nothing_is_kept_if_it_is_not_asked_for(place: Path):
    kept = fastfeed.cached([1, 2], "sample", cache=None)
    assert [kept[0], kept[1]] == [1, 2] and kept.told == ("no cache: none was asked for",) and not list(place.iterdir())


def test_damage_is_found_before_it_is_used(tmp_path: Path, place: Path):
    dataset = fastfeed.cached(Heavy(tmp_path / "log"), "sample", cache="8MiB", cache_dir=place)
    expected = [dataset[index]["values"].tolist() for index in range(80)]
    (name,) = caches_in(place)
    data = folder_of(place) / name / "data"
    data.write_bytes(bytes(data.stat().st_size))
    assert [dataset[index]["values"].tolist() for index in range(80)] == expected
    os.truncate(data, 10)
    assert [dataset[index]["values"].tolist() for index in range(80)] == expected


def test_no_room_and_no_cache_give_the_same(tmp_path: Path, place: Path):
    heavy = Heavy(tmp_path / "log", noisy)
    folder_of(place).mkdir(mode=0o755)
    without = fastfeed.cached(heavy, cache="8MiB", cache_dir=place)
    for dataset in (fastfeed.cached(heavy, cache=1, cache_dir=tmp_path), without):
        found = []
        for source in (heavy, dataset, dataset):
            torch.manual_seed(3)
            found.append([source[index]["values"].tolist() for index in range(80)])
        assert found[0] == found[1] == found[2]
    assert "may be entered by others" in str(without.cache)


def test_errors_are_the_datasets(place: Path):
    class Failing(list[int]):
        def __getitem__(self, index: Any) -> Any:
            if index == 7:
                msg = "seven"
                raise KeyError(msg)
            return super().__getitem__(index)

    with pytest.raises(KeyError, match="seven"):
        fastfeed.cached(Failing(range(10)), "sample", cache="8MiB", cache_dir=place)
    dataset = fastfeed.cached(Failing(range(7)), "sample", cache="8MiB", cache_dir=place)
    assert [dataset[index] for index in range(7)] == list(range(7))
    with pytest.raises(IndexError):
        dataset[8]


def test_a_file_that_is_missing_is_the_datasets_fault(place: Path, caplog):
    class Missing(list[int]):
        def __getitem__(self, index: Any) -> Any:
            if index == 199:
                return open(place / "missing", "rb")
            return super().__getitem__(index)

    dataset = fastfeed.cached(Missing(range(200)), "sample", cache="8MiB", cache_dir=place)
    for _ in range(2):
        with pytest.raises(FileNotFoundError):
            dataset[199]
        assert dataset[150] == 150
    assert len(caches_in(place)) == 1 and not caplog.records


def test_a_cache_that_is_taken_away_is_no_error(tmp_path: Path, place: Path, caplog):
    dataset = fastfeed.cached(Heavy(tmp_path / "log"), "sample", cache="8MiB", cache_dir=place)
    expected = [dataset.dataset[index]["values"].tolist() for index in range(80)]
    assert dataset[0]["values"].tolist() == expected[0]
    shutil.rmtree(folder_of(place))
    assert [dataset[index]["values"].tolist() for index in range(80)] == expected
    (record,) = caplog.records
    assert record.getMessage().startswith("the cache cannot be used any more (No such file or directory); samples are made")


def test_what_cannot_be_kept_is_refused(place: Path):
    with pytest.raises(UsageError, match="no samples"):
        fastfeed.cached([], "sample", cache_dir=place, cache="8MiB")
    with pytest.raises(UsageError, match="draws random numbers"):
        fastfeed.cached(Heavy(place / "log", noisy), "sample", cache_dir=place, cache="8MiB")


def test_what_is_kept_already_is_kept_again_behind_its_transform_alone(tmp_path: Path, place: Path):
    kept = fastfeed.cached(Heavy(tmp_path / "log", doubled), cache="8MiB", cache_dir=place)
    with pytest.raises(UsageError, match=r'keeps samples already.*upto="sample"'):
        fastfeed.cached(kept, cache="8MiB", cache_dir=place)
    twice = fastfeed.cached(kept, "sample", cache="8MiB", cache_dir=place)
    assert values([twice[3], twice[3]]) == [12, 12]


def test_pickles_join_the_same_cache(tmp_path: Path, place: Path):
    dataset = fastfeed.cached(Heavy(tmp_path / "log"), "sample", cache="8MiB", cache_dir=place)
    for index in range(80):
        dataset[index]
    other, before = pickle.loads(pickle.dumps(dataset)), made(tmp_path / "log")
    assert [other[index]["number"] for index in range(80)] == list(range(80))
    assert made(tmp_path / "log") == before + 8 and len(caches_in(place)) == 1


SHARED = """
import json, sys
import torch
import fastfeed
from fastfeed import DataLoader
from torchvision.datasets import ImageFolder
from torchvision.transforms import Compose, RandomCrop, Resize, ToTensor

if __name__ == "__main__":
    path, place, method = sys.argv[1:]
    dataset = ImageFolder(path, Compose([Resize(12), RandomCrop(8), ToTensor()]))
    expected = [image for image, _ in DataLoader(dataset, 4, shuffle=True, seed=3, num_workers=0)]
    found = []
    for upto in ("transform", 1):
        kept = fastfeed.cached(dataset, upto, cache="8MiB", cache_dir=place)
        for workers in (0, 1, 2):
            loader = DataLoader(kept, 4, shuffle=True, seed=3, num_workers=workers, persistent_workers=workers > 0,
                                multiprocessing_context=method if workers else None)
            for epoch in (0, 0):
                loader.set_epoch(epoch)
                found.append(all(map(torch.equal, [image for image, _ in loader], expected)))
            stats = loader.stats().cache
            found.append(stats.hits >= stats.misses)
    print(json.dumps(found))
"""


@pytest.mark.long
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_batches_are_the_same_for_each_number_of_workers(tmp_path: Path, place: Path, method):
    make_photos(tmp_path / "photos", each=10)
    script = tmp_path / "script.py"
    script.write_text(SHARED)
    assert printed([sys.executable, "-W", "ignore", str(script), str(tmp_path / "photos"), str(place), method]) == [True] * 18
    assert not list(place.iterdir())


MAKES = """
import sys
import fastfeed
from test_keeping import Heavy
dataset = fastfeed.cached(Heavy(sys.argv[1]), "sample", cache="8MiB", cache_dir=sys.argv[2])
print("ready", flush=True)
sys.stdin.readline()
for index in range(80):
    dataset[index]
print("done", flush=True)
sys.stdin.read()
"""


@pytest.mark.long
def test_two_programs_make_each_sample_once(tmp_path: Path, place: Path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.path.dirname(__file__))
    script = MAKES.replace("import fastfeed\n", f"sys.path.insert(0, {os.path.dirname(__file__)!r})\nimport fastfeed\n")
    log = tmp_path / "log"
    with other_process(script, log, place) as one, other_process(script, log, place) as two:
        assert len(caches_in(place)) == 1
        before = made(log)
        for process in (one, two):
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        assert [process.stdout.readline() for process in (one, two) if process.stdout] == ["done\n"] * 2
        assert 80 <= made(log) - before <= 80 + 8 + 8  # compared
        one.kill()
        one.wait()
        two.communicate()
    assert not list(place.iterdir())


def test_packed_photos_and_their_cache_together(tmp_path: Path, place: Path):
    from torchvision.transforms import Compose, RandomCrop, ToTensor

    opened = fastfeed.open(pack_photos(tmp_path), Compose([RandomCrop(8), ToTensor()]), decode="exact")
    kept = fastfeed.cached(opened, cache="8MiB", cache_dir=place)
    batches = []
    for dataset in (opened, kept, kept):
        loader = DataLoader(dataset, 2, num_workers=0, seed=1)
        assert (f"cache in {place}" in str(loader.plan)) == (dataset is kept)
        batches.append([image.tolist() for image, _ in loader])
    assert batches[0] == batches[1] == batches[2]


# ---------------------------------------------------------------------------------------------------- attributes
class Labelled(Heavy):
    """With what code written for torchvision asks for."""

    classes = ("even", "odd")
    _secret = 3

    @property
    def targets(self) -> list[int]:
        return [index % 2 for index in range(len(self))]


def test_attributes_of_the_dataset_are_read_there(tmp_path: Path, place: Path):
    kept = fastfeed.cached(Labelled(tmp_path / "log"), cache="8MiB", cache_dir=place, upto="sample")
    assert kept.classes == ("even", "odd") and kept.targets[:3] == [0, 1, 0] and kept.factor == 2
    assert kept.cache is not kept.dataset and kept.upto == "sample"  # its own come first
    for name in ("_secret", "class_to_idx", "__getitems__"):
        assert not hasattr(kept, name)
    with pytest.raises(AttributeError, match="'Labelled' object has no attribute 'class_to_idx'"):
        _ = kept.class_to_idx
    with pytest.raises(AttributeError, match="'CachedDataset' object has no attribute '_secret'"):
        _ = kept._secret
    for other in (pickle.loads(pickle.dumps(kept)), copy.copy(kept), copy.deepcopy(kept)):
        assert other.classes == ("even", "odd") and values([other[5]]) == [10]


def test_an_object_that_is_not_made_yet_has_no_attributes():
    """Python asks for __setstate__ and others of such a one."""
    empty = keeping.CachedDataset.__new__(keeping.CachedDataset)
    for name in ("dataset", "classes"):
        with pytest.raises(AttributeError, match=f"'CachedDataset' object has no attribute '{name}'"):
            getattr(empty, name)


def test_samples_are_called_as_their_dataset_calls_them(tmp_path: Path, place: Path):
    kept = fastfeed.cached(fastfeed.open(pack_photos(tmp_path)), cache="8MiB", cache_dir=place, upto="sample")
    assert kept.classes and sample_name(kept, 0).startswith("sample 0 (key '")
