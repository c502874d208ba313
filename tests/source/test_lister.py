import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packing import tree

from fastfeed.source import wire
from fastfeed.source.lister import NOT_SNIFFED, UNREADABLE, ListOrder, Place, Segment, walk

ALL = 10**9


def listed(root, *places, hidden=False, most_names=ALL, seconds=60.0):
    order = ListOrder(str(root), hidden, most_names, places or (Place("", (0, 0), ()),))
    return walk(order, seconds)


def paths(places):
    return [place.path for place in places]


def test_a_walk_goes_depth_first_and_counts_the_files_of_each_folder(tmp_path):
    found = listed(tree(tmp_path, {"b/2.txt": "22", "b/1.txt": "1", "b/c/3.txt": "333", "a.txt": "", "z/9.txt": "9"}))
    assert found.folders == ["", "b", "b/c", "z"] and list(found.counts) == [1, 2, 1, 1]
    assert found.names == ["a.txt", "1.txt", "2.txt", "3.txt", "9.txt"]
    assert list(found.sizes) == [0, 1, 2, 3, 1] and set(found.codecs) == {NOT_SNIFFED}
    facts = os.stat(tmp_path / "b" / "1.txt")
    assert (found.devices[1], found.inodes[1], found.mtimes_ns[1]) == (facts.st_dev, facts.st_ino, facts.st_mtime_ns)
    assert not (found.linked or found.late or found.rest or found.left_out or found.unreadable)


def test_when_time_is_over_the_rest_is_given_back_in_order(tmp_path):
    tree(tmp_path, dict.fromkeys(["a/a/1.txt", "a/b/1.txt", "b/1.txt", "c/1.txt"], "x"))
    found = listed(tmp_path, seconds=0)
    assert found.folders == [""] and paths(found.rest) == ["a", "b", "c"]
    found = listed(tmp_path, *found.rest, seconds=0)
    assert found.folders == ["a"] and paths(found.rest) == ["a/a", "a/b", "b", "c"]
    assert listed(tmp_path, *found.rest).folders == ["a/a", "a/b", "b", "c"]


def test_a_large_folder_is_given_back_with_its_names_and_looked_up_in_parts(tmp_path):
    tree(tmp_path, dict.fromkeys(["a.txt", "l/1.txt", "l/2/x.txt", "l/.3", "l/4.txt", "z.txt", "z/y.txt"], "x"))
    found = listed(tmp_path, most_names=4)
    assert found.folders == ["", "l", "l/2", "z"] and not found.rest  # four names are not more than four
    found = listed(tmp_path, most_names=3)
    assert not found.folders and found.rest[0].names == ["a.txt", "l", "z", "z.txt"]
    large = listed(tmp_path, Place("l", (0, 1), ((0, 0),)), Place("z", (0, 2), ((0, 0),)), most_names=3)
    assert not large.folders and paths(large.rest) == ["l", "z"] and large.rest[1].names == ()
    assert large.rest[0].names == [".3", "1.txt", "2", "4.txt"]
    parts = [large.rest[0]._replace(names=large.rest[0].names[at : at + 2]) for at in (0, 2)]
    one, two = (listed(tmp_path, part, most_names=3) for part in parts)
    assert (one.folders, one.names, one.rest, [note[0] for note in one.left_out]) == (["l"], ["1.txt"], [], ["l/.3"])
    assert (two.folders, two.names, paths(two.rest)) == (["l"], ["4.txt"], ["l/2"])  # below it is not walked


def test_loops_are_found_by_the_folders_above(tmp_path):
    tree(tmp_path, {"a/b/c.txt": "x"})
    os.symlink(tmp_path / "a", tmp_path / "a" / "b" / "up")
    found = listed(tmp_path, seconds=0)
    found = listed(tmp_path, *found.rest, seconds=0)
    found = listed(tmp_path, *found.rest)
    assert found.left_out == [("a/b/up", "loop", "a link to a folder that contains it")] and found.linked


@pytest.mark.parametrize("link", ["/proc/self", "/proc", "/sys"])
def test_folders_of_the_kernel_are_not_entered(tmp_path, link):
    tree(tmp_path, {"a/b.txt": "x", "c/d.txt": "x"})
    os.symlink(link, tmp_path / "b")
    found = listed(tmp_path)
    ((path, kind, why),) = found.left_out
    assert (path, kind) == ("b", "kernel") and why.startswith("a folder, made up by the kernel (")
    assert found.names == ["b.txt", "d.txt"] and found.linked and not found.rest


