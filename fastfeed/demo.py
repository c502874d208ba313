"""The whole story in half a minute: a photo set with slow and broken files in it, packed, proven, audited, loaded by torch."""

import io
import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch.utils.data import DataLoader

from fastfeed.auditor.audit import audit
from fastfeed.errors import DestinationOccupied
from fastfeed.feed.dataset import PackedDataset
from fastfeed.packer.job import pack
from fastfeed.packer.verify import verify
from fastfeed.trace import Progress
from fastfeed.units import format_count, format_seconds, format_size

CLASSES = ("circle", "ellipse", "rectangle", "triangle")
PHOTOS_PER_CLASS = 40
SIDE = 224
BATCH = 32
_SEED = 20261129
_HUGE, _SLOW = "triangle/huge-panorama.jpg", "circle/many-scans.jpg"
_SCANS, _SCANS_SIDE = 2000, 512
_COSTLY = frozenset({"slow", "oversize", "scan-bomb"})
"""Codes of findings about samples that load, and cost more than they should."""


@dataclass(frozen=True, slots=True)
class DemoResult:
    """What the demo saw."""

    photos: int
    packed: int
    broken: tuple[str, ...]
    """Photos that the audit calls errors."""
    slow: tuple[str, ...]
    """Photos that the audit calls slow or oversize."""
    flipped_bit_found: bool
    batches: int
    images_per_second: float
    seconds: float


def run(folder: str, say: Callable[[str], None], progress: Progress) -> DemoResult:
    """Run the demo.

    Args:
        folder: New or empty; all is written there.
        say: Called with each paragraph.
        progress: For the long parts.

    Raises:
        DestinationOccupied: The folder is not empty.
    """
    began = time.monotonic()
    if os.path.lexists(folder) and not (os.path.isdir(folder) and not os.listdir(folder)):
        msg = "the demo's folder is not empty" if os.path.isdir(folder) else "the demo's folder is a file"
        raise DestinationOccupied(msg, path=folder, hint="Name a new one.")
    photos, packed, clean = (os.path.join(folder, name) for name in ("photos", "packed", "packed-clean"))
    say(f"1. A photo set: {len(CLASSES)} class folders of JPEGs, with slow, broken and stray files among them ({photos})")
    count = make_photos(photos)
    say(f"   {format_count(count, 'file')}\n")
    say("2. fastfeed pack photos packed --shard-size 4MiB")
    result = pack(photos, packed, shard_bytes=4 << 20, progress=progress)
    for reason in (*result.datasets[0].why, *result.notes):
        say(f"   {reason}")
    for item in result.left_out:
        say(f"   left out: {item.source} ({item.why})")
    dataset = result.datasets[0]
    size = format_size(dataset.size_bytes)
    say(f"   {format_count(dataset.samples, 'sample')} in {format_count(dataset.shards, 'shard')}, {size}\n")
    found = _prove(packed, say, progress)
    skip = os.path.join(folder, "skip.jsonl")
    broken, slow = _audit(photos, skip, say, progress)
    say("5. Without the broken ones: fastfeed pack photos packed-clean --shard-size 4MiB --exclude skip.jsonl")
    clean_result = pack(photos, clean, shard_bytes=4 << 20, exclude=skip, progress=progress)
    say(f"   {format_count(clean_result.datasets[0].samples, 'sample')}; the excluded are listed in .fastfeed/left-out.jsonl\n")
    batches, rate = _load(clean, say)
    _your_turn(say)
    return DemoResult(count, dataset.samples, broken, slow, found, batches, rate, time.monotonic() - began)


