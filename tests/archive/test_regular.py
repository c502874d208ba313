"""Opening what may be anything by now."""

import os
import socket

import pytest

from fastfeed.archive.regular import open_regular


def test_a_file_and_a_link_to_it(tmp_path):
    (tmp_path / "a").write_bytes(b"abc")
    (tmp_path / "b").symlink_to("a")
    for name in ("a", "b"):
        with open(tmp_path / name, "rb", opener=open_regular) as file:
            assert file.read() == b"abc"


@pytest.mark.parametrize("kind", ["fifo", "folder", "device"])
def test_anything_else_is_an_error_and_no_wait(tmp_path, kind):
    path = tmp_path / "x"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero")
    before = set(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match="not a regular file"):
        open_regular(str(path))
    assert len(os.listdir("/proc/self/fd")) == len(before)  # the descriptor is not leaked


def test_a_socket_cannot_be_opened(tmp_path):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s"))
        with pytest.raises(OSError, match="No such device"):
            open_regular(str(tmp_path / "s"))


def test_nothing_there(tmp_path):
    with pytest.raises(FileNotFoundError, match="No such file"):
        open_regular(str(tmp_path / "nothing"))
