"""Hugging Face's Trainer under install(): it makes our loader, and Accelerate, which makes it anew, makes ours again."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import ROOT

SCRIPT = """
import sys
import torch
import fastfeed
when, folder = sys.argv[1:]
if when == "early":
    fastfeed.install()
from transformers import Trainer, TrainingArguments
if when == "late":
    fastfeed.install()


class Doubled(torch.utils.data.Dataset):
    def __len__(self): return 18
    def __getitem__(self, index): return {"x": torch.tensor([float(index)]), "labels": torch.tensor([2.0 * index])}


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(1, 1)
        self.seen = []

    def forward(self, x, labels=None):
        self.seen.append([int(value) for value in x])
        found = self.linear(x)
        return {"loss": ((found - labels) ** 2).mean(), "logits": found}


torch.manual_seed(3)
arguments = TrainingArguments(
    folder, per_device_train_batch_size=4, num_train_epochs=2, report_to=[], use_cpu=True, save_strategy="no",
    disable_tqdm=True, logging_strategy="no", seed=5, dataloader_num_workers=1, learning_rate=1e-3,
)
model = Model()
trainer = Trainer(model, arguments, train_dataset=Doubled(), eval_dataset=Doubled())
trainer.train()
print("loss", trainer.evaluate()["eval_loss"])
print("seen", model.seen)
loader = trainer.get_train_dataloader()
print("accelerate's", isinstance(loader, fastfeed.DataLoader), isinstance(loader, torch.utils.data.DataLoader))
print("plan", getattr(loader.base_dataloader, "plan", None))
"""


def training(when: str, folder: Path, **environment: str) -> list[str]:
    """What the script said, under "plan" the whole plan as one line."""
    environment = {**os.environ, "TOKENIZERS_PARALLELISM": "false", **environment}
    command = [sys.executable, "-c", SCRIPT, when, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    first = next(at for at, line in enumerate(lines) if line.startswith("loss"))
    return [*lines[first : first + 3], " ".join(lines[first + 3 :])]


@pytest.mark.long
def test_it_trains_as_without_us(tmp_path: Path):
    without = training("never", tmp_path)
    assert without[2:] == ["accelerate's False True", "plan None"]
    found = training("early", tmp_path)
    assert found[:2] == without[:2]
    assert found[2] == "accelerate's True True"
    assert "1 worker: num_workers was given" in found[3]
    assert training("early", tmp_path, FASTFEED_DISABLE="1") == without


@pytest.mark.long
def test_the_override_reaches_it_also_when_it_was_imported_before(tmp_path: Path):
    found = training("late", tmp_path, FASTFEED_OVERRIDE="num_workers,prefetch_factor")
    assert found[2] == "accelerate's True True"
    assert re.search(r"num_workers=[0-9]+ was given and gives way to ours \(FASTFEED_OVERRIDE\)", found[3])
