import pytest

from fastfeed.auditor.finding import Code, Finding, Severity, catalogue, worst

CUT = Code("cut", Severity.ERROR, "The end is missing", "Fetch it again.")
WIDE = Code("wide", Severity.INFO, "Wider than others", "Nothing.")


def test_a_finding_as_json():
    assert Finding(CUT, "12 of 30 rows").as_json() == {"code": "cut", "severity": "error", "text": "12 of 30 rows"}


def test_the_worst_counts():
    assert worst([]) is None
    assert worst([Finding(WIDE, ""), Finding(CUT, "")]) is Severity.ERROR


def test_names_are_unique():
    assert catalogue(CUT, WIDE) == {"cut": CUT, "wide": WIDE}
    with pytest.raises(ValueError, match="one name: cut"):
        catalogue(CUT, CUT)
