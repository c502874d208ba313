"""The contenders of bench_peers.py, and how each reads photos: as its own documentation shows for this job.

A package is imported by the function that uses it, so that a process loads the one contender that it measures.
"""

import os
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmarks.packings import labelled

SIZE = 224
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_SHUFFLE_BUFFER = 1000

Epoch = Callable[[], Iterable[Any]]
"""One pass over all photos: batches of images; len() of a batch is how many."""


@dataclass(frozen=True)
class Peer:
    """A package that reads photos."""

    module: str
    """What is imported to see whether it is there."""
    packages: tuple[str, ...]
    """Whose versions are told."""
    install: str
    """What to give to pip."""
    needs: str | None = None
    """A package that must be there besides, which has no module of its own."""


@dataclass(frozen=True)
class Job:
    """What is to be read, and into what."""

    path: str
    batch_size: int = 64
    workers: int = 2
    floats: bool = False
    """Normalised float32 in place of uint8."""
    decode: str = "auto"
    shuffle_mode: str = "full"
    channels_last: bool = False
    """Bytes of a pixel side by side in memory, as FFCV and SPDL give them."""
    antialias: bool = True


@dataclass(frozen=True)
class Contender:
    """A way to read photos."""

    name: str
    peer: str
    """Of PEERS."""
    packing: str
    """Of packings.PACKINGS: the form of the photos that it reads."""
    read: Callable[[Job], Epoch]
    how: str
    """Decoding, resizing and output, in a few words."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Fields of its job."""

    def epoch(self, job: Job) -> Epoch:
        """What reads one epoch at each call."""
        return self.read(replace(job, **self.options))


PEERS = {
    "torch": Peer("torchvision", ("torch", "torchvision", "pillow"), "torch torchvision"),
    "webdataset": Peer("webdataset", ("webdataset", "pillow"), "webdataset"),
    "litdata": Peer("litdata", ("litdata", "torch", "torchvision"), "litdata"),
    "streaming": Peer("streaming", ("mosaicml-streaming", "torch", "pillow"), "mosaicml-streaming"),
    "dali": Peer("nvidia.dali", ("nvidia-dali-cuda120", "nvidia-dali-cuda130"), "nvidia-dali-cuda120"),
    "ffcv": Peer("ffcv", ("ffcv", "numba", "opencv-python"), "ffcv (headers of OpenCV and libturbojpeg first)"),
    "spdl": Peer("spdl.io", ("spdl",), "spdl (and FFmpeg's libraries)"),
    "fastfeed": Peer("fastfeed.feed.loader", ("torch", "torchvision", "pillow", "simplejpeg"), "-e . torchvision"),
    "simd": Peer(
        "fastfeed.feed.loader", ("pillow-simd", "torch", "torchvision", "simplejpeg"),
        "pillow-simd, in an environment of its own (--python simd=...)", "pillow-simd",
    ),
}  # fmt: skip


# ------------------------------------------------------------------------------------------------ reading
def pillow_transform(job: Job) -> Any:  # noqa: ANN401
    """The job as torchvision's steps for Pillow's images."""
    from torchvision import transforms as tv

    out = [tv.ToTensor(), tv.Normalize(MEAN, DEVIATION)] if job.floats else [tv.PILToTensor()]
    return tv.Compose([tv.RandomResizedCrop(SIZE), tv.RandomHorizontalFlip(), *out])


def tensor_transform() -> Any:  # noqa: ANN401
    """The job as torchvision's steps for uint8 tensors."""
    from torchvision.transforms import v2

    return v2.Compose([v2.RandomResizedCrop(SIZE), v2.RandomHorizontalFlip()])


def first_of_each(loader: Iterable[Any]) -> Epoch:
    """From a loader of (images, labels)."""
    return lambda: (batch[0] for batch in loader)


def torch_loader(dataset: Any, job: Job, **options: Any) -> Epoch:  # noqa: ANN401
    """DataLoader of torch, with workers that live as long as it does."""
    from torch.utils.data import DataLoader

    loader = DataLoader(dataset, batch_size=job.batch_size, num_workers=job.workers, persistent_workers=True, **options)
    return first_of_each(loader)


def torch_pillow(job: Job) -> Epoch:
    """ImageFolder as it is."""
    from torchvision.datasets import ImageFolder

    return torch_loader(ImageFolder(job.path, pillow_transform(job)), job, shuffle=True)


