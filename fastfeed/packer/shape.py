"""How many shards a dataset has, what they are called, and where one ends: from counts and options alone."""

from fastfeed.config import PackConfig
from fastfeed.source.names import safe_key
from fastfeed.units import format_count, format_size


def legal_name(name: str) -> str:
    """A shard name that breaks no reader: letters, digits, - and _, at most 60."""
    plain = "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "_" for c in name)
    return plain if plain == name and 0 < len(name) <= 60 else safe_key(plain.replace("/", "_")[:40] or "data", name, 60, 6)  # noqa: PLR2004 - config's limit


def shard_count(samples: int, source_bytes: int, config: PackConfig) -> int:
    """How many shards: as asked for, else so many that each has about the target's source bytes; none is empty."""
    if config.shards is not None:
        return min(config.shards, samples)
    if config.samples_per_shard is not None:
        return -(-samples // config.samples_per_shard)
    return max(1, min(samples, -(-source_bytes // config.shard_bytes)))


def shard_reason(shards: int, samples: int, source_bytes: int, config: PackConfig) -> str:
    """Why there are so many shards."""
    each = f"{samples // shards:,} to {-(-samples // shards):,}" if samples % shards else f"{samples // shards:,}"
    text = f"{format_count(shards, 'shard')} of {each} {'sample' if each == '1' else 'samples'}: "
    if config.shards is not None:
        return text + "asked for" + (" (no shard is empty)" if shards < config.shards else "")
    if config.samples_per_shard is not None:
        return text + f"at most {config.samples_per_shard:,} samples a shard were asked for"
    return text + f"{format_size(source_bytes)} at a target of {format_size(config.shard_bytes)}"


def shard_stops(samples: int, source_bytes: int, config: PackConfig) -> list[int]:
    """Where each shard's samples end; counts differ by one at most."""
    shards = shard_count(samples, source_bytes, config)
    base, more = divmod(samples, shards)
    return [base * number + min(number, more) for number in range(1, shards + 1)]
