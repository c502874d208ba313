#!/usr/bin/env python3
"""A GPU that trains on photos: what it asks for with a fixed batch, and what it gets from each way to feed it.

    python benchmarks/bench_gpu.py
    python benchmarks/bench_gpu.py --photos DIR --photo-files 10000 --steps 300 --rounds 3 --workers 14 15
    python benchmarks/bench_gpu.py --gpus 4

ResNet-50 in bfloat16 with channels last, batches of 256, random crops of JPEG photos at distinct paths. Batches are uint8 and
pinned; copying and normalising is done as a plain training script does it. All steps of a run are one epoch, since 10,000 files
stand for a million, whose epochs are long; with --short-epochs each photo once is an epoch. Every run is a fresh process, and
contenders take turns. The first 40 steps are not counted (gpuplan.py). Ways named "device" come on the GPU, normalised
(device="cuda"). With --gpus each run is a process a GPU under torch's launcher (ranks.py). README.md says what figures mean.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks import gpuprofile, gputable, handdali, ranks
from benchmarks.bench_loader import photos_of
from benchmarks.gpuplan import WARM_STEPS
from benchmarks.gputable import DEMAND, Found
from benchmarks.handdali import DEVIATION, MEAN
from benchmarks.measure import (
    Record,
    arguments,
    gpu_used_mib,
    in_fresh_process,
    machine_facts,
    print_facts,
    usage_of,
    write_json,
)

SIZE = 224
NEEDS_ROWS = "rows"
_OPTIONS: tuple[tuple[str, Record], ...] = (("", {}), *((f" {part}", {"hw_decoder_load": part}) for part in (0.0, 0.5, 0.9)))
"""Of DALI's, by what the way's name says of them."""
MODELS = ("resnet50", "resnet18")


class Way(NamedTuple):
    """A way to feed it."""

    name: str
    make: Callable[[Record], Any]
    """From an order to a loader."""
    packing: str
    """"files", "shards" or "rows"."""
    channels_last: bool = False
    """Whether batches have that layout in memory when they come, so that the GPU need not make it."""
    device: bool = False
    """Whether they come on the GPU, normalised (device=); else the training loop copies and normalises them."""
    dali: Record | None = None
    """DALI decodes, with these options; None where the CPU decodes. hw_decoder_load is the part of images that the GPU's JPEG
    engine gets; without it that is found while batches are taken."""
    workers: int | None = None
    """Worker processes, or threads of hand-written DALI's, of each GPU, where they do not follow --workers."""


def _transform(*, floats: bool = False) -> Any:  # noqa: ANN401 - a Compose
    from torchvision import transforms as tv

    normalised = [tv.ToTensor(), tv.Normalize([one / 255 for one in MEAN], [one / 255 for one in DEVIATION])]
    return tv.Compose([
        tv.RandomResizedCrop(SIZE), tv.RandomHorizontalFlip(), *(normalised if floats else [tv.PILToTensor()]),
    ])  # fmt: skip


def _options(order: Record) -> Record:
    """What both loaders are given."""
    return {
        "batch_size": order["batch_size"], "num_workers": order["workers"], "pin_memory": True, "drop_last": True,
        "persistent_workers": True,
    }  # fmt: skip


def _samples(dataset: Any, order: Record) -> int:  # noqa: ANN401 - any dataset
    """How many of them all ranks draw in an epoch."""
    all_steps: int = order["batch_size"] * (order["steps"] + WARM_STEPS + order["profiled"]) * order["world"]
    return len(dataset) if order["short_epochs"] else all_steps


def _again_and_again(dataset: Any, order: Record) -> Any:  # noqa: ANN401 - an array
    """Positions of the samples that ranks share out among themselves, so that a run is one epoch."""
    import numpy as np

    return np.arange(_samples(dataset, order)) % len(dataset)


def _drawn(dataset: Any, order: Record) -> Any:  # noqa: ANN401 - a sampler
    """One GPU's order."""
    from torch.utils.data import RandomSampler

    return RandomSampler(dataset, num_samples=_samples(dataset, order))


