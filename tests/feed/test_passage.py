import gc
import logging
import os
import resource
from multiprocessing.reduction import ForkingPickler

import pytest
import torch
from torch.utils.data import default_collate

from fastfeed.errors import UsageError
from fastfeed.feed.passage import SMALL_BYTES, SPARE_BYTES, can_start, passage_of
from fastfeed.feed.slots import Slots
from fastfeed.store.firstneeds import needed_bytes

BIG = torch.zeros(SMALL_BYTES)


def space(free):
    """A file system with so many bytes free."""
    return lambda _: os.statvfs_result((4096, 4096, 1 << 20, free // 4096, free // 4096, 0, 0, 0, 0, 255))


def opened(**options):
    return passage_of(None, **{"past": False, "workers": 2, "prefetch_factor": None, **options})


def crossed(passage, data, size=BIG.nbytes, tensors=1):
    """What is received, and how it came."""
    before = passage.went.copy()
    found = ForkingPickler.loads(ForkingPickler.dumps(passage.sent(data, size, tensors)))
    ((why, _),) = (passage.went - before).items()
    return found, why


def test_a_batch_goes_where_there_is_room(monkeypatch):
    passage = opened()
    monkeypatch.setattr(os, "statvfs", space(2 * BIG.nbytes + SPARE_BYTES))
    found, why = crossed(passage, [BIG.clone()])
    assert why == "" and found[0].is_shared() and torch.equal(found[0], BIG) and passage.first == (BIG.nbytes, 1)
    monkeypatch.setattr(os, "statvfs", space(2 * BIG.nbytes + SPARE_BYTES - 4096))  # not if both workers take as much
    found, why = crossed(passage, [BIG.clone()])
    assert why == "room" and torch.equal(found[0], BIG)


def test_small_batches_go_as_bytes_and_batches_without_tensors_as_they_are():
    passage = opened()
    assert crossed(passage, {"a": torch.ones(3)}, 12)[1] == "small"
    assert crossed(passage, ["text", 4], 0, 0) == (["text", 4], "")
    assert passage.said == []


def test_without_dev_shm_and_when_others_are_quicker(monkeypatch):
    passage = opened()

    def gone(_):
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(os, "statvfs", gone)
    assert crossed(passage, [BIG.clone()])[1] == "room"
    assert "no usable /dev/shm" in passage.said[0]

    def full(_):
        raise RuntimeError("unable to allocate shared memory(shm)")

    monkeypatch.setattr(os, "statvfs", space(1 << 30))
    monkeypatch.setattr(torch.UntypedStorage, "share_memory_", full)
    found, why = crossed(passage, [BIG.clone()])
    assert why == "room" and torch.equal(found[0], BIG)


def test_all_go_past_where_the_plan_says_so_and_it_is_told_once(caplog):
    passage = opened(past=True)
    with caplog.at_level(logging.WARNING, "fastfeed.loader"):
        assert [crossed(passage, [BIG.clone()])[1] for _ in range(3)] == ["asked"] * 3
    assert [record.message for record in caplog.records] == passage.said and len(passage.said) == 1
    assert passage.said[0].endswith("the plan says so")


def test_what_batches_need_of_dev_shm_is_known_in_every_process(monkeypatch):
    gc.collect()  # loaders of other tests
    before, passage = needed_bytes(), opened()
    monkeypatch.setattr(os, "statvfs", space(1 << 30))
    for data in ([torch.ones(3)], [BIG.clone()], [torch.ones(SMALL_BYTES // 4 + 1)], ["text"]):
        size = sum(part.nbytes for part in data if isinstance(part, torch.Tensor))
        crossed(passage, data, size, 1)
    assert passage.needed_bytes == (2 * 2 + 2) * BIG.nbytes and needed_bytes() == before + passage.needed_bytes
    copy = ForkingPickler.loads(ForkingPickler.dumps(passage))
    assert copy.needed_bytes == passage.needed_bytes
    monkeypatch.setattr(os, "statvfs", space(0))
    copy.sent([torch.zeros(3 * SMALL_BYTES)], 12 * SMALL_BYTES, 1)  # it goes past /dev/shm, and should not have to
    assert passage.needed_bytes == 6 * 12 * SMALL_BYTES
    passage.go_past()
    del copy, passage
    gc.collect()
    assert needed_bytes() == before


def test_a_copy_in_a_worker_sees_what_the_main_process_writes():
    passage = opened()
    copy = ForkingPickler.loads(ForkingPickler.dumps(passage))
    assert copy.token == passage.token and not hasattr(copy, "went")
    passage.go_past()
    assert crossed_by(copy, passage) == "asked"
    assert passage_of(passage, past=False, workers=3, prefetch_factor=4) is passage


def crossed_by(copy, passage):
    ForkingPickler.loads(ForkingPickler.dumps(copy.sent([BIG.clone()], BIG.nbytes, 1)))
    return list(passage.went)[-1]


def test_a_batch_whose_loader_is_gone_is_received_all_the_same():
    passage = opened()
    sent = ForkingPickler.dumps(passage.sent([torch.ones(2)], 8, 1))
    del passage
    assert ForkingPickler.loads(sent)[0].tolist() == [1, 1]


def test_descriptors_are_counted_before_they_run_out(monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, 256))
    passage = opened(workers=4)
    tensors = [torch.zeros(SMALL_BYTES // 4) for _ in range(10)]
    budget = int(passage._rows[0])
    assert 0 < budget < 256 // (2 * 4 * 3)
    why = [crossed(passage, tensors[:count], 10 * BIG.nbytes, count)[1] for count in (budget, budget + 1)]
    assert why == ["", "descriptors"] and "of 256 (ulimit -n) too few are left" in passage.said[0]


def test_the_soft_limit_is_raised_when_half_of_it_is_used(monkeypatch):
    limits = [(64, 1024)]
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, pair: limits.append(pair))
    opened()
    assert limits[1:] == [(256, 1024)]


def test_a_worker_begins(monkeypatch):
    original = torch.UntypedStorage.__dict__.get("_new_shared")
    passage = opened()
    try:
        passage.begun()
        monkeypatch.setattr(torch.utils.data._utils.worker, "_worker_info", object())
        monkeypatch.setattr(os, "statvfs", space(1 << 30))
        assert default_collate([BIG, BIG]).is_shared()
        assert not default_collate([torch.ones(2)] * 2).is_shared()  # small
        monkeypatch.setattr(os, "statvfs", space(0))
        assert not default_collate([BIG, BIG]).is_shared()
    finally:
        if original is None:
            del torch.UntypedStorage._new_shared
        else:
            torch.UntypedStorage._new_shared = original  # type: ignore[method-assign]


def test_whether_workers_can_start(monkeypatch, caplog):
    assert can_start(torch_numbers=True)
    monkeypatch.setattr(os, "statvfs", space(4096))
    with pytest.raises(UsageError, match=r"workers cannot be started: 4.0 KiB free of 4.0 GiB in /dev/shm"):
        can_start(torch_numbers=True)
    with caplog.at_level(logging.WARNING, "fastfeed.loader"):
        assert not can_start(torch_numbers=False)
    assert "without workers, which gives the same batches" in caplog.text


def test_slots_work_behind_a_batch_that_cannot_be_sent():
    passage = opened()
    passage._slots = Slots(2)
    made, not_a_leaf = passage.memory((2 * SMALL_BYTES,), dtype=torch.uint8), torch.ones(3, requires_grad=True) * 2
    with pytest.raises(RuntimeError, match="non-leaf"):
        passage.sent([made, not_a_leaf], 2 * SMALL_BYTES, 2)
    for number in range(3):
        made = passage.memory((2 * SMALL_BYTES,), dtype=torch.uint8).fill_(number)
        found, why = crossed(passage, [made], 2 * SMALL_BYTES)
        assert why == "" and torch.equal(found[0], made) and not found[0].is_shared()
