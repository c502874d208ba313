"""fastfeed/feed/device.py and DataLoader(device=) without a GPU: what is asked, and a whole loader on a fake of CUDA."""

import copy
import os
import pickle
import subprocess
import sys
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from fakecuda import LateCard
from helpers import encoded, packed, photo
from loading import At, Calls, Flow, Numbers, Raise, Raises, equal, remains, settled, settles
from torch.utils.data.datapipes.iter import IterableWrapper
from torchvision import transforms

import fastfeed
from fastfeed.accelerate import prepare
from fastfeed.errors import FastfeedWarning, UsageError
from fastfeed.feed.decodedby import Batching
from fastfeed.feed.device import DeviceSide, found, side_of
from fastfeed.feed.lane import Lane
from fastfeed.feed.loader import DataLoader

NO_CUDA = not torch.cuda.is_available()
TRAIN = transforms.Compose([
    transforms.RandomResizedCrop(160), transforms.RandomHorizontalFlip(), transforms.ToTensor(),
    transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
])  # fmt: skip


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("device") / "photos"
    for name in ("cat", "dog"):
        (root / name).mkdir(parents=True)
        for at in range(20):
            (root / name / f"{at:02d}.jpg").write_bytes(encoded(photo(at + len(name), (150 + 7 * at, 190 - 3 * at), "RGB")))
    packed(root, root.parent / "packed")
    return root.parent / "packed"


def on(card: Any, loader: DataLoader, lane: type[Lane] = Lane) -> DataLoader:
    """A loader whose batches go onto a card."""
    assert loader._device_side is not None
    loader._device_side._lane = lane(card)
    return loader


def loaded(dataset: Any, batch_size: int = 4, **options: Any) -> DataLoader:
    return DataLoader(dataset, batch_size, **{"num_workers": 2, "seed": 5, **options})


# ---------------------------------------------------------------------------------------------------- what is asked for
@pytest.mark.parametrize("device", ["cuda", "cuda:1", torch.device("cuda", 0), "cpu", None])
def test_devices_that_there_are(device):
    loader = DataLoader(Numbers(), 4, num_workers=0, device=device)
    assert loader.device == device and loader.device_decode == "cpu"
    assert (loader._device_side is None) == (device in {"cpu", None})


@pytest.mark.parametrize("device", ["mps", "gpu", 0, "cuda:x", torch.device("meta")])
def test_other_devices(device):
    with pytest.raises(UsageError, match="device is where batches shall come"):
        DataLoader(Numbers(), 4, num_workers=0, device=device)


def test_other_decoders():
    with pytest.raises(UsageError, match="device_decode"):
        DataLoader(Numbers(), 4, num_workers=0, device="cuda", device_decode="gpu")


def test_a_datapipe_is_refused():
    with pytest.raises(UsageError, match="DataPipes"):
        side_of("cuda", "cpu", IterableWrapper([1]), Batching(True, None, None, channels_last=False))


def test_where_fastfeed_is_disabled_there_is_no_device(monkeypatch):
    monkeypatch.setenv("FASTFEED_DISABLE", "1")
    with pytest.raises(UsageError, match="cannot do device"):
        DataLoader(Numbers(), 4, device="cuda")


