"""The command ``fastfeed``. Only this file turns errors into words and exit codes."""

import io
import os
import signal
import sys
from types import FrameType
from typing import NoReturn

import click

import fastfeed
from fastfeed.cli import audit, common, demo, index, info, pack, render, unpack, verify
from fastfeed.errors import FastfeedError

_EPILOG = """\b
Exit codes:
    0  done                           7  a worker process was killed
    1  a fault of fastfeed itself     8  a sample cannot be decoded
    2  wrong usage                    9  no dataset is there
    3  the source cannot be used     10  audit found what --fail-on names
    4  the destination cannot be    130  interrupted by Ctrl-C
       used                         141  the reader of the output has gone
    5  a packed dataset is damaged  143  interrupted by SIGTERM
    6  done, but inputs were skipped
"""
FAULT, INTERRUPTED, CLOSED_PIPE, TERMINATED = 1, 130, 141, 143


class _Terminated(KeyboardInterrupt):
    """SIGTERM: what a scheduler sends before it kills; answered like Ctrl-C."""


@click.group(epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(fastfeed.__version__, prog_name="fastfeed")
def cli() -> None:
    """Small files become shards once; every epoch after that is sequential bytes.

    Start with: fastfeed demo
    """


for _command in (
    demo.command,
    pack.command,
    verify.command,
    unpack.command,
    index.command,
    info.command,
    audit.command,
):
    cli.add_command(_command)


def main() -> NoReturn:
    """Run the command line and exit."""
    signal.signal(signal.SIGTERM, _terminate)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # names of files hold what a terminal's encoding does not
    sys.exit(_run(sys.argv[1:]))


def _terminate(number: int, frame: FrameType | None) -> NoReturn:  # noqa: ARG001 - a signal handler's
    raise _Terminated


def _run(arguments: list[str]) -> int:
    """Invoke the command; its exit code, or that of its error."""
    output = common.Output(json=False, quiet=False, debug="--debug" in arguments)
    try:
        return _flushed(int(cli.main(arguments, prog_name="fastfeed", standalone_mode=False, obj=output) or 0))
    except click.exceptions.Exit as done:
        return done.exit_code
    except (KeyboardInterrupt, click.Abort) as error:
        output.close()
        render.interrupted(output.interrupted(), on_new_line=isinstance(error, click.Abort))  # click has ended the line
        return TERMINATED if isinstance(error.__context__ or error, _Terminated) else INTERRUPTED
    except (BrokenPipeError, SystemExit):  # click and rich make the one the other, and nothing else
        return _unread()
    except Exception as error:  # noqa: BLE001 - what nobody foresaw is told in words too, and never passes for success
        output.close()
        try:
            return _flushed(_told(error, output))
        except BrokenPipeError:
            return _unread()


def _unread() -> int:
    """The reader of our output has gone: nothing more can be said, and nothing may be said at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            os.dup2(nowhere, stream.fileno())
    return CLOSED_PIPE


def _told(error: Exception, output: common.Output) -> int:
    """Say an error in the way that was asked for; its exit code."""
    if isinstance(error, click.ClickException):
        error.show()
        return error.exit_code
    if output.debug:
        render.traceback()
    elif isinstance(error, FastfeedError):
        render.error(error)
    else:
        render.fault(error)
    if not isinstance(error, FastfeedError):
        return FAULT
    if output.json:
        render.json_error(error)
    return error.exit_code


def _flushed(code: int) -> int:
    """Flush here and not at exit, where nobody could answer a reader that has gone."""
    if sys.stdout is not None:
        sys.stdout.flush()
    return code
