"""The page as a browser shows it. Without a Chromium on this machine these tests are skipped."""

import base64

import pytest
from browsing import browser
from helpers import encoded, photo
from reporting import flagged, result_of, sample

from fastfeed.auditor.judging.codes import OVERSIZE, SLOW
from fastfeed.auditor.report.page import page
from fastfeed.auditor.running.codes import CRASH, FAILS

HOSTILE = "</script><script>document.title='owned'</script>\"'><img src=x onerror=document.title='owned'>\u202e\udcff.jpg"
NAMES = "[...document.querySelectorAll('tbody tr[data-codes]:not([hidden]) .name')].map(name => name.textContent)"


@pytest.fixture(scope="module")
def tab():
    with browser() as found:
        yield found


@pytest.fixture
def opened(tab, tmp_path):
    records = [
        flagged(0, SLOW, path="b10.jpg", seconds=3.0, size_bytes=10),
        flagged(1, CRASH, path="a.jpg", seconds=1.0, size_bytes=300),
        flagged(2, FAILS, path="b9.jpg", seconds=2.0, size_bytes=None), flagged(3, SLOW, OVERSIZE, path=HOSTILE, seconds=9.0),
        *(sample(at, seconds=0.1 * at, size_bytes=100 * at) for at in range(4, 60)),
    ]  # fmt: skip
    result, gathered = result_of(records)
    picture = base64.b64encode(encoded(photo(1, (64, 48)))).decode()
    path = tmp_path / "page.html"
    path.write_bytes(page(result, gathered, {0: picture}))

    def open_page(**how):
        tab.open(path, **how)
        return tab

    return open_page


def clicked(tab, title):
    tab.ask(f"[...document.querySelectorAll('#samples th button')].find(b => b.textContent === '{title}').click()")
    return tab.ask(NAMES)


def test_it_loads_nothing_and_complains_of_nothing(opened, tmp_path):
    tab = opened()
    assert tab.ask("document.title") == "Audit of /data/photos"
    assert tab.complaints() == []
    assert [url for url in tab.requests() if not url.endswith("/page.html")] == []
    assert tab.ask("document.querySelector('#samples img').naturalWidth") == 64


def test_sorting(opened):
    tab = opened()
    hostile = HOSTILE.replace("\u202e", "\\u202e").replace("\udcff", "\\udcff")
    assert tab.ask(NAMES) == ["a.jpg", "b9.jpg", "b10.jpg", hostile]
    assert clicked(tab, "time") == [hostile, "b10.jpg", "b9.jpg", "a.jpg"]
    assert clicked(tab, "time") == ["a.jpg", "b9.jpg", "b10.jpg", hostile]
    assert clicked(tab, "size") == [hostile, "a.jpg", "b10.jpg", "b9.jpg"], "what is unknown comes last"
    assert clicked(tab, "size") == ["b10.jpg", "a.jpg", hostile, "b9.jpg"], "here too"
    names = clicked(tab, "sample")
    assert names.index("b9.jpg") < names.index("b10.jpg")
    assert tab.ask("document.querySelectorAll('[aria-sort]').length") == 1


def test_filtering(opened):
    tab = opened()
    tab.ask("document.querySelector('a[data-show=slow]').click()")
    assert len(tab.ask(NAMES)) == 2 and tab.ask("document.querySelector('output').value") == "2 of 4"
    script = (
        "document.querySelector('[name={0}]').value = '{1}'; document.querySelector('form').dispatchEvent(new Event('input'))"
    )
    tab.ask(script.format("code", ""))
    tab.ask(script.format("severity", "error"))
    assert tab.ask(NAMES) == ["a.jpg", "b9.jpg"]
    tab.ask(script.format("text", "B9"))
    assert tab.ask(NAMES) == ["b9.jpg"]
    assert tab.complaints() == []


@pytest.mark.parametrize("dark", [False, True])
def test_a_narrow_window_shows_all_of_it(opened, dark):
    tab = opened(width=400, dark=dark)
    assert tab.ask("document.documentElement.scrollWidth") == 400
    back, ink = tab.ask("(s => [s.backgroundColor, s.color])(getComputedStyle(document.body))")
    assert (sum(map(int, back[4:-1].split(","))) < sum(map(int, ink[4:-1].split(",")))) == dark
    assert tab.ask("document.querySelector('.order').offsetHeight") > 0


def test_points_have_names(opened):
    tab = opened()
    assert (
        tab.ask("[...document.querySelectorAll('circle.slow title')].map(t => t.textContent)[0]") == "b10.jpg: slow, 10 B, 3 s"
    )
    boxes = tab.ask("[...document.querySelectorAll('circle')].map(c => c.getBoundingClientRect()).map(b => [b.x, b.width])")
    assert len(boxes) > 50 and all(x >= 0 and width >= 5 for x, width in boxes)
