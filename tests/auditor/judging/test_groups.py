"""Who is compared with whom."""

from fastfeed.auditor.judging.groups import FEWEST, grouped, notes_of
from fastfeed.auditor.judging.ledger import Ledger
from fastfeed.auditor.record import SampleRecord, StageTime


def table_of(*kinds):
    """Kinds: format, how many, bytes, side in pixels."""
    ledger = Ledger()
    for name, count, size, side in kinds:
        for _ in range(count):
            record = SampleRecord(ledger.records, format=name, size_bytes=size, width=side, height=side)
            record.times = {"load": StageTime(1, 1, 0)}
            ledger.add(record)
    return ledger.table()


def test_each_format_by_itself():
    groups = grouped(table_of(("JPEG", FEWEST, 1000, 100), ("PNG", FEWEST, 5000, 100)))
    assert {group.name: len(group.rows) for group in groups} == {"JPEG": FEWEST, "PNG": FEWEST}
    assert notes_of(groups) == []


def test_a_rare_format_goes_to_the_nearest_in_size_and_makes_no_line():
    table = table_of(("JPEG", 40, 1000, 100), ("PNG", 50, 90_000, 900), ("JPEG2000", 3, 80_000, 800), ("GIF", 2, 900, 90))
    groups = {group.name: group for group in grouped(table)}
    assert notes_of(list(groups.values())) == [
        "formats of fewer than 30 samples are compared with the nearest in size: GIF (2) with JPEG; JPEG2000 (3) with PNG"
    ]
    assert groups["PNG"].guests == {"JPEG2000": 3}
    assert groups["JPEG"].guests == {"GIF": 2}
    assert groups["JPEG"].hosts("GIF") and not groups["JPEG"].hosts("JPEG")
    assert (len(groups["PNG"].rows), len(groups["PNG"].base)) == (53, 50)
    assert sorted(row for group in groups.values() for row in group.rows.tolist()) == list(range(table.samples))


def test_unknown_sizes_are_near_to_all():
    table = table_of(("JPEG", 40, 1000, 100), ("PNG", 50, 90_000, 900), (None, 3, None, 1))
    assert {group.name: list(group.guests) for group in grouped(table)}["JPEG"] == ["samples of unknown format"]
    table = table_of(("JPEG", 40, None, 100), ("PNG", 50, None, 900), ("GIF", 1, 10, 900))
    assert {group.name: list(group.guests) for group in grouped(table)}["PNG"] == ["GIF"]


def test_all_rare_are_one_group():
    (group,) = grouped(table_of(("JPEG", 5, 1000, 100), ("PNG", 4, 5000, 100)))
    assert group.name == "all formats together"
    assert len(group.rows) == len(group.base) == 9
    (note,) = notes_of([group])
    assert note == "formats of fewer than 30 samples only, so all are compared with one another: JPEG (5), PNG (4)"
    assert not group.hosts("JPEG")


def test_one_rare_format_alone_is_itself():
    (group,) = grouped(table_of(("JPEG", 5, 1000, 100)))
    assert (group.name, group.guests) == ("JPEG", {})


def test_nothing():
    assert grouped(Ledger().table()) == []
