"""The bytes of one image with what their headers and parts say, before any decoder."""

from dataclasses import dataclass

from fastfeed.auditor.looking import ends, jpegwalk, pngwalk
from fastfeed.auditor.looking.jpegwalk import JpegStructure
from fastfeed.auditor.looking.pngwalk import PngStructure
from fastfeed.media import Codec, Probe, is_lossless_webp


@dataclass(frozen=True, slots=True)
class Subject:
    """One image file."""

    data: bytes
    probe: Probe
    jpeg: JpegStructure | None = None
    """Of a JPEG."""
    png: PngStructure | None = None
    """Of a PNG."""

    @classmethod
    def of(cls, data: bytes, probe: Probe, *, thorough: bool = True) -> "Subject":
        """With the walk over its parts.

        Args:
            data: The whole file.
            probe: What its header says; UNKNOWN where only Pillow may know it.
            thorough: As jpegwalk.walk() has it.
        """
        jpeg = jpegwalk.walk(data, thorough=thorough) if probe.codec is Codec.JPEG else None
        return cls(data, probe, jpeg, pngwalk.walk(data) if probe.codec is Codec.PNG else None)

    @property
    def codec(self) -> Codec:
        """By magic."""
        return self.probe.codec

    @property
    def pixels(self) -> int:
        """As the header states them; 0 where it does not."""
        return self.probe.width * self.probe.height

    @property
    def metadata_bytes(self) -> int:
        """Of all metadata; 0 where that is unknown."""
        structure = self.jpeg or self.png
        return structure.metadata_bytes if structure is not None else 0

    @property
    def end(self) -> int | None:
        """Behind the picture's last byte, beyond the data where some are missing; None where that is unknown."""
        if self.jpeg is not None:
            return self.jpeg.eoi + 2 if self.jpeg.eoi >= 0 else None
        if self.png is not None:
            return self.png.end if self.png.end >= 0 else None
        return ends.stated_end(self.codec, self.data)

    def format_of(self, by_decoder: str) -> str:
        """Its format, with what changes the cost of decoding most.

        Args:
            by_decoder: What the decoder calls it, where the magic is unknown.
        """
        if self.jpeg is not None and self.jpeg.progressive:
            return "JPEG progressive"
        if self.png is not None and self.png.interlaced:
            return "PNG interlaced"
        if self.codec is Codec.WEBP and is_lossless_webp(self.data):
            return "WEBP lossless"
        return by_decoder if self.codec is Codec.UNKNOWN else self.codec.name
