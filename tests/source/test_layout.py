import pytest
from helpers import encoded, photo
from packing import tree

from fastfeed.config import PackConfig
from fastfeed.errors import SourceAmbiguous, SourceUnreadable
from fastfeed.source.layout import Draft, read_layout
from fastfeed.source.scan import Listing, scan


def read(folder, names, **options) -> tuple[Listing, list[Draft]]:
    listing = scan(str(tree(folder, dict.fromkeys(names, "x"))))
    return listing, read_layout(listing, PackConfig(**options))


def samples(listing: Listing, draft: Draft) -> list[dict[str, str]]:
    return [
        {draft.fields[member]: listing.paths[draft.files[member]] for member in range(draft.starts[at], draft.starts[at + 1])}
        for at in range(len(draft))
    ]


def test_a_class_a_folder(tmp_path):
    listing, [draft] = read(tmp_path, ["dog/1.jpg", "cat/2.jpg", "cat/1.jpg"])
    assert (draft.layout, draft.classes, list(draft.labels)) == ("classes", ["cat", "dog"], [0, 0, 1])
    assert draft.as_imagefolder
    assert draft.stems == ["cat/1", "cat/2", "dog/1"]
    assert samples(listing, draft) == [{"jpg": "cat/1.jpg"}, {"jpg": "cat/2.jpg"}, {"jpg": "dog/1.jpg"}]
    assert draft.why == [
        "one dataset: the folders at the top are not named like splits",
        "one class per folder: 2 classes",
        "each image is a sample",
    ]


def test_classes_without_images_are_classes_all_the_same(tmp_path):
    _, [draft] = read(tmp_path, ["spam/1.txt", "ham/2.txt"])
    assert draft.classes == ["ham", "spam"] and not draft.as_imagefolder


def test_a_class_without_samples_keeps_its_number(tmp_path):
    (tmp_path / "bird").mkdir()
    _, [draft] = read(tmp_path, ["ant/1.jpg", "cat/1.jpg"])
    assert draft.classes == ["ant", "bird", "cat"] and list(draft.labels) == [0, 2]
    assert "1 class without samples: bird" in draft.why


def test_a_flat_folder_is_grouped_by_stem(tmp_path):
    names = ["0001.jpg", "0001.json", "0001.mask.png", "0002.jpg", "0002.json", "0002.mask.png"]
    listing, [draft] = read(tmp_path, names)
    assert draft.classes is None and draft.layout == "files"
    assert samples(listing, draft) == [
        {"jpg": f"{stem}.jpg", "json": f"{stem}.json", "mask.png": f"{stem}.mask.png"} for stem in ("0001", "0002")
    ]
    assert "files that share a stem make a sample" in draft.why


def test_pain_17_names_with_dots_are_not_torn(tmp_path):
    listing, [draft] = read(tmp_path, ["Track 2.0 (x).jpg", "22.05.jpg", "22.06.jpg"])
    assert draft.stems == ["22.05", "22.06", "Track 2.0 (x)"]
    assert samples(listing, draft)[0] == {"jpg": "22.05.jpg"}


def test_grouping_can_be_forced_off(tmp_path):
    listing, [draft] = read(tmp_path, ["1.jpg", "1.txt"], group="none")
    assert samples(listing, draft) == [{"jpg": "1.jpg"}, {"txt": "1.txt"}]
    assert "grouping none: asked for" in draft.why


def test_grouping_by_stem_merges_images_of_a_class(tmp_path):
    names = ["cat/1.jpg", "cat/1.mask.png", "cat/2.jpg", "cat/2.mask.png"]
    _, [alone] = read(tmp_path, names)
    listing, [draft] = read(tmp_path, names, group="stem")
    assert len(alone) == 4 and alone.as_imagefolder
    assert samples(listing, draft) == [{"jpg": f"cat/{at}.jpg", "mask.png": f"cat/{at}.mask.png"} for at in (1, 2)]
    assert not draft.as_imagefolder  # ImageFolder would see four


def test_captions_join_the_images_of_a_class(tmp_path):
    listing, [draft] = read(tmp_path, ["cat/1.jpg", "cat/1.txt", "cat/2.png", "cat/notes.txt", "dog/1.jpg"])
    assert samples(listing, draft)[0] == {"jpg": "cat/1.jpg", "txt": "cat/1.txt"}
    assert samples(listing, draft)[2] == {"txt": "cat/notes.txt"}
    assert not draft.as_imagefolder  # ImageFolder ignores the notes
    assert any("it would ignore 1 sample (cat/notes.txt" in why for why in draft.why)
    assert any("samples differ in their fields" in why for why in draft.why)


