import random

import xxhash

from fastfeed.auditor.looking import setcodes
from fastfeed.auditor.looking.copies import Copies, Copy
from fastfeed.auditor.looking.look import look


def digest(text):
    return look(text.encode(), "a.txt").digest


def collected(rows):
    copies = Copies()
    for number, (content, label, split) in enumerate(rows):
        copies.add(number, digest(content), label, split)
    return copies.found()


def test_the_worst_come_first():
    rows = [
        ("x", "cat", "train"), ("x", "cat", "train"), ("y", "cat", "train"), ("y", "dog", "train"),
        ("z", "cat", "train"), ("z", "cat", "test"), ("only", "cat", "train"),
    ]  # fmt: skip
    assert collected(rows) == [
        Copy(setcodes.COPY_IN_SPLITS, (4, 5)), Copy(setcodes.COPY_IN_CLASSES, (2, 3)), Copy(setcodes.COPY, (0, 1)),
    ]  # fmt: skip


def test_each_copy_is_told_of_the_others():
    names = [f"{number}.jpg" for number in range(6)]
    found = Copy(setcodes.COPY_IN_CLASSES, (0, 1, 2, 3, 4)).findings(names.__getitem__)
    assert found[1].text == "the same bytes as 0.jpg, 2.jpg, 3.jpg and 1 more"
    assert len(found) == 5


def test_the_first_of_plain_copies_is_none():
    found = Copy(setcodes.COPY, (3, 7)).findings(str)
    assert {sample: finding.text for sample, finding in found.items()} == {7: "the same bytes as 3"}


def test_samples_without_classes_and_splits():
    assert collected([("x", None, None), ("x", None, None)]) == [Copy(setcodes.COPY, (0, 1))]


def test_empty_samples_are_not_compared():
    assert collected([("", None, None), ("", None, None)]) == []
    assert collected([]) == []


def test_numbers_may_have_gaps_and_come_in_any_order():
    copies = Copies()
    for number in (90, 7, 30):
        copies.add(number, digest("x"))
    assert copies.found() == [Copy(setcodes.COPY, (7, 30, 90))]


def test_many_samples_against_a_plain_count():
    source = random.Random(0)
    contents = [source.randrange(3000) for _ in range(4000)]
    copies = Copies()
    for number, content in enumerate(contents):
        copies.add(number, xxhash.xxh3_128_hexdigest(b"%d" % content))
    found = {copy.samples for copy in copies.found()}
    expected = {tuple(n for n, other in enumerate(contents) if other == content) for content in set(contents)}
    assert found == {group for group in expected if len(group) > 1}
