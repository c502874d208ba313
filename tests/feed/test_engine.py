import pytest
from loading import At, Calls, Numbers, Raise, Raises, children

from fastfeed.feed.engine import Draw, Engine
from fastfeed.feed.faults import ErrorCaps
from fastfeed.feed.fetch import FetchRules
from fastfeed.feed.inner import InnerOptions

OPTIONS = InnerOptions(
    num_workers=0, prefetch_factor=None, pin_memory=False, timeout=0, worker_init_fn=None, multiprocessing_context=None,
    persistent_workers=False, in_order=True,
)  # fmt: skip
RULES = FetchRules(batched=True, collate=list)
BATCHES = [[0, 1], [2, 3], [4, 5], [6]]


def options(**given):
    return InnerOptions(**{**{name: getattr(OPTIONS, name) for name in InnerOptions.__dataclass_fields__}, **given})


def a_pass(engine, asked=OPTIONS, rules=RULES):
    return engine.epoch(asked, rules, Draw(epoch_of=int, generator=None, base=1), ErrorCaps())


def engine_of(get, batches=BATCHES):
    return Engine(Calls(get), batches, once=True, early=False)


class SlowFirst:
    """The first batch comes last."""

    def __call__(self, index):
        import time

        time.sleep(1.0 if index == 0 else 0.0)
        return index


@pytest.mark.long
@pytest.mark.parametrize(
    "asked", [OPTIONS, options(num_workers=2, in_order=False), options(num_workers=3)], ids=["0", "2", "3"]
)
def test_batches_in_the_samplers_order(asked):
    begun = a_pass(engine_of(SlowFirst()), asked)
    assert list(begun) == BATCHES and len(begun) == 4
    assert (begun.handed.batches, begun.handed.samples, begun.handed.start, begun.handed.count) == (4, 7, 6, 1)


def test_what_is_done_waits_for_a_slow_batch_and_is_not_dropped():
    batches = [[number] for number in range(40)]
    assert list(a_pass(engine_of(SlowFirst(), batches), options(num_workers=2, prefetch_factor=2, in_order=False))) == batches


def test_without_sorting_the_slow_batch_comes_when_it_is_done():
    asked = options(num_workers=2, in_order=False, sorts=False)
    found = list(a_pass(engine_of(SlowFirst()), asked))
    assert found[0] != [0, 1] and sorted(found) == BATCHES


def test_a_failure_is_raised_where_its_turn_is_and_the_pass_goes_on():
    for workers in (0, 2):
        begun = a_pass(engine_of(At(3, Raise(KeyError("three")))), options(num_workers=workers))
        assert next(begun) == [0, 1]
        with Raises(KeyError, match=r"sample 3 of batch 1"):
            next(begun)
        assert list(begun) == [[4, 5], [6]]


def test_left_out_samples_are_counted():
    begun = a_pass(
        engine_of(At({1, 2}, Raise(ValueError("no")))), rules=FetchRules(batched=True, collate=list, on_error="skip")
    )
    assert list(begun) == [[0], [3], [4, 5], [6]]
    assert (begun.faults.seen, begun.faults.failed, begun.handed.samples) == (7, 2, 7)


def test_persistent_workers_go_on_and_others_do_not():
    for persistent in (True, False):
        engine = Engine(Numbers(7), BATCHES, once=True, early=False)
        asked = options(num_workers=1, persistent_workers=persistent)
        pids = set()
        for _ in range(3):
            begun = a_pass(engine, asked)
            list(begun)
            pids.add(begun.made.crew.workers.pid_of(0))
        assert len(pids) == (1 if persistent else 3)


def test_persistent_workers_are_new_where_an_option_is():
    engine = Engine(Numbers(7), BATCHES, once=True, early=False)
    asked = options(num_workers=1, persistent_workers=True)
    first = a_pass(engine, asked)
    list(first)
    second = a_pass(engine, asked, FetchRules(batched=True, collate=tuple))
    assert second is not first and isinstance(next(second), tuple)


def test_a_sampler_that_fails_fails_as_itself():
    def batches():
        yield [0]
        raise ValueError("the sampler")

    for workers in (0, 1):
        with Raises(ValueError, match=r"^the sampler$"):
            list(a_pass(engine_of(int, batches()), options(num_workers=workers)))


def test_the_end_is_proved():
    begun = a_pass(engine_of(int))
    next(begun)
    begun._pass.pending[7] = begun._pass.pending.get(7) or type("D", (), {"indices": [9]})()
    with Raises(RuntimeError, match=r"the epoch ended with 1 batches missing, the first is batch 7 \[9\]"):
        list(begun)


@pytest.mark.parametrize("asked", [OPTIONS, options(num_workers=2), options(num_workers=2, persistent_workers=True)], ids=str)
def test_a_pass_begins_anew_where_another_epoch_was_named_before_its_first_batch(asked):
    before, batches, named = children(), [[0, 1], [2, 3]], [1]
    draw = Draw(epoch_of=lambda: named[-1], generator=None, base=1, moved=lambda: len(named) == 2)
    begun = Engine(Calls(int), batches, once=True, early=True).epoch(asked, RULES, draw, ErrorCaps())
    handed = begun.handed
    batches[:] = [[4, 5], [6], [7, 8]]
    named.append(2)
    assert next(begun) == [4, 5]
    assert len(children() - before) == asked.num_workers
    assert list(begun) == [[6], [7, 8]]
    assert begun.handed is handed and (handed.batches, handed.samples) == (3, 5)