def test_the_constructor_leaves_cuda_alone():
    script = (
        "import torch\nfrom fastfeed.feed.loader import DataLoader\nfrom loading import Numbers\n"
        "loader = DataLoader(Numbers(), 4, num_workers=2, device='cuda')\nprint(loader.plan)\n"
        "assert not torch.cuda.is_initialized()\n"
    )
    path = os.pathsep.join(filter(None, [str(Path(__file__).parent.parent), os.environ.get("PYTHONPATH", "")]))
    done = subprocess.run(
        [sys.executable, "-c", script], check=False, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "device: cuda; which one it is, and whether it is there, is settled with the first batch" in done.stdout


def test_torchs_pinning_is_off_unless_it_was_asked_for():
    loader = DataLoader(Numbers(), 4, num_workers=2, device="cuda")
    assert not loader.pin_memory and "no pinning by torch" in str(loader.plan)
    assert DataLoader(Numbers(), 4, num_workers=2, device="cuda", pin_memory=True).pin_memory


def test_copies_and_pickles_have_it_too():
    loader = on(LateCard(), DataLoader(Numbers(), 4, num_workers=0, seed=1, device="cuda:1"))
    for other in (copy.copy(loader), pickle.loads(pickle.dumps(loader))):
        assert other.device == "cuda:1" and isinstance(other._device_side, DeviceSide)
        on(LateCard(), other)
        assert equal(list(other), list(DataLoader(Numbers(), 4, num_workers=0, seed=1)))


# ---------------------------------------------------------------------------------------------------- without CUDA
@pytest.mark.skipif(not NO_CUDA, reason="there is a GPU")
@pytest.mark.parametrize("workers", [0, 2])
def test_without_cuda_batches_stay_on_the_cpu_and_it_is_said(photos, workers):
    expected = list(loaded(fastfeed.open(photos, TRAIN), num_workers=workers))
    loader = loaded(fastfeed.open(photos, TRAIN), num_workers=workers, device="cuda")
    with pytest.warns(FastfeedWarning, match="cuda was asked for, and batches stay on the CPU") as told:
        assert equal([list(batch) for batch in loader], [list(batch) for batch in expected])
    assert [one.filename for one in told if one.category is FastfeedWarning] == [__file__]
    plan = str(loader.plan)
    assert (
        "\n  no pinned memory: batches stay on the CPU" in plan
        and "device: cuda was asked for, and batches stay on the" in plan
    )
    assert "moves batches" not in plan and "are moved" not in plan and "settled with the first batch" not in plan
    other = str(pickle.loads(pickle.dumps(loader)).plan)  # for another machine
    assert "fastfeed itself moves batches onto the device" in other and "settled with the first batch" in other
    with warnings.catch_warnings():
        warnings.simplefilter("error", FastfeedWarning)
        list(loader)


@pytest.mark.skipif(not NO_CUDA, reason="there is a GPU")
def test_which_device_is_meant_without_any():
    device, why = found(torch.device("cuda", 1))
    assert device.type == "cpu" and why.startswith("device: cuda:1 was asked for, and batches stay on the CPU: ")


class Machine:
    """A fake of torch.cuda as far as it is asked which devices there are."""

    def __init__(self, count: int, current: int) -> None:
        self.count, self.current = count, current

    def put(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: self.count)
        monkeypatch.setattr(torch.cuda, "current_device", lambda: self.current)


@pytest.mark.parametrize(
    ("wish", "rank", "device", "why"),
    [
        ("cuda:3", "1", "cuda:3", "cuda:3 was given"),
        ("cuda", "1", "cuda:1", "cuda:1, since LOCAL_RANK=1"),
        ("cuda", "7", "cuda:2", "cuda:2, the current one"),  # each rank sees its own devices only
        ("cuda", "", "cuda:2", "cuda:2, the current one"),
    ],
)
def test_which_device_is_meant(monkeypatch, wish, rank, device, why):
    Machine(4, 2).put(monkeypatch)
    monkeypatch.setenv("LOCAL_RANK", rank)
    assert found(torch.device(wish)) == (torch.device(device), f"device: {why}")


def test_a_number_that_no_gpu_has_is_an_error(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert found(torch.device("cuda:1"))[0] == torch.device("cuda:1")
    with pytest.raises(UsageError, match="there is no cuda:2: expected a number below 2"):
        found(torch.device("cuda:2"))


# ---------------------------------------------------------------------------------------------------- on a fake of CUDA
class Hasty(Lane):
    """A lane that gives memory back before it was read: what the tests below have to notice."""

    def release(self) -> None:
        self._read.clear()


def epochs(loader: DataLoader, count: int = 3) -> list[Any]:
    return [[[part.clone() for part in batch] for batch in loader] for _ in range(count)]


@pytest.mark.long
@pytest.mark.parametrize("torch_mode", [True, False], ids=["torch's numbers", "sample mode"])
@pytest.mark.parametrize("last", [False, True], ids=["planes", "channels last"])
def test_batches_of_slots_are_those_of_the_cpu(photos, torch_mode, last):
    mode = {"seed": None, "shuffle": False} if torch_mode else {"seed": 7}
    transform = TRAIN if not torch_mode else transforms.Compose([transforms.Resize((160, 160)), *TRAIN.transforms[2:]])
    options: dict[str, Any] = {**mode, "persistent_workers": True, "channels_last": last}
    expected = epochs(loaded(fastfeed.open(photos, transform), **options))
    card = LateCard()
    loader = on(card, loaded(fastfeed.open(photos, transform), **options, device="cuda"))
    found_ = epochs(loader)
    assert equal(found_, expected)
    assert card.registered and card.staged == len(found_) * len(found_[0])  # the classes: images go from their slots


@pytest.mark.long
def test_a_lane_that_gives_memory_back_too_early_is_noticed(photos):
    options: dict[str, Any] = {"persistent_workers": True}
    expected = epochs(loaded(fastfeed.open(photos, TRAIN), **options), 4)
    loader = on(LateCard(), loaded(fastfeed.open(photos, TRAIN), **options, device="cuda"), Hasty)
    assert not equal(epochs(loader, 4), expected)


def test_errors_have_their_turn_and_the_position_is_of_what_was_handed_out():
    loader = on(LateCard(), loaded(Calls(At(9, Raise(ValueError("mine"))), 24), 2, num_workers=1, shuffle=False, device="cuda"))
    passes, numbers, positions = iter(loader), [], []
    for _ in range(4):
        numbers.append(next(passes).tolist())
        positions.append(loader.state_dict()["order"]["consumed"])
    assert numbers == [[0, 1], [2, 3], [4, 5], [6, 7]] and positions == [2, 4, 6, 8]
    with pytest.raises(ValueError, match="mine"):
        next(passes)
    assert [batch.tolist() for batch in passes][-1] == [22, 23]


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_a_resumed_loader_goes_on_behind_the_batch_that_was_handed_out(workers):
    whole = [batch.tolist() for batch in loaded(Calls(int, 40), num_workers=workers)]
    loader = on(LateCard(), loaded(Calls(int, 40), num_workers=workers, device="cuda"))
    passes = iter(loader)
    begun = [next(passes).tolist() for _ in range(3)]
    other = on(LateCard(), loaded(Calls(int, 40), num_workers=workers, device="cuda"))
    other.load_state_dict(loader.state_dict())
    assert begun + [batch.tolist() for batch in other] == whole


def test_a_worker_that_dies_is_told_behind_the_batches_that_came():
    dying = Calls(At(9, partial(os._exit, 3)), 24)
    loader = on(LateCard(), loaded(dying, 2, num_workers=1, shuffle=False, device="cuda"))
    passes, numbers = iter(loader), list[list[int]]()
    with Raises(RuntimeError, match=r"sample 9.*"):
        numbers.extend(batch.tolist() for batch in passes)
    assert numbers == [[0, 1], [2, 3], [4, 5], [6, 7]][: len(numbers)]
    with Raises(RuntimeError, match="sample 9"):
        next(passes)
    assert loader.state_dict()["order"]["consumed"] == 2 * len(numbers)


def test_a_loader_that_accelerate_prepares():
    accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed: pip install 'fastfeed[accelerate]'")
    expected = list(loaded(Calls(int, 30)))
    loader = prepare(accelerate.Accelerator(cpu=True), on(LateCard(), loaded(Calls(int, 30), device="cuda")))
    on(LateCard(), loader)
    assert equal(list(loader), expected)


def test_another_number_of_workers_in_the_middle_of_a_pass():
    expected = [batch.tolist() for batch in loaded(Calls(int, 480), num_workers=0)]
    passes, numbers = iter(on(LateCard(), loaded(Calls(int, 480), num_workers=1, device="cuda"))), list[list[int]]()
    told: list[Any] = []
    wishes = [3, 0]
    for number, batch in enumerate(passes):
        numbers.append(batch.tolist())
        if wishes and number >= 3 and len(told) + len(wishes) == 2:  # the one before was fulfilled, however long that took
            passes.resize(wishes.pop(0), told.append)
    assert numbers == expected and [one.workers for one in told] == [3, 0] and passes.made.options.num_workers == 0


def test_an_epoch_that_is_named_after_the_pass_has_begun():
    options: dict[str, Any] = {"shuffle": True, "num_workers": 1}
    plain, moving = loaded(Calls(int, 40), **options), on(LateCard(), loaded(Calls(int, 40), **options, device="cuda"))
    found_ = []
    for loader in (plain, moving):
        passes = iter(loader)
        loader.set_epoch(4)
        found_.append([batch.tolist() for batch in passes])
    assert found_[0] == found_[1]


def test_a_pass_that_is_dropped_leaves_nothing():
    before = remains()
    passes = iter(on(LateCard(), loaded(Calls(int, 400), device="cuda")))
    next(passes)
    next(passes)
    del passes
    assert {name: left for name, left in settled(before).items() if name != "files"} == {}


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_streams(workers):
    expected = list(DataLoader(Flow(12, 0.1), 3, num_workers=workers))
    found_ = list(on(LateCard(), DataLoader(Flow(12, 0.1), 3, num_workers=workers, device="cuda")))
    assert equal(found_, expected)


@pytest.mark.parametrize("workers", [1, 2])
def test_batches_of_streams_are_moved_ahead_of_their_turn(workers):
    passes = iter(on(LateCard(), DataLoader(Flow(60, 0.1), 3, num_workers=workers, device="cuda")))
    torchs = passes._inner
    next(passes)
    for _ in range(4):
        assert settles(lambda: torchs._data_queue.qsize() == torchs._tasks_outstanding)  # all that workers may make
        next(passes)
        assert len(passes.conveyor) > 0


def test_an_index_comes_with_its_batch():
    options: dict[str, Any] = {"shuffle": True, "with_index": True}
    found_ = list(on(LateCard(), loaded(Calls(int, 30), **options, device="cuda")))
    assert all(torch.equal(one.batch, one.index) for one in found_) and len(found_) == 8
    assert equal(found_, list(loaded(Calls(int, 30), **options)))


def test_stats_are_of_what_was_handed_out():
    loader = on(LateCard(), loaded(Calls(int, 40), num_workers=1, device="cuda"))
    passes = iter(loader)
    for _ in range(3):
        next(passes)
    assert loader.stats().batches == 3


def test_batches_that_are_kept_stay_as_they_are(photos):
    expected = [[part.clone() for part in batch] for batch in loaded(fastfeed.open(photos, TRAIN))]
    assert equal([list(batch) for batch in on(LateCard(), loaded(fastfeed.open(photos, TRAIN), device="cuda"))], expected)


def test_a_batch_with_an_image_that_does_not_fit_comes_as_floats(photos):
    steps = [transforms.RandomCrop(160, pad_if_needed=True), transforms.ToTensor(), transforms.Normalize([0.5], [0.2])]
    transform = transforms.Compose(steps)
    dataset = fastfeed.open(photos, transform)
    sizes = [loader_batch[0].shape for loader_batch in loaded(dataset, 8)]
    assert set(sizes) == {(8, 3, 160, 160)}
    expected = [list(batch) for batch in loaded(dataset, 8)]
    loader = on(LateCard(), loaded(fastfeed.open(photos, transform), 8, device="cuda"))
    assert equal([list(batch) for batch in loader], expected)


def test_a_transform_of_batches_sees_floats(photos):
    def whitest(batch: Any) -> Any:
        return batch[0].amax(dim=(1, 2, 3)), batch[1]

    expected = list(loaded(fastfeed.open(photos, TRAIN), num_workers=0, batch_transform=whitest))
    found_ = list(on(LateCard(), loaded(fastfeed.open(photos, TRAIN), num_workers=0, batch_transform=whitest, device="cuda")))
    assert equal(found_, expected) and found_[0][0].dtype is torch.float32
