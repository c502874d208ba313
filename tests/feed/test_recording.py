"""feed/recording.py: the log of a batch becomes figures, and recording pays for itself."""

import gc
import sys
import time
from multiprocessing.reduction import ForkingPickler

import pytest
from loading import Calls, equal, states
from torch.utils.data import Subset

from fastfeed.feed.fetch import Fetcher, FetchRules
from fastfeed.feed.figures import MOST_COUNTERS, MOST_STAGES, OTHER_COUNTERS, OTHER_STAGES
from fastfeed.feed.recording import Recording
from fastfeed.feed.tasks import BatchTask
from fastfeed.trace import NULL, count, listening

PAUSE, LONG = 0.004, 0.5
"""The second outlasts what a busy machine does to other samples."""


def long_at_seven(index):
    if index == 7:
        time.sleep(LONG)
    return index


def span(stage):
    return listening(NULL).span(stage, 0)


class Staged:
    """Samples with stages; sample 2 is slow in its second one."""

    makes_in_order = True

    def __getitem__(self, index):
        with span("read"):
            time.sleep(PAUSE / 4)
        with span("decode"):
            time.sleep(LONG if index == 2 else PAUSE)
        return index


class StagedTogether(Staged):
    """Its bytes are read at once."""

    def __getitems__(self, indices):
        with span("read"):
            time.sleep(PAUSE)
        return [self._made(index) for index in indices]

    def _made(self, index):
        with span("decode"):
            time.sleep(LONG if index == 2 else PAUSE)
        return index


def batches(dataset, *tasks, collate=list, **rules):
    fetcher = Fetcher(dataset, FetchRules(batched=True, collate=collate, record=True, **rules))
    return [fetcher[BatchTask(number, indices, 0, None)] for number, indices in enumerate(tasks)]


def first(dataset, indices, **options):
    record = batches(dataset, indices, **options)[0].times.record
    assert record is not None
    return record


def counts(record):
    return {name: sum(buckets.values()) for name, _, _, buckets in record.sketches()}


def test_an_opaque_dataset_is_one_stage():
    record = first(Calls(long_at_seven), [3, 7, 1])
    assert record.stages == ("fetch",) and counts(record) == {"fetch": 3}
    assert record.slowest[0][0] == 7 and record.slowest[0][1][0] >= LONG * 1e9
    assert sorted(index for index, _ in record.slowest) == [1, 3, 7]
    assert record.totals[0] >= record.most[0] >= LONG * 1e9


def test_stages_are_told_apart_and_add_up():
    record = first(Staged(), [0, 1, 2, 3])
    assert record.stages == ("fetch", "read", "decode") and counts(record) == {"fetch": 4, "read": 4, "decode": 4}
    fetch, read, decode = (total * 1e-9 for total in record.totals)
    assert read >= PAUSE and decode >= LONG + 3 * PAUSE
    assert fetch >= read + decode
    index, spent = record.slowest[0]
    assert index == 2 and spent[2] >= LONG * 1e9 and spent[0] >= spent[1] + spent[2]
    assert record.divided == ()


def test_a_stage_within_another_takes_its_time_from_it():
    def nested(index):
        with span("transform"):
            time.sleep(PAUSE)
            with span("read"):
                time.sleep(PAUSE)
            time.sleep(PAUSE)
        return index

    record = first(Calls(nested), [0])
    fetch, transform, read = (total * 1e-9 for total in record.totals)
    assert read >= PAUSE and transform >= 2 * PAUSE
    assert read + transform <= fetch


def test_a_stage_that_some_samples_do_not_have():
    def now_and_then(index):
        if index % 2:
            with span("download"):
                time.sleep(LONG)
        return index

    record = first(Calls(now_and_then), [0, 1, 2])
    assert counts(record) == {"fetch": 3, "download": 1}
    assert record.slowest[0][0] == 1


def test_samples_fetched_together_are_told_apart_where_the_dataset_is_known_to():
    record = first(StagedTogether(), [0, 2, 3])
    assert counts(record) == {"fetch": 3, "read": 3, "decode": 3}
    assert record.divided == ("read",)
    assert record.slowest[0][0] == 2 and record.slowest[0][1][2] >= LONG * 1e9
    assert record.slowest[0][1][1] * 3 == pytest.approx(record.totals[1])


def test_samples_fetched_together_by_anyone_count_with_their_mean_and_have_no_name():
    class Together(Calls):
        def __getitems__(self, indices):
            time.sleep(PAUSE)
            return list(indices)

    record = first(Together(int), [0, 1])
    assert record.divided == ("fetch",) and record.slowest == [] and counts(record) == {"fetch": 2}
    assert record.totals[0] == 2 * record.most[0] >= PAUSE * 1e9


