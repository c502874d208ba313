import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torchvision.datasets.folder import IMG_EXTENSIONS

from fastfeed.archive.shard import LEGAL_FIELD, LEGAL_KEY, MAX_FIELD_BYTES
from fastfeed.archive.tar import MAX_NAME_BYTES
from fastfeed.media import is_image_field
from fastfeed.source.names import (
    IMAGEFOLDER_EXTENSIONS,
    FileName,
    KeyMaker,
    all_differ,
    canonical,
    compound_field,
    counted,
    group,
    has_dots,
    safe_key,
    split_name,
    split_names,
)


def test_imagefolder_extensions_are_torchvisions():
    assert {f".{extension}" for extension in IMAGEFOLDER_EXTENSIONS} == set(IMG_EXTENSIONS)
    assert all(is_image_field(extension) for extension in IMAGEFOLDER_EXTENSIONS)


@pytest.mark.parametrize(
    ("name", "stem", "extension"),
    [
        ("a.jpg", "a", "jpg"),
        ("a.b.JPG", "a.b", "jpg"),
        ("22.05.png", "22.05", "png"),
        ("Track 2.0 (x).jpg", "Track 2.0 (x)", "jpg"),
        ("noext", "noext", ""),
        (".hidden", ".hidden", ""),
        ("dot.", "dot.", ""),
        ("a.b c", "a.b c", ""),  # no legal field: what follows the dot is part of the name
        ("a.é", "a.é", ""),
        ("a." + "x" * 32, "a", "x" * 32),
        ("a." + "x" * 33, "a." + "x" * 33, ""),
        ("a.\n", "a.\n", ""),
        ("a.jpg\n", "a.jpg\n", ""),
        ("\udcff.jpg", "\udcff", "jpg"),
        ("a.\u212aML", "a", "kml"),  # the Kelvin sign is k in lower case
    ],
)
def test_split_name(name, stem, extension):
    assert split_name(name) == (stem, extension)


@settings(deadline=None)
@given(st.binary(min_size=1, max_size=60).map(os.fsdecode))
def test_a_split_name_loses_nothing_and_gives_a_legal_field(name):
    stem, extension = split_name(name)
    assert stem
    if extension:
        assert LEGAL_FIELD.fullmatch(extension) and len(extension) <= MAX_FIELD_BYTES
        assert name.startswith(f"{stem}.") and name[len(stem) + 1 :].lower() == extension
    else:
        assert stem == name


some_names = st.text(st.sampled_from("a.Jpg é\n\udcff\u212a"), min_size=1, max_size=6)


@settings(deadline=None)
@given(st.lists(some_names, max_size=6), st.sampled_from(["", ".jpg", ".JPG", ".a b", "jpg"]))
def test_many_names_are_split_as_each_is(names, ending):
    names = [name + ending for name in names]
    pairs = [split_name(name) for name in names]
    assert split_names(names) == ([base for base, _ in pairs], [extension for _, extension in pairs])


def test_canonical_extensions():
    assert [canonical(name) for name in ("jpeg", "jpe", "jfif", "jpg", "tif", "tiff", "png", "txt")] == [
        "jpg", "jpg", "jpg", "jpg", "tiff", "tiff", "png", "txt",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("0001.mask.png", "mask.png"),
        ("0001.seg.MASK.PNG", "seg.mask.png"),
        ("0001.png", ""),
        ("22.05.png", ""),  # 05 is no word
        ("a.b c.png", ""),
        ("noext", ""),
        ("a." + "w" * 40 + ".png", ""),
    ],
)
def test_compound_field(name, field):
    assert compound_field(name) == field


def files(*names: str) -> list[FileName]:
    return [FileName(name, at, canonical(split_name(name)[1]) or "bin") for at, name in enumerate(sorted(names))]


def grouped(*names, compounds=(), by_stem=True, merge_images=True):
    samples, taken = group(files(*names), frozenset(compounds), by_stem=by_stem, merge_images=merge_images)
    listed = sorted(names)
    return [(sample.stem, {field: listed[number] for field, number in sample.members}) for sample in samples], taken


def test_files_that_share_a_stem_make_a_sample():
    found, taken = grouped("1.jpg", "1.json", "1.mask.png", "2.jpg", compounds=["mask.png"])
    assert found == [("1", {"jpg": "1.jpg", "json": "1.json", "mask.png": "1.mask.png"}), ("2", {"jpg": "2.jpg"})]
    assert taken == 0


def test_pain_17_dots_in_a_stem_stay_in_it():
    found, _ = grouped("22.05.png", "22.06.png", "Track 2.0 (x).jpg")
    assert [stem for stem, _ in found] == ["22.05", "22.06", "Track 2.0 (x)"]


def test_a_compound_field_without_a_partner_stays_in_the_stem():
    found, _ = grouped("1.mask.png", compounds=["mask.png"])
    assert found == [("1.mask", {"png": "1.mask.png"})]


def test_pain_18_a_field_that_is_taken_becomes_a_sample_of_its_own():
    found, taken = grouped("a.JPG", "a.jpeg", "a.jpg", "a.txt")
    assert taken == 2
    assert [set(fields) for _, fields in found] == [{"jpg", "txt"}, {"jpg"}, {"jpg"}]
    assert sorted(name for _, fields in found for name in fields.values()) == ["a.JPG", "a.jpeg", "a.jpg", "a.txt"]


