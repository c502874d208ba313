"""DataLoader(device=) on a GPU: values, order, memory. What it costs is printed (-s), not asserted."""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from gpus import SIZE, TRAIN, Hasty, Impatient, Poisoning, by, consumed, gpu, loaded, photos_in, same, timed
from loading import At, Calls, Flow, Large, Raise, equal
from torch.utils.data import TensorDataset
from torchvision import transforms
from torchvision.transforms import v2

import fastfeed
from fastfeed.feed.card import Cuda
from fastfeed.feed.decode.images import Images
from fastfeed.feed.lane import lane_onto
from fastfeed.feed.loader import DataLoader

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("device")]
MIB = 1 << 20


@pytest.fixture(scope="module", name="device")
def _device() -> torch.device:
    return gpu()


@pytest.fixture(scope="module")
def photos(device: torch.device, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return photos_in(tmp_path_factory.mktemp("gpu"))


def on_cpu(photos: Path, epochs: int, **options: Any) -> list[list[torch.Tensor]]:
    torch.manual_seed(3)
    loader = loaded(fastfeed.open(photos, TRAIN), **options)
    return [[part.clone() for part in batch] for _ in range(epochs) for batch in loader]


# ---------------------------------------------------------------------------------------------------- values and order
@pytest.mark.parametrize("last", [False, True], ids=["planes", "channels last"])
@pytest.mark.parametrize("persistent", [True, False], ids=["persistent", "anew"])
@pytest.mark.parametrize("seed", [5, None], ids=["sample mode", "torch's numbers"])
def test_poisoned_buffers_behind_a_slow_stream(device, photos, last, persistent, seed):
    options: dict[str, Any] = {"channels_last": last, "persistent_workers": persistent, "seed": seed}
    expected = on_cpu(photos, 6, **options)
    lane = Poisoning(Cuda(device))
    loader = by(lane, loaded(fastfeed.open(photos, TRAIN), **options, device="cuda"))
    torch.manual_seed(3)
    found = list(consumed(loader, 6))
    assert same(found, expected)
    assert all(batch[0].is_contiguous(memory_format=torch.channels_last) == last for batch in found)
    assert lane.poisoned >= len(found) and lane.registered.refused is None
    print(f"\n{lane.poisoned} buffers poisoned over {len(found)} batches\n{loader.plan}")


@pytest.mark.parametrize("wrong", ["given back too early", "not waited for"])
def test_what_the_test_above_would_notice(device, photos, wrong):
    expected = on_cpu(photos, 1)
    lane = Hasty(Cuda(device)) if wrong == "given back too early" else Poisoning(Impatient(device))
    found = list(consumed(by(lane, loaded(fastfeed.open(photos, TRAIN), device="cuda")), 1, cycles=1))
    assert not same(found, expected)


STEPS = {
    "ToTensor, Normalize": TRAIN,
    "v2": v2.Compose([
        v2.RandomResizedCrop(SIZE), v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize([0.5] * 3, [0.3] * 3),
    ]),
    "unscaled": v2.Compose([v2.RandomResizedCrop(SIZE), v2.ToImage(), v2.ToDtype(torch.float32)]),
    "halves": v2.Compose([v2.RandomResizedCrop(SIZE), v2.ToImage(), v2.ToDtype(torch.float16, scale=True)]),
    "doubles": transforms.Compose([
        transforms.RandomResizedCrop(SIZE), transforms.PILToTensor(), transforms.ConvertImageDtype(torch.float64),
    ]),
}  # fmt: skip


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=["planes", "channels last"])
def test_what_is_made_of_bytes_is_equal_bit_for_bit(device, name, layout):
    levels = Images(STEPS[name], "auto").levels
    assert levels is not None
    images = torch.randint(0, 256, (64, 3, SIZE, SIZE), dtype=torch.uint8).contiguous(memory_format=layout)
    there = images.to(device)
    found = levels.applied(there)
    assert torch.equal(found.cpu(), levels.applied(images)) and found.is_contiguous(memory_format=layout)
    began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    began.record()
    for _ in range(10):
        levels.applied(there)
    ended.record()
    torch.cuda.synchronize()
    gib_s = 10 * (images.numel() + found.numel() * found.element_size()) / (1 << 30) / (began.elapsed_time(ended) / 1e3)
    print(f"\n{name}, {'table' if levels.steps is None else 'formula'}: {gib_s:.0f} GiB/s of bytes in and values out")


