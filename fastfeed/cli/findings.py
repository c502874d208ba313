"""The result of an audit for people: how much there is, what was found and what to do, what loading costs."""

import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING

from fastfeed.cli.render import say, say_indented, table
from fastfeed.sample import printable
from fastfeed.units import format_count, format_seconds, format_size

if TYPE_CHECKING:
    from fastfeed.auditor.result import AuditResult, FoundCode

_SHOWN = 3
_INDENT = "        "


def audit_result(result: "AuditResult", *, skip_list: str | None = None) -> None:
    """An audit's result.

    Args:
        result: What was found.
        skip_list: Where the skip list was written.
    """
    say(_headline(result))
    for text in _confidence(result):
        say(text)
    for text in result.costs:
        say(f"{text[:1].upper()}{text[1:]}.")
    for found in result.found:
        _found(found)
    _costs(result)
    for note in result.notes:
        say(f"Note: {printable(note)}")
    if not result.complete:
        say("Time was up before all samples were looked at: the same command with --jsonl FILE goes on.")
    _next(result, skip_list)


def _headline(result: "AuditResult") -> str:
    of = "" if result.audited == result.samples else f"{result.audited:,} samples of "
    counts = [(result.errors, "with an error"), (result.flagged - result.errors, "with a warning")]
    told = [f"{format_count(count, 'sample')} {what}" for count, what in counts if count]
    told += [f"{format_count(result.of_set, 'finding')} about classes or tars"] if result.of_set else []
    found = ", ".join(told)
    size = f"{format_size(result.size_bytes)} in " if result.size_bytes else ""
    took = f"{size}{format_seconds(result.seconds)}"
    where = "" if result.target in result.what else f" ({printable(result.target)})"
    return f"Audited {of}{result.what}{where}, {took}: {found or 'nothing is wrong'}."


def _confidence(result: "AuditResult") -> Iterator[str]:
    if result.at_most is not None:
        share = f"{result.at_most:.2%}" if result.at_most < 0.1 else f"{result.at_most:.0%}"  # noqa: PLR2004 - two digits tell enough
        yield f"So with 95 % confidence at most {share} of all samples have an error (those looked at were drawn at random)."


def _found(found: "FoundCode") -> None:
    """A kind of finding; what is only worth knowing takes a line."""
    known = found.severity == "info"
    if not known:
        say("")
    say(f"{found.severity.upper():<7} {found.code}: {found.title} ({format_count(found.samples, 'sample')})")
    if known:
        return
    for name, text in found.examples[:_SHOWN]:
        say_indented(f"{printable(name)}: {printable(text)}", _INDENT)
    if found.samples > _SHOWN:
        say_indented(f"... and {found.samples - _SHOWN:,} more", _INDENT)
    say_indented(f"What to do: {found.advice}", _INDENT)


def _costs(result: "AuditResult") -> None:
    """What loading takes, and what is loaded."""
    if result.stages:
        say("")
        _stages(result)
    if len(result.costliest) > 1:
        say(_costliest(result))
    if result.formats:
        say("Formats: " + ", ".join(f"{name} {count:,}" for name, count in result.formats.items()))


def _stages(result: "AuditResult") -> None:
    columns = [("stage", "left"), ("samples", "right"), ("processor", "right"), ("mean", "right"), ("wall", "right"),
               ("slowest", "right"), ("which", "left")]  # fmt: skip
    rows = [
        [one.stage, f"{one.samples:,}", format_seconds(one.cpu_seconds), format_seconds(one.cpu_seconds / one.samples),
         format_seconds(one.wall_seconds), format_seconds(one.slowest_seconds), one.slowest]
        for one in result.stages
    ]  # fmt: skip
    table(columns, rows)


def _costliest(result: "AuditResult") -> str:
    named = ", ".join(f"{one.name} ({format_seconds(one.seconds)})" for one in result.costliest[:_SHOWN])
    share = result.costliest[-1].cumulative
    return printable(f"The costliest {len(result.costliest)} samples take {share:.0%} of the time; the first: {named}.")


def _next(result: "AuditResult", skip_list: str | None) -> None:
    """What to do with the result."""
    if result.report is not None:
        say(f"Each sample has a line in {printable(result.report)}.")
    if skip_list is None:
        if result.errors:
            say(f"Next:  fastfeed audit {shlex.quote(result.target)} --skip-list bad.jsonl   # the errors, by their names")
        return
    if result.kind in {"folder", "list"}:
        say(f"Next:  fastfeed pack {shlex.quote(result.target)} DST --exclude {shlex.quote(skip_list)}")
        say(f"       ds = fastfeed.open({result.target!r}, skip={skip_list!r})")
    elif result.kind == "python":
        say(f"Next:  DataLoader(..., skip={skip_list!r})")
    else:
        say(f"Next:  ds = fastfeed.open({result.target!r}, skip={skip_list!r})")
