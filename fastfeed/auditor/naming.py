"""What a loader's dataset tells of a sample by its index: names, size, format. No sample is read."""

import os
from functools import lru_cache
from typing import Any

from fastfeed.auditor.record import SampleRecord
from fastfeed.errors import FastfeedError
from fastfeed.feed.dataset import PackedDataset
from fastfeed.feed.naming import plain_index, sample_id
from fastfeed.feed.splitting import behind_views, path_of
from fastfeed.media import Codec
from fastfeed.sample import escape

_SIZES = 1 << 13


class Naming:
    """Names of a dataset's samples.

    Args:
        dataset: Any; of ours, and of torchvision's folders, more is known.
    """

    def __init__(self, dataset: Any) -> None:  # noqa: ANN401 - any dataset
        self._dataset = dataset
        base, _ = behind_views(dataset)
        self._columns = _columns(base) if isinstance(base, PackedDataset) else ()
        self._size_of = lru_cache(_SIZES)(_file_size)  # of each file once, not once an epoch

    def record(self, index: Any) -> SampleRecord:  # noqa: ANN401 - any index
        """What is known of a sample.

        Args:
            index: As the loader's sampler gave it; a text that stands for it where it was no whole number.
        """
        plain = plain_index(index)
        record = SampleRecord(plain if isinstance(plain, int) else -1)
        found = sample_id(self._dataset, index)
        if found is not None:
            record.key, record.path = found.key, None if found.source is None else escape(found.source)
            self._add_columns(record, index)
        elif isinstance(plain, int):
            self._add_file(record, plain)
        else:
            record.key = str(plain)
        return record

    def _add_columns(self, record: SampleRecord, index: Any) -> None:  # noqa: ANN401
        _, at = behind_views(self._dataset, index)
        if self._columns:
            record.size_bytes, *sides, codec = (int(column[at]) for column in self._columns)
            record.width, record.height = (side or None for side in sides)
            record.format = Codec(codec).name if codec else None

    def _add_file(self, record: SampleRecord, index: int) -> None:
        try:
            record.path = path_of(self._dataset, index)
        except (IndexError, AttributeError, TypeError):
            return  # a sampler may give what the folder does not know: then only the index is known
        if record.path is not None:
            record.size_bytes = self._size_of(record.path)
            record.path = below_root(record.path, behind_views(self._dataset, index)[0])


def below_root(path: str, dataset: Any) -> str:  # noqa: ANN401 - any dataset
    """The path of a file as an audit of its folder calls it.

    Args:
        path: As the dataset has it.
        dataset: One of torchvision's folders.
    """
    return path.removeprefix(os.path.join(os.fsdecode(dataset.root), ""))


def _columns(dataset: PackedDataset) -> tuple[Any, ...]:
    """Size, width, height and codec, a value a sample: of its image, where it has other files. Nothing where it has two."""
    try:
        return tuple(dataset.column(name) for name in ("size", "width", "height", "codec"))
    except FastfeedError:
        return ()


def _file_size(path: str) -> int | None:
    try:
        return os.stat(path).st_size
    except OSError:
        return None  # it has gone since it was read: its size is unknown
