"""The memory of this process: how much a sample takes at most, and how much one may take."""

import os
import re
import resource

_PEAK = re.compile(rb"VmHWM:\s*(\d+) kB")
_DATA = re.compile(rb"VmData:\s*(\d+) kB")
_PAGE_BYTES = resource.getpagesize()
_SAME_BYTES = 1 << 20
_LEAST_BYTES = 512 << 10
"""Less than this tells nothing: a sample lay in what the allocator had kept of earlier ones, and the kernel counts in lots."""
_RESET_PEAK = b"5"
"""What /proc/self/clear_refs takes to forget the peak (Linux 4.0)."""


class Peak:
    """How much memory is in use at most, from one reset to the next. Its files stay open: opening takes longer than reading.

    What the allocator has kept of earlier samples counts as there before: a second picture of a size takes next to nothing.
    """

    def __init__(self) -> None:
        self._before_bytes, self._told_by_usage = 0, False
        self._resident, self._status = _opened("/proc/self/statm"), _opened("/proc/self/status")
        self._reset: int | None = None
        try:
            self._reset = _opened("/proc/self/clear_refs", os.O_WRONLY)
        except OSError:  # a kernel without it: peaks stay unknown, and reports leave them out
            return
        self.reset()
        self._told_by_usage = abs(_used_bytes() - (self._stated_bytes() or 0)) < _SAME_BYTES

    def reset(self) -> None:
        """From here on."""
        if self._reset is not None:
            os.pwrite(self._reset, _RESET_PEAK, 0)
            self._before_bytes = int(os.pread(self._resident, 1 << 12, 0).split()[1]) * _PAGE_BYTES

    def taken_bytes(self) -> int | None:
        """The peak since the reset, beyond what was there at that time; None where the kernel or the allocator hides it."""
        if self._reset is None:
            return None
        peak = _used_bytes() if self._told_by_usage else self._stated_bytes()
        return None if peak is None or peak - self._before_bytes < _LEAST_BYTES else peak - self._before_bytes

    def _stated_bytes(self) -> int | None:
        found = _PEAK.search(os.pread(self._status, 1 << 14, 0))
        return None if found is None else int(found[1]) * 1024

    def close(self) -> None:
        """Close its files."""
        for descriptor in (self._resident, self._status, self._reset):
            if descriptor is not None:
                os.close(descriptor)


def _used_bytes() -> int:
    """The same figure at a tenth of the cost, but never less than the peak of the program that this process was before exec."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def limit(more_bytes: int) -> None:
    """Let this process take so much more memory than it has now; beyond it allocations fail, and no other process suffers."""
    with open("/proc/self/status", "rb") as file:
        found = _DATA.search(file.read())
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    wanted = more_bytes + (int(found[1]) * 1024 if found is not None else 0)
    soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _opened(path: str, flags: int = os.O_RDONLY) -> int:
    return os.open(path, flags | os.O_CLOEXEC)
