import re
from itertools import pairwise

import pytest
from reporting import Reader, flagged, sample

from fastfeed.auditor.judging.codes import SLOW
from fastfeed.auditor.report.gather import MOST_POINTS, Gathered
from fastfeed.auditor.report.scatter import scatter
from fastfeed.auditor.running.codes import FAILS


def drawn(*records):
    gathered = Gathered()
    for record in records:
        gathered.add(record)
    return scatter(gathered.points)


def dots(figure):
    return [
        (attributes["class"], float(attributes["cx"][:-1]), float(attributes["cy"][:-1]))
        for tag, attributes in Reader(figure).tags
        if tag == "circle"
    ]


def test_a_point_for_each_sample_where_it_belongs():
    found = dots(
        drawn(
            sample(0, seconds=0.001),
            sample(1, seconds=0.1, size_bytes=100_000),
            flagged(2, SLOW, seconds=9.0),
            flagged(3, FAILS),
        )
    )
    assert [name for name, _, _ in found] == ["fine", "fine", "flagged", "slow"]
    (_, small_x, small_y), (_, large_x, large_y), _, (_, slow_x, slow_y) = found
    assert small_x < large_x and slow_x == small_x
    assert 100 > small_y > large_y > slow_y > 0


def test_names_of_points():
    figure = drawn(sample(0, path="fine.jpg"), flagged(1, SLOW, FAILS, path='</title>"\udcff.jpg', seconds=2.0))
    assert "<title>&lt;/title&gt;&quot;\\udcff.jpg: fails, slow, 1000 B, 2 s</title>" in figure
    assert "<title>fine.jpg, 1000 B, " in figure and "fine.jpg:" not in figure


@pytest.mark.parametrize("largest", [1 << 26, 3 << 25])
def test_the_last_label_ends_at_its_tick_where_that_is_near_the_edge(largest):
    figure = drawn(sample(0, size_bytes=1 << 20), sample(1, size_bytes=largest))
    below = [attributes for tag, attributes in Reader(figure).tags if tag == "text" and attributes["y"] == "100%"]
    anchors = {attributes["text-anchor"]: float(attributes["x"][:-1]) > 92 for attributes in below}
    assert anchors in ({"middle": False, "end": True}, {"middle": False})
    assert all((attributes["text-anchor"] == "end") == (float(attributes["x"][:-1]) > 92) for attributes in below)


def test_a_million_samples_are_no_larger_than_a_few_thousand():
    figure = drawn(*(sample(at, seconds=0.001 + at / 1e6, size_bytes=1000 + at) for at in range(4000)), flagged(4000, SLOW))
    assert len(dots(figure)) == MOST_POINTS + 1
    assert f"Drawn are {MOST_POINTS:,} of the 4,000 samples that are not flagged, chosen at random." in figure
    assert "that are slow" not in figure and len(figure) < 300_000


def test_without_sizes_by_position():
    figure = drawn(*(sample(at, size_bytes=None) for at in range(11)))
    places = [x for _, x, _ in dots(figure)]
    steps = [round(high - low, 1) for low, high in pairwise(places)]
    assert places == sorted(places) and len(set(steps)) == 1
    assert "against its position" in figure and "by position" in figure


def test_nothing_to_draw():
    record = sample(0)
    record.times = {}
    assert drawn(record) == '<p class="quiet">No times are known.</p>'


def test_letters_and_lines_need_no_script_and_no_style():
    figure = drawn(sample(0), sample(1, size_bytes=10**6, seconds=4.0))
    assert not re.search(r"style=|<script|on\w+=", figure)
    assert re.findall(r"<text[^>]*>([^<]*)</text>", figure)[0] == "1 KiB"
