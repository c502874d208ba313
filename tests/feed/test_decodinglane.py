"""Batches whose images DALI decodes on the way, through the whole loader, by DALI's own code for CPUs."""

import gc
import subprocess
import sys
from collections import deque
from typing import Any

import pytest
import torch
import torchvision.transforms as v1
from fakecuda import LateCard
from fusing import jpeg, levels, noisy
from helpers import encoded, packed
from packing import tree
from torch.utils.data import Subset

import fastfeed
from fastfeed.errors import DecodeError
from fastfeed.feed import decodinglane as lanes
from fastfeed.feed.dali import DaliDecoder
from fastfeed.feed.dalioptions import DaliOptions
from fastfeed.feed.decode import encoded as encoding
from fastfeed.feed.decode.encoded import Encoded
from fastfeed.feed.decode.images import Images
from fastfeed.feed.decode.placed import decoded_by_pillow
from fastfeed.feed.decode.placing import Placing
from fastfeed.feed.decode.whole import Unfinished
from fastfeed.feed.decodinglane import Decoders, DecodingLane
from fastfeed.feed.lane import Lane, lane_onto
from fastfeed.feed.loader import DataLoader

CPU = torch.device("cpu")
EDGE = 24
PIXELS = v1.Compose([v1.RandomResizedCrop(EDGE), v1.RandomHorizontalFlip(), v1.PILToTensor()])
FLOATS = v1.Compose([
    v1.RandomResizedCrop(EDGE), v1.RandomHorizontalFlip(), v1.ToTensor(), v1.Normalize([0.5] * 3, [0.25] * 3),
])  # fmt: skip
DALI = DaliOptions(threads=1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Photos, some of which are not for DALI."""
    pytest.importorskip("nvidia.dali", reason="NVIDIA DALI is not installed (pip install 'fastfeed[dali]')")
    home = tmp_path_factory.mktemp("lane")
    files = {f"{name}/{number}.jpg": jpeg((60, 50), seed=number) for name in "ab" for number in range(12)}
    files["a/3.jpg"], files["b/7.jpg"] = encoded(noisy(), "PNG"), jpeg(progressive=True)
    packed(tree(home / "source", files), home / "packed", shards=2)
    return home / "packed"


def loader_of(folder, transform=PIXELS, decode=DALI, **options):
    dataset = fastfeed.open(folder, transform, decode="close")
    device = None if decode == "cpu" else "cpu"
    return DataLoader(dataset, **{
        "batch_size": 5, "shuffle": True, "seed": 3, "num_workers": 0, "device": device, "device_decode": decode, **options,
    })  # fmt: skip


def inside(images: torch.Tensor) -> torch.Tensor:
    return images[:, :, 1:-1, 1:-1]


def two_epochs(loader):
    return [batch for _ in range(2) for batch in loader]


def test_it_gives_the_batches_of_the_cpu_in_their_order(folder):
    loader = loader_of(folder)
    found, expected = two_epochs(loader), two_epochs(loader_of(folder, decode="cpu"))
    assert len(found) == len(expected) == 10
    for (images, targets), (others, wanted) in zip(found, expected, strict=True):
        assert torch.equal(targets, wanted) and images.dtype is torch.uint8 and images.is_contiguous()
        most, mean = levels(inside(images), inside(others))
        assert most <= 2 and mean < 0.4
    assert loader.stats().counters["images decoded by workers, not by DALI: no JPEG"] == 2


@pytest.mark.parametrize("workers", [1, 2])
def test_with_workers_every_bit_is_the_same(folder, workers):
    alone, together = two_epochs(loader_of(folder)), two_epochs(loader_of(folder, num_workers=workers))
    assert all(torch.equal(one[0], other[0]) for one, other in zip(alone, together, strict=True))


def test_large_batches_come_in_slots_that_are_used_again(folder, tmp_path):
    files = {f"a/{number}.jpg": jpeg((500, 400), seed=number, quality=97, subsampling=0) for number in range(12)}
    packed(tree(tmp_path / "source", files), tmp_path / "packed")
    alone = two_epochs(loader_of(tmp_path / "packed"))
    loader = loader_of(tmp_path / "packed", num_workers=1, persistent_workers=True)
    found = two_epochs(loader)
    assert loader._passage is not None and any(loader._passage._shelf._memories.values())
    assert all(torch.equal(one[0], other[0]) for one, other in zip(alone, found, strict=True))


@pytest.mark.parametrize("last", [False, True])
def test_floats_are_those_of_the_compose(folder, last):
    one = list(loader_of(folder, FLOATS, channels_last=last))
    other = list(loader_of(folder, FLOATS, "cpu", channels_last=last))
    for (images, _), (wanted, _) in zip(one, other, strict=True):
        layout = torch.channels_last if last else torch.contiguous_format
        assert images.dtype is torch.float32 and images.is_contiguous(memory_format=layout)
        assert float((inside(images) - inside(wanted)).abs().max()) <= 2.01 / 255 / 0.25


def test_a_pass_that_is_left_leaves_nothing_behind(folder):
    loader = loader_of(folder, num_workers=1, persistent_workers=True)
    whole = list(loader)
    loader.set_epoch(0)
    for number, _ in enumerate(loader):
        if number == 1:
            break
    loader.set_epoch(0)
    again = list(loader)
    assert all(torch.equal(one[0], other[0]) for one, other in zip(whole, again, strict=True))


def test_two_passes_at_once_have_a_decoder_each(folder):
    loader = loader_of(folder)
    alone = list(loader_of(folder))
    one, other = iter(loader), iter(loader)
    first = [next(one), next(one)]
    next(other)
    first += list(one)
    assert all(torch.equal(mine[0], wanted[0]) for mine, wanted in zip(first, alone, strict=True))


def test_a_loop_without_end_has_one_decoder(folder, monkeypatch):
    """In its handler the exception's traceback holds the pass that is over."""
    made, usual, other = list[DaliDecoder](), DaliDecoder, loader_of(folder)
    expected = [batch[0] for _ in range(3) for batch in other]

    def counting(*given):
        made.append(usual(*given))
        return made[-1]

    monkeypatch.setattr(lanes, "DaliDecoder", counting)
    loader = loader_of(folder)
    found, batches = list[torch.Tensor](), iter(loader)
    while len(found) < len(expected):
        try:
            images, _ = next(batches)
        except StopIteration:
            batches = iter(loader)
            images, _ = next(batches)
        found.append(images)
    assert len(made) == 1 and all(map(torch.equal, found, expected))


class LateDecoder:
    """In DALI's place, on a card that does everything as late as it may."""

    def __init__(self, card: LateCard) -> None:
        self.card, self.begun = card, deque[Encoded]()
        self.kept: list[torch.Tensor] = []
        """What the card reads, by address."""

    def begin(self, batch: Encoded) -> Encoded:
        self.begun.append(batch)
        return batch

    def take(self, wanted: Encoded) -> torch.Tensor:
        assert self.begun[0] is wanted
        self.kept.append(decoded_by_pillow(self.begun.popleft()))
        return self.card.copied(self.kept[-1])


@pytest.mark.parametrize("last", [False, True], ids=["planes", "channels last"])
@pytest.mark.parametrize("transform", [PIXELS, FLOATS], ids=["bytes", "floats"])
def test_images_are_there_when_they_are_handed_out(transform, last):
    images = Images(transform, "close")
    encoder = encoding.Encoder(images, 1 << 30)
    for number in range(3):
        encoder.put(number, jpeg(seed=number))
    batch, card = encoder.made(lambda shape, dtype: torch.empty(shape, dtype=dtype)), LateCard()
    lane = DecodingLane(Lane(card), LateDecoder(card), last=last)  # type: ignore[arg-type]  # a decoder as it sees one
    unfinished = None if images.levels is None else Unfinished("jpg", images.levels)
    moved = lane.move({"jpg": batch, "cls": torch.arange(3), "txt": ["a", "b", "c"]}, unfinished)
    assert moved.size_bytes >= 3 * 3 * EDGE * EDGE
    found = lane.hand(moved)
    expected = decoded_by_pillow(batch).permute(0, 3, 1, 2)
    expected = expected if images.levels is None else images.levels.applied(expected)
    assert list(found) == ["jpg", "cls", "txt"] and found["cls"].tolist() == [0, 1, 2]
    assert torch.equal(found["jpg"], expected)
    assert found["jpg"].is_contiguous(memory_format=torch.channels_last if last else torch.contiguous_format)
    assert found["jpg"].data_ptr() in card.marked


def test_what_is_decoded_already_is_moved_as_usual():
    card = LateCard()
    lane = DecodingLane(Lane(card), LateDecoder(card), last=False)  # type: ignore[arg-type]  # as above
    batch = [torch.arange(12).reshape(3, 4), torch.arange(3)]
    found = lane.hand(lane.move(batch))
    lane.release()
    assert all(map(torch.equal, found, batch)) and lane.ahead_bytes > 0


def test_what_was_found_about_the_jpeg_engine_is_known_to_all_passes_and_told():
    pytest.importorskip("nvidia.dali", reason="NVIDIA DALI is not installed (pip install 'fastfeed[dali]')")
    decoders, gpu, lane = Decoders(DALI, last=False), torch.device("cuda", 0), lane_onto(CPU)
    assert not any("JPEG engine" in line for line in (*decoders.told(None), *decoders.told(CPU), *decoders.told(gpu)))
    one, other = decoders.lane(lane), decoders.lane(lane)
    assert one.decoder is not other.decoder and one.decoder.engine is other.decoder.engine
    one.decoder.engine.refused(0.9, "no room")
    why = "since no pipeline could be made with another part: no room"
    told = f"DALI: 90% of images go to the GPU's JPEG engine, {why} (hw_decoder_load)"
    assert told in decoders.told(gpu) and told not in decoders.told(CPU)


def test_a_decoder_is_kept_for_the_next_pass():
    pytest.importorskip("nvidia.dali", reason="NVIDIA DALI is not installed (pip install 'fastfeed[dali]')")
    decoders, lane = Decoders(DALI, last=False), lane_onto(CPU)
    first = decoders.lane(lane)
    decoder = first.decoder
    second = decoders.lane(lane)
    assert second.decoder is not decoder
    del first, second
    gc.collect()
    assert decoders.lane(lane).decoder is not decoder


def without_tables(data: bytes) -> bytes:
    """A JPEG of whose damage the part of its header that workers read tells nothing."""
    while (start := data.find(b"\xff\xdb")) > 0:
        data = data[:start] + data[start + 2 + int.from_bytes(data[start + 2 : start + 4], "big") :]
    return data


@pytest.fixture(scope="module")
def damaged(folder, tmp_path_factory):
    home = tmp_path_factory.mktemp("damaged")
    files = {f"a/{number:02d}.jpg": jpeg((60, 50), seed=number) for number in range(24)}
    files |= {f"a/{number:02d}.jpg": without_tables(files[f"a/{number:02d}.jpg"]) for number in range(1, 20, 4)}
    packed(tree(home / "source", files), home / "packed")
    return home / "packed"


@pytest.mark.filterwarnings("ignore")
def test_a_damaged_image_is_the_error_of_the_cpu_and_the_next_come(damaged, caplog):
    """In more batches one behind another than pipelines may break for no reason."""
    found, said = [], list[list[str]]()
    for decode in ("cpu", DALI):
        batches, numbers, errors = (
            iter(loader_of(damaged, decode=decode, batch_size=4, shuffle=False)),
            list[int](),
            list[str](),
        )
        for _ in range(6):
            try:
                numbers += next(batches)[1].tolist()
            except DecodeError as error:
                errors.append(str(error).partition("(OSError")[0])
        assert next(batches, None) is None
        found.append(len(numbers))
        said.append(errors)
    assert found == [4, 4] and len(said[0]) == 5 and said[0] == said[1]
    assert "sample 1 (key 'a/01', source 'a/01.jpg') of batch 0" in said[1][0]
    assert "DALI's pipeline broke" in caplog.text


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("policy", ["skip", "replace"])
@pytest.mark.parametrize("workers", [0, 1])
def test_damaged_images_are_left_out_or_replaced_as_on_the_cpu(damaged, policy, workers):
    options: dict[str, Any] = {"on_error": policy, "num_workers": workers, "batch_size": 4, "with_index": True}
    expected = list(loader_of(damaged, decode="cpu", **options))
    loader = loader_of(damaged, FLOATS, **options)
    found = list(loader)
    assert [one.index.tolist() for one in found] == [one.index.tolist() for one in expected]
    assert [len(one.batch[0]) for one in found] == [len(one.batch[0]) for one in expected]
    assert all(one.batch[0].dtype is torch.float32 for one in found)


def test_batches_that_workers_decode_after_all_are_counted(folder):
    loader = loader_of(folder)
    next(iter(loader))
    assert not any(name.startswith("batches decoded by workers") for name in loader.stats().counters)
    loader.dataset.transform = v1.Compose(
        [v1.Resize(EDGE, v1.InterpolationMode.BICUBIC), v1.CenterCrop(EDGE), v1.PILToTensor()]
    )
    next(iter(loader))
    told = [name for name in loader.stats().counters if name.startswith("batches decoded by workers, not by DALI: ")]
    assert len(told) == 1 and "another filter" in told[0]


_LEAVES = """
import sys, torchvision.transforms as v1, fastfeed
from fastfeed.feed.loader import DataLoader
dataset = fastfeed.open(sys.argv[1], v1.Compose([v1.RandomResizedCrop(24), v1.ToTensor()]))
loader = DataLoader(dataset, 4, num_workers=1, device="cpu", device_decode=fastfeed.DaliOptions(threads=1))
batches = iter(loader)
next(batches), next(batches)
if sys.argv[2] == "let go":
    del batches, loader
print("left")
"""


@pytest.mark.parametrize("how", ["let go", "held"])
def test_a_script_may_end_while_batches_are_on_their_way(folder, how):
    command = [sys.executable, "-W", "ignore", "-c", _LEAVES, str(folder), how]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    assert (done.returncode, done.stdout, done.stderr) == (0, "left\n", "")


@pytest.mark.filterwarnings("ignore")
def test_a_pipeline_that_breaks_is_counted(folder, monkeypatch):
    class Outside(Placing):
        """Of which DALI refuses a part that Pillow fills up."""

        @property
        def place(self):
            place = super().place
            return place._replace(box=place.box._replace(height=5000))

    dataset = fastfeed.open(folder, PIXELS)
    with monkeypatch.context() as patch:
        patch.setattr(encoding, "Placing", Outside)
        loader = DataLoader(Subset(dataset, [0, 1, 2]), 3, num_workers=0, device="cpu", device_decode=DALI)
        assert len(next(iter(loader))[0]) == 3
    assert loader.stats().counters["batches decoded on the CPU: DALI's pipeline broke"] == 1


@pytest.mark.parametrize("workers", [0, 1])
def test_pixels_beyond_batch_bytes_are_decoded_by_workers(folder, workers):
    few = fastfeed.DaliOptions(threads=1, batch_bytes=1)
    loader, plain = (loader_of(folder, decode=decode, num_workers=workers) for decode in (few, "cpu"))
    for (images, targets), (expected, others) in zip(loader, plain, strict=True):
        assert torch.equal(images, expected) and torch.equal(targets, others)
    beyond = "images decoded by workers, not by DALI: more pixels than a batch may have (batch_bytes)"
    assert loader.stats().counters[beyond] > 0


def test_the_plan_says_who_decodes_and_stats_count(folder):
    loader = loader_of(folder)
    next(iter(loader))
    told = str(loader.plan)
    assert (
        'device_decode="dali" was given' in told
        and "DALI decodes by its own code for CPUs, since device is cpu: 1 thread" in told
    )
    assert "device: cpu was given" in told


def test_what_comes_under_inference_mode_may_be_trained_on(folder):
    with torch.inference_mode():
        images, _ = next(iter(loader_of(folder)))
    assert not images.is_inference()


def test_a_dataset_of_dicts(tmp_path):
    pytest.importorskip("nvidia.dali", reason="NVIDIA DALI is not installed (pip install 'fastfeed[dali]')")
    files: dict[str, Any] = {}
    for number in range(6):
        files |= {f"{number}.jpg": jpeg(seed=number), f"{number}.txt": f"{number}"}
    packed(tree(tmp_path / "source", files), tmp_path / "packed")
    dataset = fastfeed.open(tmp_path / "packed", {"jpg": PIXELS})
    loader = DataLoader(dataset, 4, num_workers=0, seed=1, device="cpu", device_decode=DALI)
    first, second = list(loader)
    assert first["txt"] == ["0", "1", "2", "3"] and second["jpg"].shape == (2, 3, EDGE, EDGE)


def test_where_the_transform_changes_its_size_the_next_pass_has_it(folder):
    loader = loader_of(folder, v1.Compose([v1.RandomResizedCrop(EDGE), v1.PILToTensor()]))
    assert next(iter(loader))[0].shape[-1] == EDGE
    loader.dataset.transform.transforms[0].size = (16, 16)
    assert next(iter(loader))[0].shape[-1] == 16
