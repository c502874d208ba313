"""What no linter knows: the cold door, sizes, mirrors, and that the contracts cover the whole house."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "fastfeed"
MODULES = sorted(path.relative_to(ROOT) for path in PACKAGE.rglob("*.py"))
HEAVY = {"torch", "numpy", "nvidia", "zstandard", "PIL", "webdataset", "datasets", "rich", "xxhash"}
MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 50


def loaded_after(code: str) -> set[str]:
    """Top-level modules in a fresh interpreter after running code."""
    script = f"{code}\nimport sys\nprint('\\n'.join({{name.partition('.')[0] for name in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT)
    return set(done.stdout.split())


def test_import_is_cold():
    assert not loaded_after("import fastfeed") & (HEAVY | {"click"})


def test_help_is_cold():
    code = "from fastfeed.cli.main import cli\ntry:\n    cli(['--help'])\nexcept SystemExit:\n    pass"
    assert not loaded_after(code) & HEAVY


def test_packing_needs_no_torch_and_no_pillow():
    assert not loaded_after("import fastfeed\nfastfeed.pack\nfastfeed.verify\nfastfeed.unpack") & {
        "torch",
        "PIL",
        "nvidia",
        "zstandard",
    }


@pytest.mark.long
def test_the_door_lists_what_it_opens():
    code = (
        "import fastfeed, sys\n"
        "missing = [name for name in fastfeed.__all__ if not hasattr(fastfeed, name)]\n"
        "assert not missing, missing\n"
        "assert set(fastfeed.__all__) <= set(dir(fastfeed))\n"
        "import importlib.util, pathlib\n"
        "rooms = {p.stem for p in pathlib.Path(fastfeed.__file__).parent.iterdir()}\n"
        "clash = rooms & set(fastfeed.__all__) - {'__version__'}\n"
        "assert not clash, f'a room has the name of a public thing: {clash}'\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


@pytest.mark.parametrize("module", MODULES, ids=str)
def test_file_size(module):
    lines = (ROOT / module).read_text().count("\n")
    assert lines <= MAX_FILE_LINES, f"{module} has {lines} lines: split it by purpose"


@pytest.mark.parametrize("module", MODULES, ids=str)
def test_function_size(module):
    for node in ast.walk(ast.parse((ROOT / module).read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[1:] if ast.get_docstring(node) else node.body
            if body:
                lines = (body[-1].end_lineno or 0) - body[0].lineno + 1
                assert lines <= MAX_FUNCTION_LINES, f"{module}:{node.lineno} {node.name} has {lines} lines"


@pytest.mark.parametrize("module", [m for m in MODULES if m.name not in {"__init__.py", "__main__.py"}], ids=str)
def test_each_module_has_its_test(module):
    inside = module.relative_to("fastfeed")
    mirror = ROOT / "tests" / inside.parent / f"test_{inside.name}"
    assert mirror.exists(), f"{module} has no {mirror.relative_to(ROOT)}"


def test_contracts_name_every_room():
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layered = {name for c in contracts if c["type"] == "layers" for name in c["containers"]}
    rooms = {".".join(path.parent.relative_to(ROOT).parts) for path in PACKAGE.rglob("__init__.py")}
    assert rooms == layered, "each package of fastfeed needs a layers contract in pyproject.toml"
    assert all(c.get("exhaustive") for c in contracts if c["type"] == "layers")


def test_import_contracts_hold():
    done = subprocess.run(
        [sys.executable, "-c", "from importlinter.cli import lint_imports; raise SystemExit(lint_imports())"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_dali_is_imported_in_one_file():
    """By its name, when it is needed: no contract about imports sees that."""
    named = [str(module) for module in MODULES if re.search(r"\bnvidia\.", (ROOT / module).read_text())]
    assert named == ["fastfeed/feed/dalipipeline.py"]
