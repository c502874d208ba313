"""DALI's decoder, by its own code for CPUs: the places that were drawn, odd images between, and pipelines that break."""

import logging
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
import torchvision.transforms as v1
from fusing import edges, jpeg, levels, noisy, photos
from helpers import encoded
from loading import seed_all

from fastfeed.errors import DecodeError, UsageError
from fastfeed.feed import dali as module
from fastfeed.feed.dali import DaliDecoder
from fastfeed.feed.dalioptions import DaliOptions
from fastfeed.feed.dalipipeline import Pipeline
from fastfeed.feed.decode.encoded import HEIGHT, SIZE, Encoded, Encoder
from fastfeed.feed.decode.images import Images
from fastfeed.feed.decode.placed import decoded_by_pillow
from fastfeed.feed.engineload import WITH, WITHOUT, EngineLoad
from fastfeed.jpegrows import scan_rows

CPU = torch.device("cpu")
EDGE = 32
TRAIN = v1.Compose([
    v1.RandomResizedCrop(EDGE), v1.RandomHorizontalFlip(), v1.RandomVerticalFlip(), v1.PILToTensor(),
])  # fmt: skip
EVALUATE = v1.Compose([v1.Resize(40), v1.CenterCrop(EDGE), v1.PILToTensor()])


@pytest.fixture
def breaking():
    """One whose pipelines the test breaks."""
    pytest.importorskip("nvidia.dali", reason="NVIDIA DALI is not installed (pip install 'fastfeed[dali]')")
    return DaliDecoder(CPU, DaliOptions(threads=1))


@pytest.fixture
def decoder(breaking):
    """One of which no pipeline may break: Pillow would decode the batch then, and its pixels would be as expected."""
    yield breaking
    assert breaking.broken == 0


def batch_of(files: list[bytes], transform: v1.Compose = TRAIN, seed: int = 0, *, rowed: bool = False) -> Encoded:
    seed_all(seed)
    encoder = Encoder(Images(transform, "close"), 1 << 30)
    for number, data in enumerate(files):
        encoder.put(number, data, scan_rows(data) if rowed else None)
    return encoder.made(lambda shape, dtype: torch.empty(shape, dtype=dtype))


def files_of(count: int, first: int = 0) -> list[bytes]:
    return [jpeg((90, 70), seed=first + number, restart_marker_rows=1) for number in range(count)]


def by_dali(decoder: DaliDecoder, batch: Encoded) -> torch.Tensor:
    decoder.begin(batch)
    return decoder.take()


def inside(batch: torch.Tensor) -> torch.Tensor:
    """Without the outermost rows and columns: at the edge of a part DALI repeats pixels, where Pillow weighs those that are."""
    return batch[:, 1:-1, 1:-1]


@pytest.mark.parametrize("transform", [TRAIN, EVALUATE], ids=["train", "evaluate"])
@pytest.mark.parametrize("rowed", [False, True])
def test_it_gives_what_was_drawn(decoder, transform, rowed):
    batch = batch_of(files_of(12), transform, rowed=rowed)
    found, expected = by_dali(decoder, batch), decoded_by_pillow(batch)
    assert found.shape == (12, EDGE, EDGE, 3) and found.dtype is torch.uint8
    most, mean = levels(inside(found), inside(expected))
    assert most <= 2 and mean < 0.4


def test_real_photos_are_close(decoder):
    files = [path.read_bytes() for path in photos(97)]
    batch = batch_of(files)
    most, mean = levels(inside(by_dali(decoder, batch)), inside(decoded_by_pillow(batch)))
    assert most <= 2 and mean < 0.4


def test_images_that_are_decoded_already_keep_their_places(decoder):
    odd = [encoded(noisy(), "PNG"), jpeg(progressive=True), jpeg(mode="CMYK")]
    files = files_of(9)
    files[0], files[4:6], files[8] = odd[0], odd[1:3], odd[0]
    batch = batch_of(files)
    assert len(batch.pixels) == 4
    found, expected = by_dali(decoder, batch), decoded_by_pillow(batch)
    assert levels(inside(found), inside(expected))[0] <= 2
    assert torch.equal(found[[0, 4, 5, 8]], expected[[0, 4, 5, 8]])


