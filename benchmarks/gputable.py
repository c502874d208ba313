"""The table of what a GPU gets from each way to feed it."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from benchmarks.gpuprofile import BESIDE
from benchmarks.measure import Record, print_table, shown, spread
from benchmarks.ranks import PARTS, TIMES

DEMAND = "a fixed batch on the GPU"
"""The way that is no loader's: all that the GPU can take."""
Found: TypeAlias = "dict[tuple[str, int], dict[bool, list[Record]]]"
"""Records of runs, by way and workers, then by whether they trained."""
_PARTS = " / ".join(PARTS)
HEAD = (
    "way", "workers", "loading alone, images / s", "training, images / s", "of the fixed batch's",
    *(f"{time} ms, {_PARTS}" for time in TIMES), "cores", "GPU MiB",
)  # fmt: skip

_OWN = {
    "step_ms": "step, ms", "model_ms": "model's kernels, ms", "gaps_ms": "gaps, ms", "waits_ms": "of 0.5 ms and more, ms",
    "gap_us": "gap, median, us",
}  # fmt: skip
"""Of a profile, by the columns of its table."""
PROFILE_HEAD = ("way", *_OWN.values(), *(f"beside: {kind}, ms" for kind in BESIDE))


def add(found: Found, order: Mapping[str, object], record: Record) -> None:
    """One more run of a way."""
    of_way = found.setdefault((str(order["way"]), int(str(order["workers"]))), {})
    of_way.setdefault(bool(order["trains"]), []).append(record)


def demand_of(found: Found) -> float | None:
    """Images a second of a fixed batch; None where none was run."""
    return _median(found.get((DEMAND, 0), {}).get(True, []), "images_s")


def row(name: tuple[str, int], runs: Mapping[bool, Sequence[Record]], demand: float | None) -> list[str]:
    """A way's row; cells of what was not run are empty."""
    trained, loaded = runs.get(True, []), runs.get(False, [])
    rate = _median(trained, "images_s")
    of_demand = f"{rate / demand:.1%}" if rate and demand else ""
    cores, memory = _median(trained, "cores"), _median(trained, "gpu_used_mib")
    times = [_times(trained, kind) for kind in (f"{time}_ms" for time in TIMES)]
    return [
        name[0], str(name[1] or ""), _rate(loaded), _rate(trained), of_demand, *times,
        "" if cores is None else f"{cores:.1f}", "" if memory is None else f"{memory:,.0f}",
    ]  # fmt: skip


def print_found(found: Found) -> None:
    """All of it; with several runs of a way their medians, and of images a second the extremes too."""
    print_table(HEAD, [row(name, runs, demand_of(found)) for name, runs in found.items()])


def print_profiles(found: Found) -> None:
    """Of each way that was profiled while it trained, the median of each figure."""
    rows = [
        profile_row(name, seen)
        for name, runs in found.items()
        if (seen := [run["profile"] for run in runs.get(True, []) if run["profile"] is not None])
    ]
    if rows:
        print("\nWhat the GPU does in a step, under a profiler:\n")
        print_table(PROFILE_HEAD, rows)


def profile_row(name: tuple[str, int], seen: Sequence[Record]) -> list[str]:
    """A way's row of that table.

    Args:
        name: Way and workers.
        seen: Its profiles.
    """
    own = [spread(one[figure] for one in seen)["median"] for figure in _OWN]
    beside = [spread(one["beside_ms"][kind] for one in seen)["median"] for kind in BESIDE]
    return [f"{name[0]}, {name[1]} workers" if name[1] else name[0], *(f"{value:.2f}" for value in (*own, *beside))]


def _median(runs: Iterable[Record], name: str) -> float | None:
    values = [run[name] for run in runs]
    return float(spread(values)["median"]) if values else None


def _rate(runs: Sequence[Record]) -> str:
    if len(runs) == 1:
        return f"{runs[0]['images_s']:,.0f}"
    return shown(spread(run["images_s"] for run in runs), ",.0f") if runs else ""


def _times(runs: Sequence[Record], kind: str) -> str:
    return " / ".join(f"{spread(run[kind][part] for run in runs)['median']:.2f}" for part in PARTS) if runs else ""
