"""auditor/naming.py: names and sizes of a loader's samples."""

import numpy as np
from helpers import encoded, make_captioned, make_photos, pack_photos, packed, photo
from packing import tree
from torch.utils.data import Dataset, Subset
from torchvision.datasets import ImageFolder

import fastfeed
from fastfeed.auditor.naming import Naming
from fastfeed.auditor.record import SampleRecord


class Anything(Dataset[int]):
    """Nothing is known of its samples."""


def test_samples_of_a_packed_dataset(tmp_path):
    ds = fastfeed.open(pack_photos(tmp_path))
    expected = SampleRecord(
        1, key="cat/001", path="cat/001.jpg", size_bytes=int(ds.column("size")[1]), format="JPEG", width=16, height=12
    )
    found = Naming(ds).record(1)
    expected.key = found.key
    assert found == expected and found.key is not None
    assert Naming(Subset(ds, [5, 1])).record(np.int64(1)).path == "cat/001.jpg"


def test_samples_of_several_files(tmp_path):
    """The size is that of the image, where there is one; of two images nobody knows which."""
    source = make_captioned(tmp_path / "s")
    packed(source, tmp_path / "p")
    found = Naming(fastfeed.open(tmp_path / "p")).record(2)
    assert (found.key, found.size_bytes, found.format) == ("002", (source / "002.jpg").stat().st_size, "JPEG")
    two = tree(tmp_path / "two", {"a.jpg": encoded(photo()), "a.mask.png": encoded(photo(), "PNG")})
    packed(two, tmp_path / "q")
    found = Naming(fastfeed.open(tmp_path / "q")).record(0)
    assert (found.key, found.size_bytes, found.format) == ("a", None, None)


def test_texts_have_no_sides_and_no_format(tmp_path):
    packed(tree(tmp_path / "s", {"a.txt": "words"}), tmp_path / "p")
    assert Naming(fastfeed.open(tmp_path / "p")).record(0) == SampleRecord(0, key="a", path="a.txt", size_bytes=5)


def test_samples_of_torchvisions_folder(tmp_path):
    source = make_photos(tmp_path / "s")
    folder = ImageFolder(str(source))
    naming = Naming(folder)
    found = naming.record(3)
    assert found == SampleRecord(3, path="dog/000.jpg", size_bytes=(source / "dog" / "000.jpg").stat().st_size)
    (source / "dog" / "001.jpg").unlink()
    assert naming.record(4).size_bytes is None
    assert naming.record(99) == SampleRecord(99)


def test_of_any_other_dataset_the_index_is_known():
    assert Naming(Anything()).record(4) == SampleRecord(4)
    assert Naming(Anything()).record("name") == SampleRecord(-1, key="name")
