#!/usr/bin/env python3
"""What an audit costs against loading the same photos once: processor seconds, whole and with --fast.

    python benchmarks/bench_audit.py
    python benchmarks/bench_audit.py --photo-files 1000 4000 20000 --rounds 5 --photos DIR
    python benchmarks/bench_audit.py --workers 1

Loading is what a user's dataset does: torchvision's ImageFolder without a transform, each sample asked for once, in order: the
file is opened, read, decoded by Pillow and converted to RGB. Not in it: Python's start, imports, and listing the folder. It is
measured in one process, which all ratios refer to, and by as many processes side by side as the audit has children, which
shows what processors that share caches and memory add for any loader.

The audit is one call of fastfeed.audit without a report, from its beginning to its end: with listing, the imports of its own
modules (fastfeed itself is imported before, as torchvision is), the start of its children, judging and measuring again.

All files are in the page cache. Each photo gets a comment of its own, so that no two files are equal. README.md says what each
figure means.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks.bench_loader import photos_of
from benchmarks.measure import (
    Record,
    arguments,
    in_fresh_process,
    machine_facts,
    print_facts,
    print_table,
    shown,
    spread,
    usage_of,
    write_json,
)  # fmt: skip

BASE, SIDE_BY_SIDE, FULL, FAST = "loading", "loading, side by side", "audit", "audit --fast"
WAYS = (BASE, SIDE_BY_SIDE, FULL, FAST)
FIGURES = ("cpu", "parent_cpu", "children_cpu", "wall")


def set_apart(folder: Path) -> int:
    """Put a comment with a number of its own into each photo (ITU-T T.81 B.2.4.5); gives how many photos there are."""
    number = 0
    for number, path in enumerate(sorted(folder.rglob("*.*")), 1):
        data, comment = path.read_bytes(), f"photo {number}".encode()
        path.unlink()  # it may be a link to a file that others use
        path.write_bytes(data[:2] + b"\xff\xfe" + (len(comment) + 2).to_bytes(2, "big") + comment + data[2:])
    return number


# ------------------------------------------------------------------------------------------------ one run, in its own process
def child(order: Record) -> None:
    """One way, once; prints what it used as JSON."""
    import json
    import resource

    work = _loading(order) if order["way"] in {BASE, SIDE_BY_SIDE} else _auditing(order)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = usage_of(work)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    children = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    parent = used["cpu_seconds"] - children
    print(json.dumps({**used, "parent_cpu_seconds": parent, "children_cpu_seconds": children}))


def _loading(order: Record) -> Callable[[], None]:
    import os

    from torchvision.datasets import ImageFolder

    dataset, processes = ImageFolder(order["folder"]), order["processes"] if order["way"] == SIDE_BY_SIDE else 1

    def load(first: int) -> None:
        for index in range(first, len(dataset), processes):
            dataset[index]

    def side_by_side() -> None:
        for first in range(processes):
            if os.fork() == 0:
                load(first)
                os._exit(0)
        for _ in range(processes):
            os.wait()

    return side_by_side if order["way"] == SIDE_BY_SIDE else lambda: load(0)


def _auditing(order: Record) -> Callable[[], object]:
    import fastfeed

    return lambda: fastfeed.audit(order["folder"], fast=order["way"] == FAST, workers=order["processes"])


# ------------------------------------------------------------------------------------------------ all of them
def bench(folder: Path, samples: int, args: argparse.Namespace) -> Record:
    """All ways in turn."""
    runs: dict[str, list[Record]] = {way: [] for way in WAYS}
    order = {"folder": str(folder), "processes": args.workers}
    for number in range(args.rounds):
        for way in WAYS:
            print(f"{samples:,} photos, round {number + 1}: {way} ...", file=sys.stderr, flush=True)
            runs[way].append(in_fresh_process(__file__, {"way": way, **order}))
    figures = {way: {name: spread(run[f"{name}_seconds"] for run in found) for name in FIGURES} for way, found in runs.items()}
    return {"samples": samples, "processes": args.workers, "runs": runs, "figures": figures}


def show(found: Record) -> None:
    """As a table."""
    base, samples, rows = found["figures"][BASE]["cpu"]["median"], found["samples"], []
    for way, figures in found["figures"].items():
        cpu, parent, children = (figures[name]["median"] for name in ("cpu", "parent_cpu", "children_cpu"))
        row = [way, f"{samples / cpu:,.0f}", f"{cpu / base:.2f}", shown(figures["cpu"]), f"{parent:.2f}", f"{children:.2f}"]
        rows.append([*row, f"{cpu * 1e3 / samples:.2f}", shown(figures["wall"])])
    print(f"\n{samples:,} photos, {found['processes']} processes\n")
    print_table(
        ["", "images / CPU s", "/ loading", "CPU s", "of it parent", "children", "CPU ms an image", "wall s"], rows
    )  # fmt: skip


def main() -> None:
    """Measure, print."""
    parser = arguments(__doc__, rounds=3)
    parser.add_argument("--photos", metavar="DIR", help="class folders of photos (default: the sample photos, or made ones)")
    sizes = "files of each set, the photos under several names (default 1000 4000)"
    parser.add_argument("--photo-files", type=int, nargs="+", default=[1000, 4000], help=sizes)
    workers = "children of the audit, and processes that load side by side (default: the usable processors)"
    parser.add_argument("--workers", type=int, help=workers)
    args = parser.parse_args()
    if args.child:
        child(args.child)
        return
    facts = machine_facts(packages=("fastfeed", "torchvision", "pillow", "simplejpeg", "numpy"))
    args.workers = args.workers or facts["cores"]
    print_facts(facts)
    sets = []
    for files in args.photo_files:
        with tempfile.TemporaryDirectory(dir=args.out) as home:
            folder = photos_of(argparse.Namespace(photos=args.photos, photo_files=files), Path(home))
            sets.append(bench(folder, set_apart(folder), args))
        show(sets[-1])
    write_json(args.json, {"machine": facts, "sets": sets})


if __name__ == "__main__":
    main()
