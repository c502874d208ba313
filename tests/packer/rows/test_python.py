import dataclasses
import io
import json
import os
import re
import sys
import threading
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from helpers import packed, photo
from packing import left_out_of, manifest_of
from rowsets import Samples, fields_of, labels_of, photos, proven, read_rows
from torch.utils.data import ConcatDataset, Dataset, Subset, TensorDataset
from torchvision.datasets import ImageFolder

import fastfeed
from fastfeed.archive.dataset import Archive
from fastfeed.config import row_config
from fastfeed.errors import SourceUnreadable, UsageError
from fastfeed.packer.rows.python import PythonRows, as_dict
from fastfeed.packer.rows.source import PROBES, RowFailed


class Pair(NamedTuple):
    jpg: bytes
    cls: int


@dataclasses.dataclass
class Sample:
    jpg: bytes
    cls: int


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        ({"a": 1}, {"a": 1}), ((b"x", 3), {"item": b"x", "cls": 3}), ([b"x", np.int64(3)], {"item": b"x", "cls": 3}),
        ((b"x", torch.tensor(3)), {"item": b"x", "cls": 3}), ((b"x", 0.5), {"item": b"x", "item1": 0.5}),
        ((b"x", "cat"), {"item": b"x", "item1": "cat"}), ((b"x", True), {"item": b"x", "item1": True}),
        ((b"x", b"y", 3), {"item0": b"x", "item1": b"y", "item2": 3}), ((b"x",), {"item0": b"x"}), (b"x", {"item": b"x"}),
        ([5, 7], {"item": [5, 7]}), ([1, "a", 0.5], {"item": [1, "a", 0.5]}), ((5, 7), {"item": 5, "cls": 7}),
        (Pair(b"x", 1), {"jpg": b"x", "cls": 1}), (Sample(b"x", 1), {"jpg": b"x", "cls": 1}), (None, {"item": None}),
    ],
    ids=map(str, range(16)),
)  # fmt: skip
def test_samples_by_name(item, expected):
    assert as_dict(item) == expected


def test_pairs_with_an_array_or_a_name():
    mask = np.zeros((2, 2))
    assert as_dict((b"x", mask)) == {"item": b"x", "item1": mask}
    assert as_dict((b"x", "cat"), named=True) == {"item": b"x", "cls": "cat"}
    with pytest.raises(UsageError, match="a sample is a dict with the key 1: expected keys that are str, got int"):
        as_dict({1: "x"})


# ------------------------------------------------------------------------------------------------- datasets of all sorts


def test_pairs_of_an_image_and_a_class(tmp_path):
    images = photos(6)
    result = packed(Samples([(image, at % 3) for at, image in enumerate(images)]), tmp_path / "out", shards=2)
    assert [s.fields for s in proven(tmp_path / "out")] == [
        {"jpg": image, "cls": str(at % 3).encode()} for at, image in enumerate(images)
    ]
    assert manifest_of(tmp_path / "out")["classes"] == ["0", "1", "2"]
    assert result.datasets[0].fields == ("cls", "jpg") and result.datasets[0].classes == 3
    image, target = fastfeed.open(tmp_path / "out")[4]
    assert image.size == (16, 12) and target == 1


