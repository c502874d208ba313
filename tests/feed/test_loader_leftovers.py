"""What a pass leaves behind, however it ends: no process, thread, file, descriptor or shared memory."""

import gc
import os
import signal
import subprocess
import sys
import textwrap
import time
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from loading import TORCHS_NOISE, At, Calls, NoCollector, Numbers, children, equal, own_temporary_folder, remains, settled
from torch.utils.data import DataLoader as TorchDataLoader

from fastfeed.feed.loader import DataLoader

pytestmark = TORCHS_NOISE


@pytest.fixture(autouse=True)
def temporary_folder():
    with own_temporary_folder():
        yield


def exhaust(one: DataLoader) -> None:
    assert sum(len(batch) for batch in one) == 32


def leave(one: DataLoader) -> None:
    for _ in one:
        break


def fail_in_the_loop(one: DataLoader) -> None:
    with pytest.raises(ZeroDivisionError):
        train(one)


def train(one: DataLoader) -> None:
    for _ in one:
        raise ZeroDivisionError


def begin(one: DataLoader) -> None:
    iter(one)


def twice_at_once(one: DataLoader) -> None:
    for first, second in zip(one, one, strict=True):
        assert torch.equal(first, second)


def two_passes_dropped(one: DataLoader) -> None:
    passes = [iter(one), iter(one)]
    for passed in passes:
        next(passed)


@pytest.mark.long
@pytest.mark.parametrize("end", [exhaust, leave, fail_in_the_loop, begin, twice_at_once, two_passes_dropped])
@pytest.mark.parametrize("options", [{"rng": "torch"}, {"rng": "sample", "with_index": False}], ids=["torch", "sample"])
def test_nothing_is_left(end, options):
    before = remains()
    with NoCollector():
        one = DataLoader(Calls(torch.tensor, 32), 4, num_workers=2, **options)
        end(one)
        assert settled(before) == {}


def test_persistent_workers_end_with_their_loader():
    before = remains()
    with NoCollector():
        one = DataLoader(Calls(int, 32), 4, num_workers=2, persistent_workers=True, seed=1)
        first = list(one)
        kept = children()
        assert len(kept - before["children"]) == 2
        second = list(one)
        assert children() == kept
        assert equal(first, second)
        for _ in one:
            break
        assert children() == kept
        del one
        assert settled(before) == {}


class Anew:
    """Raises an exception of its own each time: one that is kept has a traceback, with all frames."""

    def __init__(self, kind: type[Exception]) -> None:
        self.kind = kind

    def __call__(self) -> Any:
        raise self.kind("x")


@pytest.mark.long
@pytest.mark.parametrize("kind", [ValueError, StopIteration])
@pytest.mark.parametrize("workers", [0, 1])
def test_an_exception_is_in_no_circle_with_its_pass(kind, workers):
    """Otherwise workers, and the dataset, stay until the collector comes, perhaps in another process."""
    before = remains()

    def read() -> Any:
        dataset = Calls(At(9, Anew(kind)), 32)
        seen = weakref.ref(dataset)
        try:
            list(DataLoader(dataset, 4, num_workers=workers))
        except (ValueError, RuntimeError):
            return seen

    with NoCollector():
        dataset = read()
        assert dataset() is None
        assert settled(before) == {}


def test_a_worker_that_died_is_in_no_circle_with_its_pass():
    before = remains()

    def read() -> None:
        try:
            list(DataLoader(Calls(At(9, Kill()), 32), 4, num_workers=2))
        except RuntimeError:
            return
        raise AssertionError

    with NoCollector():
        read()
        assert settled(before) == {}


class Kill:
    def __call__(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


def test_two_loaders_do_not_disturb_each_other():
    one, other = (DataLoader(Numbers(20), 2, num_workers=1, seed=seed) for seed in (1, 2))
    alone = [list(DataLoader(Numbers(20), 2, num_workers=0, seed=seed)) for seed in (1, 2)]
    together = list(zip(one, other, strict=True))
    assert equal([first[:4] for first, _ in together], [batch[:4] for batch in alone[0]])
    assert equal([second[:4] for _, second in together], [batch[:4] for batch in alone[1]])


def test_many_epochs_leave_nothing_behind():
    one = DataLoader(Calls(int, 8), 4, num_workers=1, rng="sample", on_error="skip", force_on_error=True)
    list(one)
    gc.collect()
    before, objects = remains(), len(gc.get_objects())
    for _ in range(8):
        list(one)
    gc.collect()
    assert settled(before) == {}
    assert len(gc.get_objects()) - objects < 200


SCRIPT = """
    import os, sys, time
    import torch
    from fastfeed.feed.loader import DataLoader
    class Data(torch.utils.data.Dataset):
        def __len__(self): return 100_000
        def __getitem__(self, i):
            time.sleep(0.001)
            return torch.zeros(1000)
    if __name__ == "__main__":
        loader = DataLoader(Data(), 8, num_workers=2, shuffle=True, seed=1, persistent_workers={persistent})
        for step, batch in enumerate(loader):
            if step == 3:
                with open(f"/proc/self/task/{{os.getpid()}}/children") as file:
                    print(os.getpid(), file.read(), flush=True)
"""


def started(folder: Path, *, persistent: bool) -> tuple[subprocess.Popen[str], list[int]]:
    """A training script that is somewhere in its loop; and the numbers of its processes."""
    script = folder / "train.py"
    script.write_text(textwrap.dedent(SCRIPT.format(persistent=persistent)))
    (folder / "tmp").mkdir()
    environment = {**os.environ, "TMPDIR": str(folder / "tmp")}
    run = subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
        start_new_session=True,
    )  # fmt: skip
    assert run.stdout is not None
    return run, [int(pid) for pid in run.stdout.readline().split()]


