"""fastfeed/errors.py: the tree, its exit codes, and what an error says."""

import inspect
import pickle
import re

import pytest

from fastfeed import errors
from fastfeed.errors import FastfeedError, IndexDamaged, NotADataset, ShardDamaged, UsageError

TREE = [found for _, found in inspect.getmembers(errors, inspect.isclass) if issubclass(found, FastfeedError)]
FACTS = {
    "path": "/data/x", "shard": "train-000003.tar", "sample": 7, "key": "cat/1", "source": "cat/1 (2).jpg",
    "member": "cat/1.jpg", "start": 512, "stop": 600, "expected": "88 bytes", "got": "80 bytes", "hint": "Copy it again.",
}  # fmt: skip


def test_the_docstring_draws_the_tree():
    drawn = {}
    stack: list[tuple[int, str]] = []
    for line in (errors.__doc__ or "").splitlines():
        match = re.fullmatch(r"( +)([A-Z]\w+)(?: \(\w+\))?( +(\d)?.*)?", line)
        if match is None:
            continue
        depth = len(match[1])
        while stack and stack[-1][0] >= depth:
            stack.pop()
        drawn[match[2]] = (stack[-1][1] if stack else None, match[4])
        stack.append((depth, match[2]))
    real = {
        found.__name__: (None if found is FastfeedError else found.__bases__[0].__name__, found.exit_code) for found in TREE
    }
    assert {name: parent for name, (parent, _) in drawn.items()} == {name: parent for name, (parent, _) in real.items()}
    for name, (_, code) in drawn.items():
        if code is not None:
            assert int(code) == real[name][1], name


def test_each_branch_has_its_own_exit_code():
    codes = {found.__name__: found.exit_code for found in TREE if FastfeedError in found.__bases__}
    assert sorted(codes.values()) == [2, 3, 4, 5, 6, 7, 8]


def test_a_leaf_has_the_code_of_its_branch_but_where_nothing_is():
    """A script tells "not packed yet" from "damaged" by the code."""
    for found in TREE:
        parent = found.__bases__[0]
        if parent in TREE and parent is not FastfeedError:
            assert found.exit_code == (9 if found is NotADataset else parent.exit_code), found.__name__
    assert [found for found in TREE if found.exit_code == 9] == [NotADataset]


def test_a_usage_error_is_a_value_error():
    with pytest.raises(ValueError, match="shards counts from 1: got 0"):
        raise UsageError("shards counts from 1", got=0)


def test_the_text_says_what_where_expected_got_and_what_to_do():
    text = str(ShardDamaged("a shard ends too early", **FACTS))  # type: ignore[arg-type]
    assert text == (
        "a shard ends too early (/data/x, shard train-000003.tar, sample 7, key 'cat/1', source 'cat/1 (2).jpg', "
        "member 'cat/1.jpg', bytes [512, 600)): expected 88 bytes, got 80 bytes. Copy it again."
    )


@pytest.mark.parametrize(
    ("facts", "text"),
    [
        ({}, "it broke"),
        ({"got": 3}, "it broke: got 3"),
        ({"expected": 0}, "it broke: expected 0"),
        ({"start": 0}, "it broke (bytes [0, ...))"),
        ({"sample": 0}, "it broke (sample 0)"),
        ({"source": "a\n.jpg"}, "it broke (source 'a\\n.jpg')"),
        ({"hint": "Mend it."}, "it broke. Mend it."),
    ],
)
def test_facts_that_are_not_known_are_not_said(facts, text):
    assert str(FastfeedError("it broke", **facts)) == text


@pytest.mark.parametrize("kind", TREE, ids=lambda kind: kind.__name__)
def test_an_error_survives_a_process_border(kind):
    before = kind("it broke", **FACTS)
    before.add_note("in worker 3")
    after = pickle.loads(pickle.dumps(before))
    assert type(after) is kind
    assert str(after) == str(before)
    assert {name: getattr(after, name) for name in FACTS} == FACTS
    assert after.__notes__ == ["in worker 3"]


def test_facts_are_attributes():
    error = IndexDamaged("it broke", path="/x", start=1)
    assert (error.message, error.path, error.start, error.stop, error.shard) == ("it broke", "/x", 1, None, None)


def test_a_warning_points_at_the_line_outside_of_the_package(tmp_path):
    (tmp_path / "a.tar").write_bytes(b"")
    with pytest.warns(errors.FastfeedWarning, match="^look here$") as caught:
        errors.warn("look here")
    assert caught[0].filename == __file__
