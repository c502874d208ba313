"""auditor/training.py: what is slow, judged from the times that a loader records."""

import json
import logging
import os
import subprocess
import sys
import time

import numpy as np
import pytest
from helpers import make_photos
from torch.utils.data import Dataset
from torchvision.datasets import ImageFolder

import fastfeed
from fastfeed import DataLoader
from fastfeed.auditor.record import SampleRecord
from fastfeed.auditor.result import Compared
from fastfeed.auditor.running.catalogue import CODES
from fastfeed.auditor.training import COSTLIEST, KEPT_SLOW, KEPT_USUAL, TrainingAudit
from fastfeed.feed.figures import Timed
from fastfeed.feed.timing import BatchTimes, Delivery

SAMPLES, BATCH = 400, 8
STAGES = ("fetch", "read", "decode")


class Nothing(Dataset[int]):
    def __len__(self) -> int:
        return SAMPLES


def seconds_of(epoch, slow):
    """By sample, in seconds; shape (SAMPLES, stages)."""
    random = np.random.default_rng(epoch)
    parts = random.lognormal(np.log([0.5e-3, 2e-3]), 0.2, (SAMPLES, 2))
    for index, seconds in slow.items():
        parts[index, 1] = seconds
    return np.column_stack([parts.sum(axis=1), parts])


