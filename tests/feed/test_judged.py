"""feed/judged.py: who hears of a loader's batches when it is asked to audit. What is judged: tests/auditor/test_training.py."""

import gc
import os
import pickle
import subprocess
import sys
from typing import Any

import pytest
from torch import distributed
from torch.utils.data import Dataset, IterableDataset

from fastfeed import DataLoader
from fastfeed.errors import UsageError
from fastfeed.feed import judged
from fastfeed.feed.judged import Ear, Judges

CLOSED: list[str] = []


class Numbers(Dataset[int]):
    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> int:
        return index


class Watching:
    """A judge that notes what it hears."""

    def __init__(self, dataset, path):
        self.dataset, self.path, self.heard = dataset, path, []

    def delivered(self, delivery):
        self.heard.append((delivery.number, delivery.samples, delivery.remaining))

    def close(self):
        CLOSED.append(self.path)


def judge_of(loader: Any, audit: Any = None) -> Any:
    """The one that a loader has, or would have with another audit=."""
    judges = loader._judges if audit is None else Judges(audit)
    (ear,) = judges.begin(loader.dataset)
    assert isinstance(ear, Ear)
    return ear.judge


@pytest.fixture
def watching(monkeypatch):
    monkeypatch.setattr(judged, "HOME", f"{__name__}:Watching")
    monkeypatch.setitem(sys.modules, __name__, sys.modules[Watching.__module__])
    CLOSED.clear()


def test_a_judge_hears_of_each_batch_of_each_pass_and_is_closed_with_its_loader(watching, tmp_path):
    loader = DataLoader(Numbers(10), batch_size=4, num_workers=0, audit=tmp_path / "r.jsonl")
    judge = judge_of(loader)
    assert judge.dataset is loader.dataset and judge.path == str(tmp_path / "r.jsonl")
    for _ in range(2):
        list(loader)
    assert judge.heard == 2 * [(0, 4, 2), (1, 4, 1), (2, 2, 0)]
    assert not CLOSED
    del loader
    gc.collect()
    assert list(CLOSED) == [str(tmp_path / "r.jsonl")]


def test_a_loader_without_a_name_has_its_judge_until_its_pass_is_over(watching, tmp_path):
    """The loader is gone as soon as its pass has begun."""
    batches = iter(DataLoader(Numbers(10), batch_size=4, num_workers=0, audit=tmp_path / "r.jsonl"))
    gc.collect()
    next(batches)
    assert not CLOSED
    del batches
    gc.collect()
    assert list(CLOSED) == [str(tmp_path / "r.jsonl")]


def test_without_audit_nobody_is_looked_for(monkeypatch):
    monkeypatch.setattr(judged, "HOME", "no.such:thing")
    loader = DataLoader(Numbers(4), num_workers=0)
    assert loader.audit is False and Judges(False).begin(loader.dataset) == []
    assert len(list(loader)) == 4


def test_true_is_a_file_of_the_folder_that_one_is_in(watching, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    loader = DataLoader(Numbers(4), num_workers=0, audit=True)
    assert judge_of(loader, audit=True).path == str(tmp_path / "fastfeed-audit.jsonl")


def test_each_rank_but_the_first_has_a_file_of_its_own(watching, tmp_path, monkeypatch):
    loader = DataLoader(Numbers(4), num_workers=0)
    monkeypatch.setattr(distributed, "is_initialized", lambda: True)
    paths = []
    for rank in (0, 3):
        monkeypatch.setattr(distributed, "get_rank", lambda rank=rank: rank)
        paths.append(os.path.basename(judge_of(loader, tmp_path / "a.jsonl").path))
    assert paths == ["a.jsonl", "a.rank3.jsonl"]


def test_a_loader_that_travels_has_a_judge_of_its_own(watching, tmp_path):
    loader = DataLoader(Numbers(4), num_workers=0, audit=tmp_path / "r.jsonl")
    list(loader)
    there = pickle.loads(pickle.dumps(loader))
    list(there)
    mine, theirs = (judge_of(one) for one in (loader, there))
    assert mine is not theirs and len(mine.heard) == len(theirs.heard) == 4


class Stream(IterableDataset[int]):
    def __iter__(self):
        return iter(range(3))


def test_what_cannot_be_audited_is_refused_at_once(tmp_path):
    with pytest.raises(UsageError, match="audit is about samples by index"):
        DataLoader(Stream(), audit=True)
    with pytest.raises(UsageError, match="audit judges what record=True records"):
        DataLoader(Numbers(1), audit=tmp_path / "r.jsonl", record=False)
    with pytest.raises(UsageError, match=r"audit is True, False, or the file .*got 3"):
        DataLoader(Numbers(1), audit=3)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="the audit's report cannot be written there"):
        DataLoader(Numbers(1), audit=tmp_path / "none" / "r.jsonl")


@pytest.mark.long
def test_reading_does_not_load_the_auditor():
    code = (
        "import sys, fastfeed; list(fastfeed.DataLoader([1], num_workers=0)); print([m for m in sys.modules if 'audit' in m])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_judge_that_is_named_is_there(tmp_path):
    judge = judge_of(DataLoader(Numbers(1), num_workers=0, audit=tmp_path / "r.jsonl"))
    assert type(judge).__module__ == "fastfeed.auditor.training" and callable(judge.delivered)
    judge.close()
    assert not (tmp_path / "r.jsonl").exists()  # it has heard of nothing
