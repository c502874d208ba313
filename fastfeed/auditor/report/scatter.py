"""The chart of time against size, as SVG that is as wide as its page: positions are percentages, letters keep their size."""

from collections.abc import Sequence

from fastfeed.auditor.report.gather import FINE, FLAGGED, SLOW, Drawn, Point
from fastfeed.auditor.report.markup import Markup, element
from fastfeed.auditor.report.scale import Scale, linear_scale, log_scale
from fastfeed.units import format_brief_seconds, format_count, format_size

CLASSES = {FINE: "fine", FLAGGED: "flagged", SLOW: "slow"}
"""Of the style sheet."""
_RADIUS = {FINE: 2.5, FLAGGED: 4, SLOW: 4}
_HEIGHT = 340
_NEAR_THE_EDGE = 0.92
"""On a narrow page a label in the middle of a tick beyond this would run over the edge."""
_LEAST_SECONDS = 1e-6


def scatter(points: dict[str, Drawn[Point]]) -> Markup:
    """A figure; a sentence where there is nothing to draw.

    Args:
        points: By group; drawn in this order, the last on top.
    """
    shown = [point for drawn in points.values() for point in drawn.kept]
    if not shown:
        return element("p", "No times are known.", class_="quiet")
    sized = [point for point in shown if point.size_bytes]
    if sized:
        shown, across, what = sized, log_scale([point.size_bytes for point in sized], _size, 4), "bytes"
    else:
        across, what = linear_scale(max(1, *(point.index for point in shown)), lambda at: f"{at:,.0f}"), "position"
    up = log_scale([_seconds(point) for point in shown], format_brief_seconds)
    return element(
        "figure",
        element("div", _plot(shown, across, up, by_size=bool(sized)), class_="plot"),
        element("figcaption", _legend(points), element("p", _told(points, what), class_="quiet")),
        class_="scatter",
    )


def _plot(points: Sequence[Point], across: Scale, up: Scale, *, by_size: bool) -> Markup:
    """The ticks of both axes, their lines, and the points."""
    lines, words = list[Markup](), list[Markup]()
    for tick in across.ticks:
        x = _percent(across.part(tick))
        lines.append(element("line", x1=x, x2=x, y1="0", y2="100%"))
        anchor = "end" if across.part(tick) > _NEAR_THE_EDGE else "middle"
        words.append(element("text", across.told(tick), x=x, y="100%", dy="18", text_anchor=anchor))
    for tick in up.ticks:
        y = _percent(1 - up.part(tick))
        lines.append(element("line", x1="0", x2="100%", y1=y, y2=y))
        words.append(element("text", up.told(tick), x="-8", y=y, dy="4", text_anchor="end"))
    dots = [_dot(point, across, up, by_size=by_size) for point in points]
    label = f"Seconds that each sample takes, {'against its size' if by_size else 'by position'}"
    return element("svg", *lines, *words, *dots, width="100%", height=_HEIGHT, role="img", aria_label=label)


def _dot(point: Point, across: Scale, up: Scale, *, by_size: bool) -> Markup:
    x = across.part(point.size_bytes if by_size else point.index)
    size = f", {format_size(point.size_bytes)}" if point.size_bytes else ""
    told = element("title", f"{point.told}{size}, {format_brief_seconds(point.seconds)}")
    return element(
        "circle", told, class_=CLASSES[point.group], cx=_percent(x), cy=_percent(1 - up.part(_seconds(point))),
        r=_RADIUS[point.group],
    )  # fmt: skip


def _legend(points: dict[str, Drawn[Point]]) -> Markup:
    """What the colours mean."""
    keys = [
        element("span", element("i", class_=f"key {CLASSES[group]}"), f"{group} ({drawn.seen:,})")
        for group, drawn in points.items()
        if drawn.seen
    ]
    return element("p", *keys, class_="legend")


def _told(points: dict[str, Drawn[Point]], what: str) -> str:
    """How to read it, and how many points were left out."""
    scales = "Both scales are logarithmic" if what == "bytes" else "The scale of seconds is logarithmic"
    texts = [f"Seconds that a sample takes of a worker, against its {what}. {scales}; hover over a point for its name."]
    texts += [
        f"Drawn are {len(drawn.kept):,} of the {format_count(drawn.seen, 'sample')} that are {group}, chosen at random."
        for group, drawn in points.items()
        if drawn.seen > len(drawn.kept)
    ]
    return " ".join(texts)


def _seconds(point: Point) -> float:
    return max(point.seconds, _LEAST_SECONDS)


def _size(size_bytes: float) -> str:
    """As a tick: 16 KiB."""
    return format_size(size_bytes).replace(".0 ", " ")


def _percent(part: float) -> str:
    return f"{100 * part:.2f}%"
