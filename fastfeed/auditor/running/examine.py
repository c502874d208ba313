"""One member's bytes: decoded under a clock, and looked at."""

import io
import warnings

from fastfeed.auditor.clock import Clock
from fastfeed.auditor.finding import Finding
from fastfeed.auditor.record import SampleRecord
from fastfeed.auditor.running.codes import FAILS
from fastfeed.auditor.running.subject import How
from fastfeed.media import is_image_field, sniff


def examine(record: SampleRecord, name: str, data: bytes, how: How) -> None:
    """Decode an image as a loader does, and note what its bytes show.

    Args:
        record: Gets times, facts and findings.
        name: Of the file or member; its extension says what it should be.
        data: Its bytes.
        how: How closely to look.
    """
    if not (sniff(data) or is_image_field(name.rpartition(".")[2].lower())):
        return
    from PIL import Image  # noqa: PLC0415 - texts need none

    with warnings.catch_warnings(), Clock() as clock:
        warnings.simplefilter("ignore")
        try:
            image = Image.open(io.BytesIO(data))
            image.load()
        except Exception as error:  # noqa: BLE001 - whatever a decoder raises
            if how.look:
                record.findings.append(Finding(FAILS, f"{type(error).__name__}: {error}"))
        else:
            record.format, (record.width, record.height), record.mode = image.format, image.size, image.mode
    record.times["decode"] = clock.time
