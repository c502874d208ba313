import io
import json
import math
import os

import numpy as np
import pytest
import torch
from helpers import encoded, photo
from hypothesis import given
from hypothesis import strategies as st

from fastfeed.archive.shard import LEGAL_FIELD, MAX_FIELD_BYTES
from fastfeed.config import row_config
from fastfeed.errors import UsageError
from fastfeed.packer.rows.values import Names, safe_path

JPEG, PNG = encoded(photo(1)), encoded(photo(2), "PNG")
WAV, FLAC = b"RIFF\x24\0\0\0WAVEfmt ", b"fLaC\0\0\0\x22"


def settled(*rows, label=None, declared=(), **options):
    names = Names.of(row_config(options), label)
    names.settle(rows, declared)
    return names


def told(*rows, at=0, **options):
    """Members as bytes by field, scalars and label of one row, fields settled from all."""
    found = settled(*rows, **options).encode_row(rows[at])
    return {member.field: member.data for member in found.members}, found.scalars, found.label


# ------------------------------------------------------------------------------------------------------- which field


@pytest.mark.parametrize(
    ("row", "fields"),
    [
        ({"image": JPEG}, {"image": "jpg"}),
        ({"image": JPEG, "mask": PNG}, {"image": "jpg", "mask": "png"}),
        ({"a": JPEG, "b": JPEG}, {"a": "jpg", "b": "b.jpg"}),
        ({"left eye": PNG, "left_eye": PNG, "x": PNG}, {"left eye": "png", "left_eye": "left_eye.png", "x": "x.png"}),
        ({"a b": PNG, "a_b": PNG, "a?b": PNG, "a b1.png": PNG}, {"a b": "png", "a_b": "a_b.png", "a?b": "a_b1.png"}),
        ({"jpg": JPEG, "mask.png": PNG, "txt": "a text"}, {"jpg": "jpg", "mask.png": "mask.png", "txt": "txt"}),
        ({"JPG": JPEG}, {"JPG": "jpg"}),
        ({"audio": WAV, "other": FLAC}, {"audio": "wav", "other": "flac"}),
        ({"audio": {"bytes": b"????", "path": "a/1.OPUS"}}, {"audio": "opus"}),
        ({"image": {"bytes": JPEG, "path": "a/1.png"}}, {"image": "jpg"}),  # by content first
        ({"x": {"bytes": b"?", "path": "1." + "e" * 31}}, {"x": "bin"}),
        ({"x": b"????", "y": {"bytes": b"?", "path": None}}, {"x": "bin", "y": "y.bin"}),
        ({"features": np.zeros(3), "other": torch.zeros(2)}, {"features": "npy", "other": "other.npy"}),
        ({"caption": "text", "title": "other"}, {"caption": "txt"}),
        ({"title": "the only text"}, {"title": "txt"}),
        ({"title": "x", "name": "y"}, {}),
        ({"text": "x", "prompt": "y", "txt": "z"}, {"txt": "txt"}),
        ({"n": 1, "list": [1], "b": True}, {}),
        ({"json": {"a": 1}, "n": 5}, {"json": "json"}),
        ({"Ünïcode Näme" + "x" * 40: JPEG, "jpg": JPEG}, {"jpg": "jpg"}),
    ],
    ids=map(str, range(20)),
)
def test_fields(row, fields):
    found = settled(row)
    assert {name: found.fields[name] for name in fields} == fields
    assert len(found.fields) == sum(name in found.fields for name in row)
    assert all(LEGAL_FIELD.fullmatch(name) and len(name) <= MAX_FIELD_BYTES for name in found.fields.values())
    assert found.max_field_bytes == max(map(len, (*found.fields.values(), "row.json", "cls")))


NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=40) | st.sampled_from(
    ["jpg", "JPG", "a.jpg", "a b", "a_b", "a?b"]
)


@given(st.dictionaries(NAMES, st.sampled_from([JPEG, PNG, WAV, b"?", np.zeros(2)]), max_size=12))
def test_any_names_give_different_legal_fields(row):
    if sum(name.lower() == other.lower() and name != other for name in row for other in row):
        return  # a field of both names: refused, which another test shows
    row.pop("cls", None)
    found = settled(row).encode_row(row)
    fields = [member.field for member in found.members]
    assert sorted(set(fields)) == fields and len(fields) == len(row)
    assert all(LEGAL_FIELD.fullmatch(name) and len(name) <= MAX_FIELD_BYTES for name in fields)
    assert sorted(member.data for member in found.members) == sorted(
        value if isinstance(value, bytes) else settled({"x": value}).encode_row({"x": value}).members[0].data
        for value in row.values()
    )


