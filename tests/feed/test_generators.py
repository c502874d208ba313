import random

import numpy as np
import torch

from fastfeed.feed.generators import stored_generators


class Holder:
    def __init__(self, **attributes):
        self.__dict__.update(attributes)


def test_generators_are_found_wherever_a_dataset_keeps_them():
    inner = Holder(rng=np.random.default_rng(0), size=3)
    dataset = Holder(
        transform=Holder(transforms=[inner, Holder(state=np.random.RandomState(1))]), draw=random.Random(2),
        table={"g": torch.Generator()}, data=np.zeros(3), names=["a"],
    )  # fmt: skip
    assert stored_generators(dataset) == [
        "draw (random.Random)",
        "table['g'] (torch._C.Generator)",
        "transform.transforms[0].rng (numpy.random._generator.Generator)",
        "transform.transforms[1].state (numpy.random.mtrand.RandomState)",
    ]


def test_a_dataset_without_any_has_none():
    assert stored_generators(Holder(items=list(range(1000)), tensor=torch.zeros(3))) == []


def test_a_circle_ends():
    first = Holder()
    first.__dict__["again"] = first
    assert stored_generators(first) == []
