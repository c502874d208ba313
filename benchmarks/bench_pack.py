#!/usr/bin/env python3
"""fastfeed.pack against GNU tar + sha256sum and webdataset's ShardWriter, on photos and on many small texts.

    python benchmarks/bench_pack.py                     both sets, 5 rounds (several minutes)
    python benchmarks/bench_pack.py --set texts --rounds 3
    python benchmarks/bench_pack.py --out /dev/shm      sources and outputs on a tmpfs: no disk in the way

Every run is a fresh process; contenders take turns; the page cache is warm; imports are not measured, but the start of
fastfeed's own worker processes is, since it is part of a pack. README.md says what each figure means.
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks.measure import (
    ROOT,
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

SAMPLE_PHOTOS = ROOT.parent / "shared" / "data" / "imagenet-sample"
TAR, OPENSSL, FASTFEED, SHARDWRITER = "tar + sha256sum", "tar + openssl sha256", "fastfeed", "ShardWriter"
DIGESTS = {TAR: ("sha256sum",), OPENSSL: ("openssl", "dgst", "-sha256")}
PHOTO_MEAN_BYTES = 110_000
PHOTO_SIZE = (468, 401)
_MADE_PHOTOS = 200
_CLASSES = 100
_SEED = 20


@dataclass(frozen=True)
class Contender:
    """One way to pack."""

    kind: str
    cls: bool = False
    """Whether each sample gets a member with its class number."""
    workers: int = 1

    @property
    def name(self) -> str:
        """For tables."""
        workers = f", {self.workers} worker{'s' * (self.workers > 1)}" if self.kind == FASTFEED else ""
        return self.kind + workers + (", with .cls" if self.cls else "")


CONTENDERS = (
    Contender(TAR),
    *([Contender(OPENSSL)] if shutil.which("openssl") else []),
    Contender(FASTFEED),
    Contender(FASTFEED, workers=2),
    Contender(SHARDWRITER),
    Contender(FASTFEED, cls=True),
    Contender(FASTFEED, cls=True, workers=2),
    Contender(SHARDWRITER, cls=True),
)


# ------------------------------------------------------------------------------------------------ what is packed
def make_texts(folder: Path, count: int) -> None:
    """Seeded texts of 100 to 2,000 bytes in 100 class folders."""
    draw = random.Random(_SEED)
    words = ["".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=draw.randint(2, 10))) for _ in range(5000)]
    pool = " ".join(draw.choices(words, k=200_000)).encode()
    for label in range(_CLASSES):
        (folder / f"class{label:03d}").mkdir(parents=True)
    for number in range(count):
        size = draw.randint(100, 2000)
        start = draw.randrange(len(pool) - size)
        path = folder / f"class{number % _CLASSES:03d}" / f"text{number:06d}.txt"
        path.write_bytes(pool[start : start + size])


def make_photos(folder: Path, count: int) -> None:
    """Seeded JPEGs of about PHOTO_MEAN_BYTES in 50 class folders: blurred noise, which no JPEG coder likes."""
    from PIL import Image, ImageFilter

    draw = random.Random(_SEED)
    width, height = PHOTO_SIZE
    for number in range(count):
        noise = Image.frombytes("RGB", PHOTO_SIZE, draw.randbytes(3 * width * height))
        path = folder / f"class{number % 50:03d}" / f"photo{number:05d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        noise.filter(ImageFilter.GaussianBlur(0.6)).save(path, quality=draw.randint(81, 91))


def repeat_files(source: Path, folder: Path, count: int) -> None:
    """Copy a tree's files in turn, with a number in their names, until there are count of them."""
    files = sorted(path for path in source.rglob("*") if path.is_file() and path.parent != source)
    for number in range(count):
        path = files[number % len(files)]
        target = folder / path.relative_to(source).parent / f"{path.stem}_{number // len(files)}{path.suffix}"
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)


