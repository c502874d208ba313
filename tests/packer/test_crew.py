import os
import random
import signal
import subprocess
import sys
import time

import pytest
from helpers import ROOT, files_below, packed
from packing import Hook, children_of, is_running, packing_process, read_back, tree, wait_for

import fastfeed
from fastfeed.errors import WorkerDied
from fastfeed.packer import crew
from fastfeed.packer.crew import Crew


def many(folder, count=40, size=20_000):
    chance = random.Random(0)
    return tree(folder, {f"{at:03d}.bin": chance.randbytes(size) for at in range(count)})


def kill_all_workers(signal_number=signal.SIGKILL):
    for pid in children_of(os.getpid()):
        os.kill(pid, signal_number)


def kill_once(after: int, signal_number=signal.SIGKILL) -> Hook:
    """A progress that kills all workers when so many files are done."""
    killed: list[bool] = []

    def check(stage):
        if stage == "pack" and hook.items["pack"] >= after and not killed:
            killed.append(True)
            kill_all_workers(signal_number)

    hook = Hook(on_advance=check)
    return hook


@pytest.mark.parametrize("workers", [1, 2])
def test_pain_25_a_killed_worker_never_passes_for_success(tmp_path, workers):
    source = many(tmp_path / "s")
    match = (
        r"a worker process was killed by SIGKILL while it packed 1 input from '0\d\d.bin' to '0\d\d.bin'"
        r" \(shard s-0000\d\d.tar\).*memory runs out.*run the same command again, it continues"
    )
    with pytest.raises(WorkerDied, match=match) as caught:
        packed(source, tmp_path / "out", workers=workers, samples_per_shard=1, progress=kill_once(5))
    assert caught.value.exit_code != 0
    assert not (tmp_path / "out" / ".fastfeed" / "manifest.json").exists()
    assert not children_of(os.getpid())
    result = packed(source, tmp_path / "out", workers=workers, samples_per_shard=1)
    assert result.shards_kept >= 5 and result.shards_kept + result.shards_written == 40
    packed(source, tmp_path / "straight", samples_per_shard=1)
    assert files_below(tmp_path / "out") == files_below(tmp_path / "straight")


def test_the_signal_is_named(tmp_path):
    with pytest.raises(WorkerDied, match="a worker process was killed by SIGSEGV"):
        packed(many(tmp_path / "s"), tmp_path / "out", samples_per_shard=1, progress=kill_once(5, signal.SIGSEGV))


def test_a_worker_killed_before_its_first_shard(tmp_path):
    """All die while nothing is done yet: from the outside, as the kernel would."""
    source = many(tmp_path / "s", count=4, size=5_000_000)
    with packing_process(source, tmp_path / "out", workers=2, samples_per_shard=2) as process:
        wait_for(lambda: len(children_of(process.pid)) == 2 or process.poll() is not None, "two workers")
        for pid in children_of(process.pid):
            os.kill(pid, signal.SIGKILL)
        said, _ = process.communicate(timeout=60)
    assert process.returncode != 0 and b"a worker process was killed by SIGKILL while it packed 2 inputs" in said
    assert packed(source, tmp_path / "out", samples_per_shard=2).datasets[0].samples == 4


class IdleKilled(Crew):
    """A crew whose idle worker is killed while the other still writes."""

    def run(self, orders, hear, count):
        def also(event):
            hear(event)
            if event["event"] == "done" and event["shard"] == 1:
                idle, busy = sorted(self._workers, key=lambda worker: bool(worker.tasks))
                os.kill(busy.process.pid, signal.SIGSTOP)
                os.kill(idle.process.pid, signal.SIGKILL)
                wait_for(lambda: not is_running(idle.process.pid), "the idle worker to die")
                os.kill(busy.process.pid, signal.SIGCONT)
                self.killed = True

        super().run(orders, also, count)
        assert self.killed


def test_an_idle_worker_that_is_killed_harms_nothing(tmp_path, monkeypatch):
    """Two workers, one order left: the other waits. Its death is no failure, for nothing was asked of it."""
    monkeypatch.setattr("fastfeed.packer.job.Crew", IdleKilled)
    sizes = [60_000_000, 1]
    source = tree(tmp_path / "s", {f"{at}.bin": bytes(size) for at, size in enumerate(sizes)})
    assert packed(source, tmp_path / "out", workers=2, samples_per_shard=1).shards_written == 2
    assert [len(sample.fields["bin"]) for sample in read_back(tmp_path / "out")] == sizes


