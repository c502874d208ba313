"""Whole audits, from the call to what is written: each test runs one, of a folder, a packed set, tars or a program.

Long, and whole: all stand on the same few folders and programs with faults, made by the helpers below.
"""

import base64
import inspect
import json
import os
import pydoc_data.topics
import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import asdict
from pathlib import Path

import pytest
from auditing import children, lines_of, program
from helpers import encoded, files_below, make_photos, pack_photos, photo
from torchvision.datasets import ImageFolder
from torchvision.transforms.v2 import ToImage

import fastfeed
from fastfeed.auditor.finding import Finding
from fastfeed.auditor.record import SampleRecord
from fastfeed.auditor.running.codes import HANG
from fastfeed.auditor.running.journal import Journal
from fastfeed.auditor.running.limits import Limits
from fastfeed.config import RowConfig
from fastfeed.errors import UsageError
from fastfeed.sample import SkipList


def broken_photos(folder):
    """Six photos, and one of each of some kinds of what is none."""
    make_photos(folder)
    (folder / "cat" / "cut.jpg").write_bytes(encoded(photo(8, (64, 48)))[:-200])
    (folder / "cat" / "page.jpg").write_text("<!DOCTYPE html><html>404</html>")
    (folder / "dog" / "nothing.jpg").write_bytes(b"")
    (folder / "dog" / "link.jpg").symlink_to("nowhere.jpg")
    os.mkfifo(folder / "dog" / "pipe.jpg")
    return folder


BROKEN = {
    "cat/cut.jpg": "truncated", "cat/page.jpg": "html-page", "dog/nothing.jpg": "empty-file", "dog/link.jpg": "unreadable",
    "dog/pipe.jpg": "special-file",
}  # fmt: skip


def facts_below(folder):
    """All that could change of what is audited: names, kinds, times, bytes."""
    found = {}
    for root, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = os.path.join(root, name)
            stat = os.lstat(path)
            data = Path(path).read_bytes() if os.path.isfile(path) else b""
            found[path] = (stat.st_mode, stat.st_mtime_ns, stat.st_ino, stat.st_nlink, data)
    return found


def test_a_folder_from_end_to_end(tmp_path):
    folder = broken_photos(tmp_path / "photos")
    before = facts_below(folder)
    report, skip = tmp_path / "report.jsonl", tmp_path / "skip.jsonl"
    result = fastfeed.audit(folder, jsonl=report, skip_list=skip, workers=2)
    assert (result.samples, result.audited, result.errors, result.others) == (10, 10, 5, 1)
    assert {one.code: one.samples for one in result.found if one.severity == "error"} == dict.fromkeys(BROKEN.values(), 1)
    lines = lines_of(report)
    assert [line["index"] for line in lines] == list(range(11))
    assert {line["path"]: line["findings"][0]["code"] for line in lines if line["status"] == "flagged"} == BROKEN
    fine = next(line for line in lines if line["path"] == "cat/000.jpg")
    assert (fine["status"], fine["format"], fine["label"], fine["findings"]) == ("ok", "JPEG", "cat", [])
    assert set(fine["times"]) == {"read", "decode"} and fine["size_bytes"] == os.path.getsize(folder / "cat" / "000.jpg")
    assert {entry.source: entry.kind for entry in SkipList.read(str(skip)).entries} == BROKEN
    assert facts_below(folder) == before
    assert not children()


class ListOf:
    """A dataset of what there is."""

    def __init__(self, samples):
        self.samples = samples

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        return self.samples[index]


TOPICS = sorted({text for text in pydoc_data.topics.topics.values() if 500 < len(text) < 5000})
"""Real texts: Python's own help."""


def topics(folder):
    """A file each, one of base64, and all of them in one."""
    folder.mkdir()
    for number, text in enumerate(TOPICS):
        (folder / f"{number:02}.txt").write_text(text)
    (folder / "coded.txt").write_text(base64.b64encode(bytes(range(256)) * 30).decode())
    (folder / "book.txt").write_text("\n".join(TOPICS))
    return folder


def spelled(text):
    """Words that it knows are a token, all else is spelled letter by letter."""
    return [part for word in text.split() for part in (list(word) if len(word) > 400 else [word])]


