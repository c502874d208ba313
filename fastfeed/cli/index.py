"""``fastfeed index``: tars become readable at random where they are; or, with --for, other readers get their index files."""

import os
from typing import TYPE_CHECKING

import click

from fastfeed.cli import render
from fastfeed.cli.common import READERS, Names, Output, speaks
from fastfeed.sample import printable
from fastfeed.units import format_count, format_seconds, format_size

if TYPE_CHECKING:
    from fastfeed.source.tarindex import IndexResult

DAMAGED = 5
_SHOWN = 5


@click.command("index", short_help="Existing tars: readable at random, in place. With --for: index files of other readers.")
@click.argument("paths", nargs=-1, required=True, type=click.Path())
@click.option("--index-dir", type=click.Path(), help="Of tars: a folder for the index, where none can be written beside them.")
@click.option("--checksums", is_flag=True, help="Of tars: read every byte and keep checksums, so that later reads are checked.")
@click.option("--for", "readers", type=Names(READERS), metavar="READERS",
              help="Of a packed dataset: whose index files to write: dali,energon,hf,wids.")  # fmt: skip
@click.option(
    "--overwrite", is_flag=True, help="With --for: replace files of those names that are not fastfeed's, or were edited."
)
@speaks
def command(
    output: Output,
    *,
    paths: tuple[str, ...],
    index_dir: str | None,
    checksums: bool,
    readers: tuple[str, ...] | None,
    overwrite: bool,
) -> int:
    """Make tars readable at random where they are, or write the index files of other readers.

    \b
    PATHS are tars and patterns: 'laion/*.tar' 'laion/{00000..00099}.tar'; also .tar.gz, .tar.zst.
    Their headers are read once; nothing is copied, and no tar is changed: the index lies in
    .fastfeed-index beside them. What is damaged, dropped or double is told by tar and byte. If
    anything is lost, the exit code is 5; the index is written all the same, for the rest.

    \b
    With --for, PATHS is one packed dataset, and what other readers need is written beside it:
    dali     NAME-000000.idx, what wds2idx writes
    energon  NAME-000000.tar.idx and .nv-meta/, what energon prepare writes
    hf       README.md, a dataset card for Hugging Face datasets
    wids     NAME.index.json
    Only manifest and index are read. The same command again repairs what is missing or damaged.
    """  # noqa: D301 - \b is click's mark for lines to keep
    _prove_options(paths, readers, of_tars=index_dir is not None or checksums, overwrite=overwrite)
    if readers is not None:
        return _sidecars(output, paths[0], readers, overwrite=overwrite)
    from fastfeed.source.tarindex import index_tars  # noqa: PLC0415 - --help stays cold

    output.after_interrupt = "The index appears whole or not at all: run the same command again."
    result = index_tars(paths, index_dir=index_dir, checksums=checksums, progress=output.progress())
    if output.json:
        render.json_record(result, lost=result.lost)
    elif not (output.quiet and not result.lost):
        _tell(result)
    return DAMAGED if result.lost else 0


def _prove_options(paths: tuple[str, ...], readers: tuple[str, ...] | None, *, of_tars: bool, overwrite: bool) -> None:
    """Options of the other use are a mistake.

    Raises:
        click.UsageError: They are there.
    """
    if readers is not None and of_tars:
        msg = "--index-dir and --checksums are for tars; --for is for a packed dataset."
        raise click.UsageError(msg)
    if readers is not None and len(paths) > 1:
        msg = "--for takes one packed dataset."
        raise click.UsageError(msg)
    if readers is None and overwrite:
        msg = "--overwrite goes with --for."
        raise click.UsageError(msg)
    if readers is None and any(os.path.isdir(os.path.join(path, ".fastfeed")) for path in paths):
        msg = "this is a packed dataset: its index is there. For those of other readers: --for dali,energon,hf,wids."
        raise click.UsageError(msg)


def _sidecars(output: Output, path: str, readers: tuple[str, ...], *, overwrite: bool) -> int:
    from fastfeed.packer.sidecars import write_sidecars  # noqa: PLC0415 - --help stays cold

    output.after_interrupt = "What is written is whole: run the same command again, it continues."
    result = write_sidecars(path, readers, overwrite=overwrite, progress=output.progress())
    if output.json:
        render.json_record(result)
    elif not output.quiet:
        render.sidecars_result(result)
    return 0


def _tell(result: "IndexResult") -> None:
    """What was found, and how to open it."""
    known = "" if result.walked else " (known already: nothing was read)"
    fields = "+".join(map(printable, result.fields[:_SHOWN])) + (" ..." if len(result.fields) > _SHOWN else "")
    tars = f"{format_count(result.tars, 'tar')}, {format_size(result.size_bytes)}"
    members = f"{format_count(result.members, 'member')} in {format_seconds(result.seconds)}{known}"
    render.say(f"{format_count(result.samples, 'sample')} of {fields} in {tars}: {members}.")
    render.say(f"The index is {printable(result.path)}, {format_size(result.index_bytes)}.")
    if result.dropped:
        render.say(f"{format_count(result.dropped, 'sample')} left out, since members of them are lost.")
    for kind in result.found:
        render.say(f"{kind.kind}: {format_count(kind.count, 'finding')}{', data is lost' if kind.lost else ''}")
        shown = kind.examples if kind.lost else kind.examples[:_SHOWN]
        for example in shown:
            render.say(f"- {example}")
        if len(shown) < kind.count:
            render.say(f"- and {kind.count - len(shown):,} more")
