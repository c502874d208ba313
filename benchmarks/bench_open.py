#!/usr/bin/env python3
"""How opening a packed dataset grows with the number of samples: time, memory, a random look-up, what a pickle weighs.

    python benchmarks/bench_open.py                            10 thousand, 1 million and 10 million samples
    python benchmarks/bench_open.py --samples 10000 --rounds 3

The datasets are synthetic: a real index (one photo and its class a sample) and a real manifest, but shards that are sparse
files without content, since opening reads none. Each has the same number of shards, so that samples are all that differs.
README.md says what each figure means. The largest takes about 2 GB of disk and 4 GB of memory while it is made.
"""

import argparse
import hashlib
import json
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.reduction import ForkingPickler
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks.measure import (
    Record,
    arguments,
    file_system,
    in_fresh_process,
    machine_facts,
    print_facts,
    print_table,
    shown,
    spread,
    write_json,
)
from fastfeed.archive import columns, manifest
from fastfeed.archive.columns import BYTES, STARTS, ColumnData
from fastfeed.archive.index import MEMBER, SAMPLE
from fastfeed.archive.manifest import FOLDER, INDEX, LEFT_OUT, MANIFEST, Manifest, OwnedFile, ShardEntry
from fastfeed.archive.shard import shard_file
from fastfeed.archive.tar import BLOCK_BYTES, trailer_bytes

SAMPLES = (10_000, 1_000_000, 10_000_000)
SHARDS = 300
LOOKUPS = 1000
_CLASSES = 1000
_NAME = b"n00000000/n00000000_00000000.JPEG"
_SEED = 20


# ------------------------------------------------------------------------------------------------ the synthetic dataset
def make_dataset(folder: Path, samples: int) -> int:
    """Write index, manifest and empty shards; give the size of the index."""
    (folder / FOLDER).mkdir(parents=True)
    index = folder / FOLDER / INDEX
    sizes, offsets, shards = lay_out(samples)
    with index.open("wb") as file:
        columns.write(file, {SAMPLE: samples, MEMBER: 2 * samples}, index_columns(samples, sizes, offsets))
        file.flush()
        os.fsync(file.fileno())
    for shard in shards:
        with (folder / shard.file).open("wb") as file:
            file.truncate(shard.size_bytes)
    with index.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    nothing = hashlib.sha256(b"").hexdigest()
    record = Manifest(
        name="train", split="", samples=samples, members=2 * samples, source_files=samples, source_bytes=int(sizes[1::2].sum()),
        source_digest=nothing, layout="classes", order="imagefolder", fields=("cls", "jpg"),
        classes=tuple(f"n{number:08d}" for number in range(_CLASSES)), options={}, left_out_count=0,
        index=OwnedFile(INDEX, index.stat().st_size, digest), left_out=OwnedFile(LEFT_OUT, 0, nothing), shards=tuple(shards),
    )  # fmt: skip
    (folder / FOLDER / LEFT_OUT).write_bytes(b"")
    (folder / FOLDER / MANIFEST).write_bytes(manifest.encode(record))
    return index.stat().st_size


def lay_out(samples: int) -> tuple[NDArray[np.uint64], NDArray[np.uint64], list[ShardEntry]]:
    """Size and offset of each member (class, then photo), and the shards."""
    draw = np.random.default_rng(_SEED)
    sizes = np.empty(2 * samples, dtype=np.uint64)
    sizes[0::2] = [len(str(label)) for label in labels_of(samples)]
    sizes[1::2] = draw.integers(20_000, 200_000, samples)
    spans = BLOCK_BYTES + (sizes + BLOCK_BYTES - 1) // BLOCK_BYTES * BLOCK_BYTES
    ends = np.cumsum(spans, dtype=np.uint64)
    offsets = ends - spans + BLOCK_BYTES
    base, more = divmod(samples, SHARDS)
    shards, first = [], 0
    for number in range(SHARDS):
        stop = first + base + (number < more)
        before = int(ends[2 * first - 1]) if first else 0
        offsets[2 * first : 2 * stop] -= np.uint64(before)
        inside = int(ends[2 * stop - 1]) - before
        entry = ShardEntry(shard_file("train", number), stop - first, inside + trailer_bytes(inside), "")
        shards.append(replace(entry, sha256=hashlib.sha256(entry.file.encode()).hexdigest()))
        first = stop
    return sizes, offsets, shards