def test_the_order_of_an_unknown_getitems_is_not_trusted():
    class Sorted(StagedTogether):
        makes_in_order = False

    record = first(Sorted(), [3, 2])
    assert record.slowest == [] and record.divided == ("read",)


def test_subsets_fetch_one_after_another():
    record = first(Subset(Calls(long_at_seven), [5, 7]), [0, 1])
    assert record.divided == () and record.slowest[0][0] == 1


def test_samples_that_fail_are_recorded():
    def bad(index):
        time.sleep(PAUSE)
        raise ValueError(index)

    record = first(Calls(bad), [0, 1], on_error="skip")
    assert counts(record) == {"fetch": 2} and record.most[0] >= PAUSE * 1e9
    assert record.collate_ns is None


def test_a_batch_fetched_together_and_then_singly_is_no_figure():
    class Fails(Calls):
        def __getitems__(self, indices):
            raise ValueError

    answer = batches(Fails(int), [0, 1])[0]
    assert answer.times.record is None


def test_collating_is_timed():
    def collate(samples):
        time.sleep(PAUSE)
        return samples

    record = first(Calls(int), [0], collate=collate)
    assert record.collate_ns >= PAUSE * 1e9


def test_stages_have_a_limit():
    def many(index):
        for number in range(3 * MOST_STAGES):
            with span(f"stage {number}"):
                pass
        return index

    record = first(Calls(many), [0, 1])
    assert len(record.stages) == MOST_STAGES + 2 and record.stages[-1] == OTHER_STAGES


# ------------------------------------------------------------------------------------------------ which batches
def slept(seconds, recording, dataset):
    log = recording.begin(dataset)
    time.sleep(seconds)
    if log is not None:
        log.sample(0)
    return recording.end()[0] is not None


def test_long_batches_are_recorded():
    recording = Recording()
    found = [slept(0.2, recording, [0]) for _ in range(4)]
    assert found[0] and sum(found) >= 3  # on a busy machine one recording may have seemed to cost more than it does


def test_of_short_batches_few_are_recorded():
    recording = Recording()
    found = [slept(0.0, recording, [0]) for _ in range(300)]
    assert found[0]
    assert 1 <= sum(found) < 60


def test_a_long_batch_does_not_pay_for_many_short_ones():
    recording = Recording()
    for _ in range(3):
        slept(0.2, recording, [0])
    assert sum(slept(0.0, recording, [0]) for _ in range(300)) < 60


def test_each_process_has_a_recording_of_its_own():
    recording = Recording()
    slept(0.01, recording, [0])
    again = ForkingPickler.loads(ForkingPickler.dumps(recording))
    assert slept(0.0, again, [0])


def test_a_log_keeps_nothing_of_a_batch():
    class Big:
        def __getitem__(self, index):
            return index

    dataset = Big()
    before = sys.getrefcount(dataset)
    recording = Recording()
    log = recording.begin(dataset)
    assert log is not None
    for index in range(1000):
        log.sample(index)
    recording.end()
    gc.collect()
    assert log.marks == 0 and sys.getrefcount(dataset) == before


def test_after_an_interruption_nobody_hears():
    def interrupt(index):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        batches(Calls(interrupt), [0])
    assert listening(NULL) is NULL


def test_nothing_is_recorded_unless_asked():
    fetcher = Fetcher(Calls(lambda index: listening(NULL) is NULL), FetchRules(batched=True, collate=all))
    answer = fetcher[BatchTask(0, [1, 2], 0, None)]
    assert answer.data is True and answer.times is not None
    assert answer.times.record is None and answer.times.counters is None


# ------------------------------------------------------------------------------------------------ counters
def test_counters_travel_with_every_batch():
    def counted(index):
        count("hits")
        count("bytes", 100 + index)
        return index

    answers = batches(Calls(counted), *[[0, 1]] * 40)
    assert any(answer.times.record is None for answer in answers)  # recorded or not
    assert all(answer.times.counters == {"hits": 2, "bytes": 201} for answer in answers)


def test_counters_have_a_limit():
    def many(index):
        for number in range(3 * MOST_COUNTERS):
            count(f"{index} {number}")
        return index

    found = batches(Calls(many), [0, 1])[0].times.counters
    assert len(found) == MOST_COUNTERS + 1
    assert sum(found.values()) == 6 * MOST_COUNTERS and found[OTHER_COUNTERS] == 5 * MOST_COUNTERS


def test_random_numbers_are_not_touched():
    before = states()
    batches(Calls(int), *[[0, 1]] * 3)
    assert equal(states(), before)
