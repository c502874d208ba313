"""Plain files in columns: what a packed dataset of the same folder would say, mapped by all processes, left behind by none."""

import gc
import os
import subprocess
import sys
import tempfile
from array import array
from pathlib import Path

import pytest
from helpers import ROOT, encoded, make_captioned, make_photos, packed, photo
from hypothesis import given, settings
from hypothesis import strategies as st
from packing import tree

from fastfeed.archive.dataset import Archive
from fastfeed.archive.usercolumn import UserColumn
from fastfeed.config import PackConfig
from fastfeed.errors import DestinationError, IndexDamaged, SourceUnreadable
from fastfeed.source.layout import Draft, read_layout
from fastfeed.source.plain import PlainFiles, write_index
from fastfeed.source.scan import Listing, scan


def plain(source: Path, **options: object) -> PlainFiles:
    listing = scan(str(source))
    return write_index(str(source), listing, read_layout(listing, PackConfig(**options))[0])  # type: ignore[arg-type]


def facts(catalog: PlainFiles | Archive, position: int) -> tuple[object, ...]:
    """What a sample says of itself, but for the class member that pack makes."""
    places = [place for place in catalog.places(position) if place.field != "cls"]
    sources = [catalog.source_of(position, place) for place in places]
    sizes = [place.stop - place.start for place in places]
    return catalog.key(position), catalog.source(position), [place.field for place in places], sources, sizes


NAMES = st.lists(
    st.tuples(
        st.sampled_from(["cat", "dog", "b c", "\u00e9"]),
        st.text(st.sampled_from("ab1.\u00e9 _"), min_size=1, max_size=6),
        st.sampled_from([".jpg", ".PNG", ".txt", ".mask.png", ""]),
    ), min_size=1, max_size=8, unique=True,
)  # fmt: skip


@pytest.mark.long
@settings(max_examples=40, deadline=None)
@given(NAMES, st.sampled_from(["classes", "files"]))
def test_samples_and_names_are_those_of_the_packed_folder(
    tmp_path_factory: pytest.TempPathFactory, names: list[tuple[str, str, str]], layout: str
):
    folder = tmp_path_factory.mktemp("same")
    files = {f"{name}/{stem.strip('.') or 'x'}{end}": encoded(photo(at)) for at, (name, stem, end) in enumerate(names)}
    source = tree(folder / "src", files)
    packed(source, folder / "packed", layout=layout)
    ours, theirs = plain(source, layout=layout), Archive(str(folder / "packed"))
    assert len(ours) == len(theirs)
    assert ours.classes == theirs.classes
    assert [facts(ours, at) for at in range(len(ours))] == [facts(theirs, at) for at in range(len(theirs))]
    if theirs.classes is not None:
        assert [ours.label(at) for at in range(len(ours))] == [theirs.label(at) for at in range(len(theirs))]
        assert ours.as_imagefolder == (theirs.manifest.order == "imagefolder")


def test_how_it_was_read_and_what_was_left_out(tmp_path: Path):
    source = make_photos(tmp_path / "src")
    (source / ".hidden.jpg").write_bytes(b"")
    (source / "README").write_bytes(b"")
    ours = plain(source)
    assert "one class per folder: 2 classes" in ours.why
    assert "left out: 1 beside, 1 hidden" in ours.why
    assert ours.parts() == "6 files"


def test_the_digest_changes_with_the_files(tmp_path: Path):
    source = make_captioned(tmp_path / "src")
    first = plain(source).digest
    assert plain(source).digest == first
    os.utime(source / "000.jpg", ns=(5, 5))
    second = plain(source).digest
    (source / "004.txt").write_bytes(b"")
    assert len({first, second, plain(source).digest}) == 3


