from typing import Any

import numpy as np
import torch
from loading import Numbers
from torch.utils.data import Subset
from torchvision.datasets import ImageFolder

from fastfeed.feed.naming import indices_text, plain_index, sample_id, sample_name
from fastfeed.sample import SampleId


class Known(Numbers):
    """Knows what its samples are called."""

    def identity(self, index: int) -> SampleId:
        return SampleId(position=index, key=f"k{index}", source=f"a/{index}.jpg".encode())


def test_indices_pass_any_pipe():
    assert [plain_index(index) for index in (3, np.int64(3), torch.tensor(3), "a", b"a")] == [3, 3, 3, "a", b"a"]
    assert plain_index(torch.tensor([1, 2])) == "tensor([1, 2])"
    assert type(plain_index(np.uint8(3))) is int


def test_samples_are_named_through_subsets():
    twice: Subset[Any] = Subset(Subset(Known(), [5, 6, 7]), [2, 0])
    assert sample_id(twice, 0) == SampleId(position=7, key="k7", source=b"a/7.jpg")
    assert sample_name(twice, 1) == "sample 1 (key 'k5', source 'a/5.jpg')"
    assert sample_name(Numbers(), 4) == "sample 4"


def test_files_of_torchvisions_folders_are_named(tmp_path):
    (tmp_path / "cat").mkdir()
    (tmp_path / "cat" / "1.jpg").write_bytes(b"broken")
    folder = ImageFolder(str(tmp_path))
    expected = f"sample 0 (path '{tmp_path}/cat/1.jpg')"
    assert sample_name(folder, 0) == sample_name(Subset(folder, [0]), 0) == expected
    assert sample_name(folder, 9) == "sample 9"


def test_an_attribute_of_that_name_may_be_anything():
    other = Numbers()
    other.identity = lambda index: 1 / 0
    assert sample_id(other, 0) is None
    other.identity = lambda index: "me"
    assert sample_id(other, 0) is None


def test_few_indices_are_shown():
    assert indices_text(range(20)) == "[0, 1, 2, 3, 4, 5, 6, 7, ...]"
    assert indices_text(torch.arange(8)) == "[0, 1, 2, 3, 4, 5, 6, 7]"
    assert indices_text(torch.tensor(5)) == "5"
    assert indices_text("name") == "name"
    assert indices_text([]) == "[]"