@pytest.mark.long
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_orphans_die_with_their_parent(tmp_path, how):
    source = many(tmp_path / "s", count=60, size=200_000)
    with packing_process(source, tmp_path / "out", workers=2, samples_per_shard=1) as process:
        wait_for(lambda: len(list((tmp_path / "out").glob("*.tar"))) >= 3 or process.poll() is not None, "three shards")
        workers = children_of(process.pid)
        process.send_signal(how)
        process.communicate(timeout=60)
    assert process.returncode != 0 and len(workers) == 2
    wait_for(lambda: not any(map(is_running, workers)), "orphans to die")
    packed(source, tmp_path / "out", samples_per_shard=1)
    packed(source, tmp_path / "straight", samples_per_shard=1)
    assert files_below(tmp_path / "out") == files_below(tmp_path / "straight")


def test_ctrl_c_of_the_whole_group_leaves_nothing_half_done(tmp_path):
    source = many(tmp_path / "s", count=60, size=200_000)
    with packing_process(source, tmp_path / "out", workers=2, samples_per_shard=1) as process:
        wait_for(lambda: list((tmp_path / "out").glob("*.tar")) or process.poll() is not None, "a shard")
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=60)
    assert b"KeyboardInterrupt" in said
    assert not list((tmp_path / "out").rglob("*.part"))
    done = len(list((tmp_path / "out").glob("*.tar")))
    assert packed(source, tmp_path / "out", samples_per_shard=1).shards_kept == done


def test_a_program_without_main_guard_may_pack(tmp_path):
    source = many(tmp_path / "s", count=4)
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\n"
        "sys.path.insert(0, sys.argv[1])\n"
        "import fastfeed\n"
        "print(fastfeed.pack(sys.argv[2], sys.argv[3], workers=2, shards=2))\n"
    )
    command = [sys.executable, script, ROOT, source, tmp_path / "out"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.count("shards_written=2") == 1
    assert fastfeed.verify(tmp_path / "out").ok


AT_BIRTH = """
import os, signal, sys
import fastfeed
from fastfeed.packer import crew

class Interrupted(crew._Worker):
    def __init__(self, process):
        super().__init__(process)
        os.kill(os.getpid(), number)
        print(self.process.pid, flush=True)

number = int(sys.argv[3])
signal.signal(number, signal.default_int_handler)
crew._Worker = Interrupted
try:
    fastfeed.pack(sys.argv[1], sys.argv[2], workers=2, samples_per_shard=1)
except KeyboardInterrupt:
    print("interrupted", signal.pthread_sigmask(signal.SIG_BLOCK, []))
"""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_at_a_workers_birth_waits_until_the_crew_knows_it(tmp_path, how):
    source = many(tmp_path / "s", count=4)
    command = [sys.executable, "-c", AT_BIRTH, source, tmp_path / "out", str(int(how))]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT, timeout=60)
    pid, said = done.stdout.splitlines()  # one worker was born, whole, and no other
    assert said == "interrupted set()" and done.stderr == ""
    assert not os.path.exists(f"/proc/{pid}")  # killed and waited for
    assert packed(source, tmp_path / "out", samples_per_shard=1).datasets[0].samples == 4


def test_workers_let_through_what_was_held_at_their_birth(tmp_path):
    blocked: set[str] = set()

    def look(stage):
        for pid in children_of(os.getpid()) if stage == "pack" else ():
            with open(f"/proc/{pid}/status", encoding="utf-8") as file:
                blocked.update(line.split()[1] for line in file if line.startswith("SigBlk:"))

    packed(many(tmp_path / "s"), tmp_path / "out", samples_per_shard=1, progress=Hook(on_advance=look))
    assert blocked == {"0" * 16}


# ------------------------------------------------------------------------------------------------ the scan
def folders(folder, count=30):
    return tree(folder, {f"{at:02d}/{name}.txt": "x" for at in range(count) for name in "abc"})


@pytest.fixture
def listed_by_workers(monkeypatch):
    """This process lists nothing itself, but waits until the workers have started."""

    def wait(walk):
        time.sleep(0.001)
        return bool(walk._ahead)

    monkeypatch.setattr("fastfeed.source.scan._ALONE_SECONDS", -1)
    monkeypatch.setattr("fastfeed.source.scan._Walk._list_here", wait)


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_worker_that_is_killed_while_it_lists_is_named_and_nothing_is_begun(
    tmp_path, listed_by_workers, monkeypatch, dry_run
):
    class Doomed(crew._Worker):
        def give(self, task):
            self.process.kill()
            super().give(task)

    source = folders(tmp_path / "s")
    with monkeypatch.context() as patch:
        patch.setattr(crew, "_Worker", Doomed)
        match = (
            r"a worker process was killed by SIGKILL while it listed 1 folder from '\.' to '\.'"
            r".*memory runs out.*Nothing is lost: run the same command again\.$"
        )
        with pytest.raises(WorkerDied, match=match) as caught:
            packed(source, tmp_path / "out", workers=2, dry_run=dry_run)
    assert caught.value.shard is None
    assert not (tmp_path / "out").exists() and not children_of(os.getpid())
    assert packed(source, tmp_path / "out", workers=2).datasets[0].samples == 90