def epoch_of(audit, epoch, slow, *, indices=range(SAMPLES)):
    """One epoch is heard, in random order."""
    table = seconds_of(epoch, slow) * 1e9
    order = np.random.default_rng(100 + epoch).permutation(SAMPLES)
    batches = np.split(order, SAMPLES // BATCH)
    for number, batch in enumerate(batches):
        record = Timed(STAGES, [indices[at] for at in batch], np.ascontiguousarray(table[batch]), (), None).record()
        times = BatchTimes(0, 0.0, 1.0, 0.5, 0, 1, 0.0, record)
        audit.delivered(Delivery(number, 0.0, 0.0, 0.0, 2, BATCH, len(batches) - 1 - number, times))


def report_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def codes_of(path):
    return {line["index"]: [found["code"] for found in line["findings"]] for line in report_of(path) if line["findings"]}


@pytest.mark.parametrize("seed", range(5))
def test_what_is_slow_in_each_epoch_is_slow_and_what_is_once_stays_a_suspicion(tmp_path, seed):
    audit = TrainingAudit(Nothing(), str(tmp_path / "r.jsonl"))
    found = []
    for epoch in range(5):
        epoch_of(audit, 10 * seed + epoch, {5: 0.1, 77: 0.06, **({9: 0.2} if epoch == 2 else {})})
        found.append(codes_of(tmp_path / "r.jsonl"))
    assert found[0] == {5: ["slow-unconfirmed"], 77: ["slow-unconfirmed"]}
    assert found[2] == {5: ["slow-unconfirmed"], 77: ["slow-unconfirmed"], 9: ["slow-unconfirmed"]}
    for codes in found[3:]:
        assert codes.pop(9) in (["slow-unconfirmed"], ["stall-once"])  # the second where other epochs have seen it quick
        assert codes == {5: ["slow"], 77: ["slow"]}


def test_the_report_holds_the_flagged_and_the_costliest(tmp_path):
    audit = TrainingAudit(Nothing(), str(tmp_path / "r.jsonl"))
    for epoch in range(4):
        epoch_of(audit, epoch, {5: 0.1})
    first, *others = report_of(tmp_path / "r.jsonl")
    assert first["index"] == 5 and first["status"] == "flagged" and first["times_seen"] == 4
    unknown = dict.fromkeys(("cpu_seconds", "delay_seconds", "blocked_seconds", "major_faults"))
    assert first["times"]["decode"] == {"wall_seconds": 0.1, **unknown}
    (finding,) = first["findings"]
    assert finding["text"].startswith("decode takes 100.0 ms by the wall clock, ") and "(least of 3 repeats)" in finding["text"]
    assert len(others) == COSTLIEST - 1 and all(line["status"] == "ok" for line in others)
    walls = [sum(time["wall_seconds"] for time in line["times"].values()) for line in others]
    assert walls == sorted(walls, reverse=True)


@pytest.mark.long
def test_its_report_is_one_for_whoever_reads_reports(tmp_path):
    """By the names that an audit of the same folder gives: a baseline, a pack, our own records."""
    photos = make_photos(tmp_path / "photos", each=SAMPLES // 2)
    audit, report = TrainingAudit(ImageFolder(str(photos)), str(tmp_path / "training.jsonl")), tmp_path / "training.jsonl"
    for epoch in range(4):
        epoch_of(audit, epoch, {5: 0.1})
    lines = report_of(report)
    assert lines[0]["path"] == "cat/005.jpg" and lines[0]["status"] == "flagged"
    assert max(SampleRecord.from_json(line, CODES).wall_seconds for line in lines) >= 0.1
    assert fastfeed.audit(photos, baseline=report, workers=1).compared == Compared(str(report), 0, 1)
    result = fastfeed.pack(photos, tmp_path / "packed", from_audit=report)
    told = [why for dataset in result.datasets for why in dataset.why if why.startswith("audit: ")]
    assert told == ["audit: 1 file (slow) left as it is: packing has no remedy (cat/005.jpg)"]


def test_an_even_dataset_has_nothing_slow(tmp_path, caplog):
    audit = TrainingAudit(Nothing(), str(tmp_path / "r.jsonl"))
    with caplog.at_level(logging.INFO, "fastfeed.audit"):
        for epoch in range(3):
            epoch_of(audit, epoch, {})
    assert codes_of(tmp_path / "r.jsonl") == {}
    assert [record.levelname for record in caplog.records] == ["INFO"] * 3
    assert "audit after 3 epochs, 150 batches: no slow sample; the costliest: sample " in caplog.messages[-1]


def test_what_is_proven_is_a_warning(tmp_path, caplog):
    audit = TrainingAudit(Nothing(), str(tmp_path / "r.jsonl"))
    for epoch in range(4):
        epoch_of(audit, epoch, {5: 0.1})
    (message,) = caplog.messages  # suspicions alone are told at a level that is not shown
    assert message.startswith("audit after 4 epochs, 200 batches: 1 slow; first: sample 5 (100.") and message.endswith(
        f"report: {tmp_path}/r.jsonl"
    )


def test_what_was_heard_since_is_judged_at_the_end(tmp_path):
    audit = TrainingAudit(Nothing(), str(tmp_path / "r.jsonl"))
    epoch_of(audit, 0, {5: 0.1})
    os.remove(tmp_path / "r.jsonl")
    audit.close()
    assert not (tmp_path / "r.jsonl").exists()
    record = Timed(("fetch",), [3], np.full((1, 1), 1e6), (), None).record()
    audit.delivered(Delivery(0, 0.0, 0.0, 0.0, 2, 1, 7, BatchTimes(0, 0.0, 1.0, 0.5, 0, 1, 0.0, record)))
    audit.close()
    assert 5 in codes_of(tmp_path / "r.jsonl")


def test_a_fork_writes_nothing(tmp_path, monkeypatch):
    audit = TrainingAudit(Nothing(), str(tmp_path / "r.jsonl"))
    epoch_of(audit, 0, {})
    os.remove(tmp_path / "r.jsonl")
    audit.delivered(Delivery(0, 0.0, 0.0, 0.0, 2, 1, 7, BatchTimes(0, 0.0, 1.0, 0.5, 0, 1)))
    monkeypatch.setattr(os, "getpid", lambda: 1)
    audit.close()
    assert not (tmp_path / "r.jsonl").exists()


def test_memory_is_constant_and_the_slowest_stay(tmp_path):
    audit = TrainingAudit(Nothing(), str(tmp_path / "r.jsonl"))
    for number in range(3 * KEPT_USUAL):
        table = np.full((4, 1), 1e6) * [[1], [2], [3], [100 if number == 7 else 4]]
        record = Timed(("fetch",), [4 * number + at for at in range(4)], table, (), None).record()
        audit.delivered(Delivery(number, 0.0, 0.0, 0.0, 2, 4, 9, BatchTimes(0, 0.0, 1.0, 0.5, 0, 1, 0.0, record)))
    assert len(audit._slow) <= 2 * KEPT_SLOW and 31 in audit._slow
    assert len(audit._usual) == KEPT_USUAL
    assert max(index for index, _ in audit._usual) > 4 * KEPT_USUAL  # later ones get their turn


def test_indices_that_are_no_numbers(tmp_path):
    audit = TrainingAudit(Nothing(), str(tmp_path / "r.jsonl"))
    epoch_of(audit, 0, {5: 0.1}, indices=[f"name-{at}" for at in range(SAMPLES)])
    first = report_of(tmp_path / "r.jsonl")[0]
    assert (first["key"], first["index"]) == ("name-5", -1) and first["findings"]


def test_batches_that_were_not_recorded_are_nothing_to_judge(tmp_path):
    audit = TrainingAudit(Nothing(), str(tmp_path / "r.jsonl"))
    audit.delivered(Delivery(0, 0.0, 0.0, 0.0, 2, 1, 0, BatchTimes(0, 0.0, 1.0, 0.5, 0, 1)))
    assert report_of(tmp_path / "r.jsonl") == []


def test_a_report_that_cannot_be_written_ends_no_training(tmp_path, caplog):
    audit = TrainingAudit(Nothing(), str(tmp_path / "gone" / "r.jsonl"))
    epoch_of(audit, 0, {})
    assert f"the audit's report {tmp_path}/gone/r.jsonl cannot be written: No such file" in caplog.messages[0]


class Sleepy(Dataset[int]):
    """Sample 7 takes 100 ms, the others 10: so long that many batches are recorded."""

    def __len__(self) -> int:
        return 32

    def __getitem__(self, index: int) -> int:
        time.sleep(0.1 if index == 7 else 0.01)
        return index


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.long)])
def test_through_a_loader(tmp_path, workers):
    options = {"num_workers": workers, "persistent_workers": workers > 0}
    loader = DataLoader(Sleepy(), batch_size=8, shuffle=True, audit=tmp_path / "r.jsonl", **options)
    found: dict[int, list[str]] = {}
    for _ in range(40):  # how many batches are recorded, so that it costs little, depends on the machine
        assert sum(len(batch) for batch in loader) == 32
        found = codes_of(tmp_path / "r.jsonl")
        if found.get(7) == ["slow"]:
            break
    assert [index for index, codes in found.items() if "slow" in codes] == [7]


@pytest.mark.long
def test_a_program_that_ends_within_an_epoch_leaves_a_report(tmp_path):
    """Whether it ends by itself or by an error; with the samples of the batches that were handed out."""
    script = f"""
import sys, time
import fastfeed
class Slow:
    def __len__(self): return 400
    def __getitem__(self, index):
        time.sleep(0.002)
        return index
for number, batch in enumerate(fastfeed.DataLoader(Slow(), batch_size=8, num_workers=0, audit={str(tmp_path / "r.jsonl")!r})):
    if number == 20:
        break
if len(sys.argv) > 1:
    raise ValueError("an error of the training")
"""
    for arguments, code in (([], 0), (["fail"], 1)):
        done = subprocess.run(
            [sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=False, timeout=120
        )
        assert done.returncode == code, done.stderr
        lines = report_of(tmp_path / "r.jsonl")
        assert lines and all(line["index"] < 21 * 8 for line in lines)
        os.remove(tmp_path / "r.jsonl")
