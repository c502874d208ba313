"""A scan that is shared with others, or cut in parts, lists what one that is not does."""

import os
import tempfile
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packing import Hook, tree

from fastfeed.errors import SourceUnreadable
from fastfeed.packer.crew import Crew
from fastfeed.source import wire
from fastfeed.source.lister import UNREADABLE, ListOrder, Segment, walk
from fastfeed.source.scan import LeftOut, scan


# ------------------------------------------------------------------------------------------------ shared with others
def hostile(folder):
    """All that a walk may meet, and one flat folder that is cut in parts."""
    flat = {f"flat/{at:03d}{'.txt' * (at % 3 > 0)}": "x" * at for at in range(40)}
    deep = {f"deep/{'d/' * at}{name}.jpg": "x" for at in range(5) for name in "ab"}
    tree(folder, {**flat, **deep, "top.txt": "x", ".hidden/a.txt": "x", "flat/.DS_Store": "x", "__MACOSX/a.txt": "x"})
    for raw in (b"\xff\xfe.txt", b"a\nb.txt", b"a\tb", b"flat/\xc3\xa9.txt", b"flat/\xff", b"\xfe/\xff/x.txt", b"n\nn/x.txt"):
        tree(folder, {os.fsdecode(raw): "x"})
    for name in ("empty", "flat/010-folder/in", "flat/000-folder", "flat/039-last", "deep/empty"):
        (folder / name).mkdir(parents=True)
    tree(folder, {"flat/010-folder/in/1.txt": "x", "flat/000-folder/1.txt": "x"})
    for at, target in enumerate(["nowhere", "top.txt", "deep/d", ".", "flat", "/dev/zero", "link-0"]):
        os.symlink(target, folder / f"link-{at}")
    for name in ("deep/d/up", "flat/011-up", "deep/itself"):
        os.symlink(folder / name.partition("/")[0], folder / name)
    os.symlink("../top.txt", folder / "flat" / "012-link.txt")
    os.symlink("gone", folder / "flat" / "034-dangling.txt")
    os.link(folder / "top.txt", folder / "flat" / "035-hard.txt")
    for name in ("pipe", "flat/013-pipe.txt"):
        os.mkfifo(folder / name)
    return folder


def wait_a_little(walk):
    """In place of listing here while workers start."""
    time.sleep(0.001)
    return bool(walk._ahead)


@pytest.mark.parametrize("helps", [True, False], ids=["helping", "waiting"])
@pytest.mark.parametrize("workers", [1, 2, 5])
@pytest.mark.parametrize("hidden", [False, True])
def test_the_listing_is_the_same_for_any_number_of_workers(tmp_path, monkeypatch, workers, hidden, helps):
    source = hostile(tmp_path / "s")
    alone = scan(str(source), hidden=hidden)
    assert len(alone.left_out) > 7 and len(alone.unreadable) > 1 and len(alone.repeated) > 9 and UNREADABLE in alone.codecs
    monkeypatch.setattr("fastfeed.source.scan._ALONE_SECONDS", -1)
    monkeypatch.setattr("fastfeed.source.scan._MOST_NAMES", 7)
    if not helps:
        monkeypatch.setattr("fastfeed.source.scan._Walk._list_here", wait_a_little)
    hook = Hook()
    with Crew(workers) as crew:
        shared = scan(str(source), hook, hidden=hidden, hands=crew)
    assert vars(shared) == vars(alone) and shared.digest() == alone.digest()
    assert hook.items["scan"] == len(alone)


class AnyOrder:
    """Hands that have several parts each and are done with them in any order."""

    def __init__(self, draw, seconds):
        self.count, self._draw, self._seconds = 3, draw, seconds

    def share(self, following, hear, meanwhile):
        held: list[wire.Task] = []
        while True:
            while len(held) < self._draw(st.integers(1, 9)) and (part := following()) is not None:
                held.append(part)
            if not held and not meanwhile():
                return
            if held:
                part = held.pop(self._draw(st.integers(0, len(held) - 1)))
                [order] = wire.Unread().feed(part.encode())
                [message] = wire.Unread().feed(walk(ListOrder.decode(order), self._seconds).encode())
                hear(part, message)