def test_two_loaders_at_once_share_the_stream_and_the_memory(device, photos):
    expected = on_cpu(photos, 1)
    both = [loaded(fastfeed.open(photos, TRAIN), device="cuda") for _ in range(2)]
    found: list[list[Any]] = [[], []]
    for batches in zip(*both, strict=True):
        for mine, batch in zip(found, batches, strict=True):
            torch.cuda._sleep(3_000_000)
            mine.append([part.clone() for part in batch])
    assert same(found[0], expected) and same(found[1], expected)
    assert both[0]._device_side.lane() is both[1]._device_side.lane() is lane_onto(device)


def test_all_batches_of_an_epoch_may_be_kept(photos):
    expected = on_cpu(photos, 2)
    loader = loaded(fastfeed.open(photos, TRAIN), device="cuda")
    assert same([list(batch) for _ in range(2) for batch in loader], expected)


def test_errors_have_their_turn():
    loader = loaded(Calls(At(9, Raise(ValueError("mine"))), 24), batch_size=2, num_workers=1, device="cuda")
    passes, numbers = iter(loader), []
    for _ in range(4):
        batch = next(passes)
        assert batch.is_cuda
        numbers.append(batch.tolist())
    assert numbers == [[0, 1], [2, 3], [4, 5], [6, 7]]
    with pytest.raises(ValueError, match="mine"):
        next(passes)
    assert [batch.tolist() for batch in passes][-1] == [22, 23]


def test_the_position_is_of_what_was_handed_out():
    whole = [batch.tolist() for batch in loaded(Calls(int, 80), batch_size=4, device="cuda")]
    loader = loaded(Calls(int, 80), batch_size=4, device="cuda")
    passes = iter(loader)
    begun = [next(passes).tolist() for _ in range(5)]
    other = loaded(Calls(int, 80), batch_size=4, num_workers=0, persistent_workers=False, device="cuda")
    other.load_state_dict(loader.state_dict())
    assert begun + [batch.tolist() for batch in other] == whole


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_nested_batches_and_streams(workers):
    for dataset in (Large(12, 1), Flow(12, 1)):
        options: dict[str, Any] = {"batch_size": 3, "num_workers": workers}
        expected = list(DataLoader(dataset, **options))
        found = list(DataLoader(dataset, **options, device="cuda"))
        assert all(batch["large"].is_cuda and batch["array"].is_cuda for batch in found)
        assert all(batch["text"] == ["x"] * len(batch["large"]) for batch in found)
        moved = [{name: part.cpu() if hasattr(part, "cpu") else part for name, part in batch.items()} for batch in found]
        assert equal(moved, expected)


@pytest.mark.parametrize("pin", [None, True])
def test_tensors_that_lie_in_no_slot(pin):
    data = TensorDataset(torch.randn(400, 3, 64, 64), torch.arange(400))
    options: dict[str, Any] = {"batch_size": 40, "num_workers": 2, "shuffle": True, "seed": 1}
    expected = list(DataLoader(data, **options))
    loader = DataLoader(data, **options, pin_memory=pin, device="cuda")
    assert same(list(consumed(loader, 1)), expected)


# ---------------------------------------------------------------------------------------------------- the user's side
def test_moving_once_more_costs_nothing(photos):
    images, classes = next(iter(loaded(fastfeed.open(photos, TRAIN), device="cuda")))
    assert images.cuda(non_blocking=True) is images and classes.to("cuda", non_blocking=True) is classes


