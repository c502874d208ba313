"""feed/figures.py: what is exact, what is not, and by how much."""

from multiprocessing.reduction import ForkingPickler

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastfeed.feed.figures import ERROR, MOST_STAGES, SLOWEST, Sketch, Timed, buckets_of, middle_of

TIMES = st.lists(st.one_of(st.floats(1.0, 1e12), st.sampled_from([1.0, 2.0, 1e6, 1e9])), min_size=1, max_size=200)


def sketch_of(values):
    sketch = Sketch()
    sketch.add(values)
    return sketch


@given(TIMES, st.floats(0.0, 1.0))
def test_a_quantile_is_at_most_a_32nd_of_itself_away(values, part):
    exact = float(np.quantile(values, part, method="inverted_cdf"))
    assert sketch_of(values).quantile(part) == pytest.approx(exact, rel=ERROR)


@given(TIMES)
def test_sum_mean_count_and_most_are_exact(values):
    sketch = sketch_of(values)
    assert (sketch.count, sketch.most) == (len(values), max(values))
    assert sketch.total == pytest.approx(sum(values))
    assert sketch.mean == pytest.approx(sum(values) / len(values))
    assert sketch.quantile(1.0) <= max(values)


@given(st.lists(TIMES, min_size=1, max_size=5))
def test_parts_merged_are_the_whole(parts):
    merged, whole = Sketch(), sketch_of([value for part in parts for value in part])
    for part in map(sketch_of, parts):
        merged.merge(part.total, part.most, part.buckets)
    assert (merged.count, merged.most, merged.buckets) == (whole.count, whole.most, whole.buckets)
    assert merged.total == pytest.approx(whole.total)


def test_the_middle_of_a_bucket_is_in_it():
    for value in (1.0, 1.06, 3e3, 7.77e8, 1e12):
        bucket = int(buckets_of(np.array([value]))[0])
        assert buckets_of(np.array([middle_of(bucket)])).tolist() == [bucket]


def test_nothing_and_zeros():
    empty = sketch_of([])
    assert (empty.count, empty.mean, empty.quantile(0.5)) == (0, 0.0, 0.0)
    assert sketch_of([0.0, 0.0]).quantile(0.9) == 0.0


def test_memory_is_bounded():
    sketch = Sketch()
    for seed in range(20):
        sketch.add(10 ** np.random.default_rng(seed).uniform(2, 11, size=5000))  # 100 ns to 100 s
    assert sketch.count == 100_000
    assert len(sketch.buckets) <= 16 * 31


def record_of(samples, stages=3, seed=0):
    table = 10 ** np.random.default_rng(seed).uniform(3, 9, size=(samples, stages))
    table[:, 0] = table.sum(axis=1)
    names = ("fetch", "read", "decode", "more", *map(str, range(MOST_STAGES)))[:stages]
    return table, Timed(names, list(range(samples)), table, (), 5).record()


def test_a_record_holds_the_batch():
    table, record = record_of(50)
    assert record.samples == 50 and record.collate_ns == 5 and record.stages == ("fetch", "read", "decode")
    assert record.totals == pytest.approx(table.sum(axis=0).tolist())
    assert record.most == table.max(axis=0).tolist()
    slowest = np.argsort(table[:, 0])[::-1][:SLOWEST]
    assert record.slowest == [(number, table[number].tolist()) for number in slowest]
    for number, (name, total, most, buckets) in enumerate(record.sketches()):
        whole = sketch_of(table[:, number])
        assert (name, most, buckets) == (record.stages[number], whole.most, whole.buckets)
        assert total == pytest.approx(whole.total)


def test_samples_without_a_stage_do_not_count_in_it():
    table = np.array([[5e6, 5e6, 0.0], [7e6, 0.0, 0.0], [9e6, 4e6, 0.0]])
    found = {
        name: buckets for name, _, _, buckets in Timed(("fetch", "read", "never"), [], table, (), None).record().sketches()
    }
    assert {name: sum(buckets.values()) for name, buckets in found.items()} == {"fetch": 3, "read": 2}


def test_what_travels_does_not_grow_with_the_batch():
    sizes = [len(ForkingPickler.dumps(record_of(samples, MOST_STAGES + 2)[1])) for samples in (5_000, 50_000)]
    assert sizes[0] < 60_000
    assert sizes[1] < 1.1 * sizes[0]


def test_a_long_index_is_cut():
    table = np.ones((1, 1))
    assert Timed(("fetch",), ["x" * 10_000], table, (), None).record().slowest[0][0] == "x" * 200
    assert Timed(("fetch",), [np.int64(3)], table, (), None).record().slowest[0][0] == 3


def test_a_sample_in_the_middle_of_the_batch_travels_as_well():
    table = np.arange(12.0).reshape(6, 2) + 1
    record = Timed(("fetch", "read"), [f"s{at}" for at in range(6)], table, (), None).record()
    assert record.usual == ("s3", [7.0, 8.0])
    assert Timed(("fetch", "read"), [], table, (), None).record().usual is None
