"""Restart markers between a JPEG's blocks, without loss, by libjpeg-turbo's jpegtran, and proven afterwards.

Each row of blocks becomes up to 32 restart intervals, so that a crop needs some of its rows and of each some of its columns.

The coefficients stay, so the pixels do; what changes is how they are coded. Of the new file only what the coding needs is
taken (tables, frame, scan): all that the old one said beside it (EXIF, ICC profile, comments, whatever an APPn marker
holds) is copied from it byte for byte, in its order. A file stays as it is, and the reason is counted, where anything is
odd: see the constants.

Why a program: no wheel that is kept up writes restart markers without loss, and what a process costs to start is a ninth of
the work on a file. Why its -optimize: tables of its own save 5 % of the bytes for ever, and cost 3 ms once
(benchmarks/README.md, bench_rows.py).
"""

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from typing import Any

from fastfeed.config import ImageConfig
from fastfeed.errors import SourceUnreadable, UsageError
from fastfeed.jpegrows import EOI, SOI, SOS, Frame, read_frame, rows_of, scan_rows, segments, to_column
from fastfeed.media import Codec, sniff
from fastfeed.packer.pixels import MAX_PIXELS, decode, digest
from fastfeed.packer.result import ALREADY, INDEXED
from fastfeed.packer.rows.source import RowIndex

NO_JPEG = "no JPEG"
ONE_ROW = "a single row of blocks"
ARITHMETIC = "arithmetic coding"
LOSSLESS = "lossless or hierarchical coding"
DEPTH = "not of 8 bits"
CMYK = "four components (CMYK)"
"""No fast decoder makes RGB of it: Pillow decodes it whole, so rows gain nothing."""
RARE = "a rare kind of JPEG"
"""Two components, or a height that stands behind the image."""
BEHIND = "bytes behind the end of the image"
"""Further pictures or a film (MPO, motion photos, gain maps): headers may say how far off they are."""
TOO_LARGE = "more than 268 megapixels"
"""Old and new file are decoded to be compared."""
LONG = "a part of a row of more than 65,535 bytes"
DAMAGED = "damaged, or a decoder warns"
REFUSED = "refused by jpegtran"
OTHER_PIXELS = "other pixels afterwards"

MOST_PARTS = 32
"""Restart intervals in a row: what a crop takes to decode falls by a quarter, for 2 % more bytes (benchmarks/README.md)."""
LEAST_BYTES = 128
"""Of an interval, on average: its marker and what it is filled up with take some 4 bytes, its place in the index 2."""
_FEW = 4
_DIVISION = 2
"""Of rows into intervals: another number wherever the same file would be divided otherwise."""
_ARITHMETIC = frozenset({0xC9, 0xCA, 0xCB, 0xCD, 0xCE, 0xCF})
_HUFFMAN = frozenset({0xC0, 0xC1, 0xC2})
_KEPT = frozenset({*range(0xE0, 0xF0), 0xFE})
"""APP0 to APP15 and COM."""
_VERSION = re.compile(r"libjpeg-turbo version [\w.+-]+")
_INSTALL = (
    "Install libjpeg-turbo's programs: apt-get install libjpeg-turbo-progs (Debian, Ubuntu), dnf install libjpeg-turbo-utils "
    "(Fedora), apk add libjpeg-turbo-utils (Alpine), or conda install -c conda-forge libjpeg-turbo."
)


class _Stays(Exception):
    """A file that stays as it is. args: the reason, one of the constants."""


class Jpegtran:
    """The program.

    Raises:
        UsageError: It is not installed, or not libjpeg-turbo's.
    """

    def __init__(self) -> None:
        path = shutil.which("jpegtran")
        if path is None:
            msg = "jpeg_rows (--jpeg-rows) needs the program jpegtran, which is not installed"
            raise UsageError(msg, hint=_INSTALL)
        self.path = os.path.abspath(path)
        _, made, words = _run([self.path, "-version"], b"")
        found = _VERSION.search(made.decode(errors="replace") + words)
        if found is None:
            msg = "the program jpegtran here is not libjpeg-turbo's, and others were not tried"
            raise UsageError(msg, path=self.path, expected="libjpeg-turbo version ...", got=repr(words[:80]), hint=_INSTALL)
        self.version = found[0]
        """"libjpeg-turbo version 2.1.5": another one may write other bytes."""

    def transcoded(self, data: bytes, interval: int) -> bytes | None:
        """The same coefficients in one sequential scan, optimal Huffman tables, restart markers, no other markers.

        Args:
            data: A JPEG.
            interval: MCUs from one restart marker to the next.

        Returns:
            A JPEG, or None where the program fails or warns.

        Raises:
            SourceUnreadable: The program was killed, so nobody knows what it would have written.
        """
        code, made, _ = _run([self.path, "-copy", "none", "-optimize", "-restart", f"{interval}B"], data)
        if code < 0:
            msg = f"jpegtran was killed by signal {-code}"
            raise SourceUnreadable(msg, hint="Memory may have been short: run the same again, it continues.")
        return made if code == 0 else None


@cache
def jpegtran() -> Jpegtran:
    """The one that is installed.

    Raises:
        UsageError: None is.
    """
    return Jpegtran()


def jpegtran_of(images: ImageConfig) -> dict[str, object]:
    """What decides how JPEGs are written, for a job's identity: shards of two would not be those of one run.

    Raises:
        UsageError: It is needed and not installed.
    """
    return {"jpegtran": jpegtran().version, "jpeg_rows_division": _DIVISION} if images.jpeg_rows else {}


