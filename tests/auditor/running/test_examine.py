import subprocess
import sys

from helpers import encoded, photo

from fastfeed.auditor.record import SampleRecord
from fastfeed.auditor.running.examine import examine, rank, take_text, told
from fastfeed.auditor.running.subject import HOW, How
from fastfeed.errors import ShardDamaged

JPEG = encoded(photo(1, (64, 48)))


def codes(record):
    return [found.code.name for found in record.findings]


def test_an_image_has_facts_and_a_time():
    record = SampleRecord(0)
    examine(record, "a.jpg", JPEG, HOW)
    assert (record.format, record.width, record.height, record.mode) == ("JPEG", 64, 48, "RGB")
    assert set(record.times) == {"decode"} and record.times["decode"].cpu > 0
    assert record.digest is not None and record.findings == []


def test_what_is_no_image_has_no_decoding():
    record = SampleRecord(0)
    examine(record, "a.txt", b"a text\n", HOW)
    assert record.times == {} and record.width is None


def test_a_text_has_a_length_and_tokens_with_a_time():
    record, without = SampleRecord(0), SampleRecord(0)
    text = "\ufeffSmall files become shards once.\n"
    examine(record, "a.txt", text.encode(), HOW, tokenizer=str.split)
    examine(without, "a.txt", text.encode(), HOW)
    assert (record.characters, record.tokens, set(record.times)) == (len(text) - 1, 5, {"tokenize"})
    assert (without.characters, without.tokens, without.times) == (len(text) - 1, None, {})


def test_a_tokenizer_that_fails_is_a_finding():
    def fails(text: str) -> int:
        raise KeyError(text[:5])

    record = SampleRecord(0)
    examine(record, "a.txt", b"a text", HOW, tokenizer=fails)
    assert [(found.code.name, found.text) for found in record.findings] == [("tokenizer-fails", "KeyError: 'a tex'")]
    assert record.tokens is None


def test_the_text_of_a_sample_is_that_beside_its_image_not_its_json():
    assert sorted(["json", "txt", "mask.png", "meta.json", "wav", "jpg"], key=rank) == [
        "mask.png", "jpg", "txt", "wav", "json", "meta.json",
    ]  # fmt: skip
    record = SampleRecord(0)
    for characters, tokens in ((None, None), (70, 12), (900, 300)):
        take_text(record, SampleRecord(0, characters=characters, tokens=tokens))
    assert (record.characters, record.tokens) == (70, 12)


def test_a_damaged_one_is_told_unless_only_times_are_wanted():
    cut = JPEG[: len(JPEG) // 2]
    record, again = SampleRecord(0), SampleRecord(0)
    examine(record, "a.jpg", cut, HOW)
    examine(again, "a.jpg", cut, How(look=False))
    assert codes(record) == ["truncated"] and codes(again) == [] and set(again.times) == {"decode"}


def test_a_fast_look_leaves_out_the_second_decoding():
    laundered = encoded(photo(1, (64, 48)).convert("RGB")) + b""
    zeroed = bytearray(encoded(photo(2, (400, 300)), quality=95))
    zeroed[len(zeroed) // 2 : len(zeroed) // 2 + 400] = bytes(400)
    full, fast = SampleRecord(0), SampleRecord(0)
    examine(full, "a.jpg", bytes(zeroed), HOW)
    examine(fast, "a.jpg", bytes(zeroed), How(full=False))
    assert "corrupt-data" in codes(full) and "corrupt-data" not in codes(fast)
    examine(fast, "a.jpg", laundered, How(full=False), clocked=False)


def test_errors_without_what_the_record_says_anyway():
    error = ShardDamaged("bytes differ", path="p", expected="a", got="b", hint="Copy it.")
    assert told(error) == "bytes differ, expected a, got b"
    assert told(ValueError("x")) == "x"


WARM = """
from PIL import Image
from fastfeed.auditor.looking.look import look
from fastfeed.auditor.running.examine import warm_up
warm_up()
before = len(Image.OPEN)
look(b"another that is no picture", "a.jpg")
print(len(Image.OPEN) - before)
"""


def test_after_warming_up_nothing_is_loaded_for_the_first_sample_that_is_no_picture():
    done = subprocess.run([sys.executable, "-c", WARM], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "0"
