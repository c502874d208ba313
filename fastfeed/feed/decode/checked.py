"""Whether simplejpeg's pixels are the installed Pillow's: asked once a process, of a few JPEGs that Pillow makes then.

Both bring a libjpeg-turbo of their own. Where their pixels differ (another version, another library in Pillow's place),
decoding by simplejpeg would change what a model sees, so Pillow decodes, and the plan says why.
"""

import io
from functools import cache

import numpy as np
from PIL import Image, JpegImagePlugin  # noqa: F401 - the plug-in registers what is asked for here

from fastfeed.feed.decode import jpeg
from fastfeed.feed.decode.box import Box
from fastfeed.feed.decode.header import Odd, read_header

_SIZE = (73, 55)
_KINDS: tuple[dict[str, object], ...] = (
    {"subsampling": 0}, {"subsampling": 1}, {"subsampling": 2}, {"subsampling": 2, "progressive": True},
    {"subsampling": 2, "quality": 30}, {"mode": "L"},
)  # fmt: skip


@cache
def why_pillow() -> str | None:
    """Why Pillow has to decode JPEGs; None where simplejpeg's pixels equal its."""
    width, height = _SIZE
    columns, lines = np.meshgrid(np.arange(width), np.arange(height))
    noise = (columns * 2654435761 + lines * 40503 + columns * lines * 97) >> 7 & 63
    picture = (
        np.stack([columns * 3 + noise, lines * 4 + noise, (columns * lines) % 199 + noise], 2).clip(0, 255).astype(np.uint8)
    )
    for kind in _KINDS:
        options = dict(kind)
        image = Image.fromarray(picture).convert(str(options.pop("mode", "RGB")))
        stream = io.BytesIO()
        image.save(stream, "JPEG", **options)
        data = stream.getvalue()
        with Image.open(io.BytesIO(data)) as opened:
            expected = np.asarray(opened.convert("RGB"))
        try:
            header = read_header(data)
            for top, bottom in ((0, height), (0, 20), (17, 30)):
                part = Box(top, 0, bottom - top, width)
                if not np.array_equal(jpeg.decode(data, header, part, "RGB").of(part), expected[top:bottom]):
                    return f"simplejpeg's pixels differ from Pillow's ({_said(kind)})"
        except Odd as odd:
            return f"simplejpeg does not read what Pillow writes ({_said(kind)}: {odd})"
    return None


def _said(kind: dict[str, object]) -> str:
    return ", ".join(f"{name}={value}" for name, value in kind.items())
