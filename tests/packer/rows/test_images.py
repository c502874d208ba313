import io
import re
from typing import Any

import numpy as np
import pytest
from helpers import encoded, files_below, make_captioned, make_photos, photo
from packing import contents, read_back, tree
from PIL import Image, ImageOps

import fastfeed
from fastfeed.config import ImageConfig, RowConfig
from fastfeed.errors import DestinationOccupied, FastfeedError, SourceAmbiguous, SourceUnreadable, UsageError
from fastfeed.media import is_lossless_webp
from fastfeed.packer.rows.images import NotReencoded, ReencodedRows, Reencoder
from fastfeed.packer.rows.python import PythonRows
from fastfeed.packer.rows.source import Row, RowFailed, RowMember


def made_smaller(image, kind="JPEG", *, config=None, **options):
    """(image after, width before, height before) of one that was saved with some options."""
    member = RowMember("png" if kind == "PNG" else "jpg", encoded(image, kind, **options))
    data, width, height = Reencoder(config or ImageConfig(max_side=16)).image(member)
    return Image.open(io.BytesIO(data)), width, height


@pytest.mark.parametrize(
    ("config", "size"),
    [
        (ImageConfig(max_side=20), (20, 10)),
        (ImageConfig(resize_short=10), (20, 10)),
        (ImageConfig(max_side=30, resize_short=10), (20, 10)),
        (ImageConfig(max_side=100), (40, 20)),
        (ImageConfig(resize_short=20), (40, 20)),
        (ImageConfig(max_side=1), (1, 1)),
    ],
    ids=str,
)
def test_sides_are_at_most_what_was_asked_for_and_nothing_is_enlarged(config, size):
    found, width, height = made_smaller(photo(1, (40, 20)), config=config)
    assert (found.size, width, height) == (size, 40, 20)


def test_the_pixels_are_those_of_pillows_lanczos():
    image = photo(3, (64, 48))
    found, _, _ = made_smaller(image, "PNG", config=ImageConfig(max_side=32))
    assert found.format == "PNG"
    assert np.array_equal(np.asarray(found), np.asarray(image.resize((32, 24), Image.Resampling.LANCZOS)))


def test_what_no_option_changes_keeps_its_very_bytes():
    for kind, config in (
        ("JPEG", ImageConfig(max_side=64)),
        ("PNG", ImageConfig(quality=50)),
        ("JPEG", ImageConfig(apply_exif=True)),
    ):
        raw = encoded(photo(1, (40, 20)), kind)
        assert Reencoder(config).image(RowMember("jpg", raw)) == (raw, 40, 20)


@pytest.mark.parametrize("mode", ["RGB", "RGBA"])
@pytest.mark.parametrize("exif", [False, True])
def test_a_lossless_webp_stays_one(mode, exif):
    """With its pixels, also where they cannot be seen, and with what makes the file an extended one."""
    image = photo(3, (64, 48), mode)
    image.putpixel((1, 1), (10, 20, 30, 0)[: len(mode)])
    notes = Image.Exif()
    notes[0x0112] = 6
    exif_of = {"exif": notes.tobytes()} if exif else {}
    for config, right in (
        (ImageConfig(max_side=32), image.resize((32, 24), Image.Resampling.LANCZOS)),
        (ImageConfig(apply_exif=True, quality=10), image.rotate(-90, expand=True) if exif else image),
    ):
        raw = encoded(image, "WEBP", lossless=True, exact=True, **exif_of)
        data, _, _ = Reencoder(config).image(RowMember("webp", raw))
        assert is_lossless_webp(data) and (data == raw) == (right is image)
        assert np.array_equal(np.asarray(Image.open(io.BytesIO(data))), np.asarray(right))
    lossy, _, _ = Reencoder(ImageConfig(max_side=32)).image(RowMember("webp", encoded(image, "WEBP", quality=90, **exif_of)))
    assert not is_lossless_webp(lossy)


def test_a_jpeg_that_would_not_get_smaller_is_kept():
    raw = encoded(photo(1, (40, 20)), quality=10)
    assert Reencoder(ImageConfig(quality=95)).image(RowMember("jpg", raw))[0] == raw
    assert (
        len(Reencoder(ImageConfig(quality=10)).image(RowMember("jpg", encoded(photo(1, (40, 20)), quality=98)))[0])
        < len(raw) * 2
    )


