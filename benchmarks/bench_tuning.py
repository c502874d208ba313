#!/usr/bin/env python3
"""How the number of workers is found while training runs, against a sweep of fixed numbers; and three short epochs.

    python benchmarks/bench_tuning.py                           all loads: a quarter of an hour on 16 cores
    python benchmarks/bench_tuning.py --load cpu network --batches 400 --json -
    python benchmarks/bench_tuning.py --part epochs --rounds 7

Every run is a fresh process; nothing is read from disk or network. The consumer takes a batch, then takes a step: it sleeps,
as a training process does while a GPU computes (with --gpu and a GPU: it multiplies matrices there and waits for them).

Loads (a batch is 8 samples, but for tensors): *cheap*: a sample is a row of an array, in a dataset that fastfeed does not know;
*tensors*: a TensorDataset of 200,000 rows; *cpu*: a sample is 1 MiB that zlib unpacks, some 3 ms of a processor; *heavy*: four
times that; *network*: a sample is 20 ms of waiting and an eighth of cpu's work; *slow network*: 80 ms; *gpu bound*: cpu, and a
step that is longer than any loader needs; *no step*: cpu, and a consumer that does nothing.

How each figure is made:

    seconds a batch   wall time from one batch to another, --sweep-batches apart, with a fixed number of workers in sample mode;
                      the first three times what workers are given are left out
    best              the numbers of workers whose seconds a batch are at most 5 % above the least of the sweep
    tuned to          loader.num_workers at the end of one epoch of --batches batches that began with what the loader decided
    distance          from that to the nearest of the best; the aim is at most 1
    settled           batches and wall seconds until the last change of the number of workers, the start included; the aim
                      is 200 batches or 60 s
    lost              the whole epoch's wall time against an epoch with the best number (the fewest of them) from the start
    trace             loader.tuning
    three epochs      wall time of three epochs of few batches with the loader left to itself, against torch's DataLoader with 4
                      workers, taking turns; the aim is at most 1

The processors of the machine should be free: what else runs is in "load_1min", and in "others" (processor seconds of others
during a run).
"""

import argparse
import json
import sys
import time
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
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

BATCH = 8
CHUNK = 1 << 20
# name -> (chunks unpacked for a sample, ms waited for a sample, ms of the consumer's step)
LOADS: dict[str, tuple[float, float, float]] = {
    "cheap": (0.0, 0.0, 2.0),
    "tensors": (0.0, 0.0, 2.0),
    "cpu": (1.0, 0.0, 4.0),
    "heavy": (4.0, 0.0, 15.0),
    "network": (0.125, 20.0, 15.0),
    "slow network": (0.125, 80.0, 40.0),
    "gpu bound": (1.0, 0.0, 60.0),
    "no step": (1.0, 0.0, 0.0),
}
TENSOR_ROWS, TENSOR_BATCH = 200_000, 256
AS_GOOD = 1.05


class Work:
    """A dataset whose samples take a known time.

    Args:
        samples: How many.
        chunks: MiB that are unpacked for one.
        wait_ms: Slept for one.
    """

    def __init__(self, samples: int, chunks: float, wait_ms: float) -> None:
        import numpy as np

        self.samples, self.wait_seconds = samples, wait_ms / 1e3
        raw = np.random.default_rng(0).integers(0, 40, int(CHUNK * chunks) or 1, dtype=np.uint8).tobytes()
        self.packed = zlib.compress(raw) if chunks else b""
        self.rows = np.arange(samples, dtype=np.int64)

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> int:
        if self.wait_seconds:
            time.sleep(self.wait_seconds)
        if self.packed:
            zlib.decompress(self.packed)
        return int(self.rows[index])


def dataset_of(name: str, batches: int) -> tuple[Any, int]:
    """The load's dataset, of so many batches, and its batch size."""
    import torch
    from torch.utils.data import TensorDataset

    if name == "tensors":
        return TensorDataset(torch.zeros(min(TENSOR_ROWS, batches * TENSOR_BATCH), 16)), TENSOR_BATCH
    chunks, wait_ms, _ = LOADS[name]
    return Work(batches * BATCH, chunks, wait_ms), BATCH


