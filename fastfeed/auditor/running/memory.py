"""The memory of this process: how much a sample takes at most, and how much one may take."""

import os
import re
import resource

_PEAK = re.compile(rb"VmHWM:\s*(\d+) kB")
_DATA = re.compile(rb"VmData:\s*(\d+) kB")
_PAGE_BYTES = resource.getpagesize()
_RESET_PEAK = b"5"
"""What /proc/self/clear_refs takes to forget the peak (Linux 4.0)."""


class Peak:
    """How much memory is in use at most, from one reset to the next."""

    def __init__(self) -> None:
        self._before_bytes = 0
        self._works = True

    def reset(self) -> None:
        """From here on."""
        if not self._works:
            return
        try:
            _write("/proc/self/clear_refs", _RESET_PEAK)
        except OSError:  # a kernel without it: peaks stay unknown, and reports leave them out
            self._works = False
            return
        self._before_bytes = int(_read("/proc/self/statm").split()[1]) * _PAGE_BYTES

    def taken_bytes(self) -> int | None:
        """The peak since the reset, beyond what was there at that time; None where the kernel does not tell."""
        found = _PEAK.search(_read("/proc/self/status")) if self._works else None
        return None if found is None else max(0, int(found[1]) * 1024 - self._before_bytes)


def limit(more_bytes: int) -> None:
    """Let this process take so much more memory than it has now; beyond it allocations fail, and no other process suffers."""
    found = _DATA.search(_read("/proc/self/status"))
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    wanted = more_bytes + (int(found[1]) * 1024 if found is not None else 0)
    soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _read(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, 1 << 14)
    finally:
        os.close(descriptor)


def _write(path: str, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, data)
    finally:
        os.close(descriptor)
