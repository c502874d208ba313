"""A packed dataset under torch's own DataLoader and webdataset's, in other processes, and over many epochs."""

import gc
import json
import subprocess
import sys
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import pytest
import torch
import webdataset
from helpers import ROOT, files_below, flip_bit, make_photos, pack_photos, packed
from torch.utils.data import ConcatDataset, DataLoader, Subset, random_split

import fastfeed
from fastfeed.errors import ManifestDamaged, NotADataset, ShardDamaged

DEADLINE_SECONDS = 120


def pixels(image) -> torch.Tensor:
    return torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8)


def drained(loader: DataLoader[Any]) -> list[tuple[bytes, int]]:
    """(pixels, target) of every sample of an epoch."""
    return [(bytes(row.numpy()), int(target)) for rows, targets in loader for row, target in zip(rows, targets, strict=True)]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fourteen samples in three shards."""
    folder: Path = pack_photos(tmp_path_factory.mktemp("torch"), each=7, shards=3)
    return folder


# ------------------------------------------------------------------------------------------------ torch's DataLoader
@pytest.mark.parametrize("workers", [0, 2])
def test_a_dataloader_gives_every_sample_in_order(path: Path, workers: int):
    dataset = fastfeed.open(path, transform=pixels)
    wanted = [(bytes(image.numpy()), target) for image, target in dataset]
    loader = DataLoader(dataset, batch_size=4, num_workers=workers)
    assert drained(loader) == wanted
    assert drained(loader) == wanted, "a second epoch"


def test_shuffle_subset_split_and_concat(path: Path):
    dataset = fastfeed.open(path, transform=pixels)
    wanted = [(bytes(image.numpy()), target) for image, target in dataset]
    shuffled = drained(DataLoader(dataset, batch_size=3, shuffle=True, generator=torch.Generator().manual_seed(1)))
    assert shuffled != wanted
    assert sorted(shuffled) == sorted(wanted)
    assert drained(DataLoader(Subset(dataset, [5, 0, 13]), batch_size=2)) == [wanted[5], wanted[0], wanted[13]]
    parts = random_split(dataset, [10, 4], torch.Generator().manual_seed(2))
    assert sorted(sample for part in parts for sample in drained(DataLoader(part, batch_size=4))) == sorted(wanted)
    both: ConcatDataset[Any] = ConcatDataset([dataset, Subset(dataset, [1])])
    assert drained(DataLoader(both, batch_size=4, num_workers=1)) == [*wanted, wanted[1]]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_class_that_is_in_the_index_alone_travels_as_well(tmp_path: Path, workers: int):
    path = pack_photos(tmp_path, each=4, shards=3, write_cls=False)
    packed(tmp_path / "photos", tmp_path / "with", shards=3)
    loaders = [
        DataLoader(fastfeed.open(folder, transform=pixels), batch_size=3, num_workers=workers)
        for folder in (path, tmp_path / "with")
    ]
    assert drained(loaders[0]) == drained(loaders[1])
    assert [target for _, target in drained(loaders[0])] == [0] * 4 + [1] * 4


def test_dict_samples_collate(tmp_path: Path):
    (tmp_path / "src").mkdir()
    for number in range(4):
        (tmp_path / "src" / f"{number}.cls").write_text(str(number))
        (tmp_path / "src" / f"{number}.txt").write_text(f"text {number}")
    packed(tmp_path / "src", tmp_path / "packed")
    (batch,) = DataLoader(fastfeed.open(tmp_path / "packed"), batch_size=4)
    assert batch["cls"].tolist() == [0, 1, 2, 3]
    assert batch["txt"] == [f"text {number}" for number in range(4)]


@pytest.mark.parametrize("workers", [0, 1])
def test_an_error_in_a_worker_names_shard_and_sample(tmp_path: Path, workers: int):
    path = pack_photos(tmp_path)
    place = next(iter(place for place in fastfeed.open(path)._archive.places(4) if place.field == "jpg"))
    flip_bit(path / place.shard, place.start + 40)
    loader = DataLoader(fastfeed.open(path, transform=pixels), batch_size=2, num_workers=workers)
    where = rf"shard {place.shard}, sample 4, key 'dog/001', source 'dog/001\.jpg', member 'dog/001\.jpg', bytes \["
    with pytest.raises(ShardDamaged, match=where):
        drained(loader)


START_METHODS = """
import json, sys, warnings
import fastfeed, torch
from torch.utils.data import ConcatDataset, DataLoader, Subset

