import pytest
from helpers import flipped, packed
from packing import Interrupt, interrupt_after, tree

from fastfeed.packer.record import read_record


@pytest.mark.parametrize("raw", [None, b"", b"junk" * 100])
def test_a_damaged_record_of_a_shard_is_no_record(tmp_path, raw):
    if raw is not None:
        (tmp_path / "record").write_bytes(raw)
    assert read_record(str(tmp_path / "record")) is None


def test_every_bit_of_a_record_counts(tmp_path):
    source = tree(tmp_path / "s", {f"{at}.txt": "x" for at in range(3)})
    with pytest.raises(Interrupt, match="enough is written"):
        packed(source, tmp_path / "out", samples_per_shard=1, progress=interrupt_after(2))
    record = tmp_path / "out" / ".fastfeed" / "job" / "s-000000.tar.done"
    raw = record.read_bytes()
    whole = read_record(str(record))
    assert whole is not None and len(whole.done.sha256) == len(whole.order) == 64
    assert whole.done.size_bytes == whole.done.tar_bytes == (tmp_path / "out" / "s-000000.tar").stat().st_size
    refused = 0
    for bit in range(0, len(raw) * 8, 7):
        record.write_bytes(flipped(raw, bit))
        found = read_record(str(record))
        refused += found is None
        assert found is None or found == whole  # a bit of the zeros between columns
    assert refused > len(raw) // 2
