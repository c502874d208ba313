#!/usr/bin/env python3
"""What the cache is good for: epochs over a slow place, several processes at once, against the page cache; and which policy.

    python benchmarks/bench_cache.py                 all parts
    python benchmarks/bench_cache.py --part epochs   one of: epochs, together, local, policies

The slow place is a store of fastfeed's whose reads wait for a link that all processes of the benchmark share: 1 ms a read and
100 MB/s in all, as a network file system that nobody's page cache stands in for. README.md says what each figure means.
"""

import heapq
import importlib.util
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks.cachepeers import EPOCHS, FILE_BYTES, FILES, LOCAL_CACHES, Link, epochs_of
from benchmarks.measure import (
    Record,
    arguments,
    in_fresh_process,
    machine_facts,
    print_facts,
    print_table,
    shown,
    spread,
    write_json,
)
from benchmarks.peers import PEERS


def slow_dataset(path: str, link: Link) -> Any:  # noqa: ANN401 - as a class that is made here
    """A packed dataset whose shards lie behind a link."""
    from fastfeed.archive.dataset import Archive
    from fastfeed.feed.dataset import PackedDataset
    from fastfeed.store.base import Range, Store
    from fastfeed.store.members import MemberReader, store_of

    class Slow:
        """A store behind the link."""

        def __init__(self, inner: Store) -> None:
            self.inner = inner

        def size(self, name: str) -> int:
            """As the store's."""
            return int(self.inner.size(name))

        def read(self, name: str, start: int, stop: int) -> bytes:
            """As the store's, later."""
            link.carry(stop - start)
            return bytes(self.inner.read(name, start, stop))

        def read_many(self, ranges: Sequence[Range]) -> None:
            """As the store's, later."""
            for wish in ranges:
                link.carry(wish.stop - wish.start)
            self.inner.read_many(ranges)

    class Dataset(PackedDataset):
        """Behind the link."""

        def _load(self) -> tuple[Any, Any]:
            archive = Archive(self.path)
            return archive, MemberReader(archive, Slow(store_of(archive)))

    return Dataset(path, decoders={"bin": "raw"})


# ------------------------------------------------------------------------------------------------ in a fresh process
def child(order: Record) -> Record:
    """One measurement."""
    kinds: dict[str, Callable[[Record], Record]] = {"epochs": epochs_once, "local": local_once, "look": look_once}
    return {**kinds, **LOCAL_CACHES}[order["what"]](order)


def look_once(order: Record) -> Record:
    """Whether this interpreter has a package."""
    return {"there": importlib.util.find_spec(order["module"]) is not None}


def epochs_once(order: Record) -> Record:
    """Wall seconds of each epoch through a loader with two forked workers, and what its cache says."""
    from fastfeed import DataLoader

    link = Link(order["link"])
    dataset = slow_dataset(order["path"], link)
    options = {"cache": order["cache"], "cache_dir": order["place"]} if order["cache"] else {}
    loader = DataLoader(dataset, 32, shuffle=True, seed=order.get("seed", 1), num_workers=2, collate_fn=len, **options)
    if "gate" in order:
        Path(f"{order['gate']}.{os.getpid()}").touch()
        while not os.path.exists(order["gate"]):
            time.sleep(0.005)
    found, stats = epochs_of(loader, link), loader.stats().cache
    kept = sum(file.stat().st_blocks * 512 for file in Path(order["place"]).glob("fastfeed-cache-*/*/*"))
    return {**found, "kept": kept, "stats": None if stats is None else str(stats)}


def local_once(order: Record) -> Record:
    """Processor microseconds a sample at random from local files, page cache warm: batches of 32, the second epoch."""
    import fastfeed

    options = {"cache": "4GiB", "cache_dir": order["place"]} if order["cached"] else {}
    dataset = fastfeed.open(order["path"], decoders={"bin": "raw"}, **options)
    picks = random.Random(order["seed"]).sample(range(FILES), FILES)
    spent = 0.0
    for _ in range(2):
        began = time.process_time()
        for at in range(0, FILES, 32):
            dataset.__getitems__(picks[at : at + 32])
        spent = time.process_time() - began
    return {"us": spent / FILES * 1e6}


# ------------------------------------------------------------------------------------------------ policies
def hit_rates(blocks: int, room: int, epochs: int, seed: int = 1) -> Record:
    """The part of reads from the second epoch on that are hits, under a fresh permutation each epoch."""
    dice = random.Random(seed)
    order = [block for _ in range(epochs) for block in dice.sample(range(blocks), blocks)]
    return {name: policy(order, room, blocks) for name, policy in POLICIES.items()}


