"""``fastfeed index PATH --for READERS``: what other readers need beside the shards."""

import click

from fastfeed.cli import render
from fastfeed.cli.common import READERS, Names, Output, speaks


@click.command("index", short_help="Index files of other readers, beside the shards.")
@click.argument("path", type=click.Path())
@click.option("--for", "readers", type=Names(READERS), metavar="READERS", required=True,
              help="Whose index files to write: dali,energon,hf,wids.")  # fmt: skip
@click.option("--overwrite", is_flag=True, help="Replace files of those names that are not fastfeed's, or were edited.")
@speaks
def command(output: Output, *, path: str, readers: tuple[str, ...], overwrite: bool) -> int:
    """Write the index files that other readers need beside the shards of the packed dataset at PATH.

    \b
    dali     NAME-000000.idx, what wds2idx writes
    energon  NAME-000000.tar.idx and .nv-meta/, what energon prepare writes
    hf       README.md, a dataset card for Hugging Face datasets
    wids     NAME.index.json

    Only manifest and index are read. The same command again repairs what is missing or damaged.
    """  # noqa: D301 - \b is click's mark for lines to keep
    from fastfeed.packer.sidecars import write_sidecars  # noqa: PLC0415 - --help stays cold

    output.after_interrupt = "What is written is whole: run the same command again, it continues."
    result = write_sidecars(path, readers, overwrite=overwrite, progress=output.progress())
    if output.json:
        render.json_record(result)
    elif not output.quiet:
        render.sidecars_result(result)
    return 0