def test_reasons_are_told():
    why = settled({"image": JPEG, "caption": "x", "score": 0.5, "jpg": JPEG}).why
    assert why == ["column 'image' is field image.jpg", "column 'caption' is field txt (the only text)", "typed columns: score"]
    assert settled({"caption": "x", "title": "y"}).why[0] == "column 'caption' is field txt (by its name)"


def test_two_names_of_one_field_are_refused():
    with pytest.raises(UsageError, match=r"two columns of a sample become field jpg.*Rename one of them"):
        told({"jpg": JPEG, "JPG": JPEG})


# ------------------------------------------------------------------------------------------------- what is in them


def test_values_are_told_apart():
    members, scalars, label = told(
        {"image": JPEG, "caption": "ä", "score": 0.5, "n": 3, "ok": True, "boxes": [[1, 2]], "none": None, "cls": 7}
    )
    rest = {"score": 0.5, "n": 3, "ok": True, "boxes": [[1, 2]]}
    assert members.pop("json") == json.dumps(rest).encode()
    assert members == {"jpg": JPEG, "txt": "ä".encode()}
    assert (scalars, label) == ({"score": 0.5, "n": 3, "ok": True}, 7)


VALUES = st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None), max_size=20)


@given(st.dictionaries(st.sampled_from("abcdefgh"), VALUES, min_size=2))
def test_values_of_a_row_come_back_from_its_json(row):
    """Whatever is no member: numbers beyond 64 bits, NaN, infinities, lone surrogates, each with its type."""
    members, _, _ = told({"zz": "a text", "zzz": "another", **row})
    assert repr({**json.loads(members["json"])}) == repr({"zz": "a text", "zzz": "another", **row})


def test_the_rest_makes_room_for_a_json_of_the_samples_own():
    members, _, _ = told({"json": b"[1]", "n": 5})
    assert members == {"json": b"[1]", "row.json": b'{"n": 5}'}
    members, _, _ = told({"json": {"boxes": []}, "n": 5})
    assert members == {"json": b'{"boxes": []}', "row.json": b'{"n": 5}'}
    members, _, _ = told({"n": 5}, {"json": [1], "n": 5}, at=1)
    assert members == {"json": b"[1]", "row.json": b'{"n": 5}'}
    assert told({"json": '{"a": 1}'})[0] == {"json": b'{"a": 1}'}
    with pytest.raises(UsageError, match="holds text that is no JSON"):
        told({"json": "words"})


def test_media_keep_their_path():
    found = settled({"image": {"bytes": JPEG, "path": "/data/../cat/./1.jpg"}}).encode_row(
        {"image": {"bytes": JPEG, "path": "/data/../cat/./1.jpg"}}
    )
    assert found.members == (("jpg", JPEG, "data/cat/1.jpg"),)


@pytest.mark.parametrize(
    ("path", "expected"),
    [("a/b.jpg", "a/b.jpg"), ("/a/b", "a/b"), ("../../etc/passwd", "etc/passwd"), ("..", ""), ("", ""), ("a\0b", ""),
     ("\ud800", ""), ("\udcff.jpg", "\udcff.jpg"), ("x" * 256, ""), ("a//./b/", "a/b")],
)  # fmt: skip
def test_safe_paths(path, expected):
    assert safe_path(path) == expected


def test_arrays_and_numbers_of_numpy():
    members, scalars, _ = told({"features": np.arange(3, dtype=">i2"), "score": np.float32(0.25)})
    read = {name: np.lib.format.read_array(io.BytesIO(raw)) for name, raw in members.items()}
    assert read["npy"].dtype == ">i2" and read["score.npy"].dtype == np.float32
    assert scalars == {"score": 0.25}  # a column as well


def test_images_are_stored_as_asked():
    with pytest.raises(
        UsageError, match=r"column 'image' holds a decoded image: how shall it.*encode={'image': 'png'} or 'npy'"
    ):
        told({"image": photo(1)})
    with pytest.raises(UsageError, match=r"column 'x' holds an array like an image \(uint8, \(32, 40, 3\)\)"):
        told({"x": np.zeros((32, 40, 3), np.uint8)})
    assert told({"image": photo(1)}, encode={"image": "png"})[0]["png"][:4] == b"\x89PNG"
    assert told({"mask.png": photo(1)}, encode={"mask.png": "png"})[0]["mask.png"][:4] == b"\x89PNG"
    assert told({"x": np.zeros((32, 40, 3), np.uint8)}, encode={"x": "npy"})[0]["npy"][:6] == b"\x93NUMPY"
    assert told({"mask.png": photo(1)}, encode={"mask.png": "npy"})[0]["npy"][:6] == b"\x93NUMPY"
    # what is encoded already keeps its bytes and its extension
    assert told({"image": JPEG}, encode={"image": "png"})[0] == {"jpg": JPEG}
    with pytest.raises(UsageError, match="encode names a lossless codec: png, npy: got 'jpg'"):
        told({"image": photo(1)}, encode={"image": "jpg"})
    with pytest.raises(
        UsageError, match="encode names 'imgae', and no sample that was looked at has it: expected one of image"
    ):
        told({"image": photo(1)}, encode={"imgae": "png"})