inside = st.sampled_from(["a", "b", ".c", "d.txt", "e.jpg", "é", "\udcff"])
trees = st.recursive(
    st.sampled_from(["file", "pipe", "up", "top", "away", "gone"]),
    lambda children: st.dictionaries(inside, children),
    max_leaves=12,
)


def make(folder, top, contents):
    os.makedirs(folder, exist_ok=True)
    for name, content in contents.items():
        path = os.path.join(folder, name)
        match content:
            case dict():
                make(path, top, content)
            case "file":
                tree(folder, {name: "x"})
            case "pipe":
                os.mkfifo(path)
            case _:
                os.symlink({"up": "..", "top": top, "away": f"{top}/a", "gone": "nowhere"}[content], path)


@pytest.mark.long
@settings(deadline=None, max_examples=200)
@given(st.dictionaries(inside, trees, min_size=1), st.booleans(), st.sampled_from([0.0, 60.0]), st.integers(1, 3), st.data())
def test_parts_may_come_in_any_order(contents, hidden, seconds, most_names, data):
    with tempfile.TemporaryDirectory() as home, pytest.MonkeyPatch.context() as patch:
        folder = os.path.join(home, "s")
        make(folder, folder, contents)
        alone = scan(folder, hidden=hidden)
        patch.setattr("fastfeed.source.scan._ALONE_SECONDS", -1)
        patch.setattr("fastfeed.source.scan._MOST_NAMES", most_names)
        shared = scan(folder, hidden=hidden, hands=AnyOrder(data.draw, seconds))
    assert vars(shared) == vars(alone) and shared.digest() == alone.digest()


def test_a_large_folder_that_vanishes_between_its_parts_is_named_once(tmp_path, monkeypatch):
    source = tree(tmp_path / "s", dict.fromkeys(["a.txt", *(f"l/{at:02d}.txt" for at in range(9))], "x"))
    monkeypatch.setattr("fastfeed.source.scan._MOST_NAMES", 2)
    monkeypatch.setattr("fastfeed.source.scan._SLICE_SECONDS", 0)

    def move(stage):
        if hook.items["scan"] == 3 and (source / "l").exists():
            (source / "l").rename(tmp_path / "away")

    hook = Hook(on_advance=move)
    found = scan(str(source), hook)
    assert found.unreadable == [LeftOut("l", "unreadable", "No such file or directory")]
    assert found.paths == ["a.txt", "l/00.txt", "l/01.txt"] and found.folders == ["", "l"]


def test_a_scan_that_is_soon_done_needs_no_hands(tmp_path):
    with Crew(2) as crew:
        assert len(scan(str(tree(tmp_path, {"a/1.txt": "x", "b/2.txt": "x"})), hands=crew)) == 2
        assert not crew._workers


def test_a_time_beyond_all_clocks_is_the_first_of_the_walk_whoever_finds_it(tmp_path, monkeypatch):
    source = tree(tmp_path, {f"{at}/1.txt": "x" for at in range(9)})

    class Late(Segment):
        @classmethod
        def decode(cls, message):
            found = super().decode(message)
            late = [folder for folder in found.folders if folder in {"3", "7"}]
            found.late = f"{late[0]}/1.txt" if late else None
            return found

    monkeypatch.setattr("fastfeed.source.scan._ALONE_SECONDS", -1)
    monkeypatch.setattr("fastfeed.source.scan._Walk._list_here", wait_a_little)
    monkeypatch.setattr("fastfeed.source.scan.Segment", Late)
    with Crew(3) as crew, pytest.raises(SourceUnreadable, match=r"beyond the year 2262 .*3/1\.txt"):
        scan(str(source), hands=crew)
