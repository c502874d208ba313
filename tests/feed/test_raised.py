import pytest
from loading import TwoArguments

from fastfeed.errors import DecodeError
from fastfeed.feed.fetch import Failure
from fastfeed.feed.raised import raised


def failure(error, index=3, stage="fetch", worker=1):
    try:
        raise error
    except type(error) as caught:
        return Failure.of(caught, index, stage, worker)


@pytest.mark.parametrize("error", [ValueError("no"), KeyError("no"), FileNotFoundError("no"), MemoryError("no")], ids=repr)
def test_it_is_of_the_type_that_was_raised_and_names_the_sample(error):
    found = raised(failure(error), [], 7)
    assert type(found) is type(error)
    text = str(found)
    assert f"Caught {type(error).__name__} in DataLoader worker process 1, sample 3 of batch 7" in text
    assert "Original Traceback" in text and "\n" in text and "test_raised.py" in text


def test_a_type_that_wants_other_arguments_is_named_in_a_runtime_error():
    found = raised(failure(TwoArguments(5, "why")), [], 0)
    assert type(found) is RuntimeError and "TwoArguments" in str(found) and "5 why" in str(found)


def test_the_end_of_an_iteration_is_no_end_of_the_epoch():
    assert type(raised(failure(StopIteration("x")), [], 0)) is RuntimeError


def test_ours_keep_where_expected_and_got():
    found = raised(failure(DecodeError("broken", shard="a.tar", start=512, expected="JPEG", got="PNG", hint="Mend it.")), [], 2)
    assert isinstance(found, DecodeError)
    assert (found.shard, found.start, found.expected, found.got) == ("a.tar", 512, "JPEG", "PNG")
    assert "sample 3 of batch 2" in str(found) and any("Traceback" in note for note in found.__notes__)


def test_in_the_main_process_the_original_is_the_cause():
    original = ValueError("no")
    found = raised(failure(original, worker=-1), [], 0, original)
    assert found.__cause__ is original and "in the main process" in str(found)
    odd = TwoArguments(1, "x")
    assert raised(failure(odd, worker=-1), [], 0, odd) is odd
    assert "sample 3 of batch 0" in odd.__notes__[0]


def test_in_the_main_process_a_type_that_nobody_finds_is_raised_itself():
    """As torch does: who has it may catch it."""

    class Local(ValueError):
        """Of a function."""

    original = Local("no")
    assert raised(failure(original, worker=-1), [], 0, original) is original
    assert "sample 3 of batch 0" in original.__notes__[0]
    ended = StopIteration("x")
    assert type(raised(failure(ended, worker=-1), [], 0, ended)) is RuntimeError


def test_a_batch_as_a_whole():
    assert "batch 4 (collate of 1 samples)" in str(raised(failure(ValueError("x"), None, "collate"), [], 4))
