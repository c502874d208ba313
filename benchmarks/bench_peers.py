#!/usr/bin/env python3
"""fastfeed against torch's DataLoader, webdataset, litdata, mosaicml-streaming, SPDL, DALI and FFCV on one job.

    python benchmarks/bench_peers.py                                    all parts (a quarter of an hour)
    python benchmarks/bench_peers.py --part uint8 --only FFCV fastfeed torch
    python benchmarks/bench_peers.py --python litdata=/venv/bin/python --python streaming=/venv/bin/python

The job: RandomResizedCrop(224), bilinear, and a horizontal flip of JPEG photos, into uint8 batches, on 2 cores with 2 workers
or threads. Every run is a fresh process, and contenders take turns. Peers that are not installed are named. README.md says how
to install them and what each figure means.
"""

import argparse
import importlib
import json
import os
import platform
import random
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks.bench_loader import photos_of
from benchmarks.chart import Bar, chart
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
    usage_of,
    write_json,
)
from benchmarks.packings import PACKINGS
from benchmarks.peers import PARTS, PEERS, SIZE, Contender, Epoch, Job

TITLES = {
    "uint8": "uint8 batches, page cache warm",
    "float": "float32 batches, normalised on the CPU (ToTensor + Normalize), page cache warm",
    "cold": "without page cache: files dropped from it before each epoch (posix_fadvise)",
    "small": "made smaller when packed: the longer side at most 500 pixels, page cache warm",
}
_MIB = 1 << 20


# ------------------------------------------------------------------------------------------------ one run, in its own process
def probe(order: Record) -> Record:
    """Whether a peer can be imported here, and the versions of what it stands on."""
    peer = PEERS[order["peer"]]
    try:
        importlib.import_module(peer.module)
    except ModuleNotFoundError as error:
        return {"missing": f"{error}"}
    found: dict[str, str] = {}
    for name in peer.packages:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue  # of DALI's two packages, one is there
    if peer.needs is not None and peer.needs not in found:
        return {"missing": f"No package named {peer.needs!r}"}
    return {"python": platform.python_version(), "versions": found}


def pack(order: Record) -> Record:
    """The photos in the form of a contender."""
    write = PACKINGS[order["packing"]]
    if write is None:
        msg = f"{order['packing']} are read as they are"
        raise ValueError(msg)
    os.makedirs(order["target"])
    used = usage_of(lambda: write(order["source"], order["target"]))
    os.sync()  # what is not on the disk yet cannot leave the page cache
    return {**used, "bytes": sum(path.stat().st_size for path in Path(order["target"]).rglob("*") if path.is_file())}


