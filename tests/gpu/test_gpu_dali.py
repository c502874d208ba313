"""device_decode="dali" on a GPU: order, crops, odd and damaged images, memory. Distances and rates are printed (-s)."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from fusing import jpeg, noisy
from gpus import SIZE, TRAIN, gpu, photos_in
from helpers import encoded
from torchvision import transforms

import fastfeed
from fastfeed.feed.dali import DaliDecoder
from fastfeed.feed.dalioptions import DaliOptions
from fastfeed.feed.decode.encoded import Encoded, Encoder
from fastfeed.feed.decode.images import Images
from fastfeed.feed.decode.placed import decoded_by_pillow
from fastfeed.feed.loader import DataLoader

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("device")]
MOST_MEAN = 3.0
"""Levels between DALI's pixels and the CPU's on average, colours that are repeated included."""
PIXELS = transforms.Compose([
    transforms.RandomResizedCrop(SIZE), transforms.RandomHorizontalFlip(), transforms.PILToTensor(),
])  # fmt: skip


@pytest.fixture(scope="module", name="device")
def _device() -> torch.device:
    found = gpu()
    if os.environ.get("FASTFEED_REQUIRE_GPU") == "1":
        import nvidia.dali  # noqa: F401
    pytest.importorskip("nvidia.dali", reason="NVIDIA DALI is not installed (pip install 'fastfeed[dali]')")
    return found


@pytest.fixture(scope="module")
def photos(device: torch.device, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return photos_in(tmp_path_factory.mktemp("dali"))


def loaded(photos: Path, transform: Any, **options: Any) -> DataLoader:
    dataset = fastfeed.open(photos, transform, decode="close")
    return DataLoader(dataset, **{"batch_size": 16, "shuffle": True, "seed": 5, "num_workers": 2, **options})


@pytest.mark.parametrize("last", [False, True], ids=["planes", "channels last"])
@pytest.mark.parametrize("transform", [PIXELS, TRAIN], ids=["bytes", "floats"])
@pytest.mark.parametrize("fancy", [False, True], ids=["repeated", "interpolated"])
def test_batches_are_those_of_the_cpu_in_their_order(photos, transform, last, fancy):
    options = {"channels_last": last, "persistent_workers": True}
    loader = loaded(photos, transform, device="cuda", device_decode=DaliOptions(fancy_upsampling=fancy), **options)
    found = [batch for _ in range(3) for batch in loader]
    cpu = loaded(photos, transform, **options)
    expected = [batch for _ in range(3) for batch in cpu]
    assert len(found) == len(expected) == 18
    level = 1 if transform is PIXELS else 1 / 255 / 0.226
    apart = []
    for (images, targets), (others, wanted) in zip(found, expected, strict=True):
        assert images.device.type == "cuda" and images.dtype is others.dtype and targets.tolist() == wanted.tolist()
        assert images.is_contiguous(memory_format=torch.channels_last if last else torch.contiguous_format)
        apart.append((images.cpu().float() - others.float()).abs() / level)
    mean, most = float(torch.stack([one.mean() for one in apart]).mean()), max(float(one.max()) for one in apart)
    print(f"\nlevels from the CPU's pixels: mean {mean:.3f}, most {most:.0f}\n{loader.plan}")
    assert mean < MOST_MEAN


def batch_of(files: list[bytes]) -> Encoded:
    torch.manual_seed(1)
    encoder = Encoder(Images(PIXELS, "close"), 1 << 30)
    for number, data in enumerate(files):
        encoder.put(number, data)
    return encoder.made(lambda shape, dtype: torch.empty(shape, dtype=dtype))


def near(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two results are of the same images: which of the GPU's decoders takes one may change, and its pixels a little."""
    return float((one.float() - other.float()).abs().mean()) < 1


def sound(count: int) -> list[bytes]:
    return [jpeg((300, 200), seed=number) for number in range(count)]


def test_odd_images_keep_their_places(device):
    files = sound(8)
    files[0], files[3], files[4] = encoded(noisy(), "PNG"), jpeg(progressive=True), jpeg(mode="CMYK")
    batch, decoder = batch_of(files), DaliDecoder(device)
    decoder.begin(batch)
    found, expected = decoder.take().cpu(), decoded_by_pillow(batch)
    assert torch.equal(found[[0, 3, 4]], expected[[0, 3, 4]])
    assert float((found.float() - expected.float()).abs().mean()) < MOST_MEAN * 3  # noise has much colour


