#!/usr/bin/env python3
"""What an audit costs against loading the same photos once: processor seconds, whole and with --fast.

    python benchmarks/bench_audit.py
    python benchmarks/bench_audit.py --photo-files 10000 --rounds 5 --photos DIR

Each photo of the set gets a comment of its own, so that no two files are equal. README.md says what each figure means.
"""

import sys
import tempfile
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

BASE = "ImageFolder"
WAYS = (BASE, "audit", "audit --fast")


def set_apart(folder: Path) -> int:
    """Put a comment with a number of its own into each photo (ITU-T T.81 B.2.4.5); gives how many photos there are."""
    number = 0
    for number, path in enumerate(sorted(folder.rglob("*.*")), 1):
        data, comment = path.read_bytes(), f"photo {number}".encode()
        path.unlink()  # it may be a link to a file that others use
        path.write_bytes(data[:2] + b"\xff\xfe" + (len(comment) + 2).to_bytes(2, "big") + comment + data[2:])
    return number


def child(order: Record) -> None:
    """One way, once; prints what it used as JSON."""
    import json

    if order["way"] == BASE:
        from torchvision.datasets import ImageFolder

        dataset = ImageFolder(order["folder"])

        def work() -> None:
            for index in range(len(dataset)):
                dataset[index]
    else:
        import fastfeed

        def work() -> None:
            fastfeed.audit(order["folder"], fast=order["way"] != "audit")

    print(json.dumps(usage_of(work)))


def bench(folder: Path, samples: int, rounds: int) -> Record:
    """All ways in turn."""
    runs: dict[str, list[Record]] = {way: [] for way in WAYS}
    for number in range(rounds):
        for way in WAYS:
            print(f"round {number + 1}: {way} ...", file=sys.stderr, flush=True)
            runs[way].append(in_fresh_process(__file__, {"way": way, "folder": str(folder)}))
    figures = {
        way: {name: spread(run[f"{name}_seconds"] for run in found) for name in ("cpu", "wall")} for way, found in runs.items()
    }
    return {"samples": samples, "runs": runs, "figures": figures}


def show(found: Record) -> None:
    """As a table."""
    base, rows = found["figures"][BASE]["cpu"]["median"], []
    for way, figures in found["figures"].items():
        cpu = figures["cpu"]["median"]
        milliseconds = f"{cpu * 1e3 / found['samples']:.2f}"
        rows.append([way, shown(figures["cpu"]), f"{cpu / base:.2f}", shown(figures["wall"]), milliseconds])
    print(f"\n{found['samples']:,} photos\n")
    print_table(["", "CPU s", "/ ImageFolder's", "wall s", "CPU ms a photo"], rows)


def main() -> None:
    """Measure, print."""
    parser = arguments(__doc__, rounds=3)
    parser.add_argument("--photos", metavar="DIR", help="class folders of photos (default: the sample photos, or made ones)")
    parser.add_argument("--photo-files", type=int, default=4000, help="files, the photos under several names (default 4000)")
    args = parser.parse_args()
    if args.child:
        child(args.child)
        return
    facts = machine_facts(packages=("torchvision", "pillow", "simplejpeg"))
    print_facts(facts)
    with tempfile.TemporaryDirectory(dir=args.out) as home:
        folder = photos_of(args, Path(home))
        found = bench(folder, set_apart(folder), args.rounds)
    show(found)
    write_json(args.json, {"machine": facts, **found})


if __name__ == "__main__":
    main()
