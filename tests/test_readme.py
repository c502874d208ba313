"""The README says what the code does: commands, options, exit codes, names."""

import re
from pathlib import Path

import click
import pytest

import fastfeed
from fastfeed import errors
from fastfeed.cli.main import CLOSED_PIPE, INTERRUPTED, TERMINATED, cli

README = (Path(__file__).parent.parent / "README.md").read_text()


def options() -> set[str]:
    """All options of all commands."""
    found = {"--help", "--version"}
    for command in cli.commands.values():
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                found.update(parameter.opts, parameter.secondary_opts)
    return found


def test_every_command_is_in_the_table():
    listed = set(re.findall(r"^\| `fastfeed (\w+)", README, re.MULTILINE))
    assert listed == set(cli.commands)


def test_every_option_that_it_names_exists():
    named = set(re.findall(r"`[^`\n]*?(--[a-z][a-z-]+)", README)) | set(
        re.findall(r"^fastfeed .*?(--[a-z][a-z-]+)", README, re.MULTILINE)
    )
    assert named
    assert named <= options()


def test_exit_codes_are_those_of_the_errors_and_of_the_help():
    table = {int(code) for row in re.findall(r"^\| ([\d, ]+) \|", README, re.MULTILINE) for code in row.split(",")}
    codes = {
        kind.exit_code for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.FastfeedError)
    }
    assert table == codes | {0, INTERRUPTED, CLOSED_PIPE, TERMINATED}
    help_text = cli.epilog or ""
    assert all(re.search(rf"\b{code}\b", help_text) for code in table)


def test_every_public_name_that_it_uses_exists():
    used = set(re.findall(r"\bfastfeed\.([A-Za-z]\w*)\b(?!/)", README)) - {"open", "packer"}
    assert used
    assert used <= set(fastfeed.__all__)


@pytest.mark.parametrize("name", ["classes", "class_to_idx", "targets", "samples", "column", "open"])
def test_every_attribute_that_it_promises_exists(name):
    assert f"`ds.{name}" in README
    assert hasattr(fastfeed.PackedDataset, name)
