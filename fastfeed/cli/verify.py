"""``fastfeed verify DST``: every promise, proven."""

import click

from fastfeed.cli import render
from fastfeed.cli.common import Output, speaks

DAMAGED = 5


@click.command("verify", short_help="Every promise of a packed dataset, re-read from disk.")
@click.argument("path", type=click.Path())
@click.option("--workers", type=click.IntRange(1), help="Threads; by default the usable processors.")
@speaks
def command(output: Output, *, path: str, workers: int | None) -> int:
    """Read every byte of the packed dataset at PATH and prove it: checksums, headers, padding, index, names.

    Exit code 5 if anything differs; each finding names shard, sample, member and bytes.
    """
    from fastfeed.packer.verify import verify  # noqa: PLC0415 - --help stays cold

    output.after_interrupt = "verify changes nothing: run it again."
    result = verify(path, workers=workers, progress=output.progress())
    if output.json:
        render.json_record(result, ok=result.ok)
    elif not (output.quiet and result.ok):
        render.verify_result(result)
    return 0 if result.ok else DAMAGED
