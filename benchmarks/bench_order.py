#!/usr/bin/env python3
"""The order in which samples are drawn: what it costs to compute, how random it is, and how a cold disk likes it.

    python benchmarks/bench_order.py                           all three
    python benchmarks/bench_order.py --read-bytes 0            without writing and reading a file

README.md says what each figure means. Reading takes a temporary file of --read-bytes (1 GiB).
"""

import os
import random
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import BatchSampler, DistributedSampler, RandomSampler, Sampler

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks.measure import (
    Record,
    arguments,
    file_system,
    machine_facts,
    print_facts,
    print_table,
    shown,
    spread,
    write_json,
)
from fastfeed.feed.mixing import Randomness, randomness
from fastfeed.feed.order import FeedSampler
from fastfeed.feed.permutation import Permutation
from fastfeed.units import parse_size

SAMPLES, CLASSES, BATCH, WORLD = 1_281_167, 1000, 256, 8
SAMPLE_BYTES = 110_000
SIZES = (100_000, SAMPLES, 10**9)


# ------------------------------------------------------------------------------------------------ what it costs
def made(order: str, size: int) -> "Sampler[int]":
    """A sampler by the name of its order."""
    if order == "torch DistributedSampler":
        return DistributedSampler(range(size), 1, 0)  # type: ignore[arg-type]
    if order == "torch RandomSampler":
        return RandomSampler(range(size), generator=torch.Generator())
    return FeedSampler(size, distributed=False, mode="block" if order == "block" else "full")


def first_and_each(order: str, size: int, count: int) -> tuple[float, float]:
    """CPU seconds to the first index, and for each of many that are drawn in batches, as a loader draws them."""
    began = time.process_time()
    next(iter(made(order, size)))
    first, began = time.process_time() - began, time.process_time()
    for _ in islice(BatchSampler(made(order, size), BATCH, drop_last=False), count // BATCH):
        pass
    return first, (time.process_time() - began) / count


def bare(size: int, count: int) -> float:
    """CPU seconds an index of a permutation as an array."""
    began = time.process_time()
    Permutation(size, 0)[:count]
    return (time.process_time() - began) / count


def costs(rounds: int) -> list[Record]:
    """CPU seconds to the first index and for each."""
    found: list[Record] = []
    for size in SIZES:
        count = min(size, SAMPLES)
        torchs = ["torch DistributedSampler", "torch RandomSampler"] if size <= SAMPLES else []  # at 10^9: 40 GB and more
        runs: dict[str, list[tuple[float, float]]] = {name: [] for name in ("full", "block", *torchs)}
        arrays = []
        for _ in range(rounds):
            for name, measured in runs.items():
                measured.append(first_and_each(name, size, count))
            arrays.append(bare(size, count))
        for name, measured in runs.items():
            first, each = zip(*measured, strict=True)
            found.append({"size": size, "order": name, "first": spread(first), "each": spread(each)})
        found.append({"size": size, "order": "Permutation, as an array", "first": None, "each": spread(arrays)})
    return found


# ------------------------------------------------------------------------------------------------ how random it is
def mixings() -> list[Record]:
    """Rank 0 of 8, batches of 256, a dataset of ImageNet's size: classes sorted in storage, and in random order."""
    stored_sorted = np.sort(np.arange(SAMPLES) % CLASSES)
    stored_random = np.random.default_rng(0).permutation(stored_sorted)
    settings: list[tuple[str, dict[str, Any]]] = [("full", {})]
    settings += [
        (f"block of {block}, {lanes} lanes a rank", {"mode": "block", "block": block, "lanes": lanes * WORLD})
        for lanes, block in ((4, 256), (16, 64), (16, 256), (16, 1024), (64, 256))
    ]
    found = []
    for name, options in settings:
        order = np.fromiter(FeedSampler(SAMPLES, distributed=(0, WORLD), **options), dtype=np.int64)
        both = [randomness(order, labels, BATCH) for labels in (stored_sorted, stored_random)]
        found.append({"order": name, "sorted": both[0], "random": both[1]})
    return found


# ------------------------------------------------------------------------------------------------ how a disk likes it
def read_epoch(path: str, batches: list[NDArray[np.int64]], workers: int) -> None:
    """Batch k by worker k mod workers, each with its own open file, a batch's samples in the order of storage."""

    def work(worker: int) -> None:
        descriptor = os.open(path, os.O_RDONLY)
        for batch in batches[worker::workers]:
            for position in np.sort(batch).tolist():
                os.pread(descriptor, SAMPLE_BYTES, position * SAMPLE_BYTES)
        os.close(descriptor)

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(work, range(workers)))


