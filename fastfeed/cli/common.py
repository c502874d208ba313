"""What all commands share: --json, --quiet, --debug, the progress that fits them, and what to say after Ctrl-C."""

import functools
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

import click

from fastfeed.cli import bars
from fastfeed.trace import QUIET, Progress
from fastfeed.units import parse_size

READERS = ("dali", "energon", "hf", "wids")
"""As fastfeed.archive.sidecars has them, which --help need not load."""


@dataclass(slots=True)
class Output:
    """How a command speaks."""

    json: bool
    quiet: bool
    debug: bool
    after_interrupt: str | Callable[[], str] = "Nothing was begun."
    """What Ctrl-C leaves, and how to continue."""
    _progress: Progress = QUIET

    def progress(self) -> Progress:
        """Bars on a terminal, a line a minute elsewhere, nothing with --quiet."""
        self._progress = QUIET if self.quiet else bars.progress()
        return self._progress

    def interrupted(self) -> str:
        """What to say after Ctrl-C."""
        return self.after_interrupt() if callable(self.after_interrupt) else self.after_interrupt

    def close(self) -> None:
        """Give the terminal back, whatever ended the command."""
        self._progress.finish()


class Stdout:
    """Standard output while a user's own code runs: what it prints goes to stderr, so that ours can be read by a program.

    Args:
        aside: Whether there is such code; without it nothing is done.
    """

    def __init__(self, *, aside: bool) -> None:
        self._aside, self._own = aside, -1

    def __enter__(self) -> Self:
        if self._aside:
            sys.stdout.flush()
            self._own = os.dup(1)
            os.dup2(2, 1)
        return self

    def __exit__(self, *exc: object) -> None:
        if self._own >= 0:
            sys.stdout.flush()
            os.dup2(self._own, 1)
            os.close(self._own)
            self._own = -1

    @contextmanager
    def ours(self) -> Iterator[None]:
        """For a while standard output is where it was."""
        if self._own < 0:
            yield
            return
        sys.stdout.flush()
        os.dup2(self._own, 1)
        try:
            yield
        finally:
            sys.stdout.flush()
            os.dup2(2, 1)


class Size(click.ParamType):  # type: ignore[type-arg] # generic since click 8.4
    """A number of bytes with a unit: 512MiB, 1.5GB."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:  # noqa: ANN401 - click's
        """Bytes; a ValueError becomes click's usage error."""
        if isinstance(value, int):
            return value
        try:
            return parse_size(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Names(click.ParamType):  # type: ignore[type-arg]
    """Words joined by commas, each one of a list."""

    name = "names"

    def __init__(self, choices: Sequence[str]) -> None:
        self.choices = tuple(choices)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:  # noqa: ANN401
        """The words."""
        words = tuple(word.strip() for word in value.split(",")) if isinstance(value, str) else tuple(value)
        for word in words:
            if word not in self.choices:
                self.fail(f"{word!r} is none of {', '.join(self.choices)}", param, ctx)
        return words


def speaks(command: Callable[..., int]) -> Callable[..., int]:
    """Add --json, --quiet and --debug to a command, which gets an Output as its first argument and gives an exit code."""

    def run(ctx: click.Context, /, *, as_json: bool, quiet: bool, debug: bool, **arguments: Any) -> int:  # noqa: ANN401
        output: Output = ctx.obj
        output.json, output.quiet, output.debug = as_json, quiet, debug
        return command(output, **arguments)

    decorated = click.pass_context(run)
    functools.update_wrapper(decorated, command)
    for option in (
        click.option("--debug", is_flag=True, help="Show the traceback of an error."),
        click.option("--quiet", is_flag=True, help="No progress, and no words when all is well."),
        click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object."),
    ):
        decorated = option(decorated)
    return decorated


def lines(path: str, option: str) -> list[str]:
    """The lines of a file of names.

    Args:
        path: Of the file.
        option: That gave it.
    """
    try:
        with open(path, encoding="utf-8") as file:
            return [line.strip() for line in file if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        msg = f"--{option}: {path} cannot be read: {getattr(error, 'strerror', None) or error}"
        raise click.UsageError(msg) from error


def pairs(texts: Sequence[str], option: str) -> dict[str, str]:
    """Names and values of NAME=VALUE.

    Args:
        texts: As they were given.
        option: That gave them.
    """
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals and value):
            msg = f"--{option} takes NAME=VALUE, not {text!r}"
            raise click.UsageError(msg)
        found[name] = value
    return found
