"""archive/README.md: each MUST has an id, and each id has a test that names it."""

import re

from helpers import ROOT

TEXT = (ROOT / "fastfeed" / "archive" / "README.md").read_text()
IDS = re.findall(r"\[([A-Z]\d+), (?:open|use|verify|writer)\]", TEXT)


def test_ids_are_given_once():
    assert len(IDS) > 50
    assert len(set(IDS)) == len(IDS)


def test_each_id_that_is_mentioned_exists():
    assert set(re.findall(r"\[([A-Z]\d+)\]", TEXT)) <= set(IDS)


def test_each_paragraph_with_a_must_has_an_id():
    _, _, body = TEXT.partition("## §1")
    for paragraph in re.split(r"\n(?=- )|\n\n", body):
        if "MUST" in paragraph:
            assert re.search(r"\[[A-Z]\d+, ", paragraph), paragraph


def test_each_id_is_named_by_a_test():
    tests = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("*.py"))
    named = {found.upper() for found in re.findall(r"(?<![A-Za-z0-9])([A-Z]\d+|(?<=_)[a-z]\d+)(?![A-Za-z0-9])", tests)}
    assert not sorted(set(IDS) - named), "these rules of archive/README.md have no test that names them"


def test_the_sections_that_the_code_refers_to_exist():
    used = {
        section
        for path in (ROOT / "fastfeed" / "archive").glob("*.py")
        for section in re.findall(r"§[\d.]*\d", " ".join(re.findall(r"README\.md §[\d.]*\d(?: and §\d)?", path.read_text())))
    }
    assert used >= {"§2", "§3", "§4", "§4.2", "§5"}
    assert used <= set(re.findall(r"^#+ (§[\d.]*\d) ", TEXT, re.MULTILINE))