def test_workers_that_die_while_they_start_are_not_needed_for_the_scan_and_replaced_for_the_shards(tmp_path, monkeypatch):
    born: list[int] = []

    class Weak(crew._Worker):
        def __init__(self, process):
            super().__init__(process)
            born.append(self.process.pid)
            if len(born) <= 2:
                self.process.kill()
                self.process.wait()

    monkeypatch.setattr("fastfeed.source.scan._ALONE_SECONDS", -1)
    monkeypatch.setattr(crew, "_Worker", Weak)
    assert packed(folders(tmp_path / "s"), tmp_path / "out", workers=2, shards=2).shards_written == 2
    assert 2 < len(born) <= 4
    assert fastfeed.verify(tmp_path / "out").ok


def test_workers_that_die_between_scan_and_shards_are_replaced(tmp_path, listed_by_workers):
    before: list[int] = []

    def kill(plan):
        before.extend(children_of(os.getpid()))
        kill_all_workers()
        wait_for(lambda: not any(map(is_running, before)), "the workers to die")

    packed(folders(tmp_path / "s"), tmp_path / "out", workers=2, shards=2, on_plan=kill)
    assert len(before) == 2 and fastfeed.verify(tmp_path / "out").ok


@pytest.mark.parametrize(("shards", "writing"), [(1, 1), (2, 2), (9, 3)])
def test_those_who_list_write_as_well_one_more_joins_them_and_who_is_not_needed_is_dismissed(
    tmp_path, listed_by_workers, shards, writing
):
    seen: dict[str, set[int]] = {"scan": set(), "plan": set(), "pack": set()}
    hook = Hook(on_advance=lambda stage: seen[stage].update(children_of(os.getpid())))
    packed(
        folders(tmp_path / "s"), tmp_path / "out", workers=3, shards=shards, progress=hook,
        on_plan=lambda plan: seen["plan"].update(children_of(os.getpid())),
    )  # fmt: skip
    assert len(seen["scan"]) == 2  # this process lists as well
    assert len(seen["plan"]) == 3 and seen["scan"] < seen["plan"]
    assert len(seen["pack"]) == writing and seen["pack"] <= seen["plan"] and seen["pack"] & seen["scan"]
    assert not children_of(os.getpid())


@pytest.mark.parametrize("options", [{"dry_run": True}, {"trust_scan": True}, {}], ids=str)
def test_no_worker_outlives_a_scan(tmp_path, listed_by_workers, options):
    source = folders(tmp_path / "s")
    packed(source, tmp_path / "out", workers=2)
    assert packed(source, tmp_path / "out", workers=2, **options).workers == 1
    assert not children_of(os.getpid())


def test_trust_scan_walks_nothing_and_starts_nobody_before_the_shards(tmp_path, listed_by_workers):
    source = many(tmp_path / "s")
    with pytest.raises(WorkerDied):
        packed(source, tmp_path / "out", workers=2, samples_per_shard=1, progress=kill_once(5))
    early: list[int] = []
    hook = Hook(on_start={"pack": lambda: early.extend(children_of(os.getpid()))})
    result = packed(source, tmp_path / "out", workers=2, samples_per_shard=1, trust_scan=True, progress=hook)
    assert result.shards_kept >= 5 and [stage for stage, _, _ in hook.stages] == ["pack"] and not early


def test_ctrl_c_in_a_shared_scan_leaves_nothing(tmp_path, listed_by_workers):
    def interrupt(stage):
        assert children_of(os.getpid())
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        packed(folders(tmp_path / "s"), tmp_path / "out", workers=2, progress=Hook(on_advance=interrupt))
    assert not (tmp_path / "out").exists() and not children_of(os.getpid())


def test_one_worker_starts_nobody_for_the_scan(tmp_path, monkeypatch):
    monkeypatch.setattr("fastfeed.source.scan._ALONE_SECONDS", -1)
    at_plan: list[int] = []
    packed(folders(tmp_path / "s"), tmp_path / "out", workers=1, on_plan=lambda plan: at_plan.extend(children_of(os.getpid())))
    assert not at_plan
