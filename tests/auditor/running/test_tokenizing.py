import pytest

from fastfeed.auditor.running.tokenizing import name_of, tokenizer_of
from fastfeed.errors import UsageError


class Encoder:
    """As those of tiktoken: it cannot be called."""

    def encode(self, text):
        return text.split()


class Pretrained:
    """As those of transformers."""

    name_or_path = "bert-base-cased"

    def __call__(self, text):
        return {"input_ids": text.split()}


def test_what_can_be_called_or_encodes(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text("def words(text):\n    return text.split()\n")
    assert tokenizer_of(None) is None
    assert tokenizer_of(str.split) is str.split
    for given in (Encoder(), f"{path}:words", "shlex:split"):
        tokenizer = tokenizer_of(given)
        assert tokenizer is not None and tokenizer("one two") == ["one", "two"]


@pytest.mark.parametrize("given", [7, "nothing of the kind", "shlex:nothing", "math:pi", Encoder])
def test_what_is_no_tokenizer(given):
    with pytest.raises(UsageError):
        tokenizer_of(given)


def test_each_has_a_name():
    assert [name_of(one) for one in (None, "shlex:split", Pretrained())] == [None, "shlex:split", "bert-base-cased"]
    for given, name in ((test_each_has_a_name, "test_each_has_a_name"), (Encoder(), "Encoder")):
        assert str(name_of(given)).endswith(f"test_tokenizing.{name}")