def by_torch(order: Record) -> Any:  # noqa: ANN401 - a loader
    """ImageFolder and torch's DataLoader; on several GPUs with torch's DistributedSampler."""
    from torch.utils.data import DataLoader, DistributedSampler, Subset
    from torchvision.datasets import ImageFolder

    photos = ImageFolder(order["folder"], _transform())
    if order["world"] == 1:
        return DataLoader(photos, sampler=_drawn(photos, order), **_options(order))
    shared: Subset[Any] = Subset(photos, _again_and_again(photos, order))
    sampler: DistributedSampler[Any] = DistributedSampler(shared, order["world"], order["number"], drop_last=True)
    return DataLoader(shared, sampler=sampler, **_options(order))


def by_fastfeed(order: Record) -> Any:  # noqa: ANN401 - a loader
    """fastfeed.open and fastfeed.DataLoader; on several GPUs with distributed=True."""
    import fastfeed

    on_device = order["device"]
    dataset = fastfeed.open(order["folder"], transform=_transform(floats=on_device))
    options = {**_options(order), "channels_last": order["channels_last"]}
    if on_device:
        options.update(device="cuda", pin_memory=None)
    if order["dali"] is not None:
        options.update(device_decode=fastfeed.DaliOptions(**order["dali"]))
    if order["world"] == 1:
        return fastfeed.DataLoader(dataset, sampler=_drawn(dataset, order), **options)
    return fastfeed.DataLoader(dataset.select(_again_and_again(dataset, order)), shuffle=True, distributed=True, **options)


WAYS = (
    Way("torch + Pillow", by_torch, "files"),
    Way("fastfeed, files", by_fastfeed, "files"),
    Way("fastfeed, shards", by_fastfeed, "shards"),
    Way("fastfeed, shards, device", by_fastfeed, "shards", device=True),
    Way("fastfeed, jpeg_rows", by_fastfeed, NEEDS_ROWS),
    Way("fastfeed, jpeg_rows, channels last", by_fastfeed, NEEDS_ROWS, channels_last=True),
    Way("fastfeed, jpeg_rows, channels last, device", by_fastfeed, NEEDS_ROWS, channels_last=True, device=True),
    *(
        Way(f"fastfeed, {packing}, dali{name}", by_fastfeed, kind, channels_last=True, device=True, dali=options, workers=8)
        for (packing, kind), (name, options) in product((("shards", "shards"), ("jpeg_rows", NEEDS_ROWS)), _OPTIONS)
    ),
    *(
        Way(f"hand-written DALI,{name}", handdali.batches, "files", dali=options, workers=8)
        for name, options in _OPTIONS if options
    ),
)  # fmt: skip


# ------------------------------------------------------------------------------------------------ one run, in its own process
def endless(loader: Any) -> Iterator[Any]:  # noqa: ANN401 - any loader
    """Its batches, epoch after epoch."""
    while True:
        yield from loader


