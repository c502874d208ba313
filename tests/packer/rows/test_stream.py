import gc
import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import webdataset
from helpers import ROOT, files_below, make_photos, packed
from packing import Hook, Interrupt, interrupt_after, left_out_of, manifest_of, tree, with_mounts
from rowsets import fields_of, labels_of, photos, proven

import fastfeed
from fastfeed.archive.dataset import Archive
from fastfeed.errors import DestinationOccupied, SourceChanged, SourceUnreadable, UsageError
from fastfeed.sample import SkipEntry, SkipList


def samples(count=20, size=3000):
    """Text, class, a number, a name each; the same at each call."""
    chance = np.random.default_rng(0)
    for at in range(count):
        yield {"__key__": f"c{at % 3}/{at:03d}", "bin": chance.bytes(size), "txt": f"text {at}", "cls": at % 3, "n": at / 2}


def test_shards_are_closed_when_they_are_full(tmp_path):
    result = packed(samples(), tmp_path / "out", samples_per_shard=6)
    found = proven(tmp_path / "out")
    assert [shard["samples"] for shard in manifest_of(tmp_path / "out")["shards"]] == [6, 6, 6, 2]
    assert [s.key for s in found] == [f"c{at % 3}/{at:03d}" for at in range(20)]
    expected = [{"bin": s["bin"], "txt": s["txt"].encode(), "json": b'{"n": %s}' % str(s["n"]).encode()} for s in samples()]
    assert fields_of(tmp_path / "out") == expected
    assert labels_of(tmp_path / "out") == [str(at % 3) for at in range(20)]
    assert list(Archive(str(tmp_path / "out")).index.user_column("n")) == [at / 2 for at in range(20)]
    assert (manifest_of(tmp_path / "out")["order"], manifest_of(tmp_path / "out")["layout"]) == ("stream", "stream")
    assert result.datasets[0].why[0] == "an iterable (builtins.generator): at most 6 samples a shard"
    assert (result.workers, result.shards_written, result.shards_kept) == (1, 4, 0)


def test_shards_by_their_bytes(tmp_path):
    packed(samples(), tmp_path / "out", shard_bytes=10_000)
    assert [shard["samples"] for shard in manifest_of(tmp_path / "out")["shards"]] == [4, 4, 4, 4, 4]


def test_names_are_numbers_without_a_key_and_safe_with_one(tmp_path):
    packed(iter([{"txt": "a"}, {"txt": "b"}]), tmp_path / "numbers")
    assert [s.key for s in proven(tmp_path / "numbers")] == ["000000000", "000000001"]
    packed(
        iter([{"__key__": "a b.c", "txt": "a"}, {"__key__": "x" * 120, "txt": "b"}, {"__key__": 7, "txt": "c"}]),
        tmp_path / "odd",
    )
    keys = [s.key for s in proven(tmp_path / "odd")]
    assert keys[0].startswith("a_b_c-") and keys[1].startswith("xxx") and keys[2] == "7"
    fastfeed.unpack(tmp_path / "odd", tmp_path / "back")
    assert files_below(tmp_path / "back") == {"a b.c.txt": b"a", "x" * 120 + ".txt": b"b", "7.txt": b"c"}


def test_a_name_that_cannot_be_kept_is_refused_or_left_out(tmp_path):
    for odd in ("../x", "\ud800"):
        rows = [{"__key__": "é", "txt": "a"}, {"__key__": odd, "txt": "b"}]
        with pytest.raises(SourceUnreadable, match="sample 1 of the iterable cannot be packed: its __key__ is no key"):
            packed(iter(rows), tmp_path / ascii(odd[-1]))
        out = tmp_path / f"skip{odd[-1]!a}"
        assert packed(iter(rows), out, on_error="skip").skipped == 1
        assert left_out_of(out) == {ascii(odd)[1:-1]: "unreadable"}


