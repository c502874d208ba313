import logging
from pathlib import Path

import pytest
from auditing import children, crew_of

import fastfeed
from fastfeed.auditor.running.crew import Task
from fastfeed.auditor.running.limits import opening_seconds
from fastfeed.errors import WorkerDied

HANGS = {
    "its import": "import time\ntime.sleep(1000)\n",
    "what makes it": "import time\ndef make():\n    time.sleep(1000)\n",
    "its length": "import time\nclass make:\n    def __getitem__(self, index):\n        pass\n    def __len__(self):\n"
    "        time.sleep(1000)\n",
}


def dataset(folder: Path, code: str) -> str:
    path = folder / "slow.py"
    path.write_text(code)
    return f"{path}:make"


@pytest.mark.parametrize(("code", "line"), [(code, code[: code.index("sleep")].count("\n") + 1) for code in HANGS.values()],
                         ids=list(HANGS))  # fmt: skip
def test_one_that_never_opens_is_given_up_where_that_is_asked(tmp_path, code, line):
    name = dataset(tmp_path, code)
    with crew_of(name, open_seconds=1.5) as crew, pytest.raises(WorkerDied) as caught:
        crew.prepare()
    assert "could not be opened: it was given up after" in caught.value.message
    assert f"({tmp_path}/slow.py:{line})" in caught.value.message and "importlib" not in caught.value.message
    assert "--kill-after" in str(caught.value)
    assert not children()


def test_one_that_is_not_open_when_time_is_up_is_given_up(tmp_path):
    name = dataset(tmp_path, HANGS["what makes it"])
    with pytest.raises(WorkerDied, match="could not be opened") as caught:
        fastfeed.audit(name, max_minutes=0.02)
    assert caught.value.hint is not None and "--max-minutes" in caught.value.hint
    assert not children()


def test_one_that_takes_long_is_spoken_of_and_left_to_open(tmp_path, caplog):
    name = dataset(tmp_path, "import time\ndef make():\n    time.sleep(2.5)\n    return list(range(3))\n")
    with caplog.at_level(logging.WARNING, logger="fastfeed.audit"), crew_of(name, least_seconds=0.2) as crew:
        assert crew.prepare() == 3
        assert sorted(record.index for record in crew.run(Task(index) for index in range(3))) == [0, 1, 2]
    assert f"so far; it stood in make ({tmp_path}/slow.py:3). It may take as long as it needs" in caplog.text


def test_what_a_sample_may_take_is_not_what_opening_may_take(tmp_path, caplog):
    name = dataset(tmp_path, "import time\ndef make():\n    time.sleep(2.5)\n    return list(range(3))\n")
    limits = {"kill_seconds": 0.1, "open_seconds": opening_seconds(0.1), "least_seconds": 0.2}
    with caplog.at_level(logging.WARNING, logger="fastfeed.audit"), crew_of(name, **limits) as crew:
        assert crew.prepare() == 3
    assert "It is given up after 1 min 00 s (--kill-after)." in caplog.text


def test_a_child_that_opens_later_than_the_first_is_watched_too(tmp_path):
    opened = tmp_path / "opened"
    code = f"import os, time\nif os.path.exists({str(opened)!r}):\n    time.sleep(1000)\nopen({str(opened)!r}, 'w').close()\n"
    name = dataset(tmp_path, f"{code}make = list(range(40))\n")
    with crew_of(name, open_seconds=2.0) as crew:
        assert crew.prepare() == 40
        crew._dismiss(crew._children[0])
        with pytest.raises(WorkerDied, match="could not be opened"):
            list(crew.run(Task(index) for index in range(40)))
    assert not children()