def labels_of(samples: int) -> NDArray[np.int64]:
    """Classes in a row, as ImageFolder orders them."""
    return np.arange(samples, dtype=np.int64) * _CLASSES // samples


def index_columns(samples: int, sizes: NDArray[np.uint64], offsets: NDArray[np.uint64]) -> list[ColumnData]:
    """The columns that pack writes, in its order."""
    draw, members = np.random.default_rng(_SEED), 2 * samples
    names = sample_names(samples)
    photo = np.arange(members) % 2
    return [
        ColumnData(SAMPLE, "members", STARTS, (np.arange(samples + 1, dtype=np.uint64) * np.uint64(2),)),
        ColumnData(MEMBER, "field", "uint16", (photo.astype(np.uint16),)),
        ColumnData(MEMBER, "offset", "uint64", (offsets,)),
        ColumnData(MEMBER, "size", "uint64", (sizes,)),
        ColumnData(MEMBER, "xxh3", "uint64", (draw.integers(0, 1 << 63, members, dtype=np.uint64),)),
        ColumnData(SAMPLE, "label", "int64", (labels_of(samples),), required=False),
        ColumnData(MEMBER, "codec", "uint8", (photo.astype(np.uint8),), required=False),
        ColumnData(MEMBER, "width", "uint32", ((photo * 468).astype(np.uint32),), required=False),
        ColumnData(MEMBER, "height", "uint32", ((photo * 401).astype(np.uint32),), required=False),
        ColumnData(MEMBER, "orientation", "uint8", (np.zeros(members, dtype=np.uint8),), required=False),
        ColumnData(SAMPLE, "key", BYTES, strings(names[:, : _NAME.index(b".")], np.ones(samples, dtype=bool))),
        ColumnData(MEMBER, "source", BYTES, strings(names, photo.astype(bool)), required=False),
    ]