def test_a_batch_of_nothing_else_needs_no_pipeline(decoder):
    batch = batch_of([encoded(noisy(), "PNG")] * 3)
    assert torch.equal(by_dali(decoder, batch).flatten(1), batch.pixels)


def test_batches_of_any_size_come_in_order(decoder):
    batches = [batch_of(files_of(count, count), seed=count) for count in (3, 1, 7, 2, 8, 5)]
    found = []
    for batch in batches:
        decoder.begin(batch)
        if len(decoder) == decoder.options.in_flight:
            found.append(decoder.take())
    found.append(decoder.take())
    assert len(decoder) == 0
    for batch, one in zip(batches, found, strict=True):
        assert levels(inside(one), inside(decoded_by_pillow(batch)))[0] <= 2


def test_another_part_for_the_jpeg_engine_is_another_pipeline(decoder):
    batches = [batch_of(files_of(count, count), seed=count) for count in (4, 3, 4, 2)]
    first, second = decoder.begin(batches[0]), decoder.begin(batches[1])
    decoder.engine.part = WITH
    found = [decoder.take(first)]
    third = decoder.begin(batches[2])
    found += [decoder.take(second), decoder.take(third), by_dali(decoder, batches[3])]
    for batch, one in zip(batches, found, strict=True):
        assert levels(inside(one), inside(decoded_by_pillow(batch)))[0] <= 2
    assert first.pipeline is second.pipeline is not third.pipeline
    assert (first.pipeline.engine, third.pipeline.engine) == (WITHOUT, WITH) and third.pipeline.most == 4


@pytest.mark.parametrize("error", [RuntimeError("out of memory"), MemoryError()], ids=["DALI", "Python"])
def test_where_the_jpeg_engine_cannot_be_tried_what_there_is_goes_on(decoder, monkeypatch, error):
    batch = batch_of(files_of(3))
    expected = by_dali(decoder, batch)

    def full(*given):
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(module, "Pipeline", full)
        decoder.engine.part = WITH
        for _ in range(3):
            assert torch.equal(by_dali(decoder, batch), expected)
        assert decoder.engine.part == WITHOUT
        assert "gets no images, since no pipeline could be made with another part: " in decoder.engine.told
        assert ("out of memory" in decoder.engine.told) == bool(error.args) != ("MemoryError" in decoder.engine.told)
        with pytest.raises(type(error)):  # a batch for which there is none
            decoder.begin(batch_of(files_of(4)))
    assert len(decoder) == 0 and torch.equal(by_dali(decoder, batch), expected)


class Noted(EngineLoad):
    """Writes down what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.noted: list[Any] = []

    def taken(self, waited_seconds: float, taker: object = None) -> None:
        self.noted.append((waited_seconds, taker))

    def paused(self) -> None:
        self.noted.append("paused")


def test_waits_count_where_dali_is_behind(decoder):
    noted, batch = Noted(), batch_of(files_of(8) * 8)
    decoder.engine = noted
    for _ in range(2):
        decoder.begin(batch)
    for _ in range(3):
        decoder.take()
        decoder.begin(batch)
    while len(decoder):
        decoder.take()
    by_dali(decoder, batch)  # nothing was there before it: DALI waited, not the loop
    decoder.forget()
    waited = [one[0] for one in noted.noted[:-1]]
    assert all(one > 0 for one in waited[:4]) and waited[4:] == [0, 0]
    assert noted.noted[-1] == "paused" and all(one[1] is decoder for one in noted.noted[:-1])


@pytest.mark.parametrize("at", range(3))
def test_ctrl_c_while_old_batches_are_let_go_of_ends_nothing_else(decoder, monkeypatch, at):
    """DALI's results are given away, and then Ctrl-C comes: it has none for that batch any more."""
    batches = [batch_of(files_of(3, 10 * number), seed=number) for number in range(3)]
    for batch in batches:
        decoder.begin(batch)
    calls, usual = list[int](), Pipeline.drop

    def interrupted(pipeline):
        usual(pipeline)
        calls.append(1)
        if len(calls) == at + 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(Pipeline, "drop", interrupted)
    if at < decoder.options.in_flight:
        with pytest.raises(KeyboardInterrupt):
            decoder.forget()
    decoder.forget()
    assert len(decoder) == 0
    for batch in batches:
        assert levels(inside(by_dali(decoder, batch)), inside(decoded_by_pillow(batch)))[0] <= 2


