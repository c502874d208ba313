"""Where a GPU's time goes while it trains: the model's own kernels, the gaps between them, and what runs beside them.

torch's profiler records what the GPU does (kernels and copies, whoever started them, DALI too). Recording costs some time
itself, so figures are compared with those of the fixed batch that was recorded likewise.
"""

import json
import re
import statistics
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.measure import Record

_LONG_US = 500.0
"""A gap as long as that is one for which no launch is the reason: a batch was not there."""
_DALI = re.compile("dali|nvjpeg|nvimgcodec", re.IGNORECASE)
COPIES, DECODING, OTHERS = "copies", "DALI's kernels", "other kernels"
BESIDE = (COPIES, DECODING, OTHERS)
"""What runs on other streams than the model's."""


class Work(NamedTuple):
    """Something that a GPU did."""

    start_us: float
    stop_us: float
    stream: int
    kind: str
    """One of BESIDE."""


def recorded(steps: Callable[[int], None], count: int) -> Record:
    """Run some steps; of_works() of what the GPU did.

    Args:
        steps: Runs so many, and waits for the GPU.
        count: How many.

    Raises:
        RuntimeError: The profiler saw no kernel: another one may have the GPU, or it is not allowed to.
    """
    from torch.profiler import ProfilerActivity, profile

    with tempfile.TemporaryDirectory(prefix="gpuprofile_") as folder:
        trace = Path(folder) / "trace.json"
        with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as seen:
            steps(count)
        seen.export_chrome_trace(str(trace))
        works = works_of(json.loads(trace.read_text()))
    if not works:
        msg = "torch's profiler saw nothing that the GPU did"
        raise RuntimeError(msg)
    return of_works(works, count)


def works_of(trace: Mapping[str, Any]) -> list[Work]:
    """What a GPU did, by a trace as torch's profiler writes it (Chrome's trace event format)."""
    found = []
    for event in trace["traceEvents"]:
        category = event.get("cat")
        if category in {"kernel", "gpu_memcpy", "gpu_memset"}:
            kind = (DECODING if _DALI.search(event["name"]) else OTHERS) if category == "kernel" else COPIES
            start = float(event["ts"])
            found.append(Work(start, start + float(event["dur"]), int(event["args"]["stream"]), kind))
    return found


def of_works(works: Sequence[Work], count: int) -> Record:
    """Milliseconds a step.

    Args:
        works: What the GPU did, not empty.
        count: Steps.

    Returns:
        "step_ms": from the first to the last work of the model's stream, which is the one with the most to do.
        "model_ms": the work on it. "gaps_ms": the rest. "waits_ms": gaps of half a millisecond and more alone.
        "gap_us": the median gap between two works that follow each other, in microseconds.
        "beside_ms": what others do meanwhile, by BESIDE; it may go on at the same time, and slow down the model's work.
    """
    busy: dict[int, float] = {}
    for work in works:
        busy[work.stream] = busy.get(work.stream, 0.0) + work.stop_us - work.start_us
    model = max(busy, key=lambda stream: busy[stream])
    own = sorted(work for work in works if work.stream == model)
    gaps = [max(0.0, after.start_us - before.stop_us) for before, after in pairwise(own)]
    beside = {
        kind: _ms(work.stop_us - work.start_us for work in works if work.stream != model and work.kind == kind) / count
        for kind in BESIDE
    }
    return {
        "step_ms": (own[-1].stop_us - own[0].start_us) / count / 1e3, "model_ms": busy[model] / count / 1e3,
        "gaps_ms": _ms(gaps) / count, "waits_ms": _ms(gap for gap in gaps if gap >= _LONG_US) / count,
        "gap_us": statistics.median(gaps) if gaps else 0.0, "beside_ms": beside,
    }  # fmt: skip


def _ms(values_us: Iterable[float]) -> float:
    return sum(values_us) / 1e3
