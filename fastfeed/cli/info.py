"""``fastfeed info PATH``: what is inside."""

import click

from fastfeed.cli import render
from fastfeed.cli.common import Output, speaks


@click.command("info", short_help="What is inside: samples, fields, sizes, classes, columns.")
@click.argument("path", type=click.Path())
@speaks
def command(output: Output, *, path: str) -> int:
    """Describe the packed dataset at PATH, from its manifest and index; no shard is read."""
    from fastfeed.archive.summary import info  # noqa: PLC0415 - --help stays cold

    result = info(path)
    if output.json:
        render.json_record(result)
    elif not output.quiet:
        render.info_result(result)
    return 0
