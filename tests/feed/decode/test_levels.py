"""fastfeed/feed/decode/levels.py: what is made of bytes elsewhere is, bit for bit, what is made of them here."""

import pickle
from typing import Any

import numpy as np
import pytest
import torch
from torchvision import transforms as v1
from torchvision.transforms import v2

from fastfeed.feed.decode import levels as module
from fastfeed.feed.decode.images import Images
from fastfeed.feed.decode.levels import Levels

NORMAL = ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
CROP = (v1.RandomResizedCrop(8),)
CROP2 = (v2.RandomResizedCrop(8), v2.ToImage())
CASES: dict[str, tuple[Any, list[str] | None]] = {
    "ToTensor": (v1.Compose([*CROP, v1.ToTensor()]), ["div"]),
    "ToTensor, Normalize": (v1.Compose([*CROP, v1.ToTensor(), v1.Normalize(*NORMAL)]), ["div", "sub", "div"]),
    "one mean for all": (v1.Compose([*CROP, v1.ToTensor(), v1.Normalize([0.5], [0.25])]), ["div", "sub", "div"]),
    "v2": (v2.Compose([*CROP2, v2.ToDtype(torch.float32, scale=True), v2.Normalize(*NORMAL)]), ["mul", "sub", "div"]),
    "unscaled": (v2.Compose([*CROP2, v2.ToDtype(torch.float32)]), []),
    "halves": (v2.Compose([*CROP2, v2.ToDtype(torch.float16, scale=True)]), None),
    "other arithmetic": (v1.Compose([*CROP, v1.PILToTensor(), v1.ConvertImageDtype(torch.float64)]), None),
}


def levels_of(transform: Any) -> tuple[Levels, Any]:
    images = Images(transform, "auto")
    assert images.levels is not None
    return images.levels, images._levels


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=["planes", "channels last"])
def test_batches_are_equal_bit_for_bit(name, layout):
    transform, steps = CASES[name]
    levels, table = levels_of(transform)
    assert (None if levels.steps is None else [step.name for step in levels.steps]) == steps
    bytes_ = torch.randint(0, 256, (4, 3, 16, 9), dtype=torch.uint8).contiguous(memory_format=layout)
    expected = np.stack([np.take(table[channel], bytes_[:, channel].numpy()) for channel in range(3)], axis=1)
    found = levels.applied(bytes_)
    assert found.numpy().tobytes() == expected.tobytes()
    assert str(found.dtype) == f"torch.{table.dtype}" and found.is_contiguous(memory_format=layout)


def test_a_formula_that_is_off_by_one_bit_is_not_taken():
    table = levels_of(CASES["ToTensor, Normalize"][0])[1].copy()
    own = [v1.ToTensor(), v1.Normalize(*NORMAL)]
    assert Levels.found(table, own, ()).steps is not None
    table[2, 100] = np.nextafter(table[2, 100], 1, dtype=np.float32)
    found = Levels.found(table, own, ())
    assert found.steps is None
    assert found.applied(torch.full((1, 3, 1, 1), 100, dtype=torch.uint8))[0, 2, 0, 0].item() == table[2, 100]


def test_it_travels_and_is_the_same_object_for_each_batch():
    levels, _ = levels_of(CASES["ToTensor, Normalize"][0])
    one, other = (pickle.loads(pickle.dumps(levels)) for _ in range(2))
    assert one == levels and one is other and one.names == ("ToTensor", "Normalize")
    bytes_ = torch.arange(3, dtype=torch.uint8).view(1, 3, 1, 1)
    assert torch.equal(one.applied(bytes_), levels.applied(bytes_))


def test_a_dataset_that_has_them_holds_no_tensors_of_a_device():
    levels, _ = levels_of(CASES["v2"][0])
    levels.applied(torch.zeros(1, 3, 2, 2, dtype=torch.uint8))
    assert not any(isinstance(value, torch.Tensor | list | dict) for value in vars(levels).values())
    for number in range(40):  # of transforms that change, not all are kept
        Levels(np.full((3, 256), number, dtype=np.float16), None, ()).applied(torch.zeros(1, 3, 2, 2, dtype=torch.uint8))
    assert module._constants.cache_info().currsize <= module._MOST_KEPT


def test_bytes_that_stay_bytes_have_none():
    assert Images(v1.Compose([*CROP, v1.PILToTensor()]), "auto").levels is None


def test_other_defaults_of_torch_change_nothing():
    expected = levels_of(CASES["v2"][0])[0]
    before = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float64)
        with torch.device("meta"):
            found = Levels.found(expected.table, CASES["v2"][0].transforms[1:], expected.names)
            assert found == expected and found.steps is not None
    finally:
        torch.set_default_dtype(before)
    bytes_ = torch.randint(0, 256, (2, 3, 4, 4), dtype=torch.uint8)
    assert torch.equal(found.applied(bytes_), expected.applied(bytes_))
