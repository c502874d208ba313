"""What all commands share: how they speak, sizes on the command line, and the options that each command gets."""

import click
import pytest
from click.testing import CliRunner

from fastfeed.cli.common import Output, Size, speaks
from fastfeed.cli.main import cli
from fastfeed.trace import QUIET


class Heard:
    """A progress that counts how often it was finished."""

    def __init__(self) -> None:
        self.finished = 0

    def start(self, stage: str, items: int | None, size_bytes: int | None) -> None:
        pass

    def advance(self, items: int, size_bytes: int) -> None:
        pass

    def finish(self) -> None:
        self.finished += 1


def output(*, quiet: bool = False) -> Output:
    return Output(json=False, quiet=quiet, debug=False)


def test_quiet_has_no_progress():
    assert output(quiet=True).progress() is QUIET
    assert output().progress() is not QUIET


def test_closing_gives_the_terminal_back():
    heard = Heard()
    said = Output(json=False, quiet=False, debug=False, _progress=heard)
    said.close()
    assert heard.finished == 1
    output().close()


def test_what_to_say_after_an_interruption_is_made_when_it_comes():
    said, at = output(), iter(["1 of 2", "2 of 2"])
    assert said.interrupted() == "Nothing was begun."
    said.after_interrupt = "Run it again."
    assert said.interrupted() == "Run it again."
    said.after_interrupt = lambda: next(at)
    assert [said.interrupted(), said.interrupted()] == ["1 of 2", "2 of 2"]


@pytest.mark.parametrize(
    ("text", "size"), [("512MiB", 512 << 20), ("1.5GB", 1_500_000_000), ("100", 100), ("4 KiB", 4096), (7, 7)]
)
def test_sizes(text: str, size: int):
    assert Size()(text) == size


@pytest.mark.parametrize("text", ["big", "", "-1MiB", "5 parsecs"])
def test_what_is_no_size(text: str):
    with pytest.raises(click.BadParameter, match="size"):
        Size().convert(text, None, None)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], (False, False, False)),
        (["--json"], (True, False, False)),
        (["--quiet"], (False, True, False)),
        (["--debug", "--json", "--quiet"], (True, True, True)),
    ],
)
def test_a_command_gets_what_was_asked_for_and_its_code_is_handed_on(arguments: list[str], said: tuple[bool, bool, bool]):
    heard = []

    @click.command()
    @click.option("--name", default="x")
    @speaks
    def command(output: Output, *, name: str) -> int:
        heard.append((name, output.json, output.quiet, output.debug))
        return 42

    code = command.main(["--name", "y", *arguments], standalone_mode=False, obj=output())
    assert code == 42
    assert heard == [("y", *said)]


@pytest.mark.parametrize("name", sorted(cli.commands))
def test_every_command_speaks(name: str):
    options = {option for parameter in cli.commands[name].params for option in parameter.opts}
    assert {"--json", "--quiet", "--debug"} <= options


def test_help_of_every_command_fits_a_terminal():
    for name in cli.commands:
        text = CliRunner().invoke(cli, [name, "--help"]).output
        assert max(map(len, text.splitlines())) <= 100
