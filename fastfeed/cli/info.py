"""``fastfeed info PATH``: what is inside; ``--cache``: what is kept of it in memory or on a disk of this machine."""

import click

from fastfeed.cli import render
from fastfeed.cli.common import Output, speaks
from fastfeed.errors import UsageError


@click.command("info", short_help="What is inside: samples, fields, sizes, classes, columns; --cache: caches.")
@click.argument("path", type=click.Path(), required=False)
@click.option("--cache", "show", is_flag=True, help="List your caches on this machine instead; with PATH, those of it.")
@click.option("--clear-cache", "clear", is_flag=True, help="Remove those that no process uses, kept ones as well.")
@click.option(
    "--cache-dir", "folders", multiple=True, type=click.Path(), help="Look there. Default: /dev/shm, $SLURM_TMPDIR, $TMPDIR."
)
@speaks
def command(output: Output, *, path: str | None, show: bool, clear: bool, folders: tuple[str, ...]) -> int:
    """Describe the packed dataset at PATH, from its manifest and index; no shard is read."""
    if show or clear or folders:
        return _caches(output, path, folders, clear=clear)
    if path is None:
        msg = "info describes the dataset at a path, and none is given"
        raise UsageError(msg, hint="fastfeed info --cache lists the caches on this machine.")
    from fastfeed.archive.summary import info  # noqa: PLC0415 - --help stays cold

    result = info(path)
    if output.json:
        render.json_record(result)
    elif not output.quiet:
        render.info_result(result)
    return 0


def _caches(output: Output, path: str | None, folders: tuple[str, ...], *, clear: bool) -> int:
    from fastfeed.store.cachelist import caches  # noqa: PLC0415 - --help stays cold

    result = caches(folders, data=path, clear=clear)
    if output.json:
        render.json_record(result)
    elif not output.quiet:
        render.caches_result(result)
    return 0