@pytest.mark.parametrize("junk", ["cat/._1.jpg", "cat/.1.jpg", "__MACOSX/1.jpg", ".ipynb_checkpoints/1.jpg"])
def test_pain_34_where_imagefolder_takes_junk_the_order_is_not_called_its_own(tmp_path, junk):
    _, [draft] = read(tmp_path, ["cat/1.jpg", junk])
    assert draft.classes == ["cat"] and not draft.as_imagefolder
    assert any("it would take what is left out" in why for why in draft.why)


@pytest.mark.parametrize("junk", ["cat/.DS_Store", ".DS_Store", "Thumbs.db", "._1.jpg"])
def test_junk_that_imagefolder_ignores_changes_nothing(tmp_path, junk):
    _, [draft] = read(tmp_path, ["cat/1.jpg", junk])
    assert draft.as_imagefolder


def test_splits_are_datasets_of_one_class_map(tmp_path):
    listing, drafts = read(tmp_path, ["train/cat/1.jpg", "train/dog/1.jpg", "val/cat/1.jpg", "val/dog/2.jpg", "README.md"])
    assert [(draft.split, draft.classes, list(draft.labels)) for draft in drafts] == [
        ("train", ["cat", "dog"], [0, 1]),
        ("val", ["cat", "dog"], [0, 1]),
    ]
    assert [item.source for item in drafts[0].left_out] == ["README.md"]
    assert samples(listing, drafts[1]) == [{"jpg": "val/cat/1.jpg"}, {"jpg": "val/dog/2.jpg"}]
    assert drafts[0].why[0] == "splits train, val: all folders at the top have names of splits"


def test_splits_with_other_classes_stop_and_are_named(tmp_path):
    names = ["train/cat/1.jpg", "train/dog/1.jpg", "val/cat/1.jpg", "val/emu/1.jpg"]
    with pytest.raises(SourceAmbiguous, match=r"train lacks 1 class: emu; val lacks 1 class: dog.*--class-map union"):
        read(tmp_path, names)
    _, drafts = read(tmp_path, names, class_map="union")
    assert [(draft.classes, list(draft.labels)) for draft in drafts] == [
        (["cat", "dog", "emu"], [0, 1]),
        (["cat", "dog", "emu"], [0, 2]),
    ]
    assert not any(draft.as_imagefolder for draft in drafts)


def test_flat_splits_have_no_classes(tmp_path):
    _, drafts = read(tmp_path, ["train/1.jpg", "train/1.txt", "test/2.jpg", "test/2.txt"])
    assert [(draft.split, draft.layout, len(draft)) for draft in drafts] == [("test", "files", 1), ("train", "files", 1)]


def test_a_folder_beside_splits_is_ambiguous(tmp_path):
    names = ["train/cat/1.jpg", "extra/cat/2.jpg"]
    with pytest.raises(SourceAmbiguous, match=r"train look like splits, but extra beside them do not.*--layout splits"):
        read(tmp_path, names)
    _, drafts = read(tmp_path, names, layout="splits")
    assert [draft.split for draft in drafts] == ["extra", "train"]
    _, [draft] = read(tmp_path, names, layout="classes")
    assert draft.classes == ["extra", "train"]
    _, [draft] = read(tmp_path, names, layout="files")
    assert draft.classes is None and draft.stems == ["extra/cat/2", "train/cat/1"]


@pytest.mark.parametrize(
    "names", [("train2017", "val2017"), ("train-1", "val_2"), ("Train", "TEST3"), ("dev", "unlabeled2017")]
)
def test_splits_with_a_number_or_a_year(tmp_path, names):
    _, drafts = read(tmp_path, [f"{name}/1.jpg" for name in names])
    assert [draft.split for draft in drafts] == sorted(names)
    assert {draft.why[0] for draft in drafts} == {
        f"splits {', '.join(sorted(names))}: all folders at the top have names of splits"
    }


@pytest.mark.parametrize("names", [("trains", "vals"), ("train2017b", "val2017b"), ("train--1", "val--1"), ("1train", "2val")])
def test_what_only_begins_like_a_split_is_none(tmp_path, names):
    _, [draft] = read(tmp_path, [f"{name}/1.jpg" for name in names])
    assert draft.classes == sorted(names)
    assert draft.why[0] == "one dataset: the folders at the top are not named like splits"


def test_cocos_annotations_beside_its_splits_are_ambiguous(tmp_path):
    names = ["annotations/instances.json", "train2017/1.jpg", "val2017/2.jpg"]
    with pytest.raises(SourceAmbiguous) as caught:
        read(tmp_path, names)
    assert str(caught.value) == (
        "train2017, val2017 look like splits, but annotations beside them do not. Move the others away, pack each split on its"
        " own, or choose: --layout splits (all are splits), classes or files."
    )