def read(order: Record) -> Record:
    """An epoch that is not measured, then some that are."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: order["cores"]])
    contender = contender_of(order["part"], order["contender"])
    epoch = contender.epoch(Job(order["path"], order["batch_size"], order["workers"]))
    took = [one_epoch(epoch, order) for _ in range(1 + order["epochs"])]
    for one in took:
        if one["images"] != order["files"]:
            msg = f"an epoch of {order['files']} photos gave {one['images']}"
            raise ValueError(msg)
    return {"batch": took[0]["batch"], "first_epoch": took[0], "epochs": took[1:]}


def one_epoch(epoch: Epoch, order: Record) -> Record:
    """Every batch of an epoch, with what it cost."""
    if order["cold"]:
        drop(order["path"])
    found: Record = {"images": 0}

    def call() -> None:
        for images in epoch():
            found["images"] += len(images)
            found.setdefault("batch", f"{images.dtype} {tuple(images.shape)} strides {images.stride()}")

    before = paged_in_bytes()
    found |= usage_of(call, living=True)
    return found | {"read_bytes": paged_in_bytes() - before}


def drop(folder: str) -> None:
    """Let the page cache forget the files of a folder."""
    for path in Path(folder).rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)


def paged_in_bytes() -> int:
    """What the machine has read from its disks since it started."""
    lines = dict(line.split() for line in Path("/proc/vmstat").read_text().splitlines())
    return int(lines["pgpgin"]) << 10


CHILDREN = {"probe": probe, "pack": pack, "read": read}


# ------------------------------------------------------------------------------------------------ all runs
@dataclass
class Bench:
    """The command, and what came of it so far."""

    args: argparse.Namespace
    home: Path
    source: Path = field(init=False)
    peers: dict[str, Record] = field(default_factory=dict)
    packs: dict[str, Record] = field(default_factory=dict)
    parts: dict[str, dict[str, list[Record]]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    """Contender, packing or peer -> why it is not among the figures."""

    def python(self, peer: str) -> str:
        """The interpreter that has a peer."""
        return str(self.args.python.get(peer, sys.executable))

    def ask(self, peer: str, order: Record, name: str) -> Record | None:
        """One process; None where it failed, which is kept under a name."""
        print(f"{name} ...", file=sys.stderr, flush=True)
        try:
            return in_fresh_process(__file__, order, python=self.python(peer))
        except RuntimeError as error:
            lines = str(error).splitlines()
            self.failures[name] = next((line for line in reversed(lines) if "Error" in line or "Exception" in line), lines[-1])
            return None

    def run(self) -> None:
        """Look for the peers, make the files, read them."""
        wanted = {part: [one for one in PARTS[part] if self.is_asked_for(one)] for part in self.args.part}
        for peer in dict.fromkeys(one.peer for listed in wanted.values() for one in listed):
            found = self.ask(peer, {"do": "probe", "peer": peer}, peer)
            if found is not None:
                self.peers[peer] = found
        self.source = photos_of(self.args, self.home)
        os.sync()
        for part, listed in wanted.items():
            able = [one for one in listed if "versions" in self.peers.get(one.peer, {}) and self.is_packed(one)]
            self.parts[part] = {one.name: [] for one in able}
            for number in range(self.args.rounds):
                self.round(part, able, number)

    def is_asked_for(self, contender: Contender) -> bool:
        """By --only; what the others are compared with always is."""
        only = self.args.only
        bases = {contenders[0].name for contenders in PARTS.values()}
        return contender.name in bases or not only or any(word.lower() in contender.name.lower() for word in only)

    def is_packed(self, contender: Contender) -> bool:
        """Write the form that a contender reads, unless it is there; whether it could be written."""
        name = contender.packing
        if PACKINGS[name] is not None and name not in self.packs and f"pack: {name}" not in self.failures:
            order = {"do": "pack", "packing": name, "source": str(self.source), "target": self.place(name)}
            found = self.ask(contender.peer, order, f"pack: {name}")
            if found is not None:
                self.packs[name] = found
        return PACKINGS[name] is None or name in self.packs

    def place(self, packing: str) -> str:
        """The folder of a form of the photos."""
        return str(self.source if PACKINGS[packing] is None else self.home / packing.replace(", ", "_").replace(" ", "_"))

    def round(self, part: str, contenders: Sequence[Contender], number: int) -> None:
        """Each contender once, in another order each time; one that fails is left out from then on.

        A machine that others share is slow for a while, and in one order that would always hit the same.
        """
        for one in random.Random(number).sample(contenders, len(contenders)):
            name = f"{part}: {one.name}"
            if name in self.failures:
                continue
            order = {
                "do": "read", "part": part, "contender": one.name, "path": self.place(one.packing), "cold": part == "cold",
                "files": self.args.photo_files, "batch_size": self.args.batch_size, "workers": self.args.workers,
                "cores": self.args.cores, "epochs": self.args.epochs,
            }  # fmt: skip
            print(f"round {number + 1}, ", end="", file=sys.stderr)
            found = self.ask(one.peer, order, name)
            if found is not None:
                self.parts[part][one.name].append(found)


def contender_of(part: str, name: str) -> Contender:
    """By its name."""
    return next(one for one in PARTS[part] if one.name == name)


def figures(runs: Sequence[Record]) -> Record:
    """Medians over rounds; a round's figure is of all its measured epochs together."""
    sums = [
        {name: sum(epoch[name] for epoch in run["epochs"]) for name in ("images", "cpu_seconds", "wall_seconds", "read_bytes")}
        for run in runs
    ]
    return {
        "images_a_cpu_second": spread(one["images"] / one["cpu_seconds"] for one in sums),
        "images_a_second": spread(one["images"] / one["wall_seconds"] for one in sums),
        "read_mib_an_epoch": spread(
            one["read_bytes"] / _MIB / len(run["epochs"]) for one, run in zip(sums, runs, strict=True)
        ),
        "first_epoch_seconds": spread(run["first_epoch"]["wall_seconds"] for run in runs),
    }  # fmt: skip


# ------------------------------------------------------------------------------------------------ what is shown
def print_part(part: str, found: Mapping[str, Record], args: argparse.Namespace) -> None:
    """A table; ratios are of medians, against the part's first contender where it ran."""
    print(f"\n**{TITLES[part]}**: {args.photo_files} photos, batches of {args.batch_size},", end=" ")
    print(f"{args.workers} workers or threads on {args.cores} cores; median (min - max), rounds: {args.rounds}\n")
    cold = ["MiB read an epoch"] if part == "cold" else []
    against = PARTS[part][0].name
    head = ["", "images / CPU s", f"/ {against}'s", "images / s", f"/ {against}'s", *cold, "how"]
    base, rows = found.get(against), []
    for name, one in found.items():
        cells = []
        for figure in ("images_a_cpu_second", "images_a_second"):
            ratio = "" if base is None else f"{one[figure]['median'] / base[figure]['median']:.2f}"
            cells += [shown(one[figure], ".0f"), ratio]
        if cold:
            cells.append(f"{one['read_mib_an_epoch']['median']:.0f}")
        rows.append([name, *cells, contender_of(part, name).how])
    print_table(head, rows)


