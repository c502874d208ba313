"""HTML that cannot be broken by what is put in it: only Markup goes through as it is, all other text is escaped.

Names of files come from anywhere: they may hold tags, quotes, line feeds, bytes that are no text, and marks that turn the
direction of writing around, so that "gpj.exe" is shown as "exe.jpg". All of that is shown as it is, by escapes.
"""

import html
from collections.abc import Iterable

from fastfeed.sample import printable

_VOID = frozenset({"img", "input", "meta"})
"""Elements without an end tag."""


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def text(value: str) -> Markup:
    """Any text, as the content of an element or of an attribute in quotes.

    Whatever str.isprintable() refuses is shown as an escape: control characters, surrogates, marks without a width.
    """
    return Markup(html.escape(printable(value), quote=True))


def join(parts: Iterable[str], between: str = "") -> Markup:
    """Parts one behind the other, escaped where they are no Markup."""
    return Markup(text(between).join(part if isinstance(part, Markup) else text(part) for part in parts))


def element(tag: str, /, *content: str, **attributes: str | float | bool | None) -> Markup:
    """An element.

    Args:
        tag: Its name; never from outside.
        *content: What is in it, escaped where it is no Markup.
        **attributes: class_ for class, data_x for data-x. None and False leave one out, True has no value.
    """
    told = join(_attribute(key.rstrip("_").replace("_", "-"), value) for key, value in attributes.items())
    if tag in _VOID:
        return Markup(f"<{tag}{told}>")
    return Markup(f"<{tag}{told}>{join(content)}</{tag}>")


def name(value: str) -> Markup:
    """A file's name. It may be broken into lines behind a slash or an underline, and its direction of writing stays its own."""
    return element("bdi", Markup(text(value).replace("_", "_<wbr>").replace("/", "/<wbr>")), class_="name")


def _attribute(key: str, value: str | float | bool | None) -> Markup:  # noqa: FBT001 - the value itself
    if value is None or value is False:
        return Markup("")
    if value is True:
        return Markup(f" {key}")
    shown = f"{value:.10g}" if isinstance(value, int | float) else text(value)
    return Markup(f' {key}="{shown}"')
