import logging
import os
import time

import pytest
from auditing import children, crew_of, program
from helpers import make_photos

from fastfeed.auditor.running.crew import Crew, Task
from fastfeed.auditor.running.limits import Limits
from fastfeed.auditor.running.process import starter
from fastfeed.auditor.running.targets import find_target
from fastfeed.errors import UsageError, WorkerDied

EACH = {  # what a sample does, the code, and words of the text
    "os.kill(os.getpid(), signal.SIGSEGV)": ("crash", "its process was killed by SIGSEGV, twice; it stood in __getitem__"),
    "ctypes.string_at(0)": ("crash", "called from __getitem__"),
    "os._exit(9)": ("crash", "its process ended with exit code 9, twice"),
    "os.kill(os.getpid(), signal.SIGKILL)": ("crash", "the kernel kills so when memory runs out"),
    "os.abort()": ("crash", "SIGABRT"),
    "os.kill(os.getpid(), 40)": ("crash", "its process was killed by signal 40, twice"),
    "time.sleep(1000)": ("hang", "it stood in __getitem__"),
    "os.kill(os.getpid(), signal.SIGSTOP)": ("hang", " s; it did not answer the signal that asks for its stack"),
    "os.closerange(3, 256)": (
        "crash",
        "its process ended with exit code 1, twice; it said OSError: [Errno 9] Bad file descriptor",
    ),
    "os.closerange(3, 256) or time.sleep(1000)": ("crash", "its process closed the pipe by which it answers, twice"),
    "os.fork() and os._exit(7) or time.sleep(1000)": ("crash", "its process ended with exit code 7, twice"),
    "bytearray(1 << 40)": ("memory", "MemoryError"),
    "raise IndexError('mine')": ("stops-early", "IndexError: mine"),
}


def run(crew, indices):
    with crew:
        return {record.index: record for record in crew.run(Task(index) for index in indices)}


@pytest.mark.long
@pytest.mark.parametrize(("does", "code", "words"), [(does, *told) for does, told in EACH.items()], ids=list(EACH))
def test_exactly_one_sample_is_named_and_the_others_are_loaded(tmp_path, does, code, words):
    name = program(tmp_path, f"if index == 17:\n    {does}")
    found = run(crew_of(name, count=2, kill_seconds=3.0, memory_bytes=1 << 30), range(40))
    assert sorted(found) == list(range(40))
    flagged = {index: record.findings for index, record in found.items() if record.findings}
    assert list(flagged) == [17]
    assert [one.code.name for one in flagged[17]] == [code]
    assert words in flagged[17][0].text
    assert not children()


@pytest.mark.long
def test_all_of_them_in_one_run(tmp_path):
    body = "\n".join(f"if index == {2 * at}:\n    {does}" for at, does in enumerate(EACH))
    found = run(crew_of(program(tmp_path, body), count=2, kill_seconds=3.0, memory_bytes=1 << 30), range(40))
    codes = {index: [one.code.name for one in record.findings] for index, record in found.items() if record.findings}
    assert codes == {2 * at: [code] for at, (code, _) in enumerate(EACH.values())}
    assert sorted(found) == list(range(40))


def test_a_crash_that_does_not_come_back_is_no_error(tmp_path):
    marker = tmp_path / "marker"
    body = f"if index == 5 and not os.path.exists({str(marker)!r}):\n    open({str(marker)!r}, 'w').close()\n    os._exit(4)"
    found = run(crew_of(program(tmp_path, body)), range(10))
    assert [one.code.name for one in found[5].findings] == ["crash-once"]
    assert "a process ended with exit code 4 at it, after 5 others" in found[5].findings[0].text
    assert sum(len(record.findings) for record in found.values()) == 1


@pytest.mark.long
def test_what_takes_long_is_spoken_of_and_left_to_end(tmp_path, caplog):
    name = program(tmp_path, "if index == 3:\n    time.sleep(4)")
    with caplog.at_level(logging.WARNING, logger="fastfeed.audit"):
        found = run(crew_of(name, least_seconds=0.5), range(10))
    assert sorted(found) == list(range(10))
    assert [one.code.name for one in found[3].findings] == ["takes-long"]
    assert f"meanwhile it stood in __getitem__ ({tmp_path}/bad.py:13)" in found[3].findings[0].text
    assert "sample 3 takes long" in caplog.text and "It is ended after 10 min" in caplog.text


@pytest.mark.long
def test_when_everything_dies_it_is_not_the_samples(tmp_path):
    with pytest.raises(
        WorkerDied, match="8 samples in a row killed the process that loaded them, and no other could be loaded"
    ):
        run(crew_of(program(tmp_path, "os._exit(1)")), range(40))
    assert not children()


@pytest.mark.long
def test_many_bad_ones_in_a_row_are_not_the_machine(tmp_path):
    found = run(crew_of(program(tmp_path, "if 10 <= index < 20:\n    os._exit(3)")), range(40))
    assert sorted(found) == list(range(40))
    assert [index for index in range(40) if found[index].findings] == list(range(10, 20))


