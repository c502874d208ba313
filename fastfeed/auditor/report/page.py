"""The page of an audit: one file with all that it needs. It loads nothing, and tells the browser to let it load nothing."""

import base64
import hashlib
from collections.abc import Sequence
from importlib.resources import files

from fastfeed.auditor.record import SampleRecord
from fastfeed.auditor.report import tables, words
from fastfeed.auditor.report.gather import MOST_OF_A_CODE, Gathered, telling
from fastfeed.auditor.report.markup import Markup, element
from fastfeed.auditor.report.scatter import scatter
from fastfeed.auditor.report.shares import shares
from fastfeed.auditor.result import AuditResult
from fastfeed.units import format_count, format_size

_COSTLIEST = 10


def page(
    result: AuditResult, gathered: Gathered, thumbnails: dict[int, str], *, notes: Sequence[str] = (), made: str = ""
) -> bytes:
    """The whole page.

    Args:
        result: What was found.
        gathered: Each record was given to it.
        thumbnails: JPEGs in base64, by the sample's position.
        notes: More of what a reader must know.
        made: When, in words.

    Returns:
        UTF-8.
    """
    style, script = _own("page.css"), _own("page.js")
    policy = (
        f"default-src 'none'; img-src data:; style-src '{_hash(style)}'; script-src '{_hash(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="referrer", content="no-referrer"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", f"Audit of {result.target}"),
        element("style", style),
    )
    body = element(
        "body",
        element("main", _header(result, made), *_sections(result, gathered, thumbnails, notes)),
        element("script", script),
    )
    return f"<!DOCTYPE html>\n{element('html', head, body, lang='en')}\n".encode()


def _own(name: str) -> Markup:
    """A file beside this one."""
    return Markup(files("fastfeed.auditor.report").joinpath(name).read_text("utf-8"))


def _hash(content: str) -> str:
    """By which the policy knows it."""
    return f"sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}"


def _sections(result: AuditResult, gathered: Gathered, thumbnails: dict[int, str], notes: Sequence[str]) -> list[Markup]:
    parts, rows = list[Markup](), gathered.rows()
    if result.found:
        listed = {found.code.name for record in rows for found in telling(record)}
        parts.append(_section("findings", "What was found", tables.kinds(result.found, listed)))
    if result.stages:
        parts.append(_section("time", "Where time goes", *_time(result, gathered)))
    if rows:
        parts.append(_samples(rows, gathered, thumbnails, result.report))
    said = [element("li", note) for note in (*result.notes, *notes)]
    parts.append(_section("notes", "How it was done", element("ul", *said)))
    return parts


def _section(name: str, title: str, *content: str) -> Markup:
    return element("section", element("h2", title), *content, id=name)


def _header(result: AuditResult, made: str) -> Markup:
    told = words.statements(result)
    warnings = result.flagged - result.errors
    tiles = [("errors", f"{result.errors:,}", "error" if result.errors else None),
             ("warnings", f"{warnings:,}", "warning" if warnings else None),
             ("audited", f"{result.audited:,}", None), ("size", format_size(result.size_bytes), None)]  # fmt: skip
    formats = ", ".join(f"{name} {count:,}" for name, count in result.formats.items())
    return element(
        "header",
        element("p", f"fastfeed audit {made}".strip(), class_="kicker"),
        element("h1", element("bdi", result.target)),
        element("p", words.subline(result), class_="quiet"),
        element("p", words.headline(result), class_="headline"),
        element("ul", *(element("li", one) for one in told), class_="statements") if told else "",
        element("dl", *(element("div", element("dt", name), element("dd", value, class_=look)) for name, value, look in tiles)),
        element("p", element("span", "Formats: ", class_="quiet"), formats) if formats else "",
    )


def _time(result: AuditResult, gathered: Gathered) -> list[Markup]:
    """Shares, the chart, stages, the costliest samples."""
    parts = [shares(gathered.groups, gathered.formats), element("h3", "Time of each sample"), scatter(gathered.points)]
    parts += [element("h3", "Stages"), tables.stages(result.stages)]
    if result.costliest:
        parts += [element("h3", "The costliest samples, flagged or not"), tables.costliest(result.costliest[:_COSTLIEST])]
    return parts


def _samples(rows: Sequence[SampleRecord], gathered: Gathered, thumbnails: dict[int, str], report: str | None) -> Markup:
    more = gathered.flagged - len(rows)
    where = f"; all of them are in {report}" if report else ": --jsonl FILE writes all of them"
    capped = f"{format_count(more, 'more sample')} flagged, not listed here (at most {MOST_OF_A_CODE:,} of a kind are){where}."
    return _section(
        "samples",
        "Flagged samples",
        _tools(rows),
        element("p", capped, class_="quiet") if more else "",
        tables.samples(rows, thumbnails),
    )


def _tools(rows: Sequence[SampleRecord]) -> Markup:
    """What filters and sorts the table; the script fills in the rest."""
    codes = sorted({one.code.name for record in rows for one in telling(record)})
    choices = [element("option", title, value=value) for title, value in (
        ("errors and warnings", ""), ("errors", "error"), ("warnings", "warning"))]  # fmt: skip
    orders = [element("option", title, value=str(number)) for number, (title, _) in enumerate(tables.COLUMNS)]
    return element(
        "form",
        element("label", "Find ", element("input", type="search", name="text", placeholder="name, class, text")),
        element("label", "How bad ", element("select", *choices, name="severity")),
        element("label", "What ", element("select", element("option", "anything", value=""),
                                          *(element("option", code, value=code) for code in codes), name="code")),
        element("label", "Sort by ", element("select", *orders, name="order"), class_="order"),
        element("output", f"{len(rows):,}"),
        class_="tools",
        hidden=True,
    )  # fmt: skip
