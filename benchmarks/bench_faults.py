#!/usr/bin/env python3
"""Faults planted into real files, and which of them an audit finds: a table for README.md, as Markdown.

    python benchmarks/bench_faults.py                                      two minutes; prints the table
    python benchmarks/bench_faults.py --cleanvision /path/to/python        with cleanvision, run by an interpreter that has it

Each row plants what its name says, runs ``fastfeed audit``, and counts which of the faults were named, by file and code, and
whether anything sound was flagged. jpeginfo (where it is on the PATH) and Pillow's verify() see the same files. The exit code
is 1 where a fault was missed or something sound was flagged.

Long, and whole: a function a row of the table, and nothing but the table needs them.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import textwrap
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
import oddities

from benchmarks import faults
from benchmarks.lookers import DIED, Peer, by_cleanvision, by_jpeginfo, by_verify
from fastfeed.sample import SkipList

HOME = Path(__file__).resolve().parent.parent
Codes = dict[str, set[str]]
"""By path, key or position of a sample: codes from a warning on."""
SOUND = 200
"""Photos among the broken ones that nothing is to be said of."""


@dataclass
class Row:
    """A row of the table."""

    name: str
    found: int = 0
    planted: int = 0
    alarms: list[str] = field(default_factory=list)
    """Sound samples that were flagged."""
    missed: list[str] = field(default_factory=list)
    how: str = ""
    others: dict[str, str] = field(default_factory=dict)
    """By the name of another tool: what it made of the same files."""

    def proves(self, name: str, *, right: bool) -> None:
        """Count one thing that was to be shown."""
        self.planted += 1
        self.found += right
        if not right:
            self.missed.append(name)


# ------------------------------------------------------------------------------------------------ running an audit
def audit(
    target: object, folder: Path, *options: object, code: int | None = None
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Run the command; its summary and its records."""
    report = folder / f"report-{time.monotonic_ns()}.jsonl"
    done = command("audit", target, "--json", "--jsonl", report, *options)
    if code is not None and done.returncode != code:
        sys.exit(f"audit {target} ended with {done.returncode}: {done.stderr}")
    if not report.exists():
        sys.exit(f"audit {target}: {done.stderr}")
    return json.loads(done.stdout), [json.loads(line) for line in report.read_text().splitlines()]


def command(*words: object) -> subprocess.CompletedProcess[str]:
    """Run fastfeed."""
    line = [sys.executable, "-m", "fastfeed", *map(str, words)]
    return subprocess.run(line, capture_output=True, text=True, timeout=600, check=False, cwd=HOME, stdin=subprocess.DEVNULL)


def codes_of(lines: Sequence[Mapping[str, Any]], least: Sequence[str] = ("warning", "error")) -> Codes:
    """What flags each record."""
    found: Codes = {}
    for line in lines:
        name = str(line.get("path") or line.get("key") or line["index"])
        found[name] = {one["code"] for one in line["findings"] if one["severity"] in least}
    return found


def compare(row: Row, found: Codes, planted: Mapping[str, str], *, alarms: bool = True) -> Row:
    """Whether each fault has its code, and nothing sound has one.

    Args:
        row: Gets the counts.
        found: What was flagged.
        planted: By name the code that is expected.
        alarms: Whether what is flagged besides counts as an alarm: not where rows share a folder.
    """
    for name, code in planted.items():
        row.proves(name, right=code in found.get(name, set()))
    if alarms:
        row.alarms += [f"{name}: {', '.join(sorted(codes))}" for name, codes in found.items() if codes and name not in planted]
    row.how = row.how or ", ".join(dict.fromkeys(planted.values()))
    return row


ROWS_OF_IMAGES = {
    "exception": "exception-corrupt", "warning": "codec-warning corrupt (decoder says OK)",
    "laundered": "content-corrupt (grey band), laundered files",
    "kind": "magic ≠ extension; HTML/JSON/LFS/AppleDouble/zero named by kind",
    "modes": "mode / bit depth / EXIF orientation / animation", "bombs": "bombs: pixels, refused size, scan count, text chunks",
}  # fmt: skip