@pytest.mark.long
def test_when_nothing_can_be_loaded_any_more_it_is_the_machine(tmp_path):
    gone = str(tmp_path / "gone")
    body = f"if index == 5:\n    open({gone!r}, 'w').close()\nif os.path.exists({gone!r}):\n    os._exit(3)"
    with pytest.raises(WorkerDied, match="and no other could be loaded"):
        run(crew_of(program(tmp_path, body)), range(40))


def test_a_child_that_cannot_start(tmp_path):
    (tmp_path / "dies.py").write_text("import os\nprint('why', flush=True)\nos._exit(5)\n")
    with crew_of(f"{tmp_path}/dies.py:make") as crew, pytest.raises(WorkerDied, match=r"before it could load any sample.*why"):
        crew.prepare()


def test_a_child_that_is_killed_while_it_starts_is_replaced(tmp_path):
    marker = str(tmp_path / "marker")
    name = program(tmp_path, "return index")
    path = tmp_path / "bad.py"
    once = f"if not os.path.exists({marker!r}):\n    open({marker!r}, 'w').close()\n    os.kill(0, signal.SIGKILL)\n"
    path.write_text(f"import os, signal\n{once}{path.read_text()}")
    with crew_of(name) as crew:
        assert crew.prepare() == 40
        os.unlink(marker)
        crew._dismiss(crew._children[0])
        assert sorted(record.index for record in crew.run(Task(index) for index in range(10))) == list(range(10))
    assert not children()


def test_children_that_are_killed_each_time_are_no_chance(tmp_path):
    (tmp_path / "dies.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n")
    with crew_of(f"{tmp_path}/dies.py:make") as crew, pytest.raises(WorkerDied, match="SIGKILL before it could load any"):
        crew.prepare()


def test_what_cannot_be_opened(tmp_path):
    with crew_of(f"{tmp_path}/none.py:make") as crew, pytest.raises(UsageError, match="cannot be imported"):
        crew.prepare()


@pytest.mark.long
def test_a_crashing_sample_keeps_its_names(tmp_path):
    make_photos(tmp_path / "photos")
    (tmp_path / "kills.py").write_text(
        "import os\nfrom torchvision.datasets import ImageFolder\n"
        "def kill(image):\n    os._exit(3)\n"
        f"def make():\n    return ImageFolder({str(tmp_path / 'photos')!r}, kill)\n"
    )
    found = run(crew_of(f"{tmp_path}/kills.py:make"), [4])
    assert (found[4].path, found[4].label) == ("dog/001.jpg", "dog")
    assert [one.code.name for one in found[4].findings] == ["crash"]


def test_a_stream_ends_by_itself(tmp_path):
    (tmp_path / "stream.py").write_text("class Stream:\n    def __iter__(self):\n        yield from range(12)\nmake = Stream\n")
    with crew_of(f"{tmp_path}/stream.py:make", count=3) as crew:
        assert crew.prepare() is None
        records = list(crew.run(Task(index) for index in range(10_000)))
        assert [record.index for record in records] == list(range(12))
        assert crew.ended_at == 12


def test_a_stream_cannot_be_read_beyond_a_crash(tmp_path):
    (tmp_path / "stream.py").write_text(
        "import os\nclass Stream:\n    def __iter__(self):\n        yield from range(5)\n        os._exit(3)\nmake = Stream\n"
    )
    with crew_of(f"{tmp_path}/stream.py:make") as crew:
        crew.prepare()
        records = list(crew.run(Task(index) for index in range(100)))
        assert [record.index for record in records] == list(range(6))
        assert [one.code.name for one in records[5].findings] == ["crash"]
        assert crew.cut_short is not None and "beyond sample 5" in crew.cut_short


@pytest.mark.long
def test_what_takes_long_again_has_times(tmp_path):
    with crew_of(program(tmp_path, "if index == 3:\n    time.sleep(2.5)"), least_seconds=0.5) as crew:
        assert crew.measured([1, 3], cold=False)[3][0]["load"].wall >= 2.5


def test_times_alone(tmp_path):
    make_photos(tmp_path / "photos")
    target = find_target(tmp_path / "photos")
    with Crew(starter(target.spec, None), target.spec, count=1, limits=Limits()) as crew:
        found = crew.measured([3, 1], cold=True)
        assert list(found) == [3, 1] and set(found[3][0]) == {"read", "decode"}
        assert crew.beats and crew.beats[0].cpu_seconds > 0


def test_what_fails_has_no_time(tmp_path):
    with crew_of(program(tmp_path, "if index == 1:\n    raise ValueError\ntime.sleep(0)")) as crew:
        assert list(crew.measured([0, 1, 2], cold=False)) == [0, 2]
        assert crew.measured([0], cold=True) == {}


def test_none_is_measured_again_when_time_is_up(tmp_path):
    with crew_of(program(tmp_path, "pass")) as crew:
        assert crew.measured([0, 1], cold=False, deadline=time.monotonic()) == {}
        assert list(crew.measured([0, 1], cold=False, deadline=time.monotonic() + 1000)) == [0, 1]
