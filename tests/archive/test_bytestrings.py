"""Many byte strings close together: a sequence like any other."""

from hypothesis import given
from hypothesis import strategies as st

from fastfeed.archive.bytestrings import ByteStrings

LISTS = st.lists(st.binary(max_size=5), max_size=6)


@given(LISTS, LISTS, LISTS)
def test_as_a_list(first: list[bytes], second: list[bytes], third: list[bytes]):
    found = ByteStrings(first)
    found.extend(iter(second))
    found.extend(ByteStrings(third))
    whole = first + second + third
    assert found == whole
    assert found == ByteStrings(whole)
    assert (list(found), len(found), found[1:4]) == (whole, len(whole), whole[1:4])
    assert [found[at] for at in range(-len(whole), len(whole))] == whole * 2
    assert bytes(found.data) == b"".join(whole)
    assert found.starts[-1] == len(found.data)
    assert found != [*whole, b"x"]