# ------------------------------------------------------------------------------------------------ one run, in its own process
def step_of(step_ms: float, *, gpu: bool) -> Callable[[], object]:
    """What the consumer does after each batch."""
    if not gpu:
        return lambda: time.sleep(step_ms / 1e3) if step_ms else None
    import torch

    one = torch.rand(2048, 2048, device="cuda")

    def multiply(times: int) -> None:
        for _ in range(times):
            torch.mm(one, one)
        torch.cuda.synchronize()

    multiply(50)
    began = time.perf_counter()
    multiply(200)
    times = round(step_ms / 1e3 / ((time.perf_counter() - began) / 200))
    return lambda: multiply(times)


def child(order: Record) -> None:
    """An epoch, or three; prints when each batch came."""
    import torch

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # of more workers than processors: that is what a sweep is about
    dataset, batch_size = dataset_of(order["load"], order["batches"])
    step = step_of(order["step_ms"], gpu=order["gpu"])
    loader = loader_of(order, dataset, batch_size)
    epochs: list[list[float]] = []
    changes: list[tuple[int, float, int]] = []

    def read() -> None:
        for _ in range(order["epochs"]):
            times, last = [time.perf_counter()], loader.num_workers
            for number, _ in enumerate(loader):
                times.append(time.perf_counter())
                if loader.num_workers != last:
                    last = loader.num_workers
                    changes.append((number, times[-1] - times[0], last))
                step()
            times.append(time.perf_counter())
            epochs.append(times)

    used = usage_of(read)
    print(json.dumps({
        "epochs": epochs, "changes": changes, "workers": loader.num_workers, "trace": list(getattr(loader, "tuning", ())),
        "plan": str(getattr(loader, "plan", "")), "others": used["others_cpu_seconds"],
    }))  # fmt: skip


def loader_of(order: Record, dataset: Any, batch_size: int) -> Any:  # noqa: ANN401
    """The loader: torch's, ours with a fixed number of workers, or ours left to itself."""
    from torch.utils.data import DataLoader as TorchDataLoader

    from fastfeed import DataLoader

    if order["loader"] == "torch":
        return TorchDataLoader(dataset, batch_size, shuffle=True, num_workers=order["workers"])
    if order["workers"] is None:
        return DataLoader(dataset, batch_size, shuffle=True)
    return DataLoader(dataset, batch_size, shuffle=True, num_workers=order["workers"], rng="sample")


# ------------------------------------------------------------------------------------------------ all runs
def run(args: argparse.Namespace, load: str, workers: int | None, batches: int, **more: object) -> Record:
    """One run in a fresh process."""
    order = {
        "load": load, "workers": workers, "batches": batches, "step_ms": LOADS[load][2], "gpu": args.gpu, "epochs": 1,
        "loader": "fastfeed", **more,
    }  # fmt: skip
    print(f"{load}: {order['loader']}, {'left to it' if workers is None else workers} ...", file=sys.stderr, flush=True)
    return in_fresh_process(__file__, order)


def batch_seconds(args: argparse.Namespace, load: str, workers: int) -> float:
    """In the steady state, with so many workers."""
    begin = 3 * 2 * workers + 5
    times: list[float] = run(args, load, workers, begin + args.sweep_batches + 2 * workers)["epochs"][0][1:]
    seconds: float = (times[begin + args.sweep_batches - 1] - times[begin]) / (args.sweep_batches - 1)
    return seconds


def bench_load(args: argparse.Namespace, load: str) -> Record:
    """Sweep, tuned epoch, epoch with the best number."""
    swept = {workers: batch_seconds(args, load, workers) for workers in args.counts}
    good = [workers for workers, seconds in swept.items() if seconds <= min(swept.values()) * AS_GOOD]
    tuned, best = [], []
    for _ in range(args.rounds):
        tuned.append(run(args, load, None, args.batches))
        best.append(run(args, load, min(good), args.batches))
    found = []
    for one in tuned:
        last = one["changes"][-1] if one["changes"] else (0, 0.0, one["workers"])
        found.append({
            "tuned_to": one["workers"], "distance": min(abs(one["workers"] - workers) for workers in good),
            "settled_batches": last[0], "settled_seconds": last[1], "changes": one["changes"], "trace": one["trace"],
            "plan": one["plan"], "others": one["others"], "epoch_seconds": total(one),
        })  # fmt: skip
    lost = spread(total(one) / total(other) - 1 for one, other in zip(tuned, best, strict=True))
    return {"load": load, "batch_seconds": swept, "best": good, "tuned": found, "lost": lost}


