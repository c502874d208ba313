"""DALI as one writes it by hand: its own file reader, its own random crop, its plain iterator for torch.

What bench_gpu.py compares fastfeed's DALI path with. Batches come normalised, as half floats with channels last.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks.measure import Record

MEAN, DEVIATION = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)
_SIZE = 224
_IN_FLIGHT = 3
_SHUFFLED_FILES = 4096
_AREA, _RATIO, _TRIES = (0.08, 1.0), (3 / 4, 4 / 3), 10
"""torchvision's defaults of RandomResizedCrop."""


def has_dali() -> bool:
    """Whether DALI can be imported."""
    try:
        import nvidia.dali  # noqa: F401
    except ImportError:
        return False
    return True


def _pipeline(order: Record) -> Any:  # noqa: ANN401 - DALI's
    from nvidia.dali import Pipeline, fn, types

    pipeline = Pipeline(
        batch_size=order["batch_size"], num_threads=order["workers"], device_id=order["local"], prefetch_queue_depth=_IN_FLIGHT,
        seed=1 + order["number"],
    )  # fmt: skip
    with pipeline:
        files, classes = fn.readers.file(
            file_root=order["folder"],
            random_shuffle=True,
            initial_fill=_SHUFFLED_FILES,
            prefetch_queue_depth=_IN_FLIGHT,
            shard_id=order["number"],
            num_shards=order["world"],
            name="files",
        )
        images = fn.decoders.image_random_crop(
            files, device="mixed", output_type=types.RGB, random_area=_AREA, random_aspect_ratio=_RATIO, num_attempts=_TRIES,
            **order["dali"],
        )  # fmt: skip
        images = fn.resize(images, size=[_SIZE, _SIZE], interp_type=types.INTERP_LINEAR, antialias=True)
        images = fn.crop_mirror_normalize(
            images, dtype=types.FLOAT16, output_layout="HWC", mean=list(MEAN), std=list(DEVIATION), mirror=fn.random.coin_flip()
        )
        pipeline.set_outputs(images, classes)
    return pipeline


def batches(order: Record) -> Iterator[Any]:
    """Images (float16, shape (batch, 3, 224, 224), channels last) and classes, on the GPU, epoch after epoch.

    Args:
        order: folder (class folders of photos), batch_size, workers (threads of DALI's), dali (options of its decoder), and
            the rank's number, world and local (ranks.py).
    """
    from nvidia.dali.plugin.pytorch import DALIGenericIterator, LastBatchPolicy

    found = DALIGenericIterator(
        [_pipeline(order)], ["images", "classes"], reader_name="files", last_batch_policy=LastBatchPolicy.DROP, auto_reset=True
    )
    while True:
        for (batch,) in found:
            yield batch["images"].permute(0, 3, 1, 2), batch["classes"].squeeze(1).long()