def sample_names(samples: int) -> NDArray[np.uint8]:
    """Paths like n00000123/n00000123_00012345.JPEG, one a row of bytes."""
    names = np.tile(np.frombuffer(_NAME, dtype=np.uint8), (samples, 1))
    numbers, labels = np.arange(samples), labels_of(samples)
    for digit in range(8):
        names[:, 27 - digit] += (numbers // 10**digit % 10).astype(np.uint8)
        names[:, 8 - digit] += (labels // 10**digit % 10).astype(np.uint8)
        names[:, 18 - digit] += (labels // 10**digit % 10).astype(np.uint8)
    return names


def strings(texts: NDArray[np.uint8], filled: NDArray[np.bool_]) -> tuple[object, object]:
    """Starts and bytes of a column in which only the filled rows have a text."""
    starts = np.zeros(len(filled) + 1, dtype=np.uint64)
    np.cumsum(filled * np.uint64(texts.shape[1]), out=starts[1:])
    return starts, np.ascontiguousarray(texts).reshape(-1)


# ------------------------------------------------------------------------------------------------ one run, in its own process
def resident() -> dict[str, int]:
    """Resident bytes of this process: all of it, and the part that is its own (not pages of mapped files)."""
    words = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return {name: int(words[name].split()[0]) << 10 for name in ("VmRSS", "RssAnon")}


def timed(call: Callable[[], object]) -> float:
    """Seconds of one call."""
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def child(order: Record) -> None:
    """Import, open, look samples up."""
    from fastfeed.archive.dataset import Archive
    from fastfeed.feed.dataset import PackedDataset

    path, samples = order["path"], order["samples"]
    if order["cold"]:
        drop_pages(os.path.join(path, FOLDER, INDEX))
    draw = random.Random(order["seed"])
    before, cpu, began = resident(), time.process_time(), time.perf_counter()
    dataset = PackedDataset(path)
    opened, cpu_opened, after = time.perf_counter() - began, time.process_time() - cpu, resident()
    assert len(dataset) == samples
    rows = [draw.randrange(samples) for _ in range(LOOKUPS)]
    first = timed(lambda: dataset.identity(rows[0]))
    identities = [timed(lambda row=row: dataset.identity(row)) for row in rows]  # type: ignore[misc]
    looked = resident()
    archive = Archive(path)
    places = [timed(lambda row=row: list(archive.places(row))) for row in rows]  # type: ignore[misc]
    found = {
        "open_seconds": opened, "open_cpu_seconds": cpu_opened, "first_identity_seconds": first,
        "identity_seconds": statistics.median(identities), "places_seconds": statistics.median(places),
        "pickle_bytes": len(ForkingPickler.dumps(dataset)),
        **{f"open_{name}_bytes": after[name] - before[name] for name in after},
        **{f"lookups_{name}_bytes": looked[name] - after[name] for name in after},
    }  # fmt: skip
    print(json.dumps(found))


def drop_pages(path: str) -> None:
    """Take one file out of the page cache."""
    descriptor = os.open(path, os.O_RDONLY)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


# ------------------------------------------------------------------------------------------------ all runs
def bench(samples: int, folder: Path, rounds: int) -> Record:
    """Runs with the index in the page cache, then with it dropped before each."""
    found: Record = {"samples": samples}
    for name, cold in (("warm", False), ("cold", True)):
        order = {"path": str(folder), "samples": samples, "cold": cold}
        runs = [in_fresh_process(__file__, {**order, "seed": number}) for number in range(rounds)]
        found[name] = {**{part: spread(one[part] for one in runs) for part in runs[0]}, "runs": runs}
    return found


def print_results(results: list[Record]) -> None:
    """One table: a column a dataset."""
    head = ["", *(f"{found['samples']:,} samples" for found in results)]
    figures = (
        ("open, ms", "warm", "open_seconds", ".2f", 1e3),
        ("open, CPU ms", "warm", "open_cpu_seconds", ".2f", 1e3),
        ("open, index not in page cache, ms", "cold", "open_seconds", ".2f", 1e3),
        ("resident memory grown by opening, MiB", "warm", "open_VmRSS_bytes", ".2f", 2**-20),
        (f"resident memory grown by {LOOKUPS:,} look-ups, MiB", "warm", "lookups_VmRSS_bytes", ".2f", 2**-20),
        ("- of it not pages of the index, MiB", "warm", "lookups_RssAnon_bytes", ".2f", 2**-20),
        ("first .identity(i), us", "warm", "first_identity_seconds", ".0f", 1e6),
        (".identity(i) of a random i, us", "warm", "identity_seconds", ".1f", 1e6),
        ("byte ranges of a random sample, us", "warm", "places_seconds", ".1f", 1e6),
        ("pickle, bytes", "warm", "pickle_bytes", ".0f", 1),
    )
    rows = [["index, MB", *(f"{found['index_bytes'] / 1e6:,.1f}" for found in results)]]
    for name, when, part, form, scale in figures:
        rows.append([name, *(shown(found[when][part], form, scale) for found in results)])
    print_table(head, rows)


def parse() -> argparse.Namespace:
    """The command line."""
    parser = arguments(__doc__, rounds=9)
    parser.add_argument("--samples", type=int, nargs="+", default=SAMPLES, help=f"at least {SHARDS} each (default {SAMPLES})")
    return parser.parse_args()


def main() -> None:
    """Make, measure, print."""
    args = parse()
    if args.child is not None:
        child(args.child)
        return
    facts = machine_facts(packages=("torch", "numpy"))
    results = []
    with tempfile.TemporaryDirectory(prefix="bench_open_", dir=args.out) as home:
        for samples in args.samples:
            print(f"{samples:,} samples ...", file=sys.stderr, flush=True)
            folder = Path(home) / str(samples)
            index_bytes = make_dataset(folder, samples)
            results.append({**bench(samples, folder, args.rounds), "index_bytes": index_bytes})
            shutil.rmtree(folder)
        kind = file_system(home)
    print_facts(facts)
    print(f"on {kind}, {SHARDS} shards each, {args.rounds} processes each, median (min - max)")
    print_results(results)
    write_json(args.json, {"machine": facts, "file_system": kind, "shards": SHARDS, "results": results})


if __name__ == "__main__":
    main()