def torch_tensors(job: Job) -> Epoch:
    """ImageFolder with torchvision's own JPEG decoder: a quarter faster than Pillow and PILToTensor before the v2 steps."""
    from torchvision.datasets import ImageFolder
    from torchvision.io import ImageReadMode, decode_image

    def load(path: str) -> Any:  # noqa: ANN401
        return decode_image(path, mode=ImageReadMode.RGB)

    return torch_loader(ImageFolder(job.path, tensor_transform(), loader=load), job, shuffle=True)


def counted(batch: list[Any]) -> tuple[Any, None]:
    """Of samples, only how many."""
    import torch

    return torch.zeros(len(batch), dtype=torch.uint8), None


def torch_bytes(job: Job) -> Epoch:
    """ImageFolder that reads the files and no more."""
    from torchvision.datasets import ImageFolder

    dataset = ImageFolder(job.path, loader=lambda path: Path(path).read_bytes())
    return torch_loader(dataset, job, shuffle=True, collate_fn=counted)


def read_webdataset(job: Job) -> Epoch:
    """Shards in random order, a shuffle buffer, batches made by the workers."""
    import webdataset as wds

    urls = sorted(map(str, Path(job.path).glob("*.tar")))
    dataset = (
        wds.WebDataset(urls, shardshuffle=len(urls))
        .shuffle(_SHUFFLE_BUFFER)
        .decode("pil")
        .to_tuple("jpg", "cls")
        .map_tuple(pillow_transform(job), int)
        .batched(job.batch_size)
    )
    return first_of_each(wds.WebLoader(dataset, batch_size=None, num_workers=job.workers, persistent_workers=True))


def read_litdata(job: Job) -> Epoch:
    """Its serializer decodes to tensors; the v2 steps on them, as in its own ImageNet benchmark."""
    from litdata import StreamingDataLoader, StreamingDataset

    steps = tensor_transform()

    def transform(sample: tuple[Any, int]) -> tuple[Any, int]:
        image, label = sample
        return steps(image.expand(3, -1, -1) if image.shape[0] == 1 else image), label

    dataset = StreamingDataset(job.path, shuffle=True, transform=transform)
    loader = StreamingDataLoader(dataset, batch_size=job.batch_size, num_workers=job.workers, persistent_workers=True)
    return first_of_each(loader)


def read_mds(job: Job) -> Epoch:
    """Its dataset decodes with Pillow; torch's DataLoader around it."""
    from streaming import StreamingDataset
    from streaming.base.util import clean_stale_shared_memory

    steps = pillow_transform(job)

    class Photos(StreamingDataset):  # type: ignore[misc] # without types
        def __getitem__(self, at: int) -> tuple[Any, int]:
            sample = super().__getitem__(at)
            return steps(sample["image"].convert("RGB")), sample["label"]

    clean_stale_shared_memory()
    return torch_loader(Photos(local=job.path, shuffle=True, batch_size=job.batch_size), job)


def read_dali(job: Job) -> Epoch:
    """Only the crop is decoded; its own reader of class folders; threads."""
    from nvidia.dali import Pipeline, fn, types
    from nvidia.dali.plugin.pytorch import DALIClassificationIterator, LastBatchPolicy

    pipeline = Pipeline(batch_size=job.batch_size, num_threads=job.workers, device_id=None)
    with pipeline:
        jpegs, labels = fn.readers.file(file_root=job.path, random_shuffle=True, name="files")
        images = fn.decoders.image_random_crop(jpegs, device="cpu", output_type=types.RGB)
        images = fn.resize(images, size=(SIZE, SIZE), antialias=job.antialias)
        images = fn.crop_mirror_normalize(
            images, dtype=types.UINT8, output_layout="CHW", mirror=fn.random.coin_flip(), mean=[0.0] * 3, std=[1.0] * 3
        )
        pipeline.set_outputs(images, labels)
    loader = DALIClassificationIterator(
        [pipeline], reader_name="files", auto_reset=True, last_batch_policy=LastBatchPolicy.PARTIAL
    )
    return lambda: (batch[0]["data"] for batch in loader)


def read_ffcv(job: Job) -> Epoch:
    """Its compiled pipeline; threads."""
    from ffcv.fields.basics import IntDecoder
    from ffcv.fields.rgb_image import RandomResizedCropRGBImageDecoder
    from ffcv.loader import Loader, OrderOption
    from ffcv.transforms import RandomHorizontalFlip, Squeeze, ToTensor, ToTorchImage

    image = [RandomResizedCropRGBImageDecoder((SIZE, SIZE)), RandomHorizontalFlip(), ToTensor(), ToTorchImage()]
    loader = Loader(
        os.path.join(job.path, "all.beton"), batch_size=job.batch_size, num_workers=job.workers, order=OrderOption.RANDOM,
        os_cache=True, drop_last=False, pipelines={"image": image, "label": [IntDecoder(), ToTensor(), Squeeze()]},
    )  # fmt: skip
    return first_of_each(loader)


