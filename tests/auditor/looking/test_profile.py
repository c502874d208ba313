import struct

import pytest
from helpers import encoded, photo
from PIL import Image, ImageCms

from fastfeed.auditor.looking import imagecodes
from fastfeed.auditor.looking.look import look
from fastfeed.auditor.looking.profile import description, findings_of

SRGB = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()


def made(name, space=b"RGB ", kind="mluc"):
    """A profile of one tag."""
    if kind == "mluc":
        text = name.encode("utf-16-be")
        tag = b"mluc" + bytes(4) + struct.pack(">II2s2sII", 1, 12, b"en", b"US", len(text), 28) + text
    else:
        tag = b"desc" + bytes(4) + struct.pack(">I", len(name) + 1) + name.encode("ascii") + b"\0"
    head = bytes(16) + space + bytes(16) + b"acsp" + bytes(88)
    return head + struct.pack(">I4sII", 1, b"desc", 144, len(tag)) + tag


def of(profile, mode="RGB"):
    findings = look(encoded(photo(mode=mode), icc_profile=profile), "a.jpg").findings
    return {finding.code: finding.text for finding in findings if finding.code.name.startswith("icc")}


def test_srgb_is_nothing_to_talk_about():
    assert "sRGB" in description(SRGB)
    assert of(SRGB) == of(made("sRGB IEC61966-2.1")) == {}


@pytest.mark.parametrize("kind", ["mluc", "desc"])
@pytest.mark.parametrize("name", ["Adobe RGB (1998)", "Display P3"])
def test_another_space(name, kind):
    assert of(made(name, kind=kind)) == {imagecodes.ICC_OTHER: f"the profile is {name!r}"}


def test_a_profile_of_grey():
    assert of(made("Dot Gain 20%", b"GRAY"), "L") == {}


def test_profiles_that_cannot_be_read():
    assert list(of(b"no profile at all")) == [imagecodes.ICC_BAD]
    assert of(made("x")[:140]) == {imagecodes.ICC_OTHER: "the profile has no name"}
    image = Image.new("RGB", (1, 1))
    assert findings_of(image) == []
