"""How many samples of a kind there are, against the time that they take: bars that differ are where time is lost."""

from collections.abc import Mapping

from fastfeed.auditor.report.gather import FINE, Share
from fastfeed.auditor.report.markup import Markup, element
from fastfeed.auditor.report.scatter import CLASSES
from fastfeed.auditor.report.words import percent
from fastfeed.units import format_brief_seconds

_MOST_FORMATS = 8
_OTHERS = "other formats"


def shares(groups: Mapping[str, Share], formats: Mapping[str, Share]) -> Markup:
    """A table of bars: by what was found, then by format where there are several.

    Args:
        groups: By what was found.
        formats: By format.
    """
    rows = [("", name, share, CLASSES[name]) for name, share in groups.items() if share.samples]
    timed = {name: share for name, share in formats.items() if share.seconds}
    if len(timed) > 1:
        rows += [("format ", name, share, CLASSES[FINE]) for name, share in _few(timed).items()]
    samples = sum(share.samples for share in groups.values())
    seconds = sum(share.seconds for share in groups.values())
    head = [element("th", title, scope="col") for title in ("", "of samples", "of time", "a sample")]
    return element(
        "table",
        element("thead", element("tr", *head)),
        element("tbody", *(_row(kind, name, share, look, samples, seconds) for kind, name, share, look in rows)),
        class_="shares",
    )


def _row(kind: str, name: str, share: Share, look: str, samples: int, seconds: float) -> Markup:  # noqa: PLR0917
    of_samples, of_time = share.samples / samples, share.seconds / seconds if seconds else 0.0
    return element(
        "tr",
        element("th", element("span", kind, class_="quiet"), name, scope="row"),
        _bar(of_samples, look, f"{share.samples:,}"),
        _bar(of_time, look, format_brief_seconds(share.seconds)),
        element("td", format_brief_seconds(share.seconds / share.samples), class_="number"),
    )


def _bar(part: float, look: str, told: str) -> Markup:
    """A bar of a share, with the share in words; what it is in sum as a title."""
    width = f"{100 * min(1.0, part):.3f}%"
    bar = element(
        "svg", element("rect", width="100%", height="10", rx="2", class_="groove"),
        element("rect", width=width, height="10", rx="2", class_=look), width="100%", height="10", aria_hidden="true",
    )  # fmt: skip
    return element("td", element("span", percent(part)), bar, title=told)


def _few(formats: Mapping[str, Share]) -> dict[str, Share]:
    """The formats that take the most time; the others in one."""
    order = sorted(formats, key=lambda name: -formats[name].seconds)
    found = {name: formats[name] for name in order[:_MOST_FORMATS]}
    rest = [formats[name] for name in order[_MOST_FORMATS:]]
    if rest:
        sums = (sum(one.samples for one in rest), sum(one.size_bytes for one in rest), sum(one.seconds for one in rest))
        found[_OTHERS] = Share(*sums)
    return found