def test_each_image_starts_a_sample_where_classes_are_read():
    found, taken = grouped("a.jpg", "a.png", "a.txt", merge_images=False)
    assert found == [("a", {"jpg": "a.jpg", "txt": "a.txt"}), ("a", {"png": "a.png"})]
    assert taken == 1


def test_samples_are_sorted_by_their_image():
    found, _ = grouped("b.json", "b.z.txt", "b.jpg", "b-1.jpg", merge_images=False)
    assert [fields.get("jpg") for _, fields in found if "jpg" in fields] == ["b-1.jpg", "b.jpg"]


def test_without_grouping_each_file_is_a_sample():
    found, taken = grouped("a.jpg", "a.txt", by_stem=False)
    assert found == [("a", {"jpg": "a.jpg"}), ("a", {"txt": "a.txt"})]
    assert taken == 0


name_parts = st.one_of(
    st.text(max_size=30),
    st.binary(max_size=30).map(os.fsdecode),
    st.text("aA_.-/ éK\u212a\u0301", max_size=40),
    st.sampled_from(["a", "A", "__", "_", "a" * 300, "a/__b", "..", "x-2d711642b7"]),
)
stems = name_parts.map(lambda text: "/".join(part for part in text.replace("\0", "").split("/") if part) or "0")


@settings(deadline=None)
@given(st.lists(stems, max_size=12), st.integers(2, MAX_FIELD_BYTES + 1))
def test_keys_are_legal_short_and_unique_for_any_stems(found, room):
    maker = KeyMaker(found)
    keys = maker.keys(found, lambda at: f"{found[at]}.{at}", room)
    for key in keys:
        assert LEGAL_KEY.fullmatch(key) and len(key) + room <= MAX_NAME_BYTES, key
    assert len({key.lower() for key in keys}) == len(keys)


@settings(deadline=None)
@given(st.lists(stems, max_size=8, unique=True), st.randoms())
def test_a_key_does_not_depend_on_the_order(found, order):
    shuffled = list(found)
    order.shuffle(shuffled)
    ours, theirs = (dict(zip(each, KeyMaker(each).keys(each, each.__getitem__, 5), strict=True)) for each in (found, shuffled))
    looks_made = {key for key in ours.values() if key[-11:-10] == "-"}
    assert ours == theirs or looks_made & set(found)  # a stem that looks like another's slug and hash: only by intent


@pytest.mark.parametrize("stem", ["a", "cat/001", "n01440764/n01440764_10026", "a-b_c+d@e=f,g~h%i^j!k#l(m)"])
def test_a_legal_path_is_its_own_key(stem):
    assert KeyMaker([stem]).keys([stem], lambda at: f"{stem}.jpg", 5) == [stem]


@pytest.mark.parametrize(
    ("stem", "slug"),
    [
        ("cat/22.05", "cat/22_05"),
        ("my cat/a b", "my_cat/a_b"),
        ("é", "e"),
        ("e\u0301", "e"),
        ("日本", "x"),
        ("\udcff", "x"),
        ("a\nb", "a_b"),
        ("__meta__", "meta__"),
        ("a/__b", "a/b"),
        ("a;b", "a_b"),
    ],
)
def test_another_path_becomes_a_slug_and_a_hash(stem, slug):
    [key] = KeyMaker([stem]).keys([stem], lambda at: f"{stem}.jpg", 5)
    assert key[:-10] == f"{slug}-"
    assert LEGAL_KEY.fullmatch(key)
    assert key == safe_key(stem, f"{stem}.jpg", 95, 10)


def test_pain_18_names_that_differ_in_case_get_keys_that_do_not():
    keys = KeyMaker(["a", "A", "b"]).keys(["a", "A", "b"], ["a.jpg", "A.jpg", "b.jpg"].__getitem__, 5)
    assert keys[2] == "b"
    assert keys[0].lower() != keys[1].lower()
    assert {key[:2].lower() for key in keys[:2]} == {"a-"}


def test_a_legal_stem_that_equals_a_key_of_an_earlier_split_gets_another():
    long = "b" * MAX_NAME_BYTES
    [made] = KeyMaker([long]).keys([long], lambda at: "long.jpg", 5)
    maker = KeyMaker([long, made.upper(), "c"])  # all stems are legal: only with its field is the first too long
    assert maker.keys([long], lambda at: "long.jpg", 5) == [made]
    second, third = maker.keys([made.upper(), "c"], ["made.jpg", "c.jpg"].__getitem__, 5)
    assert second.lower() != made.lower() and third == "c"
    assert LEGAL_KEY.fullmatch(second)


def test_counted():
    assert counted([]) == {} and counted(["a"] * 3) == {"a": 3}
    assert counted(["a", "b", "a"]) == {"a": 2, "b": 1}


@given(st.lists(st.text("ab.", max_size=2)))
def test_whether_all_differ_and_have_dots(bases):
    assert all_differ(bases) == all_differ(sorted(bases)) == (len(set(bases)) == len(bases))
    assert has_dots(bases) == any("." in base for base in bases)