def make_set(name: str, args: argparse.Namespace, home: Path) -> Path:
    """Make a set's files below home; give their folder."""
    folder = home / name
    if name == "texts":
        make_texts(folder, args.texts)
        return folder
    photos = Path(args.photos) if args.photos else SAMPLE_PHOTOS
    if not args.photos and not photos.is_dir():
        photos = home / "made"
        make_photos(photos, _MADE_PHOTOS)
    repeat_files(photos, folder, args.photo_files)
    return folder


def warm(folder: Path) -> tuple[int, int]:
    """Read every file once; give how many there are and their bytes."""
    sizes = [len(path.read_bytes()) for path in folder.rglob("*") if path.is_file()]
    return len(sizes), sum(sizes)


# ------------------------------------------------------------------------------------------------ one run, in its own process
def tar_and_digest(source: str, target: str, kind: str) -> Callable[[], None]:
    """One archive of all files, then its digest."""

    def call() -> None:
        archive = os.path.join(target, "all.tar")
        subprocess.run(["tar", "cf", archive, "-C", source, "."], check=True)
        subprocess.run([*DIGESTS[kind], archive], check=True, stdout=subprocess.DEVNULL)

    return call


def fastfeed_pack(source: str, target: str, contender: Contender, shards: int) -> Callable[[], object]:
    """Scan, plan, shards with sha256 and checksums, index, manifest; all of it flushed to the disk."""
    from fastfeed import pack

    return lambda: pack(source, target, workers=contender.workers, shards=shards, write_cls=contender.cls)


