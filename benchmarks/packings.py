"""The forms of the photos that the contenders of bench_peers.py read: how each package writes its own from a folder."""

import os
import random
import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

MAX_SIDE = 500
_QUALITY = 90
"""FFCV's default: it encodes every photo again."""
_SHARDS = 8
"""Tars for webdataset, which shuffles their order and deals them to workers."""


def labelled(source: str) -> list[tuple[str, int]]:
    """All files of a folder of class folders with their class numbers."""
    classes = sorted(path for path in Path(source).iterdir() if path.is_dir())
    return [(str(path), label) for label, folder in enumerate(classes) for path in sorted(folder.iterdir())]


def write_tars(source: str, target: str) -> None:
    """Webdataset's ShardWriter, in random order as its documentation asks; the files' bytes are kept."""
    from webdataset import ShardWriter

    files = labelled(source)
    random.Random(0).shuffle(files)
    with ShardWriter(os.path.join(target, "%06d.tar"), maxcount=-(-len(files) // _SHARDS), verbose=0) as writer:
        for number, (path, label) in enumerate(files):
            writer.write({"__key__": f"{number:08d}", "jpg": Path(path).read_bytes(), "cls": label})


def write_beton(source: str, target: str, max_resolution: int | None = None) -> None:
    """FFCV's DatasetWriter; every photo is encoded again."""
    from ffcv.fields import IntField, RGBImageField
    from ffcv.writer import DatasetWriter
    from torchvision.datasets import ImageFolder

    image = RGBImageField(write_mode="jpg", max_resolution=max_resolution, jpeg_quality=_QUALITY)
    writer = DatasetWriter(os.path.join(target, "all.beton"), {"image": image, "label": IntField()}, num_workers=2)
    writer.from_indexed_dataset(ImageFolder(source))


def opened(item: tuple[str, int]) -> tuple[Any, int]:
    """A photo that is not decoded yet: litdata and streaming keep the bytes of its file."""
    from PIL import Image

    return Image.open(item[0]), item[1]


def write_litdata(source: str, target: str) -> None:
    """Litdata's optimize; the files' bytes are kept."""
    from litdata import optimize

    optimize(fn=opened, inputs=labelled(source), output_dir=target, chunk_bytes="64MB", num_workers=2)


def write_mds(source: str, target: str) -> None:
    """Streaming's MDSWriter; the files' bytes are kept."""
    from streaming import MDSWriter

    with MDSWriter(out=target, columns={"image": "jpeg", "label": "int"}) as writer:
        for path, label in labelled(source):
            writer.write({"image": opened((path, label))[0], "label": label})


def write_shards(source: str, target: str, **options: Any) -> None:  # noqa: ANN401 - pack's
    """fastfeed.pack."""
    import fastfeed

    shutil.rmtree(target)
    fastfeed.pack(source, target, **options)


PACKINGS: Mapping[str, Callable[[str, str], None] | None] = {
    "files": None,
    "tars": write_tars,
    "beton": write_beton,
    "beton, at most 500": partial(write_beton, max_resolution=MAX_SIDE),
    "litdata": write_litdata,
    "mds": write_mds,
    "shards": write_shards,
    "shards, jpeg_rows": partial(write_shards, jpeg_rows=True),
    "shards, q90": partial(write_shards, quality=_QUALITY),
    "shards, jpeg_rows, q90": partial(write_shards, quality=_QUALITY, jpeg_rows=True),
    "shards, at most 500": partial(write_shards, max_side=MAX_SIDE),
    "shards, jpeg_rows, at most 500": partial(write_shards, max_side=MAX_SIDE, jpeg_rows=True),
    "shards, at most 500, q90": partial(write_shards, max_side=MAX_SIDE, quality=_QUALITY),
    "shards, jpeg_rows, at most 500, q90": partial(write_shards, max_side=MAX_SIDE, quality=_QUALITY, jpeg_rows=True),
}
"""Name -> what writes it from the folder of class folders, into a folder that is there and empty; None: those files."""
