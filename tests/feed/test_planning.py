import multiprocessing
import resource

import torch
from helpers import pack_photos
from torch.utils.data import Dataset, IterableDataset

import fastfeed
from fastfeed.feed.ceilings import WorkerRequest
from fastfeed.feed.planning import plan_of, raise_descriptors


class Numbers(Dataset):  # type: ignore[type-arg]
    def __len__(self):
        return 1000

    def __getitem__(self, index):
        return index


class Stream(IterableDataset):  # type: ignore[type-arg]
    def __iter__(self):
        return iter(range(9))


def test_what_is_left_out_is_decided_with_reasons():
    plan = plan_of(Numbers(), WorkerRequest(batches=100), own=False, block_order=False)
    assert plan.decided and plan.num_workers >= 1 and plan.why and not plan.persistent_workers
    assert plan.start_method == multiprocessing.get_start_method()
    assert plan.pin_memory is False or torch.cuda.is_available()


def test_what_is_passed_wins_and_its_cost_is_told():
    plan = plan_of(Numbers(), WorkerRequest(num_workers=500, batches=1000), own=False, block_order=False)
    assert (plan.num_workers, plan.decided) == (500, False) and "num_workers=500" in plan.costs[0]


def test_a_stream_gets_no_workers_unasked():
    assert plan_of(Stream(), WorkerRequest(), own=False, block_order=False).num_workers == 0
    assert plan_of(Stream(), WorkerRequest(num_workers=2), own=False, block_order=False).num_workers == 2


def test_workers_of_our_own_datasets_persist(tmp_path):
    ds = fastfeed.open(pack_photos(tmp_path))
    plan = plan_of(ds, WorkerRequest(batches=100), own=True, block_order=False)
    assert plan.persistent_workers or plan.num_workers == 0


def test_descriptors_are_raised_only_where_the_plan_says_so():
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    raise_descriptors(plan_of(Numbers(), WorkerRequest(num_workers=1, batches=9), own=False, block_order=False))
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == before
