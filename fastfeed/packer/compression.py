"""What compressed shards mean for a pack call: what a rerun must find equal, and what the user should know of them."""

from fastfeed.archive.manifest import ZSTD, Compression, Manifest
from fastfeed.archive.seektable import MAX_FRAMES, frames_at_most
from fastfeed.config import PackConfig
from fastfeed.errors import UsageError
from fastfeed.units import format_size

LEAST_GAIN = 0.1
"""Below that, being read by everybody is worth more."""
READERS = (
    "compressed shards are read by fastfeed, tar --zstd -x and zstd -d, and not by webdataset, Hugging Face datasets, DALI, "
    "Energon or wids: for those, fastfeed unpack --shards makes plain tars of them"
)


def compression_of(config: PackConfig) -> Compression | None:
    """What the manifest says; None for plain tars."""
    if config.framing is None:
        return None
    from fastfeed.archive.frame import encoder  # noqa: PLC0415 - plain tars need no zstandard

    level, frame_bytes = config.framing
    return Compression(ZSTD, encoder(), frame_bytes, level)


def prove_frames(config: PackConfig, shard_bytes: int) -> None:
    """Let no shard have more frames than the seekable format allows.

    Args:
        config: What the user asked for.
        shard_bytes: Of the tar of the largest shard.

    Raises:
        UsageError: One may have.
    """
    if config.framing is not None and frames_at_most(shard_bytes, config.framing[1]) > MAX_FRAMES:
        size, frame = format_size(shard_bytes), format_size(config.framing[1])
        msg = f"a shard of {size} may have more than {MAX_FRAMES:,} frames of {frame}"
        raise UsageError(msg, hint="Take larger frames (--frame-size), or more shards (--shard-size, --shards).")


def encoder_of(config: PackConfig) -> dict[str, object]:
    """The version of the library that compresses, for a job's identity: shards of two would not be those of one run."""
    compression = compression_of(config)
    return {} if compression is None else {"encoder": compression.encoder}


def why_compressed(config: PackConfig, probe: tuple[int, int] = (0, 0)) -> list[str]:
    """The plan's line about it.

    Args:
        config: What the user asked for.
        probe: Bytes of a few pieces of the tar, and how many they took compressed; zeros without one.
    """
    if config.framing is None:
        return []
    level, frame_bytes = config.framing
    text = f"compressed with zstd level {level}, as many samples a frame as fit into {format_size(frame_bytes)}"
    tar_bytes, size_bytes = probe
    if tar_bytes:
        ratio = size_bytes / tar_bytes
        text += f": {ratio:.2f} of the tar by a probe of {format_size(tar_bytes)}"
        if ratio > 1 - LEAST_GAIN:
            text += f". That {_gain(ratio)}, and plain tars are read by everybody: leave out --compress"
    return [text]


def notes_of(*manifests: Manifest | None) -> tuple[str, ...]:
    """What the user should know of datasets that are packed."""
    compressed = [(found, found.tar_bytes) for found in manifests if found is not None and found.tar_bytes]
    notes = []
    for found, tar_bytes in compressed:
        ratio = found.size_bytes / (tar_bytes or 1)
        if ratio > 1 - LEAST_GAIN:
            facts = f"{format_size(found.size_bytes)} of {format_size(tar_bytes or 0)}"
            notes.append(
                f"{found.name}: the compression {_gain(ratio)} ({facts}), and plain tars are read by everybody: "
                "pack without --compress, or turn the shards into tars with fastfeed unpack --shards"
            )
    return (*notes, READERS) if compressed else ()


def _gain(ratio: float) -> str:
    return f"gains only {1 - ratio:.0%}" if ratio < 1 else "gains nothing"
