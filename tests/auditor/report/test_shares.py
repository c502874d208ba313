import re

from reporting import Reader

from fastfeed.auditor.report.gather import FINE, FLAGGED, SLOW, Share
from fastfeed.auditor.report.shares import shares

GROUPS = {SLOW: Share(2, 0, 6.2), FLAGGED: Share(), FINE: Share(998, 0, 13.8)}


def rows(table):
    """Name, share of samples, share of time, of each row."""
    found = re.findall(r'<th scope="row">(.*?)</th>.*?<span>(.*?)</span>.*?<span>(.*?)</span>', table)
    return [(Reader(name).words, samples, time) for name, samples, time in found]


def test_few_samples_may_take_much_time():
    table = shares(GROUPS, {"JPEG": Share(1000, 0, 20.0)})
    assert rows(table) == [("slow or oversize", "0.2 %", "31 %"), ("not flagged", "100 %", "69 %")]
    assert '<rect width="31.000%" height="10" rx="2" class="slow">' in table
    assert '<td class="number">3.1 s</td>' in table


def test_formats_where_there_are_several_and_the_last_in_one():
    formats = {f"F{number}": Share(10, 0, float(number)) for number in range(1, 13)} | {"unknown": Share(5)}
    found = rows(shares(GROUPS, formats))[2:]
    assert [name for name, _, _ in found] == [*(f"format F{number}" for number in range(12, 4, -1)), "format other formats"]
    assert found[-1][1] == "4 %"


def test_names_are_escaped():
    table = shares(GROUPS, {"<b>": Share(1, 0, 1.0), "JPEG": Share(1, 0, 1.0)})
    assert "<b>" not in table and "&lt;b&gt;" in table


def test_no_time():
    assert rows(shares({FINE: Share(3)}, {})) == [("not flagged", "100 %", "0 %")]
