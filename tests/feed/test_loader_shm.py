"""Small and full /dev/shm: no Bus error, no failed allocation, the same batches; the plan says what happens."""

import pytest
from loading import in_own_space

BEGIN = """
import gc, json, os, sys
import torch
from loading import Flow, Held, Large, equal, hold
from fastfeed.feed.loader import DataLoader

def same(one, other):
    if isinstance(one, Held):
        return equal([one.large, one.part, one.rest], [other.large, other.part, other.rest]) and one.part.stride() == (
            other.part.stride()) and other.part.untyped_storage().data_ptr() == other.large.untyped_storage().data_ptr()
    return equal(one, other)

def compared(expected, loader):
    batches = iter(loader)
    return all(same(one, next(batches)) for one in expected) and next(batches, None) is None

def fill():
    file = os.open("/dev/shm/other", os.O_CREAT | os.O_WRONLY)
    try:
        while os.write(file, bytes(4096)):
            pass
    except OSError:
        os.close(file)
"""

SMALL = """
found = {}
for name, options in {
    "torch": {}, "sample": {"seed": 3, "num_workers": 4}, "own": {"collate_fn": hold}, "single": {"batch_size": None},
}.items():
    if name not in sys.argv[2:]:
        continue
    given = {"batch_size": 3, "num_workers": 2, **options, "multiprocessing_context": sys.argv[1]}
    expected = list(DataLoader(Large(12, 8), **{**given, "num_workers": 0, "multiprocessing_context": None}))
    loader = DataLoader(Large(12, 8), **given)
    found[name] = compared(expected, loader), dict(loader._passage.went), str(loader.plan)
del loader
gc.collect()  # a queue of spawned workers is a cycle, whose semaphore has its name until the cycle is collected
print(json.dumps([found, os.listdir("/dev/shm")]))
"""


@pytest.mark.long
@pytest.mark.parametrize(("method", "names"), [("fork", ["torch", "sample", "own", "single"]), ("spawn", ["torch"])])
def test_64_mib_of_shared_memory_and_large_batches(method, names):
    found, left = in_own_space(BEGIN + SMALL, 64, method, *names)
    assert not left and list(found) == names
    for name, (equal, went, plan) in found.items():
        assert equal, name
        if name == "single":  # 8 MiB each: there is room for some of them
            assert sum(went.values()) == 12
        else:  # 24 MiB each, which several workers may take at once
            assert went.get("room", 0) >= (4 if name == "sample" else 1), name
            assert "batches go past /dev/shm" in plan and "docker run --shm-size" in plan


LARGER_THAN_ALL = """
expected = list(DataLoader(Large(4, 24), 1))
loader = DataLoader(Large(4, 24), 1, num_workers=2, seed=1, persistent_workers=False)
before = str(loader.plan)
first = compared(expected, loader)
after = loader.plan
again = compared(expected, loader)
print(json.dumps([first, again, dict(loader._passage.went), before, str(after), after.sharing, after.costs]))
"""


@pytest.mark.long
def test_batches_larger_than_all_of_it_go_past_it_and_the_plan_is_made_anew():
    first, again, went, before, after, sharing, costs = in_own_space(BEGIN + LARGER_THAN_ALL, 16)
    assert first and again and went == {"room": 4, "asked": 4}
    assert "16.0 MiB free of 16.0 MiB in /dev/shm: batches for which that is too little go past it" in before
    assert sharing == "pipe" and "batches go past /dev/shm" in after
    cost = next(cost for cost in costs if cost.startswith("num_workers=2: batches go past /dev/shm"))
    assert "docker run --shm-size" in cost


FILLED = """
expected = list(DataLoader(Large(12, 1), 1))
loader = DataLoader(Large(12, 1), 1, num_workers=2, seed=1)
batches = iter(loader)
right = equal(expected[0], next(batches))
fill()
right = right and equal(expected[1:], list(batches))
went = dict(loader._passage.went)
del batches
fill()
alone = compared(expected, loader)
try:
    iter(DataLoader(Large(12, 1), 1, num_workers=2))
    refused = ""
except ValueError as error:
    refused = str(error)
decided = DataLoader(Large(12, 1), 1).plan
print(json.dumps([right, went, alone, refused, decided.num_workers, decided.why[0]]))
"""


@pytest.mark.long
def test_others_fill_it_in_the_middle_of_an_epoch():
    right, went, alone, refused, workers, why = in_own_space(BEGIN + FILLED, 32)
    assert right and went["room"] >= 3  # however many were on their way before
    assert alone  # the next epoch is read without workers, which no queue could be made for
    assert refused.startswith("workers cannot be started: 0 B free of 32.0 MiB") and "--shm-size" in refused
    assert workers == 0 and "0 B free of 32.0 MiB in /dev/shm" in why


STREAM = """
samples = list(DataLoader(Flow(8, 8), None))
loader = DataLoader(Flow(8, 8), 2, num_workers=2, multiprocessing_context=sys.argv[1])
right = {}
for batch in loader:
    for at, number in enumerate(batch["number"].tolist()):
        sample = samples[number]
        right[number] = all(equal(batch[name][at], torch.as_tensor(sample[name])) for name in ("large", "small", "array"))
print(json.dumps([right, dict(loader._passage.went), str(loader.plan)]))
"""


@pytest.mark.long
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_streams(method):
    right, went, plan = in_own_space(BEGIN + STREAM, 32, method)
    assert len(right) == 8 and all(right.values())
    assert went == {"room": 4} and "batches go past /dev/shm" in plan
