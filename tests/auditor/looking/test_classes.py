from fastfeed.auditor.looking import setcodes
from fastfeed.auditor.looking.classes import findings_of


def of(counts, empty=()):
    return [(finding.code, finding.text) for finding in findings_of(counts, empty)]


def test_even_classes_are_nothing_to_talk_about():
    assert of({(None, "cat"): 100, (None, "dog"): 90}) == []
    assert of({}) == []


def test_empty_classes():
    assert of({("train", "cat"): 5}, [("train", "dog")]) == [(setcodes.EMPTY_CLASS, "dog in train")]
    assert of({(None, "cat"): 5, (None, "dog"): 0}) == [(setcodes.EMPTY_CLASS, "dog")]


def test_tiny_classes():
    (found,) = of({(None, "cat"): 1000, (None, "dog"): 900, (None, "cow"): 12})
    assert found == (setcodes.TINY_CLASS, "cow: 12 samples; usual are 900")
    (found,) = of({(None, "cat"): 50, (None, "dog"): 60, (None, "cow"): 1})
    assert found[1].startswith("cow: 1 sample;")


def test_few_samples_in_all_classes_are_a_small_set():
    assert of({(None, "cat"): 1, (None, "dog"): 3}) == []


def test_classes_that_a_split_has_not():
    counts = {("train", "cat"): 9, ("train", "dog"): 9, ("test", "dog"): 9}
    assert of(counts) == [(setcodes.CLASS_IN_ONE_SPLIT, "test has no cat")]
    many = {("train", f"c{number}"): 9 for number in range(9)} | {("test", "c0"): 9}
    assert of(many)[0][1] == "test has no c1, c2, c3, c4, c5 and 3 more"


def test_folders_of_programs():
    codes = [code for code, _ in of({(None, ".ipynb_checkpoints"): 1, (None, "__MACOSX"): 4, (None, "cat"): 9})]
    assert codes == [setcodes.JUNK_CLASS] * 2


def test_names_that_are_probably_one():
    names = ["Golden Retriever", "golden_retriever", "cat", "c", "c++"]
    (found,) = of({(None, name): 9 for name in names})
    assert found == (setcodes.CLASSES_ALIKE, "'Golden Retriever' and 'golden_retriever'")
