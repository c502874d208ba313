"""What the tests of packing from rows share: datasets of several kinds with the same samples, and what is read back."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from helpers import SHARED_DATA, encoded, photo
from packing import Sample, manifest_of, read_back

import fastfeed
from fastfeed.packer.rows.source import Row, RowFailed

SMALL_PHOTOS = SHARED_DATA / "small-photos"


def peak_mebibytes() -> int:
    """The most memory that this process has had, its parent's before exec not counted (as getrusage's maxrss is)."""
    with open("/proc/self/status", encoding="utf-8") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM:")) >> 10


class Samples:
    """A map-style dataset over a list; an exception in the list is raised by its sample."""

    def __init__(self, items: Sequence[Any]) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, at: int) -> Any:
        item = self.items[at]
        if isinstance(item, BaseException):
            raise item
        return item


def photos(count: int = 6) -> list[bytes]:
    """Different JPEG files."""
    return [encoded(photo(number)) for number in range(count)]


def proven(path: Path) -> list[Sample]:
    """All samples of a packed dataset that verify finds whole."""
    found = fastfeed.verify(path)
    assert found.ok, [finding.text for finding in found.findings]
    return read_back(path)


def fields_of(path: Path) -> list[dict[str, bytes]]:
    """Bytes by field of each sample, but for the class members that pack made."""
    samples = proven(path)
    made = manifest_of(path)["classes"] is not None
    return [{name: data for name, data in s.fields.items() if not (made and name == "cls")} for s in samples]


def labels_of(path: Path) -> list[str | None]:
    """The class of each sample by name."""
    classes = manifest_of(path)["classes"]
    return [None if sample.label is None else classes[sample.label] for sample in proven(path)]


def read_rows(reader: Any, numbers: Sequence[int]) -> list[Row]:
    """Rows of a source, none of which fails."""
    found = list(reader.rows(numbers))
    assert not [row for row in found if isinstance(row, RowFailed)], found
    return found