def test_batches_that_nobody_takes_any_more_stay_until_dali_is_done_with_them(decoder):
    """As behind Ctrl-C: their memory must not go while the pipeline reads it. It would end the process."""
    memory = torch.zeros(40 << 20, dtype=torch.uint8)
    lost = [batch_of(files_of(4), seed=number) for number in range(2)]
    gone = [weakref.ref(decoder.begin(one)) for one in lost]
    wanted = batch_of(files_of(4, 20), seed=9)
    begun = decoder.begin(wanted)
    ended = list[bool]()
    pipeline = weakref.ref(decoder._pipeline, lambda _: ended.append(all(one() is not None for one in gone)))
    del lost, memory
    found = decoder.take(begun)
    assert pipeline() is None and ended == [True]
    assert all(one() is None for one in gone)
    assert levels(inside(found), inside(decoded_by_pillow(wanted)))[0] <= 2


def test_what_is_taken_is_nobody_elses(decoder):
    batch, other = batch_of(files_of(4)), batch_of(files_of(4, 9), seed=1)
    kept = by_dali(decoder, batch)
    before = kept.clone()
    for _ in range(6):
        by_dali(decoder, other)
    assert torch.equal(kept, before)


def test_the_first_batch_that_a_pipeline_sees_is_as_large_as_any(decoder, monkeypatch):
    """By it nvImageCodec settles how many images of a batch the GPU's JPEG engine gets."""
    fed, usual = list[int](), Pipeline._feed

    def seen(pipeline, data, table):
        fed.append(len(table))
        usual(pipeline, data, table)

    monkeypatch.setattr(Pipeline, "_feed", seen)
    by_dali(decoder, batch_of(files_of(7)))
    assert fed == [7] * (decoder.options.in_flight + 1)
    by_dali(decoder, batch_of(files_of(3)))
    by_dali(decoder, batch_of(files_of(8)))
    assert fed[-4:] == [3, 8, 8, 8]


def test_memory_that_is_used_again_gives_what_is_in_it_now(decoder):
    """A batch's files are read where they lie, by a view of that memory that is kept: as workers use theirs again and again."""
    memory, expected, found = torch.empty(1 << 20, dtype=torch.uint8), [], []
    for number in range(4):
        seed_all(number)
        encoder = Encoder(Images(TRAIN, "close"), 1 << 30)
        for at, data in enumerate(files_of(4 + number % 2, 10 * number)):
            encoder.put(at, data)
        batch = encoder.made(lambda shape, dtype: memory[8:][: shape[0]].view(dtype))
        assert batch.data.data_ptr() == memory.data_ptr() + 8
        found.append(by_dali(decoder, batch))
        expected.append(decoded_by_pillow(batch))
    for one, other in zip(found, expected, strict=True):
        assert levels(inside(one), inside(other))[0] <= 2


