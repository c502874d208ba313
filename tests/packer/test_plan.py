import os
from array import array
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packing import Hook, listing_of, manifest_of, planned, read_back, tree

import fastfeed
from fastfeed.archive.tar import BLOCK_BYTES, MAX_MEMBER_BYTES, RECORD_BYTES
from fastfeed.errors import SourceAmbiguous, SourceUnreadable, UsageError
from fastfeed.packer.plan import PackPlan, source_paths
from fastfeed.sample import SkipEntry, SkipList
from fastfeed.source.scan import LeftOut, Listing, scan


def counted(plan: PackPlan) -> list[int]:
    return [shard.stop - shard.first for shard in plan.datasets[0].shards]


def ten(size: int = 100) -> Listing:
    return listing_of({f"{at:02d}.txt": size for at in range(10)})


@pytest.mark.parametrize(
    ("options", "counts", "why"),
    [
        ({}, [10], "1 shard of 10 samples: 1000 B at a target of 512.0 MiB"),
        # ceil(1000 / 300) = 4
        ({"shard_bytes": 300}, [3, 3, 2, 2], "4 shards of 2 to 3 samples: 1000 B at a target of 300 B"),
        ({"shard_bytes": 1000}, [10], "1 shard of 10 samples: 1000 B at a target of 1000 B"),
        ({"shard_bytes": 999}, [5, 5], "2 shards of 5 samples: 1000 B at a target of 999 B"),
        ({"shard_bytes": 1}, [1] * 10, "10 shards of 1 sample: 1000 B at a target of 1 B"),  # no shard is empty
        ({"shards": 3}, [4, 3, 3], "3 shards of 3 to 4 samples: asked for"),
        ({"shards": 99}, [1] * 10, "10 shards of 1 sample: asked for (no shard is empty)"),
        ({"samples_per_shard": 4}, [4, 3, 3], "3 shards of 3 to 4 samples: at most 4 samples a shard were asked for"),
        ({"samples_per_shard": 5}, [5, 5], "2 shards of 5 samples: at most 5 samples a shard were asked for"),
    ],
)
def test_shards_are_as_asked_for(options, counts, why):
    plan = planned(ten(), **options)
    assert counted(plan) == counts
    assert [shard.file for shard in plan.datasets[0].shards] == [f"data-{at:06d}.tar" for at in range(len(counts))]
    assert plan.datasets[0].why[-1] == why


def test_empty_files_make_one_shard():
    assert counted(planned(ten(0))) == [10]


sized = st.dictionaries(
    st.integers(0, 10**6).map("{:06d}.bin".format),
    st.one_of(st.integers(0, 2000), st.sampled_from([511, 512, 513, MAX_MEMBER_BYTES])),
    min_size=1,
    max_size=60,
)
how = st.one_of(
    st.fixed_dictionaries({"shard_bytes": st.integers(1, 5000)}),
    st.fixed_dictionaries({"shards": st.integers(1, 80)}),
    st.fixed_dictionaries({"samples_per_shard": st.integers(1, 80)}),
)


