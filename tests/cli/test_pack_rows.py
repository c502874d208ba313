"""``fastfeed pack`` of what is no folder: each option reaches the packer, errors have words and exit codes."""

import json
import re
import textwrap
from pathlib import Path

import pytest
from commands import done, on_a_terminal, record, refused, run
from packing import manifest_of, tree
from rowsets import fields_of, labels_of, photos, proven

from fastfeed.archive.dataset import Archive
from fastfeed.packer.result import PackResult

DATA = """
    import os, sys
    print("a word of the module")

    class Data:
        def __len__(self):
            return 6
        def __getitem__(self, at):
            print("a word of sample", at)
            os.system("echo a word of a child")
            return {"txt": f"text {at}", "cls": "ab"[at % 2], "n": at}

    def stream():
        for at in range(6):
            print("a word of the stream")
            yield {"txt": f"text {at}"}

    def broken():
        raise ValueError("no data")

    def dies():
        class Dying(Data):
            def __getitem__(self, at):
                if at == 77:
                    os._exit(3)
                return {"txt": "x"}
            def __len__(self):
                return 200
        return Dying()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tree(tmp_path, {f"images/{at}.jpg": image for at, image in enumerate(photos(4))})
    tree(tmp_path, {f"masks/{at}.png": f"mask {at}" for at in range(4)})
    tree(tmp_path, {"list.csv": "id,kind,width\n" + "".join(f"{at},{'ab'[at % 2]},{at}\n" for at in range(4))})
    tree(tmp_path, {"rows.jsonl": "".join(json.dumps({"text": f"t{at}", "n": at}) + "\n" for at in range(4))})
    tree(tmp_path, {"data.py": textwrap.dedent(DATA), "classes.txt": "b\na\n\n"})
    return tmp_path


def test_a_list(folder: Path):
    text = done(
        "pack", folder / "list.csv", folder / "out", "--field", "image=images/{id}.jpg", "--field", "mask=masks/{id}.png",
        "--label", "kind", "--column", "width", env={"COLUMNS": "200"},
    )  # fmt: skip
    for words in (
        "- a list of 4 rows", "- the class is column 'kind': 2 names, numbered in sorted order",
        "- each row is a sample of jpg, mask.png", "- typed columns: width (int64)", "Packed 8 files",
        "ds[0] is a dict by field",
    ):  # fmt: skip
        assert words in text
    assert [fields["jpg"] for fields in fields_of(folder / "out")] == photos(4)
    assert labels_of(folder / "out") == ["a", "b", "a", "b"]
    assert set(Archive(str(folder / "out")).index.user) == {"width"}
    again = done(
        "pack", folder / "list.csv", folder / "out", "--field", "image=images/{id}.jpg", "--field", "mask=masks/{id}.png",
        "--label", "kind", "--column", "width", env={"COLUMNS": "200"},
    )  # fmt: skip
    assert "nothing to do" in " ".join(again.split())  # where a line breaks depends on how long the folder's name is


def test_json_lines(folder: Path):
    found = record("pack", folder / "rows.jsonl", folder / "out", "--label", "n", "--shards", 2, kind=PackResult)
    (dataset,) = found["datasets"]
    assert (dataset["samples"], dataset["fields"], dataset["classes"]) == (4, ["cls", "json"], 4)
    assert len(proven(folder / "out")) == 4


def test_a_python_dataset_with_classes(folder: Path):
    """What it prints goes to stderr: stdout is ours."""
    found = run("pack", "data.py:Data", folder / "out", "--classes", folder / "classes.txt", cwd=folder)
    assert found.returncode == 0 and "Packed 6 samples" in found.stdout and "a word of" not in found.stdout
    for words in ("a word of the module", "a word of sample 5", "a word of a child"):
        assert words in found.stderr
    assert "- a dataset of 6 samples (data.Data)" in found.stdout and "cls json txt" in found.stdout
    assert labels_of(folder / "out") == ["a", "b"] * 3 and manifest_of(folder / "out")["classes"] == ["b", "a"]


@pytest.mark.parametrize("name", ["Data", "stream"])
def test_json_is_one_object_whatever_is_printed(folder: Path, name: str):
    found = run("pack", f"data.py:{name}", folder / "out", "--classes", "classes.txt", "--json", cwd=folder)
    assert found.returncode == 0 and json.loads(found.stdout)["datasets"][0]["samples"] == 6
    assert "a word of" in found.stderr


def test_a_module_on_the_path(folder: Path):
    tree(folder, {"mine/__init__.py": "", "mine/data.py": "samples = [{'txt': 'a'}, {'txt': 'b'}]\n"})
    assert "Packed 2 samples" in done("pack", "mine.data:samples", folder / "out", cwd=folder)


@pytest.mark.parametrize(
    ("arguments", "code", "match"),
    [
        (["list.csv"], 3, "no column of the list names files below"),
        (["list.csv", "--field", "image=images/{nr}.jpg"], 2, "names column 'nr', which is not there"),
        (["list.csv", "--field", "image=images/{id}.jpg", "--label", "kid"], 2, "has no column 'kid'"),
        (["list.csv", "--field", "image=other/{id}.jpg"], 3, "all 4 are left out (other/0.jpg: No such file"),
        (["rows.jsonl", "--label", "text", "--shuffle", "1", "--exclude", "nothing.jsonl"], 2, "the skip list cannot be read"),
        (["data.py:broken"], 2, "is called without arguments to give the dataset, and that fails (ValueError: no data)"),
        (["data.py:nothing"], 2, "has nothing that is called nothing"),
        (["nothing.py:x"], 2, "nothing.py cannot be imported"),
        (["data.py:stream", "--dry-run"], 2, "there is no plan for an iterable"),
        (["s3://bucket/x"], 3, "s3://bucket/x is a remote address"),
        (["images", "--label", "x"], 2, "label is for lists, tables and Python datasets"),
        (["x.h5"], 3, "this is one HDF5 file (3 B): reading it at random is fast already"),
    ],
    ids=map(str, range(12)),
)  # fmt: skip
def test_refusals(folder: Path, arguments: list[str], code: int, match: str):
    tree(folder, {"x.h5": "abc"})
    source, *options = arguments
    if source.startswith("data.py"):
        found = run("pack", source, folder / "out", *options, cwd=folder)
        assert (found.returncode, found.stdout) == (code, "")
        text = " ".join(found.stderr.split())
    else:
        text = refused("pack", source, folder / "out", *options, code=code, cwd=folder)
    assert match in text
    assert not (folder / "out").exists()


def test_wrong_usage(folder: Path):
    for option in ("image", "=x", "image="):
        found = run("pack", folder / "list.csv", folder / "out", "--field", option)
        assert found.returncode == 2 and "--field takes NAME=VALUE" in found.stderr
    found = run("pack", folder / "list.csv", folder / "out", "--classes", folder / "none.txt")
    assert found.returncode == 2 and "--classes" in found.stderr and "No such file" in found.stderr


def test_a_dataset_that_dies_has_the_workers_exit_code(folder: Path):
    found = run("pack", "data.py:dies", folder / "out", cwd=folder)
    text = " ".join(found.stderr.split())
    assert (
        found.returncode == 7 and "ended with exit code 3 while it packed 200 samples" in text and "reading sample 77" in text
    )


def test_skipped_samples_are_told_and_coded(folder: Path):
    (folder / "masks" / "2.png").unlink()
    text = done(
        "pack", folder / "list.csv", folder / "out", "--field", "image=images/{id}.jpg", "--field", "mask=masks/{id}.png",
        "--on-error", "skip", code=6, env={"COLUMNS": "200"},
    )  # fmt: skip
    assert "unreadable  images/2.jpg  (its sample needs masks/2.png: No such file or directory (line 4 of the list))" in text


def test_encode_and_row_json(folder: Path):
    tree(folder, {"pictures.py": "from PIL import Image\nrows = [{'mask': Image.new('L', (4, 4)), 'n': 1}]\n"})
    done("pack", "pictures.py:rows", folder / "out", "--encode", "mask=png", "--no-row-json", cwd=folder)
    assert [set(fields) for fields in fields_of(folder / "out")] == [{"png"}]
    text = refused("pack", "pictures.py:rows", folder / "none", code=2, cwd=folder)
    assert "column 'mask' holds a decoded image: how shall it be stored?" in text


def test_on_a_terminal(folder: Path):
    """The plan before the first byte, a bar that goes away, and what comes next."""
    rows = "".join(json.dumps({"text": f"t{at}", "pad": "x" * 300}) + "\n" for at in range(60_000))
    code, out, shown = on_a_terminal("pack", tree(folder, {"many.jsonl": rows}) / "many.jsonl", folder / "out", columns=120)
    assert code == 0 and out.index("60,000 JSON lines") < out.index("Packed 60,000 samples") < out.index("Next:")
    frames = [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", frame).strip() for frame in shown.split("\r")]
    pattern = r"pack .* [\d,]+/60,000 +[\d,]+/s +[\d.]+ [KM]iB +[\d.]+ [KM]iB/s (\d:\d\d:\d\d|-:--:--)"
    assert [frame for frame in frames if re.fullmatch(pattern, frame)], frames[-5:]
    assert shown.count("\x1b[?25l") == shown.count("\x1b[?25h") > 0, "the cursor is back"
