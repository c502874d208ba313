#!/usr/bin/env python3
"""What compressed shards cost and save: size against plain tar, CPU of packing, random and sequential reads.

    python benchmarks/bench_zst.py                             snippets of the standard library's source, made here
    python benchmarks/bench_zst.py --source DIR --source DIR   folders of files as they are
    python benchmarks/bench_zst.py --ratios                    only sizes, for more levels and frame sizes

README.md says what each figure means. Nothing is decoded but the compression: every field is read as bytes.
"""

import json
import random
import shutil
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

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
    usage_of,
    write_json,
)

SNIPPETS = 16_000
SNIPPET_BYTES = 2048
LOOKUPS = 2000
BATCH = 64
SETTINGS: list[Record] = [
    {},
    {"compress": "zstd", "level": 1},
    {"compress": "zstd", "level": 3},
    {"compress": "zstd", "level": 3, "frame_bytes": 64 << 10},
    {"compress": "zstd", "level": 3, "frame_bytes": 1 << 20},
    {"compress": "zstd", "level": 10},
]
RATIOS: list[Record] = [
    {"compress": "zstd", "level": level, "frame_bytes": frame_bytes}
    for level in (1, 3, 10, 19)
    for frame_bytes in (16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20)
]


def make_snippets(folder: Path) -> Path:
    """Pieces of the standard library's source of about 2 KB, each with a JSON file that says where it is from."""
    folder.mkdir(parents=True)
    library = Path(sysconfig.get_paths()["stdlib"])
    paths = [path for path in sorted(library.rglob("*.py")) if "site-packages" not in path.parts]
    random.Random(1).shuffle(paths)
    made = 0
    for path in paths:
        text = path.read_bytes()
        for start in range(0, len(text), SNIPPET_BYTES):
            if made == SNIPPETS:
                return folder
            (folder / f"{made:06d}.py").write_bytes(text[start : start + SNIPPET_BYTES])
            about = {"path": str(path.relative_to(library)), "start": start, "language": "python"}
            (folder / f"{made:06d}.json").write_text(json.dumps(about))
            made += 1
    return folder


def name_of(setting: Record) -> str:
    """A setting in words."""
    if not setting:
        return "plain tar"
    frame_bytes = setting.get("frame_bytes", 256 << 10) >> 10
    return f"zstd {setting['level']}, {frame_bytes} KiB"


# ------------------------------------------------------------------------------------------------ in a fresh process
def child(order: Record) -> Record:
    """One measurement."""
    return {"pack": pack_once, "read": read_once}[order["what"]](order)


def pack_once(order: Record) -> Record:
    """CPU and wall seconds of a pack with one worker, and what it wrote."""
    import fastfeed
    from fastfeed.archive import frame  # imported before the clock starts, as fastfeed is

    frame.encoder()
    found: list[fastfeed.PackResult] = []
    used = usage_of(lambda: found.append(fastfeed.pack(order["source"], order["out"], workers=1, **order["setting"])))
    size = sum(dataset.size_bytes for dataset in found[0].datasets)
    tar = sum(dataset.tar_bytes or dataset.size_bytes for dataset in found[0].datasets)
    samples, files = (sum(getattr(d, name) for d in found[0].datasets) for name in ("samples", "source_files"))
    return {**used, "size_bytes": size, "tar_bytes": tar, "samples": samples, "files": files}