def shard_writer(source: str, target: str, contender: Contender, order: Record) -> Callable[[], None]:
    """The loop of webdataset's documentation: read each file, write a sample."""
    from webdataset import ShardWriter

    def samples() -> Iterator[dict[str, object]]:
        for label, name in enumerate(sorted(os.listdir(source))):
            for file in sorted(os.listdir(os.path.join(source, name))):
                with open(os.path.join(source, name, file), "rb") as stream:
                    data = stream.read()
                sample: dict[str, object] = {"__key__": f"{name}/{file.rpartition('.')[0]}", order["field"]: data}
                if contender.cls:
                    sample["cls"] = label
                yield sample

    def call() -> None:
        most = -(-order["files"] // order["shards"])
        pattern = os.path.join(target, "all-%06d.tar")
        with ShardWriter(pattern, maxcount=most, maxsize=1 << 50, verbose=0, mtime=0) as writer:
            for sample in samples():
                writer.write(sample)

    return call


def child(order: Record) -> None:
    """Import, then measure one run."""
    contender = Contender(**order["contender"])
    source, target = order["source"], order["target"]
    call: Callable[[], object]
    if contender.kind in DIGESTS:
        call = tar_and_digest(source, target, contender.kind)
    elif contender.kind == FASTFEED:
        call = fastfeed_pack(source, target, contender, order["shards"])
    else:
        call = shard_writer(source, target, contender, order)
    print(json.dumps(usage_of(call)))


# ------------------------------------------------------------------------------------------------ all runs
def bench_set(name: str, args: argparse.Namespace, home: Path) -> Record:
    """Every contender in turn, round after round."""
    print(f"{name}: making the files ...", file=sys.stderr, flush=True)
    source = make_set(name, args, home)
    files, size_bytes = warm(source)
    runs: dict[str, list[Record]] = {contender.name: [] for contender in CONTENDERS}
    for number in range(args.rounds):
        for contender in CONTENDERS:
            target = home / "out"
            target.mkdir()
            order = {
                "contender": asdict(contender), "source": str(source), "target": str(target), "files": files,
                "shards": args.shards, "field": "txt" if name == "texts" else "jpg",
            }  # fmt: skip
            used = in_fresh_process(__file__, order)
            archives = len(list(target.rglob("*.tar")))
            if archives != (1 if contender.kind in DIGESTS else args.shards):
                msg = f"{contender.name} wrote {archives} archives"
                raise RuntimeError(msg)
            shutil.rmtree(target)
            runs[contender.name].append(used)
            print(f"  round {number + 1} {contender.name}: {used['cpu_seconds']:.2f} CPU s", file=sys.stderr, flush=True)
    shutil.rmtree(source)
    return summary(name, files, size_bytes, runs)


def summary(name: str, files: int, size_bytes: int, runs: dict[str, list[Record]]) -> Record:
    """Medians and ratios; a ratio is one of medians."""
    found: Record = {"set": name, "files": files, "size_bytes": size_bytes, "contenders": {}, "wall_speedup_of_2_workers": {}}
    rows = found["contenders"]
    for contender in CONTENDERS:
        used = runs[contender.name]
        row: Record = {part: spread(one[part] for one in used) for part in used[0]}
        row["files_per_cpu_second"] = files / row["cpu_seconds"]["median"]
        row["mb_per_second"] = size_bytes / 1e6 / row["wall_seconds"]["median"]
        rows[contender.name] = {**row, "runs": used}
    for contender in CONTENDERS:
        row, rival = rows[contender.name], rows[Contender(SHARDWRITER, cls=contender.cls).name]
        row["cpu_against_tar"] = row["cpu_seconds"]["median"] / rows[TAR]["cpu_seconds"]["median"]
        row["files_per_cpu_second_against_shardwriter"] = row["files_per_cpu_second"] / rival["files_per_cpu_second"]
    for cls in (False, True):
        one, two = (rows[Contender(FASTFEED, cls=cls, workers=count).name]["wall_seconds"] for count in (1, 2))
        found["wall_speedup_of_2_workers"]["with .cls" if cls else "without .cls"] = {
            part: one[part] / two[part] for part in ("median", "min")
        }
    return found


def print_set(found: Record) -> None:
    """One table and the speed-ups."""
    print(f"\n{found['set']}: {found['files']:,} files, {found['size_bytes'] / 1e6:,.0f} MB")
    head = [
        "contender",
        "CPU s",
        "wall s",
        "others' CPU s",
        "files / CPU s",
        "MB / s",
        "CPU / tar's",
        "files per CPU s / ShardWriter's",
    ]
    print_table(
        head,
        (
            [
                name, shown(row["cpu_seconds"]), shown(row["wall_seconds"]), f"{row['others_cpu_seconds']['median']:.2f}",
                f"{row['files_per_cpu_second']:,.0f}",
                f"{row['mb_per_second']:,.0f}", f"{row['cpu_against_tar']:.2f}",
                f"{row['files_per_cpu_second_against_shardwriter']:.2f}",
            ]
            for name, row in found["contenders"].items()
        ),
    )  # fmt: skip
    for name, ratio in found["wall_speedup_of_2_workers"].items():
        print(f"two workers against one, {name}: {ratio['median']:.2f} x (medians), {ratio['min']:.2f} x (fastest runs)")


def parse() -> argparse.Namespace:
    """The command line."""
    parser = arguments(__doc__, rounds=5)
    parser.add_argument("--set", choices=("photos", "texts", "both"), default="both", help="which files (default both)")
    parser.add_argument("--photos", metavar="DIR", help="class folders of photos (default: shared/data, else made)")
    parser.add_argument("--photo-files", type=int, default=5000, help="photos are repeated up to this many (default 5000)")
    parser.add_argument("--texts", type=int, default=100_000, help="number of texts (default 100000)")
    parser.add_argument("--shards", type=int, default=8, help="of fastfeed and ShardWriter alike (default 8)")
    return parser.parse_args()


def main() -> None:
    """Make, measure, print."""
    args = parse()
    if args.child is not None:
        child(args.child)
        return
    tools = ("tar", "sha256sum", *(("openssl",) if shutil.which("openssl") else ()))
    facts = machine_facts(packages=("webdataset", "xxhash"), tools=tools)
    with tempfile.TemporaryDirectory(prefix="bench_pack_", dir=args.out) as home:
        record: Record = {
            "machine": facts, "file_system": file_system(home), "rounds": args.rounds, "shards": args.shards,
            "sets": [bench_set(name, args, Path(home)) for name in ("photos", "texts") if args.set in {name, "both"}],
        }  # fmt: skip
    print_facts(facts)
    print(f"sources and outputs on {record['file_system']}, {args.shards} shards, {args.rounds} rounds, median (min - max)")
    for found in record["sets"]:
        print_set(found)
    write_json(args.json, record)


if __name__ == "__main__":
    main()