def alive(pids: list[int]) -> list[int]:
    found = []
    for pid in pids:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        found += [pid] if state != "Z" else []
    return found


@pytest.mark.long
@pytest.mark.parametrize("persistent", [False, True])
def test_ctrl_c_leaves_nothing(tmp_path, persistent):
    run, pids = started(tmp_path, persistent=persistent)
    assert len(pids) >= 3
    os.killpg(run.pid, signal.SIGINT)  # a terminal sends it to all of them
    _, errors = run.communicate(timeout=30)
    assert run.returncode == -signal.SIGINT
    assert "KeyboardInterrupt" in errors
    deadline = time.monotonic() + 15
    while alive(pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert alive(pids) == []
    assert [path for path in (tmp_path / "tmp").iterdir() if not path.name.startswith("pymp-")] == []
    assert [name for name in os.listdir("/dev/shm") if any(f"_{pid}_" in name for pid in pids)] == []


def test_a_killed_run_leaves_no_file(tmp_path):
    run, pids = started(tmp_path, persistent=True)
    os.killpg(run.pid, signal.SIGKILL)  # as a batch system does
    run.communicate(timeout=30)
    assert list((tmp_path / "tmp").glob("fastfeed*")) == []
    assert [name for name in os.listdir("/dev/shm") if any(f"_{pid}_" in name for pid in pids)] == []


KILLED = """
    import os, sys, time
    import torch
    from fastfeed.feed.loader import DataLoader
    class Data(torch.utils.data.{kind}):
        def __init__(self): self.seconds = {seconds}
        def __len__(self): return 100_000
        def __getitem__(self, i): return i
        def __iter__(self): return iter(range(100_000))
        def __setstate__(self, state):
            self.__dict__.update(state)
            print(os.getpid(), flush=True)
            time.sleep(self.seconds)
    if __name__ == "__main__":
        for batch in DataLoader(Data(), 8, num_workers=1, multiprocessing_context="{method}"):
            print("works", flush=True)
            sys.stdin.read()
"""


@pytest.mark.long
@pytest.mark.parametrize("kind", ["Dataset", "IterableDataset"])
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
@pytest.mark.parametrize("moment", ["starting", "working"])
def test_workers_end_with_a_run_that_is_killed_alone(tmp_path: Path, method, moment, kind):
    """torch's own watch does not see that of a fork server's children, nor while workers start."""
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(KILLED.format(method=method, kind=kind, seconds=1.0 if moment == "starting" else 0.0)))
    command = [sys.executable, str(script)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as run:
        assert run.stdout is not None
        worker = int(run.stdout.readline())
        if moment == "working":
            assert run.stdout.readline() == "works\n"
        run.kill()
        deadline = time.monotonic() + 20  # torch looks every five seconds
        while alive([worker]) and time.monotonic() < deadline:
            time.sleep(0.05)
        left = alive([worker])
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        assert left == []


class Listed(Numbers):
    """A list of texts: each access changes a reference count, and with it a page that was shared with the parent."""

    def __init__(self) -> None:
        super().__init__(100_000)
        self.names = [f"/data/{i:09d}.jpg" for i in range(self.size)]

    def __getitem__(self, index: int) -> int:
        return len(self.names[index])


def worker_bytes(cls: Any) -> int:
    """Memory of its own that a worker has at the end of a pass."""
    known = children()
    passed = iter(cls(Listed(), 1000, num_workers=1))
    for _ in range(99):
        next(passed)
    (worker,) = children() - known
    lines = Path(f"/proc/{worker}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Private_"))


def test_a_worker_takes_no_more_memory_than_torchs():
    """pytorch issue 13246: what lists cost in workers is theirs, but nothing comes on top of it."""
    theirs, ours = worker_bytes(TorchDataLoader), worker_bytes(DataLoader)
    assert ours - theirs < 6 << 20, f"{theirs:,} with torch's loader, {ours:,} here"
