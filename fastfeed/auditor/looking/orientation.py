"""Which side of an image is up, by its metadata, and which readers turn it."""

from PIL import Image

from fastfeed.auditor.finding import Finding
from fastfeed.auditor.looking import imagecodes
from fastfeed.auditor.looking.decoding import heard, told
from fastfeed.media import Codec

_TAG = 0x0112
_UPRIGHT, _LAST, _FIRST_SWAPPED = 1, 8, 5
_TURNS = {
    2: "mirrored", 3: "turned by 180 degrees", 4: "mirrored and turned by 180 degrees", 5: "mirrored and turned by 90 degrees",
    6: "turned by 90 degrees clockwise", 7: "mirrored and turned by 270 degrees", 8: "turned by 270 degrees clockwise",
}  # fmt: skip


def findings_of(image: Image.Image, codec: Codec, orientation: int) -> list[Finding]:
    """What there is to say about an image's EXIF and its orientation.

    Args:
        image: Loaded.
        codec: Of the file.
        orientation: As the header states it, 1 to 8, or 0: a decoder may have applied it already, and forgotten it.
    """
    found, warned = list[Finding](), list[str]()
    value: object = None
    try:
        with heard(warned):
            value = image.getexif().get(_TAG)
    except Exception as error:  # noqa: BLE001 - whatever a parser of damaged metadata raises, the pixels are there
        warned.append(told(error))
    if warned:
        found.append(Finding(imagecodes.EXIF_BAD, "; ".join(warned)))
    stated = orientation or value
    if isinstance(stated, int) and _UPRIGHT < stated <= _LAST:
        found.append(Finding(imagecodes.ORIENTATION, _disagreement(image, codec, stated)))
    elif stated is not None and stated not in range(_UPRIGHT, _LAST + 1):
        found.append(Finding(imagecodes.ORIENTATION_INVALID, f"orientation {stated!r}; 1 to 8 are defined"))
    return found


def _disagreement(image: Image.Image, codec: Codec, stated: int) -> str:
    if codec is Codec.TIFF:
        return f"orientation {stated}: Pillow hands it out {_TURNS[stated]}; readers that ignore the tag do not"
    width, height = image.size
    other = (height, width) if stated >= _FIRST_SWAPPED else (width, height)
    stored = f"{width}x{height} as stored from Pillow, torchvision, timm" + (" and simplejpeg" if codec is Codec.JPEG else "")
    turned = "cv2.imread and Hugging Face's Image" if codec is Codec.JPEG else "readers that apply EXIF (Hugging Face's Image)"
    return f"orientation {stated}: {stored}; {other[0]}x{other[1]}, {_TURNS[stated]}, from {turned}"
