"""timm's own loaders: with install() they are ours, and give the batches that they give without it; also on two ranks."""

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from commands import environment
from helpers import ROOT, make_photos
from loading import equal, remains, seed_all, states
from PIL import Image
from ranked import noted
from torch.utils.data import Dataset

import fastfeed

SIZE = 14
LOADERS: dict[str, dict[str, Any]] = {
    "training": {},
    "training, no workers": {"num_workers": 0},
    "training, prefetcher": {"use_prefetcher": True},
    "training, persistent workers": {"persistent_workers": True},
    "evaluation": {"is_training": False},
    "evaluation, prefetcher": {"is_training": False, "use_prefetcher": True},
    "many epochs": {"use_multi_epochs_loader": True},
    "many epochs, prefetcher": {"use_multi_epochs_loader": True, "use_prefetcher": True},
    "many epochs, evaluation": {"use_multi_epochs_loader": True, "is_training": False, "num_workers": 0},
    "several sizes": {"input_size_choices": [24, 32], "batch_size_choices": [4, 2]},
}
RANKED: dict[str, dict[str, Any]] = {
    "training": {},
    "repeated augmentation": {"num_aug_repeats": 2},
    "evaluation": {"is_training": False},
    "many epochs": {"use_multi_epochs_loader": True},
}


class Pictures(Dataset[Any]):
    """Small random pictures; create_loader sets the transform."""

    transform: Any = None

    def __len__(self) -> int:
        return SIZE

    def __getitem__(self, index: int) -> Any:
        pixels = np.random.default_rng(index).integers(0, 256, (40, 40, 3), dtype=np.uint8)
        image = Image.fromarray(pixels)
        return image if self.transform is None else self.transform(image), index


def made(dataset: Any, **options: Any) -> Any:
    """A loader of timm's."""
    from timm.data.loader import create_loader

    usual = {"use_prefetcher": False, "num_workers": 2, "persistent_workers": False, "is_training": True}
    return create_loader(dataset, (3, 32, 32), 4, device=torch.device("cpu"), **{**usual, **options})


def within(loader: Any) -> Any:
    """torch's loader, or ours, that timm's prefetcher reads."""
    return getattr(loader, "loader", loader)


def epochs(**options: Any) -> dict[str, Any]:
    seed_all(3)
    loader = made(Pictures(), **options)
    batches = []
    for epoch in range(3):
        if hasattr(loader.sampler, "set_epoch"):
            loader.sampler.set_epoch(epoch)
        batches.append(list(loader))
    inner = within(loader)
    return {
        "batches": batches, "states": states(), "len": len(loader), "ours": isinstance(inner, fastfeed.DataLoader),
        "plan": str(getattr(inner, "plan", "")), "kind": type(inner).__name__,
    }  # fmt: skip


def mixed_up() -> list[Any]:
    """Batches of timm's mixup, which its training script switches off for the last epochs through the loader."""
    from timm.data.mixup import FastCollateMixup

    seed_all(5)
    collate = FastCollateMixup(mixup_alpha=0.8, num_classes=SIZE)
    loader = made(Pictures(), use_prefetcher=True, collate_fn=collate)
    first = list(loader)
    loader.mixup_enabled = False
    return [first, list(loader)]


def alone(folder: Path) -> dict[str, Any]:
    """All loaders of one process, and what they leave behind."""
    from timm.data.dataset_factory import create_dataset

    before = remains()
    found: dict[str, Any] = {name: epochs(**options) for name, options in LOADERS.items()}
    found["mixup"] = mixed_up()
    seed_all(2)
    photos = make_photos(folder / "photos")
    found["folder"] = [targets.tolist() for _, targets in made(create_dataset("", root=str(photos)))]
    os.environ["FASTFEED_OVERRIDE"] = "num_workers,prefetch_factor"
    found["override"] = {name: epochs(**LOADERS[name]) for name in ("training", "many epochs")}
    after = remains()
    return {**found, "left": {name: after[name] for name in ("children", "shm", "stacks") if after[name] != before[name]}}