@pytest.mark.parametrize("last", ["same", "SAME"])
def test_a_name_twice_is_refused_with_both_places(tmp_path, last):
    rows = [{"__key__": f"k{at}", "txt": str(at)} for at in range(9)]
    rows[4]["__key__"], rows[7]["__key__"] = "same", last
    with pytest.raises(
        SourceUnreadable, match=rf"sample 7 of the iterable has the name '{last}', and so has the 4. of those packed"
    ):
        packed(iter(rows), tmp_path / "out", samples_per_shard=3)


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
def test_webdataset_reads_and_we_pack(tmp_path):
    make_photos(tmp_path / "photos", each=3)
    packed(tmp_path / "photos", tmp_path / "first", shards=2)
    urls = [str(path) for path in sorted((tmp_path / "first").glob("*.tar"))]
    dataset = webdataset.WebDataset(urls, shardshuffle=False)
    packed(dataset, tmp_path / "out")
    gc.collect()  # webdataset leaves its files to the collector
    before, after = proven(tmp_path / "first"), proven(tmp_path / "out")
    assert [(s.key, s.label, s.fields) for s in after] == [(s.key, s.label, s.fields) for s in before]
    assert manifest_of(tmp_path / "out")["classes"] == ["0", "1"]


# ------------------------------------------------------------------------------------------------------------ again


def test_an_interrupted_pack_continues_with_the_same_bytes(tmp_path):
    packed(samples(), tmp_path / "straight", samples_per_shard=3)
    with pytest.raises(Interrupt):
        packed(samples(), tmp_path / "out", samples_per_shard=3, progress=interrupt_after(10))
    done = len(list((tmp_path / "out").glob("*.tar")))
    assert 3 <= done < 7 and not list((tmp_path / "out").rglob("*.part"))
    with pytest.raises(fastfeed.DatasetError, match="has not finished"):
        fastfeed.open(tmp_path / "out")
    hook = Hook()
    result = packed(samples(), tmp_path / "out", samples_per_shard=3, progress=hook)
    assert (result.shards_kept, result.shards_written) == (done, 7 - done)
    assert hook.items == {"pack": 20}
    assert files_below(tmp_path / "out") == files_below(tmp_path / "straight")


def stopped(tmp_path):
    with pytest.raises(Interrupt):
        packed(samples(), tmp_path / "out", samples_per_shard=3, progress=interrupt_after(10))


def changed(**values):
    for at, sample in enumerate(samples()):
        yield {**sample, **values} if at == 4 else sample


@pytest.mark.parametrize(
    ("values", "got"),
    [
        ({"bin": b"other"}, "c1/004"), ({"__key__": "new"}, "new"), ({"cls": 2}, "c1/004"), ({"n": 7.0}, "c1/004"),
        ({"extra.bin": b"x"}, "c1/004"),
    ],
    ids=map(str, range(5)),
)  # fmt: skip
def test_a_sample_that_changed_is_named(tmp_path, values, got):
    stopped(tmp_path)
    with pytest.raises(
        SourceChanged, match=rf"sample 4 of the iterable is not what it was .*key 'c1/004'\): got {got}\. .*--overwrite"
    ):
        packed(changed(**values), tmp_path / "out", samples_per_shard=3)
    packed(changed(**values), tmp_path / "out", samples_per_shard=3, overwrite=True)
    assert len(proven(tmp_path / "out")) == 20


def test_samples_that_are_missing_are_missed(tmp_path):
    """Also if they end where a shard ended: nothing of the old ones must stay beside the manifest."""
    stopped(tmp_path)
    for count in (5, 6):
        with pytest.raises(SourceChanged, match=r"got no more samples|an earlier run of this pack had more"):
            packed(samples(count), tmp_path / "out", samples_per_shard=3)
    packed(samples(6), tmp_path / "out", samples_per_shard=3, overwrite=True)
    assert len(proven(tmp_path / "out")) == 6