def test_exif_is_applied_once_and_said_no_more():
    exif = Image.Exif()
    exif[0x0112], exif[0x010E] = 6, "a note"
    image = photo(1, (40, 20))
    raw = encoded(image, exif=exif, quality=95)
    turned, width, height = made_smaller(image, exif=exif, quality=95, config=ImageConfig(apply_exif=True))
    assert (turned.size, width, height) == ((20, 40), 40, 20)
    assert turned.getexif().get(0x0112, 1) == 1 and turned.getexif()[0x010E] == "a note"
    difference = np.abs(np.asarray(turned, int) - np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(raw))), int))
    assert difference.max() < 30
    kept, _, _ = made_smaller(image, exif=exif, config=ImageConfig(max_side=20))
    assert kept.size == (20, 10) and kept.getexif()[0x0112] == 6  # not asked for: as it was


def test_profiles_subsampling_and_modes_are_kept_and_jpegs_get_a_restart_marker_a_row():
    profile = b"profile" * 20
    found, _, _ = made_smaller(photo(1, (64, 48)), icc_profile=profile, subsampling=0, config=ImageConfig(max_side=32))
    assert found.info["icc_profile"] == profile
    data = Reencoder(ImageConfig(max_side=32)).image(RowMember("jpg", encoded(photo(1, (64, 48)), subsampling=0)))[0]
    opened: Any = Image.open(io.BytesIO(data))
    assert opened.layer == [(1, 1, 1, 0), (2, 1, 1, 1), (3, 1, 1, 1)]
    assert len(re.findall(rb"\xff[\xd0-\xd7]", data)) == 2  # 24 rows of pixels are three rows of blocks
    for mode in ("L", "CMYK"):
        assert made_smaller(photo(1, (40, 20), mode))[0].mode == mode
    named = ImageConfig(max_side=16, only_field=("png",))
    for mode in ("RGBA", "LA", "I;16"):
        image = Image.new(mode, (40, 20))
        assert made_smaller(image, "PNG", config=named)[0].mode == mode
    palette = photo(1, (40, 20)).convert("P")
    assert made_smaller(palette, "PNG", config=named)[0].mode == "RGB"


@pytest.mark.parametrize("mode", ["P", "1", "I;16"])
def test_pixels_that_may_be_labels_are_resized_only_if_they_are_named(tmp_path, mode):
    image = photo(1, (40, 20)).convert(mode) if mode != "I;16" else Image.new(mode, (40, 20))
    items = [{"png": encoded(image, "PNG")}] * 2
    for kind in (list, iter):
        with pytest.raises(SourceUnreadable, match=rf"sample 0.*pixels of png are of mode {mode}.*--only-field png"):
            fastfeed.pack(kind(items), tmp_path / kind.__name__, max_side=8)
    fastfeed.pack(items, tmp_path / "b", max_side=8, only_field="png")
    fastfeed.pack(items, tmp_path / "c", max_side=40)
    assert [sample.fields["png"] for sample in read_back(tmp_path / "c")] == [items[0]["png"]] * 2


@pytest.mark.parametrize("names", [["x1", "y1"], ["xmin"], ["bbox"], ["x", "y"], ["box_w"], ["face.x_max"]], ids=str)
def test_columns_that_may_be_boxes_are_as_boxes_in_a_json(tmp_path, names):
    items = [{"jpg": encoded(photo(at, (40, 20))), "n": at, **dict.fromkeys(names, at)} for at in range(2)]
    for kind in (list, iter):
        with pytest.raises(FastfeedError, match=rf"may speak of their image's pixels: {', '.join(names)}.*--only-field jpg"):
            fastfeed.pack(kind(items), tmp_path / "a", max_side=8, row_json=False)
    fastfeed.pack(items, tmp_path / "b", max_side=8, row_json=False, only_field="jpg")
    plain = [{"jpg": item["jpg"], "n": 1, "x": 2, "box_office": 3, "index": 4} for item in items]
    fastfeed.pack(plain, tmp_path / "c", max_side=8, row_json=False)


def test_what_cannot_be_reencoded_says_why():
    frames = [photo(at, (40, 20)) for at in range(3)]
    animated = encoded(frames[0], "GIF", save_all=True, append_images=frames[1:])
    cut = encoded(photo(1, (400, 200)))[:700]
    for raw, why in ((animated, "animated"), (b"text", "Pillow knows no image"), (cut, "truncated")):
        with pytest.raises(NotReencoded, match=why):
            Reencoder(ImageConfig(max_side=10)).image(RowMember("jpg", raw))


def test_other_fields_need_only_field():
    row = Row((RowMember("jpg", encoded(photo(1, (40, 20)))), RowMember("mask.png", encoded(photo(2, (40, 20)), "PNG"))))
    with pytest.raises(SourceAmbiguous, match=r"hold mask.png beside their image.*--only-field jpg"):
        Reencoder(ImageConfig(max_side=10)).apply(row)
    changed = Reencoder(ImageConfig(max_side=10, only_field=("jpg",))).apply(row)
    assert changed.members[1] == row.members[1]
    assert changed.scalars == {"original_width": 40, "original_height": 20}
    both = Reencoder(ImageConfig(max_side=10, only_field=("jpg", "mask.png"))).apply(row)
    assert set(both.scalars or ()) == {f"{f}.original_{side}" for f in ("jpg", "mask.png") for side in ("width", "height")}
    with pytest.raises(UsageError, match="only_field names txt, which is no image field here"):
        Reencoder(ImageConfig(max_side=10, only_field=("txt",))).prove(["jpg", "txt"], "here")