def test_dicts_with_all_kinds_of_values(tmp_path):
    images = photos(5)
    rows = [
        {"image": image, "label": at % 2, "caption": f"bild {at} ä", "score": at / 4, "big": 2**70 + at, "ok": at > 2,
         "boxes": [[at, 1.5], []], "features": np.arange(at, dtype=">f4"), "depth": torch.full((2, 2), at)}
        for at, image in enumerate(images)
    ]  # fmt: skip
    packed(Samples(rows), tmp_path / "out", label="label")
    found = fields_of(tmp_path / "out")
    for at, (fields, row) in enumerate(zip(found, rows, strict=True)):
        assert fields["jpg"] == row["image"] and fields["txt"].decode() == row["caption"]
        rest = {name: row[name] for name in ("score", "big", "ok", "boxes")}
        assert json.loads(fields["json"]) == rest
        features = np.lib.format.read_array(io.BytesIO(fields["npy"]))
        assert features.dtype == ">f4" and np.array_equal(features, row["features"])
        assert np.lib.format.read_array(io.BytesIO(fields["depth.npy"])).tolist() == [[at, at], [at, at]]
    assert labels_of(tmp_path / "out") == ["0", "1", "0", "1", "0"]
    columns = user_columns(tmp_path / "out")
    assert columns["score"] == [0.0, 0.25, 0.5, 0.75, 1.0] and columns["ok"] == [False, False, False, True, True]
    assert columns["big"] == [str(2**70 + at) for at in range(5)]


def user_columns(path):
    """Typed columns as the index has them."""
    index = Archive(str(path)).index
    return {name: list(index.user_column(name)) for name in index.user}


def test_lambdas_closures_and_locks_are_inherited(tmp_path):
    """Nothing is pickled: a fork has what the parent has, open files too."""
    images, lock = photos(4), threading.Lock()
    (tmp_path / "blob").write_bytes(b"".join(images))
    starts = [sum(map(len, images[:at])) for at in range(5)]
    with open(tmp_path / "blob", "rb") as file:

        class Local(Dataset[Any]):
            read = staticmethod(lambda at: (file.seek(starts[at]), file.read(starts[at + 1] - starts[at]))[1])

            def __len__(self):
                return 4

            def __getitem__(self, at):
                with lock:
                    return self.read(at), at

        packed(Local(), tmp_path / "out", shards=2)
    assert [fields["jpg"] for fields in fields_of(tmp_path / "out")] == images


def test_subsets_and_concatenations_of_torch(tmp_path):
    images = photos(6)
    whole: ConcatDataset[Any] = ConcatDataset([Samples([(image, at)]) for at, image in enumerate(images)])
    packed(Subset(whole, [5, 0, 3]), tmp_path / "out")
    assert [fields["jpg"] for fields in fields_of(tmp_path / "out")] == [images[5], images[0], images[3]]
    assert labels_of(tmp_path / "out") == ["5", "0", "3"]


def test_datasets_that_give_many_at_once(tmp_path):
    asked = []

    class Many(Samples):
        def __getitems__(self, numbers):
            asked.append(len(numbers))
            return [self.items[at] for at in numbers]

    rows = PythonRows(Many([{"txt": f"{at}"} for at in range(200)]), row_config({}))
    rows.facts()
    assert [row.members[0].data for row in read_rows(rows, range(200))] == [str(at).encode() for at in range(200)]
    assert asked == [64, 64, 64, 8]
    asked.clear()
    large = PythonRows(Many([{"bin": bytes(5 << 20)}] * 12), row_config({}))
    large.facts()
    assert len(list(large.rows(range(12)))) == 12 and max(asked) <= 3  # no more than some 16 MiB at once


def test_a_failure_among_many_is_found(tmp_path):
    class Many(Samples):
        def __getitems__(self, numbers):
            return [self[at] for at in numbers]

    rows = PythonRows(Many([{"txt": f"{at}"} for at in range(300)]), row_config({}))
    rows.facts()
    rows.dataset.items[200] = ValueError("no\x00 good")
    found = list(rows.rows(range(190, 210)))
    failed = found[10]
    assert isinstance(failed, RowFailed) and (failed.number, failed.name, failed.kind) == (200, "sample 200", "unreadable")
    assert re.fullmatch(r"ValueError: no\x00 good \(rowsets.py:\d+\)", failed.why)
    assert sum(isinstance(row, RowFailed) for row in found) == 1

    class Short(Samples):
        def __getitems__(self, numbers):
            return [self.items[numbers[0]]]

    rows = PythonRows(Short([{"txt": f"{at}"} for at in range(3)]), row_config({}))
    rows.facts()
    assert [row.members[0].data for row in read_rows(rows, [2, 0])] == [b"2", b"0"]


