"""How random an order is: each figure against a count by hand, and against real shuffles."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastfeed.errors import UsageError
from fastfeed.feed.mixing import expected_distinct, label_runs, randomness


def shuffled(size: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).permutation(size)


def test_full_shuffles_have_the_expected_figures():
    """Means of 40 shuffles against what the record says of a full shuffle."""
    labels = np.repeat(np.arange(10), [400, 300, 100, 50, 50, 40, 30, 20, 5, 5])
    found = [randomness(shuffled(1000, seed), labels, 20) for seed in range(40)]
    for name in ("displacement", "neighbours", "sequential", "classes"):
        values: list[float] = [getattr(record, name) for record in found]
        error = np.std(values) / np.sqrt(40)
        assert abs(np.mean(values) - getattr(found[0], f"{name}_shuffled")) < 4 * error, name
    effects = [record.design_effect or 0.0 for record in found]
    assert abs(np.mean(effects) - 1) < 4 * np.std(effects) / np.sqrt(40)


def test_the_stored_order():
    record = randomness(np.arange(100), np.repeat(np.arange(10), 10), 10)
    assert (record.samples, record.batch_size) == (100, 10)
    assert record.displacement == 0
    assert record.neighbours == pytest.approx(90 / 99)
    assert record.sequential == 1
    assert record.classes == 1
    assert record.classes_shuffled == pytest.approx(expected_distinct([10] * 10, 10))
    assert record.design_effect == pytest.approx(10 * 99 / 90), "a batch of one class is as one sample"


def test_a_stride_has_every_class_in_each_batch():
    order = np.arange(100).reshape(10, 10).T.ravel()
    record = randomness(order, np.repeat(np.arange(10), 10), 10)
    assert record.classes == 10
    assert record.design_effect == pytest.approx(0, abs=1e-9)
    assert record.neighbours == 0
    assert record.sequential == pytest.approx(90 / 99)


@settings(max_examples=50)
@given(
    labels=st.lists(st.integers(0, 5), min_size=4, max_size=60),
    batch_size=st.integers(1, 12),
    seed=st.integers(0, 1000),
)
def test_figures_are_what_a_count_gives(labels, batch_size, seed):
    order = shuffled(len(labels), seed)
    batches = len(labels) // batch_size
    if batches < 2:
        with pytest.raises(UsageError, match="randomness needs at least two batches"):
            randomness(order, labels, batch_size)
        return
    record = randomness(order, labels, batch_size)
    kept = order[: batches * batch_size]
    groups = [[labels[position] for position in kept[at : at + batch_size]] for at in range(0, len(kept), batch_size)]
    assert record.samples == len(kept)
    assert record.classes == pytest.approx(np.mean([len(set(group)) for group in groups]))
    size, totals = len(kept), Counter(labels[position] for position in kept)
    spread = np.mean([sum((Counter(g)[c] - batch_size * n / size) ** 2 for c, n in totals.items()) for g in groups])
    alone = sum(n / size * (1 - n / size) for n in totals.values()) * batch_size * (size - batch_size) / (size - 1)
    assert record.design_effect == pytest.approx(spread / alone if alone else 1.0)
    place = {int(position): at for at, position in enumerate(kept)}
    pairs = [(place[p], place[p + 1]) for p in place if p + 1 in place]
    if pairs:
        assert record.neighbours == pytest.approx(np.mean([a // batch_size == b // batch_size for a, b in pairs]))
        assert record.sequential == pytest.approx(np.mean([0 < b - a <= batch_size for a, b in pairs]))
    ranks = {position: rank for rank, position in enumerate(sorted(place))}
    assert record.displacement == pytest.approx(np.mean([abs(at - ranks[p]) for p, at in place.items()]) / size)


@given(totals=st.lists(st.integers(1, 6), min_size=1, max_size=5), data=st.data())
def test_expected_distinct_is_the_hypergeometric_mean(totals, data):
    drawn = data.draw(st.integers(0, sum(totals)))
    labels = np.repeat(np.arange(len(totals)), totals)
    rng = np.random.default_rng(0)
    seen = [len(set(rng.permutation(labels)[:drawn].tolist())) for _ in range(400)]
    assert abs(expected_distinct(totals, drawn) - np.mean(seen)) <= 5 * np.std(seen) / 20 + 0.02


def test_a_rank_part_and_no_labels():
    record = randomness(shuffled(1000, 1)[::4] * 7, None, 25)
    assert (record.samples, record.classes, record.classes_shuffled, record.design_effect) == (250, None, None, None)
    assert 0.28 < record.displacement < 0.38
    assert (record.neighbours, record.sequential) == (0, 0), "no two positions are neighbours in storage"


def test_it_says_so_in_words():
    text = str(randomness(np.arange(100), np.repeat(np.arange(10), 10), 10))
    assert text.startswith("displacement 0.000 (full shuffle 0.333), stored neighbours in one batch 90.91% (9.09%)")
    assert text.endswith("classes a batch 1.0 (6.7), design effect 11.00 (1): a batch of 10 tells as much as 1")
    assert "classes" not in str(randomness(np.arange(100), None, 10))


def test_wrong_orders_and_labels():
    with pytest.raises(UsageError, match="an order has each position once: got position 3 twice"):
        randomness([0, 3, 1, 3], None, 2)
    with pytest.raises(UsageError, match=r"each position of an order needs a label: expected labels of shape \(n,\), n > 3"):
        randomness([0, 3, 1, 2], [1, 1, 1], 2)
    with pytest.raises(UsageError, match="needs at least two batches"):
        randomness([0, 1], None, 0)


# ---------------------------------------------------------------------------------------------------- runs of labels
def test_runs_are_counted():
    runs = label_runs([0, 0, 0, 1, 1, 0])
    assert (runs.samples, runs.runs, runs.mean) == (6, 3, 2.0)
    assert runs.shuffled == pytest.approx(6 / (1 + 6 - (16 + 4) / 6))
    assert str(label_runs(np.repeat(np.arange(10), 1000))) == (
        "equal labels stand together in runs of 1,000.0 samples on average, where random order would have 1.1 "
        "(10,000 samples, 10 runs)"
    )


@pytest.mark.parametrize(
    "labels", [np.repeat(np.arange(10), 50), np.repeat(["a", "b", "c"], 100), np.repeat([-5, 2**40], 50), [0] * 9 + [1] * 9]
)
def test_sorted_labels_are_seen(labels):
    assert label_runs(labels).sorted_by_class
    assert not label_runs(np.random.default_rng(0).permutation(labels)).sorted_by_class


@pytest.mark.parametrize("labels", [[], [3], [1, 1, 1, 1], np.arange(100), np.arange(100) % 7])
def test_what_is_not_sorted(labels):
    assert not label_runs(labels).sorted_by_class


def test_random_order_has_the_expected_runs():
    labels = np.repeat([0, 1, 2], [500, 300, 200])
    found = [label_runs(np.random.default_rng(seed).permutation(labels)) for seed in range(50)]
    assert np.mean([runs.runs for runs in found]) == pytest.approx(1000 / found[0].shuffled, rel=0.02)


def test_labels_have_one_axis():
    with pytest.raises(UsageError, match=r"labels have one axis, a label a sample: got shape \(2, 2\)"):
        label_runs([[0, 1], [1, 0]])