def make_photos(root: str) -> int:
    """Write the photo set; the same bytes for the same Pillow. Gives how many files."""
    random.seed(_SEED)
    noise = np.random.default_rng(_SEED)
    for number, name in enumerate(CLASSES):
        os.makedirs(os.path.join(root, name))
        for at in range(PHOTOS_PER_CLASS):
            photo = _photo(noise, number, 320 + 16 * (at % 8), 240 + 12 * (at % 9))
            photo.save(os.path.join(root, name, f"{at:04d}.jpg"), quality=88)
    _photo(noise, 3, 6000, 4000).save(os.path.join(root, _HUGE), quality=85, progressive=True)
    good = _read(os.path.join(root, "circle", "0000.jpg"))
    strays = {
        _SLOW: _with_scans(_photo(noise, 0, _SCANS_SIDE, _SCANS_SIDE)),
        "circle/cut-download.jpg": good[: len(good) // 3],
        "ellipse/error-page.jpg": b"<!DOCTYPE html><html><body>404 Not Found</body></html>",
        "rectangle/empty.jpg": b"",
        "rectangle/.DS_Store": b"\0\0\0\1Bud1",
        "triangle/._0003.jpg": b"\0\5\x16\7\0\2\0\0Mac OS X",
        "README.txt": b"Photos for the demo.\n",
    }
    for name, content in strays.items():
        with open(os.path.join(root, name), "wb") as file:
            file.write(content)
    return len(CLASSES) * PHOTOS_PER_CLASS + 1 + len(strays)


def _photo(noise: np.random.Generator, shape: int, width: int, height: int) -> Image.Image:
    """A coloured shape on a grainy gradient."""
    ramp = np.linspace(0, 120, width, dtype=np.float32)[None, :, None] + np.array([40, 60, 80], dtype=np.float32)
    grain = noise.integers(0, 24, (height // 4 + 1, width // 4 + 1, 3)).repeat(4, 0).repeat(4, 1)[:height, :width]
    image = Image.fromarray((ramp + grain).astype(np.uint8))
    x, y = random.randrange(width // 3), random.randrange(height // 3)
    box = (x, y, x + width // 2, y + height // 2)
    colour = tuple(random.randrange(256) for _ in range(3))
    draw = ImageDraw.Draw(image)
    if CLASSES[shape] == "rectangle":
        draw.rectangle(box, fill=colour)
    elif CLASSES[shape] == "triangle":
        draw.polygon([(x, box[3]), (box[2], box[3]), ((x + box[2]) // 2, y)], fill=colour)
    else:
        side = box[3] if CLASSES[shape] == "ellipse" else y + box[2] - x
        draw.ellipse((x, y, box[2], max(side, y + 1)), fill=colour)
    return image


def _with_scans(photo: Image.Image) -> bytes:
    """A progressive JPEG that looks like the others, and that a decoder has to pass over 2,000 times more than others.

    Each scan more is one run over all blocks of brightness without a coefficient in it (EOB12, ITU-T T.81, G.1.2.2).
    """
    out = io.BytesIO()
    photo.save(out, "JPEG", quality=88, progressive=True)
    table = b"\xff\xc4\0\x14\x10\1" + bytes(15) + b"\xc0"  # one code, of one bit
    scan = b"\xff\xda\0\x08\1\1\0\1\x3f\0" + b"\0\7"  # the code, 12 bits that make the run 4,096, and padding
    return out.getvalue().removesuffix(b"\xff\xd9") + table + scan * _SCANS + b"\xff\xd9"


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _prove(packed: str, say: Callable[[str], None], progress: Progress) -> bool:
    """Verify; flip one bit; verify again; flip it back."""
    say("3. fastfeed verify packed")
    result = verify(packed, progress=progress)
    say(f"   {'every byte is as packed' if result.ok else result.findings[0].text} ({format_seconds(result.seconds)})")
    shard = min(name for name in os.listdir(packed) if name.endswith(".tar"))
    at = 40_000
    _flip(os.path.join(packed, shard), at)
    damaged = verify(packed)
    _flip(os.path.join(packed, shard), at)
    say(f"   One bit of byte {at} of {shard} flipped, and verify says:")
    for finding in damaged.findings:
        say(f"   {finding.text}")
    say("   (the bit is flipped back)\n")
    return not damaged.ok


def _flip(path: str, at: int) -> None:
    with open(path, "r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 4]))


def _audit(photos: str, skip: str, say: Callable[[str], None], progress: Progress) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Audit the photos, and write the skip list of the broken ones. Gives the broken and the slow by name."""
    say("4. What is slow or broken has a name: fastfeed audit photos --skip-list skip.jsonl")
    result = audit(photos, skip_list=skip, progress=progress)
    for cost in result.costs:
        say(f"   {cost}")
    broken, slow = set[str](), set[str]()
    for found in result.found:
        if found.severity == "info":
            continue
        say(f"   {found.severity}: {found.title} ({found.code})")
        for name, text in found.examples:
            say(f"      {name}: {text}")
        names = {name for name, _ in found.examples}
        broken |= names if found.severity == "error" else set()
        slow |= names if found.code in _COSTLY else set()
    say(f"   ({format_count(result.audited, 'sample')} in {format_seconds(result.seconds)}; nothing in photos was changed)\n")
    return tuple(sorted(broken)), tuple(sorted(slow))


def crop(image: Image.Image) -> torch.Tensor:
    """A random square of an image as a uint8 tensor, shape (3, SIDE, SIDE)."""
    left, top = (int(torch.randint(0, max(1, size - SIDE + 1), ())) for size in image.size)
    box = image.crop((left, top, left + SIDE, top + SIDE))
    return torch.from_numpy(np.array(box)).permute(2, 0, 1)


def _load(packed: str, say: Callable[[str], None]) -> tuple[int, float]:
    """One epoch through torch's own DataLoader."""
    say("6. Batches through torch.utils.data.DataLoader")
    dataset = PackedDataset(packed, transform=crop)
    loader = DataLoader(dataset, batch_size=BATCH, shuffle=True, num_workers=2, generator=torch.Generator().manual_seed(0))
    began, images, batches, means = time.monotonic(), 0, 0, []
    for batch, labels in loader:
        images, batches = images + len(labels), batches + 1
        means.append(batch.float().mean().item())
    rate = images / (time.monotonic() - began)
    say(f"   {dataset!r}")
    what = f"{batches} batches of {tuple(batch.shape[1:])} {batch.dtype}, {images} images"
    say(f"   {what}, mean pixel {sum(means) / len(means):.0f}; {rate:.0f} images/s with worker start-up\n")
    return batches, rate


def _your_turn(say: Callable[[str], None]) -> None:
    say("Now yours:")
    say("   fastfeed pack /data/photos /data/photos-packed --dry-run     # the plan, with reasons")
    say("   fastfeed pack /data/photos /data/photos-packed")
    say("   fastfeed verify /data/photos-packed")
    say("   fastfeed audit /data/photos --skip-list bad.jsonl            # what --exclude and DataLoader(skip=) read")
    say("and in the training script, where ImageFolder(...) was:")
    say('   ds = fastfeed.open("/data/photos-packed", transform=the_same_transform)')