_BREAKS = """
import sys
from test_gpu_dali import *
from fastfeed.errors import DecodeError
from fastfeed.feed.decode import encoded as columns
kind, device = sys.argv[1], gpu()
decoder, whole, bad = DaliDecoder(device), batch_of(sound(6)), batch_of(sound(6))
decoder.begin(whole)
expected = decoder.take()
if kind == "cut off":
    bad.where[2, columns.SIZE] //= 2
else:
    bad.where[2, columns.HEIGHT] = 5000
decoder.begin(bad)
decoder.begin(whole)
try:
    decoder.take()
    print(f"{kind}: taken, {decoder.broken} pipelines broke")
except DecodeError as error:
    print(f"{kind}: {error}")
assert near(decoder.take(), expected)
print("the next batch is whole")
"""


@pytest.mark.parametrize("kind", ["cut off", "part outside"])
def test_a_pipeline_that_breaks_is_made_anew(kind):
    """In a process of its own, which shall not die of it."""
    folders = [str(Path(__file__).parent), str(Path(__file__).parent.parent), *sys.path]
    script = f"import sys; sys.path[:] = {folders!r}\n{_BREAKS}"
    done = subprocess.run([sys.executable, "-c", script, kind], capture_output=True, text=True, check=False, timeout=240)
    print(f"\n{done.stdout}{done.stderr}")
    assert done.returncode == 0 and done.stdout.endswith("the next batch is whole\n")


_ENGINE = """
from test_gpu_dali import *
decoder, batch = DaliDecoder(gpu(), DaliOptions(hw_decoder_load=0.75)), batch_of(sound(64))
decoder.begin(batch)
decoder.take()
"""


def test_the_jpeg_engine_gets_its_part(device):
    """What nvImageCodec says of it, which is settled by the first batch that a pipeline sees."""
    folders = [str(Path(__file__).parent), str(Path(__file__).parent.parent), *sys.path]
    script = f"import sys; sys.path[:] = {folders!r}\n{_ENGINE}"
    told = {**os.environ, "DALI_NVIMGCODEC_LOG_LEVEL": "5"}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=240, env=told)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    if "nvjpeg_hw_decoder" not in said:
        pytest.skip("this GPU has no JPEG engine")
    found = re.search(r"nvjpeg_hw_decoder selecting max batch size to (\d+)", said)
    assert found is not None and 48 <= int(found[1]) <= 64, said


def test_results_stay_as_they_are_behind_a_slow_stream(device):
    """What is taken on a stream that is held up is copied late; DALI has begun with the next batches long before."""
    decoder, batches = DaliDecoder(device), [batch_of(sound(8)[number : number + 4] * 4) for number in range(4)]
    expected = []
    for batch in batches:
        decoder.begin(batch)
        expected.append(decoder.take())
    side, found = torch.cuda.Stream(device), []
    with torch.cuda.stream(side):
        for _ in range(5):
            for batch in batches:
                decoder.begin(batch)
                torch.cuda._sleep(10_000_000)
                found.append(decoder.take())
    side.synchronize()
    for number, images in enumerate(found):
        assert near(images, expected[number % 4]), f"batch {number}"


def test_a_loop_that_waits_for_dali_has_the_jpeg_engine_tried(device):
    decoder, batch = DaliDecoder(device), batch_of(sound(8) * 8)
    assert "gets no images" in decoder.engine.told
    for _ in range(2):
        decoder.begin(batch)
    first = found = decoder.take()
    for _ in range(250):
        decoder.begin(batch)
        found = decoder.take()
    print(f"\n{decoder.engine.told}")
    assert "x as fast as without" in decoder.engine.told and near(found, first)


def test_memory_stays_bounded(device, photos):
    loader = loaded(photos, PIXELS, device="cuda", device_decode="dali", persistent_workers=True)
    used = []
    for _ in range(6):
        for _batch in loader:
            pass
        free, total = torch.cuda.mem_get_info(device)
        used.append((total - free) / 2**20)
    print(f"\nMiB of the GPU in use behind each of six epochs: {', '.join(f'{one:,.0f}' for one in used)}")
    assert used[-1] <= used[1] + 64