@pytest.mark.parametrize(
    ("names", "empty", "match"),
    [
        (["train/cat/1.jpg"], ["val"], "there is no file to pack in val"),
        (["train/cat/1.jpg"], ["val/cat"], "there is no file to pack in val"),
        (["train/1.jpg"], ["val", "test"], "there is no file to pack in test, val"),
        (["README.md"], ["train", "val"], "there is no file to pack in train, val"),
    ],
)
def test_a_split_without_files_is_refused_by_name(tmp_path, names, empty, match):
    for name in empty:
        (tmp_path / name).mkdir(parents=True)
    with pytest.raises(SourceUnreadable) as caught:
        read(tmp_path, names)
    assert str(caught.value) == f"{match}. Remove what is empty, or pack the other splits on their own."


def test_classes_need_folders(tmp_path):
    with pytest.raises(SourceAmbiguous) as caught:
        read(tmp_path, ["1.jpg"], layout="classes")
    assert str(caught.value) == (
        "there are no folders to take as classes. Use --layout files, or name a folder that holds class folders."
    )


def test_splits_need_folders(tmp_path):
    with pytest.raises(SourceAmbiguous, match="no folder to take as a split"):
        read(tmp_path, ["1.jpg"], layout="splits")


PARALLEL_HINT = (
    "Parallel trees cannot be joined yet: put files that belong together side by side (0001.jpg 0001.txt), or choose "
    "--layout files (each file is a sample of its own)"
)


@pytest.mark.parametrize(
    ("names", "look"),
    [
        (["images/1.jpg", "masks/1.png"], "images, masks look like parallel trees, not like classes"),
        (["images/1.jpg"], "images looks like one of parallel trees, not like a class"),
        (["images/1.jpg", "labels/1.txt", "x/1"], "images, labels, x look like parallel trees, not like classes"),
    ],
)
def test_parallel_trees_are_ambiguous(tmp_path, names, look):
    with pytest.raises(SourceAmbiguous) as caught:
        read(tmp_path, names)
    assert str(caught.value) == f"{look}. {PARALLEL_HINT} or --layout classes (each folder is a class)."
    _, [draft] = read(tmp_path, names, layout="files")
    assert len(draft) == len(names)
    _, [draft] = read(tmp_path, names, layout="classes")
    assert draft.classes == [name.partition("/")[0] for name in names]


def test_parallel_trees_of_a_split_are_not_offered_as_classes(tmp_path):
    """--layout classes would make classes of the splits."""
    names = ["train/images/1.jpg", "train/masks/1.png", "val/images/1.jpg", "val/masks/1.png"]
    with pytest.raises(SourceAmbiguous) as caught:
        read(tmp_path, names)
    assert str(caught.value) == f"train: images, masks look like parallel trees, not like classes. {PARALLEL_HINT}."
    _, [draft] = read(tmp_path, names, layout="files")
    assert len(draft) == 4


def test_images_beside_class_folders_are_ambiguous(tmp_path):
    names = ["cat/1.jpg", "dog/1.jpg", "loose.jpg"]
    with pytest.raises(SourceAmbiguous, match=r"1 file \(loose.jpg ...\) beside 2 folders.*--layout classes"):
        read(tmp_path, names)
    _, [draft] = read(tmp_path, names, layout="classes")
    assert [item.source for item in draft.left_out] == ["loose.jpg"]
    assert draft.as_imagefolder
    _, [draft] = read(tmp_path, names, layout="files")
    assert len(draft) == 3 and not draft.left_out


def test_a_readme_beside_class_folders_is_left_out_and_listed(tmp_path):
    _, [draft] = read(tmp_path, ["cat/1.jpg", "README.md"])
    assert [(item.source, item.kind, item.why) for item in draft.left_out] == [
        ("README.md", "beside", "beside the class folders")
    ]


def test_one_image_extension_a_dataset(tmp_path):
    _, [draft] = read(tmp_path, ["cat/1.jpg", "cat/2.jpeg", "cat/3.png", "cat/4.JFIF"])
    assert draft.fields == ["jpg"] * 4
    assert any(why.startswith("images are called jpg in the shards, as most are (jpg 3, png 1)") for why in draft.why)


def test_two_images_in_a_sample_keep_their_fields(tmp_path):
    _, [draft] = read(tmp_path, ["1.jpg", "1.png", "2.jpg", "2.png"])
    assert draft.fields == ["jpg", "png"] * 2


def test_images_without_extension_are_images(tmp_path):
    jpeg = encoded(photo())
    listing = scan(str(tree(tmp_path, {"cat/1": jpeg, "cat/2.jpg": jpeg})))
    [draft] = read_layout(listing, PackConfig())
    assert draft.fields == ["jpg", "jpg"] and draft.stems == ["cat/1", "cat/2"]
    assert not draft.as_imagefolder  # torchvision goes by extension


@pytest.mark.parametrize("names", [[], [".hidden", ".DS_Store"]])
def test_nothing_to_pack(tmp_path, names):
    with pytest.raises(SourceUnreadable, match="there is no file to pack"):
        read(tmp_path, names)
