import gzip
import io
import zipfile

import pytest
from oddities import jpeg

from fastfeed.auditor.looking import filecodes
from fastfeed.auditor.looking.kinds import extension_of, kind_by_magic, kind_in_place_of_an_image, names_an_image
from fastfeed.auditor.looking.look import look

LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"


def zipped():
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("a", "b")
    return out.getvalue()


CASES = {
    "zeros": (bytes(5000), filecodes.ONLY_ZEROS, "5,000 bytes"),
    "html": (b"\n<!DOCTYPE html><html><h1>404 Not Found</h1></html>", filecodes.HTML, "404 Not Found"),
    "html without a doctype": (b"<HTML><body>Forbidden</body></HTML>", filecodes.HTML, "Forbidden"),
    "json": (b'{"error": {"code": 403}}', filecodes.JSON_ANSWER, "403"),
    "svg": (b'<?xml version="1.0"?>\n<svg xmlns="http://www.w3.org/2000/svg"/>', filecodes.SVG, "SVG"),
    "gzip": (gzip.compress(b"text", mtime=0), filecodes.COMPRESSED, "gzip"),
    "zip": (zipped(), filecodes.COMPRESSED, "zip"),
    "lfs": (LFS, filecodes.LFS_POINTER, "Git LFS"),
    "appledouble": (b"\x00\x05\x16\x07\x00\x02\x00\x00Mac OS X        ", filecodes.APPLEDOUBLE, "AppleDouble"),
    "ds_store": (b"\x00\x00\x00\x01Bud1\x00\x00\x10\x00", filecodes.SYSTEM_FILE, ".DS_Store"),
    "thumbs.db": (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(504), filecodes.SYSTEM_FILE, "Thumbs.db"),
    "text": (b"see the other folder\n", filecodes.NOT_AN_IMAGE, "it is text"),
    "xml": (b"<?xml version='1.0'?><Error>NoSuchKey</Error>", filecodes.NOT_AN_IMAGE, "NoSuchKey"),
    "pdf": (b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n", filecodes.NOT_AN_IMAGE, "PDF"),
    "noise": (b"\x07\x91\xfe\x00\x13" * 40, filecodes.NOT_AN_IMAGE, "no image format"),
}


@pytest.mark.parametrize("case", CASES)
def test_what_stands_in_place_of_an_image(case):
    data, code, text = CASES[case]
    findings = look(data, "photos/a.jpg").findings
    assert [finding.code for finding in findings] == [code]
    assert text in findings[0].text


@pytest.mark.parametrize("before", [b"\n", b"\xef\xbb\xbf", b"HTTP/1.1 200 OK\r\nContent-Type: image/jpeg\r\n\r\n"])
def test_a_jpeg_behind_other_bytes(before):
    (finding,) = look(before + jpeg(), "a.jpg").findings
    assert finding.code is filecodes.LEADING_BYTES
    assert f"begins at byte {len(before)};" in finding.text


@pytest.mark.parametrize(
    ("name", "flagged"), [("a.jpg", True), ("a.JPEG", False), ("a.png", True), ("a.bin", False), ("a", False)]
)
def test_a_name_of_another_format(name, flagged):
    data = jpeg() if not name.endswith(".jpg") else b"GIF89a" + bytes(20)
    codes = [finding.code for finding in look(data, name).findings]
    assert (filecodes.WRONG_EXTENSION in codes) is flagged


@pytest.mark.parametrize("name", ["a", "a.txt", "weights.bin"])
def test_what_is_no_sample_under_any_name(name):
    assert [finding.code for finding in look(LFS, name).findings] == [filecodes.LFS_POINTER]


@pytest.mark.parametrize("data", [CASES["json"][0], CASES["html"][0], CASES["gzip"][0], CASES["pdf"][0]])
def test_what_is_a_sample_under_another_name(data):
    assert look(data, "a.dat").findings == []


def test_extensions():
    assert [extension_of(name) for name in ("a.JPG", "d.x/a", ".hidden", "a.b.png", "a.")] == ["jpg", "", "", "png", ""]
    assert names_an_image("x/a.HEIC") and names_an_image("a.fli") and not names_an_image("a.txt")


def test_kinds_are_told_from_bytes_alone():
    assert kind_by_magic(b"plain words") is None
    assert kind_in_place_of_an_image(b"plain words").code is filecodes.NOT_AN_IMAGE
