"""The cursor: each epoch once, whether a loop calls set_epoch or not, and a loaded position once."""

from fastfeed.feed.cursor import Cursor


def test_epochs_go_on_by_themselves():
    cursor = Cursor()
    assert [cursor.begin() for _ in range(3)] == [(0, 0), (1, 0), (2, 0)]
    assert cursor.epoch == 2


def test_set_epoch_says_which_and_never_adds_one():
    cursor = Cursor()
    begun = []
    for epoch in (0, 1, 2, 7):
        assert cursor.set_epoch(epoch) == 0
        cursor.set_epoch(epoch)  # twice, as some trainers do
        begun.append(cursor.begin())
    assert begun == [(0, 0), (1, 0), (2, 0), (7, 0)]


def test_after_set_epoch_epochs_go_on_from_there():
    cursor = Cursor()
    cursor.set_epoch(5)
    assert [cursor.begin() for _ in range(2)] == [(5, 0), (6, 0)]
    cursor.set_epoch(6)
    assert cursor.begin() == (6, 0)


def test_a_loaded_position_is_used_once():
    cursor = Cursor()
    cursor.load(3, 40, finished=False)
    assert (cursor.epoch, cursor.coming()) == (3, (3, 40))
    assert [cursor.begin() for _ in range(2)] == [(3, 40), (4, 0)]


def test_set_epoch_of_the_loaded_epoch_keeps_the_position():
    cursor = Cursor()
    cursor.load(3, 40, finished=False)
    assert [cursor.set_epoch(3), cursor.set_epoch(3)] == [0, 0]
    assert cursor.begin() == (3, 40)
    cursor.set_epoch(3)
    assert cursor.begin() == (3, 0), "once it was used, the epoch begins at its beginning"


def test_set_epoch_of_another_epoch_drops_the_position():
    cursor = Cursor()
    cursor.load(3, 40, finished=False)
    assert cursor.set_epoch(0) == 40
    assert cursor.set_epoch(3) == 0
    assert cursor.begin() == (3, 0)


def test_a_finished_epoch_is_followed_by_the_next():
    cursor = Cursor()
    cursor.load(3, 100, finished=True)
    assert cursor.coming() == (4, 0)
    assert cursor.begin() == (4, 0)
    cursor.load(3, 100, finished=True)
    assert cursor.set_epoch(4) == 0, "nothing is lost: no word"
    assert cursor.begin() == (4, 0)


def test_set_epoch_of_a_finished_epoch_has_nothing_left():
    cursor = Cursor()
    cursor.load(3, 100, finished=True)
    cursor.set_epoch(3)
    assert [cursor.begin() for _ in range(2)] == [(3, 100), (4, 0)]