def test_tensors_of_tensors(tmp_path):
    packed(TensorDataset(torch.arange(6.0).reshape(3, 2), torch.tensor([2, 0, 1])), tmp_path / "out")
    found = [np.lib.format.read_array(io.BytesIO(fields["npy"])).tolist() for fields in fields_of(tmp_path / "out")]
    assert found == [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]
    assert labels_of(tmp_path / "out") == ["2", "0", "1"]


def test_an_image_folder_that_gives_bytes(tmp_path):
    for name, at in (("cat", 0), ("dog", 1)):
        (tmp_path / "s" / name).mkdir(parents=True)
        (tmp_path / "s" / name / "1.jpg").write_bytes(photos(2)[at])

    def read(path):
        with open(path, "rb") as file:
            return file.read()

    packed(ImageFolder(str(tmp_path / "s"), loader=read), tmp_path / "out", classes=["cat", "dog"])
    assert labels_of(tmp_path / "out") == ["cat", "dog"]
    with pytest.raises(
        UsageError, match="sample 0 cannot be packed: column 'item' holds a decoded image: how shall it be stored"
    ):
        packed(ImageFolder(str(tmp_path / "s")), tmp_path / "none")
    assert not (tmp_path / "none").exists()
    packed(ImageFolder(str(tmp_path / "s")), tmp_path / "png", encode={"item": "png"})
    assert fastfeed.open(tmp_path / "png")[1][0].tobytes() == ImageFolder(str(tmp_path / "s"))[1][0].tobytes()


def test_samples_that_differ_in_their_fields(tmp_path):
    rows = [{"jpg": photos(1)[0]}, {"txt": "words"}, {"jpg": b"x", "json": {"a": 1}}, {"note": 5}]
    packed(Samples(rows), tmp_path / "out")
    assert fields_of(tmp_path / "out") == [
        {"jpg": rows[0]["jpg"]}, {"txt": b"words"}, {"jpg": b"x", "json": b'{"a": 1}'}, {"row.json": b'{"note": 5}'},
    ]  # fmt: skip


def test_a_list_is_a_dataset(tmp_path):
    packed([{"txt": "a"}, {"txt": "b"}], tmp_path / "out")
    assert fields_of(tmp_path / "out") == [{"txt": b"a"}, {"txt": b"b"}]
    packed(["one text", "another"], tmp_path / "texts")
    assert fields_of(tmp_path / "texts") == [{"txt": b"one text"}, {"txt": b"another"}]


# ------------------------------------------------------------------------------------------------------------ classes


def test_names_of_classes(tmp_path):
    names = ["dog", "cat", "dog"]
    rows = [{"jpg": image, "label": name} for image, name in zip(photos(3), names, strict=True)]
    with pytest.raises(UsageError, match=r"sample 0 cannot be packed: the class is the text 'dog', and nothing says.*classes="):
        packed(Samples(rows), tmp_path / "out", label="label")
    assert not (tmp_path / "out").exists()
    packed(Samples(rows), tmp_path / "out", label="label", classes=["cat", "dog"])
    assert labels_of(tmp_path / "out") == names
    assert [s.label for s in proven(tmp_path / "out")] == [1, 0, 1]
    packed(Samples([(row["jpg"], row["label"]) for row in rows]), tmp_path / "pairs", classes=["dog", "cat"])
    assert labels_of(tmp_path / "pairs") == names and [s.label for s in proven(tmp_path / "pairs")] == [0, 1, 0]
    with pytest.raises(UsageError, match="the class 'cat' is not among the 1 names that are known"):
        packed(Samples(rows), tmp_path / "none", label="label", classes=["dog"])


