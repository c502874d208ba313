"""What the tests of the command line share: the real command in a real process, on pipes or on a terminal."""

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from fastfeed.config import package_folder

DEADLINE_SECONDS = 60
CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")
"""Control characters other than the line feed."""


def command_line(*arguments: object) -> list[str]:
    """The command as a list."""
    return [sys.executable, "-m", "fastfeed", *map(str, arguments)]


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment, the package importable wherever the command runs."""
    return {**os.environ, "PYTHONPATH": package_folder(), **(more or {})}


def run(
    *arguments: object, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    """Run the command on pipes.

    Args:
        *arguments: Of the command.
        cwd: Where.
        env: Added to the environment.

    Returns:
        Exit code and output; bytes that are no UTF-8 as escapes.
    """
    return subprocess.run(
        command_line(*arguments), capture_output=True, text=True, errors="backslashreplace", timeout=DEADLINE_SECONDS,
        check=False, cwd=cwd, env=environment(env),
    )  # fmt: skip


def done(*arguments: object, code: int = 0, **options: Any) -> str:
    """Run the command; it says nothing on stderr and exits with a code.

    Returns:
        Its output.
    """
    found = run(*arguments, **options)
    assert (found.returncode, found.stderr) == (code, "")
    return found.stdout


def refused(*arguments: object, code: int, **options: Any) -> str:
    """Run the command; it is refused with one paragraph on stderr and nothing on stdout.

    Returns:
        The paragraph, its lines joined.
    """
    found = run(*arguments, **options)
    assert (found.returncode, found.stdout) == (code, ""), found.stderr
    assert "Traceback" not in found.stderr
    assert found.stderr.startswith("fastfeed:")
    assert found.stderr.count("\n\n") == 0
    assert not CONTROL.search(found.stderr)
    return " ".join(line.strip() for line in found.stderr.splitlines())


def record(*arguments: object, kind: type, code: int = 0, **options: Any) -> dict[str, Any]:
    """Run the command with --json; the output is one object with the fields of a result record.

    Returns:
        The object.
    """
    found: dict[str, Any] = json.loads(done(*arguments, "--json", code=code, **options))
    assert {field.name for field in fields(kind)} <= set(found)
    return found


def on_a_terminal(*arguments: object, columns: int = 120, stdout_too: bool = False) -> tuple[int, str, str]:
    """Run the command with a pseudo terminal as stderr.

    Args:
        *arguments: Of the command.
        columns: The terminal's width.
        stdout_too: The terminal is stdout as well.

    Returns:
        Exit code, stdout (empty where the terminal got it), and all that the terminal got.
    """
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    env = environment({"TERM": "xterm-256color"})
    env = {name: value for name, value in env.items() if name not in {"COLUMNS", "LINES"}}  # they outdo the terminal's width
    with subprocess.Popen(
        command_line(*arguments), stdout=slave if stdout_too else subprocess.PIPE, stderr=slave, env=env,
    ) as process:  # fmt: skip
        os.close(slave)
        shown = b""
        while True:
            try:
                data = os.read(master, 1 << 16)
            except OSError:  # the last holder of the other end is gone
                break
            if not data:
                break
            shown += data
        os.close(master)
        out = process.stdout.read().decode() if process.stdout is not None else ""
    return process.returncode, out, shown.decode()
