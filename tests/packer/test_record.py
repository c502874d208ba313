import pytest

from fastfeed.packer.record import read_record


@pytest.mark.parametrize("raw", [None, b"", b"junk" * 100])
def test_a_damaged_record_of_a_shard_is_no_record(tmp_path, raw):
    if raw is not None:
        (tmp_path / "record").write_bytes(raw)
    assert read_record(str(tmp_path / "record")) is None
