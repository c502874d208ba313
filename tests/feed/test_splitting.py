"""feed/splitting.py: others' datasets give what they give, in parts."""

from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import encoded, make_photos, photo
from loading import Calls, Numbers, Together
from PIL import Image
from torch.utils.data import Subset
from torchvision.datasets import DatasetFolder, ImageFolder
from torchvision.datasets.folder import pil_loader
from torchvision.transforms import v2

from fastfeed.feed.splitting import behind_views, fetch_of, folder_of, makes_samples_singly, path_of, wanted_of


class Stages:
    def __init__(self):
        self.heard: list[str] = []

    @contextmanager
    def span(self, stage, position):
        self.heard.append(stage)
        yield


@pytest.fixture(scope="module")
def odd(tmp_path_factory):
    """Images of many kinds, as ImageFolder accepts them."""
    source = make_photos(tmp_path_factory.mktemp("odd") / "src", ("a", "b"))
    exif = Image.Exif()
    exif[274] = 6
    files = {
        "a/exif.jpg": encoded(photo(1, (40, 20)), exif=exif, dpi=(72, 96), comment=b"a remark"),
        "a/cmyk.jpg": encoded(photo(3, mode="CMYK"), progressive=True),
        "a/palette.png": encoded(photo(4, mode="P"), "PNG", transparency=3),
        "b/alpha.png": encoded(photo(5, mode="RGBA"), "PNG"),
        "b/one.bmp": encoded(photo(6, mode="1"), "BMP"),
        "b/two.webp": encoded(photo(7), "WEBP"),
        "b/three.tif": encoded(photo(8), "TIFF"),
        "b/packed.tif": encoded(photo(8), "TIFF", compression="tiff_lzw"),
        "b/sixteen.png": encoded(Image.fromarray(np.arange(192, dtype=np.uint16).reshape(12, 16)), "PNG"),
    }
    for name, raw in files.items():
        (source / name).write_bytes(raw)
    return source


def facts(sample):
    image, target = sample
    attributes = {name for name in dir(image) if not name.startswith("_")}
    return type(image), image.mode, image.size, image.tobytes(), image.info, attributes, target


@pytest.mark.parametrize("loader", [None, pil_loader], ids=["default", "pil"])
def test_an_image_folder_gives_its_own_samples_in_parts(odd, loader):
    dataset = ImageFolder(str(odd)) if loader is None else ImageFolder(str(odd), loader=loader)
    stages = Stages()
    fetch = fetch_of(dataset, stages)
    for index in range(len(dataset)):
        assert facts(fetch(index)) == facts(dataset[index])
    assert set(stages.heard) == {"read", "decode", "transform"}
    assert stages.heard.count("decode") == stages.heard.count("transform") == len(dataset)
    assert stages.heard.count("read") >= 2 * len(dataset)  # opening, and each time that bytes are fetched


def test_transforms_draw_the_same_random_numbers(odd):
    dataset = ImageFolder(
        str(odd), transform=v2.Compose([v2.PILToTensor(), v2.RandomCrop(8)]), target_transform=lambda target: target + 10
    )
    torch.manual_seed(3)
    theirs = [dataset[index] for index in range(len(dataset))]
    torch.manual_seed(3)
    fetch = fetch_of(dataset, Stages())
    ours = [fetch(index) for index in range(len(dataset))]
    assert all(torch.equal(one[0], other[0]) and one[1] == other[1] for one, other in zip(theirs, ours, strict=True))


def test_errors_are_the_same(odd, tmp_path):
    source = make_photos(tmp_path / "src", ("a",))
    (source / "a" / "bad.jpg").write_bytes(b"no image")
    (source / "a" / "cut.jpg").write_bytes((source / "a" / "000.jpg").read_bytes()[:300])
    (source / "a" / "gone.jpg").write_bytes(b"")
    dataset = ImageFolder(str(source))
    (source / "a" / "gone.jpg").unlink()
    fetch, failures = fetch_of(dataset, Stages()), 0
    for index, (path, _) in enumerate(dataset.samples):
        if Path(path).stem in {"bad", "cut", "gone"}:
            theirs, ours = failure_of(dataset.__getitem__, index), failure_of(fetch, index)
            assert (type(theirs), str(theirs)) == (type(ours), str(ours))
            failures += 1
    assert failures == 3


def failure_of(fetch, index):
    try:
        fetch(index)
    except OSError as error:
        return error
    raise AssertionError(index)


def test_a_loader_of_the_users_is_one_stage(odd):
    stages = Stages()
    dataset = DatasetFolder(str(odd), loader=lambda path: Path(path).read_bytes(), extensions=(".jpg",))
    assert fetch_of(dataset, stages)(0) == dataset[0]
    assert stages.heard == ["load", "transform"]


def test_a_getitem_of_the_users_is_not_taken_apart(odd):
    class Own(ImageFolder):
        def __getitem__(self, index):
            return super().__getitem__(index)[1]

    stages = Stages()
    assert fetch_of(Own(str(odd)), stages)(0) == 0
    assert stages.heard == []


def test_subsets_of_a_folder(odd):
    dataset, stages = ImageFolder(str(odd)), Stages()
    view = Subset(Subset(dataset, [4, 2, 0]), [1, 2])
    assert facts(fetch_of(view, stages)(0)) == facts(view[0]) == facts(dataset[2])
    assert "decode" in stages.heard
    assert behind_views(view, 0) == (dataset, 2)
    assert path_of(view, 0) == dataset.samples[2][0]
    assert path_of(Subset(Numbers(), [1]), 0) is None
    with pytest.raises(TypeError, match="list indices"):
        fetch_of(view, stages)([0, 1])


def test_what_subsets_want_of_a_dataset():
    numbers = Numbers(20)
    assert wanted_of(numbers, numbers) == range(20)
    assert wanted_of(numbers, Subset(Subset(numbers, [9, 5, -1, 5]), torch.tensor([3, 2, 0, 1])))  # type: ignore[arg-type]  # it takes them == [5, 9, 19]
    assert wanted_of(numbers, Subset(numbers, [])) == []


def test_which_getitems_asks_for_one_after_another(odd):
    assert makes_samples_singly(Subset(ImageFolder(str(odd)), [0]))
    assert makes_samples_singly(Subset(Subset(Numbers(), [0, 1]), [0]))
    assert not makes_samples_singly(Subset(Together(), [0]))
    assert not makes_samples_singly(Together())


def test_other_datasets_are_asked_as_ever():
    dataset = Calls(lambda index: index + 5)
    assert fetch_of(dataset, Stages())(1) == 6
    assert fetch_of(Subset(dataset, [1]), Stages())(0) == 6


def test_the_folder_of_a_dataset_is_known_where_it_makes_a_class_of_each_folder_in_it(odd):
    folder = ImageFolder(str(odd))
    assert folder_of(folder) == folder_of(Subset(folder, [1])) == str(odd)
    assert folder_of([1, 2]) is None
