"""What compression would gain, from a few pieces of the source, before hours are spent on it."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fastfeed.archive import tar
from fastfeed.archive.regular import open_regular
from fastfeed.archive.shard import member_name
from fastfeed.packer.plan import CLASS_MEMBER, DatasetPlan

RUNS = 4
MIN_RUN_BYTES, MAX_RUN_BYTES = 256 << 10, 1 << 20
"""Of the tar of neighbouring samples: a frame, within these bounds."""


def probe(plan: DatasetPlan, root: str, paths: Sequence[str], framing: tuple[int, int]) -> tuple[int, int]:
    """Compress a few runs of samples, spread evenly over a dataset.

    Args:
        plan: What will be packed.
        root: The source folder.
        paths: Of its files below that, by number.
        framing: Level and frame_bytes.

    Returns:
        Bytes of tar that were tried, and what they take compressed. A file that cannot be read is passed over: packing
        will say so.
    """
    from fastfeed.archive.frame import FrameWriter  # noqa: PLC0415 - plain tars need no zstandard

    level, frame_bytes = framing
    most, samples, sizes = max(MIN_RUN_BYTES, min(frame_bytes, MAX_RUN_BYTES)), len(plan.keys), list[int]()
    writer = FrameWriter(lambda data: sizes.append(len(data)), level=level, frame_bytes=frame_bytes)
    for first in sorted({samples * (2 * run + 1) // (2 * RUNS) for run in range(RUNS)}):
        left = most
        for sample in range(first, samples):
            writer.begin_sample()
            for piece in _pieces(plan, sample, _Files(root, paths), left):
                writer.write(piece)
                left -= len(piece)
            if left <= 0:
                break
    writer.finish()
    return writer.tar_bytes, sum(sizes) if writer.tar_bytes else 0


@dataclass(frozen=True, slots=True)
class _Files:
    """The source."""

    root: str
    paths: Sequence[str]


def _pieces(plan: DatasetPlan, sample: int, files: _Files, most: int) -> Iterator[bytes]:
    """The tar of one sample; of a large member only the first bytes."""
    for member in range(plan.starts[sample], plan.starts[sample + 1]):
        size, file = plan.sizes[member], plan.files[member]
        if file == CLASS_MEMBER:
            payload = b"%d" % (plan.labels[sample] if plan.labels is not None else 0)
        else:
            try:
                with open(os.path.join(files.root, files.paths[file]), "rb", buffering=0, opener=open_regular) as stream:
                    payload = stream.read(min(size, most))
            except OSError:
                continue
        name = member_name(plan.keys[sample], plan.fields[plan.member_fields[member]])
        yield tar.header(name.encode("ascii"), size) + payload + bytes(tar.padding_bytes(len(payload)))