def rows_of_images(folder: Path, peers: Mapping[str, Peer]) -> list[Row]:
    """One folder for all of them: broken files among sound photos."""
    source = folder / "images"
    source.mkdir()
    for at in range(SOUND):
        (source / f"sound{at:03}.jpg").write_bytes(oddities.jpeg((160 + at, 120), seed=1000 + at))
    planted = faults.images()
    for files in planted.values():
        for name, (data, _) in files.items():
            (source / name).write_bytes(data)
    before = _facts(source)
    _, lines = audit(source, folder)
    found, rows = codes_of(lines), []
    tried = {name: peer(source) for name, peer in peers.items()}
    seen = {name: flagged for name, flagged in tried.items() if flagged is not None}
    for kind, files in planted.items():
        row = compare(Row(ROWS_OF_IMAGES[kind]), found, {name: code for name, (_, code) in files.items()}, alarms=False)
        row.others = dict.fromkeys(tried, "its run was ended by a file")
        row.others |= {name: f"{len(flagged & set(files))} of {len(files)}" for name, flagged in seen.items()}
        rows.append(row)
    _told_of(rows, lines)
    alarms = [f"{name}: {codes}" for name, codes in found.items() if codes and name.startswith("sound")]
    rows[0].alarms += alarms
    for name, flagged in seen.items():
        wrong = sum(one.startswith("sound") for one in flagged)
        rows[0].others[name] += f" ({wrong} of {SOUND} sound ones too)" if wrong else ""
    untouched = Row("never writes to the source", how="names, bytes, times, inodes before and after")
    untouched.proves("images", right=_facts(source) == before)
    return [*rows, untouched]


def _told_of(rows: Sequence[Row], lines: Sequence[Mapping[str, Any]]) -> None:
    """What the rows want besides a code: the exception's words, the readers that disagree, the memory that was taken."""
    by_path = {line.get("path"): line for line in lines}
    exception, modes, bombs = rows[0], rows[4], rows[5]
    exception.proves("the words of the exception", right="OSError: " in by_path["cut30.jpg"]["findings"][0]["text"])
    turned = by_path["turned.jpg"]["findings"][0]["text"]
    modes.proves("which readers disagree", right="cv2.imread" in turned and "Pillow" in turned)
    bombs.proves("peak memory", right=by_path["pixels.png"]["peak_bytes"] > 200 << 20)


def _facts(source: Path) -> dict[str, object]:
    return {
        str(path): (
            path.stat().st_mtime_ns,
            path.stat().st_ino,
            path.stat().st_size,
            path.read_bytes() if path.is_file() else b"",
        )
        for path in sorted(source.rglob("*"))
    }


# ------------------------------------------------------------------------------------------------ programs
def rows_of_programs(folder: Path) -> list[Row]:
    """Datasets that hang, crash, raise, are slow."""
    path = folder / "program.py"
    path.write_text(faults.PROGRAM)
    _, lines = audit(f"{path}:Bad", folder, "--kill-after", 4, "--memory-limit", "1GiB")
    died = Row("hang → timeout naming the sample; segv/OOM-kill naming the sample")
    codes = codes_of(lines)
    compare(died, codes, {"7": "hang", "13": "crash", "19": "crash", "23": "memory"}, alarms=False)
    died.proves(
        "where it hung", right="program.py:" in next(line for line in lines if line["index"] == 7)["findings"][0]["text"]
    )
    pipe = folder / "pipe"
    pipe.mkdir()
    os.mkfifo(pipe / "a.jpg")
    (pipe / "b.jpg").write_bytes(oddities.jpeg())
    compare(died, codes_of(audit(pipe, folder)[1]), {"a.jpg": "special-file"})
    raised = Row("unpicklable sample, StopIteration/IndexError inside `__getitem__`")
    compare(raised, codes, {"29": "stops-early", "31": "stops-early", "37": "unpicklable", "41": "fails"}, alarms=False)
    named = {"7", "13", "19", "23", "29", "31", "37", "41"}
    raised.alarms += [f"sample {name}: {found}" for name, found in codes.items() if found and name not in named]
    return [died, raised, *rows_of_times(folder, path)]