def read_once(order: Record) -> Record:
    """CPU a sample at random, alone and in batches, and of all samples in their order; page cache warm."""
    import fastfeed
    from fastfeed.store.frames import FRAMES

    FRAMES.budget_bytes = 0  # as in a set that is far larger than what a process keeps: only the last frame is
    found = fastfeed.open(order["out"])
    raw = fastfeed.open(order["out"], decoders=dict.fromkeys(found.fields or (), "raw"))
    count = len(raw)
    dice = random.Random(order["seed"])
    picks = [dice.randrange(count) for _ in range(LOOKUPS)]
    batches = [picks[at : at + BATCH] for at in range(0, LOOKUPS, BATCH)]
    in_order = [range(at, min(count, at + BATCH)) for at in range(0, count, BATCH)]

    def timed(call: Callable[[], object]) -> float:
        began = time.process_time()
        call()
        return time.process_time() - began

    raw[0]
    return {
        "random_us": timed(lambda: [raw[at] for at in picks]) / LOOKUPS * 1e6,
        "batch_us": timed(lambda: [raw.__getitems__(batch) for batch in batches]) / LOOKUPS * 1e6,
        "sequential_mb_s": order["tar_bytes"] / 1e6 / timed(lambda: [raw.__getitems__(batch) for batch in in_order]),
    }


# ------------------------------------------------------------------------------------------------ all of it
def measured(source: Path, work: Path, settings: list[Record], *, rounds: int, reads: bool) -> list[Record]:
    """A record a setting; contenders take turns."""
    packs: dict[int, list[Record]] = {}
    looks: dict[int, list[Record]] = {}
    for path in source.rglob("*"):
        if path.is_file():
            path.read_bytes()  # the page cache is warm
    for seed in range(rounds):
        for number, setting in enumerate(settings):
            out = work / f"out-{number}"
            shutil.rmtree(out, ignore_errors=True)
            order: Record = {"what": "pack", "source": str(source), "out": str(out), "setting": setting}
            packs.setdefault(number, []).append(in_fresh_process(__file__, order))
        for number in range(len(settings)) if reads else ():
            facts: Record = {"out": str(work / f"out-{number}"), "seed": seed, "tar_bytes": packs[number][0]["tar_bytes"]}
            order = {"what": "read", **facts}
            looks.setdefault(number, []).append(in_fresh_process(__file__, order))
    for number in range(len(settings)):
        shutil.rmtree(work / f"out-{number}")
    return [
        {"setting": setting, "packs": packs[number], "reads": looks.get(number, [])} for number, setting in enumerate(settings)
    ]


def tell(name: str, records: list[Record]) -> None:
    """The table of one source."""
    first = records[0]["packs"][0]
    print(f"\n{name}: {first['samples']:,} samples, {first['files']:,} files, {first['tar_bytes'] / 1e6:,.1f} MB of tar")
    head = ["shards", "size / tar", "pack CPU s"]
    reads = bool(records[0]["reads"])
    head += ["random read, CPU us", "in batches, CPU us", "in order, MB of tar / CPU s"] if reads else []
    rows = []
    for record in records:
        done = record["packs"][0]
        row = [name_of(record["setting"]), f"{done['size_bytes'] / done['tar_bytes']:.3f}"]
        row.append(shown(spread(one["cpu_seconds"] for one in record["packs"])))
        if reads:
            figures = ("random_us", "batch_us", "sequential_mb_s")
            row += [shown(spread(one[figure] for one in record["reads"]), ".0f") for figure in figures]
        rows.append(row)
    print_table(head, rows)


def main() -> None:
    """Measure each source and print its table."""
    parser = arguments(__doc__, rounds=3)
    parser.add_argument("--source", action="append", type=Path, help="a folder to pack; may be given several times")
    parser.add_argument("--ratios", action="store_true", help="only sizes, for more levels and frame sizes")
    args = parser.parse_args()
    if args.child is not None:
        print(json.dumps(child(args.child)))
        return
    facts = machine_facts(["torch", "zstandard", "xxhash"])
    print_facts(facts)
    with tempfile.TemporaryDirectory(dir=args.out) as folder:
        work = Path(folder)
        sources = args.source or [make_snippets(work / "snippets")]
        print(f"on {file_system(folder)}")
        found = {}
        for source in sources:
            settings = RATIOS if args.ratios else SETTINGS
            rounds = 1 if args.ratios else args.rounds
            found[source.name] = measured(source, work, settings, rounds=rounds, reads=not args.ratios)
            tell(source.name, found[source.name])
        write_json(args.json, {"facts": facts, "sources": found})


if __name__ == "__main__":
    main()
