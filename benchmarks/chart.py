"""A bar chart as SVG, for a README: readable on a light and on a dark page."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

_WIDTH, _LABEL, _ROW, _HEAD = 760, 250, 24, 34
_STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #1f2328 }
  .title { font-weight: 600 }
  .bar { fill: #8c959f }
  .ours { fill: #1a7f37 }
  @media (prefers-color-scheme: dark) { text { fill: #e6edf3 } .bar { fill: #6e7681 } .ours { fill: #3fb950 } }
"""


@dataclass(frozen=True)
class Bar:
    """One line of the chart."""

    label: str
    value: float
    ours: bool = False
    """Drawn in the second colour."""


def chart(title: str, bars: Sequence[Bar]) -> str:
    """The SVG of horizontal bars that begin at 0, with the value behind each."""
    longest = max(bar.value for bar in bars)
    room = _WIDTH - _LABEL - 70
    height = _HEAD + _ROW * len(bars) + 6
    size = f'viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
        f"<title>{escape(title)}</title>",
        f"<style>{_STYLE}</style>",
        f'<text class="title" x="0" y="18">{escape(title)}</text>',
    ]
    for at, bar in enumerate(bars):
        top, length = _HEAD + at * _ROW, room * bar.value / longest
        kind = "bar ours" if bar.ours else "bar"
        lines += [
            f'<text x="{_LABEL - 8}" y="{top + 15}" text-anchor="end">{escape(bar.label)}</text>',
            f'<rect class="{kind}" x="{_LABEL}" y="{top + 2}" width="{length:.1f}" height="{_ROW - 6}" rx="2"/>',
            f'<text x="{_LABEL + length + 6:.1f}" y="{top + 15}">{bar.value:,.0f}</text>',
        ]
    return "\n".join([*lines, "</svg>"]) + "\n"
