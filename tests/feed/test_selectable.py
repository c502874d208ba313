"""Views of a dataset: torch's Subset with everything that a dataset has; where, select, split."""

import json
import subprocess
import sys
from array import array
from multiprocessing.reduction import ForkingPickler
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import environment
from helpers import add_user_columns, flip_bit, make_captioned, make_photos, pack_photos, packed
from torch.utils.data import DataLoader, Subset, default_collate

import fastfeed
from fastfeed.archive.index import UserColumn
from fastfeed.errors import ShardDamaged, UsageError
from fastfeed.feed.dataset import PackedDataset
from fastfeed.trace import SlowestRecorder


def pixels(image) -> torch.Tensor:
    return torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8)


def same(one, other) -> bool:
    return len(one) == len(other) and all(bool((a[0] == b[0]).all()) and a[1] == b[1] for a, b in zip(one, other, strict=True))


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fourteen photos of two classes in three shards, with a column of each kind."""
    folder: Path = pack_photos(tmp_path_factory.mktemp("views"), each=7, shards=3)
    add_user_columns(
        folder,
        UserColumn("duration", "float64", array("d", [*range(13), float("nan")])),
        UserColumn("speaker", "text", [f"s{at % 4}" for at in range(14)]),
        UserColumn("clean", "bool", bytes(at % 3 == 0 for at in range(14))),
        UserColumn("step", "int64", array("q", range(100, 114))),
    )
    return folder


@pytest.fixture
def dataset(path: Path) -> PackedDataset:
    """The same, opened."""
    return fastfeed.open(path, transform=pixels)


# ------------------------------------------------------------------------------------------------ a view is a dataset
@pytest.mark.parametrize(
    "indices", [[5, 0, 13], [3, 3, -1], range(13, -1, -4), np.array([1, 2]), torch.tensor([7]), []], ids=str
)
def test_a_view_is_torchs_subset(dataset: PackedDataset, indices):
    view, subset = dataset.select(indices), Subset(dataset, [int(at) for at in indices])
    assert same([view[at] for at in range(len(view))], [subset[at] for at in range(len(subset))])
    assert same(list(view), [subset[at] for at in range(len(subset))])
    assert same(view.__getitems__(range(len(view))), [subset[at] for at in range(len(subset))])
    if len(view):
        batches = [torch.cat([rows for rows, _ in DataLoader(data, batch_size=2)]) for data in (view, subset)]
        assert bool((batches[0] == batches[1]).all())


def test_a_view_has_all_that_a_dataset_has(dataset: PackedDataset):
    assert dataset.targets.tolist() == [0] * 7 + [1] * 7
    view = dataset.select([13, 2, 2])
    assert type(view) is PackedDataset
    assert view.classes == ["cat", "dog"] and view.class_to_idx == {"cat": 0, "dog": 1}
    assert view.targets.tolist() == [1, 0, 0] and not view.targets.flags.writeable and view.targets is view.targets
    assert list(view.samples) == [("dog/006.jpg", 1), ("cat/002.jpg", 0), ("cat/002.jpg", 0)] == list(view.imgs)
    assert view.samples[-1] == ("cat/002.jpg", 0) and view.samples[0:1] == [("dog/006.jpg", 1)]
    assert view.columns == dataset.columns
    assert view.column("step").tolist() == [113, 102, 102]
    assert list(view.column("speaker")) == ["s1", "s2", "s2"]
    assert list(view.column("source")) == [b"dog/006.jpg", b"cat/002.jpg", b"cat/002.jpg"]
    assert view.column("size", "cls").tolist() == [1, 1, 1]
    identity = view.identity(1)
    assert (identity.position, identity.key, identity.source) == (2, "cat/002", b"cat/002.jpg")
    assert view.identity(-3).position == 13
    assert view.positions.tolist() == [13, 2, 2]
    assert dataset.positions.tolist() == list(range(14))
    assert view.open(0, "jpg").read() == dataset.open(13, "jpg").read()
    assert view.digest == dataset.digest
    assert "3 of 14 samples of cls+jpg" in repr(view)
    assert "PackedDataset" in repr(dataset) and " of 14 samples" not in repr(dataset)
    with pytest.raises(IndexError, match="position 3 is outside of a dataset of 3 samples"):
        view[3]


def test_a_view_keeps_its_own_transform(dataset: PackedDataset):
    train, val = dataset.split(0.5, seed=1)
    val.transform = lambda image: image.size
    assert val[0] == ((16, 12), val.targets[0])
    assert isinstance(train[0][0], torch.Tensor) and isinstance(dataset[0][0], torch.Tensor)


def test_views_of_views(dataset: PackedDataset):
    outer = dataset.select([9, 7, 5, 3, 1])
    assert outer.select([-1, 0]).positions.tolist() == [1, 9]
    assert outer.where([True, False, True, False, False]).positions.tolist() == [9, 5]
    assert outer.where("step > 104").where("step < 109").positions.tolist() == [7, 5]
    assert outer.where("speaker == 's1'").positions.tolist() == [9, 5, 1]
    assert sorted(at for part in outer.split(0.4) for at in part.positions.tolist()) == [1, 3, 5, 7, 9]


def test_errors_name_the_place_in_the_packed_dataset(tmp_path: Path):
    folder = pack_photos(tmp_path)
    place = next(place for place in fastfeed.open(folder)._archive.places(4) if place.field == "jpg")
    flip_bit(folder / place.shard, place.start + 40)
    view = fastfeed.open(folder).select([5, 4])
    view[0]
    with pytest.raises(ShardDamaged, match="sample 4, key 'dog/001'"):
        view[1]


def test_the_recorder_hears_positions_that_the_view_takes(path: Path):
    recorder = SlowestRecorder(keep=100)
    view = fastfeed.open(path, recorder=recorder).select([13, 5])
    view[1], view.__getitems__([0])
    assert {span.position for span in recorder.slowest()} == {0, 1}
    assert {view.identity(span.position).position for span in recorder.slowest()} == {13, 5}


# ------------------------------------------------------------------------------------------------ where
@pytest.mark.parametrize(
    ("condition", "positions"),
    [
        ("step >= 110", [10, 11, 12, 13]),
        ("duration < 2 or missing(duration)", [0, 1, 13]),
        ("label == 1 and clean", [9, 12]),
        ("width >= 256", []),
        ("width == 16 and height == 12 and bytes > 10 and step < 102", [0, 1]),
        ("key in ('cat/003', 'dog/000') or source.endswith('6.jpg')", [3, 6, 7, 13]),
        ("col('size', 'cls') == 1 and x.speaker == 's3'", [3, 7, 11]),
        (np.arange(14) % 5 == 0, [0, 5, 10]),
        ([3, -1], [3, 13]),
        (torch.arange(14) > 11, [12, 13]),
    ],
    ids=str,
)
def test_where(dataset: PackedDataset, condition, positions: list[int]):
    assert dataset.where(condition).positions.tolist() == positions


def test_an_empty_view(dataset: PackedDataset):
    view = dataset.where("False")
    assert (len(view), list(view), view.targets.tolist(), list(view.column("speaker")), list(view.samples)) == (
        0,
        [],
        [],
        [],
        [],
    )
    assert len(view.where("step > 0 and speaker == 's1' and 's' in speaker and len(speaker) == 2")) == 0
    assert len(ForkingPickler.loads(ForkingPickler.dumps(fastfeed.open(dataset.path).where("False")))) == 0


def test_conditions_that_are_none(dataset: PackedDataset):
    with pytest.raises(
        UsageError, match=r"there is no column 'durations': expected one of clean, codec, .*Did you mean duration\?"
    ):
        dataset.where("durations > 3")
    with pytest.raises(UsageError, match="a mask has one truth value for each sample"):
        dataset.where([True])
    with pytest.raises(IndexError):
        dataset.where([14])


def test_several_fields_must_be_told_apart(tmp_path: Path):
    packed(make_captioned(tmp_path / "src"), tmp_path / "packed")
    (tmp_path / "src" / "000.txt").unlink()
    dataset = fastfeed.open(tmp_path / "packed", fields=["jpg", "txt"])
    assert dataset.where("col('size', 'txt') == 10").positions.tolist() == [0, 1, 2, 3]


# ------------------------------------------------------------------------------------------------ split
def test_split(dataset: PackedDataset):
    train, val, test = dataset.split(0.5, 0.25, 0.25, by="label", seed=3)
    assert sorted([*train.positions, *val.positions, *test.positions]) == list(range(14))
    assert [np.bincount(part.targets, minlength=2).tolist() for part in (train, val, test)] in (
        [[4, 3], [2, 2], [1, 2]], [[3, 4], [2, 2], [2, 1]], [[4, 3], [1, 2], [2, 2]], [[3, 4], [2, 1], [2, 2]],
        [[4, 4], [2, 1], [1, 2]], [[4, 4], [1, 2], [2, 1]], [[3, 3], [2, 2], [2, 2]],
    )  # fmt: skip
    assert [part.positions.tolist() for part in dataset.split(0.5, 0.25, by="label", seed=3)] == [
        part.positions.tolist() for part in (train, val, test)
    ]
    assert train.classes == val.classes == dataset.classes


def test_split_by_any_column_or_array(dataset: PackedDataset):
    for by in ("speaker", "clean", "duration", "step", "key", None, np.arange(14) % 2, list("ab" * 7)):
        parts = dataset.split(0.5, by=by)
        assert sorted(at for part in parts for at in part.positions) == list(range(14))
    assert [np.bincount(part.positions % 2).tolist() for part in dataset.split(4 / 7, by=np.arange(14) % 2)] == [[4, 4], [3, 3]]


def test_split_by_group(dataset: PackedDataset):
    parts = dataset.split(0.5, group="speaker", by="label")
    speakers = [set(part.column("speaker")) for part in parts]
    assert speakers[0] & speakers[1] == set() and speakers[0] | speakers[1] == {"s0", "s1", "s2", "s3"}


def test_splits_that_are_none(dataset: PackedDataset):
    with pytest.raises(UsageError, match=r"a part of the split would be empty .*got 14 samples: 14 \+ 0"):
        dataset.split(0.99)
    with pytest.raises(UsageError, match="there is no column 'none'"):
        dataset.split(0.5, by="none")
    with pytest.raises(UsageError, match="each between 0 and 1"):
        dataset.split(2)
    with pytest.raises(UsageError, match="seed is a whole number"):
        dataset.split(0.5, seed=-1)


# ------------------------------------------------------------------------------------------------ columns in samples
def test_fields_may_name_columns(path: Path):
    dataset = fastfeed.open(path, fields=["jpg", "speaker", "duration", "clean", "step", "key", "label", "size"])
    assert dataset.fields == ("jpg", "speaker", "duration", "clean", "step", "key", "label", "size")
    sample = dataset[9]
    image = sample.pop("jpg")
    assert image.size == (16, 12)
    size = fastfeed.open(path).column("size")[9]
    assert sample == {"speaker": "s1", "duration": 9.0, "clean": True, "step": 109, "key": "dog/002", "label": 1, "size": size}
    view = dataset.select([13, 9])
    assert view[1]["speaker"] == "s1" and view.__getitems__([0, 1])[1]["key"] == "dog/002"
    batch = default_collate([{**one, "jpg": 0} for one in view])
    assert batch["step"].tolist() == [113, 109] and batch["speaker"] == ["s1", "s1"]


def test_an_image_a_class_and_a_column_are_a_dict(path: Path):
    dataset = fastfeed.open(path, fields=["cls", "jpg", "speaker"], transform={"jpg": pixels, "speaker": str.upper})
    assert {name: type(value) for name, value in dataset[3].items()} == {"cls": int, "jpg": torch.Tensor, "speaker": str}
    assert dataset[3]["speaker"] == "S3"
    assert list(fastfeed.open(path, fields=["speaker"])[3].items()) == [("speaker", "s3")]


def test_columns_that_no_sample_can_have(path: Path):
    with pytest.raises(
        UsageError, match=r"fields names none, which the dataset has not .*among cls, jpg, or of the columns clean"
    ):
        fastfeed.open(path, fields=["jpg", "none"])
    with pytest.raises(UsageError, match="decoders names speaker, which the dataset has not"):
        fastfeed.open(path, fields=["jpg", "speaker"], decoders={"speaker": "raw"})
    with pytest.raises(UsageError, match=r"transform names step, which the samples have not .*expected among jpg, speaker"):
        fastfeed.open(path, fields=["jpg", "speaker"], transform={"step": str})


def test_a_field_comes_before_a_column_of_its_name(tmp_path: Path):
    packed(make_captioned(tmp_path / "src"), tmp_path / "packed")
    add_user_columns(tmp_path / "packed", UserColumn("txt", "text", list("abcd")))
    assert fastfeed.open(tmp_path / "packed", fields=["txt"])[0] == {"txt": "picture 0\n"}
    assert fastfeed.open(tmp_path / "packed", fields=["x.txt"])[0] == {"x.txt": "a"}


# ------------------------------------------------------------------------------------------------ in other processes
def test_a_view_pickles_to_a_path_and_a_few_bytes(path: Path):
    dataset = fastfeed.open(path, fields=["jpg", "speaker"])
    view = dataset.where("step != 105")
    raw = bytes(ForkingPickler.dumps(view))
    assert len(raw) < len(bytes(ForkingPickler.dumps(dataset))) + 200
    again = ForkingPickler.loads(raw)
    assert again.positions.tolist() == view.positions.tolist()
    assert again[7]["speaker"] == view[7]["speaker"] and again.fields == view.fields


SPAWN = """
import json, sys, warnings
import fastfeed, torch
from torch.utils.data import DataLoader

