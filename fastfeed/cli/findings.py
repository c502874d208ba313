"""The result of an audit for people: how much there is, what was found and what to do, what loading costs."""

import os
import shlex
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from fastfeed.cli.given import Given
from fastfeed.cli.render import say, say_indented, table
from fastfeed.sample import printable
from fastfeed.units import format_count, format_seconds, format_size

if TYPE_CHECKING:
    from fastfeed.auditor.result import AuditResult, FoundCode

_SHOWN = 3
_NO_OPTIONS: Mapping[str, Any] = MappingProxyType({})
_INDENT = "        "
_PACKED_ANEW = frozenset({"folder", "list", "table", "tars"})
"""Kinds of targets that pack takes with an audit's report."""


def audit_result(result: "AuditResult", options: Mapping[str, Any] = _NO_OPTIONS) -> None:
    """An audit's result.

    Args:
        result: What was found.
        options: The command's, as click gives them.
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
        kept = "the same command goes on" if options.get("jsonl") else "with --jsonl FILE the same command would go on"
        say(f"Not all samples were looked at: {kept}.")
    _next(result, options)


def _headline(result: "AuditResult") -> str:
    told_in_what = result.audited == result.samples and result.kind != "python"  # "a folder of 6 files"
    of = "" if told_in_what else f"{format_count(result.audited, 'sample')} of "
    counts = [(result.errors, "with an error"), (result.flagged - result.errors, "with a warning")]
    told = [f"{format_count(count, 'sample')} {what}" for count, what in counts if count]
    told += [f"{format_count(result.of_set, 'finding')} about classes or tars"] if result.of_set else []
    found = ", ".join(told)
    size = f"{format_size(result.size_bytes)} in " if result.size_bytes else ""
    took = f"{size}{format_seconds(result.seconds)}"
    nothing = "nothing is wrong" if result.compared is None else "nothing new is wrong"
    where = "" if result.target in result.what else f" ({printable(result.target)})"
    return f"Audited {of}{result.what}{where}, {took}: {found or nothing}."


def _confidence(result: "AuditResult") -> Iterator[str]:
    if result.at_most is not None:
        share = f"{result.at_most:.2%}" if result.at_most < 0.1 else f"{result.at_most:.0%}"  # noqa: PLR2004 - two digits tell enough
        yield f"So with 95 % confidence at most {share} of all samples have an error (those looked at were drawn at random)."
    if result.compared is not None:
        yield result.compared.sentence


def _found(found: "FoundCode") -> None:
    """A kind of finding; what is only worth knowing takes a line."""
    known = found.severity == "info"
    if not known:
        say("")
    say(f"{found.severity.upper():<7} {found.code}: {found.title} ({format_count(found.samples, found.about)})")
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


def _next(result: "AuditResult", options: Mapping[str, Any]) -> None:
    """What to do with the result."""
    html = options.get("html")
    if result.report is not None:
        say(f"Each sample has a line in {printable(result.report)}.")
    if html is not None:
        say(f"The page for a browser is {printable(html)}.")
    for place, text in enumerate(_steps(result, options.get("skip_list"), Given(options, result.kind))):
        say(f"{'       ' if place else 'Next:  '}{text}")


def _steps(result: "AuditResult", skip_list: str | None, given: Given) -> Iterator[str]:
    """What helps, where something was found that one of them helps against."""
    from fastfeed.auditor.result import NAMES  # noqa: PLC0415 - --help stays cold
    from fastfeed.packer.rows.remedies import ACTED_ON  # noqa: PLC0415

    if result.errors and result.nameless == result.errors:  # then a skip list would be empty, and leave nothing out
        yield f"give the dataset names, so that a skip list can leave samples out: {NAMES}"
        return
    packed_anew = result.kind in _PACKED_ANEW and any(one.code in ACTED_ON for one in result.found)
    if not (result.errors or packed_anew or skip_list):
        return
    target, bad = shlex.quote(result.target), skip_list or "bad.jsonl"
    report = result.report if result.report is not None else "audit.jsonl"
    missing = [*(["--skip-list bad.jsonl"] if result.errors and skip_list is None else []),
               *(["--jsonl audit.jsonl"] if packed_anew and result.report is None else [])]  # fmt: skip
    if missing:
        yield f"fastfeed audit {target}{given.for_audit()} {' '.join(missing)}"
    if packed_anew:
        command = f"fastfeed pack {target} DST{given.for_pack()} --from-audit {shlex.quote(report)}"
        yield f"{command}   # errors left out, slow ones re-encoded"
    elif (result.errors or skip_list) and result.kind in _PACKED_ANEW:
        yield f"fastfeed pack {target} DST{given.for_pack()} --exclude {shlex.quote(bad)}"
    if result.kind == "python" and (result.errors or skip_list):
        yield f"DataLoader(..., skip={bad!r})"
    elif result.errors or skip_list:
        yield from (f"ds = fastfeed.open({place!r}{given.for_open()}, skip={bad!r})" for place in _opened(result))


def _opened(result: "AuditResult") -> list[str]:
    """What can be opened with a skip list of this audit. A table, and a folder of splits, is packed first."""
    if result.kind == "table" or (result.kind == "folder" and result.splits):
        return []
    return [os.path.join(result.target, split) for split in result.splits] or [result.target]
