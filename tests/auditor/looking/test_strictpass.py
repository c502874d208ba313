import numpy as np
import pytest
from oddities import EOI, cut, jpeg, noisy, with_size, zeroed
from PIL import Image

from fastfeed.auditor.looking.strictpass import flat_rows, real_rows, strict_warning


@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"subsampling": 0}, {"quality": 20}])
@pytest.mark.parametrize(("mode", "components"), [("RGB", 3), ("L", 1), ("CMYK", 4)])
def test_whole_files_give_no_warning(options, mode, components):
    assert strict_warning(jpeg(mode=mode, **options), components) == ""


@pytest.mark.parametrize("options", [{}, {"progressive": True}])
def test_damage_that_pillow_does_not_tell_of(options):
    data = jpeg(**options)
    for damaged in (cut(data, 0.5) + EOI, zeroed(data, len(data) // 2, 2000)):
        assert strict_warning(damaged, 3) != ""


def test_lost_restart_markers():
    data = jpeg((160, 120), restart_marker_rows=1)
    assert b"\xff\xd3" in data
    assert "Corrupt JPEG data" in strict_warning(data.replace(b"\xff\xd3", b"\x00\x00"), 3)


def test_dimensions_that_the_data_do_not_fill():
    assert "premature end" in strict_warning(with_size(jpeg((160, 120)), 160, 800), 3)


def test_files_that_this_decoder_does_not_read_give_none():
    assert strict_warning(b"\xff\xd8\xff\xd9", 3) == ""


def test_rows_of_a_cut_file():
    data = jpeg((160, 320))
    rows = real_rows(cut(data, 0.5))
    assert rows is not None and rows[1] == 320 and 120 < rows[0] < 200
    assert real_rows(data) == (320, 320)
    assert real_rows(cut(data, 0.5) + EOI) == rows


def test_rows_cannot_be_told_of_what_has_no_header():
    assert real_rows(jpeg()[:100]) is None


def test_flat_rows_are_counted_from_the_bottom():
    rows = np.array(noisy((8, 8), "L"))
    rows[[2, 5, 6, 7]] = 128
    assert flat_rows(rows) == 3
    assert flat_rows(np.full((4, 8), 128, dtype=np.uint8)) == 4
    assert flat_rows(np.array(Image.new("L", (8, 8), 120))) == 0
