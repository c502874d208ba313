"""What the packer's tests share: trees of files, packed datasets read back without fastfeed's readers, processes to kill."""

import json
import os
import shutil
import subprocess
import sys
import tarfile
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from helpers import ROOT, ColumnFile, encoded, make_photos, packed, photo

from fastfeed.config import PackConfig
from fastfeed.packer.plan import PackPlan, make_plan
from fastfeed.packer.unpack import WORKPLACE
from fastfeed.sample import SkipList
from fastfeed.source.lister import NOT_SNIFFED
from fastfeed.source.scan import Listing

DEADLINE_SECONDS = 60.0
NO_JPEGTRAN = "the program jpegtran is not installed (apt-get install libjpeg-turbo-progs)"
needs_jpegtran = pytest.mark.skipif(shutil.which("jpegtran") is None, reason=NO_JPEGTRAN)


def pack_splits(folder: Path) -> Path:
    """Two splits, two shards each, and stray files, so that every kind of file is there, not empty, and no two are equal.

    Args:
        folder: Gets src/ and packed/.

    Returns:
        The packed folder.
    """
    for split, each in (("train", 3), ("val", 2)):
        make_photos(folder / "src" / split, each=each)
        (folder / "src" / split / "cat" / ".DS_Store").write_bytes(b"stray")
    packed(folder / "src", folder / "packed", shards=2)
    return folder / "packed"


def swap(one: Path, other: Path) -> None:
    """Each gets the other's name."""
    aside = one.with_name("aside")
    one.rename(aside)
    other.rename(one)
    aside.rename(other)


def listing_of(sizes: Mapping[str, int]) -> Listing:
    """A listing of one flat folder, of files by name that are nowhere."""
    found = Listing()
    found.folders.append("")
    for name in sorted(sizes):
        found.names.append(name)
        found.sizes.append(sizes[name])
        found.mtimes_ns.append(7)
        found.codecs.append(NOT_SNIFFED)
    found.folder_starts.append(len(found.names))
    return found


def planned(listing: Listing, exclude: SkipList | None = None, **options: Any) -> PackPlan:
    """The plan of a listing."""
    return make_plan(listing, PackConfig(**options), name="data", exclude=exclude or SkipList(), failed={})


def tree(folder: Path, files: Mapping[str, bytes | str]) -> Path:
    """Files by path below a folder; a path may hold surrogate escapes.

    Returns:
        The folder.
    """
    for name, content in files.items():
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(content if isinstance(content, bytes) else content.encode())
    return folder


def packed_rows(folder: Path, more: Mapping[str, bytes] | None = None, **options: Any) -> Path:
    """A packed dataset of three photos whose rows are indexed; where jpegtran is not installed the test is skipped.

    Args:
        folder: Gets photos/ and packed/.
        more: Other files of photos/.
        **options: Of fastfeed.pack.

    Returns:
        The packed folder.
    """
    if shutil.which("jpegtran") is None:
        pytest.skip(NO_JPEGTRAN)
    photos = {f"cat/{at:03d}.jpg": encoded(photo(at, (40, 40)), restart_marker_rows=1) for at in range(3)}
    tree(folder / "photos", {**photos, **(more or {})})
    packed(folder / "photos", folder / "packed", jpeg_rows=True, **options)
    return folder / "packed"


@dataclass(frozen=True)
class Sample:
    """A packed sample as Python's tarfile and the index's columns say it."""

    key: str
    label: int | None
    fields: dict[str, bytes]
    sources: dict[str, str]
    """By field; empty for a member that pack made."""


def manifest_of(dataset: Path) -> dict[str, Any]:
    """A dataset's manifest."""
    found: dict[str, Any] = json.loads((dataset / ".fastfeed" / "manifest.json").read_bytes())
    return found


def left_out_of(dataset: Path) -> dict[str, str]:
    """The published list: source -> kind."""
    lines = (dataset / ".fastfeed" / "left-out.jsonl").read_text().splitlines()
    return {item["source"]: item["kind"] for item in map(json.loads, lines)}


