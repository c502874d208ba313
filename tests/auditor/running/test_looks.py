from helpers import make_photos

from fastfeed.auditor.record import SampleRecord, StageTime
from fastfeed.auditor.running.crew import Crew, Task
from fastfeed.auditor.running.limits import Limits
from fastfeed.auditor.running.looks import Looks
from fastfeed.auditor.running.process import starter
from fastfeed.auditor.running.targets import find_target


def looks_of(*beside_seconds):
    """Samples that take a second to load, and so much more to look at."""
    looks = Looks()
    for index, seconds in enumerate(beside_seconds):
        looks.add(SampleRecord(index, path=f"{index}.jpg", times={"decode": StageTime(1.0, 1.0, 0.0)}), 1.0 + seconds)
    return looks


def test_one_that_takes_most_of_it_is_named():
    assert looks_of(0.5, 11.0, 0.5).notes() == ["looking at bytes, beside loading them, took 12.0 s, 11.0 s of it at 1.jpg"]


def test_nothing_is_said_where_it_is_short_or_spread():
    assert looks_of(0.5, 4.0).notes() == []
    assert looks_of(*[1.0] * 20).notes() == []
    assert Looks().notes() == []


def test_of_samples_that_came_together_the_sum_is_right():
    assert looks_of(-0.5, 0.5, 6.0).seconds == 6.0


def test_a_crew_adds_up_what_its_samples_took(tmp_path):
    target = find_target(make_photos(tmp_path / "photos"))
    crew = Crew(starter(target.spec, None), target.spec, count=1, limits=Limits())
    with crew:
        crew.prepare()
        records = list(crew.run(Task(index) for index in range(6)))
    assert len(records) == 6 and crew.looks.seconds > 0