def keep_first(order: Sequence[int], room: int, first: int) -> float:
    """What came first stays."""
    kept = set(order[:room])
    return sum(block in kept for block in order[first:]) / (len(order) - first)


def least_recent(order: Sequence[int], room: int, first: int) -> float:
    """What was read least recently makes room."""
    kept: OrderedDict[int, None] = OrderedDict()
    hits = 0
    for at, block in enumerate(order):
        if block in kept:
            kept.move_to_end(block)
            hits += at >= first
            continue
        if len(kept) >= room:
            kept.popitem(last=False)
        kept[block] = None
    return hits / (len(order) - first)


def optimal(order: Sequence[int], room: int, first: int) -> float:
    """What is wanted last makes room (Belady), also what was just read: the best that is possible, knowing the future."""
    following, last = [0] * len(order), dict[int, int]()
    for at in range(len(order) - 1, -1, -1):
        following[at] = last.get(order[at], len(order))
        last[order[at]] = at
    kept: dict[int, int] = {}
    heap: list[tuple[int, int]] = []
    hits = 0
    for at, block in enumerate(order):
        hits += at >= first and block in kept
        kept[block] = following[at]
        heapq.heappush(heap, (-following[at], block))
        while len(kept) > room:
            wanted, candidate = heapq.heappop(heap)
            if kept.get(candidate) == -wanted:
                del kept[candidate]
    return hits / (len(order) - first)


POLICIES: dict[str, Callable[[Sequence[int], int, int], float]] = {
    "no replacement": keep_first,
    "LRU": least_recent,
    "optimal": optimal,
}


# ------------------------------------------------------------------------------------------------ parts
def epochs_part(folder: Path, rounds: int, peer: str | None) -> Record:
    """Epochs over the slow place: without a cache, with room for all of it or for half; and through the caches of others."""
    data = FILES * FILE_BYTES
    runs: Record = {"no cache": None, "cache, all": "4GiB", "cache, half": int(data / 2 * 1.01)}
    found: Record = {name: [] for name in runs}
    peers = [name for name in LOCAL_CACHES if has(name, peer)]
    for _ in range(rounds):
        for name, cache in runs.items():
            order = {"what": "epochs", "path": str(folder / "packed"), "link": str(folder / "link"), "cache": cache}
            found[name].append(in_fresh_process(__file__, {**order, "place": str(place())}))
            (folder / "link").unlink()
        for name in peers:
            order = {"what": name, "path": str(folder / "packed"), "source": str(folder / "random"), "place": str(place())}
            run = in_fresh_process(__file__, {**order, "link": str(folder / "link")}, python=peer or sys.executable)
            found.setdefault(PEERS[name].packages[0], []).append(run)
            (folder / "link").unlink()
    rows = [
        [name, *(shown(spread(run["seconds"][epoch] for run in own)) for epoch in range(EPOCHS)),
         *(f"{own[0]['carried'][epoch] / 1e6:,.0f}" for epoch in range(EPOCHS)), f"{own[0]['kept'] / 1e6:,.0f}"]
        for name, own in found.items()
    ]  # fmt: skip
    headers = [f"epoch {number + 1}, s" for number in range(EPOCHS)] + [f"MB read in {number + 1}" for number in range(EPOCHS)]
    print_table(["contender", *headers, "MB kept"], rows)
    return found


def has(name: str, python: str | None) -> bool:
    """Whether a package is there to be measured; if not, that is said."""
    found = in_fresh_process(__file__, {"what": "look", "module": PEERS[name].module}, python=python or sys.executable)
    if not found["there"]:
        print(f"{PEERS[name].packages[0]}: not installed; pip install {PEERS[name].install}, and name its python with --peer\n")
    return bool(found["there"])


def together_part(folder: Path, rounds: int, _peer: str | None) -> Record:
    """Two and four processes that read the same data at once, each with an order of its own."""
    found: Record = {}
    rows = []
    for processes in (1, 2, 4):
        for cache in (None, "4GiB"):
            for _ in range(rounds):
                runs = at_once(folder, processes, cache, place())
                found.setdefault(f"{processes} processes, {'cache' if cache else 'no cache'}", []).append(runs)
    for name, rounds_ in found.items():
        slowest = [[max(run["seconds"][epoch] for run in runs) for runs in rounds_] for epoch in range(EPOCHS)]
        rows.append([name, *(shown(spread(one)) for one in slowest), f"{rounds_[0][0]['total'] / 1e6:,.0f}",
                     f"{max(run['kept'] for run in rounds_[0]) / 1e6:,.0f}"])  # fmt: skip
    print_table(["contender", *(f"epoch {number + 1}, s" for number in range(EPOCHS)), "MB read in all", "MB kept"], rows)
    return found


