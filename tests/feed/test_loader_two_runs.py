"""Two training scripts on one machine, on the same packed dataset and temporary folder: neither notices the other."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

import pytest
from commands import environment
from helpers import pack_photos

RUN = """
import json, sys
import fastfeed, torchvision.transforms as T
if __name__ == "__main__":
    transform = T.Compose([T.RandomResizedCrop(16), T.RandomHorizontalFlip(), T.PILToTensor()])
    dataset = fastfeed.open(sys.argv[1], transform)
    loader = fastfeed.DataLoader(dataset, 4, shuffle=True, seed=int(sys.argv[2]), num_workers=int(sys.argv[3]))
    for epoch in range(int(sys.argv[4])):
        sums = [[int(images.long().sum()), classes.tolist()] for images, classes in loader]
        print(json.dumps(sums), flush=True)
        sys.stdin.readline()
"""


class Run:
    """A training script; it waits behind each epoch for a line."""

    def __init__(self, folder: Path, seed: int, *, workers: int = 2, epochs: int = 3) -> None:
        command = [sys.executable, "-c", RUN, folder / "packed", seed, workers, epochs]
        self.process = subprocess.Popen(
            list(map(str, command)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True,
            env=environment({"TMPDIR": str(folder / "tmp")}),
        )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            stream.close()

    def epoch(self) -> Any:
        """What it saw in the epoch that it is in."""
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def goes_on(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def whole(self) -> list[Any]:
        """All of its epochs, one by one."""
        found = []
        for _ in range(3):
            found.append(self.epoch())
            self.goes_on()
        assert self.process.wait(60) == 0
        return found

    def kill(self) -> None:
        """As a batch system does."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(60)


@pytest.mark.long
def test_two_runs_do_not_disturb_each_other_when_one_is_killed(tmp_path):
    pack_photos(tmp_path, each=20)
    (tmp_path / "tmp").mkdir()
    alone = []
    for seed in (1, 2):
        with Run(tmp_path, seed, workers=0) as run:
            alone.append(run.whole())
    with Run(tmp_path, 1) as one, Run(tmp_path, 2) as other:
        assert [one.epoch(), other.epoch()] == [epochs[0] for epochs in alone]
        one.goes_on()
        other.goes_on()
        assert [one.epoch(), other.epoch()] == [epochs[1] for epochs in alone]
        one.kill()
        with Run(tmp_path, 1) as again:  # begun anew beside the other one
            other.goes_on()
            assert [again.epoch(), other.epoch()] == [alone[0][0], alone[1][2]]
        other.goes_on()
        assert other.process.wait(60) == 0
    assert list((tmp_path / "tmp").glob("fastfeed*")) == []
