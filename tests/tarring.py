"""Tars of other writers for tests: made with Python's tarfile, compressed, and damaged on purpose."""

import gzip
import io
import tarfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import zstandard

from fastfeed.archive.tars import TarSet
from fastfeed.source.tarindex import IndexResult, store_of

Members = Iterable[tuple[str, bytes]]
BLOCK = 512


def tar_of(members: Members, kind: int = tarfile.USTAR_FORMAT) -> bytes:
    """A tar of regular files."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=kind) as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def pairs(count: int, first: int = 0, prefix: str = "") -> list[tuple[str, bytes]]:
    """Members of samples of txt and cls: 000000.txt, 000000.cls and so on, each text another."""
    found = []
    for number in range(first, first + count):
        key = f"{prefix}{number:06d}"
        found += [(f"{key}.txt", f"text {number} ".encode() * (number % 97 + 1)), (f"{key}.cls", str(number % 10).encode())]
    return found


def write_tar(path: Path, members: Members, kind: int = tarfile.USTAR_FORMAT) -> Path:
    """A tar of regular files on disk.

    Returns:
        Its path.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(tar_of(members, kind))
    return path


def offsets(raw: bytes) -> list[int]:
    """Where the header of each member begins, by tarfile."""
    with tarfile.open(fileobj=io.BytesIO(raw)) as tar:
        return [info.offset for info in tar]


def header(name: str = "a.txt", size: int = 0, **fields: object) -> bytes:
    """One header block by tarfile, its checksum right; fields are TarInfo's."""
    info = tarfile.TarInfo(name)
    info.size = size
    for field, value in fields.items():
        setattr(info, field, value)
    return info.tobuf(tarfile.USTAR_FORMAT)


def with_checksum(block: bytes | bytearray) -> bytes:
    """The same block with the checksum that its bytes have."""
    changed = bytearray(block)
    changed[148:156] = b" " * 8
    changed[148:156] = b"%06o\0 " % sum(changed)
    return bytes(changed)


def replaced(raw: bytes, start: int, data: bytes) -> bytes:
    """The same bytes with some of them replaced."""
    return raw[:start] + data + raw[start + len(data) :]


def gzipped(raw: bytes, pieces: int = 1) -> bytes:
    """Behind gzip, as so many members one after the other."""
    step = -(-len(raw) // pieces)
    return b"".join(gzip.compress(raw[at : at + step], 6, mtime=0) for at in range(0, len(raw), step))


def zstandarded(raw: bytes, frame_bytes: int | None = None, *, sized: bool = True) -> bytes:
    """Behind Zstandard, as one frame or as frames of so many bytes."""
    step = frame_bytes or len(raw)
    compressor = zstandard.ZstdCompressor(3, write_checksum=True, write_content_size=sized)
    return b"".join(compressor.compress(raw[at : at + step]) for at in range(0, len(raw), step))


def webdataset_reads(paths: Sequence[Path]) -> list[dict[str, object]]:
    """What webdataset makes of tars: its samples, without the two entries about where they come from."""
    from webdataset.tariterators import group_by_keys, tar_file_expander

    found = []
    for path in paths:
        with path.open("rb") as stream:  # webdataset's own opener leaves files open
            samples = group_by_keys(tar_file_expander([{"url": str(path), "stream": stream}]))
            found += [{name: value for name, value in sample.items() if name != "__url__"} for sample in samples]
    return found


def read_all(result: IndexResult) -> list[dict[str, object]]:
    """All samples by key and field, as webdataset gives them."""
    tars = TarSet(result.path, result.base)
    store, found = store_of(tars), []
    for position in range(len(tars)):
        sample: dict[str, object] = {"__key__": tars.key(position)}
        sample.update({place.field: store.read(place.shard, place.start, place.stop) for place in tars.places(position)})
        found.append(sample)
    return found