@settings(deadline=None)
@given(sized, how, st.none() | st.integers(0, 9))
def test_counts_differ_by_one_at_most_and_sizes_are_those_of_the_dialect(sizes, options, shuffle):
    plan = planned(listing_of(sizes), shuffle=shuffle, **options)
    [dataset] = plan.datasets
    counts = counted(plan)
    assert sum(counts) == len(sizes) and min(counts) > 0 and max(counts) - min(counts) <= 1
    if "shards" in options:
        assert len(counts) == min(options["shards"], len(sizes))
    if "samples_per_shard" in options:
        assert max(counts) <= options["samples_per_shard"]
    if "shard_bytes" in options:
        assert len(counts) == max(1, min(len(sizes), -(-sum(sizes.values()) // options["shard_bytes"])))
    assert sorted(dataset.keys) == sorted(name.removesuffix(".bin") for name in sizes)
    for shard in dataset.shards:
        at = 0
        for key, offset in zip(dataset.keys[shard.first : shard.stop], dataset.offsets[shard.first : shard.stop], strict=True):
            assert offset == at + BLOCK_BYTES
            at = offset + sizes[f"{key}.bin"]
            at += -at % BLOCK_BYTES
        assert shard.size_bytes % RECORD_BYTES == 0 and 1024 <= shard.size_bytes - at < 1024 + RECORD_BYTES
    assert plan.size_bytes == sum(shard.size_bytes for shard in dataset.shards)
    assert sum(shard.source_bytes for shard in dataset.shards) == dataset.source_bytes == sum(sizes.values())


@pytest.mark.parametrize("seed", range(6))
def test_offsets_are_those_that_pythons_tarfile_finds(tmp_path, seed):
    sizes = [0, 1, 511, 512, 513, 1024, 1025, 9000][seed % 3 :]
    files = {f"c{size % 2}/{at}.bin": os.urandom(size) for at, size in enumerate(sizes)}
    tree(tmp_path / "source", files)
    fastfeed.pack(tmp_path / "source", tmp_path / "out", workers=1, shards=1 + seed, shuffle=seed, write_cls=bool(seed % 2))
    samples = read_back(tmp_path / "out")  # compares offsets, sizes and names
    assert sorted(sample.sources["bin"] for sample in samples) == sorted(files)


def test_shuffle_is_a_matter_of_the_seed():
    orders = {seed: planned(ten(), shuffle=seed).datasets[0].keys for seed in (None, 0, 1)}
    assert list(orders[None]) == sorted(orders[None])
    assert sorted(orders[0]) == sorted(orders[1]) == orders[None]
    assert len({tuple(order) for order in orders.values()}) == 3
    assert planned(ten(), shuffle=0).datasets[0].keys == orders[0]
    assert planned(ten(), shuffle=0).datasets[0].order == "shuffled"


def test_limit_counts_what_is_beyond_it():
    plan = planned(ten(), limit=4)
    assert list(plan.datasets[0].keys) == ["00", "01", "02", "03"]
    assert plan.limited == 6
    assert len(planned(ten(), limit=4, shuffle=1).datasets[0].keys) == 4
    assert planned(ten(), limit=100).limited == 0


def test_exclude_by_source_and_by_key():
    skip = SkipList([SkipEntry(source="01.txt", kind="undecodable"), SkipEntry(key="05"), SkipEntry(source="not there")])
    plan = planned(ten(), exclude=skip)
    assert list(plan.datasets[0].keys) == ["00", "02", "03", "04", "06", "07", "08", "09"]
    assert [(item.source, item.kind, item.why) for item in plan.left_out[""]] == [
        ("01.txt", "excluded", "named by the skip list (undecodable)"),
        ("05.txt", "excluded", "named by the skip list"),
    ]
    assert plan.notes == ("1 entry of the skip list matches no sample (not there)",)


def test_entries_that_match_nothing_are_counted():
    skip = SkipList([SkipEntry(source="01.txt"), SkipEntry(key="no such key"), SkipEntry(source="not there")])
    assert planned(ten(), exclude=skip).notes == ("2 entries of the skip list match no sample (no such key)",)


@pytest.mark.parametrize("entry", [SkipEntry(source="data/01.txt"), SkipEntry(key="data/01")])
def test_a_skip_list_of_another_source_is_refused(entry):
    with pytest.raises(UsageError) as caught:
        planned(ten(), exclude=SkipList([entry, SkipEntry(source="data/02.txt")]))
    assert str(caught.value) == (
        f"the skip list (2 entries) matches no sample of this source: expected such as 00.txt, got {entry.source or entry.key}."
        " Paths in a skip list are relative to the source folder."
    )
    assert not planned(ten(), exclude=SkipList([])).notes


def dangling(folder, name: str) -> Listing:
    os.symlink("nowhere", folder / name)
    return scan(str(folder))


@pytest.mark.parametrize("on_error", ["stop", "skip"])
@pytest.mark.parametrize("entry", [SkipEntry(source="2.txt"), SkipEntry(key="2")])
def test_what_is_excluded_is_not_judged(tmp_path, entry, on_error):
    """A dangling link that the skip list names stops no run, and is excluded, not unreadable."""
    listing = dangling(tree(tmp_path, {"1.txt": "x", "2.jpg": "y"}), "2.txt")
    plan = planned(listing, exclude=SkipList([entry]), on_error=on_error)
    assert [(item.source, item.kind) for item in plan.left_out[""]] == [("2.jpg", "excluded"), ("2.txt", "excluded")]
    assert list(plan.datasets[0].keys) == ["1"]


def test_what_is_not_excluded_stops_the_run_still(tmp_path):
    listing = dangling(tree(tmp_path, {"1.txt": "x", "2.txt": "y"}), "3.txt")
    match = r"1 source file cannot be read \(3.txt: a link that leads nowhere\)"
    with pytest.raises(SourceUnreadable, match=match):
        planned(listing, exclude=SkipList([SkipEntry(source="2.txt")]))


def test_a_sample_whose_only_file_is_unreadable_is_left_out(tmp_path):
    plan = planned(dangling(tree(tmp_path, {"1.txt": "x"}), "2.txt"), on_error="skip")
    assert plan.left_out == {"": [LeftOut("2.txt", "unreadable", "a link that leads nowhere")]}
    assert list(plan.datasets[0].keys) == ["1"]


def test_what_is_left_out_is_listed_with_its_split(tmp_path):
    names = ["train/a/1.txt", "train/.DS_Store", "val/a/1.txt", "val/a/.hidden", "val/README", "README", ".git/x"]
    listing = dangling(tree(tmp_path, dict.fromkeys(names, "x")), "val/a/2.txt")
    left_out = planned(listing, on_error="skip").left_out
    assert {split: {item.source: item.kind for item in items} for split, items in left_out.items()} == {
        "train": {"README": "beside", ".git": "hidden", "train/.DS_Store": "system"},  # what is no split's goes to the first
        "val": {"val/README": "beside", "val/a/.hidden": "hidden", "val/a/2.txt": "unreadable"},
    }


def test_all_files_of_an_excluded_sample_are_listed():
    listing = listing_of({"1.jpg": 5, "1.txt": 5, "2.jpg": 5, "2.txt": 5})
    plan = planned(listing, exclude=SkipList([SkipEntry(source="1.txt")]))
    assert [item.source for item in plan.left_out[""]] == ["1.jpg", "1.txt"]
    assert list(plan.datasets[0].keys) == ["2"]


def test_keys_do_not_depend_on_what_is_left_out():
    sizes = {"a.txt": 1, "A.txt": 1, "b c.txt": 1, "d.txt": 1}
    whole = set(planned(listing_of(sizes)).datasets[0].keys)
    rest = planned(listing_of(sizes), exclude=SkipList([SkipEntry(source="a.txt")])).datasets[0].keys
    assert len(whole) == 4 and set(rest) < whole


def test_nothing_left_is_no_dataset():
    skip = SkipList([SkipEntry(key=f"{at:02d}") for at in range(10)])
    with pytest.raises(SourceUnreadable, match="no sample is left to pack"):
        planned(ten(), exclude=skip)


def classes(folder, per_class: int = 3) -> Listing:
    names = [f"{name}/{at}.jpg" for name in ("cat", "dog") for at in range(per_class)]
    return scan(str(tree(folder, dict.fromkeys(names, "x"))))


THEIRS = "position i and each class number are ImageFolder's"


@pytest.mark.parametrize(
    ("options", "skipped", "order", "why"),
    [
        ({}, [], "imagefolder", THEIRS),
        ({"limit": 4}, [], "imagefolder", THEIRS),
        ({"shuffle": 3}, [], "shuffled", "positions are not ImageFolder's: shuffled with seed 3"),
        ({"shuffle": 0}, ["cat/1"], "shuffled", "positions are not ImageFolder's: shuffled with seed 0"),
        ({}, ["dog/2"], "imagefolder", THEIRS),  # the last: positions before it are still ImageFolder's
        ({}, ["cat/1"], "source", "positions are not ImageFolder's: 1 sample among them left out"),
        ({}, ["cat/1", "dog/0", "dog/2"], "source", "positions are not ImageFolder's: 2 samples among them left out"),
        ({"limit": 2}, ["cat/0"], "source", "positions are not ImageFolder's: 1 sample among them left out"),
        ({"limit": 2}, ["dog/0"], "imagefolder", THEIRS),
    ],
)
def test_the_order_is_called_imagefolders_only_where_it_is(tmp_path, options, skipped, order, why):
    skip = SkipList([SkipEntry(key=key) for key in skipped])
    [dataset] = planned(classes(tmp_path), exclude=skip, **options).datasets
    assert dataset.order == order
    assert [line for line in dataset.why if "ImageFolder" in line] == [why]
    assert dataset.why[-2] == why


def test_files_have_no_positions_of_imagefolders():
    assert not [line for line in planned(ten(), shuffle=1).datasets[0].why if "ImageFolder" in line]


def test_class_members_can_be_left_away(tmp_path):
    listing = classes(tmp_path)
    with_class, without = planned(listing).datasets[0], planned(listing, write_cls=False).datasets[0]
    assert with_class.fields == ("cls", "jpg") and without.fields == ("jpg",)
    assert len(with_class.files) == 12 and len(without.files) == 6
    assert list(with_class.labels or ()) == list(without.labels or ()) == [0, 0, 0, 1, 1, 1]


@pytest.mark.parametrize("shuffle", [None, 5])
@pytest.mark.parametrize("names", [("a.bin", "b.bin"), ("a.txt", "b.txt"), ("a.bin", "b.txt"), ("a.txt", "a.bin", "b.txt")])
def test_class_members_stand_where_their_field_does(tmp_path, names, shuffle):
    listing = scan(str(tree(tmp_path, {f"c{at:02d}/{name}": "x" * (at + 3) for at in range(12) for name in names})))
    [dataset] = planned(listing, shuffle=shuffle, limit=15, shards=4).datasets
    assert dataset.labels is not None
    for sample, (start, stop) in enumerate(pairwise(dataset.starts)):
        fields = [dataset.fields[field] for field in dataset.member_fields[start:stop]]
        assert "cls" in fields and fields == sorted(fields)
        for field, file, size in zip(fields, dataset.files[start:stop], dataset.sizes[start:stop], strict=True):
            label = dataset.labels[sample]
            path = f"{dataset.keys[sample]}.{field}"
            assert (file, size) == (-1, len(str(label))) if field == "cls" else (listing.paths[file], size) == (path, label + 3)
    for shard in dataset.shards:
        files = [file for file in dataset.files[shard.first_member : shard.stop_member] if file >= 0]
        assert (shard.source_files, shard.source_bytes) == (len(files), sum(listing.sizes[file] for file in files))


def test_a_cls_file_of_the_sources_own_is_ambiguous(tmp_path):
    listing = scan(str(tree(tmp_path, {"cat/1.jpg": "x", "cat/1.cls": "7"})))
    with pytest.raises(SourceAmbiguous, match=r"files NAME.cls of its own.*--no-cls"):
        planned(listing)
    assert planned(listing, write_cls=False).datasets[0].fields == ("cls", "jpg")


@pytest.mark.parametrize(
    ("name", "asked", "legal"),
    [
        ("photos", None, "photos"),
        ("my photos", None, "my_photos-"),
        ("v1.0", None, "v1_0-"),
        ("日本", None, "x-"),
        ("a" * 80, None, "a" * 40 + "-"),
        ("photos", "other", "other"),
    ],
)
def test_shard_names_break_no_reader(tmp_path, name, asked, legal):
    source = tree(tmp_path / name, {"1.txt": "x"})
    fastfeed.pack(source, tmp_path / "out", workers=1, name=asked)
    found = manifest_of(tmp_path / "out")["name"]
    assert (found == legal) is not legal.endswith("-")
    assert found.startswith(legal)
    read_back(tmp_path / "out")


def test_shards_of_splits_have_the_splits_names(tmp_path):
    source = tree(tmp_path / "photos", {"train/a/1.txt": "x", "val/a/1.txt": "y"})
    fastfeed.pack(source, tmp_path / "plain", workers=1)
    fastfeed.pack(source, tmp_path / "named", workers=1, name="pets")
    assert (tmp_path / "plain" / "train" / "train-000000.tar").exists()
    assert (tmp_path / "named" / "val" / "pets-val-000000.tar").exists()
    keys = [sample.key for split in ("train", "val") for sample in read_back(tmp_path / "plain" / split)]
    assert keys == ["train/a/1", "val/a/1"]  # unique over the whole call


def test_members_of_8_gib_are_refused_when_planning(tmp_path):
    source = tree(tmp_path / "source", {"a.dat": "x", "big.dat": "", "bigger.dat": ""})
    try:
        os.truncate(source / "big.dat", 8 << 30)
        os.truncate(source / "bigger.dat", 9 << 30)
    except OSError as error:
        pytest.skip(f"this file system makes no sparse file of 8 GiB: {error}")
    hook = Hook()
    match = r"2 files of 8 GiB or more cannot be a member \(big.dat, bigger.dat\).*below 8 GiB"
    for dry_run in (True, False):
        with pytest.raises(SourceUnreadable, match=match):
            fastfeed.pack(source, tmp_path / "out", dry_run=dry_run, progress=hook)
    assert not (tmp_path / "out").exists()
    assert {stage for stage, _, _ in hook.stages} == {"scan"}
    skip = SkipList([SkipEntry(source="big.dat"), SkipEntry(source="bigger.dat")])
    assert fastfeed.pack(source, tmp_path / "out", workers=1, exclude=skip).datasets[0].samples == 1


def test_the_largest_member_is_planned():
    [dataset] = planned(listing_of({"a.bin": MAX_MEMBER_BYTES, "b.bin": 1}), shards=1).datasets
    assert list(dataset.offsets) == [512, 512 + MAX_MEMBER_BYTES + 1 + 512]
    with pytest.raises(SourceUnreadable, match=r"1 file of 8 GiB or more cannot be a member \(a.bin\)"):
        planned(listing_of({"a.bin": MAX_MEMBER_BYTES + 1, "b.bin": 1}))


@pytest.mark.parametrize("files", [[], [0], [1, 2, 3], [2, 1], [0, 2], [-1, 0], [0, -1, 1, -1]], ids=str)
def test_source_paths(files):
    assert list(source_paths(array("q", files), "abcd")) == ["" if file < 0 else "abcd"[file] for file in files]
