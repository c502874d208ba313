"""``fastfeed pack SRC DST``: from files to shards."""

import os
from typing import TYPE_CHECKING, Any

import click

from fastfeed.cli import render
from fastfeed.cli.common import READERS, Names, Output, Size, Stdout, lines, pairs, speaks
from fastfeed.units import format_count

if TYPE_CHECKING:
    from fastfeed.packer.result import PackResult

SKIPPED = 6


@click.command("pack", short_help="Files, lists, tables or a dataset become shards.")
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
@click.option("--from-audit", type=click.Path(), metavar="REPORT",
              help="Act on an audit's report (JSONL): leave out errors, make oversize images smaller (--max-side), re-encode "
                   "slow formats.")  # fmt: skip
@click.option(
    "--limit",
    type=click.IntRange(1),
    metavar="N",
    help="Only the first N samples in order, so maybe of one class; with --shuffle a mix.",
)
@click.option("--field", "fields", multiple=True, metavar="NAME=TEMPLATE",
              help="Of a list: where a field's files are: image='images/{id}.jpg', with columns in braces.")  # fmt: skip
@click.option("--root", type=click.Path(), help="Of a list: the folder that paths are relative to; else its own.")
@click.option("--label", metavar="COLUMN", help="The column that holds the class.")
@click.option("--classes", "class_names", type=click.Path(), metavar="FILE",
              help="The names of the classes, one a line, in the order of their numbers.")  # fmt: skip
@click.option("--key", metavar="COLUMN", help="The column that names the samples.")
@click.option("--column", "columns", multiple=True, metavar="COLUMN",
              help="A column to keep as a typed column of the index; by default all that can.")  # fmt: skip
@click.option("--encode", "codecs", multiple=True, metavar="COLUMN=CODEC",
              help="How decoded images and arrays of a Python dataset are stored, without loss: png or npy.")  # fmt: skip
@click.option("--row-json/--no-row-json", "row_json", default=None,
              help="Give each sample the rest of its row as field json, or not. [default: as the source needs]")  # fmt: skip
@click.option("--max-side", type=click.IntRange(1), metavar="N", help="Make images smaller: the longer side at most N pixels.")
@click.option("--resize-short", type=click.IntRange(1), metavar="N", help="Make images smaller: the shorter side at most N.")
@click.option("--quality", type=click.IntRange(1, 100), metavar="Q", help="Re-encode JPEG and lossy WebP with this quality.")
@click.option("--apply-exif", is_flag=True, help="Turn images as their EXIF orientation says.")
@click.option("--jpeg-rows", is_flag=True, help="Mark rows and columns of JPEGs, without loss: crops of them decode faster.")
@click.option("--only-field", "only_field", multiple=True, metavar="FIELD",
              help="Only these image fields may change; needed beside masks, boxes, JSON.")  # fmt: skip
@click.option("--anyway", is_flag=True, help="Pack even what is read fast as it is.")
@click.option("--on-error", type=click.Choice(["stop", "skip"]), default="stop", show_default=True,
              help="An unreadable file: stop, or leave its sample out, record it and exit with 6.")  # fmt: skip
@click.option("--compress", type=click.Choice(["zstd"]), help="Write .tar.zst: small for texts, but read by fewer programs.")
@click.option("--level", type=click.IntRange(1, 22), help="Of the compression: 3 by default.")
@click.option("--frame-size", "frame_bytes", type=Size(), help="What is compressed as a piece: 256KiB of samples by default.")
@click.option("--workers", type=click.IntRange(1), help="Processes; by default the usable processors. The bytes are the same.")
@click.option("--for", "readers", type=Names(READERS), metavar="READERS",
              help="Write index files of other readers as well: dali,energon,hf,wids.")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Only show the plan.")
@click.option("--overwrite", is_flag=True, help="Replace what an earlier pack wrote there.")
@click.option(
    "--trust-scan", is_flag=True, help="Continue without listing the source again; files are still checked when read."
)
@speaks
def command(output: Output, *, source: str, destination: str, **options: Any) -> int:  # noqa: ANN401 - click's
    """Pack SOURCE into shards in DESTINATION.

    \b
    SOURCE is a folder: one class per folder, as ImageFolder reads it; train/ val/ of those; or
    files that share a stem (0001.jpg 0001.json 0001.mask.png). Any file is carried byte for byte.
    Or a list of files (.csv .tsv .jsonl), tables with bytes (.parquet .arrow, also 'data/*.parquet'),
    JSON lines that are the samples, or a Python dataset: package.module:name, path/file.py:name.

    Run the same command again to continue after an interruption. Nothing in SOURCE is ever changed.
    """  # noqa: D301 - \b is click's mark for lines to keep
    from fastfeed.packer.job import pack  # noqa: PLC0415 - --help stays cold
    from fastfeed.packer.rows.byname import is_named  # noqa: PLC0415

    stdout = Stdout(aside=is_named(source))
    output.after_interrupt = "Nothing was written in this run: the same command begins or continues."

    def on_plan(plan: "PackResult") -> None:
        total = sum(dataset.shards for dataset in plan.datasets)
        output.after_interrupt = lambda: _how_far(destination, total)
        if not (output.quiet or output.json):
            with stdout.ours():
                render.pack_plan(plan)

    given = {name: value for name, value in options.items() if value is not None and value != ()}
    for option, name in (("fields", "field"), ("codecs", "encode")):
        if option in given:
            given[name] = pairs(given.pop(option), name)
    if "columns" in given:
        given["column"] = given.pop("columns")
    if "class_names" in given:
        given["classes"] = lines(given.pop("class_names"), "classes")
    with stdout:
        result = pack(source, destination, progress=output.progress(), on_plan=on_plan, **given)
    _tell(result, output)
    return SKIPPED if result.skipped else 0


def _tell(result: "PackResult", output: Output) -> None:
    """The outcome; with --quiet only what is not well."""
    if output.json:
        render.json_record(result)
    elif not output.quiet:
        render.pack_result(result)
    elif result.skipped:
        render.pack_skipped(result)


def _how_far(destination: str, total: int) -> str:
    """What an interrupted pack leaves."""
    job = os.path.join(destination, ".fastfeed", "job")
    done = sum(name.endswith(".done") for name in os.listdir(job)) if os.path.isdir(job) else 0
    are = "is" if done == 1 else "are"
    return f"{done} of {format_count(total, 'shard')} {are} finished and kept: run the same command again, it continues."
