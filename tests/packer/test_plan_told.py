"""make_plan: what it tells of a source besides what it will do."""

import os

import pytest
from packing import listing_of, planned, tree

from fastfeed.source.lister import NOT_SNIFFED
from fastfeed.source.scan import Listing, scan


def small(count: int, size: int) -> Listing:
    return listing_of({f"{at:06d}.txt": size for at in range(count)})


OFFER = "; --compress zstd takes most of that away, but fewer programs read it"


def test_the_cost_of_small_files_is_told():
    [note] = planned(small(22_000, 512)).notes
    assert note == f"data: its files are small: tar headers and padding add 10.8 MiB, 100% of the source{OFFER}"
    assert planned(small(22_000, 512), compress="zstd").notes == ()
    [note] = planned(small(22_000, 0)).notes
    assert note == f"data: its files are small: tar headers and padding add 10.8 MiB{OFFER}"  # no share of nothing


@pytest.mark.parametrize(("count", "size"), [(10, 10), (20_000, 512), (22_000, 10_240)])
def test_a_cost_that_is_small_itself_is_not_told(count, size):
    """Less than 10 MiB in all, or less than a tenth of the source."""
    assert planned(small(count, size)).notes == ()


def test_the_cost_of_class_members_is_told():
    listing = Listing()
    for folder in ("", "cat", "dog"):
        listing.folders.append(folder)
        for at in range(8_000 if folder else 0):
            listing.names.append(f"{at:06d}.jpg")
            listing.sizes.append(512)
            listing.mtimes_ns.append(7)
            listing.codecs.append(NOT_SNIFFED)
        listing.folder_starts.append(len(listing.names))
    text = "data: its files are small: tar headers and padding add 23.4 MiB, 300% of the source"
    assert planned(listing).notes == (f"{text}; 15.6 MiB of it are the .cls members (--no-cls leaves them out){OFFER}",)
    assert planned(listing, write_cls=False).notes == ()


def test_a_single_class_is_told(tmp_path):
    listing = scan(str(tree(tmp_path, {"photos/cat/1.jpg": "x", "photos/dog/1.jpg": "x"})))
    assert planned(listing).notes == ("data: there is only one class (photos): is the source one folder too high?",)
    assert planned(listing, layout="files").notes == ()


def test_splits_without_classes_beside_some_with_are_told(tmp_path):
    names = ["train/a/1.txt", "train/b/1.txt", "test/1.txt", "val/1.txt"]
    listing = scan(str(tree(tmp_path, dict.fromkeys(names, "x"))))
    assert planned(listing).notes == ("test, val: no classes, though other splits have them",)
    assert [dataset.classes for dataset in planned(listing).datasets] == [None, ("a", "b"), None]


def test_links_are_told(tmp_path):
    tree(tmp_path, {"a.txt": "x" * 9000})
    os.symlink("a.txt", tmp_path / "b.txt")
    assert planned(scan(str(tmp_path))).notes == (
        "1 file met again under another name (a link), packed under each (b.txt: the same file as a.txt)",
    )
