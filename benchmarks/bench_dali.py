#!/usr/bin/env python3
"""DALI's decoder alone, under the places that fastfeed draws: images a second, distance to the CPU's pixels, memory of the GPU.

    python benchmarks/bench_dali.py --packed SHARDS ROWS
    python benchmarks/bench_dali.py --packed ROWS --engine 0.5 0.9 --threads 4 8 --in-flight 2 3 --device cpu

Nothing is read or drawn while it is timed: a few batches are encoded before and given again and again. Times of the main thread
are what the process that trains spends in the decoder.
"""

import argparse
import os
import sys
import time
from functools import partial
from itertools import cycle, islice, product
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks.measure import Record, arguments, gpu_used_mib, machine_facts, print_facts, print_table, write_json

SIZE = 224
_BATCHES = 6
_EDGE = 1
"""Outermost rows and columns of results, which DALI makes otherwise."""


def encoded_batches(packed: str, batch_size: int) -> tuple[list[Any], Any]:
    """Some batches as a worker would send them, and the first one decoded on the CPU.

    Args:
        packed: A packed dataset.
        batch_size: Images in each.
    """
    from torchvision import transforms as tv

    import fastfeed
    from fastfeed.feed.dalioptions import DaliOptions

    transform = tv.Compose([tv.RandomResizedCrop(SIZE), tv.RandomHorizontalFlip(), tv.PILToTensor()])
    dataset = fastfeed.open(packed, transform=transform, decode="close")
    made: list[Any] = []
    plain = None
    for number in range(_BATCHES):
        indices = [(number * batch_size + at) % len(dataset) for at in range(batch_size)]
        made.append(_images(partial(dataset.make_encoded, most_bytes=DaliOptions().batch_bytes), indices))
        plain = _images(dataset.make_batch, indices) if plain is None else plain
    return made, plain


def _images(make: Any, indices: list[int]) -> Any:  # noqa: ANN401 - Encoded, or a tensor
    """Of a batch, as a worker would make it."""
    import torch

    return make(indices, torch.manual_seed, _memory).collated()[0]


def _memory(shape: tuple[int, ...], dtype: Any) -> Any:  # noqa: ANN401 - torch's
    import torch

    return torch.empty(shape, dtype=dtype)


def distance(decoder: Any, batch: Any, plain: Any) -> Record:  # noqa: ANN401
    """Levels between DALI's pixels and the CPU's: largest and mean, of all and without the outermost rows and columns."""
    decoder.begin(batch)
    apart = (decoder.take().permute(0, 3, 1, 2).cpu().int() - plain.int()).abs()
    inside = apart[:, :, _EDGE:-_EDGE, _EDGE:-_EDGE]
    return {
        "all": [int(apart.max()), float(apart.float().mean())], "inside": [int(inside.max()), float(inside.float().mean())],
    }  # fmt: skip


def rate(decoder: Any, batches: list[Any], seconds: float) -> Record:  # noqa: ANN401
    """Images a second, and milliseconds of this thread a batch."""
    import torch

    def wait() -> None:
        if decoder.device.type == "cuda":
            torch.cuda.synchronize(decoder.device)

    source = cycle(batches)
    for batch in islice(source, decoder.options.in_flight):
        decoder.begin(batch)
    for batch in islice(source, 3):
        decoder.take()
        decoder.begin(batch)
    wait()
    count, began, used = 0, time.perf_counter(), time.thread_time()
    while time.perf_counter() - began < seconds:
        decoder.take()
        decoder.begin(next(source))
        count += 1
    used = time.thread_time() - used
    wait()
    took = time.perf_counter() - began
    decoder.forget()
    return {"images_s": count * len(batches[0].where) / took, "thread_ms": 1e3 * used / max(1, count)}


def measured(args: argparse.Namespace, device: Any) -> list[Record]:  # noqa: ANN401
    """All runs."""
    from fastfeed.feed.dali import DaliDecoder
    from fastfeed.feed.dalioptions import DaliOptions

    found = []
    for packed in args.packed:
        batches, plain = encoded_batches(packed, args.batch_size)
        kb = sum(batch.data.numel() for batch in batches) / len(batches) / args.batch_size / 1e3
        for engine, threads, in_flight, fancy in product(args.engine, args.threads, args.in_flight, args.fancy):
            before = gpu_used_mib(device)
            options = DaliOptions(hw_decoder_load=engine, threads=threads, in_flight=in_flight, fancy_upsampling=bool(fancy))
            decoder = DaliDecoder(device, options)
            record = {
                "packed": os.path.basename(packed), "kb_image": kb, "engine": engine, "threads": threads,
                "in_flight": in_flight, "fancy": fancy,
                "distance": distance(decoder, batches[0], plain), **rate(decoder, batches, args.seconds),
            }  # fmt: skip
            found.append({**record, "gpu_mib": gpu_used_mib(device) - before})
            print(found[-1], file=sys.stderr)
            del decoder
    return found


def main() -> None:
    """Measure, print."""
    import torch

    parser = arguments(__doc__, rounds=1)
    parser.add_argument("--packed", nargs="+", required=True, metavar="DIR", help="packed datasets of photos")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each run (default %(default)s)")
    parser.add_argument("--engine", type=float, nargs="+", default=[0.0, 0.5, 0.9], help="hw_decoder_load")
    parser.add_argument("--threads", type=int, nargs="+", default=[8])
    parser.add_argument("--in-flight", type=int, nargs="+", default=[2])
    parser.add_argument("--fancy", type=int, nargs="+", default=[0], help="1: colours are interpolated, 0: repeated")
    args = parser.parse_args()
    runs = measured(args, torch.device(args.device))
    facts = machine_facts(["torch", "nvidia-dali-cuda130"])
    print_facts(facts)
    head = ["packed", "kB an image", "engine", "threads", "in flight", "fancy", "images / s", "main thread, ms a batch",
            "levels apart, inside: most, mean", "levels apart, all: most, mean", "GPU, MiB"]  # fmt: skip
    rows = [
        [run["packed"], f"{run['kb_image']:.1f}", f"{run['engine']:.2f}",
         *(str(run[name]) for name in ("threads", "in_flight", "fancy")),
         f"{run['images_s']:,.0f}", f"{run['thread_ms']:.2f}",
         *("{}, {:.3f}".format(*run["distance"][part]) for part in ("inside", "all")), f"{run['gpu_mib']:,.0f}"]
        for run in runs
    ]  # fmt: skip
    print_table(head, rows)
    write_json(args.json, {"machine": facts, "runs": runs})


if __name__ == "__main__":
    main()
