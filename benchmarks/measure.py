"""What every benchmark here shares: CPU and wall time of a call, medians, fresh processes, facts of the machine, tables."""

import argparse
import datetime as dt
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
Record = dict[str, Any]
"""What goes to --json."""
_ENDED = (FileNotFoundError, ProcessLookupError)
"""What reading of a process or a thread below /proc raises that has ended meanwhile."""


def arguments(description: str | None, *, rounds: int) -> argparse.ArgumentParser:
    """A command line with what every benchmark takes: --rounds, --out, --json, and --child, the order of in_fresh_process."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=rounds, help=f"runs of each figure (default {rounds})")
    out = "where files are made, sources and outputs (default: the temporary folder)"
    parser.add_argument("--out", metavar="DIR", type=os.path.abspath, help=out)
    parser.add_argument("--json", metavar="FILE", help='write the raw record there ("-": print it)')
    parser.add_argument("--child", type=json.loads, help=argparse.SUPPRESS)
    return parser


def usage_of(call: Callable[[], object], *, living: bool = False) -> Record:
    """Run a call; give its wall seconds and the CPU seconds of this process and of the children that it waited for.

    With living also those of the children that still run, and of theirs: workers that are kept for the next epoch.

    others_cpu_seconds is what all else on the machine used meanwhile (kernel threads that write to the disk included):
    wall seconds mean little where it is not small.
    """
    busy, before, began = _busy_seconds(), _cpu_seconds(living=living), time.perf_counter()
    call()
    wall, after, busy = time.perf_counter() - began, _cpu_seconds(living=living), _busy_seconds() - busy
    user, system = after[0] - before[0], after[1] - before[1]
    return {
        "cpu_seconds": user + system, "user_seconds": user, "system_seconds": system, "wall_seconds": wall,
        "others_cpu_seconds": max(0.0, busy - user - system),
    }  # fmt: skip


def _cpu_seconds(*, living: bool) -> tuple[float, float]:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    user, system = sum(one.ru_utime for one in used), sum(one.ru_stime for one in used)
    if living:
        for pid in _children("self"):
            more = _tree_seconds(pid)
            user, system = user + more[0], system + more[1]
    return user, system


def _tree_seconds(pid: str) -> tuple[float, float]:
    """User and system seconds of a process, of the children that it waited for, and of those that live; in ticks of 10 ms."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except _ENDED:
        return 0.0, 0.0  # whoever waits for it has its time
    user, system, waited_user, waited_system = (int(field) / os.sysconf("SC_CLK_TCK") for field in fields[11:15])
    below = [_tree_seconds(child) for child in _children(pid)]
    return user + waited_user + sum(one[0] for one in below), system + waited_system + sum(one[1] for one in below)


def _children(pid: str) -> list[str]:
    """The processes that live and that any thread of a process has started."""
    found = []
    for thread in os.listdir(f"/proc/{pid}/task") if os.path.isdir(f"/proc/{pid}/task") else []:
        try:
            found += Path(f"/proc/{pid}/task/{thread}/children").read_text().split()
        except _ENDED:
            continue  # the thread, whose children became another's
    return found


def _busy_seconds() -> float:
    """Of all processors since the machine started: user, nice, system, interrupts; stolen time too."""
    user, nice, system, _, _, irq, softirq, steal = map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def in_fresh_process(
    script: str, order: Mapping[str, object], *, python: str = sys.executable, launcher: Sequence[str] = (),
    seconds: float | None = None,
) -> Record:  # fmt: skip
    """Run ``script --child ORDER`` in a new interpreter, by default of the same kind; give the JSON object that it prints last.

    Args:
        script: What is run.
        order: Its order.
        python: The interpreter.
        launcher: What comes between the interpreter and the script, as what starts it several times.
        seconds: After which it is ended; None for never.

    Raises:
        RuntimeError: It failed, or was ended (exit code 124); what it said is in the message.
    """
    # as in an installation, modules are compiled once, and not again by each process that loads them
    command = ["env", "-u", "PYTHONDONTWRITEBYTECODE", python, *launcher, script, "--child", json.dumps(order)]
    done = subprocess.run([*ending(seconds), *command], capture_output=True, text=True, check=False, cwd=ROOT)
    if done.returncode != 0:
        msg = f"{order} failed with exit code {done.returncode}:\n{done.stderr[-4000:]}"
        raise RuntimeError(msg)
    found: Record = json.loads(done.stdout.splitlines()[-1])
    return found