def drawn_crop(width: int, height: int) -> tuple[int, int, int, int]:
    """Width, height, left and top of a random crop, by the rules of torchvision's RandomResizedCrop."""
    for _ in range(10):
        area, ratio = width * height * random.uniform(0.08, 1.0), (4 / 3) ** random.uniform(-1, 1)
        wide, high = round((area * ratio) ** 0.5), round((area / ratio) ** 0.5)
        if 0 < wide <= width and 0 < high <= height:
            return wide, high, random.randint(0, width - wide), random.randint(0, height - high)
    wide, high = min(width, round(height * 4 / 3)), min(height, round(width * 4 / 3))
    return wide, high, (width - wide) // 2, (height - high) // 2


def read_spdl(job: Job) -> Epoch:
    """Threads that decode, crop, scale and flip through FFmpeg's filters, and batches made by its own conversion."""
    import spdl.io
    from spdl.pipeline import PipelineBuilder

    files = labelled(job.path)

    def decode(item: tuple[str, int]) -> tuple[Any, int]:
        packets = spdl.io.demux_image(item[0])
        wide, high, left, top = drawn_crop(packets.width, packets.height)
        flip = "hflip," if random.random() < 0.5 else ""
        steps = f"crop={wide}:{high}:{left}:{top},scale={SIZE}:{SIZE}:flags=bilinear,{flip}format=pix_fmts=rgb24"
        return spdl.io.decode_packets(packets, filter_desc=steps), item[1]

    def batch(items: list[tuple[Any, int]]) -> tuple[Any, list[int]]:
        frames, labels = zip(*items, strict=True)
        return spdl.io.to_torch(spdl.io.convert_frames(list(frames))).permute(0, 3, 1, 2), list(labels)

    def epoch() -> Iterator[Any]:
        stages = PipelineBuilder().add_source(random.sample(files, len(files))).pipe(decode, concurrency=job.workers)
        pipeline = stages.aggregate(job.batch_size).pipe(batch).add_sink(2).build(num_threads=job.workers)
        with pipeline.auto_stop():
            for images, _ in pipeline:
                yield images

    return epoch


def read_fastfeed(job: Job) -> Epoch:
    """As its README shows, with workers that live as long as the loader does, as torch's here."""
    import fastfeed

    dataset = fastfeed.open(job.path, transform=pillow_transform(job), decode=job.decode)
    return _fastfeed_loader(dataset, job)


def fastfeed_bytes(job: Job) -> Epoch:
    """Its shards read, nothing decoded."""
    import fastfeed

    names = fastfeed.open(job.path).fields or ()
    dataset = fastfeed.open(job.path, decoders={name: "raw" for name in names if name != "cls"})
    return _fastfeed_loader(dataset, job, collate_fn=counted)


def _fastfeed_loader(dataset: Any, job: Job, **options: Any) -> Epoch:  # noqa: ANN401
    import fastfeed

    return first_of_each(fastfeed.DataLoader(
        dataset, batch_size=job.batch_size, shuffle=True, num_workers=job.workers, persistent_workers=True,
        shuffle_mode=job.shuffle_mode, channels_last=job.channels_last, **options,
    ))  # fmt: skip


# ------------------------------------------------------------------------------------------------ who reads what
_PILLOW = "Pillow decodes the whole photo and resizes the crop, antialiased"
_TENSORS = "torchvision decodes the whole photo, torch resizes the crop, antialiased"
_FFCV = "photos re-encoded at quality 90; whole photo decoded with the fast DCT, crop resized by area"
_DALI = "decodes the crop alone, resizes"
_EXACT, _CLOSE = "pixels of Pillow and torchvision, bit for bit", "at most 2 levels from Pillow's pixels"
_REENCODED = "photos re-encoded at quality 90, as FFCV's are; at most 2 levels from Pillow's pixels of them"
_SIMD = "pixels of Pillow-SIMD and torchvision, bit for bit"
BASE = "torch + Pillow"


def _ours(name: str, packing: str, how: str, /, *, peer: str = "fastfeed", **options: Any) -> Contender:  # noqa: ANN401
    return Contender(name, peer, packing, read_fastfeed, how, options)