def rows_of_times(folder: Path, path: Path) -> list[Row]:
    """What is slow, by which clock, and what it costs."""
    summary, lines = audit(f"{path}:Slow", folder, "--workers", 1)
    slow = compare(Row("slow = slow *for its size*, re-measured"), codes_of(lines), {str(n): "slow" for n in (50, 51, 60, 61)})
    once = next(line for line in lines if line["index"] == 70)
    slow.proves("one stall is no fault", right=once["status"] == "ok")
    texts = {line["index"]: line["findings"][0]["text"] for line in lines if line["status"] == "flagged"}
    clocks = Row("wall vs CPU vs run-queue vs blocked split", how="`times` of each line; the clock of a finding is named")
    clocks.proves("computing", right="of processor time" in texts.get(50, ""))
    clocks.proves("waiting", right="for something else than a processor" in texts.get(60, ""))
    one = lines[0]["times"]["load"]
    clocks.proves("four clocks", right=all(one[f"{name}_seconds"] is not None for name in ("wall", "cpu", "delay", "blocked")))
    cost = Row("cost statement (share of the time, stalls of a batch)", how=summary["costs"][0] if summary["costs"] else "")
    cost.proves("a sentence", right="of samples take" in cost.how and "with batches of 256" in cost.how)
    return [slow, clocks, cost]


def rows_of_targets(folder: Path) -> list[Row]:
    """The same photos as each kind of target."""
    photos = folder / "photos"
    for at in range(24):
        (photos / f"class{at % 2}").mkdir(parents=True, exist_ok=True)
        (photos / f"class{at % 2}" / f"{at:02}.jpg").write_bytes(oddities.jpeg((80, 60), seed=at))
    program = folder / "program.py"
    command("pack", photos, folder / "packed")
    command("pack", photos, folder / "zst", "--compress", "zstd")
    with tarfile.open(folder / "plain.tar", "w") as tar:
        for path in sorted(photos.rglob("*.jpg")):
            tar.add(path, path.name)
    runs = Row("runs the user's *own* Dataset incl. transforms",
               how="map-style, iterable, folder, list, tar, packed `.tar` and `.tar.zst`; no collate_fn is run")  # fmt: skip
    (folder / "list.csv").write_text("path\n" + "".join(f"{path}\n" for path in sorted(photos.rglob("*.jpg"))))
    for target, count in ((f"{program}:folder", 24), (f"{program}:stream", 50), (photos, 24), (folder / "list.csv", 24),
                          (folder / "plain.tar", 24), (folder / "packed", 24), (folder / "zst", 24)):  # fmt: skip
        summary, _ = audit(target, folder)
        runs.proves(str(target), right=summary["audited"] == count and not summary["flagged"])
    _, lines = audit(f"{program}:folder", folder)
    split = Row("per-sample time, split read / decode / transform", how="`times` of each line, by stage")
    split.proves(
        "ImageFolder with a transform", right=all(set(line["times"]) == {"read", "decode", "transform"} for line in lines)
    )
    _, lines = audit(folder / "packed", folder)
    split.proves("packed", right=all(set(line["times"]) == {"read", "decode"} for line in lines))
    named = Row("… with path, shard, key, offset of each sample", how="fields of each line")
    named.proves("packed", right=all({"path", "key", "shard", "offset"} <= set(line) for line in lines))
    return [runs, split, named]


# ------------------------------------------------------------------------------------------------ texts, archives, copies
def rows_of_sets(folder: Path) -> list[Row]:
    """Texts, tars, duplicates."""
    return [row_of_texts(folder), row_of_tars(folder), row_of_copies(folder)]


