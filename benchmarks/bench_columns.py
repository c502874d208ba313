#!/usr/bin/env python3
"""What columns cost: conditions and splits over all rows, side tables joined at opening, what a view weighs in a pickle.

    python benchmarks/bench_columns.py                         1 million and 10 million samples
    python benchmarks/bench_columns.py --samples 100000 --rounds 3

The datasets are those of bench_open.py, joined with arrays (a number, a truth value and one of 5,000 speakers a sample) and
with a csv of a caption for every tenth sample, by key. README.md says what each figure means.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks.bench_open import make_dataset
from benchmarks.measure import (
    Record,
    arguments,
    in_fresh_process,
    machine_facts,
    print_facts,
    print_table,
    shown,
    spread,
    write_json,
)

SAMPLES = (1_000_000, 10_000_000)
CONDITIONS = (
    "width >= 256",
    "duration < 3.5",
    "width >= 256 and label in (1, 2, 3) and duration < 3.5",
    "width * height > 1e5 and clean",
    "speaker == 's17'",
    "source.endswith('7.JPEG')",
    "'_0001' in source",
    "len(caption) > 20",
)
SPLITS: tuple[dict[str, str], ...] = ({}, {"by": "label"}, {"group": "speaker"}, {"by": "label", "group": "speaker"})
_SEED = 20


def timed(call: Callable[[], object]) -> float:
    """CPU-seconds of one call."""
    began = time.process_time()
    call()
    return time.process_time() - began


def child(order: Record) -> None:
    """Join, open again, filter, split, pickle."""
    from fastfeed.feed.dataset import PackedDataset

    samples = int(order["samples"])
    draw = np.random.default_rng(_SEED)
    speakers = [f"s{number}" for number in draw.integers(0, 5000, samples).tolist()]
    arrays = {"duration": draw.random(samples) * 20, "clean": draw.random(samples) < 0.5, "speaker": speakers}
    found: Record = {}
    if order["first"]:
        found["open and join the arrays"] = timed(lambda: PackedDataset(order["path"], extra=arrays))
        found["open and join the csv"] = timed(lambda: PackedDataset(order["path"], extra=order["table"]))
    found["open, the csv joined before"] = timed(lambda: PackedDataset(order["path"], extra=order["table"]))
    dataset = PackedDataset(order["path"], extra=[arrays, order["table"]])
    for condition in CONDITIONS:
        found[condition] = timed(lambda condition=condition: dataset.where(condition))  # type: ignore[misc]
    for options in SPLITS:
        name = f"split(0.9{''.join(f', {name}={value!r}' for name, value in options.items())})"
        found[name] = timed(lambda options=options: dataset.split(0.9, **options))  # type: ignore[misc]
    tenth = dataset.where(draw.random(samples) < 0.1)
    raw = bytes(ForkingPickler.dumps(tenth))
    found["a random tenth, pickled: bytes"] = len(raw)
    found["unpickled again (opens the dataset)"] = timed(lambda: ForkingPickler.loads(raw))
    print(json.dumps(found))


def write_table(path: Path, folder: Path, samples: int) -> None:
    """A caption for every tenth sample."""
    from fastfeed.archive.dataset import Archive

    archive = Archive(str(folder))
    with path.open("w") as file:
        file.write("key,caption,score\n")
        file.writelines(f'{archive.key(at)},"a caption, of number {at}",{at % 97}\n' for at in range(0, samples, 10))


def print_results(results: list[Record]) -> None:
    """One table: a column a dataset; CPU-seconds, but for bytes."""
    rows = []
    for name in results[0]["figures"]:
        form = ",.0f" if name.endswith("bytes") else ".3f"
        rows.append([name, *(shown(found["figures"][name], form) for found in results)])
    print_table(["CPU-seconds", *(f"{found['samples']:,} samples" for found in results)], rows)


def parse() -> argparse.Namespace:
    """The command line."""
    parser = arguments(__doc__, rounds=3)
    parser.add_argument("--samples", type=int, nargs="+", default=SAMPLES, help=f"default {SAMPLES}")
    return parser.parse_args()


def main() -> None:
    """Make, measure, print."""
    args = parse()
    if args.child is not None:
        child(args.child)
        return
    facts = machine_facts(packages=("torch", "numpy"))
    results = []
    for samples in args.samples:
        with tempfile.TemporaryDirectory(prefix="bench_columns_", dir=args.out) as home:
            os.environ["XDG_CACHE_HOME"] = home  # noqa: TID251 - what is joined lies beside the data, and goes with it
            print(f"{samples:,} samples ...", file=sys.stderr, flush=True)
            folder, table = Path(home) / "dataset", Path(home) / "captions.csv"
            make_dataset(folder, samples)
            write_table(table, folder, samples)
            order = {"path": str(folder), "table": str(table), "samples": samples}
            runs = [in_fresh_process(__file__, {**order, "first": number == 0}) for number in range(args.rounds)]
            figures = {name: spread(run[name] for run in runs if name in run) for name in runs[0]}
            results.append({"samples": samples, "figures": figures, "runs": runs})
    print_facts(facts)
    print(f"{args.rounds} processes each, median (min - max); what is joined for the first time, once")
    print_results(results)
    write_json(args.json, {"machine": facts, "results": results})


if __name__ == "__main__":
    main()
