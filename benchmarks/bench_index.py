#!/usr/bin/env python3
"""What it costs to make tars readable at random where they are, against reading their headers in other ways.

    python benchmarks/bench_index.py                      100,000 members in 4 tars, 5 rounds
    python benchmarks/bench_index.py --members 1000000 --rounds 3

README.md says what each figure means.
"""

import io
import json
import random
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path

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

TARS = 4
LOOKUPS = 2000
_SEED = 20


def make_tars(folder: Path, members: int) -> None:
    """Tars of texts of 20 to 1,200 bytes, each with its class number, as many members in each tar."""
    chance = random.Random(_SEED)
    for at in range(TARS):
        with tarfile.open(folder / f"{at:03d}.tar", "w", format=tarfile.USTAR_FORMAT) as tar:
            for number in range(members // TARS // 2):
                text = b"a caption of number %d, " % number * chance.randint(1, 40)
                for field, data in (("txt", text), ("cls", b"%d" % (number % 1000))):
                    info = tarfile.TarInfo(f"{at:03d}{number:06d}.{field}")
                    info.size = len(data)
                    tar.addfile(info, io.BytesIO(data))


# ------------------------------------------------------------------------------------------------ contenders
def by_fastfeed(folder: Path, *, checksums: bool = False) -> int:
    """Index them."""
    from fastfeed.source.tarindex import index_tars

    shutil.rmtree(folder / ".fastfeed-index", ignore_errors=True)
    return index_tars(str(folder / "*.tar"), checksums=checksums).members


def by_tarfile(folder: Path) -> int:
    """Read all headers with Python's tarfile."""
    count = 0
    for path in sorted(folder.glob("*.tar")):
        with tarfile.open(path, "r:") as tar:
            count += sum(1 for _ in tar)
    return count


def by_webdataset(folder: Path) -> int:
    """Read all samples once: what an epoch costs that only counts."""
    from webdataset.tariterators import group_by_keys, tar_file_expander

    count = 0
    for path in sorted(folder.glob("*.tar")):
        with path.open("rb") as stream:
            for sample in group_by_keys(tar_file_expander([{"url": str(path), "stream": stream}])):
                count += len(sample) - 2
    return count


def by_tar(folder: Path) -> int:
    """List all names with GNU tar."""
    count = 0
    for path in sorted(folder.glob("*.tar")):
        count += subprocess.run(["tar", "tf", path], capture_output=True, check=True).stdout.count(b"\n")
    return count


CONTENDERS: Mapping[str, Callable[[Path], int]] = {
    "fastfeed index": by_fastfeed,
    "fastfeed index --checksums": lambda folder: by_fastfeed(folder, checksums=True),
    "tarfile, headers": by_tarfile,
    "webdataset, one pass": by_webdataset,
    "tar tf": by_tar,
}


def child(order: Record) -> None:
    """One measured run, or the figures of an index that is there."""
    folder = Path(order["folder"])
    if order["what"] == "opened":
        print(json.dumps(opened(folder)))
        return
    contender = CONTENDERS[order["what"]]
    import webdataset.tariterators  # noqa: F401

    import fastfeed.source.tarindex  # noqa: F401 - imports count for nobody

    counted: list[int] = []
    found = usage_of(lambda: counted.append(contender(folder)))
    print(json.dumps({**found, "members": counted[0]}))


def opened(folder: Path) -> Record:
    """Opening an index that is there, and samples at random."""
    import torch  # noqa: F401 - what every trainer has imported before

    import fastfeed

    _ = fastfeed.open
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        began = time.perf_counter()
        dataset = fastfeed.open(str(folder / "*.tar"), decoders={"txt": "raw"})
        open_seconds = time.perf_counter() - began
    chance, seconds = random.Random(_SEED), []
    for _ in range(LOOKUPS):
        position = chance.randrange(len(dataset))
        began = time.perf_counter()
        dataset[position]
        seconds.append(time.perf_counter() - began)
    return {"open_seconds": open_seconds, "read_seconds": statistics.median(seconds), "samples": len(dataset)}


def main() -> int:
    """Run all contenders in turns and print the figures."""
    parser = arguments(__doc__, rounds=5)
    parser.add_argument("--members", type=int, default=100_000)
    args = parser.parse_args()
    if args.child is not None:
        child(args.child)
        return 0
    record: Record = {
        "machine": machine_facts(),
        "members": args.members,
        "runs": {name: [] for name in CONTENDERS},
        "opened": [],
    }
    with tempfile.TemporaryDirectory(prefix="fastfeed-bench-", dir=args.out) as name:
        folder = Path(name)
        make_tars(folder, args.members)
        for _ in range(args.rounds):
            for contender in CONTENDERS:
                run = in_fresh_process(__file__, {"what": contender, "folder": name})
                assert run["members"] == args.members, (contender, run)
                record["runs"][contender].append(run)
            record["opened"].append(in_fresh_process(__file__, {"what": "opened", "folder": name}))
    print_facts(record["machine"])
    rows = []
    for contender, runs in record["runs"].items():
        cpu = spread(run["cpu_seconds"] for run in runs)
        wall = spread(run["wall_seconds"] for run in runs)
        rows.append([contender, shown(cpu), shown(wall), f"{args.members / cpu['median']:,.0f}"])
    print_table(["contender", "CPU s", "wall s", "members / CPU s"], rows)
    for figure, text in (("open_seconds", "open an index that is there"), ("read_seconds", "a sample at random, median")):
        print(f"{text}: {shown(spread(run[figure] for run in record['opened']), '.3f', 1000)} ms")
    write_json(args.json, record)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
