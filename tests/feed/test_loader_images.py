"""Images of our datasets through the loader: whole batches, their memory, and what is done to a batch behind collate."""

import gc
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import encoded, packed, photo
from loading import Numbers, equal, remains, settled
from torch.utils.data import DataLoader as TorchDataLoader
from torch.utils.data import IterableDataset, Subset, TensorDataset
from torchvision import transforms
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2

import fastfeed
from fastfeed.errors import DecodeError, UsageError
from fastfeed.feed.loader import DataLoader

NORMAL = transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
TRAIN = transforms.Compose([transforms.RandomResizedCrop(24), transforms.RandomHorizontalFlip(), transforms.ToTensor(), NORMAL])
BYTES = transforms.Compose([transforms.RandomResizedCrop((20, 30)), transforms.PILToTensor()])
EVALUATE = transforms.Compose([transforms.Resize(40), transforms.CenterCrop(32), transforms.ToTensor(), NORMAL])
V2 = v2.Compose([
    v2.RandomResizedCrop(24), v2.RandomHorizontalFlip(), v2.ToImage(), v2.ToDtype(torch.float32, scale=True),
    v2.Normalize([0.5] * 3, [0.25] * 3),
])  # fmt: skip
TAIL = transforms.Compose([transforms.RandomResizedCrop(24), transforms.ColorJitter(0.3), transforms.ToTensor()])
UNKNOWN = transforms.Compose([transforms.Grayscale(3), transforms.Resize((8, 9)), transforms.ToTensor()])


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Photos of several sizes, some of which only Pillow decodes."""
    root = tmp_path_factory.mktemp("images") / "photos"
    for name in ("cat", "dog"):
        (root / name).mkdir(parents=True)
        for at in range(12):
            size = (50 + 17 * at, 90 - 3 * at)
            options = {"progressive": at == 3, "subsampling": at % 3, "quality": 80}
            mode = "CMYK" if at == 5 else "L" if at == 7 else "RGB"
            options = {} if mode == "CMYK" else options
            (root / name / f"{at:02d}.jpg").write_bytes(encoded(photo(at + len(name), size, "RGB").convert(mode), **options))
    packed(root, root.parent / "packed")
    return root


def torchs(photos: Path, transform: Any, **options: Any) -> Any:
    return TorchDataLoader(ImageFolder(str(photos), transform), batch_size=5, shuffle=True, **options)


def opened(photos: Path, transform: Any, **options: Any) -> Any:
    return fastfeed.open(photos.parent / "packed", transform, **options)


@pytest.mark.long
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    "transform", [TRAIN, BYTES, EVALUATE, V2, TAIL, UNKNOWN], ids=["train", "bytes", "evaluate", "v2", "tail", "unknown"]
)
def test_exact_batches_are_torchs_of_the_image_folder(photos, transform, workers):
    torch.manual_seed(3)
    expected = [list(loader) for loader in [torchs(photos, transform, num_workers=workers)] for _ in range(2)]
    torch.manual_seed(3)
    loader = DataLoader(
        opened(photos, transform, decode="exact"), 5, shuffle=True, num_workers=workers, persistent_workers=False
    )
    found = [list(loader) for _ in range(2)]
    assert equal(found, expected)
    for batch, other in zip(found[0], expected[0], strict=True):
        assert type(batch) is type(other) and type(batch[0]) is type(other[0])
        assert batch[0].is_contiguous() and batch[0].stride() == other[0].stride()


@pytest.mark.parametrize("transform", [TRAIN, BYTES], ids=["floats", "bytes"])
def test_close_batches_draw_the_same_crops(photos, transform):
    both = []
    for decode in ("exact", "close"):
        torch.manual_seed(5)
        both.append(list(DataLoader(opened(photos, transform, decode=decode), 5, shuffle=True, num_workers=0)))
    for one, other in zip(*both, strict=True):
        levels = (one[0].double() - other[0].double()).abs().max() * (1 if transform is BYTES else 255 * 0.229)
        assert levels <= 2.01 and torch.equal(one[1], other[1])


@pytest.mark.long
def test_sample_mode_gives_the_same_batches_for_any_number_of_workers(photos):
    def batches(workers: int, **options: Any) -> Any:
        return list(DataLoader(opened(photos, TRAIN), 5, shuffle=True, seed=7, num_workers=workers, **options))

    expected = batches(0)
    assert equal(batches(1), expected) and equal(batches(2), expected)
    assert equal(batches(2, multiprocessing_context="spawn"), expected)
    alone = opened(photos, TRAIN)
    one_by_one = DataLoader(alone, None, shuffle=True, seed=7, num_workers=0)
    images = [image for image, _ in one_by_one]
    assert equal(images, [image for batch in expected for image in batch[0]])


def test_a_subset_is_read_as_whole_batches_too(photos):
    dataset = opened(photos, BYTES)
    part = Subset(Subset(dataset, range(0, 24, 2)), [3, 1, 7, 5])
    found = list(DataLoader(part, 4, num_workers=0, seed=1))
    again = [part[at] for at in range(4)]
    assert found[0][0].shape == (4, 3, 20, 30) and found[0][1].tolist() == [target for _, target in again]
    assert found[0][0]._base is None  # no stack of views


def test_kept_batches_never_change(photos):
    loader = DataLoader(opened(photos, transforms.Compose([transforms.RandomResizedCrop(160), transforms.PILToTensor()])), 4,
                        shuffle=True, num_workers=2, persistent_workers=True)  # fmt: skip
    kept: list[Any] = []
    for _ in range(6):
        for images, targets in loader:
            kept.append((images[:, :1] if len(kept) % 2 else images.numpy()[1:], targets))
            kept[-1] += (torch.as_tensor(kept[-1][0]).clone(),)
            if len(kept) > 9:
                del kept[len(kept) // 2]
            assert all(torch.equal(torch.as_tensor(seen), before) for seen, _, before in kept)
    assert loader._passage is not None
    went = loader._passage.went
    assert went["small"] > 20  # only the targets take the pipe: images are in slots


def test_nothing_is_left_of_the_memory(photos):
    before, kept = remains(), []
    for _ in range(2):
        loader = DataLoader(opened(photos, TRAIN), 4, shuffle=True, num_workers=2)
        kept = list(loader)
        next(iter(loader))
        del loader
    gc.collect()
    assert settled(before) == {} and len(kept) == 6


def test_memory_of_workers_that_do_not_persist_goes_with_them(photos):
    large = transforms.Compose([transforms.Resize((200, 200)), transforms.ToTensor()])
    loader = DataLoader(opened(photos, large), batch_size=4, num_workers=2, persistent_workers=False)
    batch = next(iter(loader))[0]
    assert "fastfeed-slot" in Path("/proc/self/maps").read_text()
    expected = batch.clone()
    assert len(list(loader)) == 6
    gc.collect()
    mapped = {line.split()[4] for line in Path("/proc/self/maps").read_text().splitlines() if "fastfeed-slot" in line}
    assert len(mapped) <= 2 and torch.equal(batch, expected)  # what is kept, alone, and the table where it will be told


def test_a_transform_that_is_given_later_is_read_again(photos):
    dataset = opened(photos, BYTES)
    loader = DataLoader(dataset, 4, num_workers=0)
    assert next(iter(loader))[0].shape == (4, 3, 20, 30)
    dataset.transform = TRAIN
    assert next(iter(loader))[0].shape == (4, 3, 24, 24)
    dataset.transform = transforms.Compose([transforms.RandomResizedCrop(10), transforms.PILToTensor()])
    assert next(iter(loader))[0].shape == (4, 3, 10, 10)
    dataset.transform.transforms[0].size = (12, 14)
    assert next(iter(loader))[0].shape == (4, 3, 12, 14)


def test_the_plan_says_what_is_done_while_decoding(photos):
    plan = str(DataLoader(opened(photos, TRAIN), 4, num_workers=0).plan)
    assert (
        "RandomResizedCrop + RandomHorizontalFlip + ToTensor + Normalize done while decoding, straight into the batch" in plan
    )
    assert 'close (decode="auto": the transform draws random numbers)' in plan
    plan = str(DataLoader(Subset(opened(photos, EVALUATE), [1]), 4, num_workers=0).plan)
    assert 'exact (decode="auto": no step is known to draw random numbers)' in plan
    plan = str(DataLoader(opened(photos, TAIL), 4, num_workers=0).plan)
    assert "ColorJitter (torchvision.transforms.transforms.ColorJitter) is called as it is, and so is all behind it" in plan


def test_what_pillow_had_to_decode_is_counted(photos):
    loader = DataLoader(opened(photos, BYTES), 4, num_workers=1)
    list(loader)
    assert loader.stats().counters == {"images decoded by Pillow: CMYK or other colours": 2}


def test_a_broken_image_has_its_name_and_costs_no_other(photos, tmp_path):
    source = tmp_path / "photos"
    for name in ("a", "b"):
        (source / name).mkdir(parents=True)
        for at in range(4):
            data = encoded(photo(at, (60, 40)))
            (source / name / f"{at}.jpg").write_bytes(data[: len(data) // 2] if (name, at) == ("b", 1) else data)
    packed(source, tmp_path / "packed")
    dataset = fastfeed.open(tmp_path / "packed", BYTES)
    for workers in (0, 1):
        with pytest.raises(DecodeError, match=r"b/1\.jpg"):
            list(DataLoader(dataset, 4, num_workers=workers))
        loader = DataLoader(dataset, 4, shuffle=True, seed=1, num_workers=workers, on_error="skip")
        assert sorted(len(images) for images, _ in loader) == [3, 4]


def test_a_subclass_with_samples_of_its_own_is_honoured(photos):
    class Marked(fastfeed.PackedDataset):
        def __getitem__(self, index: int) -> Any:
            image, target = super().__getitem__(index)
            return image, target + 100

        __getitems__ = None  # type: ignore[assignment]

    found = next(iter(DataLoader(Marked(photos.parent / "packed", BYTES), 4, num_workers=0)))
    assert found[1].tolist() == [100] * 4


# ------------------------------------------------------------------------------------------------ batch_transform
def scaled(by: float, batch: Any) -> Any:
    return [part * by for part in batch] if isinstance(batch, list) else batch * by


def noisy(batch: Any) -> Any:
    return batch + torch.rand(())


def failing(batch: Any) -> Any:
    msg = f"no batch of {len(batch)}"
    raise ArithmeticError(msg)


@pytest.mark.parametrize("workers", [0, 2])
def test_batch_transform_is_called_with_each_batch(photos, workers):
    dataset = opened(photos, EVALUATE)
    plain = list(DataLoader(dataset, 5, num_workers=workers))
    found = list(DataLoader(dataset, 5, num_workers=workers, batch_transform=partial(scaled, 2)))
    assert equal(found, [scaled(2, batch) for batch in plain])


def test_mixup_of_torchvision(photos):
    mix = v2.MixUp(num_classes=2)

    def batches(workers: int) -> Any:
        loader = DataLoader(opened(photos, TRAIN), 6, shuffle=True, seed=3, num_workers=workers, batch_transform=_Mixed(mix))
        return list(loader)

    found = batches(0)
    assert found[0][1].shape == (6, 2) and equal(batches(2), found)


class _Mixed:
    def __init__(self, mix: Callable[..., Any]) -> None:
        self.mix = mix

    def __call__(self, batch: Any) -> Any:
        return self.mix(*batch)


def test_random_numbers_of_batch_transform_in_sample_mode_outlast_a_resume():
    def loader() -> Any:
        return DataLoader(Numbers(20), 4, shuffle=True, seed=2, num_workers=1, batch_transform=_Noisy())

    whole, first = list(loader()), loader()
    batches = iter(first)
    head, state = [next(batches), next(batches)], first.state_dict()
    rest = loader()
    rest.load_state_dict(state)
    assert equal(head + list(rest), whole)


class _Noisy:
    def __call__(self, batch: Any) -> Any:
        return batch, torch.rand(())


@pytest.mark.parametrize("workers", [0, 1])
def test_a_fault_of_batch_transform_names_the_batch(workers):
    with pytest.raises(ArithmeticError, match=r"batch 0 \(batch_transform of 4 samples\)"):
        list(DataLoader(Numbers(8), 4, num_workers=workers, batch_transform=failing))


def test_batch_transform_of_a_stream():
    class Stream(torch.utils.data.IterableDataset[Any]):
        def __iter__(self) -> Any:
            return iter(range(6))

    found = list(DataLoader(Stream(), 2, num_workers=0, batch_transform=partial(scaled, 3)))
    assert [batch.tolist() for batch in found] == [[0, 3], [6, 9], [12, 15]]


def test_wrong_use_of_batch_transform_is_told():
    with pytest.raises(UsageError, match="batch_transform is a function"):
        DataLoader(Numbers(8), 4, batch_transform=3)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="needs batches"):
        DataLoader(Numbers(8), None, batch_transform=noisy)


# ------------------------------------------------------------------------------------------------ channels last
MIRRORED = transforms.Compose([transforms.Resize((24, 20)), transforms.RandomHorizontalFlip(1.0), transforms.PILToTensor()])
UPSIDE_DOWN = transforms.Compose([transforms.Resize((24, 20)), transforms.RandomVerticalFlip(1.0), transforms.ToTensor()])


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.long)])
@pytest.mark.parametrize("decode", ["exact", "close"])
@pytest.mark.parametrize("transform", [TRAIN, BYTES, MIRRORED, UPSIDE_DOWN, TAIL, UNKNOWN], ids=range(6))
def test_channels_last_changes_nothing_but_where_values_lie(photos, transform, decode, workers):
    def batches(**options: Any) -> Any:
        return list(DataLoader(opened(photos, transform, decode=decode), 5, num_workers=workers, seed=1, **options))

    found = batches(channels_last=True)
    assert all(images.is_contiguous(memory_format=torch.channels_last) for images, _ in found)
    assert equal(found, batches())


def test_channels_last_through_slots_that_are_used_again():
    """Batches as large as those that get memory of their own."""
    images = torch.arange(24 * 3 * 200 * 200, dtype=torch.float32).reshape(24, 3, 200, 200)
    loader = DataLoader(TensorDataset(images), 4, num_workers=1, channels_last=True)
    for _ in range(2):
        for number, [batch] in enumerate(loader):
            assert batch.is_contiguous(memory_format=torch.channels_last)
            assert torch.equal(batch, images[4 * number : 4 * number + 4])


def test_channels_last_of_a_stream_and_behind_it_batch_transform():
    def rows() -> Any:
        yield from torch.arange(8 * 3 * 2 * 5).reshape(8, 3, 2, 5)

    seen = []

    def look(batch: torch.Tensor) -> torch.Tensor:
        seen.append(batch.stride())
        return batch

    found = list(DataLoader(_Rows(rows), 4, channels_last=True, batch_transform=look))
    assert torch.equal(torch.cat(found), torch.stack(list(rows())))
    assert seen == [(30, 1, 15, 3)] * 2 == [batch.stride() for batch in found]


def test_channels_last_needs_batches():
    with pytest.raises(UsageError, match="channels_last is about batches, and with batch_size=None there are none"):
        DataLoader(Numbers(8), None, channels_last=True)


class _Rows(IterableDataset[Any]):
    def __init__(self, rows: Callable[[], Any]) -> None:
        self.rows = rows

    def __iter__(self) -> Any:
        return self.rows()
