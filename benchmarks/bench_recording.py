#!/usr/bin/env python3
"""What recording the times of samples costs (loader.stats()): processor time with and without it.

    python benchmarks/bench_recording.py                         all sample times, without workers and with two
    python benchmarks/bench_recording.py --sample-us 200 --workers 0 --rounds 41

A sample waits for so many microseconds, as if for a file, so that almost all processor time is the loader's own, and a
difference of a tenth of a microsecond a sample can be seen on a quiet machine. Off, on, "batches" (a pass's first batch is the
only one whose samples are recorded) and "all" (every batch is recorded, whatever that costs) take turns in one process.
README.md says what each figure means.
"""

import argparse
import math
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from torch.utils.data import Dataset

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks.measure import Record, machine_facts, print_facts, print_table, usage_of, write_json
from fastfeed.feed import recording
from fastfeed.feed.loader import DataLoader
from fastfeed.trace import NULL, listening

KINDS = ("opaque", "three stages")
MODES = ("off", "on", "batches", "all")


class Waiting(Dataset[Any]):
    """Samples that wait.

    Args:
        samples: How many.
        seconds: For how long, each.
        staged: They have the three stages of a PackedDataset.
    """

    def __init__(self, samples: int, seconds: float, *, staged: bool) -> None:
        self.samples, self.seconds, self.staged = samples, seconds, staged

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> int:
        if self.staged:
            recorder = listening(NULL)
            with recorder.span("read", index):
                pass
            with recorder.span("decode", index):
                self._wait()
            with recorder.span("transform", index):
                pass
        else:
            self._wait()
        return index

    def _wait(self) -> None:
        if self.seconds:
            time.sleep(self.seconds)


def one_pass(dataset: Waiting, mode: str, workers: int, batch_size: int) -> Record:
    """Processor and wall time of an epoch, and how many batches were recorded."""
    recording.PART, recording.LEAST = {"batches": (0.0, 0.0), "all": (0.0, math.inf)}.get(mode, _PARTS)
    loader = DataLoader(dataset, batch_size, num_workers=workers, record=mode != "off")

    def read() -> None:
        for _ in loader:
            pass

    used = usage_of(read)
    recorded = 0 if mode == "off" else loader.stats().recorded_batches
    return {**used, "recorded": recorded / len(loader)}


_PARTS = recording.PART, recording.LEAST


def measure(args: argparse.Namespace, sample_us: float, workers: int, kind: str) -> Record:
    """All rounds of one setting."""
    samples = max(args.batch_size * 20, int(args.seconds * 1e6 / (sample_us + 5)) * max(1, workers))
    dataset = Waiting(samples, sample_us * 1e-6, staged=kind == KINDS[1])
    runs: dict[str, list[Record]] = {mode: [] for mode in MODES}
    one_pass(dataset, "on", workers, args.batch_size)
    for number in range(args.rounds):
        for mode in MODES[number % 4 :] + MODES[: number % 4]:
            runs[mode].append(one_pass(dataset, mode, workers, args.batch_size))
    cpu_us = {mode: [run["cpu_seconds"] * 1e6 / samples for run in found] for mode, found in runs.items()}
    return {
        "sample_us": sample_us, "workers": workers, "kind": kind, "samples": samples, "batch_size": args.batch_size,
        "cpu_us_per_sample": {mode: statistics.median(values) for mode, values in cpu_us.items()},
        "wall_us_per_sample": statistics.median(run["wall_seconds"] * 1e6 / samples for run in runs["off"]),
        "extra_us_per_sample": {
            mode: statistics.median(on - off for on, off in zip(cpu_us[mode], cpu_us["off"], strict=True)) for mode in MODES[1:]
        },
        "recorded": {mode: statistics.median(run["recorded"] for run in found) for mode, found in runs.items()},
        "runs": runs,
    }  # fmt: skip


def show(found: list[Record]) -> None:
    """As a table."""
    head = ["a sample waits", "workers", "dataset", "CPU us a sample, off", "more, on", "of a sample", "batches recorded",
            "more, batches alone", "more, all recorded"]  # fmt: skip
    rows = []
    for one in found:
        extra, whole = one["extra_us_per_sample"], one["sample_us"] or one["cpu_us_per_sample"]["off"]
        rows.append([
            f"{one['sample_us']:g} us", str(one["workers"]), one["kind"], f"{one['cpu_us_per_sample']['off']:.2f}",
            f"{extra['on']:.2f}", f"{extra['on'] / whole:.2%}", f"{one['recorded']['on']:.1%}", f"{extra['batches']:.2f}",
            f"{extra['all']:.2f}",
        ])  # fmt: skip
    print_table(head, rows)


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample-us", type=float, nargs="+", default=[0, 50, 200, 1000], help="default 0 50 200 1000")
    parser.add_argument("--workers", type=int, nargs="+", default=[0, 2], help="default 0 2")
    parser.add_argument("--kind", choices=KINDS, nargs="+", default=list(KINDS), help="default both")
    parser.add_argument("--batch-size", type=int, default=32, help="default 32")
    parser.add_argument("--rounds", type=int, default=15, help="passes of each mode (default 15)")
    parser.add_argument("--seconds", type=float, default=0.5, help="about how long a pass is (default 0.5)")
    parser.add_argument("--json", metavar="FILE", help='write the raw record there ("-": print it)')
    return parser.parse_args()


def main() -> None:
    """Measure, print."""
    args = parse()
    facts = machine_facts(packages=("torch", "numpy"))
    print_facts(facts)
    found = [
        measure(args, sample_us, workers, kind)
        for workers in args.workers
        for kind in args.kind
        for sample_us in args.sample_us
    ]
    show(found)
    write_json(args.json, {"machine": facts, "recording": found})


if __name__ == "__main__":
    main()