def test_a_finished_pack_is_left_alone_and_that_is_said(tmp_path):
    packed(samples(), tmp_path / "out")
    before = files_below(tmp_path / "out")
    result = packed(samples(), tmp_path / "out")
    assert result.already_packed and "its samples were not compared" in result.notes[0]
    assert files_below(tmp_path / "out") == before
    with pytest.raises(DestinationOccupied, match=r"with other options is there \(--samples-per-shard was not given, now 3\)"):
        packed(samples(), tmp_path / "out", samples_per_shard=3)
    packed(make_photos(tmp_path / "photos"), tmp_path / "photos-out")
    with pytest.raises(DestinationOccupied, match="a finished pack of a folder of files is there"):
        packed(samples(), tmp_path / "photos-out")


# -------------------------------------------------------------------------------------------------------- what goes wrong


def failing(at, error):
    for number, sample in enumerate(samples()):
        if number == at:
            raise error
        yield sample


@pytest.mark.parametrize("at", [0, 10])
def test_what_an_iterable_raises_is_its_own(tmp_path, at):
    with pytest.raises(
        SourceUnreadable, match=rf"the iterable raised FileNotFoundError at sample {at}: .*no/such.*it continues"
    ):
        packed(failing(at, FileNotFoundError(2, "No such file", "no/such")), tmp_path / "out", samples_per_shard=3)
    assert not (tmp_path / "out").exists() or at
    packed(samples(), tmp_path / "out", samples_per_shard=3)
    assert len(proven(tmp_path / "out")) == 20