def pixels(image):
    return torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8)

def main():
    warnings.simplefilter("error")
    dataset = fastfeed.open(sys.argv[1], transform=pixels)
    dataset[0]  # files are open before the workers start
    wanted = [target for _, target in dataset], torch.stack([image for image, _ in dataset]).sum().item()
    many = ConcatDataset([Subset(dataset, range(5)), Subset(dataset, range(5, len(dataset)))])
    found = {}
    for method in ("fork", "spawn", "forkserver"):
        loader = DataLoader(many, batch_size=4, num_workers=2, multiprocessing_context=method)
        batches = list(loader)
        targets = torch.cat([targets for _, targets in batches]).tolist()
        found[method] = (targets, torch.cat([images for images, _ in batches]).sum().item()) == wanted
    print(json.dumps(found))

if __name__ == "__main__":
    main()
"""


@pytest.mark.long
def test_fork_spawn_and_forkserver(path: Path, tmp_path: Path):
    script = tmp_path / "train.py"
    script.write_text(START_METHODS)
    done = subprocess.run(
        [sys.executable, str(script), str(path)],
        capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=False, env={"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.stderr == ""
    assert json.loads(done.stdout) == {"fork": True, "spawn": True, "forkserver": True}


# ------------------------------------------------------------------------------------------------ pickling
def pickled(thing: object) -> bytes:
    """As torch sends a dataset to a spawned worker."""
    return bytes(ForkingPickler.dumps(thing))


def test_it_travels_as_its_path(tmp_path: Path):
    sizes = []
    for name, each in (("a", 2), ("b", 40)):
        dataset = fastfeed.open(pack_photos(tmp_path / name, each=each), transform=pixels)
        for _ in dataset:
            pass
        _ = dataset.targets, dataset.samples[0], dataset.column("width")
        sizes.append(len(pickled(dataset)))
    assert sizes[0] == sizes[1] < 1000


def test_what_travelled_is_the_same_dataset(path: Path):
    dataset = fastfeed.open(path, transform=pixels, target_transform=float, fields=["jpg", "cls"], decoders={"cls": "int"})
    copy = ForkingPickler.loads(pickled(dataset))
    assert (len(copy), copy.digest, copy.classes, copy.path) == (len(dataset), dataset.digest, dataset.classes, dataset.path)
    assert [(image.tolist(), target) for image, target in copy] == [(image.tolist(), target) for image, target in dataset]


@pytest.mark.parametrize("fields", [None, ["jpg", "cls"], ["cls"], ["jpg"], []])
def test_a_class_that_is_in_the_index_alone_survives_the_journey(tmp_path: Path, fields: list[str] | None):
    path = pack_photos(tmp_path, write_cls=False)
    dataset = fastfeed.open(path, fields=fields)
    copy = ForkingPickler.loads(pickled(dataset))
    assert copy.fields == dataset.fields == tuple(sorted(["cls", "jpg"] if fields is None else fields))
    assert repr(copy) == repr(dataset)
    assert [shown(sample) for sample in copy] == [shown(sample) for sample in dataset]
    pairs = fastfeed.open(path, transform=pixels, target_transform=float)
    copy = ForkingPickler.loads(pickled(pairs))
    assert [(image.tolist(), target) for image, target in copy] == [(image.tolist(), target) for image, target in pairs]


def shown(sample: Any) -> object:
    """A sample with its picture as bytes."""
    if isinstance(sample, tuple):
        return sample[0].tobytes(), sample[1]
    return {name: value.tobytes() if name == "jpg" else value for name, value in sample.items()}


def test_a_dataset_that_was_packed_anew_meanwhile(tmp_path: Path):
    path = pack_photos(tmp_path)
    raw = pickled(fastfeed.open(path))
    packed(tmp_path / "photos", path, overwrite=True)
    assert len(ForkingPickler.loads(raw)) == 6, "the same bytes are the same dataset"
    packed(tmp_path / "photos", path, overwrite=True, shuffle=1)
    with pytest.raises(ManifestDamaged, match=r"the dataset was packed anew since this object was made .* Open it again"):
        ForkingPickler.loads(raw)


def test_a_dataset_that_is_gone_meanwhile(tmp_path: Path):
    path = pack_photos(tmp_path)
    raw = pickled(fastfeed.open(path))
    path.rename(tmp_path / "elsewhere")
    with pytest.raises(NotADataset, match="packed does not exist"):
        ForkingPickler.loads(raw)


# ------------------------------------------------------------------------------------------------ memory
EPOCHS = """
import gc, sys
import fastfeed

