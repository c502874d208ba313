import pytest
from hypothesis import given
from hypothesis import strategies as st
from reporting import Reader

from fastfeed.auditor.report.markup import Markup, element, join, name, text

ANY = st.text(st.characters(exclude_categories=()), max_size=40)
"""Any string of Python's, surrogates and all."""


def escaped(value):
    """What a reader must see of it: str.isprintable() as it is, all else by its escape."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in value)


@given(ANY, ANY)
def test_nothing_put_in_gets_out(content, value):
    page = element("p", element("b", content, title=value), class_="x")
    page.encode()  # no surrogate is left
    found = Reader(page)
    assert found.tags == [("p", {"class": "x"}), ("b", {"title": escaped(value)})]
    assert found.words == escaped(content)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("</script><script>", "&lt;/script&gt;&lt;script&gt;"), ("\"'&", "&quot;&#x27;&amp;"),
        ("a\nb\x1b[31m", "a\\nb\\x1b[31m"),
        ("photo\u202egpj.exe", "photo\\u202egpj.exe"), ("\udcff", "\\udcff"), ("a\u200bb", "a\\u200bb"), ("שלום", "שלום"),
    ],
)  # fmt: skip
def test_what_is_shown_of_hostile_names(value, shown):
    assert text(value) == shown


def test_attributes():
    assert (
        element("td", data_v=2.5, class_="number", title=None, hidden=True, open=False)
        == '<td data-v="2.5" class="number" hidden></td>'
    )
    assert element("img", src="x") == '<img src="x">'


def test_only_markup_goes_through_as_it_is():
    assert join(["<b>", Markup("<i>")], ", ") == "&lt;b&gt;, <i>"
    assert element("p", Markup("<i></i>"), "&") == "<p><i></i>&amp;</p>"


@given(ANY)
def test_a_name_may_be_broken_and_stays_the_same(value):
    found = Reader(name(value))
    assert found.words == escaped(value)
    assert [tag for tag, _ in found.tags] == ["bdi", *["wbr"] * (value.count("/") + value.count("_"))]