def test_an_array_is_never_named_as_an_image():
    assert list(told({"jpg": np.zeros(4)})[0]) == ["npy"]
    assert list(told({"mask.png": np.zeros(4), "npy": np.zeros(1)})[0]) == ["mask_png.npy", "npy"]


# ------------------------------------------------------------------------------------------------------- the class


@pytest.mark.parametrize(
    ("value", "label"),
    [(3, 3), (np.int64(3), 3), (torch.tensor(3), 3), ("cat", "cat"), (b"3", 3), (np.str_("cat"), "cat")],
    ids=map(str, range(6)),
)
def test_cls_is_the_class(value, label):
    members, scalars, found = told({"jpg": JPEG, "cls": value})
    assert (list(members), scalars, found) == (["jpg"], {}, label)


def test_cls_in_other_forms():
    assert told({"cls": b"3\n"})[0] == {"cls": b"3\n"}  # not as this writer would write it: carried as it is
    for value in (0.5, [1], np.zeros(3), photo(1)):
        with pytest.raises(UsageError, match=r"'cls' holds .*, and it is the name of the class"):
            told({"jpg": JPEG, "cls": value})


def test_another_column_is_the_class():
    assert told({"y": 3, "n": 4}, label="y") == ({"json": b'{"n": 4}'}, {"n": 4}, 3)
    assert told({"y": None, "n": 4}, label="y")[2] is None
    with pytest.raises(UsageError, match="column names 'z', and no sample"):
        told({"y": 3}, label="y", column=["z"])
    assert told({"y": 3, "jpg": JPEG}, label="y", column=["y"])[1] == {"y": 3}  # as a column as well, if it is asked for


# --------------------------------------------------------------------------------------------------- typed columns


def test_typed_columns_are_settled_by_the_rows_that_were_looked_at():
    rows = [{"n": 1, "long": "x" * 300, "short": "a"}, {"n": None, "list": [1], "short": "b"}, {"late": 3, "n": 5}]
    names = settled(*rows[:2])
    assert names.columns == ["n", "short"]
    assert names.encode_row(rows[2]).scalars == {"n": 5}
    assert settled(*rows, column=["long", "n"]).encode_row(rows[0]).scalars == {"n": 1, "long": "x" * 300}


def test_the_text_is_a_column_if_it_is_asked_for():
    row = {"jpg": JPEG, "caption": "a cat"}
    assert told(row)[1] == {}
    assert told(row, column="caption") == ({"jpg": JPEG, "txt": b"a cat"}, {"caption": "a cat"}, None)


def test_what_is_no_column_is_refused_as_one():
    with pytest.raises(UsageError, match="column 'jpg' holds encoded bytes, which is no typed column"):
        told({"jpg": JPEG}, column=["jpg"])
    with pytest.raises(UsageError, match="column 'a' holds a number, list or dict, which is no typed column"):
        told({"a": [1]}, column=["a"])
    assert settled({"a": None}, declared=["a"], column=["a"]).columns == ("a",)


def test_names_that_no_column_can_have():
    names = settled({"a\nb": 1, "x" * 201: 2, "": 3, "n": 4, "\udcff": 5})
    assert names.columns == ["n"] and sum("is no typed column: the index takes no such name" in why for why in names.why) == 4
    assert len(json.loads(names.encode_row({"a\nb": 1, "n": 4}).members[0].data)) == 2
    with pytest.raises(UsageError, match="a column's name is 1 to 200 bytes of UTF-8 without control characters"):
        settled({"a\nb": 1}, column=["a\nb"])


def test_what_is_not_kept_is_said():
    names = settled({"jpg": JPEG, "n": 1, "boxes": [1], "deep": {"a": 1}}, row_json=False)
    assert "not kept: boxes, deep (no row JSON, and no typed columns)" in names.why
    assert list(names.encode_row({"jpg": JPEG, "n": 1, "boxes": [1]}).members) == [("jpg", JPEG, "")]


# ------------------------------------------------------------------------------- samples that differ from each other