@pytest.mark.parametrize("where", ["_feed", "begin", "end"])
@pytest.mark.parametrize("call", [1, 2, 4])
def test_ctrl_c_does_not_give_one_batchs_images_for_anothers(decoder, monkeypatch, where, call):
    """Results that DALI has given away already, and files that it was fed without a run, must not shift all that follows."""
    batches = [batch_of(files_of(3, 10 * number), seed=number) for number in range(6)]
    by_dali(decoder, batches[0])
    calls, usual = list[int](), getattr(Pipeline, where)

    def interrupted(*given):
        done = usual(*given)
        calls.append(1)
        if len(calls) == call:
            raise KeyboardInterrupt
        return done

    monkeypatch.setattr(Pipeline, where, interrupted)
    begun, found, interrupts = list[Any](), list[Any](), 0
    while len(found) < len(batches):
        try:
            if len(begun) < len(batches) and len(begun) - len(found) < 3:
                begun.append(decoder.begin(batches[len(begun)]))
            else:
                found.append(decoder.take(begun[len(found)]))
        except KeyboardInterrupt:
            interrupts += 1
    assert interrupts == 1 and decoder.broken == 0
    for batch, one in zip(batches, found, strict=True):
        assert levels(inside(one), inside(decoded_by_pillow(batch)))[0] <= 2


def damaged(batch: Encoded, kind: str) -> Encoded:
    """A batch whose third file, sample 2, is damaged where no header told."""
    if kind == "cut off":
        batch.where[2, SIZE] //= 2
    else:
        batch.where[2, HEIGHT] = 5000
    return batch


@pytest.mark.filterwarnings("ignore")
def test_a_damaged_file_costs_a_pipeline_and_is_named(breaking, caplog):
    sound = batch_of(files_of(5))
    expected = by_dali(breaking, sound)
    for one in (damaged(batch_of(files_of(5)), "cut off"), sound):
        breaking.begin(one)
    with pytest.raises(DecodeError, match="truncated") as failure:
        breaking.take()
    assert failure.value.sample == 2
    assert torch.equal(breaking.take(), expected)
    assert torch.equal(by_dali(breaking, sound), expected)
    assert breaking.broken == 1
    assert "samples [0, 1, 2, 3, 4]" in caplog.text


def test_where_pillow_takes_it_the_batch_is_whole(breaking, caplog):
    sound = batch_of(files_of(5))
    expected = by_dali(breaking, sound)
    with caplog.at_level(logging.WARNING):
        found = by_dali(breaking, damaged(batch_of(files_of(5)), "part outside"))
    assert "The cropping window" in caplog.text
    others = [0, 1, 3, 4]
    assert levels(inside(found[others]), inside(expected[others]))[0] <= 2


def test_pipelines_that_always_break_are_an_error(breaking):
    bad = damaged(batch_of(files_of(5)), "part outside")
    for _ in range(3):
        by_dali(breaking, bad)
    with pytest.raises(RuntimeError, match="no longer valid"):
        by_dali(breaking, bad)


_HOSTILE = """
import sys
from test_dali import *
decoder = DaliDecoder(CPU, DaliOptions(threads=1))
edge = [path.read_bytes() for path in edges()] if sys.argv[1] == "edges" else []
edge += [b"A" * 5000, b"\\xff\\xd8\\xff" + b"A" * 5000, b"\\xff\\xd8", b"", jpeg()[:300]]
sound = [jpeg(), encoded(noisy(), "PNG")]
taken = []
for data in [*edge, *sound]:
    try:
        batch_of([data])
    except Exception:  # Pillow refuses the file, with an error of any type: it is the sample's, and goes no further
        assert data not in sound
        continue
    taken.append(data)
for start in range(0, len(taken), 16):
    by_dali(decoder, batch_of(taken[start : start + 16]))
assert decoder.broken == 0
assert taken[-2:] == sound
"""


@pytest.mark.parametrize("files", ["made", "edges"])
def test_no_file_reaches_it_that_kills_the_process(decoder, files):
    if files == "edges":
        edges()  # skips where they are missing
    path = [str(Path(__file__).parent), *sys.path]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", f"import sys; sys.path[:] = {path!r}\n{_HOSTILE}", files],
        capture_output=True, text=True, check=False, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_without_dali_it_is_said_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "nvidia.dali", None)
    with pytest.raises(UsageError) as failure:
        DaliDecoder(CPU)
    assert "fastfeed[dali]" in str(failure.value) and 'device_decode="dali"' in str(failure.value)
