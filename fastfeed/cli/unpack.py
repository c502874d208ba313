"""``fastfeed unpack DST OUT``: from shards to files."""

import click

from fastfeed.cli import render
from fastfeed.cli.common import Output, speaks


@click.command("unpack", short_help="Back to files, byte for byte, original names.")
@click.argument("path", type=click.Path())
@click.argument("out", type=click.Path())
@click.option("--shards", is_flag=True, help="Turn compressed shards into plain tars instead: a packed dataset again.")
@speaks
def command(output: Output, *, path: str, out: str, shards: bool) -> int:
    """Write the files of the packed dataset at PATH below the new or empty folder OUT.

    Every byte is checked against its checksum. Run the same command again to continue after an interruption.
    """
    from fastfeed.packer.unpack import unpack  # noqa: PLC0415 - --help stays cold

    output.after_interrupt = "What is written is whole: run the same command again, it continues."
    result = unpack(path, out, shards=shards, progress=output.progress())
    if output.json:
        render.json_record(result)
    elif not output.quiet:
        render.unpack_result(result)
    return 0