def test_what_a_call_costs_and_that_memory_stays_bounded(photos):
    loader = loaded(fastfeed.open(photos, TRAIN), batch_size=8, device="cuda")
    weight = torch.randn(2048, 2048, device="cuda")

    def step(batch: Any) -> None:
        for _ in range(40):
            torch.mm(weight, weight)
        batch[0].sum()

    def epochs() -> Any:
        while True:
            yield from loader

    batches, peaks = epochs(), []
    for _ in range(4):
        torch.cuda.reset_peak_memory_stats()
        spent = timed(lambda: next(batches), step, 60)
        peaks.append(torch.cuda.max_memory_allocated() / MIB)
        print(f"\nin next(), ms: {spent}; memory of the GPU at its peak, MiB: {peaks[-1]:.0f}")
    assert peaks[-1] <= 1.2 * peaks[1] + 1


def test_the_constructor_and_the_start_of_workers_leave_cuda_alone(photos):
    lines = [
        "import torch, fastfeed, sys", "from fastfeed.feed.loader import DataLoader", "from gpus import TRAIN",
        f"loader = DataLoader(fastfeed.open({str(photos)!r}, TRAIN), 8, num_workers=2, device='cuda')",
        "print(loader.plan)", "passes = iter(loader)", "assert not torch.cuda.is_initialized()",
        "assert next(passes)[0].is_cuda", "assert next(passes)[0].is_cuda", "print(loader.plan)",
    ]  # fmt: skip
    path = os.pathsep.join(filter(None, [str(Path(__file__).parent.parent), os.environ.get("PYTHONPATH", "")]))
    environment = {**os.environ, "PYTHONPATH": path, "LOCAL_RANK": "0"}
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    print(f"\n{done.stdout}{done.stderr}")
    assert done.returncode == 0  # and quietly, though it ends in the middle of an epoch
    assert not any(word in done.stderr for word in ("Error", "Exception", "Traceback"))
    assert "device: cuda:0, since LOCAL_RANK=0" in done.stdout


# ---------------------------------------------------------------------------------------------------- the border
def test_memory_that_cannot_be_registered_is_told_and_breaks_no_kernel_of_the_user(device):
    card, memory = Cuda(device), torch.empty(1 << 20, dtype=torch.uint8)
    address = memory.data_ptr() & ~0xFFF
    assert card.register(address, 1 << 19) is None
    why = card.register(address, 1 << 19)
    assert why is not None and "cudaHostRegister gave error" in why
    print(f"\n{why}")
    assert torch.ones(3, device=device).sum().item() == 3
    card.unregister(address)
    assert card.register(address, 1 << 19) is None
    card.unregister(address)


@pytest.mark.parametrize("busy", [False, True], ids=["idle", "busy"])
def test_what_registering_costs(device, busy):
    card, memory = Cuda(device), torch.zeros(40 * MIB, dtype=torch.uint8)
    address = (memory.data_ptr() + 0xFFF) & ~0xFFF
    if busy:
        torch.cuda._sleep(400_000_000)
    began = time.perf_counter()
    assert card.register(address, 38 * MIB) is None
    registered = time.perf_counter()
    card.unregister(address)
    ended = time.perf_counter()
    print(f"\n38 MiB: registered in {1e3 * (registered - began):.1f} ms, unregistered in {1e3 * (ended - registered):.1f} ms")
    torch.cuda.synchronize()


def test_batches_come_where_registering_is_refused(device, photos):
    class Refusing(Cuda):
        def register(self, address: int, size_bytes: int) -> str | None:
            return "it is forbidden here"

    expected = on_cpu(photos, 2)
    loader = by(Poisoning(Refusing(device)), loaded(fastfeed.open(photos, TRAIN), device="cuda"))
    assert same(list(consumed(loader, 2)), expected)
    assert "device: they are copied into pinned memory first: it is forbidden here" in str(loader.plan)
