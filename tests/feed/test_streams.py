import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from loading import Raises
from torch.utils.data import DataLoader as TorchDataLoader
from torch.utils.data import IterableDataset, get_worker_info
from xxhash import xxh3_64

from fastfeed.feed.loader import DataLoader
from fastfeed.feed.streaming import Streaming
from fastfeed.feed.streams import Stream, StreamCollate, feed


class Counted(IterableDataset[Any]):
    """Each worker gives 0 to 5, or what call gives at 3."""

    def __init__(self, call: Callable[[], Any] | None = None) -> None:
        self.call = call

    def __iter__(self) -> Iterator[Any]:
        for number in range(6):
            yield self.call() if number == 3 and self.call is not None else number

    def __len__(self) -> int:
        return 6


def fail() -> Any:
    raise KeyError("three")


def fail_as_nobody_knows() -> Any:
    class Local(Exception):
        """Its type cannot be found by its name."""

    raise Local("three")


def end() -> Any:
    raise StopIteration


@pytest.mark.filterwarnings("ignore:the streams of 2 workers")
@pytest.mark.parametrize("workers", [0, 2])
def test_it_is_torchs(workers):
    ours = [batch.tolist() for batch in DataLoader(Counted(), 4, num_workers=workers)]
    assert ours == [batch.tolist() for batch in TorchDataLoader(Counted(), 4, num_workers=workers)]
    assert len(Streaming(TorchDataLoader(Counted(), 4))) == 2


@pytest.mark.parametrize("workers", [0, 1])
def test_a_sample_that_fails_is_named_by_its_number(workers):
    with Raises(KeyError) as caught:
        list(DataLoader(Counted(fail), None, num_workers=workers))
    where = "" if workers == 0 else ", worker 0"
    told = "".join(getattr(caught.value, "__notes__", [])) + str(caught.value)
    assert f"sample 3 of the stream{where}" in told


def test_a_type_that_nobody_finds_does_not_hang():
    with Raises(RuntimeError, match=r"fail_as_nobody_knows.*Local: three"):
        list(DataLoader(Counted(fail_as_nobody_knows), None, num_workers=1))


@pytest.mark.parametrize("workers", [0, 1])
def test_what_cannot_be_sent_is_an_error_and_not_a_hang(workers):
    loader = DataLoader(Counted(threading.Lock), 2, collate_fn=list, num_workers=workers)
    if workers:
        with Raises(TypeError, match="cannot be pickled"):
            list(loader)
    else:
        assert len(list(loader)) == 3


def test_collate_that_ends_is_no_end_of_the_stream():
    def collate(samples):
        return next(iter(()))

    with Raises(RuntimeError, match="the collate function raised StopIteration"):
        list(DataLoader(Counted(), 2, collate_fn=collate, num_workers=0))
    assert StreamCollate(tuple)([1, 2]) == (1, 2)


def test_worker_init_fn_finds_the_dataset_of_the_user():
    found = list(DataLoader(Counted(), None, num_workers=1, worker_init_fn=_prove_own))
    assert found == list(range(6))


def _prove_own(worker: int) -> None:
    info: Any = get_worker_info()
    assert worker == 0 and isinstance(info.dataset, Counted)
    assert not isinstance(info.dataset, Stream) and torch.utils.data.get_worker_info() is info


@pytest.mark.filterwarnings("ignore:Sparse invariant")
def test_what_can_be_digested():
    def digested(data):
        digest = xxh3_64()
        return digest.intdigest() if feed(digest, data) else None

    equal = [1, {"a": torch.ones(2), "b": [b"x", "y", np.float32(1.5)]}, (True, 0.5)]
    others = [1, {"a": torch.ones(2), "b": [b"x", "z", np.float32(1.5)]}, (True, 0.5)]
    assert digested(equal) == digested(list(equal)) is not None
    assert digested(equal) != digested(others)
    assert digested(torch.zeros(2)) != digested(torch.zeros(1, 2))
    for unknown in (object(), [None], np.array([object()]), torch.zeros(2).to_sparse(), torch.zeros(2, dtype=torch.bfloat16)):
        assert digested(unknown) is None


def itself() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


def test_a_sample_that_contains_itself_comes_as_it_is():
    """Among the first ones, which are digested to find out whether workers read the same."""

    class Circles(IterableDataset[Any]):
        def __iter__(self) -> Iterator[Any]:
            return iter([itself(), itself()])

    found = list(DataLoader(Circles(), None, num_workers=2, collate_fn=type_name, pin_memory=False))
    assert found == ["list"] * 4


def type_name(sample: Any) -> str:
    return type(sample[0]).__name__