def total(found: Record) -> float:
    """Wall seconds of all epochs of a run."""
    return float(sum(times[-1] - times[0] for times in found["epochs"]))


def bench_epochs(args: argparse.Namespace, load: str) -> Record:
    """Three short epochs, ours and torch's with 4 workers in turn."""
    ours, theirs = [], []
    for _ in range(args.rounds):
        ours.append(run(args, load, None, args.short_batches, epochs=3))
        theirs.append(run(args, load, 4, args.short_batches, epochs=3, loader="torch"))
    return {
        "load": load, "ours_seconds": spread(map(total, ours)), "torchs_seconds": spread(map(total, theirs)),
        "ratio": spread(total(one) / total(other) for one, other in zip(ours, theirs, strict=True)),
        "workers": [one["workers"] for one in ours], "trace": ours[-1]["trace"], "plan": ours[-1]["plan"],
    }  # fmt: skip


def print_loads(results: list[Record]) -> None:
    """A row a load."""
    rows = []
    for found in results:
        each = found["tuned"]
        rows.append([
            found["load"], f"{min(found['batch_seconds'].values()) * 1e3:.1f}", f"{min(found['best'])} - {max(found['best'])}",
            ", ".join(str(one["tuned_to"]) for one in each), ", ".join(str(one["distance"]) for one in each),
            ", ".join(f"{one['settled_batches']} ({one['settled_seconds']:.1f} s)" for one in each),
            shown(found["lost"], ".0f", 100) + " %",
        ])  # fmt: skip
    print_table(["load", "ms a batch", "best", "tuned to", "distance", "settled after", "lost"], rows)


def print_epochs(results: list[Record]) -> None:
    """A row a load."""
    rows = [
        [found["load"], shown(found["ours_seconds"]), shown(found["torchs_seconds"]), shown(found["ratio"])]
        for found in results
    ]
    print_table(["three short epochs", "left to it, s", "torch, 4 workers, s", "ratio"], rows)


def parse() -> argparse.Namespace:
    """The command line."""
    parser = arguments(__doc__, rounds=3)
    parser.add_argument("--part", choices=("tuning", "epochs", "all"), default="all")
    parser.add_argument("--load", nargs="+", choices=LOADS, default=list(LOADS), help="default: all")
    parser.add_argument(
        "--counts", type=int, nargs="+", help="workers of the sweep (default: to the processors, and 24 and 32)"
    )
    parser.add_argument("--batches", type=int, default=500, help="of the tuned epoch (default 500)")
    parser.add_argument("--sweep-batches", type=int, default=150, help="measured a number of workers (default 150)")
    parser.add_argument("--short-batches", type=int, default=40, help="of a short epoch (default 40)")
    parser.add_argument("--gpu", action="store_true", help="the consumer's step is work of the GPU")
    args = parser.parse_args()
    if args.counts is None:
        cores = machine_facts()["cores"]
        args.counts = [*(count for count in (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 15, 16) if count <= cores), 24, 32]
    return args


def main() -> None:
    """Measure, print."""
    args = parse()
    if args.child is not None:
        child(args.child)
        return
    facts = machine_facts(packages=("torch", "numpy"))
    record: Record = {"machine": facts, "options": vars(args), "tuning": [], "epochs": []}
    for load in args.load:
        if args.part in {"tuning", "all"}:
            record["tuning"].append(bench_load(args, load))
        if args.part in {"epochs", "all"}:
            record["epochs"].append(bench_epochs(args, load))
        write_json(args.json if args.json != "-" else None, record)  # what was measured is there, whatever comes
    print_facts(facts)
    if record["tuning"]:
        print_loads(record["tuning"])
    if record["epochs"]:
        print_epochs(record["epochs"])
    write_json(args.json, record)


if __name__ == "__main__":
    main()
