"""``fastfeed demo``: the whole story."""

import tempfile

import click

from fastfeed.cli import render
from fastfeed.cli.common import Output, speaks


@click.command("demo", short_help="The whole story on photos that it makes itself.")
@click.option(
    "--dir", "folder", type=click.Path(), help="Keep everything in this new or empty folder; by default a temporary one."
)
@speaks
def command(output: Output, *, folder: str | None) -> int:
    """Make a small photo set with a few slow and broken files, pack it, verify it, and load batches through torch."""
    from fastfeed.demo import run  # noqa: PLC0415 - --help stays cold

    output.after_interrupt = (
        "Its files are removed: run fastfeed demo again."
        if folder is None
        else f"What it made is in {folder} and may be removed: the demo begins anew in a new or empty folder."
    )
    say = render.silent if output.quiet or output.json else render.say
    if folder is not None:
        result = run(folder, say, output.progress())
    else:
        with tempfile.TemporaryDirectory(prefix="fastfeed-demo-") as temporary:
            result = run(temporary, say, output.progress())
            say("\n(The demo's files are removed now; --dir FOLDER keeps them.)")
    if output.json:
        render.json_record(result)
    return 0