def test_whole_numbers_of_every_kind_are_classes(tmp_path):
    rows = [(b"x", 1), (b"y", np.int64(2)), (b"z", np.uint8(0)), (b"w", torch.tensor(1))]
    packed(Samples(rows), tmp_path / "out")
    assert [s.label for s in proven(tmp_path / "out")] == [1, 2, 0, 1]
    packed(Samples([{"txt": "a", "y": np.int32(4)}]), tmp_path / "column", label="y")
    assert [s.label for s in proven(tmp_path / "column")] == [4]


def test_a_sample_without_class_among_others_is_named_where_it_is_read(tmp_path):
    rows: list[Any] = [{"txt": f"{at}", "cls": at % 2} for at in range(200)]
    missing: dict[int, Any] = {65: {"txt": "65"}, 103: {"txt": "103", "cls": -1}}
    probed = set(PythonRows(Samples(rows), row_config({}))._probes(200))
    assert not probed & set(missing) and len(probed) == PROBES
    for at, row in missing.items():
        rows[at] = row
    with pytest.raises(SourceUnreadable, match=r"2 samples cannot be packed \(sample 65: it has no class.*; sample 103: "):
        packed(Samples(rows), tmp_path / "out")
    result = packed(Samples(rows), tmp_path / "out", on_error="skip")
    assert (result.skipped, result.datasets[0].samples) == (2, 198)
    assert left_out_of(tmp_path / "out") == {"sample 65": "unreadable", "sample 103": "unreadable"}


# ------------------------------------------------------------------------------------------------------- what goes wrong