def missing_lines(bench: Bench) -> Iterator[str]:
    """Who is not among the figures, and why."""
    for name, found in bench.peers.items():
        if "missing" in found:
            yield f"{name}: not installed ({found['missing']}); pip install {PEERS[name].install}"
    for name, why in bench.failures.items():
        install = f"; pip install {PEERS[name].install}" if name in PEERS else ""
        yield f"{name}: failed: {why}{install}"


def report(bench: Bench, facts: Record) -> Record:
    """Print everything; give the raw record."""
    args = bench.args
    print()
    print_facts(facts)
    for name, found in bench.peers.items():
        if "versions" in found:
            print(f"{name}: {', '.join(f'{package} {number}' for package, number in found['versions'].items())}", end="; ")
    print(f"files on {file_system(str(bench.home))}")
    found = {
        part: {name: {**figures(runs), "runs": runs} for name, runs in named.items() if runs}
        for part, named in bench.parts.items()
    }
    for part, one in found.items():
        print_part(part, one, args)
    print("\nForms of the photos, MiB: ", end="")
    print(", ".join(f"{name} {one['bytes'] / _MIB:.1f}" for name, one in sizes(bench).items()))
    for line in missing_lines(bench):
        print(f"- {line}")
    if args.svg and found.get("uint8"):
        Path(args.svg).write_text(svg(found["uint8"], args))
    return {"machine": facts, "peers": bench.peers, "packs": bench.packs, "failures": bench.failures, "parts": found}


def sizes(bench: Bench) -> dict[str, Record]:
    """The photos themselves first."""
    source = sum(path.stat().st_size for path in bench.source.rglob("*") if path.is_file())
    return {"files": {"bytes": source}, **bench.packs}


def svg(found: Mapping[str, Record], args: argparse.Namespace) -> str:
    """The chart of the first part, the fastest last."""
    values = {name: one["images_a_cpu_second"]["median"] for name, one in found.items()}
    bars = [
        Bar(name, values[name], ours=contender_of("uint8", name).peer == "fastfeed")
        for name in sorted(values, key=values.__getitem__)
    ]
    return chart(
        f"Photos per CPU-second: RandomResizedCrop({SIZE}) + flip to uint8, {args.workers} workers, {args.cores} cores", bars
    )


def interpreter(text: str) -> tuple[str, str]:
    """PEER=PATH."""
    peer, _, path = text.partition("=")
    if peer not in PEERS or not os.access(path, os.X_OK):
        msg = f"{text!r}: PEER is one of {', '.join(PEERS)}, and PATH a Python interpreter"
        raise argparse.ArgumentTypeError(msg)
    return peer, os.path.abspath(path)


def parse() -> argparse.Namespace:
    """The command line."""
    parser = arguments(__doc__, rounds=3)
    parser.add_argument("--part", choices=list(PARTS), nargs="+", default=list(PARTS), help="some parts (default: all)")
    parser.add_argument(
        "--only", metavar="WORD", nargs="+", help="contenders whose names contain a word; the first of each part always runs"
    )
    parser.add_argument("--python", metavar="PEER=PATH", type=interpreter, action="append", default=[],
                        help=f"interpreter for a peer (default: this one): {', '.join(PEERS)}")  # fmt: skip
    parser.add_argument("--epochs", type=int, default=1, help="measured epochs a process, after one that is not (default 1)")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--workers", type=int, default=2, help="worker processes or threads (default 2)")
    parser.add_argument("--cores", type=int, default=2, help="processors that a run may use (default 2)")
    parser.add_argument("--photos", metavar="DIR", help="class folders of photos (default: the sample photos, or made ones)")
    parser.add_argument("--photo-files", type=int, default=2000, help="files, the photos under several names (default 2000)")
    parser.add_argument("--svg", metavar="FILE", help="write a chart of the part uint8 there")
    args = parser.parse_args()
    args.python = dict(args.python)
    return args


def main() -> None:
    """Make, measure, print."""
    args = parse()
    if args.child is not None:
        found: Any = CHILDREN[args.child["do"]](args.child)
        print(json.dumps(found), flush=True)
        return
    facts = machine_facts(packages=("torch", "numpy", "pillow"))
    with tempfile.TemporaryDirectory(prefix="bench_peers_", dir=args.out) as home:
        bench = Bench(args, Path(home))
        bench.run()
        record = report(bench, facts)
    write_json(args.json, record)


if __name__ == "__main__":
    main()
