"""The only place that parses or formats sizes, counts, durations and signals."""

import re
import signal

_FACTORS = {
    "": 1, "b": 1, "k": 1000, "kb": 1000, "m": 1000**2, "mb": 1000**2, "g": 1000**3, "gb": 1000**3, "t": 1000**4,
    "tb": 1000**4, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40,
}  # fmt: skip
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*")


def parse_size(text: str) -> int:
    """Bytes of "512MiB", "1.5 GB", "1048576"; units are decimal (kB, MB) or binary (KiB, MiB), case does not matter.

    Raises:
        ValueError: Not a number with a known unit.
    """
    match = _SIZE.fullmatch(text)
    factor = _FACTORS.get(match[2].lower()) if match else None
    if match is None or factor is None:
        msg = f"{text!r} is not a size: expected a number with a unit, such as 512MiB, 1.5GB or 1048576"
        raise ValueError(msg)
    return int(float(match[1]) * factor)


def format_size(size_bytes: float) -> str:
    """1536 -> "1.5 KiB"; whole bytes below 1 KiB."""
    if size_bytes < 1024:  # noqa: PLR2004 - the step between binary units
        return f"{size_bytes:.0f} B"
    for unit in ("KiB", "MiB", "GiB"):
        size_bytes /= 1024
        if round(size_bytes, 1) < 1024:  # noqa: PLR2004
            return f"{size_bytes:.1f} {unit}"
    return f"{size_bytes / 1024:.1f} TiB"


def format_count(count: int, noun: str, plural: str | None = None) -> str:
    """1 -> "1 file", 1200 -> "1,200 files"."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def format_seconds(seconds: float) -> str:
    """0.0123 -> "12.3 ms", 75 -> "1 min 15 s", 7500 -> "2 h 05 min"."""
    minute, hour = 60, 3600
    if seconds < 1:
        return f"{seconds * 1000:.1f} ms"
    if round(seconds, 1) < minute:
        return f"{seconds:.1f} s"
    if seconds < hour:
        return f"{int(seconds // minute)} min {int(seconds % minute):02d} s"
    return f"{int(seconds // hour)} h {int(seconds % hour // minute):02d} min"


def format_brief_seconds(seconds: float) -> str:
    """0.01 -> "10 ms", 2 -> "2 s", 75 -> "1 min 15 s", microseconds below 1 ms: three figures where there are no minutes."""
    if round(seconds, 1) >= 60:  # noqa: PLR2004 - a minute
        return format_seconds(seconds)
    for factor, unit in ((1, "s"), (1e3, "ms")):
        if round(seconds * factor, 3) >= 1:
            return f"{seconds * factor:,.3g} {unit}"
    return f"{seconds * 1e6:,.3g} \N{MICRO SIGN}s"


def format_signal(number: int) -> str:
    """9 -> "SIGKILL"; most real-time signals have no name: 40 -> "signal 40"."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
