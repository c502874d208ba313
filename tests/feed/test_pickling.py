import threading

import numpy as np
import pytest
import torch
from loading import Numbers

from fastfeed.feed.pickling import unpicklable


class Marked(torch.Tensor):
    """A tensor with attributes of its own."""


def test_what_can_be_sent():
    recursive: list[object] = []
    recursive.append(recursive)
    for data in (1, "a", None, [1, 2.0], {"a": (torch.ones(2), np.ones(3))}, Numbers(), torch.ones(2, requires_grad=True),
                 np.array([1, "x"], dtype=object), recursive, torch.ones(2).as_subclass(Marked)):  # fmt: skip
        assert unpicklable(data) is None, data


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (lambda: 1, "pickle"), ({"a": [threading.Lock()]}, "lock"), (np.array([threading.Lock()]), "lock"),
        (torch.ones(2, requires_grad=True) * 2, "detach"), ([torch.ones(2).to_mkldnn()], "to_dense"),
    ],
    ids=["lambda", "lock", "object-array", "gradient", "mkldnn"],
)  # fmt: skip
def test_what_cannot_and_why(data, why):
    found = unpicklable(data)
    assert found is not None and why in found


def test_an_attribute_of_a_tensor_counts():
    tensor = torch.ones(2).as_subclass(Marked)
    tensor.lock = threading.Lock()  # type: ignore[attr-defined]
    assert "lock" in (unpicklable(tensor) or "")


def test_memory_is_not_copied(monkeypatch):
    monkeypatch.setattr(torch.Tensor, "__reduce_ex__", lambda *_: pytest.fail("a tensor was pickled"))
    monkeypatch.setattr(torch.Tensor, "share_memory_", lambda *_: pytest.fail("a tensor was moved"))
    assert unpicklable([Numbers(), torch.ones(2)]) is None