@pytest.mark.parametrize("named", [True, False], ids=["by its name", "itself"])
def test_lengths_of_texts_in_characters_and_tokens(tmp_path, named):
    folder, report = topics(tmp_path / "topics"), tmp_path / "report.jsonl"
    program_of = tmp_path / "mine.py"
    program_of.write_text(inspect.getsource(spelled))
    result = fastfeed.audit(folder, jsonl=report, tokenizer=f"{program_of}:spelled" if named else spelled, workers=1)
    lines = {line["path"]: line for line in lines_of(report)}
    found = {path: [one["code"] for one in line["findings"]] for path, line in lines.items() if line["status"] == "flagged"}
    assert found == {"book.txt": ["text-length-outlier", "text-tokens-outlier"], "coded.txt": ["text-tokens-outlier"]}
    assert (lines["07.txt"]["characters"], lines["07.txt"]["tokens"]) == (len(TOPICS[7]), len(TOPICS[7].split()))
    assert lines["07.txt"]["times"].keys() == {"read", "tokenize"}
    assert [stage.stage for stage in result.stages] == ["read", "tokenize"]
    outlier = next(one for one in result.found if one.code == "text-tokens-outlier")
    assert re.search(r"10,240 tokens, \d+ times the median of all texts, which is \d+", dict(outlier.examples)["coded.txt"])


def test_lengths_of_the_texts_of_a_dataset():
    texts = [*TOPICS, "\n".join(TOPICS)]
    result = fastfeed.audit(ListOf([{"text": text, "label": 1} for text in texts]), tokenizer=str.split, workers=1)
    found = {one.code: one.examples for one in result.found if one.severity != "info"}
    last = f"sample {len(texts) - 1}"
    assert {code: [name for name, _ in examples] for code, examples in found.items()} == {
        "text-length-outlier": [last], "text-tokens-outlier": [last],
    }  # fmt: skip
    assert result.formats == {"text": len(texts)}


def test_a_tokenizer_that_hangs_is_found_by_its_text(tmp_path):
    folder, mine = topics(tmp_path / "topics"), tmp_path / "mine.py"
    mine.write_text("import time\ndef hangs(text):\n    time.sleep(600 * text.startswith('AAEC'))\n    return text.split()\n")
    result = fastfeed.audit(folder, tokenizer=f"{mine}:hangs", kill_after=2, workers=1)
    assert [(one.code, [name for name, _ in one.examples]) for one in result.found if one.severity == "error"] == [
        ("hang", ["coded.txt"])
    ]
    assert "in hangs" not in result.what and "mine.py" in next(one for one in result.found if one.code == "hang").examples[0][1]


@pytest.mark.long
def test_pack_and_open_take_the_skip_list(tmp_path):
    folder, skip = broken_photos(tmp_path / "photos"), tmp_path / "skip.jsonl"
    (folder / "dog" / "pipe.jpg").unlink()
    fastfeed.audit(folder, skip_list=skip, fast=True)
    packed = fastfeed.pack(folder, tmp_path / "packed", exclude=str(skip), workers=1)
    assert sum(dataset.samples for dataset in packed.datasets) == 6
    opened = fastfeed.open(folder, skip=str(skip))
    assert len([opened[at] for at in range(len(opened))]) == 6
    assert fastfeed.audit(tmp_path / "packed", fast=True).errors == 0


@pytest.mark.parametrize("options", [{}, {"compress": "zstd"}], ids=["tar", "zst"])
def test_packed(tmp_path, options):
    folder = pack_photos(tmp_path, **options)
    before = files_below(folder)
    result = fastfeed.audit(folder, jsonl=tmp_path / "report.jsonl")
    assert (result.audited, result.flagged, result.kind) == (6, 0, "packed")
    line = lines_of(tmp_path / "report.jsonl")[3]
    assert (line["key"], line["path"], line["label"]) == ("dog/000", "dog/000.jpg", "dog")
    assert files_below(folder) == before