def _run(command: Sequence[str], data: bytes) -> tuple[int, bytes, str]:
    """Exit code, output and words of a program. Files in memory, so that nobody waits at a pipe."""
    descriptors = [os.memfd_create(name) for name in ("jpegtran-in", "jpegtran-out", "jpegtran-words")]
    try:
        source, target, words = descriptors
        with open(source, "wb", closefd=False) as file:
            file.write(data)
        os.lseek(source, 0, os.SEEK_SET)
        # a session of its own: Ctrl-C is the parent's to answer. Python's descriptors are closed at an exec anyway
        with subprocess.Popen(  # noqa: S603 - the program that was found on PATH, by its full path
            command, stdin=source, stdout=target, stderr=words, close_fds=False, start_new_session=True
        ) as process:
            code = process.wait()
        return code, _content(target), _content(words).decode(errors="replace")
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _content(descriptor: int) -> bytes:
    os.lseek(descriptor, 0, os.SEEK_SET)
    with open(descriptor, "rb", buffering=0, closefd=False) as file:
        return file.readall()


def index_rows(data: bytes) -> tuple[bytes, RowIndex]:
    """An image with its rows indexed, or as it is.

    Args:
        data: A file.

    Returns:
        The file to be stored, and what became of it.

    Raises:
        UsageError: jpegtran is not installed.
        SourceUnreadable: It was killed.
    """
    try:
        frame, ends = _suitable(data)
        starts, changed = rows_of(data, frame), data
        before = _decoded(data, frame)
        interval = interval_of(frame, len(data) - frame.scan)
        if starts is None or (ends and frame.interval > interval):
            changed = _with_markers(data, interval)
            starts = scan_rows(changed)
            if starts is None:
                raise _Stays(REFUSED)
            after = _decoded(changed, frame)
            if before.shape != after.shape or not (before == after).all():
                raise _Stays(OTHER_PIXELS)
        row = to_column(starts)
        if not row:
            raise _Stays(LONG)
    except _Stays as reason:
        return data, RowIndex(str(reason))
    return changed, RowIndex(ALREADY if changed is data else INDEXED, row, digest(before))


def interval_of(frame: Frame, size_bytes: int, most_parts: int = MOST_PARTS, least_bytes: int = LEAST_BYTES) -> int:
    """How many MCUs lie between two restart markers: a row's, divided evenly.

    Args:
        frame: The headers.
        size_bytes: Of the entropy-coded data.
        most_parts: Intervals in a row, twice as many where their number has no other divisors.
        least_bytes: Of an interval, on average.
    """
    most = min(most_parts, size_bytes // frame.rows // least_bytes)
    fitting = [parts for parts in range(1, 2 * most + 1) if frame.mcus_per_row % parts == 0]
    parts = max((parts for parts in fitting if parts <= most), default=1)
    if parts * _FEW < most:  # a prime, or nearly: rather too many than hardly any
        parts = min((parts for parts in fitting if parts > most), default=parts)
    return frame.mcus_per_row // parts


def _suitable(data: bytes) -> tuple[Frame, bool]:
    """The headers of a JPEG whose rows can be indexed, and whether the file ends where the image does.

    Raises:
        _Stays: They cannot.
    """
    if sniff(data[:32]) is not Codec.JPEG:
        raise _Stays(NO_JPEG)
    frame = read_frame(data)
    try:
        *_, end = segments(data)
    except ValueError as error:
        raise _Stays(DAMAGED) from error
    if frame is None:
        raise _Stays(DAMAGED)
    reasons = (
        (frame.marker in _ARITHMETIC, ARITHMETIC),
        (frame.marker not in _ARITHMETIC | _HUFFMAN, LOSSLESS),
        (frame.precision != 8, DEPTH),  # noqa: PLR2004
        (len(frame.components) == 4, CMYK),  # noqa: PLR2004
        (len(frame.components) not in {1, 3} or not frame.height, RARE),
        (frame.width * frame.height > MAX_PIXELS, TOO_LARGE),
        (frame.rows == 1, ONE_ROW),
        (end.stop != len(data) and rows_of(data, frame) is None, BEHIND),
    )
    for is_so, reason in reasons:
        if is_so:
            raise _Stays(reason)
    return frame, end.stop == len(data)


def _decoded(data: bytes, frame: Frame) -> Any:  # noqa: ANN401 - a numpy array
    """Its pixels.

    Raises:
        _Stays: The decoder refuses it, or warns.
    """
    try:
        return decode(data, frame)
    except ValueError as error:
        raise _Stays(DAMAGED) from error


def _with_markers(data: bytes, interval: int) -> bytes:
    """The same picture with restart markers, what else the file says copied from it.

    Raises:
        _Stays: jpegtran refuses it.
    """
    made = jpegtran().transcoded(data, interval)
    if made is None or not made.startswith(b"\xff\xd8"):
        raise _Stays(REFUSED)
    said = [data[part.start : part.stop] for part in segments(data) if part.marker in _KEPT]
    coding, scan = list[bytes](), 0
    for part in segments(made):
        if part.marker not in {SOI, EOI, *_KEPT} and not scan:
            coding.append(made[part.start : part.stop])
            scan = part.stop if part.marker == SOS else 0
    return b"".join((made[:2], *said, *coding, made[scan:]))
