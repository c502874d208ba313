import pytest

from fastfeed.auditor.looking import textcodes
from fastfeed.auditor.looking.encoding import looks_like_text, read, wide_encoding
from fastfeed.auditor.looking.look import look

WORDS = "größer als naïve façades\n" * 4
CYRILLIC = "широкая электрификация южных губерний\n" * 4


def of(data, name="a.txt"):
    return {finding.code: finding.text for finding in look(data, name).findings}


@pytest.mark.parametrize("text", ["plain\n", WORDS, CYRILLIC, "日本語の文章。\n", "🙂"])
def test_utf8_is_nothing_to_talk_about(text):
    looked = look(text.encode(), "a.txt")
    assert (looked.format, looked.text, looked.characters, looked.findings) == ("text", text, len(text), [])


def test_a_byte_order_mark():
    looked = look(b"\xef\xbb\xbfhello", "a.txt")
    assert looked.text == "hello"
    assert [finding.code for finding in looked.findings] == [textcodes.BOM]


@pytest.mark.parametrize("name", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"])
@pytest.mark.parametrize("path", ["a.txt", "a", "a.json"])
def test_wide_encodings(name, path):
    looked = look(WORDS.encode(name), path)
    assert [finding.code for finding in looked.findings] == [textcodes.WIDE]
    expected = f"{name[:6].upper()}, {'big' if name.endswith('be') else 'little'}-endian"
    assert expected in looked.findings[0].text


@pytest.mark.parametrize(("encoding", "guess"), [
    ("latin-1", "Latin-1"), ("cp1252", "Latin-1"), ("cp1251", "not Latin"), ("koi8-r", "not Latin"),
])  # fmt: skip
def test_the_place_of_the_first_wrong_byte(encoding, guess):
    text = "first line\n" + (CYRILLIC if guess == "not Latin" else WORDS)
    data = text.encode(encoding)
    start = next(at for at, byte in enumerate(data) if byte > 127)
    found = of(data)
    assert list(found) == [textcodes.NOT_UTF8]
    assert f"line 2: byte {start} is 0x{data[start]:02x}" in found[textcodes.NOT_UTF8]
    assert guess in found[textcodes.NOT_UTF8]


@pytest.mark.parametrize("encoding", ["shift_jis", "euc_jp", "gb18030", "euc_kr", "big5"])
def test_encodings_of_east_asia(encoding):
    text = {"euc_kr": "한국어 문장입니다. ", "big5": "這是中文的句子。", "gb18030": "这是中文的句子。"}.get(
        encoding, "これは日本語の文です。"
    )
    assert "East Asia" in of((text * 5).encode(encoding))[textcodes.NOT_UTF8]


def test_damage_within_utf8():
    data = bytearray((CYRILLIC * 2).encode())
    data[20] = 0xFF
    assert "what is around it is UTF-8" in of(bytes(data))[textcodes.NOT_UTF8]


def test_half_a_character_in_the_form_of_utf8():
    assert "CESU-8" in of(b"a \xed\xa0\xbd\xed\xb9\x82 b")[textcodes.NOT_UTF8]


def test_a_text_that_is_cut():
    data = WORDS.encode()[:3]
    assert "byte 2, is not whole" in of(data)[textcodes.CUT_CHARACTER]


def test_what_looks_like_text_without_a_name():
    assert looks_like_text(b"words\n") and looks_like_text(CYRILLIC.encode()) and looks_like_text("a".encode("utf-16"))
    assert not looks_like_text(b"\x00\x01\x02") and not looks_like_text(b"caf\xe9 au lait")
    assert looks_like_text(b"a" + "ж".encode() * 4000)  # its head ends within a character


def test_short_data_are_not_taken_for_wide_ones():
    assert wide_encoding(b"") == wide_encoding(b"a") == wide_encoding(b"1\n") == ""
    assert read(b"7\n").text == "7\n"