def row_of_texts(folder: Path) -> Row:
    """Texts that other tools trip over, among sound ones."""
    source = folder / "texts"
    source.mkdir()
    for at in range(60):
        (source / f"sound{at:02}.txt").write_text(
            textwrap.fill("Small files become shards once. " * (8 + at % 5)) + f"\n{at}\n"
        )
    planted = faults.texts()
    for name, (data, _) in planted.items():
        (source / name).write_bytes(data)
    row = Row("text: BOM, invalid UTF-8, NUL, lone surrogate, longest line, longest run w/o space, repetition")
    return compare(row, codes_of(audit(source, folder)[1]), {name: code for name, (_, code) in planted.items()})


def row_of_tars(folder: Path) -> Row:
    """A tar a fault."""
    planted = faults.tars()
    row = Row("archive: dup keys, case collisions, non-adjacent members, bad header, truncation at member boundary, index")
    for name, (data, code) in planted.items():
        home = folder / f"tar-{name}"
        home.mkdir()
        (home / "a.tar").write_bytes(data)
        if name == "index":
            (home / "a.idx").write_text("v1.2 9\n")
        summary, _ = audit(home / "a.tar", folder)
        row.proves(name, right=code in {one["code"] for one in summary["found"]})
    sound = folder / "sound.tar"
    sound.write_bytes(faults.tar_of(["a.gif", "a.txt", "b.gif", "b.txt"]))
    row.alarms += [one["code"] for one in audit(sound, folder)[0]["found"] if one["severity"] != "info"]
    row.how = ", ".join(code for _, code in planted.values())
    return row


def row_of_copies(folder: Path) -> Row:
    """The same bytes in two splits, in two classes, twice."""
    source = folder / "copies"
    places = {"train/cat/a.jpg": 1, "test/cat/b.jpg": 1, "train/dog/c.jpg": 2, "train/cat/d.jpg": 2, "train/dog/e.jpg": 3,
              "train/dog/f.jpg": 3, "test/dog/g.jpg": 4, "test/cat/h.jpg": 5}  # fmt: skip
    for place, seed in places.items():
        (source / place).parent.mkdir(parents=True, exist_ok=True)
        (source / place).write_bytes(oddities.jpeg(seed=seed))
    planted = dict.fromkeys(("train/cat/a.jpg", "test/cat/b.jpg"), "duplicate-across-splits")
    planted |= dict.fromkeys(("train/dog/c.jpg", "train/cat/d.jpg"), "duplicate-across-classes") | {
        "train/dog/f.jpg": "duplicate"
    }
    return compare(Row("duplicates (exact hash)"), codes_of(audit(source, folder)[1]), planted)


# ------------------------------------------------------------------------------------------------ reports
def rows_of_reports(folder: Path) -> list[Row]:
    """What comes out, and what takes it."""
    source, page, skip = folder / "some", folder / "page.html", folder / "skip.jsonl"
    (source / "cat").mkdir(parents=True)
    for at in range(20):
        (source / "cat" / f"{at:02}.jpg").write_bytes(oddities.jpeg((80, 60), seed=at))
    (source / "cat" / "cut.jpg").write_bytes(oddities.cut(oddities.jpeg(), 0.4))
    summary, lines = audit(source, folder, "--html", page, "--skip-list", skip, code=10)
    report = folder / "base.jsonl"
    report.write_text("".join(json.dumps(line) + "\n" for line in lines))
    told = Row(
        "JSONL + JSON summary + HTML, exit code for CI, baseline/allow-list diff",
        how="`--jsonl --json --html --fail-on --baseline`",
    )
    told.proves("summary and records", right=summary["errors"] == 1 and len(lines) == 21)
    told.proves(
        "a page that loads nothing",
        right="cat/cut.jpg" in page.read_text().replace("<wbr>", "") and "://" not in page.read_text(),
    )
    told.proves(
        "exit code 10, and 0 where nothing is new", right=command("audit", source, "--baseline", report).returncode == 0
    )
    acted = Row("emits a skip list that `pack --exclude` / `DataLoader(skip=)` consume", how="and `pack --from-audit`")
    acted.proves("the file", right=[entry.source for entry in SkipList.read(str(skip)).entries] == ["cat/cut.jpg"])
    for options in (("--exclude", skip), ("--from-audit", report)):
        done = command("pack", source, folder / f"out{options[0]}", *options, "--json")
        acted.proves(
            f"pack {options[0]}", right=done.returncode == 0 and json.loads(done.stdout)["datasets"][0]["samples"] == 20
        )
    acted.proves("DataLoader(skip=)", right=_loaded(source, skip) == 20)
    return [told, acted, row_of_resuming(folder)]


