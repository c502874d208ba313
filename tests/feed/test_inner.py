import os
import sys
import types
import warnings

import torch
from loading import settles
from torch.utils.data import DataLoader as TorchDataLoader
from torch.utils.data import default_collate

from fastfeed.feed.inner import HAS_IN_ORDER, InnerLoader, ask_before_sharing, has_arrived, in_order_option


def test_it_is_torchs_loader_and_does_not_warn_of_too_many_workers():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loader = InnerLoader(range(4), 2, num_workers=500)  # type: ignore[arg-type] # not one of them is started
    assert issubclass(InnerLoader, TorchDataLoader) and len(loader) == 2


def test_torch_asks_a_sampler_once_without_workers_and_twice_with_them():
    """What feed/tasks.py does as well in torch mode, so that a sampler that draws at once draws as often."""

    class Asked:
        times = 0

        def __iter__(self):
            self.times += 1
            return iter([0])

    for workers, times in ((0, 1), (1, 2)):
        asked = Asked()
        assert [int(i) for i in InnerLoader([0], None, sampler=asked, num_workers=workers)] == [0]  # type: ignore[arg-type]
        assert asked.times == times


def test_in_order_is_given_where_torch_has_it():
    option = in_order_option(in_order=False)
    assert option == ({"in_order": False} if HAS_IN_ORDER else {})
    assert getattr(InnerLoader(range(4), **option), "in_order", False) is False  # type: ignore[arg-type]


def test_default_collate_asks_before_it_takes_shared_memory(monkeypatch):
    """The contract with torch: in a worker it takes memory by UntypedStorage._new_shared(bytes, device=)."""
    original = torch.UntypedStorage.__dict__.get("_new_shared")
    monkeypatch.setattr(torch.utils.data._utils.worker, "_worker_info", object())
    asked: list[int] = []
    samples = [(torch.ones(3, dtype=torch.float64), i) for i in range(4)]
    assert default_collate(samples)[0].is_shared()

    def allowed(size: int) -> bool:
        asked.append(size)
        return len(asked) > 1

    try:
        for answer in (False, True):
            ask_before_sharing(allowed)
            large, numbers = default_collate(samples)
            assert large.is_shared() is answer and large.tolist() == [[1.0] * 3] * 4 and numbers.tolist() == [0, 1, 2, 3]
            del torch.UntypedStorage._new_shared
        monkeypatch.setattr(torch.storage._StorageBase, "_new_shared", _full)
        ask_before_sharing(lambda size: True)
        assert default_collate(samples)[0].tolist() == [[1.0] * 3] * 4  # it failed, and is not shared
    finally:
        if "_new_shared" in torch.UntypedStorage.__dict__:
            del torch.UntypedStorage._new_shared
        if original is not None:
            torch.UntypedStorage._new_shared = original  # type: ignore[method-assign]
    assert asked == [96, 96]


def _full(size: int, *, device: object = "cpu") -> None:
    raise RuntimeError("unable to allocate shared memory(shm)")


def test_tokenizers_are_told_while_workers_start(monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", types.ModuleType("tokenizers"))
    monkeypatch.delenv("TOKENIZERS_PARALLELISM", raising=False)
    found = [os.environ.get("TOKENIZERS_PARALLELISM") for _ in InnerLoader([0, 1], None)]  # type: ignore[arg-type]
    assert found == [None, None] and list(InnerLoader(_Environment(), None, num_workers=1)) == ["false"]  # type: ignore[arg-type]
    assert "TOKENIZERS_PARALLELISM" not in os.environ


class _Environment:
    def __len__(self):
        return 1

    def __getitem__(self, index):
        return os.environ.get("TOKENIZERS_PARALLELISM")


def test_what_workers_have_sent_is_seen_without_taking_it():
    """A contract with torch: its iterator receives from _data_queue."""
    batches = iter(InnerLoader(range(3), None, num_workers=1))  # type: ignore[arg-type]
    for number in range(3):
        assert settles(lambda: has_arrived(batches))
        assert next(batches) == number
    assert not has_arrived(batches) and not has_arrived(iter(InnerLoader(range(3), None)))  # type: ignore[arg-type]
