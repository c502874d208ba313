import pickle

import numpy as np
import pytest
import torch
from PIL import Image

from fastfeed.auditor.running.python import Indexed, Streamed
from fastfeed.auditor.running.sending import why_unsendable
from fastfeed.auditor.running.subject import HOW, How


class Counted:
    """Knows how often it was pickled."""

    times = 0

    def __reduce__(self):
        Counted.times += 1
        return Counted, ()


class Held:
    """As a file or a lock: pickle refuses it."""

    def __getstate__(self):
        raise pickle.PicklingError("no way to send it")


@pytest.mark.parametrize(
    "sample",
    [
        (torch.zeros(3, requires_grad=True), 1),
        {"a": np.zeros(2), "b": [None, "text", (1.5, b"")]},
        Image.new("RGB", (2, 2)),
        np.float32(1),
        Counted(),
    ],
    ids=["pair", "dict", "image", "scalar", "own"],
)
def test_what_can_be_sent(sample):
    assert why_unsendable(sample) is None


def test_only_what_is_not_plain_is_pickled():
    before = Counted.times
    why_unsendable([1, Counted()])
    why_unsendable([1, "two"])
    assert Counted.times == before + 1


@pytest.mark.parametrize(
    ("sample", "why"),
    [((1, lambda: 2), "lambda"), ({"a": Held()}, "no way to send it")],
)
def test_what_cannot_be_sent(sample, why):
    assert why in str(why_unsendable(sample))


class Two:
    def __len__(self):
        return 2

    def __getitem__(self, index):
        return index or (index, Held())


def test_it_is_a_finding_of_that_sample_alone():
    dataset = Indexed(Two())
    assert [[found.code.name for found in dataset.load(index, HOW).findings] for index in range(2)] == [["unpicklable"], []]
    assert dataset.load(0, How(look=False)).findings == []
    stream = Streamed(iter([Held(), 1]))
    records = [stream.load(index, HOW) for index in range(2)]
    assert [[found.code.name for found in record.findings] for record in records if record] == [["unpicklable"], []]
