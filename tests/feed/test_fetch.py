import threading

import pytest
import torch
from loading import At, Calls, Raise, Together, TwoArguments
from torch.utils.data import default_collate

from fastfeed.errors import DecodeError
from fastfeed.feed.fetch import Failure, Fetcher, FetchRules, importable
from fastfeed.feed.tasks import BatchTask
from fastfeed.feed.timing import Answer


def fetch(dataset, indices, worker=-1, base=None, **rules):
    fetcher = Fetcher(dataset, FetchRules(batched=True, collate=rules.pop("collate", list), **rules))
    fetcher.worker = worker
    number, data, failures, _, _ = fetcher[BatchTask(4, indices, 0, base)]
    assert number == 4
    return data, failures


def bad(at, error):
    return Calls(At(at, Raise(error)))


def test_a_batch():
    assert fetch(Calls(lambda index: index), [3, 1]) == ([3, 1], [])
    assert fetch(Together(5), [3, 1], collate=default_collate)[0][0].tolist() == [3, 1]


def test_a_task_without_work_touches_nothing():
    fetcher = Fetcher(bad(set(range(64)), ValueError()), FetchRules(batched=True, collate=list))
    assert fetcher[BatchTask(-1, None, 0, None)] == Answer(-1, None, [])


def test_a_failure_names_index_position_type_and_traceback():
    found, _ = fetch(bad(7, TwoArguments(1, "why")), [3, 7, 9], worker=2)
    assert isinstance(found, Failure)
    assert (found.index, found.position, found.stage, found.kind, found.worker) == (7, 1, "fetch", "TwoArguments", 2)
    assert "loading.py" in found.trace and found.importable == ("loading", "TwoArguments")


def test_facts_of_ours_travel():
    found, _ = fetch(bad(1, DecodeError("gone", shard="a.tar", start=512, expected="x", got="y", hint="z")), [1])
    assert {name: found.facts[name] for name in ("message", "shard", "start", "expected", "got", "hint")} == {
        "message": "gone", "shard": "a.tar", "start": 512, "expected": "x", "got": "y", "hint": "z",
    }  # fmt: skip


def test_skipped_and_replaced():
    data, failures = fetch(bad({1, 2}, ValueError("no")), [0, 1, 2, 3], on_error="skip")
    assert data == [0, 3] and [(failure.index, failure.position) for failure in failures] == [(1, 1), (2, 2)]
    data, failures = fetch(
        bad({1, 2}, ValueError("no")), [0, 1], on_error="replace", replace=lambda index, epoch, attempt: 2 + attempt
    )
    assert data == [0, 3] and [failure.index for failure in failures] == [1, 2]


def test_a_batch_of_which_nothing_is_left_and_replacements_that_run_out():
    found, _ = fetch(bad({1, 2}, ValueError("no")), [1, 2], on_error="skip")
    assert isinstance(found, Failure) and "no sample of the batch is left; the last one: no" in found.message
    found, failures = fetch(bad(1, ValueError("no")), [1], on_error="replace", replace=lambda *_: 1, attempts=3)
    assert isinstance(found, Failure) and len(failures) == 3


@pytest.mark.parametrize("error", [MemoryError(), ImportError("libx")], ids=repr)
def test_faults_of_the_machine_are_tolerated_by_no_policy(error):
    assert isinstance(fetch(bad(1, error), [0, 1], on_error="skip")[0], Failure)


def test_who_of_a_batch_asked_together_failed():
    class Some(Together):
        def __getitem__(self, index):
            if index == 3:
                raise ValueError("three")
            return index

    found, _ = fetch(Some(), [1, 3])
    assert (found.index, found.kind) == (3, "ValueError")


def test_collate_and_pickle_are_named():
    def refuse(samples):
        raise TypeError("cannot")

    assert fetch(Calls(lambda index: index), [1, 2], collate=refuse)[0].stage == "collate"
    found, _ = fetch(Calls(At(2, threading.Lock)), [1, 2], worker=0)
    assert (found.stage, found.index, found.position) == ("pickle", 2, 1) and "cannot be pickled" in found.message
    assert isinstance(fetch(Calls(At(2, threading.Lock)), [1, 2])[0], list)  # in the main process nothing is sent


def test_sample_mode_leaves_the_main_process_as_it_was():
    before = torch.get_rng_state()
    drawn = [fetch(Calls(lambda index: torch.rand(1).item()), [5, 6], base=1)[0] for _ in range(2)]
    assert drawn[0] == drawn[1] and drawn[0][0] != drawn[0][1]
    assert torch.equal(before, torch.get_rng_state())


def test_types_that_are_found_again():
    class Local(Exception):
        """Nobody finds it."""

    assert importable(ValueError) == ("builtins", "ValueError") and importable(Local) is None