def test_columns_that_no_settled_row_had():
    names = settled({"jpg": JPEG})
    found = names.encode_row({"jpg": JPEG, "depth": PNG, "note": "x", "arr": np.zeros(1), "wav": WAV, "xs": [1]})
    assert [member.field for member in found.members] == ["arr.npy", "depth.png", "jpg", "json", "wav"]
    assert json.loads(found.members[3].data) == {"note": "x", "xs": [1]}


@pytest.mark.parametrize(
    ("first", "then", "match"),
    [
        (JPEG, "a/path.jpg", "column 'x' holds text, and encoded bytes in the samples that were looked at first"),
        (JPEG, 5, "holds a number, list or dict, and encoded bytes"),
        (np.zeros(2), [0, 0], "holds a number, list or dict, and an array"),
        (np.zeros(2), 0.5, "holds a number, list or dict, and an array"),
        ("text", JPEG, "holds encoded bytes, and text"),
        ("text", np.zeros(1), "holds an array, and text"),
        (np.zeros(2), photo(1), "holds a decoded image, and an array"),
    ],
    ids=map(str, range(7)),
)
def test_a_column_keeps_its_kind(first, then, match):
    names = settled({"x": first, "txt": "t"} if not isinstance(first, str) else {"x": first})
    with pytest.raises(UsageError, match=match):
        names.encode_row({"x": then})
    if not isinstance(first, str) or not isinstance(then, float | int | list):
        with pytest.raises(UsageError, match=r"column 'x' holds .* in some samples and .* in others"):
            settled({"x": first}, {"x": then})


def test_numbers_among_texts_go_into_the_row():
    """As pandas has a missing text: the number is kept as one, and is no text."""
    names = settled({"caption": "a"}, {"caption": math.nan})
    assert names.fields == {"caption": "txt"}
    assert names.encode_row({"caption": math.nan}).members == (("json", b'{"caption": NaN}', ""),)


def test_a_field_of_its_own_name_takes_what_fits():
    names = settled({"json": {"a": 1}}, {"json": b"[2]"}, {"txt": "text"}, {"txt": b"bytes"})
    assert names.encode_row({"json": b"[2]", "txt": b"\xff"}).members == (("json", b"[2]", ""), ("txt", b"\xff", ""))
    assert names.encode_row({"json": [3], "txt": "ä"}).members == (("json", b"[3]", ""), ("txt", "ä".encode(), ""))


# ------------------------------------------------------------------------------------------------- likely mistakes


def test_text_in_the_place_of_a_file_is_refused():
    for name in ("jpg", "mask.png", "wav", "npy"):
        with pytest.raises(UsageError, match=f"column '{name}' is named as a kind of file, and holds text.*open"):
            told({name: "a/b.jpg"})


def test_paths_in_place_of_bytes_are_refused(tmp_path):
    for at in range(2):
        (tmp_path / f"{at}.jpg").write_bytes(JPEG)
    rows = [{"image": str(tmp_path / f"{at}.jpg"), "n": at} for at in range(2)]
    with pytest.raises(UsageError, match=r"column 'image' holds the paths of files, not their content \('.*0.jpg'\).*list"):
        settled(*rows)
    assert settled(*({**row, "jpg": JPEG} for row in rows)).fields == {"jpg": "jpg", "image": "txt"}  # beside the bytes
    assert settled(*({"txt": row["image"]} for row in rows)).fields == {"txt": "txt"}  # named as a text
    os.unlink(tmp_path / "1.jpg")
    assert settled(*rows).fields == {"image": "txt"}


def test_notes_of_webdataset_are_not_the_samples():
    members, scalars, _ = told({"__url__": "shard.tar", "__local_path__": "/x", "jpg": JPEG})
    assert (members, scalars) == ({"jpg": JPEG}, {})


def test_names_pass_to_workers_unchanged():
    rows = [{"image": JPEG, "caption": "x", "n": 1, "arr": np.zeros(1)}]
    names = settled(*rows, label="y", column=["n"], row_json=False)
    again = Names(**json.loads(json.dumps(names.to_json())))
    assert again.encode_row(rows[0]) == names.encode_row(rows[0])
    assert again.to_json() == names.to_json()


def test_a_field_of_ones_own_where_the_rest_of_the_row_goes():
    row = {"json": {"a": 1}, "row.json": {"mine": 1}, "n": 5}
    with pytest.raises(
        UsageError, match=r"a sample has a field row.json of its own.*\(n\).*Rename that column, or keep no row"
    ):
        told(row)
    assert json.loads(told(row, row_json=False)[0]["row.json"]) == {"mine": 1}
    assert set(told({"row.json": {"mine": 1}, "n": 5})[0]) == {"row.json", "json"}
