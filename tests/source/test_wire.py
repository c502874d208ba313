import io
import json

from hypothesis import given, settings
from hypothesis import strategies as st

from fastfeed.errors import SourceUnreadable
from fastfeed.source import wire
from fastfeed.source.wire import Message, Unread, encode, read

texts = st.text(st.sampled_from('a\n\0é\udcff"\\'), max_size=5)
heads = st.dictionaries(
    st.sampled_from(["order", "event", "root", "n"]), texts | st.integers(0, 2**64 - 1) | st.lists(texts), max_size=4
)
columns = st.lists(st.binary(max_size=30), max_size=4)
messages = st.lists(st.builds(Message, heads, columns), max_size=4)


@settings(deadline=None)
@given(messages, st.data())
def test_messages_survive_any_cut(sent, data):
    raw = b"".join(encode(*message) for message in sent)
    got: list[Message] = []
    unread, at = Unread(), 0
    while at < len(raw):
        size = data.draw(st.integers(1, 40))
        got.extend(unread.feed(raw[at : at + size]))
        at += size
    assert got == sent


@settings(deadline=None)
@given(messages, st.data())
def test_a_pipe_that_ends_within_a_message_gives_those_before_it(sent, data):
    raw = [encode(*message) for message in sent]
    end = data.draw(st.integers(0, len(b"".join(raw))))
    file = io.BytesIO(b"".join(raw)[:end])
    got: list[Message] = []
    while (message := read(file)) is not None:
        got.append(message)
    whole = sum(len(b"".join(raw[: count + 1])) <= end for count in range(len(raw)))
    assert got == sent[:whole]


def test_an_error_passes_the_pipe():
    error = SourceUnreadable("it is gone", path="/x", sample=3, expected=7, got=b"a", hint="Look.")
    found = wire.error_of(json.loads(json.dumps(wire.error_head(error))))
    assert type(found) is SourceUnreadable
    assert (found.message, found.path, found.sample, found.hint) == ("it is gone", "/x", 3, "Look.")
    assert (found.expected, found.got) == (7, "b'a'")
