"""device_decode: what is taken, what is refused with which words, and what "auto" comes to."""

import logging
from dataclasses import dataclass, replace

import pytest
import torchvision.transforms as v1
from fusing import jpeg, noisy
from helpers import encoded, packed
from loading import Numbers
from packing import tree
from torch.utils.data import Subset

import fastfeed
from fastfeed.errors import UsageError
from fastfeed.feed import decodedby as module
from fastfeed.feed.dalioptions import DaliOptions
from fastfeed.feed.decodedby import Batching, decoders_of
from fastfeed.feed.loader import DataLoader
from fastfeed.machine import survey

TRAIN = v1.Compose([v1.RandomResizedCrop(16), v1.RandomHorizontalFlip(), v1.ToTensor()])
COLOURS = v1.Compose([v1.RandomResizedCrop(16), v1.ColorJitter(0.1), v1.ToTensor()])
BATCHES = Batching(True, None, None, channels_last=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    home = tmp_path_factory.mktemp("decoded")
    packed(tree(home / "source", {f"a/{number}.jpg": jpeg(seed=number) for number in range(3)}), home / "packed")
    packed(tree(home / "pngs", {f"a/{number}.png": encoded(noisy(), "PNG") for number in range(2)}), home / "png")
    return home


@pytest.fixture
def dataset(folder):
    return fastfeed.open(folder / "packed", TRAIN)


def test_workers_decode_where_nothing_is_asked(dataset):
    assert decoders_of("cpu", Numbers(), BATCHES, "cuda") == (None, "")
    assert DataLoader(dataset, 2, num_workers=0).device_decode == "cpu"


@pytest.mark.parametrize("decode", ["dali", DaliOptions(hw_decoder_load=0.9)], ids=["name", "options"])
@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_dali_is_taken(dataset, decode, device, monkeypatch):
    monkeypatch.setattr(module, "is_installed", lambda: True)
    decoders, why = decoders_of(decode, Subset(dataset, [0, 1]), BATCHES, device)
    assert decoders is not None and why == 'device_decode="dali" was given'
    assert decoders.options == (DaliOptions() if decode == "dali" else decode)


def test_where_it_is_not_installed_it_is_said_at_once(dataset, monkeypatch):
    monkeypatch.setattr(module, "is_installed", lambda: False)
    with pytest.raises(UsageError, match=r"needs NVIDIA DALI, which is not installed.*pip install 'fastfeed\[dali\]'"):
        DataLoader(dataset, 2, num_workers=0, device="cpu", device_decode="dali")


def test_what_it_cannot_do_is_an_error_that_names_it(folder, dataset):
    jitters = fastfeed.open(folder / "packed", COLOURS)
    reasons = {
        "ColorJitter (torchvision.transforms.transforms.ColorJitter) is called as it is": (jitters, BATCHES),
        'decode="exact" asks for Pillow\'s own pixels': (fastfeed.open(folder / "packed", TRAIN, decode="exact"), BATCHES),
        "a Numbers gives decoded samples; it has to be a dataset of fastfeed.open": (Numbers(), BATCHES),
        "there are no batches": (dataset, BATCHES._replace(batched=False)),
        "collate_fn gets decoded samples": (dataset, BATCHES._replace(collate=list)),
        "batch_transform gets decoded batches": (dataset, BATCHES._replace(transform=list)),
    }
    for reason, (data, batching) in reasons.items():
        with pytest.raises(UsageError) as failure:
            decoders_of("dali", data, batching, "cuda")
        assert f'device_decode="dali" cannot be done: {reason}' in str(failure.value)
        assert 'device_decode="auto"' in str(failure.value)
        decoders, why = decoders_of("auto", data, batching, "cuda")
        assert decoders is None and f'device_decode="auto": images are decoded on the CPU: {reason}' in why


@dataclass
class Collator:
    """As transformers' are: equal by its fields, so it has no hash."""

    pad: int = 0

    def __call__(self, samples):
        return samples


@pytest.mark.parametrize("device", [None, "cpu", "cuda"])
def test_a_collator_without_a_hash_is_one_of_the_users(dataset, device, caplog):
    """What "auto" came to is told also where batches stay."""
    with caplog.at_level(logging.INFO):
        loader = DataLoader(dataset, 2, num_workers=0, collate_fn=Collator(), device=device, device_decode="auto")
    assert "collate_fn gets decoded samples" in (str(loader.plan) if device == "cuda" else caplog.text)


def test_other_words_are_refused(dataset):
    with pytest.raises(UsageError, match="needs a device"):
        DataLoader(dataset, 2, num_workers=0, device_decode="dali")
    with pytest.raises(UsageError, match="whole images"):
        decoders_of("nvjpeg", dataset, BATCHES, "cuda")
    with pytest.raises(UsageError, match="'cpu', 'dali', 'auto' or fastfeed"):
        decoders_of("gpu", dataset, BATCHES, "cuda")


@pytest.mark.parametrize("device", [None, "cpu"])
def test_auto_says_so_where_there_is_no_device_whose_plan_could(dataset, caplog, device):
    with caplog.at_level("INFO", "fastfeed.loader"):
        DataLoader(dataset, 2, num_workers=0, device=device, device_decode="auto")
    assert 'device_decode="auto": images are decoded on the CPU: no GPU was asked for' in caplog.text


def test_auto_says_what_decided(dataset, folder, monkeypatch):
    def said(data=dataset, device="cuda"):
        decoders, why = decoders_of("auto", data, BATCHES, device)
        return decoders is not None, why.removeprefix('device_decode="auto": ')

    assert said(device=None) == (False, "images are decoded on the CPU: no GPU was asked for (device=)")
    assert said(device="cpu") == (False, "images are decoded on the CPU: no GPU was asked for (device=)")
    machine = survey()
    if not machine.gpus.count:
        assert said() == (False, f"images are decoded on the CPU: {machine.gpus.why}")
    monkeypatch.setattr(module, "survey", lambda: _with_a_gpu(machine))
    assert said(fastfeed.open(folder / "png", TRAIN)) == (
        False, "images are decoded on the CPU: images are png, which DALI would leave to the CPU",
    )  # fmt: skip
    monkeypatch.setattr(module, "is_installed", lambda: False)
    assert said() == (False, "images are decoded on the CPU: NVIDIA DALI is not installed (pip install 'fastfeed[dali]')")
    monkeypatch.setattr(module, "is_installed", lambda: True)
    assert said()[0] and said()[1].startswith("DALI decodes: it is installed")


def _with_a_gpu(machine):
    return replace(machine, gpus=replace(machine.gpus, count=1, why="there is one"))