def test_a_broken_sample_is_named(tmp_path):
    rows: list[Any] = [{"txt": f"{at}"} for at in range(10)]
    rows[7] = OSError(2, "No such file", "x.jpg")
    with pytest.raises(
        SourceUnreadable,
        match=r"sample 7 cannot be read \(FileNotFoundError: \[Errno 2\] No such file: 'x.jpg' \(rowsets.py:\d+\)\)",
    ):
        packed(Samples(rows), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_broken_samples_beyond_those_that_are_looked_at(tmp_path):
    rows: list[Any] = [{"txt": f"{at}"} for at in range(300)]
    broken = [at for at in range(300) if at not in PythonRows(Samples(rows), row_config({}))._probes(300)][5:8]
    for at in broken:
        rows[at] = KeyError("gone")
    names = "; ".join(rf"sample {at}: KeyError: 'gone' \(rowsets.py:\d+\)" for at in broken)
    with pytest.raises(SourceUnreadable, match=rf"3 samples cannot be packed \({names}\) .*mend them and run the same again"):
        packed(Samples(rows), tmp_path / "out")
    before = packed(Samples(rows), tmp_path / "out", on_error="skip")
    assert before.skipped == 3 and before.datasets[0].samples == 297
    kept = [at for at in range(300) if at not in broken]
    assert [fields["txt"] for fields in fields_of(tmp_path / "out")] == [str(at).encode() for at in kept]
    assert [s.key for s in proven(tmp_path / "out")] == [f"{at:09d}" for at in kept]
    again = packed(Samples(rows), tmp_path / "out", on_error="skip")
    assert again.already_packed and again.skipped == 3 and again.datasets[0].samples == 297


def test_an_empty_dataset(tmp_path):
    with pytest.raises(SourceUnreadable, match=r"the dataset has no sample: got rowsets.Samples"):
        packed(Samples([]), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_options_that_are_not_for_a_dataset(tmp_path):
    with pytest.raises(UsageError, match="key= is for tables and lists: samples of a Python dataset are numbered"):
        packed(Samples([{"txt": "a"}]), tmp_path / "out", key="txt")
    with pytest.raises(UsageError, match="no sample that was looked at has the label column 'lable': expected one of txt"):
        packed(Samples([{"txt": "a"}]), tmp_path / "out", label="lable")


def test_a_random_dataset_is_told(tmp_path):
    state = iter(range(1000))

    class Random(Samples):
        def __getitem__(self, at):
            return {"txt": f"{next(state)}"}

    result = packed(Random(range(3)), tmp_path / "out")
    assert len(result.notes) == 1
    assert result.notes[0].startswith("sample 0 is another at each reading (a random transform?): an interrupted run cannot be")


def test_large_samples_are_not_all_looked_at(tmp_path):
    class Large(Samples):
        def __getitem__(self, at):
            with open(tmp_path / "asked", "a") as file:
                file.write(f"{at}\n")
            return {"bin": bytes(10 << 20)}

    facts = PythonRows(Large(range(1000)), row_config({})).facts()
    asked = list(map(int, (tmp_path / "asked").read_text().split()))
    assert len(asked) <= 9 and max(asked) > 500 and min(asked) == 0
    assert facts.source_bytes == 1000 * (10 << 20) and not facts.exact


def test_what_a_sample_prints_disturbs_nothing(tmp_path):
    class Loud(Samples):
        def __getitem__(self, at):
            sys.stdout.write("a line\n" * 2000)
            sys.stderr.write("an error\n")
            os.system("echo from a child")
            sys.stdout.write('{"event": "done", "shard": 0}\n')
            return {"txt": f"{at}"}

    packed(Loud(range(20)), tmp_path / "out", shards=4, workers=2)
    assert [fields["txt"] for fields in fields_of(tmp_path / "out")] == [str(at).encode() for at in range(20)]


def test_images_of_pillow_in_a_dict(tmp_path):
    packed(Samples([{"mask": photo(at, mode="L")} for at in range(3)]), tmp_path / "out", encode={"mask": "png"})
    ds = fastfeed.open(tmp_path / "out")
    assert [ds[at]["png"].tobytes() for at in range(3)] == [photo(at, mode="L").tobytes() for at in range(3)]


def test_classes_that_no_folder_can_be_called(tmp_path):
    classes = ["Sci/Tech", "", ".", "..", "a\0b"]
    packed(
        [{"jpg": image, "cls": name} for image, name in zip(photos(5), classes, strict=True)], tmp_path / "a", classes=classes
    )
    assert labels_of(tmp_path / "a") == classes and fastfeed.open(tmp_path / "a").classes == classes
    fastfeed.info(tmp_path / "a")
    fastfeed.unpack(tmp_path / "a", tmp_path / "out")
    assert sorted(os.listdir(tmp_path / "out")) == [f"{at:09d}.jpg" for at in range(5)]


@pytest.mark.parametrize("length", [-1, 2**63, 1.5, "a", None])
def test_a_length_that_is_none(tmp_path, length):
    class Wrong(Samples):
        def __len__(self):
            return length

    with pytest.raises(
        SourceUnreadable, match=r"the dataset does not say how many samples it has \(\w+Error: .*iter\(dataset\)"
    ):
        packed(Wrong([{"jpg": b"x"}]), tmp_path / "out")


def test_a_sample_that_holds_itself_or_ends_the_program(tmp_path):
    own: dict[str, Any] = {"a": 1}
    own.update(me=own, again=own)
    for kind in (list, iter):
        with pytest.raises(UsageError, match="column 'd' is nested too deep, or holds itself"):
            packed(kind([{"jpg": b"x", "d": own}] * 2), tmp_path / kind.__name__)
    with pytest.raises(SourceUnreadable, match=r"sample 1 cannot be read \(SystemExit: 5"):
        packed(Samples([{"jpg": b"x"}, SystemExit(5)]), tmp_path / "first")
    late = Samples([{"txt": "x"} for _ in range(300)])
    late.items[1] = SystemExit(5)  # beyond those that are looked at before
    result = packed(late, tmp_path / "late", on_error="skip", workers=1)
    assert "SystemExit: 5" in result.left_out[0].why

    def ends():
        yield {"jpg": b"x"}
        raise SystemExit(5)

    with pytest.raises(SourceUnreadable, match="the iterable raised SystemExit at sample 1: 5"):
        packed(ends(), tmp_path / "stream")
