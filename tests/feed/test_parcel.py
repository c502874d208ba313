import os
from collections import namedtuple
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np
import pytest
import torch
from loading import Held, equal, remains, settled
from torch import multiprocessing

from fastfeed.feed.parcel import FILE_BYTES, MOST_FILES, MemoryFile, Parcel, memory_files_work, storages_of

Pair = namedtuple("Pair", "one other")  # noqa: PYI024 - as users write them


def through_a_pipe(data: Any) -> Any:
    return ForkingPickler.loads(ForkingPickler.dumps(Parcel(data, files=False)))


def send(queue: Any, done: Any, data: Any) -> None:
    torch.set_num_threads(1)  # as in torch's workers: OpenMP's threads are not there after a fork
    queue.put(Parcel(data, files=True))
    done.wait()


def from_a_worker(data: Any) -> Any:
    """What the main process receives of a child's parcel, with memory files."""
    context = multiprocessing.get_context("fork")
    queue, done = context.Queue(), context.Event()
    child = context.Process(target=send, args=(queue, done, data))
    child.start()
    try:
        return queue.get(timeout=60)
    finally:
        done.set()
        child.join()
        queue.close()
        queue.join_thread()


@pytest.mark.parametrize("send_it", [through_a_pipe, from_a_worker])
def test_what_arrives_is_what_was_sent(send_it):
    large = torch.arange(FILE_BYTES // 2 + 5, dtype=torch.int32)
    data = {
        "batch": [large, torch.rand(2, 3, dtype=torch.float64), torch.tensor(True)],
        "pair": Pair(torch.empty(0, 4), torch.tensor([], dtype=torch.int64)),
        "arrays": (np.arange(5), np.zeros((2, 3), dtype="F", order="F"), np.array(["a", "b"])),
        "half": torch.ones(3, dtype=torch.bfloat16),
        "plain": ["text", 1, 2.5, None, b"bytes"],
    }
    assert equal(send_it(data), data)


@pytest.mark.parametrize("send_it", [through_a_pipe, from_a_worker])
def test_views_share_their_memory_as_before_and_keep_their_strides(send_it):
    large = torch.arange(FILE_BYTES, dtype=torch.float32).reshape(4, -1)
    found = send_it(Held(large, large.t()[::3], [large[1]]))
    assert isinstance(found, Held) and torch.equal(found.large, large) and torch.equal(found.part, large.t()[::3])
    assert found.part.stride() == large.t()[::3].stride() and found.part.storage_offset() == 0
    found.large[0, 0] = -1
    assert found.part[0, 0] == -1  # writable, and one memory


def test_a_small_view_comes_without_the_rest():
    rows = torch.arange(1 << 20).reshape(1024, 1024)
    found = through_a_pipe([rows[3], rows[5].clone().requires_grad_(False)])
    assert torch.equal(found[0], rows[3]) and found[0].untyped_storage().nbytes() == 8 * 1024
    weight = torch.zeros(1 << 16)
    leaf = weight[:2].detach().requires_grad_()
    assert through_a_pipe(leaf).requires_grad


@pytest.mark.filterwarnings("ignore:Sparse invariant checks:UserWarning")  # torch's, wherever one is made
def test_sparse_tensors_parameters_and_read_only_arrays():
    sparse = torch.eye(3).to_sparse()
    parameter = torch.nn.Parameter(torch.ones(2))
    frozen = np.arange(4)
    frozen.flags.writeable = False
    found = through_a_pipe([sparse, parameter, frozen])
    assert torch.equal(found[0].to_dense(), torch.eye(3)) and found[0].is_sparse
    assert isinstance(found[1], torch.nn.Parameter) and found[1].requires_grad and torch.equal(found[1], parameter)
    assert found[2].flags.writeable and found[2].tolist() == [0, 1, 2, 3]


def test_a_parcel_is_a_copy():
    tensor = torch.zeros(3)
    parcel = Parcel([tensor], files=False)
    tensor += 1
    assert ForkingPickler.loads(ForkingPickler.dumps(parcel))[0].tolist() == [0, 0, 0]


def test_received_memory_holds_no_descriptor_and_nothing_of_dev_shm():
    assert memory_files_work()
    before = remains()
    descriptors = len(os.listdir("/proc/self/fd"))
    found = from_a_worker([torch.full((FILE_BYTES,), at, dtype=torch.uint8) for at in range(MOST_FILES + 3)])
    assert len(os.listdir("/proc/self/fd")) == descriptors
    assert all(bool((tensor == at).all()) for at, tensor in enumerate(found))
    assert sum(tensor.is_shared() for tensor in found) == 0  # as torch sees it: memory of this process
    with open("/proc/self/maps", encoding="utf-8") as maps:
        assert sum("memfd:fastfeed" in line for line in maps) >= 1
    assert not settled(before)


def test_a_block_is_bytes_where_no_memory_file_can_be_had(monkeypatch):
    def refuse(name: str) -> int:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(os, "memfd_create", refuse)
    parcel = Parcel([torch.zeros(FILE_BYTES)], files=True)
    assert not any(isinstance(block, MemoryFile) for block in parcel.blocks) and not memory_files_work()
    assert torch.equal(ForkingPickler.loads(ForkingPickler.dumps(parcel))[0], torch.zeros(FILE_BYTES))


def test_storages_of_containers_of_any_class():
    one, two = torch.zeros(4), torch.zeros(5)
    assert [storage.nbytes() for storage in storages_of([{"a": one}, (two, 3, "x"), np.zeros(9)])] == [16, 20]
    assert sorted(storage.nbytes() for storage in storages_of(Held(one, one[:2], {"deep": [two]}))) == [16, 20]
    assert storages_of(["text", 3]) == [] and storages_of(None) == []
    assert len(storages_of(torch.eye(3).to_sparse())) == 2


def test_a_batch_that_contains_itself():
    batch: list[Any] = [torch.ones(3)]
    batch.append(batch)
    assert [storage.nbytes() for storage in storages_of(batch)] == [12]
    found = through_a_pipe(batch)
    assert found[1] is found and found[0].tolist() == [1, 1, 1]
