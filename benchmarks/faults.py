"""Faults to plant: broken images, texts and tars, and a program whose samples hang, crash, raise or are slow."""

import base64
import io
import os
import sys
import tarfile
import textwrap
import zlib
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
import oddities
from helpers import encoded
from PIL import Image

Planted = dict[str, tuple[bytes, str]]
"""By name: content, and the code that an audit is to give it."""


def images() -> dict[str, Planted]:
    """By row."""
    photo, large = oddities.jpeg((500, 375)), oddities.jpeg((500, 375), seed=3, quality=90)
    restarts = oddities.jpeg((500, 375), seed=4, restart_marker_rows=1)
    marker = restarts.index(b"\xff\xd1", restarts.index(b"\xff\xda"))
    png = oddities.png((200, 150))
    middle = png.index(b"IDAT") + 4000
    return {
        "exception": {
            "cut30.jpg": (oddities.cut(photo, 0.3), "truncated"), "cut95.jpg": (oddities.cut(photo, 0.95), "truncated"),
            "header.jpg": (photo[: photo.index(b"\xff\xda") + 14], "truncated"),
            "cut.png": (oddities.cut(png, 0.5), "truncated"),
            "flip.png": (png[:middle] + bytes([png[middle] ^ 255]) + png[middle + 1 :], "chunk-damaged"),
            "cut.webp": (oddities.cut(encoded(oddities.noisy(), "WEBP"), 0.5), "truncated"),
        },
        "warning": {
            "closed.jpg": (oddities.cut(photo, 0.3) + oddities.EOI, "truncated"),
            "zeroed.jpg": (oddities.zeroed(large, len(large) // 2, 4096), "corrupt-data"),
            "restart.jpg": (restarts[:marker] + restarts[marker + 2 :], "corrupt-data"),
            "faked.jpg": (oddities.with_size(photo, 8000, 8000), "truncated"),
        },
        "laundered": {f"laundered{at}.jpg": (_laundered(at), "grey-band") for at in range(10)},
        "kind": {
            "png.jpg": (png, "wrong-extension"), "page.jpg": (b"<!DOCTYPE html><html><body>404</body></html>", "html-page"),
            "answer.jpg": (b'{"error": "rate limit"}', "json-answer"), "empty.jpg": (b"", "empty-file"),
            "pointer.jpg": (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n", "lfs-pointer"),
            "double.jpg": (b"\x00\x05\x16\x07\x00\x02\x00\x00" + bytes(90), "appledouble"),
            "zeros.jpg": (bytes(9000), "only-zeros"),
        },
        "modes": {
            "cmyk.jpg": (oddities.jpeg(mode="CMYK"), "cmyk"),
            "deep.png": (encoded(Image.linear_gradient("L").convert("I;16"), "PNG"), "deep-grey"),
            "turned.jpg": (oddities.jpeg(exif=_orientation(6)), "exif-orientation"),
            "hides.png": (encoded(_hiding(), "PNG"), "alpha-hides"), "animated.gif": (oddities.animated("GIF"), "many-frames"),
        },
        "bombs": {
            "pixels.png": (oddities.flat_png(10_000, 8_000), "pixel-bomb"),
            "refused.jpg": (oddities.with_size(photo, 65_500, 65_500), "pixels-refused"),
            "scans.jpg": (oddities.scan_bomb(1500), "scan-bomb"),
            "text.png": (oddities.with_chunk(png, b"zTXt", b"a\0\0" + _squeezed(200 << 20)), "text-bomb"),
        },
    }  # fmt: skip


def _laundered(number: int) -> bytes:
    """Cut after 20 to 65 % of its bytes, decoded leniently, stored again."""
    stored: bytes = oddities.laundered(oddities.cut(oddities.jpeg((300, 200), seed=50 + number), 0.2 + number / 20))
    return stored


def _orientation(value: int) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = value
    return exif.tobytes()


def _hiding() -> Image.Image:
    image: Image.Image = oddities.noisy().convert("RGBA")
    image.putalpha(Image.linear_gradient("L").resize(image.size))
    return image


def _squeezed(count: int) -> bytes:
    packer = zlib.compressobj(9)
    parts = [packer.compress(bytes(1 << 20)) for _ in range(count >> 20)]
    return b"".join([*parts, packer.flush()])


def texts() -> Planted:
    """Texts that other tools trip over."""
    bare = base64.b85encode(os.urandom(90_000)).decode().replace("a", " ")
    return {
        "bom.txt": (b"\xef\xbb\xbfhello there", "text-bom"),
        "latin.txt": ("caf\xe9 au lait".encode("latin-1"), "text-not-utf8"),
        "wide.txt": ("hello there, all of you".encode("utf-16"), "text-utf16"), "nul.txt": (b"hello\0there", "text-nul"),
        "half.json": (b'{"text": "half \\ud83d"}', "json-lone-surrogate"), "line.txt": (b"word " * 300_000, "text-long-line"),
        "run.txt": (b"e" * 885_000, "text-long-run"), "again.txt": (b"the same again\n" * 300, "text-repetitive"),
        "broken.json": (b'{"text": ', "json-unparsable"), "long.txt": (textwrap.fill(bare).encode(), "text-length-outlier"),
    }  # fmt: skip


def tars() -> Planted:
    """A tar a fault; that of the index is whole."""
    names = ["a.gif", "a.txt", "b.gif", "b.txt", "c.gif", "c.txt"]
    whole = tar_of(names)
    return {
        "twice": (tar_of([*names, "a.txt"]), "tar-repeated-name"),
        "case": (tar_of([*names, "A.gif", "A.txt"]), "name-case-clash"),
        "order": (tar_of(sorted(names, key=lambda name: name[2:])), "tar-scattered-sample"),
        "header": (oddities.zeroed(whole, 2 * 1024 + 148, 6), "tar-damaged"), "cut": (whole[: 3 * 1024 + 200], "tar-cut"),
        "boundary": (whole[: 4 * 1024], "tar-open-end"), "index": (whole, "index-disagrees"),
    }  # fmt: skip


def tar_of(names: Sequence[str]) -> bytes:
    """Each member is a small picture or text of its own, so that each takes two blocks."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for number, name in enumerate(names):
            data = (
                encoded(Image.new("RGB", (2, 2), (number, 0, 0)), "GIF") if name.endswith("gif") else f"text {number}".encode()
            )
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


PROGRAM = """
import os, signal, time
import torch

class Bad(torch.utils.data.Dataset):
    def __len__(self):
        return 60
    def __getitem__(self, index):
        if index == 7: time.sleep(3600)
        if index == 13: os.kill(os.getpid(), signal.SIGSEGV)
        if index == 19: os._exit(9)
        if index == 23: return bytearray(8 << 30)
        if index == 29: raise StopIteration
        if index == 31: raise IndexError(index)
        if index == 37: return lambda: index
        if index == 41: raise ValueError("no such sample")
        return torch.zeros(3)

class Slow(Bad):
    def __len__(self):
        return 400
    def __getitem__(self, index):
        end = time.thread_time() + (0.06 if index in (50, 51) else 0.002)
        while time.thread_time() < end: pass
        if index in (60, 61): time.sleep(0.08)
        if index == 70 and not hasattr(self, "stalled"): self.stalled = time.sleep(0.08)
        return torch.zeros(3)

def stream():
    return (torch.zeros(3) for _ in range(50))

def folder():
    from torchvision.datasets import ImageFolder
    from torchvision.transforms.v2 import RandomResizedCrop
    return ImageFolder(os.path.join(os.path.dirname(__file__), "photos"), RandomResizedCrop(32))
"""
"""Bad's samples that are not named are sound; of Slow's, 50 and 51 compute and 60 and 61 wait each time, 70 once."""
