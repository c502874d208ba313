#!/usr/bin/env python3
"""Decoding alone: Pillow with torchvision's steps against fastfeed's, image by image in turns, in one process.

    python benchmarks/bench_decode.py
    python benchmarks/bench_decode.py --job floats --rounds 9 --photos DIR

Each photo is made by every contender before the next photo, in another order each time, with the same random crop. So whatever
else happens on the machine happens to all of them, and ratios are good to a few per cent where whole runs differ by a quarter.
There is no loader and no reading: images lie in memory. README.md says what each figure means.
"""

import io
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks.bench_loader import photos_of
from benchmarks.measure import Record, arguments, machine_facts, print_facts, print_table, write_json

SIZE = 224
MEAN, DEVIATION = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
BASE = "Pillow + torchvision"


def transform_of(job: str) -> Any:  # noqa: ANN401 - a Compose
    """The job as torchvision's steps."""
    from torchvision import transforms as tv

    out = [tv.ToTensor(), tv.Normalize(MEAN, DEVIATION)] if job == "floats" else [tv.PILToTensor()]
    return tv.Compose([tv.RandomResizedCrop(SIZE), tv.RandomHorizontalFlip(), *out])


def contenders(job: str) -> dict[str, Callable[[Record], object]]:
    """What makes an image of a photo: its bytes plain and with row markers, and where the rows begin."""
    from PIL import Image

    from fastfeed.feed.decode.images import Images

    transform = transform_of(job)
    exact, close = Images(transform, "exact"), Images(transform, "close")
    out = np.zeros((3, SIZE, SIZE), dtype=np.float32 if job == "floats" else np.uint8)
    return {
        BASE: lambda photo: transform(Image.open(io.BytesIO(photo["plain"])).convert("RGB")),
        "exact": lambda photo: exact.put(out, photo["plain"]),
        "exact, jpeg_rows": lambda photo: exact.put(out, photo["marked"], photo["rows"]),
        "close": lambda photo: close.put(out, photo["plain"]),
        "close, jpeg_rows": lambda photo: close.put(out, photo["marked"], photo["rows"]),
    }


def photos_in_memory(source: Path, home: Path) -> list[Record]:
    """Each photo as it is, and packed with jpeg_rows."""
    import fastfeed
    from fastfeed.archive.dataset import Archive
    from fastfeed.store.members import MemberReader, store_of

    found: list[Record] = []
    for name, rows in (("plain", False), ("marked", True)):
        fastfeed.pack(source, home / name, jpeg_rows=rows)
        archive = Archive(str(home / name))
        reader = MemberReader(archive, store_of(archive))
        for at in range(len(archive)):
            place = next(place for place in archive.places(at) if place.field != "cls")
            data = memoryview(bytearray(reader.read(at, place)))
            if name == "plain":
                found.append({"plain": data})
            else:
                found[at] |= {"marked": data, "rows": archive.jpeg_rows(at, place)}
    return found


def seconds_of(job: str, photos: list[Record], rounds: int) -> dict[str, list[float]]:
    """Thread time of each contender for each photo and round."""
    import torch

    torch.set_num_threads(1)
    calls = contenders(job)
    names, draw = list(calls), random.Random(0)
    spent: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds):
        for at, photo in enumerate(photos):
            draw.shuffle(names)
            for name in names:
                torch.default_generator.manual_seed(at + number * len(photos))
                began = time.thread_time()
                calls[name](photo)
                spent[name].append(time.thread_time() - began)
    return spent


def main() -> None:
    """Print a table of means."""
    parser = arguments(__doc__, rounds=3)
    parser.add_argument("--job", choices=["uint8", "floats", "both"], default="both")
    parser.add_argument("--photos", metavar="DIR", help="class folders of photos (default: the sample photos, or made ones)")
    parser.add_argument("--photo-files", type=int, default=500, help="(default %(default)s)")
    args = parser.parse_args()
    facts = machine_facts(["torch", "torchvision", "pillow", "numpy", "simplejpeg"])
    print_facts(facts)
    record: Record = {"facts": facts, "rounds": args.rounds}
    with tempfile.TemporaryDirectory(dir=args.out) as home:
        photos = photos_in_memory(photos_of(args, Path(home)), Path(home))
        for job in ["uint8", "floats"] if args.job == "both" else [args.job]:
            seconds_of(job, photos[:20], 1)  # what is made at the first call is made
            record[job] = spent = seconds_of(job, photos, args.rounds)
            base = float(np.mean(spent[BASE]))
            print(f"\n{job}: {len(photos)} photos, {args.rounds} rounds")
            print_table(
                ["contender", "ms an image", "images / CPU s", f"/ {BASE}'s"],
                [[name, f"{np.mean(each) * 1e3:.3f}", f"{1 / np.mean(each):,.0f}", f"{base / np.mean(each):.2f}"]
                 for name, each in spent.items()],
            )  # fmt: skip
    write_json(args.json, record)


if __name__ == "__main__":
    main()
