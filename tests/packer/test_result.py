"""What a pack call tells is a record of plain values: the command line prints it as JSON, and programs compare it."""

import dataclasses
import json

from helpers import make_photos, packed
from rowsets import Samples

from fastfeed.packer.result import DatasetResult, PackResult, told_outcomes


def test_every_source_tells_the_same_things(tmp_path):
    folder = packed(make_photos(tmp_path / "s"), tmp_path / "folder")
    rows = packed(Samples([{"txt": "a"}, {"txt": "b"}]), tmp_path / "rows", shards=2)
    stream = packed(iter([{"txt": "a"}]), tmp_path / "stream")
    for result, where in ((folder, "folder"), (rows, "rows"), (stream, "stream")):
        (dataset,) = result.datasets
        assert result.destination == dataset.path == str(tmp_path / where)
        assert dataset.size_bytes == sum(path.stat().st_size for path in (tmp_path / where).glob("*.tar"))
        assert (result.shards_written, result.shards_kept, result.already_packed) == (dataset.shards, 0, False)
        assert result.seconds > 0 and result.free_bytes > 0 and result.workers == 1 and result.workers_why
        json.dumps(dataclasses.asdict(result))
    assert [r.datasets[0].samples for r in (folder, rows, stream)] == [6, 2, 1]


def test_records_do_not_change():
    assert PackResult.__dataclass_params__.frozen and DatasetResult.__dataclass_params__.frozen  # type: ignore[attr-defined]


def test_what_became_of_rows_in_words():
    assert told_outcomes({"indexed": 1200, "with such markers already": 3}) == "1,200 indexed, 3 with such markers already"
    assert told_outcomes({"no JPEG": 2, "damaged": 1}) == "3 stay as they are (1 damaged, 2 no JPEG)"
    assert told_outcomes({}) == "none is an image"
