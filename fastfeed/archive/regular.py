"""Opening files that may be anything by now: a FIFO or a device in a file's place must be an error, not a wait."""

import errno
import os
import stat


def open_regular(path: str, flags: int = os.O_RDONLY) -> int:
    """A descriptor of a regular file, links followed. Fits open() as its opener.

    Raises:
        OSError: It cannot be opened; EINVAL where it is no regular file.
    """
    descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", path)
    return descriptor
