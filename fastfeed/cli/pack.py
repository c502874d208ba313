"""``fastfeed pack SRC DST``: from files to shards."""

import os
from typing import TYPE_CHECKING, Any

import click

from fastfeed.cli import render
from fastfeed.cli.common import Output, Size, speaks
from fastfeed.units import format_count

if TYPE_CHECKING:
    from fastfeed.packer.result import PackResult

SKIPPED = 6


@click.command("pack", short_help="A folder of files becomes shards.")
@click.argument("source", type=click.Path())
@click.argument("destination", type=click.Path())
@click.option("--shard-size", "shard_bytes", type=Size(), help="Source bytes a shard, as a target: 512MiB by default.")
@click.option("--shards", type=click.IntRange(1), help="Exactly so many shards for each dataset.")
@click.option("--samples-per-shard", type=click.IntRange(1), help="At most so many samples a shard.")
@click.option("--shuffle", type=int, metavar="SEED", help="Store samples in random order. Without it: ImageFolder's order.")
@click.option("--layout", type=click.Choice(["auto", "splits", "classes", "files"]), default="auto", show_default=True,
              help="How folders are read: train/ val/, a class a folder, or just files.")  # fmt: skip
@click.option("--group", type=click.Choice(["auto", "stem", "none"]), default="auto", show_default=True,
              help="Which files make a sample: those that share a stem, or each its own.")  # fmt: skip
@click.option("--class-map", type=click.Choice(["equal", "union"]), default="equal", show_default=True,
              help="Splits with different classes: stop, or number the classes of all of them.")  # fmt: skip
@click.option(
    "--cls/--no-cls", "write_cls", default=True, show_default=True, help="Write NAME.cls for readers without our index."
)
@click.option("--name", help="Stem of the shard names; by default the source folder's name, or the split's.")
@click.option("--hidden", is_flag=True, help="Take files whose names begin with a dot as well.")
@click.option("--exclude", type=click.Path(), metavar="SKIPLIST", help="Leave out the samples that a skip list (JSONL) names.")
@click.option(
    "--limit",
    type=click.IntRange(1),
    metavar="N",
    help="Only the first N samples in order, so maybe of one class; with --shuffle a mix.",
)
@click.option("--on-error", type=click.Choice(["stop", "skip"]), default="stop", show_default=True,
              help="An unreadable file: stop, or leave its sample out, record it and exit with 6.")  # fmt: skip
@click.option("--workers", type=click.IntRange(1), help="Processes; by default the usable processors. The bytes are the same.")
@click.option("--dry-run", is_flag=True, help="Only show the plan.")
@click.option("--overwrite", is_flag=True, help="Replace what an earlier pack wrote there.")
@click.option(
    "--trust-scan", is_flag=True, help="Continue without listing the source again; files are still checked when read."
)
@speaks
def command(output: Output, *, source: str, destination: str, **options: Any) -> int:  # noqa: ANN401 - click's
    """Pack the folder SOURCE into shards in DESTINATION.

    \b
    One class per folder, as ImageFolder reads it; train/ val/ of those; or files that share a
    stem (0001.jpg 0001.json 0001.mask.png). Any file is carried byte for byte.

    Run the same command again to continue after an interruption. Nothing in SOURCE is ever changed.
    """  # noqa: D301 - \b is click's mark for lines to keep
    from fastfeed.packer.job import pack  # noqa: PLC0415 - --help stays cold

    output.after_interrupt = "Nothing was written in this run: the same command begins or continues."

    def on_plan(plan: "PackResult") -> None:
        total = sum(dataset.shards for dataset in plan.datasets)
        output.after_interrupt = lambda: _how_far(destination, total)
        if not (output.quiet or output.json):
            render.pack_plan(plan)

    given = {name: value for name, value in options.items() if value is not None}
    result = pack(source, destination, progress=output.progress(), on_plan=on_plan, **given)
    if output.json:
        render.json_record(result)
    elif not output.quiet:
        render.pack_result(result)
    return SKIPPED if result.skipped else 0


def _how_far(destination: str, total: int) -> str:
    """What an interrupted pack leaves."""
    job = os.path.join(destination, ".fastfeed", "job")
    done = sum(name.endswith(".done") for name in os.listdir(job)) if os.path.isdir(job) else 0
    are = "is" if done == 1 else "are"
    return f"{done} of {format_count(total, 'shard')} {are} finished and kept: run the same command again, it continues."