def readings(folder: str, size_bytes: int, rounds: int) -> list[Record]:
    """Wall seconds to read every sample of a file that is not in the page cache."""
    size = size_bytes // SAMPLE_BYTES
    path = os.path.join(folder, "samples")
    with Path(path).open("wb") as file:
        file.writelines(random.randbytes(SAMPLE_BYTES) for _ in range(size))
        file.flush()
        os.fsync(file.fileno())
    orders: dict[str, dict[str, Any]] = {"stored": {"shuffle": False}, "full": {}, "block": {"mode": "block"}}
    runs: dict[tuple[str, int], list[float]] = {}
    for number in range(rounds):
        for name, options in orders.items():
            for workers in (1, 4):
                sampler = FeedSampler(size, distributed=False, seed=number, **options)
                batches = [np.array(batch) for batch in BatchSampler(sampler, BATCH, drop_last=False)]
                descriptor = os.open(path, os.O_RDONLY)
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
                os.close(descriptor)
                began = time.perf_counter()
                read_epoch(path, batches, workers)
                rate = size * SAMPLE_BYTES / (time.perf_counter() - began) / 1e6
                runs.setdefault((name, workers), []).append(rate)
    return [{"order": name, "workers": workers, "mb_per_second": spread(rates)} for (name, workers), rates in runs.items()]


# ------------------------------------------------------------------------------------------------ the tables
def print_costs(found: list[Record]) -> None:
    """A line an order."""
    rows = [
        [
            one["order"],
            f"{one['size']:,}",
            shown(one["first"], ".2f", 1e3) if one["first"] else "",
            shown(one["each"], ".0f", 1e9),
        ]
        for one in found
    ]
    print_table(["order", "samples", "to the first, CPU ms", "an index in batches, CPU ns"], rows)


def print_mixings(found: list[Record]) -> None:
    """A line an order."""
    rows = []
    for one in found:
        by_class, mixed = one["sorted"], one["random"]
        assert isinstance(by_class, Randomness)
        assert isinstance(mixed, Randomness)
        rows.append([
            one["order"], f"{mixed.sequential:.1%}", f"{mixed.displacement:.3f}", f"{mixed.classes:.1f}",
            f"{mixed.design_effect:.3f}", f"{by_class.classes:.1f}", f"{by_class.design_effect:.1f}",
        ])  # fmt: skip
    head = [
        "order",
        "forward",
        "displacement",
        "stored at random: classes",
        "design effect",
        "sorted: classes",
        "design effect",
    ]
    print_table(head, rows)


def main() -> None:
    """Measure and print."""
    parser = arguments(__doc__, rounds=5)
    parser.add_argument(
        "--read-bytes", type=parse_size, default=parse_size("1GiB"), help="of the file that is read (1GiB; 0: none)"
    )
    args = parser.parse_args()
    facts = machine_facts(packages=("torch", "numpy"))
    print_facts(facts)
    record: Record = {"machine": facts, "costs": costs(args.rounds)}
    print_costs(record["costs"])
    mixed = mixings()
    print_mixings(mixed)
    record["mixings"] = [{name: str(value) for name, value in one.items()} for one in mixed]
    if args.read_bytes:
        with tempfile.TemporaryDirectory(prefix="bench_order_", dir=args.out) as folder:
            kind = file_system(folder)
            record["readings"] = {"file_system": kind, "runs": readings(folder, args.read_bytes, args.rounds)}
        print(f"reading {args.read_bytes:,} bytes on {kind}, page cache dropped before each run")
        rows = [[one["order"], str(one["workers"]), shown(one["mb_per_second"], ".0f")] for one in record["readings"]["runs"]]
        print_table(["order", "workers", "MB/s"], rows)
    write_json(args.json, record)


if __name__ == "__main__":
    main()