def _loaded(source: Path, skip: Path) -> int:
    from torchvision.datasets import ImageFolder

    import fastfeed

    dataset = ImageFolder(str(source))
    loader = fastfeed.DataLoader(dataset, batch_size=None, num_workers=0, collate_fn=lambda sample: sample, skip=str(skip))
    return sum(1 for _ in loader)


def row_of_resuming(folder: Path) -> Row:
    """Killed, and begun again; a part, and what it says of all."""
    path, report = folder / "long.py", folder / "long.jsonl"
    path.write_text(
        "import time\nclass Long:\n    def __len__(self): return 300\n    def __getitem__(self, i): time.sleep(0.02)\n"
    )
    line = [sys.executable, "-m", "fastfeed", "audit", f"{path}:Long", "--jsonl", str(report), "--workers", "1"]
    killed = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=HOME)
    partial = Path(f"{report}.partial")
    while killed.poll() is None and not (partial.exists() and partial.read_bytes().count(b"\n") > 60):
        time.sleep(0.05)
    with suppress(ProcessLookupError):
        killed.send_signal(signal.SIGKILL)
    killed.wait()
    done = command(*line[3:], "--json")
    row = Row("resume after a kill; sampled mode with confidence")
    row.proves(
        "it goes on",
        right="taken over from an audit that was interrupted" in done.stdout and report.read_text().count("\n") == 300,
    )
    summary, _ = audit(f"{path}:Long", folder, "--sample", 100, "--workers", 2)
    row.proves("a bound", right=summary["audited"] == 100 and 0.02 < summary["at_most"] < 0.04)
    row.how = f"100 of 300 without an error: at most {summary['at_most']:.1%} at 95 %"
    return row


# ------------------------------------------------------------------------------------------------ the table
def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--cleanvision", metavar="PYTHON", help="an interpreter that has cleanvision")
    options = parser.parse_args()
    peers: dict[str, Peer] = {"Pillow verify()": by_verify}
    if shutil.which("jpeginfo"):
        peers["jpeginfo -c"] = by_jpeginfo
    if options.cleanvision:
        peers["cleanvision"] = by_cleanvision(options.cleanvision)
    with tempfile.TemporaryDirectory(prefix="audit-table-") as home:
        folder = Path(home)
        rows = [*rows_of_images(folder, peers), *rows_of_programs(folder), *rows_of_targets(folder), *rows_of_sets(folder),
                *rows_of_reports(folder)]  # fmt: skip
    show(rows, list(peers))
    return int(any(row.missed or row.alarms for row in rows))


def show(rows: Sequence[Row], peers: Sequence[str]) -> None:
    """As Markdown."""
    print(f"| feature | fastfeed audit | how | {' | '.join(peers)} |")
    print("|---|---|---|" + "---|" * len(peers))
    for row in rows:
        others = " | ".join(row.others.get(name, "") for name in peers)
        print(f"| {row.name} | {row.found} of {row.planted} | {row.how} | {others} |")
    for row in rows:
        for what, names in (("missed", row.missed), ("flagged though sound", row.alarms)):
            if names:
                print(f"\n{row.name}: {what}: {'; '.join(names)}")
    for words in DIED:
        print(f"\ncleanvision's run was ended by a file: {words}")


if __name__ == "__main__":
    sys.exit(main())