def train(loader: Any) -> list[float]:
    """As timm's train.py goes through a loader: without its model."""
    torch.manual_seed(1)
    model = torch.nn.parallel.DistributedDataParallel(
        torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 32 * 32, SIZE))
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    losses = []
    for epoch in range(2):
        loader.sampler.set_epoch(epoch)
        for images, targets in loader:
            loss = torch.nn.functional.cross_entropy(model(images), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
    return losses


def ranked(folder: Path, rank: int) -> dict[str, Any]:
    """The loaders of one of two ranks."""
    dist.init_process_group("gloo", init_method=f"file://{folder}/group", rank=rank, world_size=2)
    found: dict[str, Any] = {name: epochs(distributed=True, **options) for name, options in RANKED.items()}
    seed_all(4)
    found["losses"] = train(made(Pictures(), distributed=True, use_prefetcher=True))
    dist.destroy_process_group()
    return found


def child(work: Callable[..., Any], folder: Path, installs: bool, *arguments: Any) -> None:
    """A process that has not imported timm yet; it leaves a file with what the work gave."""
    name = "-".join(["installed" if installs else "plain", *map(str, arguments)])
    with noted(folder / f"{name}.txt"):
        assert "timm" not in sys.modules
        if installs:
            fastfeed.install()
        torch.save(work(folder, *arguments), folder / f"{name}.pt")


def forked(folder: Path, *calls: tuple[Any, ...]) -> None:
    """Some calls of child() at once, each in a process of its own."""
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=child, args=(globals()[work], folder, *rest)) for work, *rest in calls]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    sys.exit(max(abs(process.exitcode or 0) for process in processes))


def in_processes(folder: Path, *calls: tuple[Any, ...]) -> list[Any]:
    """What some calls of child() gave. They are forked from a new process: one that has trained before hangs in a fork."""
    folder.mkdir(exist_ok=True)
    named = [(work.__name__, *rest) for work, *rest in calls]
    script = f"from pathlib import Path\nimport {__name__} as own\nown.forked(Path({str(folder)!r}), *{named!r})"
    places = [ROOT, ROOT / "tests", Path(__file__).parent]
    env = environment({"PYTHONPATH": os.pathsep.join(map(str, places))})
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, timeout=240, check=False)
    notes = "".join(path.read_text() for path in folder.glob("*.txt"))
    assert done.returncode == 0, notes or done.stderr
    names = ["-".join(["installed" if installs else "plain", *map(str, more)]) for _, installs, *more in calls]
    return [torch.load(folder / f"{name}.pt", weights_only=False) for name in names]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """What timm's loaders give without install() and with it, in one process."""
    folder = tmp_path_factory.mktemp("timm")
    return [*in_processes(folder / "a", (alone, False)), *in_processes(folder / "b", (alone, True))]


@pytest.mark.long
@pytest.mark.parametrize("name", LOADERS)
def test_batches_are_those_without_us(both, name):
    theirs, ours = (found[name] for found in both)
    assert (theirs["ours"], ours["ours"]) == (False, True)
    assert equal(theirs["batches"], ours["batches"])
    assert equal(theirs["states"], ours["states"])
    assert theirs["len"] == ours["len"]
    assert theirs["kind"] == ours["kind"] == ("MultiEpochsDataLoader" if name.startswith("many") else "DataLoader")
    assert len(ours["batches"]) == 3 and all(ours["batches"])
    assert "num_workers was given" in ours["plan"]


def test_mixup_in_the_collate_function(both):
    theirs, ours = (found["mixup"] for found in both)
    assert equal(theirs, ours)
    mixed, plain = (epoch[0][1] for epoch in ours)
    assert mixed.shape == plain.shape == (4, SIZE)
    assert int((mixed > 0.01).sum(1).max()) == 2 and int((plain > 0.01).sum(1).max()) == 1


def test_a_dataset_of_timms_own(both):
    theirs, ours = (found["folder"] for found in both)
    assert ours == theirs and all(len(batch) == 4 for batch in ours)


def test_nothing_is_left_behind(both):
    assert [found["left"] for found in both] == [{}, {}]


@pytest.mark.parametrize("name", ["training", "many epochs"])
def test_the_override_reaches_timms_loaders(both, name):
    """create_loader hands num_workers on, so it is an explicit value."""
    _, ours = (found["override"][name] for found in both)
    assert "num_workers=2 was given and gives way to ours (FASTFEED_OVERRIDE)" in ours["plan"]
    assert "random numbers are drawn anew for each sample" in ours["plan"]
    images = [image for epoch in ours["batches"] for batch in epoch for image in batch[0]]
    assert len({image.numpy().tobytes() for image in images}) == len(images)  # no epoch repeats another's augmentation


@pytest.mark.long
def test_two_ranks_read_and_train_as_without_us(tmp_path):
    theirs = in_processes(tmp_path / "a", *((ranked, False, rank) for rank in range(2)))
    ours = in_processes(tmp_path / "b", *((ranked, True, rank) for rank in range(2)))
    for name in RANKED:
        for rank in range(2):
            assert (theirs[rank][name]["ours"], ours[rank][name]["ours"]) == (False, True)
            assert equal(theirs[rank][name]["batches"], ours[rank][name]["batches"]), (name, rank)
    assert theirs[0]["losses"] == ours[0]["losses"]
    evaluated = [i for rank in ours for batch in rank["evaluation"]["batches"][0] for i in batch[1].tolist()]
    assert sorted(evaluated) == list(range(SIZE))
    assert not equal(ours[0]["training"]["batches"], ours[1]["training"]["batches"])