def stepper(order: Record) -> Callable[[Any, Any], None]:
    """One step of training a model of torchvision's on images (on the GPU; uint8, or normalised floats) and classes."""
    import torch
    from torchvision import models

    torch.backends.cudnn.benchmark = True
    model: torch.nn.Module = getattr(models, order["model"])().cuda().to(memory_format=torch.channels_last)
    if order["world"] > 1:
        model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[order["local"]])
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    shape = (1, 3, 1, 1)
    mean, deviation = (torch.tensor(values, device="cuda").view(shape) for values in (MEAN, DEVIATION))

    def step(images: Any, classes: Any) -> None:  # noqa: ANN401 - tensors
        images = images.to(memory_format=torch.channels_last)
        if images.dtype is torch.uint8:
            images = images.float().sub_(mean).div_(deviation)
        with torch.autocast("cuda", torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(model(images), classes)
        torch.autograd.backward(loss)
        optimiser.step()
        optimiser.zero_grad()

    return step


def fixed(order: Record) -> Iterator[Any]:
    """The same batch again and again."""
    import torch

    shape = (order["batch_size"], 3, SIZE, SIZE)
    images = torch.randint(0, 256, shape, dtype=torch.uint8, device="cuda")
    classes = torch.zeros(shape[0], dtype=torch.long, device="cuda")
    while True:
        yield images, classes


def child(order: Record) -> Record | None:
    """One way: images a second, waits of each step, what was used of processor and GPU; None but on the first rank."""
    rank = ranks.join()
    records = ranks.gathered(measured(ranks.share_of(order, rank), rank), rank)
    return ranks.merged(records) if rank.number == 0 else None


def measured(order: Record, rank: ranks.Rank) -> Record:
    """What one rank finds.

    "wait" is the time in next(batches). "feed" is that and the calls that move the batch, where the training loop does: all of
    the main thread's time that is not the step's. "thread" is the processor's part of that: what the thread works, and does not
    wait.
    """
    import torch

    way = next((way for way in WAYS if way.name == order["way"]), None)
    batches = fixed(order) if way is None else endless(way.make(order))
    step = stepper(order) if order["trains"] else None
    waits: list[float] = []
    feeds: list[float] = []
    threads: list[float] = []

    def steps(count: int) -> None:
        for _ in range(count):
            began, used = time.perf_counter(), time.thread_time()
            images, classes = next(batches)
            waits.append(time.perf_counter() - began)
            if step is not None:
                images, classes = images.cuda(non_blocking=True), classes.cuda(non_blocking=True)
                feeds.append(time.perf_counter() - began)
            threads.append(time.thread_time() - used)
            if step is not None:
                step(images, classes)
        torch.cuda.synchronize()

    steps(WARM_STEPS)
    for times in (waits, feeds, threads):
        times.clear()
    ranks.wait_for_all(rank)
    used = usage_of(lambda: steps(order["steps"]), living=True)
    wall_seconds = used["wall_seconds"]
    seconds = {"wait_seconds": list(waits), "feed_seconds": list(feeds), "thread_seconds": list(threads)}  # before the profile
    profile = gpuprofile.recorded(steps, order["profiled"]) if order["profiled"] and step is not None else None
    return {
        "images_s": order["steps"] * order["batch_size"] / wall_seconds, "cores": used["cpu_seconds"] / wall_seconds,
        **seconds, "profile": profile,
        "gpu": torch.cuda.get_device_name(), "gpu_mib": torch.cuda.max_memory_allocated() / 2**20,
        "gpu_used_mib": gpu_used_mib(),
    }  # fmt: skip


# ------------------------------------------------------------------------------------------------ all runs
def folders_of(photos: Path, home: Path, rows: str | None) -> dict[str, str]:
    """The photos in each form that can be made here; rows is what was packed so elsewhere."""
    import fastfeed

    found = {"files": str(photos), "shards": str(home / "shards")}
    fastfeed.pack(photos, found["shards"])
    if rows is not None:
        found[NEEDS_ROWS] = rows
    elif shutil.which("jpegtran"):
        found[NEEDS_ROWS] = str(home / "rows")
        fastfeed.pack(photos, found[NEEDS_ROWS], jpeg_rows=True)
    else:
        print("not measured: jpeg_rows, for which jpegtran is needed (apt-get install libjpeg-turbo-progs)", file=sys.stderr)
    return found


def order_of(way: Way | None, args: argparse.Namespace, folders: dict[str, str], workers: int, *, trains: bool) -> Record:
    """One run; without a way the fixed batch's.

    Args:
        way: How batches come.
        args: batch_size, steps (counted ones), short_epochs, model, gpus, profile (steps that are profiled behind them).
        folders: The photos in each form.
        workers: Of all GPUs together, where the way does not have its own number.
        trains: Whether a model is trained.
    """
    common = {
        "batch_size": args.batch_size, "steps": args.steps, "model": args.model, "gpus": args.gpus, "trains": trains,
        "profiled": args.profile,
    }  # fmt: skip
    if way is None:
        return {**common, "way": DEMAND, "workers": 0}
    return {
        **common, "way": way.name, "folder": folders[way.packing], "short_epochs": args.short_epochs,
        "workers": workers if way.workers is None else way.workers * args.gpus,
        "channels_last": way.channels_last, "device": way.device, "dali": way.dali,
    }  # fmt: skip


def orders_of(args: argparse.Namespace, folders: dict[str, str]) -> Iterator[Record]:
    """Every run of a round."""
    if not args.loader_only:
        yield order_of(None, args, folders, 0, trains=True)
    chosen = [way for way in WAYS if way.packing in folders and any(word in way.name for word in args.only)]
    chosen = [way for way in chosen if way.dali is None or handdali.has_dali()]
    for way, trains in product(chosen, (False,) if args.loader_only else (False, True)):
        for workers in args.workers if way.workers is None else args.workers[:1]:
            yield order_of(way, args, folders, workers, trains=trains)


def run(order: Record, *, seconds: float | None = None) -> Record:
    """An order's run, in fresh processes.

    Args:
        order: It.
        seconds: After which it is ended; None for never.

    Raises:
        RuntimeError: It failed; what it said is in the message.
    """
    return in_fresh_process(__file__, order, launcher=ranks.launcher(order["gpus"]), seconds=seconds)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What this script and tools/gpu-check take."""
    parser.add_argument("--photos", metavar="DIR", help="class folders of photos (default: the sample photos, or made ones)")
    parser.add_argument("--rows", metavar="DIR", help="photos packed with --jpeg-rows, where this machine has no jpegtran")
    parser.add_argument("--photo-files", type=int, default=10_000, help="files at distinct paths (default %(default)s)")
    parser.add_argument("--batch-size", type=int, default=256, help="of each GPU (default %(default)s)")
    parser.add_argument("--model", choices=MODELS, default=MODELS[0])
    parser.add_argument("--gpus", type=int, default=1, help="a process each (default %(default)s)")
    profile = "profile so many more steps of each training run: where the GPU's time goes (default: none)"
    parser.add_argument("--profile", metavar="STEPS", type=int, default=0, help=profile)


def main() -> None:
    """Make, measure, print."""
    import torch

    parser = arguments(__doc__, rounds=3)
    add_arguments(parser)
    parser.add_argument("--steps", type=int, default=300, help="counted steps a run (default %(default)s)")
    parser.add_argument("--only", nargs="+", default=[""], metavar="WORD", help="ways whose names contain a word")
    parser.add_argument("--loader-only", action="store_true", help="no training: batches are asked for as fast as they come")
    parser.add_argument("--short-epochs", action="store_true", help="each photo once is an epoch")
    own = [max(1, len(os.sched_getaffinity(0)) - 1)]
    parser.add_argument("--workers", type=int, nargs="+", default=own, help="of all GPUs (default: one less than the cores)")
    args = parser.parse_args()
    if args.child is not None:
        record = child(args.child)
        if record is not None:
            print(json.dumps(record))
        return
    if torch.cuda.device_count() < args.gpus:
        parser.error(f"torch finds {torch.cuda.device_count()} GPUs here, and this is about {args.gpus}")
    found: Found = {}
    with tempfile.TemporaryDirectory(prefix="bench_gpu_", dir=args.out) as home:
        folders = folders_of(photos_of(args, Path(home)), Path(home), args.rows)
        for _ in range(args.rounds):
            for order in orders_of(args, folders):
                print(order["way"], order["workers"], "training" if order["trains"] else "loading", "...", file=sys.stderr)
                gputable.add(found, order, run(order))
    facts = facts_of(found)
    print_facts(facts)
    what = "no training" if args.loader_only else args.model
    print(f"{facts['gpus']}; {args.photo_files} photos, batches of {args.batch_size}, {args.steps} steps, {what}\n")
    gputable.print_found(found)
    gputable.print_profiles(found)
    write_json(args.json, record_of(facts, found))


def facts_of(found: Found) -> Record:
    """The machine, its GPUs included, which the runs have seen."""
    seen = [f"{run['gpus']} x {run['gpu']}" for runs in found.values() for one in runs.values() for run in one]
    facts = machine_facts(["torch", "torchvision", "pillow", "simplejpeg", "nvidia-dali-cuda130"])
    return {**facts, "gpus": ", ".join(dict.fromkeys(seen))}


def record_of(facts: Record, found: Found) -> Record:
    """The raw record."""
    return {"machine": facts, "runs": [[*name, runs] for name, runs in found.items()]}


if __name__ == "__main__":
    main()