def test_tars(tmp_path):
    packed = pack_photos(tmp_path)
    (tmp_path / "tars").mkdir()
    data = (packed / "photos-000000.tar").read_bytes()
    (tmp_path / "tars" / "a.tar").write_bytes(data[: len(data) // 1024 * 512 + 100])
    result = fastfeed.audit(str(tmp_path / "tars" / "*.tar"))
    assert 0 < result.audited < 6
    assert "tar-cut" in {one.code for one in result.found} and result.worst is not None and result.worst.word == "error"
    assert os.listdir(tmp_path / "tars") == ["a.tar"]


def test_a_live_dataset():
    class Live:
        def __len__(self):
            return 20

        def __getitem__(self, index):
            if index == 7:
                os._exit(3)
            if index == 9:
                raise ValueError("mine")
            return threading.Lock()  # nothing that passes a pipe

    result = fastfeed.audit(Live(), workers=2)
    assert {one.code: (one.samples, one.examples[0][0]) for one in result.found} == {
        "crash": (1, "sample 7"), "fails": (1, "sample 9"), "unpicklable": (18, "sample 0"),
    }  # fmt: skip
    assert (result.samples, result.audited) == (20, 20)
    assert not children()


@pytest.mark.long
def test_a_folder_of_torchvision_gives_a_skip_list_that_its_loader_takes(tmp_path):
    folder, skip = broken_photos(tmp_path / "photos"), tmp_path / "skip.jsonl"
    code = "from torchvision.datasets import ImageFolder\nfrom torchvision.transforms.v2 import ToImage\n"
    (tmp_path / "train.py").write_text(f"{code}def make():\n    return ImageFolder({str(folder)!r}, ToImage())\n")
    result = fastfeed.audit(f"{tmp_path}/train.py:make", skip_list=skip, workers=1)
    assert {one.code: one.samples for one in result.found if one.severity == "error"} == dict.fromkeys(BROKEN.values(), 1)
    assert [stage.stage for stage in result.stages] == ["read", "decode", "transform"]
    loader = fastfeed.DataLoader(ImageFolder(folder, ToImage()), batch_size=2, num_workers=0, skip=str(skip))
    assert sum(len(images) for images, _ in loader) == 6


def test_a_stream():
    result = fastfeed.audit(iter(range(30)))
    assert (result.samples, result.audited, result.errors, result.kind) == (30, 30, 0, "python")
    assert any("a stream is read by one process" in note for note in result.notes)


def test_samples_without_names_are_in_no_skip_list(tmp_path):
    name = program(tmp_path, "if index == 3:\n    raise ValueError('mine')")
    result = fastfeed.audit(name, skip_list=tmp_path / "skip.jsonl")
    assert (tmp_path / "skip.jsonl").read_text() == ""
    assert any(note.startswith("1 error is not in the skip list, as these samples have no names") for note in result.notes)
    assert any("samples have names where the dataset has identity(index)" in note for note in result.notes)
    assert (result.errors, result.nameless) == (1, 1)


@pytest.mark.long
def test_slow_samples_are_measured_again(tmp_path):
    name = program(tmp_path, "if index == 11:\n    time.sleep(0.1)\nif index in (11, 12):\n    time.sleep(0.02)")
    result = fastfeed.audit(name, jsonl=tmp_path / "report.jsonl", workers=1)
    assert [line["index"] for line in lines_of(tmp_path / "report.jsonl") for one in line["findings"] if one["code"] == "slow"][
        :1
    ] == [11]
    assert result.costliest[0].name == "sample 11" and result.costs
    known = fastfeed.audit(name, baseline=tmp_path / "report.jsonl", workers=1)
    assert known.costs and all(text.endswith(" (what the baseline knows counted as well)") for text in known.costs)
    assert result.judged["counts"]["slow"] >= 1


def test_a_part_with_a_bound(tmp_path):
    result = fastfeed.audit(program(tmp_path, "pass"), sample=10)
    assert (result.samples, result.audited) == (40, 10)
    assert result.at_most == pytest.approx(1 - 0.05 ** (1 / 10))


@pytest.mark.long
def test_when_time_is_up(tmp_path):
    report = tmp_path / "report.jsonl"
    name = program(tmp_path, "time.sleep(0.5)")
    result = fastfeed.audit(name, max_minutes=0.1, workers=1, jsonl=report)
    assert not result.complete and 0 < result.audited < 40 and result.at_most is not None
    assert not report.exists()
    rest = fastfeed.audit(name, workers=4, jsonl=report)
    assert rest.complete and rest.audited == 40 and len(lines_of(report)) == 40
    assert any("taken over from an audit that was interrupted" in note for note in rest.notes)


@pytest.mark.long
def test_measuring_again_ends_when_time_is_up_too(tmp_path):
    seen = str(tmp_path / "seen")
    slow = f"if index == 5:\n    time.sleep(6 if os.path.exists({seen!r}) else 0.3)\n    open({seen!r}, 'w').close()"
    result = fastfeed.audit(program(tmp_path, slow), max_minutes=0.1, workers=1)
    (found,) = [one for one in result.found if one.code.startswith("slow")]
    assert (found.code, found.examples[0][0]) == ("slow-unconfirmed", "sample 5")
    assert "time was up before it was measured again often enough" in found.examples[0][1]
    assert result.seconds < 15, "not three times six seconds"


@pytest.mark.long
def test_what_fails_is_not_slow_as_well(tmp_path):
    result = fastfeed.audit(program(tmp_path, "if index == 5:\n    time.sleep(0.3)\n    raise ValueError('mine')"), workers=1)
    assert [one.code for one in result.found if one.examples[0][0] == "sample 5"] == ["fails"]


@pytest.mark.long
def test_after_a_kill_the_same_call_goes_on(tmp_path):
    report, seen = tmp_path / "report.jsonl", tmp_path / "seen"
    name = program(tmp_path, f"with open({str(seen)!r}, 'a') as file:\n    file.write(f'{{index}}\\n')\ntime.sleep(0.1)")
    code = f"import fastfeed; fastfeed.audit({name!r}, workers=1, jsonl={str(report)!r})"
    with subprocess.Popen([sys.executable, "-c", code]) as process:
        deadline = time.monotonic() + 30
        while not (seen.exists() and seen.read_text().count("\n") > 12) and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
    time.sleep(0.3)
    begun = seen.read_text().split()
    assert 12 < len(begun) < 40, "its child went on without its parent"
    kept = len((tmp_path / "report.jsonl.partial").read_text().splitlines()) - 2
    assert kept >= 5
    result = fastfeed.audit(name, workers=1, jsonl=report)
    assert [line["index"] for line in lines_of(report)] == list(range(40))
    assert any(note.startswith(f"{kept} samples taken over from an audit that was interrupted") for note in result.notes)
    again = [int(line) for line in seen.read_text().split()[len(begun) :]]
    assert again[: 40 - kept] == list(range(kept, 40)), "behind these come those that were measured again"
    assert not (tmp_path / "report.jsonl.partial").exists()


class Heard:
    """Progress as (stage, samples) of each stage."""

    def __init__(self):
        self.stages, self.open = [], 0

    def start(self, stage, items, size_bytes):
        self.stages.append([stage, 0])
        self.open += 1

    def advance(self, items, size_bytes):
        self.stages[-1][1] += items

    def finish(self):
        self.open -= 1


def test_measuring_again_is_heard_of(tmp_path):
    heard, quiet = Heard(), Heard()
    fastfeed.audit(program(tmp_path, "if index == 5:\n    time.sleep(0.1)"), progress=heard, workers=1)
    assert [stage for stage, _ in heard.stages] == ["audit", "measure"] and heard.open == 0
    assert heard.stages[0][1] == 40 and heard.stages[1][1] >= 3, "the suspect, three times"
    fastfeed.audit(program(tmp_path, "pass", name="quiet"), progress=quiet, workers=1, sample=1)
    assert [stage for stage, _ in quiet.stages] == ["audit"] and quiet.open == 0


def interrupted(report, name, indices):
    """What an audit of a Python dataset leaves that was interrupted behind these samples."""
    identity = {"target": name, "digest": None, "fast": False, "hidden": False, "tokenizer": None, "rows": asdict(RowConfig())}
    with Journal(str(report), identity) as journal:
        for index in indices:
            journal.add(SampleRecord(index))


def test_a_sample_that_was_given_too_little_time_is_loaded_again_with_more(tmp_path):
    report = tmp_path / "report.jsonl"
    name = program(tmp_path, "if index == 2:\n    time.sleep(0.1)")
    identity = {"target": name, "digest": None, "fast": False, "hidden": False, "tokenizer": None, "rows": asdict(RowConfig())}
    with Journal(str(report), identity) as journal:
        journal.begin(Limits(kill_seconds=1.0))
        journal.add(SampleRecord(2, findings=[Finding(HANG, "it was ended after 1.0 s")]))
    result = fastfeed.audit(name, jsonl=report, kill_after=120, workers=1)
    assert "hang" not in {one.code for one in result.found} and result.audited == 40
    assert any(note.startswith("1 sample loaded again") for note in result.notes)


def test_what_was_begun_in_order_is_no_random_part(tmp_path):
    name, report = program(tmp_path, "pass"), tmp_path / "report.jsonl"
    drawn = fastfeed.audit(name, jsonl=report, sample=5)
    assert drawn.audited == 5 and drawn.at_most is not None
    interrupted(report, name, range(20))
    mixed = fastfeed.audit(name, jsonl=report, sample=5)
    assert 20 < mixed.audited < 26 and mixed.at_most is None
    assert any("not all that was audited was drawn at random" in note for note in mixed.notes)


def test_a_dataset_that_has_become_shorter_has_no_records_of_what_is_gone(tmp_path):
    report, size = tmp_path / "report.jsonl", tmp_path / "size"
    name = program(tmp_path, "pass")
    (tmp_path / "bad.py").write_text(
        (tmp_path / "bad.py").read_text() + f"\ndef make():\n    return Bad(int(open({str(size)!r}).read()))\n"
    )
    interrupted(report, name, range(30))
    size.write_text("10")
    result = fastfeed.audit(name, jsonl=report)
    assert (result.samples, result.audited) == (10, 10)
    assert any(note.startswith("10 samples taken over") for note in result.notes)
    assert [line["index"] for line in lines_of(report)] == list(range(10))


def test_nothing_is_written_to_what_is_audited(tmp_path):
    folder = make_photos(tmp_path / "photos")
    with pytest.raises(UsageError, match="lies in what is audited"):
        fastfeed.audit(folder, jsonl=folder / "report.jsonl")
    with pytest.raises(UsageError, match="lies in what is audited"):
        fastfeed.audit(folder, skip_list=folder / "cat" / "skip.jsonl")


def test_the_result_as_json(tmp_path):
    result = fastfeed.audit(make_photos(tmp_path / "photos"))
    assert json.dumps(result.judged)
    assert [stage.stage for stage in result.stages] == ["read", "decode"]


@pytest.mark.long
def test_a_page_with_thumbnails_and_one_without(tmp_path):
    folder, html = broken_photos(tmp_path / "photos"), tmp_path / "page.html"
    before = facts_below(folder)
    fastfeed.audit(folder, html=html)
    page = html.read_text()
    assert "5 of 10 samples (50 %) have something to mend." in page and "cat/page.jpg" in page
    assert page.count('<img src="data:image/jpeg;base64,') == 1, "of the cut photo alone something can be seen"
    fastfeed.audit(folder, html=html, thumbnails=False)
    assert "base64,/9j/" not in html.read_text()
    assert facts_below(folder) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["page.html", "photos"]
    assert not children()
    with pytest.raises(UsageError, match="lies in what is audited"):
        fastfeed.audit(folder, html=folder / "page.html")


@pytest.mark.long
def test_against_a_baseline_only_what_is_new_counts(tmp_path):
    folder, old, html = broken_photos(tmp_path / "photos"), tmp_path / "old.jsonl", tmp_path / "page.html"
    fastfeed.audit(folder, jsonl=old)
    (folder / "cat" / "cut.jpg").write_bytes((folder / "dog" / "001.jpg").read_bytes()[:-200])
    (folder / "cat" / "page.jpg").unlink()
    (folder / "dog" / "new.jpg").write_bytes(b"")
    skip = tmp_path / "skip.jsonl"
    new = tmp_path / "new.jsonl"
    result = fastfeed.audit(folder, baseline=old, jsonl=new, html=html, skip_list=skip)
    assert {(one.code, name) for one in result.found for name, _ in one.examples if one.severity != "info"} == {
        ("empty-file", "dog/new.jpg")
    }
    assert (result.flagged, result.errors) == (1, 1)
    assert result.compared is not None and result.compared.gone == 1 and result.compared.left_out >= 4
    assert "1 of 10 samples (10 %) has something new to mend." in html.read_text()
    assert len(SkipList.read(str(skip)).entries) == 5, "what is known is as broken as before"
    again = fastfeed.audit(folder, baseline=new)
    assert (again.found, again.worst) == ((), None), "a report made against a baseline has all that was found"


@pytest.mark.long
def test_a_baseline_knows_what_was_said_of_classes(tmp_path):
    folder, old = make_photos(tmp_path / "photos", each=60), tmp_path / "old.jsonl"
    (folder / "fox").mkdir()
    (folder / "fox" / "0.jpg").write_bytes((folder / "cat" / "000.jpg").read_bytes()[:-2] + b"x\xff\xd9")
    first = fastfeed.audit(folder, jsonl=old, fast=True)
    assert [one.examples[0][0] for one in first.found if one.code == "class-tiny"] == ["classes"]
    assert lines_of(old)[-1]["key"] == "classes: fox"
    assert not fastfeed.audit(folder, baseline=old, fast=True).found