def test_rows_that_fail_are_named_and_the_rest_goes_on():
    items = [{"jpg": encoded(photo(at, (40, 20)))} for at in range(3)]
    items[1] = {"jpg": b"no image"}
    rows = ReencodedRows(PythonRows(items, RowConfig()), ImageConfig(max_side=10))
    found = list(rows.rows([0, 1, 2]))
    assert isinstance(found[1], RowFailed) and found[1].number == 1 and "Pillow knows no image" in found[1].why
    assert [isinstance(row, Row) for row in found] == [True, False, True]


# ------------------------------------------------------------------------------------------------ through pack
def test_a_folder_is_packed_smaller_in_imagefolders_order_whatever_the_workers(tmp_path):
    source = make_photos(tmp_path / "s", each=4)
    for workers in (1, 2):
        result = fastfeed.pack(source, tmp_path / str(workers), max_side=8, workers=workers, shards=2)
        assert (result.datasets[0].order, result.datasets[0].classes) == ("imagefolder", 2)
    assert files_below(tmp_path / "1") == files_below(tmp_path / "2")
    assert fastfeed.verify(tmp_path / "1").ok
    ds = fastfeed.open(tmp_path / "1")
    assert ds[0][0].size == (8, 6) and list(ds.column("original_width")) == [16] * 8
    assert [name.decode() for name in ds.column("source")] == sorted(files_below(source))
    assert fastfeed.pack(source, tmp_path / "1", max_side=8, shards=2).already_packed
    with pytest.raises(DestinationOccupied, match="--max-side was 8, now 9"):
        fastfeed.pack(source, tmp_path / "1", max_side=9, shards=2)


def test_captions_do_not_hinder_and_json_does(tmp_path):
    captioned = make_captioned(tmp_path / "s")
    fastfeed.pack(captioned, tmp_path / "a", max_side=8)
    found = contents(read_back(tmp_path / "a"))
    assert found["000.txt"] == b"picture 0\n" and Image.open(io.BytesIO(found["000.jpg"])).size == (8, 6)
    boxes = tree(tmp_path / "b", {**files_below(captioned), **{f"{at:03d}.json": "{}" for at in range(4)}})
    with pytest.raises(SourceAmbiguous, match="only-field"):
        fastfeed.pack(boxes, tmp_path / "c", max_side=8)
    assert not (tmp_path / "c").exists()
    fastfeed.pack(boxes, tmp_path / "c", max_side=8, only_field="jpg")
    assert fastfeed.verify(tmp_path / "c").ok


def test_broken_photos_stop_or_are_left_out_by_name(tmp_path):
    source = make_photos(tmp_path / "s")
    (source / "cat" / "001.jpg").write_bytes(b"broken")
    with pytest.raises(SourceUnreadable, match=r"cat/001.jpg: jpg cannot be re-encoded"):
        fastfeed.pack(source, tmp_path / "a", max_side=8)
    result = fastfeed.pack(source, tmp_path / "a", max_side=8, on_error="skip")
    assert (result.skipped, result.datasets[0].samples, result.left_out[0].source) == (1, 5, "cat/001.jpg")
    assert fastfeed.pack(source, tmp_path / "a", max_side=8, on_error="skip").skipped == 1


@pytest.mark.parametrize("kind", [list, iter])
def test_columns_called_as_those_that_are_added_are_refused(tmp_path, kind):
    items = [{"jpg": encoded(photo(at, (40, 20))), "original_width": at, "n": at} for at in range(3)]
    with pytest.raises(FastfeedError, match=r"column 'original_width' is called as .*Rename it, or leave it out: --column"):
        fastfeed.pack(kind(items), tmp_path / "a", max_side=8, only_field="jpg")
    assert not (tmp_path / "a").exists() or not list((tmp_path / "a").glob("*.tar"))
    fastfeed.pack(kind(items), tmp_path / "b", max_side=8, only_field="jpg", column=["n"])
    assert fastfeed.verify(tmp_path / "b").ok
    assert list(fastfeed.open(tmp_path / "b").column("original_width")) == [40] * 3


def test_only_field_alone_says_nothing():
    with pytest.raises(UsageError, match="nothing says how"):
        fastfeed.pack("anything", "anywhere", only_field="jpg")
