#!/usr/bin/env python3
"""What the row index of JPEGs costs: finding rows at read time against the stored column, bytes, and the time of pack.

    python benchmarks/bench_rows.py
    python benchmarks/bench_rows.py --photos DIR --photo-files 500 --rounds 5

Needs the program jpegtran (apt-get install libjpeg-turbo-progs). README.md says what each figure means.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks.bench_pack import SAMPLE_PHOTOS, make_photos
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

_MADE_PHOTOS = 100
_REPEATS = 5
_PARTS = (1, 4, 8, 16, 32, 64)
_CROPS = 3
_RESTART = re.compile(rb"\xff[\xd0-\xd7]")


def by_regex(data: bytes, scan: int) -> list[int]:
    """Where rows begin, by a regular expression."""
    return [scan, *(match.end() for match in _RESTART.finditer(data, scan))]


def by_numpy(data: bytes, scan: int) -> NDArray[np.int64]:
    """Where rows begin, by comparing whole arrays."""
    raw = np.frombuffer(data, dtype=np.uint8, offset=scan)
    at = np.flatnonzero(raw[:-1] == 0xFF)
    found: NDArray[np.int64] = at[(raw[at + 1] & 0xF8) == 0xD0] + (scan + 2)
    return found


def cpu_of(call: Callable[[], object], each: int) -> float:
    """CPU-microseconds an item."""
    began = time.process_time()
    for _ in range(_REPEATS):
        call()
    return (time.process_time() - began) / _REPEATS / each * 1e6


def reading(packed: str) -> Record:
    """CPU-microseconds an image of each way to know where rows begin, of images in memory."""
    from fastfeed.archive.dataset import Archive
    from fastfeed.jpegrows import read_frame, rows_of, scan_rows
    from fastfeed.store.members import MemberReader, store_of

    archive = Archive(packed)
    reader = MemberReader(archive, store_of(archive))
    places = [
        (at, place) for at in range(len(archive)) for place in archive.places(at) if archive.jpeg_rows(at, place) is not None
    ]
    images = [bytes(reader.read(at, place)) for at, place in places]
    frames = [frame for frame in map(read_frame, images) if frame is not None]
    count = len(images)
    return {
        "stored column": cpu_of(lambda: [archive.jpeg_rows(at, place) for at, place in places], count),
        "headers read": cpu_of(lambda: list(map(read_frame, images)), count),
        "scanned, headers known": cpu_of(lambda: list(map(rows_of, images, frames)), count),
        "headers read and scanned": cpu_of(lambda: list(map(scan_rows, images)), count),
        "regular expression, markers only": cpu_of(
            lambda: [by_regex(data, frame.scan) for data, frame in zip(images, frames, strict=True)], count
        ),
        "numpy, markers only": cpu_of(
            lambda: [by_numpy(data, frame.scan) for data, frame in zip(images, frames, strict=True)], count
        ),
    }


def converting(files: Sequence[str]) -> Record:
    """CPU-milliseconds a file of jpegtran with several options, its start alone, and of all that pack does."""
    from fastfeed.packer.rows.transcode import Jpegtran, index_rows

    program = Jpegtran().path
    images = [Path(path).read_bytes() for path in files]
    found: Record = {}

    def each(*options: str) -> Callable[[], object]:
        return lambda: [subprocess.run([program, *options], input=data, capture_output=True, check=True) for data in images]

    calls = {
        "start of jpegtran alone": each("-version"),
        "jpegtran -restart 1": each("-copy", "none", "-restart", "1"),
        "jpegtran -restart 1 -optimize": each("-copy", "none", "-optimize", "-restart", "1"),
        "all: jpegtran, both decoded and compared": lambda: list(map(index_rows, images)),
    }
    for name, call in calls.items():
        found[name] = usage_of(call)["cpu_seconds"] / len(images) * 1e3
    return found


def sizes(files: Sequence[str], packed: str) -> list[list[str]]:
    """Bytes an image: as it was, with markers, with optimal tables too; and those of the column."""
    from fastfeed.archive.dataset import Archive
    from fastfeed.packer.rows.transcode import Jpegtran

    program, images = Jpegtran().path, [Path(path).read_bytes() for path in files]

    def all_bytes(*options: str) -> int:
        runs = [
            subprocess.run([program, "-copy", "all", *options], input=data, capture_output=True, check=True) for data in images
        ]
        return sum(len(run.stdout) for run in runs)

    before = sum(map(len, images))
    after = {"-restart 1": all_bytes("-restart", "1"), "-restart 1 -optimize": all_bytes("-restart", "1", "-optimize")}
    column = Archive(packed).index.jpeg_rows
    assert column is not None
    stored = (int(column.lengths().sum()) + 8 * len(column.lengths())) / max(1, column.count())
    rows = [["as it was", f"{before / len(images):,.0f}", ""]]
    rows += [[name, f"{size / len(images):,.0f}", f"{size / before - 1:+.1%}"] for name, size in after.items()]
    return [*rows, ["column jpeg_intervals", f"{stored:,.0f}", f"{stored * len(images) / before:+.2%}"]]


def divided(files: Sequence[str]) -> Record:
    """CPU-milliseconds to cut and decode a random crop, and bytes, by how many restart intervals a row may have."""
    import torch
    from torchvision.transforms import RandomResizedCrop

    from fastfeed.feed.decode.box import Box
    from fastfeed.feed.decode.header import read_header
    from fastfeed.feed.decode.jpeg import decode
    from fastfeed.jpegrows import read_frame, scan_rows, to_column
    from fastfeed.packer.rows.transcode import LEAST_BYTES, MOST_PARTS, Jpegtran, interval_of

    program, found, before = Jpegtran(), Record(), 0
    photos: dict[int, list[tuple[bytes, Any, list[Box]]]] = {most: [] for most in _PARTS}
    for path in files:
        data = Path(path).read_bytes()
        frame = read_frame(data)
        if frame is None or frame.rows == 1 or len(frame.components) not in {1, 3}:
            continue
        draw = partial(RandomResizedCrop.get_params, torch.empty(3, frame.height, frame.width), [0.08, 1.0], [0.75, 4 / 3])
        boxes = [Box(*draw()) for _ in range(_CROPS)]
        before += len(data)
        for most, those in photos.items():
            least_bytes = LEAST_BYTES * MOST_PARTS // most
            made = program.transcoded(data, interval_of(frame, len(data) - frame.scan, most, least_bytes))
            those.append((made or b"", scan_rows(made or b""), boxes))
    for most, those in photos.items():

        def crops(those: list[tuple[bytes, Any, list[Box]]] = those) -> None:
            for data, edges, boxes in those:
                for box in boxes:
                    decode(data, read_header(data), box, "RGB", edges)

        found[str(most)] = {
            "decode_ms": cpu_of(crops, len(those) * _CROPS) / 1e3,
            "bytes": sum(len(data) for data, _, _ in those) / before,
            "column_bytes": sum(len(to_column(edges)) for _, edges, _ in those) / len(those),
        }
    return found


def parts_row(most: str, runs: Sequence[Record]) -> list[str]:
    """A row of the table of divided()."""
    return [
        most, shown(spread(run["decode_ms"] for run in runs), ",.3f"), f"{runs[0]['bytes'] - 1:+.1%}",
        f"{runs[0]['column_bytes']:,.0f}",
    ]  # fmt: skip


def child(order: Record) -> Record:
    """One run in a process of its own."""
    if order["what"] == "reading":
        return reading(order["packed"])
    return {"converting": converting, "divided": divided}[order["what"]](order["files"])


def parse() -> argparse.Namespace:
    """The command line."""
    parser = arguments(__doc__, rounds=5)
    parser.add_argument("--photos", metavar="DIR", help="class folders of photos (default: the sample photos, or made ones)")
    parser.add_argument("--photo-files", type=int, default=200, help="at most so many of them (default 200)")
    return parser.parse_args()


def main() -> None:
    """Make, measure, print."""
    import fastfeed

    args = parse()
    if args.child is not None:
        print(json.dumps(child(args.child)))
        return
    with tempfile.TemporaryDirectory(prefix="bench_rows_", dir=args.out) as home:
        photos = Path(args.photos) if args.photos else SAMPLE_PHOTOS
        if not photos.is_dir():
            photos = Path(home) / "made"
            make_photos(photos, _MADE_PHOTOS)
        found = sorted(path for path in photos.rglob("*") if path.suffix.lower() in {".jpg", ".jpeg"})
        files = [str(path) for path in found[:: max(1, len(found) // args.photo_files)][: args.photo_files]]
        chosen = Path(home) / "chosen"
        for number, path in enumerate(files):
            (chosen / f"{number % 10}").mkdir(parents=True, exist_ok=True)
            (chosen / f"{number % 10}" / f"{number}.jpg").write_bytes(Path(path).read_bytes())
        packed = str(Path(home) / "packed")
        result = fastfeed.pack(chosen, packed, jpeg_rows=True)
        facts = {**machine_facts(packages=("simplejpeg", "numpy")), "outcomes": result.datasets[0].jpeg_rows}
        runs: dict[str, list[Record]] = {"reading": [], "converting": [], "divided": []}
        for _ in range(args.rounds):
            for what, listed in runs.items():
                listed.append(in_fresh_process(__file__, {"what": what, "packed": packed, "files": files}))
        print_facts(facts)
        print(f"{len(files)} photos: {facts['outcomes']}; {args.rounds} processes each, median (min - max)\n")
        for what, unit, form in (("reading", "CPU us / image", ",.1f"), ("converting", "CPU ms / file", ",.2f")):
            table = {name: spread(run[name] for run in runs[what]) for name in runs[what][0]}
            print_table([what, unit], [[name, shown(value, form)] for name, value in table.items()])
            print()
        print_table(["bytes", "an image", "of the photos"], sizes(files, packed))
        print()
        names = ["intervals a row, at most", "a random crop, CPU ms", "bytes of the photos", "column, bytes an image"]
        print_table(names, [parts_row(most, [run[most] for run in runs["divided"]]) for most in runs["divided"][0]])
        write_json(args.json, {"machine": facts, "runs": runs})


if __name__ == "__main__":
    main()