def read_back(dataset: Path) -> list[Sample]:
    """All samples, by tarfile; asserts that tar, index and manifest agree in names, offsets, sizes and counts."""
    manifest = manifest_of(dataset)
    index = ColumnFile.parse((dataset / ".fastfeed" / "index").read_bytes())
    members: list[tuple[str, int, bytes]] = []
    shard_samples = []
    for shard in manifest["shards"]:
        path = dataset / shard["file"]
        assert path.stat().st_size == shard["size_bytes"]
        names = set()
        with tarfile.open(path, "r:") as tar:
            for info in tar:
                assert info.isreg() and info.mtime == 0 and not info.pax_headers
                stream = tar.extractfile(info)
                assert stream is not None
                members.append((info.name, info.offset_data, stream.read()))
                names.add(info.name.rpartition("/")[0] + "/" + info.name.rpartition("/")[2].partition(".")[0])
        assert len(names) == shard["samples"] > 0
        shard_samples.append(len(names))
    assert max(shard_samples) - min(shard_samples) <= 1 or manifest["order"] == "stream"
    assert [offset for _, offset, _ in members] == index.numbers("member", "offset")
    assert [len(data) for _, _, data in members] == index.numbers("member", "size")
    fields = [manifest["fields"][number] for number in index.numbers("member", "field")]
    sources = [os.fsdecode(raw) for raw in index.strings("member", "source")]
    keys = [raw.decode("ascii") for raw in index.strings("sample", "key")]
    assert len({key.lower() for key in keys}) == len(keys) == manifest["samples"]
    labels = index.numbers("sample", "label") if manifest["classes"] is not None else [None] * len(keys)
    starts = index.numbers("sample", "members")
    found = []
    for key, label, start, stop in zip(keys, labels, starts, starts[1:], strict=False):
        rows = range(start, stop)
        assert [members[row][0] for row in rows] == [f"{key}.{fields[row]}" for row in rows]
        own = {fields[row]: members[row][2] for row in rows}
        found.append(Sample(key, label, own, {fields[row]: sources[row] for row in rows}))
    assert starts[-1] == len(members) == manifest["members"]
    return found


def contents(samples: list[Sample]) -> dict[str, bytes]:
    """Source path -> bytes, over all samples."""
    return {sample.sources[field]: data for sample in samples for field, data in sample.fields.items() if sample.sources[field]}


class Hook:
    """A progress that calls functions when a stage starts (by name), at each step of one, and at its end."""

    def __init__(
        self, *, on_start: Mapping[str, Callable[[], object]] | None = None, on_advance: Any = None, on_finish: Any = None
    ) -> None:
        self.on_start, self.on_advance, self.on_finish = dict(on_start or {}), on_advance, on_finish
        self.stage = ""
        self.stages: list[tuple[str, int | None, int | None]] = []
        self.items: dict[str, int] = {}
        self.size_bytes: dict[str, int] = {}

    def start(self, stage: str, items: int | None, size_bytes: int | None) -> None:
        self.stage = stage
        self.stages.append((stage, items, size_bytes))
        if stage in self.on_start:
            self.on_start[stage]()

    def advance(self, items: int, size_bytes: int) -> None:
        self.items[self.stage] = self.items.get(self.stage, 0) + items
        self.size_bytes[self.stage] = self.size_bytes.get(self.stage, 0) + size_bytes
        if self.on_advance is not None:
            self.on_advance(self.stage)

    def finish(self) -> None:
        if self.on_finish is not None:
            self.on_finish(self.stage)


class Interrupt(Exception):
    """Ends a pack in its midst, as Ctrl-C would."""


def interrupt_after(files: int) -> Hook:
    """A progress that ends a pack when this many files are written."""

    def check(stage: str) -> None:
        if stage == "pack" and hook.items["pack"] >= files:
            raise Interrupt("enough is written")

    hook = Hook(on_advance=check)
    return hook


def children_of(pid: int) -> list[int]:
    """Processes that a process has started and that still run, but for what multiprocessing keeps for a process's life.

    Other tests of this process may have started its fork server: it is no leftover, and no worker to be killed.
    """
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            state, parent = _state(int(name))
            if parent == pid and state not in {"Z", "X", ""} and not _is_multiprocessings(int(name)):
                found.append(int(name))
    return found


def _is_multiprocessings(pid: int) -> bool:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return b"multiprocessing.forkserver" in command or b"multiprocessing.resource_tracker" in command