_PILLOW_BASE = Contender(BASE, "torch", "files", torch_pillow, f"{_PILLOW}; NCHW")
_FLOATS: dict[str, Any] = {"floats": True}
PARTS: Mapping[str, tuple[Contender, ...]] = {
    "uint8": (
        _PILLOW_BASE,
        Contender("torch + v2 on tensors", "torch", "files", torch_tensors, f"{_TENSORS}; NCHW"),
        Contender("webdataset", "webdataset", "tars", read_webdataset, f"{_PILLOW}; NCHW"),
        Contender("litdata", "litdata", "litdata", read_litdata, f"{_TENSORS}; NCHW"),
        Contender("mosaicml-streaming", "streaming", "mds", read_mds, f"{_PILLOW}; NCHW"),
        Contender("SPDL", "spdl", "files", read_spdl, "FFmpeg decodes the whole photo, scales the crop, bilinear; NHWC memory"),
        Contender("DALI CPU", "dali", "files", read_dali, f"{_DALI} antialiased (its default); NCHW"),
        Contender(
            "DALI CPU, antialias=False", "dali", "files", read_dali, f"{_DALI} not antialiased; NCHW", {"antialias": False}
        ),
        Contender("FFCV", "ffcv", "beton", read_ffcv, f"{_FFCV}; NHWC memory"),
        _ours("fastfeed exact", "shards", f"{_EXACT}; NCHW", decode="exact"),
        _ours("fastfeed close", "shards", f"{_CLOSE}; NCHW", decode="close"),
        _ours("fastfeed exact, jpeg_rows", "shards, jpeg_rows", f"{_EXACT}; NCHW", decode="exact"),
        _ours("fastfeed close, jpeg_rows", "shards, jpeg_rows", f"{_CLOSE}; NCHW", decode="close"),
        _ours("fastfeed close, NHWC", "shards", f"{_CLOSE}; NHWC memory", decode="close", channels_last=True),
        _ours(
            "fastfeed close, NHWC, jpeg_rows", "shards, jpeg_rows", f"{_CLOSE}; NHWC memory", decode="close", channels_last=True
        ),
        _ours("fastfeed close, q90", "shards, q90", f"{_REENCODED}; NCHW", decode="close"),
        _ours("fastfeed close, q90, jpeg_rows", "shards, jpeg_rows, q90", f"{_REENCODED}; NCHW", decode="close"),
        _ours("fastfeed exact, SIMD", "shards", f"{_SIMD}; NCHW", peer="simd", decode="exact"),
        _ours("fastfeed exact, SIMD, jpeg_rows", "shards, jpeg_rows", f"{_SIMD}; NCHW", peer="simd", decode="exact"),
    ),
    "float": (
        replace(_PILLOW_BASE, options=_FLOATS),
        _ours("fastfeed exact", "shards", _EXACT, decode="exact", **_FLOATS),
        _ours("fastfeed close", "shards", f"{_CLOSE}, then the same sums", decode="close", **_FLOATS),
        _ours("fastfeed exact, jpeg_rows", "shards, jpeg_rows", _EXACT, decode="exact", **_FLOATS),
        _ours("fastfeed close, jpeg_rows", "shards, jpeg_rows", f"{_CLOSE}, then the same sums", decode="close", **_FLOATS),
    ),
    "cold": (
        _PILLOW_BASE,
        _ours("fastfeed close on the small files", "files", "opened in place, random order", decode="close"),
        _ours("fastfeed close", "shards", "random order", decode="close"),
        _ours("fastfeed close, block", "shards", 'shuffle_mode="block"', decode="close", shuffle_mode="block"),
        Contender("small files, bytes alone", "torch", "files", torch_bytes, "read at random, nothing decoded"),
        Contender("shards, bytes alone", "fastfeed", "shards", fastfeed_bytes, "random order, nothing decoded"),
        Contender(
            "shards, block, bytes alone", "fastfeed", "shards", fastfeed_bytes, 'shuffle_mode="block", nothing decoded',
            {"shuffle_mode": "block"},
        ),
    ),
    "small": (
        Contender("FFCV, 500", "ffcv", "beton, at most 500", read_ffcv, _FFCV),
        _ours("fastfeed close, 500", "shards, at most 500", f"{_CLOSE}; larger photos alone re-encoded", decode="close"),
        _ours("fastfeed close, 500, jpeg_rows", "shards, jpeg_rows, at most 500", "rows can be cut", decode="close"),
        _ours("fastfeed close, 500, q90", "shards, at most 500, q90", "every photo re-encoded", decode="close"),
        _ours("fastfeed close, 500, q90, jpeg_rows", "shards, jpeg_rows, at most 500, q90", "both", decode="close"),
    ),
}  # fmt: skip
"""The parts of the benchmark; the first contender of each is what the others are compared with."""