def test_notes_stand_in_the_order_of_names(tmp_path):
    tree(tmp_path, {"a.txt": "x", "c.txt": "x", ".b": "x", ".d/e": "x", "plain": "x"})
    os.mkfifo(tmp_path / ".a.fifo")
    os.mkfifo(tmp_path / "+fifo")
    for name in ("b.txt", "z.txt", "~"):
        os.symlink("nowhere", tmp_path / name)
    found = listed(tmp_path)
    assert [(path, kind) for path, kind, _ in found.left_out] == [
        ("+fifo", "special"), (".a.fifo", "hidden"), (".b", "hidden"), (".d", "hidden")
    ]  # fmt: skip
    assert [note[2].startswith("a folder, ") for note in found.left_out] == [False, False, False, True]
    assert found.unreadable == [(name, "unreadable", "a link that leads nowhere") for name in ("b.txt", "z.txt", "~")]
    assert found.names == ["a.txt", "b.txt", "c.txt", "plain", "z.txt", "~"]
    assert list(found.codecs) == [NOT_SNIFFED, UNREADABLE, NOT_SNIFFED, 0, UNREADABLE, UNREADABLE]
    assert [inode > 0 for inode in found.inodes] == [True, False, True, True, False, False]


def test_a_folder_that_has_gone_is_unreadable_and_the_others_are_listed(tmp_path):
    tree(tmp_path, {"b/1.txt": "x"})
    found = listed(tmp_path, *(Place(name, (0, at), ()) for at, name in enumerate(["a", "b"])))
    assert found.unreadable == [("a", "unreadable", "No such file or directory")]
    assert found.folders == ["a", "b"] and list(found.counts) == [0, 1]
    assert listed(tmp_path / "gone").unreadable == [(".", "unreadable", "No such file or directory")]


def test_files_that_vanish_between_listing_and_looking_up_are_unreadable(tmp_path):
    tree(tmp_path, {"1.txt": "x", "3.txt": "x"})
    found = listed(tmp_path, Place("", (0, 0), (), ["1.txt", "2.txt", "3.txt"]))
    assert found.unreadable == [("2.txt", "unreadable", "No such file or directory")]
    assert (found.names, list(found.sizes)) == (["1.txt", "2.txt", "3.txt"], [1, 0, 1])


names = st.binary(min_size=1, max_size=6).filter(lambda raw: not set(raw) & {0, 0x2F}).map(os.fsdecode)
inodes = st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
places = st.lists(st.builds(Place, names, inodes, st.lists(inodes, max_size=2).map(tuple), st.just(())), max_size=4)
some = st.lists(names, max_size=3)
notes = st.lists(st.tuples(names, st.sampled_from(["hidden", "special"]), st.just("why")), max_size=3)


def through_the_pipe(encoded):
    [message] = wire.Unread().feed(encoded)
    return message


@settings(deadline=None)
@given(st.data())
def test_segments_pass_the_pipe_whole(data):
    found = Segment()
    found.folders, found.names, found.linked = data.draw(some), data.draw(some), data.draw(st.booleans())
    found.left_out, found.unreadable, found.late = data.draw(notes), data.draw(notes), data.draw(st.none() | names)
    for column in (found.counts, found.sizes, found.devices, found.inodes):
        column.extend(data.draw(st.lists(st.integers(0, 2**64 - 1), max_size=3)))
    found.mtimes_ns.extend(data.draw(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=3)))
    found.codecs.extend(data.draw(st.lists(st.integers(0, 255), max_size=3)))
    found.rest = data.draw(places)
    if found.rest:
        found.rest[0] = found.rest[0]._replace(names=data.draw(st.just(()) | st.lists(names, min_size=1, max_size=3)))
    assert vars(Segment.decode(through_the_pipe(found.encode()))) == vars(found)


@settings(deadline=None)
@given(names, st.booleans(), st.integers(1, 9), places.filter(bool))
def test_orders_pass_the_pipe_whole(root, hidden, most_names, places):
    order = ListOrder(root, hidden, most_names, places)
    assert ListOrder.decode(through_the_pipe(order.encode())) == order


@pytest.mark.parametrize("ns", [-(1 << 63), (1 << 63) - 1])
def test_the_ends_of_time_are_listed(tmp_path, ns):
    path = tree(tmp_path, {"1.txt": "x"}) / "1.txt"
    os.utime(path, ns=(0, ns))
    assert list(listed(tmp_path).mtimes_ns) == [os.stat(path).st_mtime_ns]  # what a file system keeps of it