def _state(pid: int) -> tuple[str, int]:
    """State letter and parent of a process, ("", 0) where it is gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            words = file.read().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return "", 0
    return words[0], int(words[1])


def is_running(pid: int) -> bool:
    """Whether a process still does anything."""
    return _state(pid)[0] not in {"", "Z", "X"}


def wait_for(what: Callable[[], object], doing: str) -> None:
    """Poll until something is true.

    Raises:
        AssertionError: It did not become so.
    """
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not what():
        assert time.monotonic() < deadline, f"waited in vain for {doing}"
        time.sleep(0.002)


PACK = "import fastfeed, json, sys\nfastfeed.pack(sys.argv[1], sys.argv[2], **json.loads(sys.argv[3]))"


@contextmanager
def packing_process(source: Path, destination: Path, **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A process that packs; killed at the end if it still runs."""
    command = [sys.executable, "-c", PACK, str(source), str(destination), json.dumps(options)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        try:
            yield process
        finally:
            process.kill()


FULL_DISK = """
    import os, subprocess, sys
    sys.path.insert(0, os.path.abspath("tests"))
    import fastfeed
    from fastfeed.errors import DestinationFull
    from fastfeed.machine import free_bytes
    from packing import Hook

    source, packed, mount, size, spare = sys.argv[1:]
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", mount], check=True)
    out, options = os.path.join(mount, "out"), {"workers": 2, "samples_per_shard": 1}

    def fill():  # another program fills the disk after the check for free space
        free = free_bytes(mount)
        with open(os.path.join(mount, "other"), "wb") as file:
            file.write(bytes(free - int(spare)))

    for attempt in range(2):  # the second time nothing at all fits
        try:
            fastfeed.pack(source, out, progress=Hook(on_start={"pack": fill} if attempt == 0 else {}), **options)
        except DestinationFull as error:
            print("full:", error)
        left = [name for name in os.listdir(os.path.join(out, ".fastfeed", "job")) if name.endswith(".part")]
        print("done:", sum(name.endswith(".tar") for name in os.listdir(out)), "left:", left)
    subprocess.run(["mount", "-o", "remount,size=64m", mount], check=True)
    result = fastfeed.pack(source, out, **options)
    print("kept:", result.shards_kept, "written:", result.shards_written)
    subprocess.run(["cp", "-a", out, packed], check=True)
"""


def pack_onto_a_full_disk(source: Path, packed: Path, *, size: str, spare_bytes: int) -> int:
    """Pack, a sample a shard, onto a disk that another program fills meanwhile; again; and once more when there is room.

    Asserts that each run says what is wrong and leaves no temporary file, and that the last one continues.

    Args:
        source: What to pack.
        packed: Where the finished dataset is copied to.
        size: Of the disk at first, as mount takes it.
        spare_bytes: What the other program leaves.

    Returns:
        How many shards the first run had finished.
    """
    mount = packed.with_name("mount")
    mount.mkdir()
    first, after_first, second, after_second, last = with_mounts(FULL_DISK, source, packed, mount, size, spare_bytes)
    assert first.startswith("full: the disk is full (") and "No space left on device" in first
    assert "Nothing is lost: free some space and run the same command again, it continues" in first
    assert second.startswith("full: there is not enough free space")
    assert after_first == after_second and after_first.endswith("left: []")
    shards = int(after_first.split()[1])
    assert last == f"kept: {shards} written: {len(list(packed.glob('*.tar'))) - shards}"
    return shards


def with_mounts(code: str, *arguments: object) -> list[str]:
    """Run Python code that may mount what nobody else sees; give the lines that it prints. Skips where that is forbidden."""
    if subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode:
        pytest.skip("no mount namespaces here")
    command = ["unshare", "-m", sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def python_without_privileges(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python code that may read only what its modes allow, also where the tests run as root."""
    drop = (
        "import ctypes, os, sys\n"
        "libc = ctypes.CDLL(None)\n"
        "[libc.prctl(24, capability) for capability in (1, 2)]\n"  # PR_CAPBSET_DROP of DAC_OVERRIDE, DAC_READ_SEARCH
        "os.execv(sys.executable, [sys.executable, '-c', *sys.argv[1:]])\n"
    )
    command = [sys.executable, "-c", drop, code, *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def raw_tree(root: Path) -> dict[bytes, bytes | None]:
    """Everything below a folder by its raw path: content of files, None for folders."""
    found: dict[bytes, bytes | None] = {}
    for folder, folders, names in os.walk(os.fsencode(root)):
        below = os.path.relpath(folder, os.fsencode(root))
        found.update({os.path.normpath(os.path.join(below, name)): None for name in folders})
        for name in names:
            with open(os.path.join(folder, name), "rb") as file:
                found[os.path.normpath(os.path.join(below, name))] = file.read()
    return found


def interrupted_unpack(dataset: Path, out: Path) -> None:
    """A destination as a killed unpack leaves it."""
    (out / WORKPLACE).mkdir(parents=True)
    digests = [json.loads((dataset / ".fastfeed" / "manifest.json").read_bytes())["digest"]]
    (out / WORKPLACE / "digests.json").write_text(json.dumps(digests))


def stopped(tmp_path: Path, **options: Any) -> Path:
    """A source of 8 files in as many shards, and a pack of it that was ended after 3."""
    source = tree(tmp_path / "s", {f"{at}.txt": f"text {at}" for at in range(8)})
    for at in range(8):
        os.utime(source / f"{at}.txt", ns=(at, at))
    with pytest.raises(Interrupt, match="enough is written"):
        packed(source, tmp_path / "out", samples_per_shard=1, progress=interrupt_after(3), **options)
    return source
