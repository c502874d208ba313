"""The slow place of bench_cache.py, and the local caches of others before it: each reads it as its own documentation shows.

A package is imported by the function that uses it, so that a process loads the one contender that it measures.
"""

import fcntl
import os
import shutil
import struct
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from benchmarks.measure import Record

FILES, FILE_BYTES, SHARD_BYTES = 1200, 100_000, 30_000_000
LATENCY_SECONDS, BYTES_A_SECOND = 0.001, 100e6
EPOCHS = 3


class Link:
    """A link that carries so many bytes a second for all processes that share a file, and takes a while for each read."""

    def __init__(self, path: str) -> None:
        self.path = path

    def carry(self, size: int) -> None:
        """Wait until it has carried some bytes."""
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        free, carried = struct.unpack("<qq", os.pread(descriptor, 16, 0) or bytes(16))
        now = time.monotonic_ns()
        free = max(now, free) + int(size / BYTES_A_SECOND * 1e9)
        os.pwrite(descriptor, struct.pack("<qq", free, carried + size), 0)
        fcntl.flock(descriptor, fcntl.LOCK_UN)  # a worker that another thread has forked just now has the descriptor as well
        os.close(descriptor)
        time.sleep((free - now) / 1e9 + LATENCY_SECONDS)

    def carried(self) -> int:
        """How many bytes so far."""
        try:
            return int(struct.unpack("<qq", Path(self.path).read_bytes())[1])
        except FileNotFoundError:
            return 0

    def slow_copies(self) -> None:
        """From now on what this process and its children copy with shutil.copy goes over it: whole shards, into a cache."""
        copy = shutil.copy

        def slow(source: Any, target: Any, **options: Any) -> Any:  # noqa: ANN401 - as shutil's
            self.carry(os.stat(source).st_size)
            return copy(source, target, **options)

        shutil.copy = slow  # type: ignore[assignment]


def epochs_of(batches: Iterable[Any], link: Link) -> Record:
    """Wall seconds of each epoch through a loader whose batches are numbers of samples, and bytes over the link meanwhile."""
    seconds, carried = [], []
    for _ in range(EPOCHS):
        before, began = link.carried(), time.perf_counter()
        assert sum(batches) == FILES
        seconds.append(time.perf_counter() - began)
        carried.append(link.carried() - before)
    return {"seconds": seconds, "carried": carried}


def kept_bytes(folder: str) -> int:
    """What files below a folder take."""
    return sum(file.stat().st_blocks * 512 for file in Path(folder).rglob("*") if file.is_file())


def payloads(folder: str) -> Iterable[dict[str, bytes]]:
    """The samples."""
    return ({"bin": file.read_bytes()} for file in sorted(Path(folder).iterdir()))


def streaming_once(order: Record) -> Record:
    """Epochs of mosaicml-streaming: shards are copied to a local folder when they are first wanted."""
    from streaming import MDSWriter, StreamingDataset
    from torch.utils.data import DataLoader

    link, remote, local = Link(order["link"]), order["path"] + "-mds", tempfile.mkdtemp(dir=order["place"])
    if not os.path.isdir(remote):
        with MDSWriter(out=remote, columns={"bin": "bytes"}, size_limit=SHARD_BYTES) as writer:
            for sample in payloads(order["source"]):
                writer.write(sample)
    link.slow_copies()
    dataset = StreamingDataset(remote=remote, local=local, shuffle=True, batch_size=32)
    found = epochs_of(DataLoader(dataset, 32, num_workers=2, collate_fn=len, persistent_workers=True), link)
    found["kept"] = kept_bytes(local)
    shutil.rmtree(local)
    return found


def litdata_once(order: Record) -> Record:
    """Epochs of litdata: chunks are copied to a local folder ahead of those that read them."""
    from litdata import StreamingDataLoader, StreamingDataset
    from litdata.streaming.writer import BinaryWriter

    link, remote, local = Link(order["link"]), order["path"] + "-litdata", tempfile.mkdtemp(dir=order["place"])
    if not os.path.isdir(remote):
        os.mkdir(remote)
        writer = BinaryWriter(remote, chunk_bytes=SHARD_BYTES)
        for number, sample in enumerate(payloads(order["source"])):
            writer[number] = sample
        writer.done()
        writer.merge(num_workers=1)
    link.slow_copies()
    dataset = StreamingDataset(f"local:{remote}", cache_dir=local, shuffle=True)
    found = epochs_of(StreamingDataLoader(dataset, batch_size=32, num_workers=2, collate_fn=len, persistent_workers=True), link)
    found["kept"] = kept_bytes(local)
    shutil.rmtree(local)
    return found


LOCAL_CACHES: dict[str, Callable[[Record], Record]] = {"streaming": streaming_once, "litdata": litdata_once}
"""By name in peers.PEERS."""
