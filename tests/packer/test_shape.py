import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastfeed.archive.shard import SHARD_NAME, shard_file
from fastfeed.config import PackConfig
from fastfeed.packer.shape import legal_name, shard_count, shard_reason, shard_stops


@given(st.text(max_size=80))
def test_any_name_becomes_one_that_breaks_no_reader(name):
    assert SHARD_NAME.fullmatch(shard_file(legal_name(name), 3))
    assert legal_name(name) == legal_name(name)


def test_a_legal_name_stays_and_others_differ_from_each_other():
    assert legal_name("train-v1_0") == "train-v1_0"
    assert len({legal_name(name) for name in ("a b", "a.b", "a/b", "é", "", "x" * 61, "x" * 62)}) == 7


@given(st.integers(1, 10_000), st.integers(0, 1 << 40), st.integers(1, 1 << 32))
def test_shards_are_as_many_as_the_target_asks_for_and_never_empty(samples, source_bytes, target):
    config = PackConfig(shard_bytes=target)
    count = shard_count(samples, source_bytes, config)
    assert count == max(1, min(samples, -(-source_bytes // target)))
    stops = shard_stops(samples, source_bytes, config)
    sizes = [stop - start for start, stop in zip([0, *stops], stops, strict=False)]
    assert len(stops) == count and stops[-1] == samples and min(sizes) >= 1 and max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize(
    ("options", "count", "why"),
    [
        ({"shards": 3}, 3, "3 shards of 3 to 4 samples: asked for"),
        ({"shards": 99}, 10, "10 shards of 1 sample: asked for (no shard is empty)"),
        ({"samples_per_shard": 5}, 2, "2 shards of 5 samples: at most 5 samples a shard were asked for"),
        ({"shard_bytes": 1 << 20}, 2, "2 shards of 5 samples: 2.0 MiB at a target of 1.0 MiB"),
    ],
)
def test_the_reason_is_told(options, count, why):
    config = PackConfig(**options)
    assert shard_count(10, 2 << 20, config) == count
    assert shard_reason(count, 10, 2 << 20, config) == why
