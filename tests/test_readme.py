"""The README says what the code does: commands, options, exit codes, names."""

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import click
import pytest
from commands import environment
from helpers import ROOT, make_photos, packed

import fastfeed
from fastfeed import errors
from fastfeed.cli.audit import FOUND
from fastfeed.cli.main import CLOSED_PIPE, INTERRUPTED, TERMINATED, cli

README = (ROOT / "README.md").read_text()


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


def test_ci_runs_its_two_commands_and_the_long_tests():
    demo, tests = re.findall(r"^```sh\n(python3 -m venv .*)\n```$", README, re.MULTILINE)
    ci = (ROOT / ".ci" / "run").read_text().replace(" -q ", " ")
    places = [
        ci.find(f"\n{command}\n") for command in (*tests.split(" && "), ".venv/bin/python tools/soak", demo.split(" && ")[-1])
    ]
    assert places == sorted(places) and places[0] > 0
    assert demo.split(" && ")[1:] == [".venv/bin/pip install .", ".venv/bin/fastfeed demo"]


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
    assert table == codes | {0, FOUND, INTERRUPTED, CLOSED_PIPE, TERMINATED}
    help_text = cli.epilog or ""
    assert all(re.search(rf"\b{code}\b", help_text) for code in table)


def test_every_public_name_that_it_uses_exists():
    imports = re.findall(r"^from (fastfeed\.[\w.]+) import (.+)$", README, re.MULTILINE)
    assert imports
    for module, names in imports:
        for name in names.split(", "):
            assert hasattr(import_module(module), name), name
    rest = re.sub(r"^from .*", "", README, flags=re.MULTILINE)
    used = set(re.findall(r"\bfastfeed\.([A-Za-z]\w*)\b(?!/)", rest))
    assert used
    assert used <= set(fastfeed.__all__)


def test_the_script_that_finds_what_is_broken_and_slow(tmp_path: Path):
    """As it stands in the README, but for the path; what it writes is what --exclude takes."""
    source = make_photos(tmp_path / "src", each=2)
    (source / "dog" / "b c.jpg").write_bytes(b"no picture")
    packed(source, tmp_path / "packed")
    (script,) = [block for block in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if "fastfeed.audit(" in block]
    script = script.replace("/data/imagenet-packed/train", str(tmp_path / "packed"))
    done = subprocess.run(
        [sys.executable, "-c", script + "print(len(ds))"], cwd=tmp_path, env=environment(), capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert "error not-an-image: 1, such as dog/b c.jpg" in done.stdout
    assert done.stdout.splitlines()[-1] == "4"
    assert packed(source, tmp_path / "clean", exclude=str(tmp_path / "skip.jsonl")).datasets[0].samples == 4


@pytest.mark.long
def test_the_script_of_columns(tmp_path: Path):
    """As it stands in the README, but for the paths and the transform."""
    packed(make_photos(tmp_path / "src", each=20), tmp_path / "packed")
    (tmp_path / "captions-v2.csv").write_text(
        "path,caption,length\n" + "".join(f"cat/{at:03d}.jpg,a cat,5\n" for at in range(20))
    )
    (script,) = [block for block in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if ".split(" in block]
    script = script.replace("/data/imagenet-packed/train", str(tmp_path / "packed")).replace("transform=transform, ", "")
    script = "import fastfeed\n" + script.replace("width >= 256", "width >= 16") + "print(len(train), len(val), lengths[0])"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=environment({"XDG_CACHE_HOME": str(tmp_path / "cache")}),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "18 2 5.0\n")


@pytest.mark.parametrize(
    "name",
    [
        "where",
        "split",
        "select",
        "positions",
        "classes",
        "class_to_idx",
        "targets",
        "samples",
        "columns",
        "column",
        "open",
        "identity",
    ],
)
def test_every_attribute_that_it_promises_exists(name):
    assert f"`ds.{name}" in README
    assert hasattr(fastfeed.PackedDataset, name)


BEFORE = {
    "from fastfeed.accelerate import prepare": """
import torch
from torch.utils.data import TensorDataset
import fastfeed
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
loader = fastfeed.DataLoader(TensorDataset(torch.arange(24.0).reshape(8, 3)), 2, shuffle=True, seed=0, num_workers=0)
""",
    "class Trainer(TrainerMixin, transformers.Trainer)": "import os\nos.environ['CUDA_VISIBLE_DEVICES'] = ''\n",
    "from timm.data import create_dataset, create_loader": "",
}
AFTER = {
    "from fastfeed.accelerate import prepare": """
steps = 0
for (batch,) in loader:
    with accelerator.accumulate(model):
        accelerator.backward(model(batch).sum())
        optimizer.step()
        steps += accelerator.sync_gradients
assert isinstance(loader, fastfeed.DataLoader) and steps == 2, steps
""",
    "class Trainer(TrainerMixin, transformers.Trainer)": """
import torch
import fastfeed
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 1)
    def forward(self, x):
        return {"loss": self.layer(x).sum()}
samples = [{"x": torch.arange(3.0)} for _ in range(8)]
options = transformers.TrainingArguments("out", max_steps=2, report_to=[], use_cpu=True, save_strategy="no", disable_tqdm=True)
trainer = Trainer(Model(), options, train_dataset=samples)
assert trainer.train().global_step == 2
assert isinstance(trainer.get_train_dataloader(), fastfeed.DataLoader)
""",
    "from timm.data import create_dataset, create_loader": """
assert isinstance(loader, fastfeed.DataLoader)
images, targets = next(iter(loader))
assert images.shape == (64, 3, 224, 224) and len(targets) == 64
""",
}


@pytest.mark.long
@pytest.mark.parametrize("recipe", BEFORE)
def test_the_recipes_for_frameworks_run_as_they_stand(recipe, tmp_path):
    (block,) = [block for block in re.findall(r"^```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL) if recipe in block]
    make_photos(tmp_path / "photos", each=40)
    main = f"if __name__ == '__main__':\n    exec({BEFORE[recipe] + block + AFTER[recipe]!r}, globals())\n"
    (tmp_path / "main.py").write_text(main)
    done = subprocess.run(
        [sys.executable, "main.py"], cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
