import shlex

import click
import pytest

from fastfeed.cli import audit, pack
from fastfeed.cli.given import Given

ROWS = {
    "root": "/my data", "fields": ("image={id}.jpg", "mask={id}'s.png"), "label": "kind", "key": None, "class_names": "c.txt",
    "hidden": False, "tokenizer": None, "fast": True, "kill_after": 2.5, "memory_limit": 1 << 30, "sample": 10, "workers": None,
}  # fmt: skip
OTHERS = ("--fast", "--kill-after", "2.5", "--memory-limit", "1073741824")
READ = (
    "--root",
    "/my data",
    "--field",
    "image={id}.jpg",
    "--field",
    "mask={id}'s.png",
    "--label",
    "kind",
    "--classes",
    "c.txt",
)


def test_what_says_how_a_list_is_read_is_repeated():
    given = Given(ROWS, "list")
    assert tuple(shlex.split(given.for_pack())) == READ
    assert tuple(shlex.split(given.for_audit())) == (*READ, *OTHERS)
    assert given.for_open() == (
        ", root='/my data', field={'image': '{id}.jpg', 'mask': \"{id}'s.png\"}, label='kind'"
        ", classes=[line.strip() for line in open('c.txt')]"
    )


@pytest.mark.parametrize(("kind", "pack_flags", "opened"), [("folder", " --hidden", ", hidden=True"), ("packed", "", "")])
def test_what_does_not_belong_to_a_kind_is_not(kind, pack_flags, opened):
    given = Given({"hidden": True, "fields": (), "root": None}, kind)
    assert (given.for_pack(), given.for_audit(), given.for_open()) == (pack_flags, pack_flags, opened)


def test_what_is_repeated_is_taken():
    given = Given(ROWS, "list")
    for command, words in ((audit.command, given.for_audit()), (pack.command, given.for_pack())):
        places = ["a.csv", "b"][: 1 if command is audit.command else 2]
        with click.Context(command) as context:
            command.parse_args(context, [*places, *shlex.split(words)])
        assert context.params["fields"] == ROWS["fields"] and context.params["root"] == ROWS["root"]
        assert context.params.get("memory_limit", 1 << 30) == 1 << 30
