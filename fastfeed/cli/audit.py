"""``fastfeed audit TARGET``: which samples are slow or broken."""

import os
from typing import TYPE_CHECKING, Any

import click

from fastfeed.cli import findings, render
from fastfeed.cli.common import Output, Size, lines, pairs, speaks

if TYPE_CHECKING:
    from fastfeed.auditor.result import AuditResult

FOUND = 10
_SEVERITIES = ("info", "warning", "error")


@click.command("audit", short_help="Which samples are slow or broken, each by its name.")
@click.argument("target", type=click.Path())
@click.option("--workers", type=click.IntRange(1), help="Processes; by default the usable processors.")
@click.option("--fast", is_flag=True, help="Without the looks that cost as much as decoding.")
@click.option("--sample", type=click.IntRange(1), metavar="N", help="Only N samples, drawn at random.")
@click.option("--max-minutes", type=click.FloatRange(0, min_open=True), metavar="M",
              help="Begin no sample after so many minutes; the last fifth is for measuring again. Order: random.")  # fmt: skip
@click.option("--kill-after", type=click.FloatRange(0, min_open=True), metavar="SECONDS",
              help="End a sample that takes longer, and a dataset that takes so long (a minute at least) to open. "
                   "Without it: samples after ten minutes or 1,000 times what most take, whichever is longer.")  # fmt: skip
@click.option("--memory-limit", type=Size(), help="What loading one sample may take.")
@click.option("--hidden", is_flag=True, help="Look at files whose names begin with a dot as well.")
@click.option("--root", type=click.Path(), help="Of a list: the folder that paths are relative to; else its own.")
@click.option("--field", "fields", multiple=True, metavar="NAME=TEMPLATE",
              help="Of a list: where a field's files are: image='images/{id}.jpg', with columns in braces.")  # fmt: skip
@click.option("--label", metavar="COLUMN", help="Of a list or table: the column that holds the class.")
@click.option("--key", metavar="COLUMN", help="Of a list or table: the column that names the samples.")
@click.option("--classes", "class_names", type=click.Path(), metavar="FILE",
              help="Of a list or table: the names of the classes, one a line, in the order of their numbers.")  # fmt: skip
@click.option("--tokenizer", metavar="NAME",
              help="Count tokens of texts: path/file.py:name or package.module:name of a function of a text.")  # fmt: skip
@click.option("--jsonl", type=click.Path(), metavar="FILE",
              help="Write a record of each sample; the same command continues what was interrupted.")  # fmt: skip
@click.option("--skip-list", type=click.Path(), metavar="FILE",
              help="Write the samples that are errors, for pack --exclude and DataLoader(skip=).")  # fmt: skip
@click.option("--html", type=click.Path(), metavar="FILE",
              help="Write a page for a browser: what was found, charts, flagged samples. It needs no network.")  # fmt: skip
@click.option("--thumbnails/--no-thumbnails", default=True, show_default=True,
              help="Whether the page shows flagged images; not where the data is private.")  # fmt: skip
@click.option("--baseline", type=click.Path(), metavar="OLD.jsonl",
              help="The --jsonl report of an earlier audit: only what is not in it counts.")  # fmt: skip
@click.option("--fail-on", type=click.Choice([*reversed(_SEVERITIES), "nothing"]), default="error", show_default=True,
              help="Exit with 10 where there is a finding so bad, or worse.")  # fmt: skip
@speaks
def command(output: Output, *, target: str, fail_on: str, **options: Any) -> int:  # noqa: ANN401 - click's
    """Load each sample of TARGET under clocks, look at its bytes, and say which is slow or broken.

    \b
    TARGET is a folder of files; what pack wrote; tars ('laion/*.tar'); a list of files (.csv .tsv
    .jsonl .parquet); tables with bytes (.parquet .arrow); JSON lines that are the samples; or a
    Python dataset with its transforms: path/file.py:name, package.module:name.

    Samples are loaded in processes of their own: one that hangs, crashes or takes all memory is named, and the audit goes
    on. Nothing is ever written to TARGET.
    """  # noqa: D301 - \b is click's mark for lines to keep
    from fastfeed.auditor.audit import audit  # noqa: PLC0415 - --help stays cold

    output.after_interrupt = lambda: _after_interrupt(options["jsonl"])
    given = {name: value for name, value in options.items() if value is not None and value != ()}
    if "fields" in given:
        given["field"] = pairs(given.pop("fields"), "field")
    if "class_names" in given:
        given["classes"] = lines(given.pop("class_names"), "classes")
    result = audit(target, progress=output.progress(), on_interrupt=lambda part: _interrupted(part, output), **given)
    failed = (
        fail_on != "nothing" and result.worst is not None and result.worst.word in _SEVERITIES[_SEVERITIES.index(fail_on) :]
    )
    if output.json:
        render.json_record(result, failed=failed)
    elif not output.quiet or failed:
        findings.audit_result(result, options)
    return FOUND if failed else 0


def _interrupted(part: "AuditResult", output: Output) -> None:
    """What was found before Ctrl-C: an audit may have run for hours. With --json a part would pass for the whole."""
    output.close()
    if not output.json and not output.quiet:
        findings.audit_result(part)


def _after_interrupt(jsonl: str | None) -> str:
    if jsonl is None:
        return "Nothing is kept: with --jsonl FILE the same command would continue."
    if not os.path.exists(f"{jsonl}.partial"):
        return "No sample was loaded yet."
    return f"What was done is kept in {jsonl}.partial: run the same command again, it continues."
