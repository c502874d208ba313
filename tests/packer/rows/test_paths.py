from hypothesis import given
from hypothesis import strategies as st

from fastfeed.media import NOT_AN_IMAGE
from fastfeed.packer.rows.paths import distinct_sources
from fastfeed.packer.rows.record import RowRecord


def record_of(*samples):
    """Of (key, [(field, source), ...]); a field cls is the packer's own."""
    record = RowRecord()
    for key, members in samples:
        for name, source in members:
            record.add_member(name, source, offset=0, size_bytes=0, xxh3=0, probe=NOT_AN_IMAGE, made=name == "cls")
        record.add_sample(key, len(members), None, None)
    return record


def paths(*samples):
    return distinct_sources([record_of(sample) for sample in samples])


def test_own_paths_are_kept():
    assert paths(("k1", [("cls", ""), ("jpg", "cat/1.jpg"), ("txt", "")]), ("k2", [("cls", ""), ("jpg", "cat/2.jpg")])) == [
        "", "cat/1.jpg", "k1.txt", "", "cat/2.jpg",
    ]  # fmt: skip


def test_without_any_path_they_are_made():
    assert paths(("a/1", [("jpg", ""), ("txt", "")])) == ["a/1.jpg", "a/1.txt"]


def test_no_path_is_used_twice():
    assert paths(("1", [("jpg", "x.jpg")]), ("2", [("jpg", "x.jpg")])) == ["1.jpg", "2.jpg"]
    assert paths(("1", [("jpg", "2.jpg")]), ("2", [("jpg", "")])) == ["1.jpg", "2.jpg"]
    assert paths(("1", [("jpg", "1.jpg")]), ("2", [("jpg", "2.jpg")])) == ["1.jpg", "2.jpg"]


def test_no_path_is_a_folder_of_another():
    assert paths(("1", [("jpg", "a")]), ("2", [("jpg", "a/b.jpg")])) == ["1.jpg", "a/b.jpg"]
    assert paths(("1", [("jpg", "")]), ("2", [("jpg", "1.jpg/b.jpg")])) == ["1.jpg", "2.jpg"]
    assert paths(("a/1", [("jpg", "")]), ("2", [("jpg", "a")])) == ["a/1.jpg", "2.jpg"]


PATHS = st.sampled_from(["", "a", "b", "a/b", "a/b/c", "1.jpg", "2.jpg", "1.jpg/a", "a/1.jpg", "a/1.txt/x", "k.d/e.jpg"])
MEMBERS = st.lists(st.tuples(st.sampled_from(["jpg", "txt", "cls"]), PATHS), min_size=1, max_size=3, unique_by=lambda m: m[0])


@given(st.dictionaries(st.sampled_from(["1", "2", "a/1", "a/b", "b"]), MEMBERS, min_size=1))
def test_whatever_the_paths_each_member_has_a_place_of_its_own(samples):
    records = [record_of((key, [(name, "" if name == "cls" else path) for name, path in sorted(members)]))
               for key, members in samples.items()]  # fmt: skip
    found = distinct_sources(records)
    names = [(key, name) for key, members in samples.items() for name, _ in sorted(members)]
    assert [path == "" for path in found] == [name == "cls" for _, name in names]
    written = [path for path in found if path]
    assert len(set(written)) == len(written)
    folders = {path[:at] for path in written for at in range(len(path)) if path[at] == "/"}
    assert not folders & set(written)