def test_an_iterable_that_gives_nothing_leaves_nothing(tmp_path):
    with pytest.raises(SourceUnreadable, match=r"the iterable gives no sample .*Was it used up before"):
        packed(iter([]), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_nothing_is_removed_for_an_iterable_that_cannot_do(tmp_path):
    packed(samples(), tmp_path / "out")
    before = files_below(tmp_path / "out")
    for broken in (iter([]), failing(0, ValueError("x")), iter([{"jpg": "a/path"}]), iter([{"x": {1}}])):
        with pytest.raises(fastfeed.FastfeedError):
            packed(broken, tmp_path / "out", overwrite=True)
        assert {name: raw for name, raw in files_below(tmp_path / "out").items() if "/job/" not in name} == before


def test_samples_that_cannot_be_stored(tmp_path):
    rows = [{"txt": f"{at}", "cls": at % 2} for at in range(100)]
    rows[70]["x"], rows[80]["cls"] = {1, 2}, -1
    with pytest.raises(SourceUnreadable, match="sample 70 of the iterable cannot be packed: column 'x' holds a set"):
        packed(iter(rows), tmp_path / "out", samples_per_shard=30)
    result = packed(iter(rows), tmp_path / "out", samples_per_shard=30, on_error="skip")
    assert result.shards_kept == 2 and result.skipped == 2 and result.datasets[0].samples == 98
    assert left_out_of(tmp_path / "out") == {"000000070": "unreadable", "000000080": "unreadable"}
    assert [f["txt"] for f in fields_of(tmp_path / "out")] == [str(at).encode() for at in range(100) if at not in {70, 80}]
    again = packed(iter(rows), tmp_path / "out", samples_per_shard=30, on_error="skip")
    assert again.already_packed and again.skipped == 2


def test_the_first_samples_tell_of_mistakes(tmp_path):
    for rows, match in (
        ([{"txt": "a", "cls": 1}, {"txt": "b"}], "1 of 2 samples that were looked at have no class"),
        ([{"txt": "a"}, {"txt": "b", "x": {1}}], "column 'x' holds a set"),
        ([{"txt": "a", "cls": "cat"}], r"sample 0 of the iterable cannot be packed: the class is the text 'cat'.*classes="),
        ([{1: 2}], "a sample is a dict with the key 1"),
    ):
        with pytest.raises((SourceUnreadable, UsageError), match=match):
            packed(iter(rows), tmp_path / "out")
        assert not (tmp_path / "out").exists()
    packed(iter([(b"x", "cat"), (b"y", "dog")]), tmp_path / "out", classes=["dog", "cat"])
    assert labels_of(tmp_path / "out") == ["cat", "dog"]


@pytest.mark.parametrize("options", [{"shards": 2}, {"shuffle": 1}, {"key": "x"}, {"dry_run": True}], ids=str)
def test_options_that_are_not_for_an_iterable(tmp_path, options):
    with pytest.raises(UsageError, match=r"cannot be had of an iterable|key= is for tables|there is no plan for an iterable"):
        packed(samples(), tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


# ------------------------------------------------------------------------------------------------ limit, skip list, memory


def test_no_more_is_read_than_the_limit(tmp_path):
    read = []

    def endless():
        at = 0
        while True:
            read.append(at)
            yield {"txt": f"{at}"}
            at += 1

    packed(endless(), tmp_path / "out", limit=5, samples_per_shard=2)
    assert len(proven(tmp_path / "out")) == 5 and read == list(range(5))


def test_a_skip_list(tmp_path):
    skip = SkipList(
        [SkipEntry(source="c1/004", kind="bad"), SkipEntry(key="c2/005"), SkipEntry(source="c0/006.txt"), SkipEntry(key="no")]
    )
    result = packed(samples(), tmp_path / "out", exclude=skip)
    assert [s.key for s in proven(tmp_path / "out")] == [f"c{at % 3}/{at:03d}" for at in range(20) if at not in {4, 5, 6}]
    assert set(left_out_of(tmp_path / "out").values()) == {"excluded"} and len(result.left_out) == 3
    assert result.notes == ("1 of the skip list's entries match no sample (no)",)
    with pytest.raises(SourceUnreadable, match="no sample is left to pack"):
        packed(iter([{"txt": "a"}]), tmp_path / "none", exclude=SkipList([SkipEntry(key="000000000")]))


MEMORY = """
    import sys
    import fastfeed
    from rowsets import peak_mebibytes

    def large():
        for at in range(int(sys.argv[2])):
            yield {"bin": bytes([at]) * (40 << 20)}

    fastfeed.pack(large(), sys.argv[1], samples_per_shard=2)
    print(peak_mebibytes())
"""


@pytest.mark.long
def test_large_samples_are_not_held(tmp_path):
    """6 samples of 40 MB: two are looked at first, and one is written while the next is read."""
    command = [sys.executable, "-c", textwrap.dedent(MEMORY), str(tmp_path / "out"), "6"]
    env = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT}/tests"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, env=env)
    assert int(done.stdout) < 300
    assert len(proven(tmp_path / "out")) == 6


FULL_DISK = """
    import os, subprocess, sys
    import fastfeed
    from fastfeed.errors import DestinationFull

    mount = sys.argv[1]
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", mount], check=True)
    out = os.path.join(mount, "out")
    def samples():
        for at in range(20):
            yield {"bin": bytes([at]) * 300_000}
    try:
        fastfeed.pack(samples(), out, samples_per_shard=1)
    except DestinationFull as error:
        print("full:", error)
    print("left:", [name for name in os.listdir(os.path.join(out, ".fastfeed", "job")) if name.endswith(".part")])
    subprocess.run(["mount", "-o", "remount,size=64m", mount], check=True)
    result = fastfeed.pack(samples(), out, samples_per_shard=1)
    print(result.shards_kept > 5, result.shards_kept + result.shards_written, fastfeed.verify(out).ok)
"""


def test_a_full_disk(tmp_path):
    (tmp_path / "mount").mkdir()
    full, left, last = with_mounts(FULL_DISK, tmp_path / "mount")
    assert full.startswith("full: the disk is full (") and "Nothing is lost" in full
    assert (left, last) == ("left: []", "True 20 True")


def test_foreign_files_are_kept(tmp_path):
    tree(tmp_path / "out", {"mine.txt": "x"})
    with pytest.raises(DestinationOccupied, match="the destination holds other files"):
        packed(samples(), tmp_path / "out")
    assert os.listdir(tmp_path / "out") == ["mine.txt"]


def test_images_and_arrays(tmp_path):
    rows = ({"image": image, "x": np.arange(at)} for at, image in enumerate(photos(4)))
    packed(rows, tmp_path / "out")
    assert [f["jpg"] for f in fields_of(tmp_path / "out")] == photos(4)
