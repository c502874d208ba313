import pickle

import pytest
from loading import Eager
from torch.utils.data import BatchSampler, SequentialSampler

from fastfeed.feed.tasks import BatchTask, TaskOrder


def order(batches, **options):
    made = TaskOrder(batches, batched=True, **options)
    made.begin(5, lambda: 9, None)
    return made


def test_tasks_carry_number_indices_epoch_and_base():
    made = order(BatchSampler(SequentialSampler(range(5)), 2, drop_last=False))
    tasks = [pickle.loads(pickle.dumps(task)) for task in made]
    assert [(t.number, t.indices, t.epoch, t.base) for t in tasks] == [(0, [0, 1], 9, 5), (1, [2, 3], 9, 5), (2, [4], 9, 5)]
    assert len(made) == 3 and isinstance(tasks[0], BatchTask)
    assert {n: (d.start, d.count) for n, d in made.current.pending.items()} == {0: (0, 2), 1: (2, 2), 2: (4, 1)}


def test_a_sampler_is_asked_as_often_as_asked_for():
    class Asked(Eager):
        times = 0

        def __iter__(self):
            self.times += 1
            return super().__iter__()

    for once, times in ((True, 1), (False, 2)):
        sampler = Asked(4)
        made = TaskOrder(sampler, batched=False, once=once)
        made.begin(None, int, None)
        iter(made)
        iter(made)
        assert sampler.times == times
        made.begin(None, int, None)
        iter(made)
        assert sampler.times == times + 1


def test_no_more_are_ahead_than_may_be():
    made = TaskOrder([[0], [1], [2]], batched=True)
    made.begin(None, int, 2)
    tasks = iter(made)
    assert [next(tasks).number for _ in range(4)] == [0, 1, -1, -1]
    del made.current.pending[0]
    assert next(tasks).number == 2


def test_a_pass_of_several_rounds_has_an_epoch_for_each():
    made = TaskOrder([[0], [1], [2], [3], [4]], batched=True)
    made.begin(None, lambda: 7, None, 2)
    assert [task.epoch for task in made] == [7, 7, 8, 8, 9]
    made.begin(None, lambda: 7, None)
    assert [task.epoch for task in made] == [7] * 5


def test_a_batch_that_can_be_read_once_becomes_a_list():
    tasks = list(order([iter([1, 2]), (n for n in [3])]))
    assert [task.indices for task in tasks] == [[1, 2], [3]]


def test_a_sampler_that_fails_says_so():
    def failing():
        yield [0]
        raise ValueError

    made = order(failing())
    tasks = iter(made)
    next(tasks)
    with pytest.raises(ValueError, match=r"^$"):
        next(tasks)
    assert made.current.sampler_failed


def test_the_first_batch_may_be_drawn_when_the_pass_begins():
    drawn = []

    def batches():
        for number in range(2):
            drawn.append(number)
            yield [number]

    made = TaskOrder(batches(), batched=True, once=True, early=True)
    made.begin(None, lambda: len(drawn), None)
    tasks = iter(made)
    assert drawn == [0] and made.current.epoch == 1
    assert [task.indices for task in tasks] == [[0], [1]]


def test_a_pass_may_begin_anew():
    """The sampler is asked again, and numbers begin at 0."""
    made = order(BatchSampler(SequentialSampler(range(3)), 2, drop_last=False), once=True)
    first = made.current if next(iter(made)) else None
    made.begin_anew()
    assert [(task.number, task.indices, task.epoch, task.base) for task in made] == [(0, [0, 1], 9, 5), (1, [2], 9, 5)]
    assert made.current is not first


def test_handed_over_each_batch_goes_to_one_of_two():
    made = TaskOrder([[0], [1, 2], [3], [4], [5]], batched=True, once=True, early=True)
    made.begin(None, int, None)
    first = iter(made)
    assert next(first).number == 0
    handover = made.hand_over()
    second = iter(made)
    assert [handover.before, handover.after] == [first, second] and iter(made) is second
    assert [next(second).number, next(first).number, next(second).number] == [1, 2, 3]
    assert handover() == 1
    assert list(first) == []
    assert [task.indices for task in second] == [[5]]
    assert made.current.ended
    assert {n: (d.start, d.count) for n, d in made.current.pending.items()} == {
        0: (0, 1), 1: (1, 2), 2: (3, 1), 3: (4, 1), 4: (5, 1),
    }  # fmt: skip


def test_a_hand_over_that_failed_changes_nothing():
    made = TaskOrder([[0], [1]], batched=True, once=True)
    made.begin(None, int, None)
    first = iter(made)
    made.take_back(made.hand_over())
    assert iter(made) is first and [task.number for task in first] == [0, 1]


def test_handed_over_later_the_next_one_rests_until_then():
    made = TaskOrder([[0], [1], [2]], batched=True, once=True)
    made.begin(None, int, None)
    first = iter(made)
    handover = made.hand_over(later=True)
    second = iter(made)
    assert [next(second).number, next(first).number, next(second).number, next(first).number] == [-1, 0, -1, 1]
    assert handover() == 2
    assert list(first) == [] and [task.number for task in second] == [2]