def ending(seconds: float | None) -> list[str]:
    """What comes before a command that is to be ended after so many seconds; a launcher then ends what it started."""
    return [] if seconds is None else ["timeout", "--foreground", "-k", "5", f"{seconds:.1f}"]


def spread(values: Iterable[float]) -> Record:
    """Median, minimum and maximum."""
    listed = list(values)
    return {"median": statistics.median(listed), "min": min(listed), "max": max(listed)}


def shown(found: Mapping[str, float], form: str = ".2f", scale: float = 1.0) -> str:
    """A spread as "median (min - max)"."""
    return "{} ({} - {})".format(*(format(found[name] * scale, form) for name in ("median", "min", "max")))


def print_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A Markdown table, so that it can be pasted; the first column to the left, the others to the right."""
    listed = [list(head), *map(list, rows)]
    widths = [max(len(row[at]) for row in listed) for at in range(len(head))]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    for row in (listed[0], rule, *listed[1:]):
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        print(f"| {' | '.join(cells)} |")


def machine_facts(packages: Iterable[str] = (), tools: Iterable[str] = ()) -> Record:
    """Processor, cores, memory, versions, load and date: what a figure is worth nothing without."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "date": dt.datetime.now(tz=dt.UTC).date().isoformat(),
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(memory / 2**30, 1),
        "system": f"{platform.system()} {platform.release().partition('-')[0]} {platform.machine()}",
        "python": platform.python_version(),
        "load_1min": os.getloadavg()[0],
        "versions": {**{name: _package(name) for name in packages}, **{name: _tool(name) for name in tools}},
    }


def _cpu_model() -> str:
    words = dict(line.split(":", 1) for line in Path("/proc/cpuinfo").read_text().splitlines() if ":" in line)
    stripped = {name.strip(): value.strip() for name, value in words.items()}
    name = stripped.get("model name", platform.processor())
    where = ", ".join(f"{what} {stripped[what]}" for what in ("cpu family", "model", "stepping") if what in stripped)
    return f"{name} ({where})" if where else name


def _package(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def _tool(name: str) -> str:
    option = "version" if name == "openssl" else "--version"
    first = subprocess.run([name, option], capture_output=True, text=True, check=True).stdout.splitlines()[0]
    return first.strip() if name not in first else first.removeprefix(name).strip()


def print_facts(facts: Mapping[str, Any]) -> None:
    """The machine in two lines."""
    print(f"{facts['date']}, {facts['cpu']}, {facts['cores']} cores, {facts['memory_gib']} GiB, {facts['system']},", end=" ")
    print(f"Python {facts['python']}, load {facts['load_1min']:.2f}")
    print(", ".join(f"{name} {found}" for name, found in facts["versions"].items()))


def file_system(path: str) -> str:
    """Kind of the file system that a path lies on, as /proc/mounts calls it."""
    real, best = os.path.realpath(path), ("", "unknown")
    for line in Path("/proc/mounts").read_text().splitlines():
        _, point, kind, *_ = line.split()
        inside = real == point or real.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best[0]):
            best = (point, kind)
    return best[1]


def gpu_used_mib(device: Any = None) -> float:  # noqa: ANN401 - as torch has them
    """Memory of a GPU, the current one or another, that is in use, DALI's as well, which torch does not know of; 0 of a CPU."""
    import torch

    if getattr(device, "type", "cuda") != "cuda":
        return 0.0
    free, total = torch.cuda.mem_get_info(device)
    return (total - free) / 2**20


def write_json(path: str | None, record: Mapping[str, object]) -> None:
    """The raw record; "-" prints it."""
    if path is None:
        return
    text = json.dumps(record, indent=1)
    if path == "-":
        print(text)
    else:
        Path(path).write_text(text + "\n")
