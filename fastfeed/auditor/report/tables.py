"""The tables of a page: kinds of findings, flagged samples, stages, the costliest samples."""

from collections.abc import Container, Iterable, Sequence

from fastfeed.auditor.record import SampleRecord
from fastfeed.auditor.report.gather import cost_seconds, telling
from fastfeed.auditor.report.markup import Markup, element, name
from fastfeed.auditor.report.words import percent
from fastfeed.auditor.result import Costliest, FoundCode, StageTotal
from fastfeed.units import format_brief_seconds, format_size

MOST_LETTERS = 400
"""Of a finding's text: a traceback or a line of a text may be of any length."""


def short(told: str) -> str:
    """A text cut where it is too long for a page."""
    return told if len(told) <= MOST_LETTERS else f"{told[:MOST_LETTERS]} ..."


def badge(severity: str) -> Markup:
    """A severity."""
    return element("span", severity, class_=f"badge {severity}")


def kinds(found: Iterable[FoundCode], listed: Container[str]) -> Markup:
    """What was found, by code, with advice and examples.

    Args:
        found: Kinds of findings.
        listed: Codes of samples that are listed: these counts lead there.
    """
    head = [element("th", title, scope="col") for title in ("How bad", "What", "How many")]
    return element(
        "table",
        element("thead", element("tr", *head)),
        element("tbody", *(_kind(one, is_listed=one.code in listed) for one in found)),
        class_="kinds",
    )


def _kind(one: FoundCode, *, is_listed: bool) -> Markup:
    examples = [
        element("li", name(short(path)), " ", element("span", short(told), class_="quiet")) for path, told in one.examples
    ]
    part = f" ({len(examples):,} of {one.samples:,})" if len(examples) < one.samples else ""
    shown = element("details", element("summary", f"Examples{part}" if one.samples > 1 else "Which"), element("ul", *examples))
    what = [element("b", one.title), element("code", one.code), element("p", one.advice), shown if examples else ""]
    count = f"{one.samples:,}"
    return element(
        "tr",
        element("td", badge(one.severity)),
        element("td", *what),
        element("td", element("a", count, href="#samples", data_show=one.code) if is_listed else count, class_="number"),
    )


COLUMNS = (
    ("sample", "text"), ("what was found", "number"), ("class", "text"), ("size", "number"), ("pixels", "number"),
    ("time", "number"),
)  # fmt: skip
"""Titles, and how they are sorted."""


def samples(rows: Sequence[SampleRecord], thumbnails: dict[int, str]) -> Markup:
    """Flagged samples, a row each.

    Args:
        rows: Which.
        thumbnails: JPEGs in base64, by the sample's position.
    """
    head = [
        element("th", element("button", title, type="button"), scope="col", data_kind=kind, class_=_column(title))
        for title, kind in COLUMNS
    ]
    return element(
        "table",
        element("thead", element("tr", element("th", scope="col") if thumbnails else "", *head)),
        element("tbody", *(_sample(record, thumbnails.get(record.index), cells=bool(thumbnails)) for record in rows)),
        class_="samples with-thumbnails" if thumbnails else "samples",
    )


def _sample(record: SampleRecord, thumbnail: str | None, *, cells: bool) -> Markup:
    flagged = telling(record)
    said = [
        element("p", badge(one.code.severity.word), element("code", one.code.name), " ", short(one.text)) for one in flagged
    ]
    group = " / ".join(part for part in (record.split, record.label) if part)
    seconds = cost_seconds(record) if record.times else None
    return element(
        "tr",
        element("td", _picture(thumbnail), class_="thumbnail") if cells else "",
        element("td", name(record.name), _whereabouts(record), data_v=record.name),
        element("td", *said, data_v=int(flagged[0].code.severity)),
        _cell("class", element("bdi", group) if group else "", group),
        _cell("size", "" if record.size_bytes is None else format_size(record.size_bytes), record.size_bytes),
        _cell("pixels", _pixels(record), None if record.width is None else record.width * (record.height or 0)),
        _cell("time", "" if seconds is None else format_brief_seconds(seconds), seconds, title=_stages_of(record)),
        data_codes=" ".join(dict.fromkeys(one.code.name for one in flagged)),
        data_severity=flagged[0].code.severity.word,
    )


def _cell(column: str, content: str, value: str | float | None, *, title: str | None = None) -> Markup:
    """A cell that says its column where the table is too narrow for a head.

    Args:
        column: Its title.
        content: What it shows.
        value: By which it is sorted; None where it is unknown.
        title: What is shown when the mouse rests on it.
    """
    return element("td", content, class_=_column(column), data_label=column, data_v="" if value is None else value, title=title)


def _column(title: str) -> str | None:
    return "number" if title in {"size", "pixels", "time"} else None


def _picture(thumbnail: str | None) -> Markup:
    if thumbnail is None:
        return element("span", class_="none", title="no thumbnail")
    return element("img", src=f"data:image/jpeg;base64,{thumbnail}", alt="")


def _whereabouts(record: SampleRecord) -> Markup:
    """Where it lies, when that is not its name."""
    parts = [f"sample {record.index:,}"]
    if record.path is not None and record.key is not None:
        parts.append(f"key {record.key}")
    if record.shard is not None:
        parts.append(record.shard + ("" if record.offset is None else f" at byte {record.offset:,}"))
    return element("span", ", ".join(parts), class_="quiet")


def _pixels(record: SampleRecord) -> str:
    if record.format is None:
        return ""
    kind = element("span", " ".join(part for part in (record.format, record.mode) if part), class_="quiet")
    size = "" if record.width is None else f"{record.width:,} \N{MULTIPLICATION SIGN} {record.height or 0:,}"
    return element("span", size, " ", kind)


def _stages_of(record: SampleRecord) -> str | None:
    """Each stage's clocks."""
    told = "; ".join(
        f"{stage}: {format_brief_seconds(time.cpu)} computing"
        + ("" if time.blocked is None else f", {format_brief_seconds(time.blocked)} waiting")
        for stage, time in record.times.items()
    )
    return told or None


def stages(found: Iterable[StageTotal]) -> Markup:
    """What each stage takes."""
    titles = (("stage", None), ("samples", "number"), ("processor", "number"), ("mean", "number"), ("slowest", "number"),
              ("which", None))  # fmt: skip
    rows = [
        [one.stage, f"{one.samples:,}",
         *map(format_brief_seconds, (one.cpu_seconds, one.cpu_seconds / one.samples, one.slowest_seconds)),
         name(one.slowest)]
        for one in found
    ]  # fmt: skip
    return _plain(titles, rows)


def costliest(found: Iterable[Costliest]) -> Markup:
    """The samples that take the most time."""
    titles = (("sample", None), ("takes", "number"), ("of all time", "number"), ("with those above", "number"))
    rows = [[name(one.name), format_brief_seconds(one.seconds), percent(one.part), percent(one.cumulative)] for one in found]
    return _plain(titles, rows)


def _plain(titles: Sequence[tuple[str, str | None]], rows: Iterable[Sequence[str]]) -> Markup:
    head = element("tr", *(element("th", title, scope="col", class_=look) for title, look in titles))
    body = [
        element(
            "tr", *(element("td", cell, class_=look, data_label=title) for cell, (title, look) in zip(row, titles, strict=True))
        )
        for row in rows
    ]
    return element("div", element("table", element("thead", head), element("tbody", *body), class_="plain"), class_="wide")
