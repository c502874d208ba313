import os
import unicodedata

import pytest

from fastfeed.auditor.looking import setcodes
from fastfeed.auditor.looking.naming import clashes, findings_of

NFC, NFD = (unicodedata.normalize(form, "café.jpg") for form in ("NFC", "NFD"))


@pytest.mark.parametrize(("name", "reason"), [
    (os.fsdecode(b"caf\xe9.jpg"), "not UTF-8"), ("two\nlines.jpg", "control character"), ("x" * 150 + ".jpg", "154 bytes"),
    (" a.jpg", "white space"),
])  # fmt: skip
def test_odd_names(name, reason):
    (finding,) = findings_of(f"cat/{name}", is_image=True)
    assert finding.code is setcodes.NAME_ODD and reason in finding.text and "\n" not in finding.text


@pytest.mark.parametrize("name", ["a.jpg", NFC, NFD, "日本.png", "cat/A B.JPEG"])
def test_usual_names(name):
    assert findings_of(name, is_image=True) == []


@pytest.mark.parametrize(("name", "text"), [("a.jfif", "its extension is jfif"), ("cat/0001", "it has no extension")])
def test_images_that_imagefolder_leaves_out(name, text):
    (finding,) = findings_of(name, is_image=True)
    assert (finding.code, finding.text) == (setcodes.LEFT_OUT, text)
    assert findings_of(name, is_image=False) == []


def test_names_that_clash():
    found = clashes(["b/a.jpg", "b/A.JPG", NFC, NFD, "c/a.jpg"])
    assert [(paths, finding.code) for paths, finding in found] == [
        (("b/a.jpg", "b/A.JPG"), setcodes.CASE_CLASH), ((NFC, NFD), setcodes.UNICODE_CLASH),
    ]  # fmt: skip
    assert found[0][1].text == "b/a.jpg and b/A.JPG"


def test_none_clashes():
    assert clashes([]) == clashes(["a.jpg"]) == clashes({"a.jpg": 0, "b.jpg": 1}) == []
