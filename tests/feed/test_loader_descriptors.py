"""Few descriptors, and a consumer that keeps its batches: neither "ancdata" nor "Too many open files"."""

import sys

import pytest
from loading import printed

SCRIPT = """
import json, os, resource, sys
soft, hard, method = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
import torch
from torch.utils.data import TensorDataset
from fastfeed.feed.loader import DataLoader

count = 300
rows = torch.arange(count, dtype=torch.int32).reshape(-1, 1)
data = TensorDataset(rows.expand(-1, 20_000), rows.expand(-1, 15_000), rows)  # 41 MiB: a container has 64 of /dev/shm
options = {"num_workers": 2, "multiprocessing_context": method, **json.loads(sys.argv[4])}
loader = DataLoader(data, 1, **options)
kept = list(loader)
right = all(bool((part == at).all()) for at, batch in enumerate(kept) for part in batch) and len(kept) == count
used = len(os.listdir("/proc/self/fd"))
went = dict(loader._passage.went)
del kept
again = [int(batch[2]) for batch in loader] == list(range(count))
print(json.dumps([right, used, went, again, resource.getrlimit(resource.RLIMIT_NOFILE)[0], str(loader.plan)]))
"""


def run(soft, hard, method="fork", options="{}"):
    return printed([sys.executable, "-W", "ignore", "-c", SCRIPT, str(soft), str(hard), method, options])


@pytest.mark.long
@pytest.mark.parametrize(("method", "options"), [("fork", "{}"), ("fork", '{"seed": 4}'), ("spawn", "{}")])
def test_256_descriptors_and_no_more(method, options):
    right, used, went, again, limit, plan = run(256, 256, method, options)
    assert right and again and used < 256 and limit == 256
    assert went["descriptors"] > 150 and went[""] > 10
    assert "a tensor in shared memory holds a descriptor, and of 256 (ulimit -n) too few are left" in plan


@pytest.mark.long
def test_a_soft_limit_is_raised_before_batches_go_another_way():
    right, used, went, again, limit, plan = run(256, 4096)
    assert right and again and went == {"": 300}
    assert used > 256 and 1024 <= limit <= 4096 and "go past /dev/shm" not in plan


MANY = """
import json, resource
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
import torch
from loading import Calls
from fastfeed.feed.loader import DataLoader

def sample(index):
    return [torch.full((2000,), float(index)) for _ in range(90)]

loader = DataLoader(Calls(sample, 20), 2, num_workers=3, prefetch_factor=3)
right = all(bool((part[0] == 2 * at).all()) and len(batch) == 90 for at, batch in enumerate(loader) for part in batch)
print(json.dumps([right, dict(loader._passage.went)]))
"""


@pytest.mark.long
def test_batches_of_more_tensors_than_there_are_descriptors():
    assert printed([sys.executable, "-W", "ignore", "-c", MANY]) == [True, {"descriptors": 10}]