def at_once(folder: Path, processes: int, cache: str | None, place: Path) -> list[Record]:
    """Runs that begin at the same time."""
    gate, link = folder / "gate", folder / "link"
    started = []
    for number in range(processes):
        order = {"what": "epochs", "path": str(folder / "packed"), "link": str(link), "cache": cache, "place": str(place),
                 "gate": str(gate), "seed": number + 1}  # fmt: skip
        command = [sys.executable, __file__, "--child", json.dumps(order)]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
    while len(list(folder.glob("gate.*"))) < processes:
        time.sleep(0.01)
    gate.touch()
    runs = [json.loads(process.communicate()[0].splitlines()[-1]) for process in started]
    total = Link(str(link)).carried()
    for file in (link, *folder.glob("gate*")):
        file.unlink()
    return [{**run, "total": total} for run in runs]


def local_part(folder: Path, rounds: int, _peer: str | None) -> Record:
    """What the page cache does by itself, on the same reads: processor time."""
    found: Record = {}
    for number in range(rounds):
        for kind in ("packed", "zst"):
            for cached in (False, True):
                order = {"what": "local", "path": str(folder / kind), "cached": cached, "place": str(place()), "seed": number}
                name = f"{'tar' if kind == 'packed' else 'tar.zst'}, {'cache in /dev/shm' if cached else 'page cache'}"
                found.setdefault(name, []).append(in_fresh_process(__file__, order)["us"])
    print_table(
        ["contender", "us of processor time a sample"], [[name, shown(spread(own), ".1f")] for name, own in found.items()]
    )
    return found


def policies_part(_folder: Path, _rounds: int, _peer: str | None) -> Record:
    """Hit rates by simulation."""
    found = {share: hit_rates(2000, int(2000 * share), 12) for share in (0.1, 0.25, 0.5, 0.75, 0.9)}
    rows = [[f"{share:.0%}", *(f"{rates[name]:.1%}" for name in POLICIES)] for share, rates in found.items()]
    print_table(["room for", *POLICIES], rows)
    return {str(share): rates for share, rates in found.items()}


def place() -> Path:
    """Where caches are made: they are gone when their process ends."""
    return Path("/dev/shm" if os.path.isdir("/dev/shm") else tempfile.gettempdir())


def make(folder: Path, *, texts: bool) -> None:
    """The data: files of random bytes, which no compression makes smaller, packed as tar; and texts in .tar.zst if wanted."""
    import fastfeed

    dice = random.Random(1)
    words = [bytes(dice.choices(b"abcdefghijklmnopqrstuvwxyz ", k=8)) for _ in range(500)]
    for kind in ("random", "text") if texts else ("random",):
        (folder / kind).mkdir(parents=True)
        for number in range(FILES):
            data = dice.randbytes(FILE_BYTES) if kind == "random" else b"".join(dice.choices(words, k=FILE_BYTES // 8))
            (folder / kind / f"{number:05d}.bin").write_bytes(data)
    fastfeed.pack(folder / "random", folder / "packed", shards=4)
    if texts:
        fastfeed.pack(folder / "text", folder / "zst", shards=4, compress="zstd")


RUNS: dict[str, Callable[[Path, int, str | None], Record]] = {
    "epochs": epochs_part, "together": together_part, "local": local_part, "policies": policies_part,
}  # fmt: skip


def main() -> None:
    """Run what was asked for."""
    parser = arguments(__doc__, rounds=3)
    parser.add_argument("--part", choices=list(RUNS), action="append", help="only this part; may be given again")
    parser.add_argument("--peer", metavar="PYTHON", help="an interpreter with other packages that are measured as well")
    args = parser.parse_args()
    if args.child is not None:
        print(json.dumps(child(args.child)))
        return
    facts = machine_facts(["torch", "zstandard", "xxhash"])
    print_facts(facts)
    found: Record = {}
    with tempfile.TemporaryDirectory(dir=args.out) as folder:
        parts = args.part or list(RUNS)
        make(Path(folder), texts="local" in parts)
        for part in parts:
            print(f"\n{RUNS[part].__doc__}\n")
            found[part] = RUNS[part](Path(folder), args.rounds, args.peer)
    write_json(args.json, {"facts": facts, **found})


if __name__ == "__main__":
    main()