# ------------------------------------------------------------------------------------------------ where the columns are
def test_other_processes_map_them_and_nothing_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    ours = plain(make_captioned(tmp_path / "src"))
    path = ours.index.path
    assert path.startswith(f"/proc/{os.getpid()}/fd/")
    assert os.listdir(tmp_path / "temporary") == []
    code = "import sys\nfrom fastfeed.source.plain import PlainFiles\nprint(PlainFiles(*sys.argv[1:]).key(3))"
    done = subprocess.run([sys.executable, "-c", code, ours.root, path], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "003\n"
    again = PlainFiles(ours.root, path)
    assert (again.digest, again.fields, again.why) == (ours.digest, ours.fields, ours.why)
    descriptor = int(path.rpartition("/")[2])
    del ours
    gc.collect()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
    assert again.key(2) == "002", "what is mapped stays mapped"
    with pytest.raises(IndexDamaged, match="the index cannot be opened"):
        PlainFiles(again.root, path)


@pytest.mark.long
def test_a_process_that_is_killed_leaves_nothing(tmp_path: Path):
    make_captioned(tmp_path / "src")
    code = (
        "import os, signal, sys, tempfile\n"
        "from fastfeed.feed.opening import FolderRecipe\n"
        "files = FolderRecipe(sys.argv[1]).files()\n"
        "print(tempfile.gettempdir(), flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    (tmp_path / "t").mkdir()
    environment = {**os.environ, "TMPDIR": str(tmp_path / "t")}
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "src")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert (done.returncode, done.stdout.strip()) == (-9, str(tmp_path / "t"))
    assert os.listdir(tmp_path / "t") == []


def test_no_place_for_temporary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    source = make_captioned(tmp_path / "src")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    with pytest.raises(DestinationError, match=r"temporary files: No such file or directory"):
        plain(source)


def test_memory_does_not_grow_with_the_files(tmp_path: Path):
    """No Python object a file: a hundred thousand of them are a few kilobytes of the process, and a mapped file."""
    listing, count = Listing(), 100_000
    listing.folders = [""]
    listing.names = [f"{number:08d}.jpg" for number in range(count)]
    listing.sizes, listing.mtimes_ns = array("Q", [7]) * count, array("q", [1]) * count
    listing.codecs, listing.folder_starts = array("B", [255]) * count, array("Q", [0, count])
    files = write_index(str(tmp_path), listing, read_layout(listing, PackConfig())[0])
    del listing
    gc.collect()
    mine = [item for item in gc.get_objects() if type(item) in {list, dict, tuple} and len(item) >= count]
    assert not mine
    assert files.key(count - 1) == "00099999"


# ------------------------------------------------------------------------------------------------ odds
def test_columns_of_the_user(tmp_path: Path):
    source = make_captioned(tmp_path / "src")
    listing = scan(str(source))
    user = [UserColumn("score", "float64", array("d", [0.5, 1, 2, 3])), UserColumn("caption", "text", ["a", "b", "", "\u00e9"])]
    files = write_index(str(source), listing, read_layout(listing, PackConfig())[0], user=user)
    assert files.index.user == {"score": "float64", "caption": "text"}
    assert list(files.index.user_column("caption")) == ["a", "b", "", "\u00e9"]


def test_unreadable_files_must_be_skipped(tmp_path: Path):
    source = make_captioned(tmp_path / "src")
    (source / "001.txt").unlink()
    (source / "001.txt").symlink_to("nowhere")
    files = plain(source)
    assert [(item.source, item.why) for item in files.unreadable()] == [("001.txt", "a link that leads nowhere")]
    files.refuse_unreadable({0, 2, 3})
    for kept in ({0, 1, 2, 3}, {1}):
        with pytest.raises(SourceUnreadable, match=r"1 file cannot be read \(001\.txt: a link that leads nowhere\).*skip="):
            files.refuse_unreadable(kept)


def test_no_sample(tmp_path: Path):
    with pytest.raises(SourceUnreadable, match="there is no sample in this folder"):
        write_index(str(tmp_path), Listing(), Draft("", "files", None, as_imagefolder=False))
