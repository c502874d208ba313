"""``fastfeed index TARS``: tars that stay where they are become readable at random."""

from typing import TYPE_CHECKING

import click

from fastfeed.cli import render
from fastfeed.cli.common import Output, speaks
from fastfeed.sample import printable
from fastfeed.units import format_count, format_seconds, format_size

if TYPE_CHECKING:
    from fastfeed.source.tarindex import IndexResult

DAMAGED = 5
_SHOWN = 5


@click.command("index", short_help="Make existing WebDataset tars readable at random, where they are.")
@click.argument("tars", nargs=-1, required=True, type=click.Path())
@click.option("--index-dir", type=click.Path(), help="A folder for the index, where none can be written beside the tars.")
@click.option("--checksums", is_flag=True, help="Read every byte and keep checksums, so that each later read is checked.")
@speaks
def command(output: Output, *, tars: tuple[str, ...], index_dir: str | None, checksums: bool) -> int:
    """Read the headers of TARS once, and keep where each sample lies.

    \b
    TARS are paths and patterns: 'laion/*.tar' 'laion/{00000..00099}.tar'; also .tar.gz and .tar.zst.

    Nothing is copied, and no tar is changed: the index lies in .fastfeed-index beside them.
    What is damaged, dropped or double is told by tar and byte. If anything is lost, the exit
    code is 5; the index is written all the same, and the rest can be read.
    """  # noqa: D301 - \b is click's mark for lines to keep
    from fastfeed.source.tarindex import index_tars  # noqa: PLC0415 - --help stays cold

    output.after_interrupt = "The index appears whole or not at all: run the same command again."
    result = index_tars(tars, index_dir=index_dir, checksums=checksums, progress=output.progress())
    if output.json:
        render.json_record(result, lost=result.lost)
    elif not (output.quiet and not result.lost):
        _tell(result)
    return DAMAGED if result.lost else 0


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
