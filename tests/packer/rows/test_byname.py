import re
import sys
import textwrap

import pytest

from fastfeed.errors import UsageError
from fastfeed.packer.rows.byname import MAX_WHY, find_object, is_named, load_object, told_error


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("package.module:name", True), ("module:Class.attribute", True), ("path/to/file.py:name", True),
        ("/a b/ü.py:make", True),
        ("s3://bucket/key", False), ("https://host/x", False), ("no/such/folder", False), ("a:b c", False), ("C:\\data", False),
        (":name", False), ("module:", False),
    ],
)  # fmt: skip
def test_names_of_objects(text, expected):
    assert is_named(text) is expected


@pytest.fixture
def folder(tmp_path, monkeypatch):
    code = """
        import helper_beside
        from dataclasses import dataclass

        @dataclass
        class Point:
            x: int = 3

        class Data:
            def __init__(self, count=2):
                self.items = [helper_beside.make(at) for at in range(count)]
            def __len__(self):
                return len(self.items)
            def __getitem__(self, at):
                return self.items[at]

        class Needs:
            def __init__(self, path): ...

        ready = Data(5)
        listed = [{"txt": "x"}]
        number = 5
        def stream():
            yield {"txt": "a"}
        def broken():
            raise RuntimeError("no data here")
        class Home:
            inner = Data(1)
    """
    (tmp_path / "my_data.py").write_text(textwrap.dedent(code))
    (tmp_path / "helper_beside.py").write_text("def make(at):\n    return {'txt': str(at)}\n")
    (tmp_path / "syntax_error.py").write_text("def (:\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.mark.parametrize("home", ["my_data", "my_data.py"])
def test_objects_are_taken_and_functions_called(folder, home):
    assert len(load_object(f"{home}:ready")) == 5
    assert len(load_object(f"{home}:Data")) == 2
    assert load_object(f"{home}:listed") == [{"txt": "x"}]
    assert list(load_object(f"{home}:stream")) == [{"txt": "a"}]
    assert len(load_object(f"{home}:Home.inner")) == 1
    assert load_object(f"{folder}/my_data.py:number") == 5


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("my_data:nothing", "my_data has nothing that is called nothing"),
        ("no_such_module:x", r"no_such_module cannot be imported \(ModuleNotFoundError: No module named"),
        ("none.py:x", r"none.py cannot be imported \(FileNotFoundError"),
        ("syntax_error.py:x", r"syntax_error.py cannot be imported \(SyntaxError: invalid syntax"),
        ("my_data:broken", r"my_data:broken is called without arguments.* that fails \(RuntimeError: no data here\)"),
        ("my_data:Needs", r"called without arguments.*fails \(TypeError: .*missing 1 required positional argument: 'path'\)"),
    ],
)
def test_what_cannot_be_had(folder, text, match):
    with pytest.raises(UsageError, match=match):
        load_object(text)


def test_a_file_takes_no_other_modules_place(folder):
    (folder / "json.py").write_text("data = [1]\n")
    assert load_object("json.py:data") == [1]
    import json

    assert json.dumps([1]) == "[1]"


def test_code_that_ends_the_program_is_named(tmp_path):
    (tmp_path / "ends.py").write_text("import sys\nsys.exit(3)\n")
    (tmp_path / "called.py").write_text("import sys\ndef make():\n    sys.exit('enough')\n")
    with pytest.raises(UsageError, match=r"ends.py cannot be imported \(SystemExit: 3\)"):
        load_object(f"{tmp_path}/ends.py:data")
    with pytest.raises(UsageError, match=r"called without arguments .*fails \(SystemExit: enough\)"):
        load_object(f"{tmp_path}/called.py:make")


def test_an_error_whose_text_cannot_be_made_is_told_all_the_same():
    class Mute(Exception):
        def __str__(self):
            raise RuntimeError

    assert told_error(Mute()) == "Mute, whose text cannot be made (RuntimeError)"


def test_an_error_is_told_with_its_place():
    with pytest.raises(UsageError, match="has nothing") as caught:
        load_object("json:none")
    told = told_error(caught.value)
    assert told.startswith("UsageError: json has nothing that is called none") and told.endswith(")")
    assert re.search(r" \(byname\.py:\d+\)$", told)
    assert told_error(ValueError("x" * 1000)) == "ValueError: " + "x" * (MAX_WHY - len("ValueError: "))


def test_an_object_may_be_wanted_as_it_is(folder):
    stream = find_object("my_data:stream")
    assert callable(stream) and list(stream()) == [{"txt": "a"}]
    with pytest.raises(UsageError, match="nothing that is called none"):
        find_object("my_data:none")
