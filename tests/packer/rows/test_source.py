from fastfeed.packer.rows.source import Reading, RowFacts


def test_rows_have_names_or_numbers():
    facts = RowFacts(count=2, source_bytes=1, exact=True, files=1, layout="x", identity={})
    assert facts.name(1) == "sample 1"
    named = RowFacts(count=2, source_bytes=1, exact=True, files=1, layout="x", identity={}, names=["a", "b"])
    assert named.name(1) == "b"


def test_what_a_worker_reads_is_known_to_its_parent():
    reading = Reading()
    assert reading.told() == ""
    reading.note(5, 5)
    assert reading.told() == "it was reading sample 5"
    reading.note(5, 7)
    assert reading.told() == "it was reading samples from 5 to 7"
    reading.close()
