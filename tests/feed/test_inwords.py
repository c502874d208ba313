"""A loader and its dataset in one line."""

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import make_photos, pack_photos
from loading import Flow, Numbers
from torch.utils.data import RandomSampler, Subset, TensorDataset, WeightedRandomSampler
from torchvision.datasets import ImageFolder

import fastfeed
from fastfeed.feed.inwords import dataset_text, loader_text
from fastfeed.feed.loader import DataLoader


class Rooted(Numbers):
    """Has a folder, or says so."""

    def __init__(self, root: Any) -> None:
        super().__init__()
        self.root = root


class Odd(Numbers):
    """Asking it costs something, or fails."""

    @property
    def path(self) -> str:
        pytest.fail("a property was asked for")

    def __len__(self) -> int:
        raise LookupError

    def __getitem__(self, index: Any) -> Any:
        pytest.fail("a sample was read")


def test_datasets_of_others():
    numbers = Numbers(1200)
    assert dataset_text(numbers) == "Numbers(1,200 samples)"
    assert dataset_text(Subset(Subset(numbers, range(50)), [3, 4])) == "2 of 50 of Numbers(1,200 samples)"
    assert dataset_text(Flow()) == "Flow(a stream)"
    assert dataset_text(TensorDataset(torch.zeros(1, 2))) == "TensorDataset(1 sample)"
    assert dataset_text(Odd()) == "Odd()" and dataset_text([1, 2]) == "list(2 samples)"
    assert dataset_text(Rooted(Path("a/b"))) == "Rooted('a/b': 23 samples)"


def test_a_path_is_whole_and_an_address_is_not_shown():
    long = "/data" * 100
    assert dataset_text(Rooted(long)) == f"Rooted({long!r}: 23 samples)"
    assert dataset_text(Rooted("s3://key:secret@bucket")) == "Rooted(23 samples)"


def test_a_dataset_of_ours_and_its_cache(tmp_path):
    folder = pack_photos(tmp_path)
    opened = fastfeed.open(folder)
    text = repr(opened)
    assert text.startswith(f"PackedDataset({os.fspath(folder)!r}: ") and "samples of cls+jpg" in text
    assert dataset_text(opened) == text and repr(DataLoader(opened, num_workers=0)).startswith(
        f"DataLoader({text}, batch_size=1"
    )
    place = tmp_path / "place"
    place.mkdir()
    kept = fastfeed.cached(opened, "sample", cache="8MiB", cache_dir=place)
    assert repr(kept) == f"CachedDataset({text}, samples are kept in {str(place)!r})"
    assert repr(fastfeed.cached(opened, "sample", cache=None)) == f"CachedDataset({text}, nothing is kept)"


def test_what_is_kept_of_a_foreign_dataset(tmp_path):
    from torchvision.transforms import Compose, Resize, ToTensor

    photos = ImageFolder(str(make_photos(tmp_path / "photos")), Compose([Resize((8, 8)), ToTensor()]))
    place = tmp_path / "place"
    place.mkdir()
    found = [repr(fastfeed.cached(photos, upto, cache="8MiB", cache_dir=place)) for upto in ("transform", 1)]
    begin = f"CachedDataset(ImageFolder({str(tmp_path / 'photos')!r}: {len(photos)} samples), samples "
    end = f" are kept in {str(place)!r})"
    assert found == [f"{begin}before their transform{end}", f"{begin}after 1 step of their transform{end}"]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"batch_size": 8, "shuffle": True, "num_workers": 2}, "batch_size=8, shuffle=True, num_workers=2"),
        ({"num_workers": 0}, "batch_size=1, shuffle=False, num_workers=0"),
        ({"num_workers": 0, "seed": 3, "shuffle": True}, "batch_size=1, shuffle=True, num_workers=0"),
        ({"num_workers": 0, "seed": 3}, "batch_size=1, shuffle=False, num_workers=0"),
        ({"num_workers": 0, "distributed": False, "shuffle": True}, "batch_size=1, shuffle=True, num_workers=0"),
        ({"num_workers": 0, "batch_size": None}, "batch_size=None, shuffle=False, num_workers=0"),
        ({"num_workers": 0, "sampler": WeightedRandomSampler([1.0], 3)},
         "batch_size=1, sampler=WeightedRandomSampler, num_workers=0"),
        ({"num_workers": 0, "sampler": RandomSampler(range(23))}, "batch_size=1, shuffle=True, num_workers=0"),
        ({"num_workers": 0, "batch_sampler": [[1], [2, 3]]}, "batch_sampler=list, num_workers=0"),
        ({"num_workers": 0, "device": torch.device("cuda", 1)}, "batch_size=1, shuffle=False, num_workers=0, device='cuda:1'"),
    ],
    ids=["shuffled", "plain", "seed", "in order", "not sharded", "unbatched", "sampler", "random", "batch sampler", "device"],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:This DataLoader will create")
def test_a_loader(options, told):
    assert repr(DataLoader(Numbers(), **options)) == f"DataLoader(Numbers(23 samples), {told})"


def test_workers_that_were_decided_and_a_stream():
    loader = DataLoader(Numbers(), 4)
    assert (
        repr(loader)
        == f"DataLoader(Numbers(23 samples), batch_size=4, shuffle=False, num_workers={loader.num_workers} (decided))"
    )
    assert repr(DataLoader(Flow(), 4, num_workers=1)) == "DataLoader(Flow(a stream), batch_size=4, num_workers=1)"


@pytest.mark.filterwarnings("ignore:FASTFEED_DISABLE")
def test_switched_off(monkeypatch):
    monkeypatch.setenv("FASTFEED_DISABLE", "1")
    assert repr(DataLoader(Numbers())).endswith("num_workers=0, plain torch (FASTFEED_DISABLE))")


def test_one_that_is_not_made_yet():
    """An error in its constructor shows it where tracebacks show variables."""
    for kind, text in ((DataLoader, loader_text), (fastfeed.CachedDataset, repr)):
        assert text(kind.__new__(kind)).startswith("<fastfeed.feed.")
