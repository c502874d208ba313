"""What all sets of samples have in common: three classes keep one protocol."""

from pathlib import Path

from helpers import make_captioned, packed
from tarring import write_tar

from fastfeed.archive.catalog import UNREAD, Catalog, source_of_sample
from fastfeed.archive.dataset import Archive
from fastfeed.archive.tars import TarSet
from fastfeed.config import PackConfig
from fastfeed.errors import DecodeError
from fastfeed.source.layout import read_layout
from fastfeed.source.plain import write_index
from fastfeed.source.scan import scan
from fastfeed.source.tarindex import index_tars


def catalogs(folder: Path) -> dict[str, Catalog]:
    """The same four samples packed, in a tar, and as they lie."""
    source = make_captioned(folder / "src")
    packed(source, folder / "packed")
    listed = [(path.name, path.read_bytes()) for path in sorted(source.iterdir())]
    result = index_tars(write_tar(folder / "tars" / "a.tar", listed))
    listing = scan(str(source))
    plain = write_index(str(source), listing, read_layout(listing, PackConfig())[0])
    return {"packed": Archive(str(folder / "packed")), "tars": TarSet(result.path, result.base), "plain": plain}


def test_they_give_the_same(tmp_path: Path):
    for name, catalog in catalogs(tmp_path).items():
        assert len(catalog) == 4
        assert (catalog.fields, catalog.classes) == (("jpg", "txt"), None)
        assert [catalog.key(position) for position in range(4)] == ["000", "001", "002", "003"]
        assert [place.field for place in catalog.places(2)] == ["jpg", "txt"]
        assert all((place.xxh3 == UNREAD) == (name != "packed") for place in catalog.places(2))
        assert (catalog.source(2) or b"").removeprefix(b"a.tar/") == b"002.jpg"
        assert catalog.source(2) == source_of_sample(catalog, 2)
        assert all(catalog.jpeg_rows(2, place) is None for place in catalog.places(2))
        place = list(catalog.places(2))[1]
        error = catalog.at(DecodeError("x"), 2, place)
        assert (error.sample, error.key, error.start, error.stop) == (2, "002", place.start, place.stop)
        assert (error.source or "").removeprefix("a.tar/") == "002.txt"
        assert [position for position, _ in catalog.members_with({catalog.source_of(2, place), b"none"})] == [2]
        assert len(catalog.digest) == 64
        assert catalog.parts().split()[0].isdigit()
        catalog.prove()