def pixels(image):
    return torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8)

def main():
    warnings.simplefilter("error")
    dataset = fastfeed.open(sys.argv[1], fields=["jpg", "cls", "speaker", "score"], transform={"jpg": pixels},
                            extra={"score": list(range(14))})
    view = dataset.where("speaker in ('s1', 's3') and score != 3")
    wanted = [(sample["speaker"], sample["score"], int(sample["jpg"].sum())) for sample in view]
    found = {}
    for method in ("fork", "spawn", "forkserver"):
        loader = DataLoader(view, batch_size=2, num_workers=2, multiprocessing_context=method)
        batches = list(loader)
        got = [(speaker, int(score), int(image.sum())) for batch in batches
               for speaker, score, image in zip(batch["speaker"], batch["score"], batch["jpg"], strict=True)]
        found[method] = got == wanted
    print(json.dumps({"found": found, "count": len(wanted)}))

if __name__ == "__main__":
    main()
"""


@pytest.mark.long
def test_a_view_under_every_start_method(path: Path, tmp_path: Path):
    script = tmp_path / "spawn.py"
    script.write_text(SPAWN)
    settings = {**environment(), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = subprocess.run([sys.executable, str(script), str(path)], env=settings, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == {"found": {"fork": True, "spawn": True, "forkserver": True}, "count": 6}


# ------------------------------------------------------------------------------------------------ from a list to a view
def test_columns_of_a_list_that_was_packed(tmp_path: Path):
    make_photos(tmp_path / "src", each=4)
    rows = [
        f"{name}/{at:03d}.jpg,{at},{at / 2},{'true' if at else 'false'},spk{at % 2}"
        for name in ("cat", "dog")
        for at in range(4)
    ]
    (tmp_path / "src" / "list.csv").write_text("\n".join(["path,label,duration,clean,speaker", *rows]))
    packed(tmp_path / "src" / "list.csv", tmp_path / "packed", label="label")
    dataset = fastfeed.open(tmp_path / "packed")
    view = dataset.where("duration >= 0.5 and clean and speaker == 'spk1'")
    assert [(sample.source, sample.key) for sample in map(view.identity, range(len(view)))] == [
        (f"{name}/{at:03d}.jpg".encode(), f"{name}/{at:03d}") for name in ("cat", "dog") for at in (1, 3)
    ]
    assert {type(dataset.column(name)).__name__ for name in ("duration", "clean")} == {"ndarray"}
    speakers = [set(part.column("speaker")) for part in dataset.split(0.5, group="speaker")]
    assert sorted(map(sorted, speakers)) == [["spk0"], ["spk1"]]
    assert fastfeed.verify(tmp_path / "packed").ok
