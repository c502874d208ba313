#!/usr/bin/env python3
"""torch's DataLoader and fastfeed's on the same ImageFolder with the same transforms; and memory over many epochs.

    python benchmarks/bench_loader.py                              all parts (ten minutes on 2 cores)
    python benchmarks/bench_loader.py --part speed --workers 0 2 8
    python benchmarks/bench_loader.py --part memory --samples 2000000 --epochs 20

Every run is a fresh process and contenders take turns; imports are not measured, the start of workers is. README.md says what
each figure means.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks.bench_pack import SAMPLE_PHOTOS, make_photos, repeat_files, warm
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
)

TORCH, TORCH_MODE, SAMPLE_MODE, DECIDED = "torch", "fastfeed", "fastfeed, seed=0", "fastfeed, workers left to it"
SIZE = 224
_MADE_PHOTOS = 200


# ------------------------------------------------------------------------------------------------ what is read
def photos_of(args: argparse.Namespace, home: Path) -> Path:
    """A folder of class folders with as many photos as asked for, all in the page cache."""
    source = Path(args.photos) if args.photos else SAMPLE_PHOTOS
    if not args.photos and not source.is_dir():
        source = home / "made"
        make_photos(source, _MADE_PHOTOS)
    folder = home / "photos"
    repeat_files(source, folder, args.photo_files)
    warm(folder)
    return folder


class Paths:
    """A dataset of a great many short texts: a list of that many Python objects is what makes workers grow (pytorch#13246).

    Args:
        samples: How many.
        kind: "list", as scripts have it, or "array", one block of memory.
    """

    def __init__(self, samples: int, kind: str) -> None:
        import numpy as np

        names = (f"/data/{number:09d}.jpg" for number in range(samples))
        self.paths: Any = list(names) if kind == "list" else np.fromiter(names, dtype="S19", count=samples)

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> int:
        return len(self.paths[index])


# ------------------------------------------------------------------------------------------------ one run, in its own process
def loader_of(order: Record, dataset: Any, **options: Any) -> Any:  # noqa: ANN401
    """The contender's loader."""
    from torch.utils.data import DataLoader as TorchDataLoader

    from fastfeed import DataLoader

    kind = order["loader"]
    if kind == TORCH:
        return TorchDataLoader(dataset, num_workers=order["workers"], **options)
    if kind == TORCH_MODE:
        return DataLoader(dataset, num_workers=order["workers"], **options)
    if kind == SAMPLE_MODE:
        return DataLoader(dataset, num_workers=order["workers"], seed=0, **options)
    return DataLoader(dataset, **options)


def speed(order: Record) -> Record:
    """Epochs over an ImageFolder, with what each cost."""
    import torch
    from torchvision import transforms
    from torchvision.datasets import ImageFolder

    torch.set_num_threads(1)
    steps = [transforms.RandomResizedCrop(SIZE), transforms.RandomHorizontalFlip(), transforms.ToTensor()]
    dataset = ImageFolder(order["path"], transforms.Compose([*steps, transforms.Normalize([0.5] * 3, [0.25] * 3)]))
    loader = loader_of(order, dataset, batch_size=order["batch_size"], shuffle=True)
    epochs = []
    for _ in range(order["epochs"]):
        marks: list[float] = []
        used = usage_of(lambda: run_epoch(loader, marks, order["step_seconds"]))  # noqa: B023 - called at once
        epochs.append({**used, "first_batch_seconds": marks[1] - marks[0], "images": len(dataset)})
    return {"epochs": epochs, "workers": loader.num_workers}


def run_epoch(loader: Any, marks: list[float], step_seconds: float) -> None:  # noqa: ANN401
    """Take every batch; between two of them wait as long as a training step would."""
    marks.append(time.perf_counter())
    for _ in loader:
        marks.append(time.perf_counter())
        if step_seconds:
            time.sleep(step_seconds)


def memory(order: Record) -> Record:
    """The memory of this process and of its workers at the end of each epoch."""
    loader = loader_of(order, Paths(order["samples"], order["kind"]), batch_size=2000, shuffle=True)
    curve = []
    for _ in range(order["epochs"]):
        for number, _ in enumerate(loader):
            if number == len(loader) - 5:  # workers are there for the last time
                curve.append({"main_bytes": own_bytes("self"), "worker_bytes": [own_bytes(pid) for pid in children()]})
    return {"curve": curve}


def children() -> Iterator[str]:
    """Processes whose parent this one is, that run this program."""
    own = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
    return (pid for pid in own if b"bench_loader" in Path(f"/proc/{pid}/cmdline").read_bytes())


def own_bytes(pid: str) -> int:
    """Memory that a process shares with no other."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Private_"))


# ------------------------------------------------------------------------------------------------ all runs
def bench_speed(args: argparse.Namespace, home: Path) -> Record:
    """Rounds of all contenders, for each number of workers."""
    base = {
        "part": "speed", "path": str(photos_of(args, home)), "batch_size": args.batch_size, "epochs": args.epochs_of_speed,
        "step_seconds": args.step_ms / 1000,
    }  # fmt: skip
    runs: dict[str, list[Record]] = {}
    for number in range(args.rounds):
        for workers in args.workers:
            for kind in (TORCH, TORCH_MODE, SAMPLE_MODE):
                print(f"round {number}, {kind}, {workers} workers ...", file=sys.stderr, flush=True)
                found = in_fresh_process(__file__, {**base, "loader": kind, "workers": workers})
                runs.setdefault(f"{kind}, {workers} workers", []).append(found)
        runs.setdefault(DECIDED, []).append(in_fresh_process(__file__, {**base, "loader": DECIDED, "workers": None}))
    return {name: {"runs": found, **speed_figures(found)} for name, found in runs.items()}


def speed_figures(runs: list[Record]) -> Record:
    """Medians over rounds; the first epoch starts workers and is part of it."""
    epochs = [epoch for run in runs for epoch in run["epochs"]]
    return {
        "images_a_cpu_second": spread(one["images"] / one["cpu_seconds"] for one in epochs),
        "images_a_second": spread(one["images"] / one["wall_seconds"] for one in epochs),
        "first_batch_seconds": spread(run["epochs"][0]["first_batch_seconds"] for run in runs),
        "later_first_batch_seconds": spread(epoch["first_batch_seconds"] for run in runs for epoch in run["epochs"][1:]),
        "workers": sorted({run["workers"] for run in runs}),
    }


def print_speed(found: Record, args: argparse.Namespace) -> None:
    """A line a contender, each against torch's loader with as many workers."""
    print(f"\n{args.photo_files} photos, batches of {args.batch_size}, a step of {args.step_ms} ms, {args.rounds} rounds")
    rows = []
    for name, one in found.items():
        theirs = found.get(name.replace(SAMPLE_MODE, TORCH).replace(TORCH_MODE, TORCH))
        against = [
            f"{one[figure]['median'] / theirs[figure]['median']:.3f}" if theirs is not None and theirs is not one else ""
            for figure in ("images_a_cpu_second", "images_a_second")
        ]
        rows.append([
            name, shown(one["images_a_cpu_second"], ".0f"), against[0], shown(one["images_a_second"], ".0f"), against[1],
            shown(one["first_batch_seconds"], ".3f"), shown(one["later_first_batch_seconds"], ".3f"),
            "/".join(map(str, one["workers"])),
        ])  # fmt: skip
    head = ["loader", "images / CPU s", "/ torch's", "images / s", "/ torch's", "first batch, s", "later epochs, s", "workers"]
    print_table(head, rows)


def bench_memory(args: argparse.Namespace) -> Record:
    """A process for each loader and kind of dataset."""
    found = {}
    for kind in ("array", "list"):
        for name in (TORCH, TORCH_MODE, SAMPLE_MODE):
            print(f"memory, {kind}, {name} ...", file=sys.stderr, flush=True)
            order = {"part": "memory", "kind": kind, "loader": name, "workers": 2, "samples": args.samples}
            found[f"{name}, {kind}"] = in_fresh_process(__file__, {**order, "epochs": args.epochs})
    return found


def print_memory(found: Record, args: argparse.Namespace) -> None:
    """Memory after some of the epochs."""
    print(f"\n{args.samples:,} samples, 2 workers, {args.epochs} epochs: private memory at the end of an epoch, MiB")
    at = sorted({0, 1, args.epochs // 2, args.epochs - 1})
    rows = []
    for name, one in found.items():
        for process in ("main_bytes", "worker_bytes"):
            values = [sum(epoch[process]) / len(epoch[process]) if process == "worker_bytes" else epoch[process]
                      for epoch in one["curve"]]  # fmt: skip
            rows.append([f"{name}, {'a worker' if process == 'worker_bytes' else 'main process'}",
                         *(f"{values[epoch] / 2**20:.0f}" for epoch in at)])  # fmt: skip
    print_table(["", *(f"epoch {epoch + 1}" for epoch in at)], rows)


def parse() -> argparse.Namespace:
    """The command line."""
    parser = arguments(__doc__, rounds=5)
    parser.add_argument("--part", choices=["speed", "memory"], help="one part (default: all)")
    parser.add_argument("--workers", type=int, nargs="+", default=[0, 2], help="numbers to compare (default 0 2)")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--step-ms", type=float, default=0.0, help="a pause of the consumer after each batch (default 0)")
    parser.add_argument("--epochs-of-speed", type=int, default=3, help="epochs a process (default 3)")
    parser.add_argument("--photos", metavar="DIR", help="class folders of photos (default: the sample photos, or made ones)")
    parser.add_argument("--photo-files", type=int, default=1000, help="files in the ImageFolder (default 1000)")
    parser.add_argument("--samples", type=int, default=2_000_000, help="of the part memory (default 2 million)")
    parser.add_argument("--epochs", type=int, default=20, help="of the part memory (default 20)")
    return parser.parse_args()


def main() -> None:
    """Make, measure, print."""
    args = parse()
    if args.child is not None:
        print(json.dumps({"speed": speed, "memory": memory}[args.child["part"]](args.child)))
        return
    facts = machine_facts(packages=("torch", "torchvision", "numpy", "pillow"))
    record: Record = {"machine": facts}
    print_facts(facts)
    if args.part in {None, "speed"}:
        with tempfile.TemporaryDirectory(prefix="bench_loader_", dir=args.out) as home:
            record["speed"] = bench_speed(args, Path(home))
        print_speed(record["speed"], args)
    if args.part in {None, "memory"}:
        record["memory"] = bench_memory(args)
        print_memory(record["memory"], args)
    write_json(args.json, record)


if __name__ == "__main__":
    main()
