"""fastfeed/feed/costs.py: sentences for what the user decided against the facts, read off whole plans."""

import pytest
from machines import machine

from fastfeed.feed.ceilings import Setting, SizingFacts, WorkerRequest
from fastfeed.feed.costs import Decision, costs
from fastfeed.feed.sizing import plan_workers

MIB = 1 << 20


def costs_of(request, facts=None, **of_machine):
    return plan_workers(WorkerRequest(**request), SizingFacts(machine=machine(**of_machine), **(facts or {}))).costs


def test_what_is_left_out_costs_nothing():
    assert costs_of({}) == ()
    assert costs_of({"num_workers": 8, "pin_memory": True}, gpus=1) == ()


@pytest.mark.parametrize(
    ("request_", "facts", "of_machine", "parts"),
    [
        ({"num_workers": 16}, {}, {"processors": 4}, ["num_workers=16: on 4 usable processors: they take turns"]),
        ({"num_workers": 2}, {}, {"quota": 0.5}, ["num_workers=2: on 0.5 usable processors"]),
        ({"num_workers": 1}, {}, {}, ["num_workers=1: 8 would have been started"]),
        ({"num_workers": 0}, {}, {}, ["num_workers=0: each batch is made while training waits; 8 workers would"]),
        ({"num_workers": 8}, {"batch_bytes": 20 * MIB}, {"shared": 64 * MIB},
         ["num_workers=8: none fits: 200.0 MiB of /dev/shm are needed", "--shm-size"]),
        ({"num_workers": 8}, {"batch_bytes": 4 * MIB, "batch_tensors": 0}, {"shared": 32 * MIB, "soft": 9999},
         ["num_workers=8: at most 5 fit: 40.0 MiB of /dev/shm are needed"]),
        ({"num_workers": 8}, {"batch_bytes": 100 * MIB}, {"memory": 1024 * MIB}, ["the kernel kills a worker"]),
        ({"num_workers": 40}, {}, {"soft": 256, "hard": 256, "processors": 64}, ['it ends with "Too many open files"']),
        ({"num_workers": 4, "batches": 2}, {}, {}, ["num_workers=4: 2 batches an epoch"]),
        ({"num_workers": 4, "multiprocessing_context": "spawn"}, {"unpicklable": "a lambda"}, {}, ["4: spawn gives"]),
        ({"num_workers": 4}, {"daemonic": True}, {}, ["num_workers=4: this process is a daemonic child"]),
        ({"pin_memory": False}, {}, {"gpus": 1}, ["pin_memory=False: copies to the GPU cannot overlap"]),
        ({"pin_memory": True}, {}, {}, ["pin_memory=True has no effect: no GPU"]),
        ({"persistent_workers": False}, {"own_dataset": True}, {}, ["persistent_workers=False: each epoch begins"]),
        ({"prefetch_factor": 0}, {}, {}, ["prefetch_factor=0"]),
        ({"prefetch_factor": 4}, {"daemonic": True}, {}, ["prefetch_factor=4 has no effect without workers"]),
        ({"persistent_workers": True}, {"daemonic": True}, {}, ["persistent_workers=True has no effect without workers"]),
    ],
)  # fmt: skip
def test_what_it_costs(request_, facts, of_machine, parts):
    said = "\n".join(costs_of(request_, facts, **of_machine))
    for part in parts:
        assert part in said


def test_no_workers_where_none_are_possible_cost_nothing():
    assert costs_of({"num_workers": 0}, {"daemonic": True}) == ()


def test_a_decision_is_judged_by_what_computes():
    facts = SizingFacts(machine=machine())
    setting = Setting(prefetch_factor=2, sharing="file_descriptor", soft_descriptors=99, pin_memory=False)
    decision = Decision(start=4, count=4, setting=setting, ceilings=plan_workers(WorkerRequest(), facts).ceilings, gate=None)
    assert decision.most == 15
    assert costs(WorkerRequest(num_workers=4), facts, decision) == ()