def anonymous_kib():
    gc.collect()
    for line in open("/proc/self/smaps_rollup"):
        if line.startswith("Anonymous:"):
            return int(line.split()[1])

dataset = fastfeed.open(sys.argv[1])
for position in range(100):
    dataset[position], dataset.identity(position), dataset.samples[position]
before = anonymous_kib()
for epoch in range(20):
    if epoch % 2:
        for start in range(0, len(dataset), 50):
            dataset.__getitems__(range(start, min(start + 50, len(dataset))))
    else:
        for position in range(len(dataset)):
            dataset[position], dataset.identity(position), dataset.samples[position]
print(anonymous_kib() - before)
"""


def grown_kib(path: Path) -> int:
    """How much a process's own memory (no file pages) grows over 20 epochs; a list of 5,000 objects would be 500 KiB."""
    command = [sys.executable, "-W", "error::ResourceWarning", "-c", EPOCHS, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def make_texts(folder: Path, count: int) -> Path:
    for number in range(count):
        below = folder / "src" / f"{number % 5}"
        below.mkdir(parents=True, exist_ok=True)
        (below / f"{number:06d}.txt").write_text(f"text {number}")
    packed(folder / "src", folder / "packed", shards=4)
    return folder / "packed"


@pytest.mark.long
def test_memory_is_flat_over_20_epochs(tmp_path: Path):
    assert grown_kib(make_texts(tmp_path, 5000)) < 400


@pytest.mark.soak
def test_memory_is_flat_over_20_epochs_of_many_samples(tmp_path: Path):
    assert grown_kib(make_texts(tmp_path, 100_000)) < 1000


@pytest.mark.soak
def test_workers_memory_is_flat_over_20_epochs(tmp_path: Path):
    make_photos(tmp_path / "photos", each=2000)
    packed(tmp_path / "photos", tmp_path / "packed")
    dataset = fastfeed.open(tmp_path / "packed", transform=pixels)
    loader = DataLoader(dataset, batch_size=64, shuffle=True, num_workers=2, persistent_workers=True)

    def worker_kib() -> list[int]:
        pids = Path("/proc/thread-self/children").read_text().split()
        texts = [Path(f"/proc/{pid}/smaps_rollup").read_text() for pid in pids]
        return [int(line.split()[1]) for text in texts for line in text.splitlines() if line.startswith("Anonymous:")]

    for _ in range(3):
        drained(loader)
    before = worker_kib()
    for _ in range(20):
        drained(loader)
    assert len(before) >= 2
    assert max(after - then for then, after in zip(before, worker_kib(), strict=True)) < 4000
    del loader
    gc.collect()


# ------------------------------------------------------------------------------------------------ webdataset
def test_webdataset_reads_the_same_bytes_from_the_same_tars(path: Path):
    dataset = fastfeed.open(path, decoders={"jpg": "raw", "cls": "raw"})
    ours = {dataset.identity(position).key: dataset[position] for position in range(len(dataset))}
    urls = [str(path / name) for name in sorted(files_below(path)) if name.endswith(".tar")]
    theirs = webdataset.WebDataset(urls, shardshuffle=False)
    loader = webdataset.WebLoader(theirs, batch_size=None, num_workers=2)
    found = {sample["__key__"]: (sample["jpg"], sample["cls"]) for sample in loader}
    assert found == ours
    assert len(found) == 14


def test_webdataset_decodes_what_we_decode(path: Path):
    urls = [str(path / name) for name in sorted(files_below(path)) if name.endswith(".tar")]
    theirs = webdataset.WebDataset(urls, shardshuffle=False).decode("pil").to_tuple("__key__", "jpg", "cls")
    loader = webdataset.WebLoader(theirs, batch_size=None, num_workers=1)  # in a worker: it leaves files open
    found = {key: (image.tobytes(), number) for key, image, number in loader}
    dataset = fastfeed.open(path)
    assert found == {dataset.identity(at).key: (image.tobytes(), target) for at, (image, target) in enumerate(dataset)}
