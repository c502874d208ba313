"""The rows of a folder whose images change, all of them alike or those that an audit's report names."""

from fastfeed.config import ImageConfig
from fastfeed.packer.rows.folder import Folder
from fastfeed.packer.rows.images import ReencodedRows
from fastfeed.packer.rows.remedies import find_remedies
from fastfeed.packer.rows.source import RowSource
from fastfeed.packer.rows.treated import TreatedRows
from fastfeed.sample import SkipList


class Changed:
    """What becomes of a folder.

    Args:
        folder: The folder.
        images: How images change.
        report: JSONL file of an audit, which says which of them do; None for all.

    Raises:
        UsageError: The report cannot be read, or is one of something else.
    """

    def __init__(self, folder: Folder, images: ImageConfig, report: str | None) -> None:
        self._rows, self._images = folder.sources(), images
        self._remedies = None if report is None else find_remedies(folder, report, images)

    def rows(self, split: str) -> RowSource:
        """The samples of a split.

        Args:
            split: Its folder, "" without splits.
        """
        rows = self._rows[split]
        if self._remedies is None:
            return ReencodedRows(rows, self._images)
        treated = TreatedRows(rows, self._remedies, self._images, told=split == next(iter(self._rows)))
        if not self._images.jpeg_rows:
            return treated
        return ReencodedRows(treated, ImageConfig(jpeg_rows=True, only_field=self._images.only_field))

    def options(self) -> dict[str, object]:
        """What a rerun must find equal besides the options themselves."""
        return {} if self._remedies is None else {"from_audit": self._remedies.record()}

    def excluded(self, given: SkipList) -> SkipList:
        """What is left out: what a skip list names, and what the report calls an error.

        Args:
            given: The skip list.
        """
        return given if self._remedies is None else SkipList([*given.entries, *self._remedies.entries()])
