"""Whatever a sample does, the loader does not hang, and the error names the sample."""

import errno
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers import flip_bit, pack_photos
from loading import TORCHS_NOISE, At, Calls, Numbers, Raise, Raises, TwoArguments, fault
from torch.utils.data import DataLoader as TorchDataLoader
from torch.utils.data import Sampler

import fastfeed
from fastfeed.errors import ShardDamaged
from fastfeed.feed.loader import DataLoader

pytestmark = [pytest.mark.filterwarnings("ignore:This DataLoader will create"), *TORCHS_NOISE]


# ---------------------------------------------------------------------------------------------------- exceptions
PLAIN = [
    ValueError("bad"),
    IndexError("no such row"),
    KeyError("kk"),
    AssertionError("no"),
    OSError(errno.EIO, "bad disk"),
    ZeroDivisionError(),
]


@pytest.mark.parametrize("error", PLAIN, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("workers", [0, 1])
def test_an_exception_keeps_its_type_and_names_the_sample(error, workers):
    caught = fault(Raise(error), num_workers=workers)
    found = caught.value
    where = "DataLoader worker process 0" if workers else "the main process"
    assert type(found) is type(error)
    assert str(found).startswith(f"Caught {type(error).__name__} in {where}, sample 37 of batch 4: {error}")
    assert "Traceback" in caught.printed and "raise self.error" in caught.printed  # the line that raised
    if workers:
        assert found.__cause__ is None
        assert "Original Traceback (most recent call last)" in str(found)
    else:
        assert found.__cause__ is not None
        assert type(found.__cause__) is type(error)
        assert found.__cause__.args == error.args


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("error", [StopIteration(), StopAsyncIteration("x")], ids=repr)
def test_an_exception_that_would_end_the_epoch_is_told(error, workers):
    """torch's loader gives four of eight batches and says nothing, for a StopIteration without workers."""
    found = fault(Raise(error), num_workers=workers).value
    assert type(found) is RuntimeError
    assert f"Caught {type(error).__name__} in" in str(found) and "sample 37 of batch 4" in str(found)


def test_an_exception_of_several_arguments():
    """pytorch issue 34130: it cannot be made from a text. Without workers it is the very exception, as with torch."""
    found = fault(Raise(TwoArguments(404, "gone"))).value
    assert type(found) is RuntimeError
    assert "Caught TwoArguments in DataLoader worker process 0, sample 37 of batch 4: 404 gone" in str(found)
    error = TwoArguments(404, "gone")
    same = fault(Raise(error), num_workers=0)
    assert same.value is error
    assert "Caught TwoArguments in the main process, sample 37 of batch 4" in same.printed


class Silent(Exception):
    def __str__(self) -> str:
        return "nothing to see"


class Broken(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class Holding(Exception):
    """Cannot be pickled."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.lock = threading.Lock()


@pytest.mark.parametrize("workers", [0, 1])
def test_exceptions_that_cannot_be_sent_or_told(workers):
    class Local(Exception):
        pass

    for error, kind in (
        (Local("here"), RuntimeError), (Silent(), RuntimeError), (Broken(), RuntimeError), (Holding("x"), Holding),
    ):  # fmt: skip
        found = fault(Raise(error), num_workers=workers)
        assert "sample 37 of batch 4" in found.printed
        assert f"Caught {type(error).__name__} in" in found.printed
        if workers:
            assert type(found.value) is kind


@pytest.mark.long
def test_an_exception_of_the_script_itself_keeps_its_type_in_a_spawned_worker(tmp_path):
    """A spawned process calls the script __mp_main__; and a script under a guard is run by it only once."""
    script = tmp_path / "train.py"
    script.write_text(
        textwrap.dedent("""
        from fastfeed.feed.loader import DataLoader
        class Mine(Exception): pass
        class Data:
            def __len__(self): return 4
            def __getitem__(self, i):
                if i == 2: raise Mine("bad")
                return i
        if __name__ == "__main__":
            try:
                list(DataLoader(Data(), num_workers=1, multiprocessing_context="spawn"))
            except Mine as error:
                print(str(error).splitlines()[0])
        """)
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert done.stdout == "Caught Mine in DataLoader worker process 0, sample 2 of batch 2: bad\n", done.stderr


@pytest.mark.parametrize("workers", [0, 1])
def test_an_error_of_a_packed_dataset_names_shard_member_and_bytes(tmp_path, workers):
    packed = pack_photos(tmp_path, each=4)
    (shard,) = Path(packed).rglob("*.tar")
    reading = fastfeed.open(packed, transform=np.array)
    flip_bit(shard, int(reading.column("offset")[5]) + 40)
    with Raises(ShardDamaged) as caught:
        list(DataLoader(reading, 3, num_workers=workers))
    text, name, found = str(caught.value), reading.identity(5), caught.value
    assert isinstance(found, ShardDamaged)
    assert f"sample 5 (key {name.key!r}, source {name.source!r})".replace("source b", "source ") in text
    assert "of batch 1" in text
    assert found.shard == shard.name and found.start is not None and found.hint
    assert found.expected and found.got
    assert text.count(str(found.hint)) == 1 and text.count("bytes [") == 1
    assert "Traceback" in caught.printed


@pytest.mark.parametrize("workers", [0, 1])
def test_the_loop_may_go_on_behind_a_bad_sample(workers):
    """As with torch: an exception does not end the pass, and the position counts the batch."""
    batches = iter(DataLoader(Calls(At(5, Raise(ValueError("x"))), 12), 4, num_workers=workers, seed=1))
    found: list[Any] = []
    while len(found) < 3:
        try:
            found.append(next(batches).tolist())
        except ValueError:
            found.append("fault")
    assert found == [[0, 1, 2, 3], "fault", [8, 9, 10, 11]]
    assert list(batches) == []


# ---------------------------------------------------------------------------------------------------- what cannot be sent
class Cut:
    """A lazily opened file, as PIL's, of which pickling fails."""

    def __reduce__(self) -> Any:
        raise OSError("image file is truncated")


def tracked() -> torch.Tensor:
    return torch.ones(2, requires_grad=True) * 2


def itself() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


@pytest.mark.parametrize("make", [threading.Lock, Cut, tracked, lambda: lambda: 0], ids=["lock", "file", "gradient", "lambda"])
def test_a_sample_that_cannot_be_pickled_is_named(make):
    """pytorch issue 142884: torch's loader hangs for ever."""
    found = fault(make, collate_fn=list).value
    assert type(found) is TypeError
    assert str(found).startswith(
        "Caught TypeError in DataLoader worker process 0, sample 37 of batch 4: a list cannot be pickled"
    )
    assert "a worker process cannot send it to the main process" in str(found)
    assert "sample 37 of batch 37" in str(fault(make, batch_size=None).value)


def test_a_sample_that_contains_itself_can_be_sent():
    # torch cannot pin it, where there is a GPU
    found = list(DataLoader(Calls(At(3, itself), 4), 2, num_workers=1, collate_fn=list, pin_memory=False))
    assert found[1][1][0] is found[1][1]


def lambda_of(samples: Any) -> Any:
    return lambda: samples


def of_a_local_kind(batch):
    return torch.Tensor._make_subclass(type("Local", (torch.Tensor,), {}), torch.ones(len(batch)))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_tensor_of_a_class_that_cannot_be_pickled_is_named():
    with pytest.raises(Exception, match=r"batch 0 \(pickle of 8 samples\).*Local"):
        list(DataLoader(Numbers(64), batch_size=8, num_workers=2, collate_fn=of_a_local_kind))


def test_a_batch_that_cannot_be_pickled_is_named():
    found = fault(int, collate_fn=lambda_of).value
    assert "batch 0 (pickle of 8 samples): a function cannot be pickled" in str(found)


def test_without_workers_anything_may_be_a_sample():
    batches = list(DataLoader(Calls(At(3, threading.Lock), 4), 2, num_workers=0, collate_fn=list))
    assert isinstance(batches[1][1], type(threading.Lock()))


# ---------------------------------------------------------------------------------------------------- collate and init
@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("error", [ValueError("odd"), StopIteration()], ids=repr)
def test_a_collate_function_that_fails_names_the_batch(error, workers):
    def collate(samples: list[int]) -> Any:
        if 37 in samples:
            raise error
        return samples

    found = fault(lambda: 37, num_workers=workers, collate_fn=collate).value
    assert "batch 4 (collate of 8 samples)" in str(found)
    assert type(found) is (ValueError if isinstance(error, ValueError) else RuntimeError)


def test_samples_that_do_not_fit_together_name_the_batch():
    found = fault(lambda: torch.zeros(3), collate_fn=None).value
    assert "batch 4 (collate of 8 samples)" in str(found)


class FailingInit:
    def __init__(self, error: Exception) -> None:
        self.error = error

    def __call__(self, worker: int) -> None:
        raise self.error


@pytest.mark.parametrize("error", [ValueError("no GPU"), RuntimeError("no GPU"), TwoArguments(1, "no GPU")], ids=repr)
def test_a_worker_init_fn_that_raises_is_told_as_torch_does(error):
    found: list[Any] = []
    batches: Any = None
    for cls in (TorchDataLoader, DataLoader):
        batches = iter(cls(Numbers(), num_workers=1, worker_init_fn=FailingInit(error)))
        with Raises(Exception, match="no GPU") as caught:
            next(batches)
        found.append(caught.value)
    assert type(found[0]) is type(found[1])
    heads = [str(error).splitlines()[0] for error in found]
    assert heads[0] == heads[1]
    assert "killed" not in str(found[1])
    with Raises(RuntimeError, match="no GPU"):
        next(batches)


class Stopping(Sampler[int]):
    def __init__(self, error: Exception) -> None:
        self.error = error

    def __len__(self) -> int:
        return 9

    def __iter__(self) -> Any:
        yield from (0, 1, 2)
        raise self.error


@pytest.mark.parametrize("error", [RuntimeError("mine"), OSError("mine"), KeyError("mine"), EOFError("mine")], ids=repr)
@pytest.mark.parametrize("workers", [0, 1])
def test_a_fault_of_a_sampler_is_the_samplers(error, workers):
    began = time.monotonic()
    with Raises(type(error), match="mine") as caught:
        list(DataLoader(Numbers(), sampler=Stopping(error), num_workers=workers))
    assert caught.value is error
    assert time.monotonic() - began < 1.9  # no dead worker was waited for


# ---------------------------------------------------------------------------------------------------- __getitems__
class Many(Calls):
    """Has __getitems__, which may fail as a whole."""

    together: Any = None

    def __getitems__(self, indices: list[int]) -> Any:
        if self.together is not None:
            return self.together(indices)
        return [self[index] for index in indices]


@pytest.mark.parametrize("workers", [0, 1])
def test_a_getitems_that_fails_is_asked_for_single_samples_to_find_the_culprit(workers):
    dataset = Many(At(37, Raise(ValueError("bad"))))
    with Raises(ValueError, match=r"sample 37 of batch 4: bad"):
        list(DataLoader(dataset, 8, num_workers=workers))


class Flaky(Many):
    @staticmethod
    def together(indices: list[int]) -> Any:
        raise OSError("too many at once")


class TooFew(Many):
    @staticmethod
    def together(indices: list[int]) -> Any:
        return indices[: 3 if 37 in indices else None]


class Alone(Many):
    """Cannot give a sample by itself."""

    __getitem__ = torch.utils.data.Dataset.__getitem__

    @staticmethod
    def together(indices: list[int]) -> Any:
        raise ValueError("all of them")


def test_a_getitems_that_fails_as_a_whole_names_the_batch():
    with Raises(OSError, match=r"batch 0 \(fetch of 8 samples\): too many at once"):
        list(DataLoader(Flaky(int), 8, num_workers=0))
    with Raises(ValueError, match=r"batch 0 \(fetch of 8 samples\): all of them"):
        list(DataLoader(Alone(int), 8, num_workers=0))


def test_a_getitems_that_gives_too_few_is_told():
    """torch takes what it gets, and the batch is short. A collate function of the user's may know what it does."""
    assert [len(batch) for batch in TorchDataLoader(TooFew(int), 8)][4] == 3
    with Raises(RuntimeError, match=r"batch 4 \(fetch of 8 samples\): __getitems__ gave 3 samples for 8 indices"):
        list(DataLoader(TooFew(int), 8, num_workers=0))
    assert [len(batch) for batch in DataLoader(TooFew(int), 8, num_workers=0, collate_fn=list)][4] == 3
