"""benchmarks/bench_gpu.py and tools/gpu-check, as far as they need no GPU: plans, orders, ranks, the table."""

import argparse
import json
import subprocess
import sys
import time
from collections import Counter
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import pytest
from helpers import ROOT, make_photos, packed

from benchmarks import bench_gpu, gpuplan, gpuprofile, gputable, ranks
from benchmarks.gputable import DEMAND, Found
from benchmarks.measure import Record, in_fresh_process

TOOL = ROOT / "tools" / "gpu-check"
H200 = gpuplan.Pace(gpus=1, batch_size=256)
TORCH, SHARDS, DALI = "torch + Pillow", "fastfeed, shards, device", "fastfeed, shards, dali 0.5"


def asked(*arguments: str, **more: object) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    bench_gpu.add_arguments(parser)
    parser.set_defaults(steps=300, short_epochs=False, **more)
    return parser.parse_args(arguments)


def of_rank(images_s: float, waits: list[float], used_mib: float = 10.0) -> Record:
    return {
        "images_s": images_s, "cores": 2.0, "wait_seconds": waits, "feed_seconds": [], "thread_seconds": [], "gpu": "one",
        "gpu_mib": 1.0, "gpu_used_mib": used_mib, "profile": None,
    }  # fmt: skip


# ------------------------------------------------------------------------------------------------ the plan
def test_training_stands_between_two_of_the_fixed_batch_and_loading_comes_last():
    runs = gpuplan.runs_of([TORCH, SHARDS], ["more"])
    assert [run.way for run in runs] == [DEMAND, TORCH, SHARDS, DEMAND, TORCH, SHARDS, "more"]
    assert [run.trains for run in runs] == [True] * 4 + [False] * 3


def test_steps_fill_the_time_and_stay_within_their_bounds():
    runs = gpuplan.runs_of([TORCH, SHARDS, DALI])
    least, most = gpuplan.LEAST_STEPS, gpuplan.MOST_STEPS
    found = [gpuplan.training_steps(runs, seconds, H200) for seconds in range(0, 1200, 20)]
    assert found == sorted(found) and {found[0], found[-1]} == {least, most} and len(set(found)) > 3
    for seconds, steps in zip(range(0, 1200, 20), found, strict=True):
        assert steps == least or sum(run.seconds(run.steps(steps), H200) for run in runs) <= seconds


def test_a_run_takes_what_its_loader_or_the_gpu_takes():
    starving, fed = (gpuplan.Run(way, trains=True).seconds(300, H200) for way in (TORCH, DALI))
    assert starving == pytest.approx(H200.start_seconds + 340 * 256 / 2_700)
    assert fed == pytest.approx(H200.start_seconds + 340 * 256 / (0.9 * 4_700))
    assert gpuplan.Run(DALI, trains=False).seconds(100, H200) == pytest.approx(H200.start_seconds + 140 * 256 / 7_000)


@pytest.mark.parametrize("gpus", [1, 4])
def test_the_fixed_batch_shows_the_pace(gpus):
    pace = gpuplan.Pace(gpus, 256).seen(steps=60, images_s=2560.0 * gpus, took_seconds=30.0)
    assert pace.demand_images_s == 2560 * gpus
    assert pace.start_seconds == pytest.approx(1.3 * (30 - 10))
    assert gpuplan.Run(DALI, trains=True).seconds(60, pace) == pytest.approx(26 + 10 / 0.9)


def test_a_run_that_loads_has_a_part_of_the_steps_but_enough():
    assert [gpuplan.Run(TORCH, trains=False).steps(steps) for steps in (30, 300, 600)] == [100, 100, 200]
    assert gpuplan.Run(TORCH, trains=True).steps(30) == 30


# ------------------------------------------------------------------------------------------------ orders
def test_an_order_says_all_that_a_run_needs():
    way = next(way for way in bench_gpu.WAYS if way.name == DALI)
    order = bench_gpu.order_of(way, asked("--gpus", "2"), {"shards": "/packed"}, 30, trains=True)
    assert json.loads(json.dumps(order)) == order
    assert (order["folder"], order["dali"], order["device"], order["gpus"]) == ("/packed", {"hw_decoder_load": 0.5}, True, 2)
    assert order["workers"] == 16  # its own number, for each GPU
    fixed = bench_gpu.order_of(None, asked(), {}, 30, trains=True)
    assert (fixed["way"], fixed["workers"], fixed["gpus"]) == (DEMAND, 0, 1)


def test_a_round_asks_for_each_way_whose_data_is_there():
    args = asked(only=["device"], loader_only=False, workers=[3, 5])
    found = [(order["way"], order["workers"], order["trains"]) for order in bench_gpu.orders_of(args, {"shards": "/packed"})]
    assert found == [(DEMAND, 0, True), *((SHARDS, count, trains) for trains in (False, True) for count in (3, 5))]


def test_workers_are_shared_out():
    order = {"workers": 30, "way": TORCH}
    assert ranks.share_of(order, ranks.Rank()) == {**order, "number": 0, "world": 1, "local": 0}
    assert ranks.share_of(order, ranks.Rank(3, 4, 1)) == {"way": TORCH, "workers": 7, "number": 3, "world": 4, "local": 1}
    assert ranks.share_of({"workers": 2}, ranks.Rank(0, 4, 0))["workers"] == 1


# ------------------------------------------------------------------------------------------------ ranks
def test_records_of_ranks_become_one():
    found = ranks.merged([of_rank(100.0, [0.001, 0.002]), of_rank(120.0, [0.003, 0.5], used_mib=30)])
    assert (found["gpus"], found["images_s"], found["cores"], found["gpu_used_mib"]) == (2, 220, 4, 30)
    assert found["wait_ms"] == pytest.approx({"p50": 3, "p99": 500, "max": 500}) and found["feed_ms"] == {}


_TOGETHER = """
import json, sys
sys.path.insert(0, {root!r})
from benchmarks import ranks
order = json.loads(sys.argv[2])
rank = ranks.join()
ranks.wait_for_all(rank)
mine = ranks.share_of(order, rank)
record = {{**order["record"], "images_s": float(10 ** rank.number), "wait_seconds": [mine["workers"]]}}
records = ranks.gathered(record, rank)
if rank.number == 0:
    print(json.dumps(ranks.merged(records)))
"""


@pytest.mark.long
@pytest.mark.parametrize(("gpus", "images_s", "workers"), [(1, 1, 7), (2, 11, 3)])
def test_one_record_comes_of_the_launcher_s_processes(tmp_path, gpus, images_s, workers):
    script = tmp_path / "script.py"
    script.write_text(_TOGETHER.format(root=str(ROOT)))
    order = {"workers": 7, "record": of_rank(0.0, [])}
    found = in_fresh_process(str(script), order, launcher=ranks.launcher(gpus), seconds=120)
    assert (found["gpus"], found["images_s"], found["wait_ms"]["max"]) == (gpus, images_s, 1000 * workers)


def test_a_run_that_hangs_is_ended(tmp_path):
    (tmp_path / "script.py").write_text("import time\ntime.sleep(60)\n")
    with pytest.raises(RuntimeError, match="exit code 124"):
        in_fresh_process(str(tmp_path / "script.py"), {}, seconds=1)


_DRAWN = """
import json, sys
sys.path.insert(0, {root!r})
from itertools import islice
from benchmarks import bench_gpu, ranks
order = json.loads(sys.argv[2])
bench_gpu.WARM_STEPS = 2
rank = ranks.join()
order = ranks.share_of(order, rank)
makes = [(bench_gpu.by_torch, "files"), (bench_gpu.by_fastfeed, "shards")]
drawn = {{form: [classes.tolist() for _, classes in make({{**order, "folder": order[form]}})] for make, form in makes}}
records = ranks.gathered(drawn, rank)
if rank.number == 0:
    print(json.dumps({{"ranks": records}}))
"""


@pytest.mark.long
def test_ranks_draw_their_parts_of_one_long_epoch(tmp_path):
    """Twice two batches of 4 for each of two ranks: four times each of 8 photos, which have a class each."""
    photos = make_photos(tmp_path / "photos", classes="abcdefgh", each=1)
    packed(photos, tmp_path / "packed")
    script = tmp_path / "script.py"
    script.write_text(_DRAWN.format(root=str(ROOT)))
    order = {
        "files": str(photos), "shards": str(tmp_path / "packed"), "batch_size": 4, "steps": 2, "short_epochs": False,
        "workers": 2, "device": False, "channels_last": False, "dali": None, "profiled": 0,
    }  # fmt: skip
    found = in_fresh_process(str(script), order, launcher=ranks.launcher(2), seconds=120)["ranks"]
    for form in ("files", "shards"):
        each = [[one for batch in rank[form] for one in batch] for rank in found]
        assert [len(rank[form]) for rank in found] == [4, 4]
        assert Counter(each[0] + each[1]) == dict.fromkeys(range(8), 4)


# ------------------------------------------------------------------------------------------------ the table and the tool
def test_the_table_has_a_row_for_each_way_and_leaves_out_what_was_not_run(capsys):
    times = {
        "wait_ms": {"p50": 0.5, "p99": 1.25, "max": 2}, "feed_ms": {"p50": 0.75, "p99": 1.5, "max": 3},
        "thread_ms": {"p50": 0.25, "p99": 0.375, "max": 1},
    }  # fmt: skip
    run = {"cores": 3.04, "gpu_used_mib": 2048.4, "profile": None, **times}
    found: Found = {}
    for rate in (990, 1010):
        gputable.add(found, {"way": DEMAND, "workers": 0, "trains": True}, {**run, "images_s": rate})
    gputable.add(found, {"way": TORCH, "workers": 14, "trains": True}, {**run, "images_s": 750})
    gputable.add(found, {"way": DALI, "workers": 8, "trains": False}, {**run, "images_s": 18_000, "feed_ms": {}})
    gputable.print_found(found)
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in capsys.readouterr().out.splitlines()]
    spent = ["0.50 / 1.25 / 2.00", "0.75 / 1.50 / 3.00", "0.25 / 0.38 / 1.00", "3.0", "2,048"]
    assert cells[0] == list(gputable.HEAD)
    assert cells[2:] == [
        [DEMAND, "", "", "1,000 (990 - 1,010)", "100.0%", *spent],
        [TORCH, "14", "", "750", "75.0%", *spent],
        [DALI, "8", "18,000", "", "", "", "", "", "", ""],
    ]


def event(category: str, start_us: float, duration_us: float, stream: int, name: str = "sgemm") -> Record:
    return {"ph": "X", "cat": category, "name": name, "ts": start_us, "dur": duration_us, "args": {"stream": stream}}


TRACE = {
    "traceEvents": [
        {"ph": "M", "name": "process_name"},
        {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 0, "dur": 5, "args": {}},
        event("kernel", 100, 1000, 7),
        event("kernel", 1110, 1890, 7),
        event("gpu_memset", 4000, 100, 7),
        event("kernel", 4200, 910, 7),
        event("gpu_memcpy", 200, 300, 13, "Memcpy HtoD (Pinned -> Device)"),
        event("kernel", 500, 400, 13, "void dali::kernels::Resample"),
        event("kernel", 900, 100, 21, "nvjpegHuffman"),
        event("kernel", 950, 60, 13, "elementwise"),
    ]
}


def test_a_profile_says_what_the_model_s_stream_does_and_what_runs_beside_it():
    found = gpuprofile.of_works(gpuprofile.works_of(TRACE), 2)
    assert found == pytest.approx({
        "step_ms": 2.505, "model_ms": 1.95, "gaps_ms": 0.555, "waits_ms": 0.5, "gap_us": 100,
        "beside_ms": pytest.approx({gpuprofile.COPIES: 0.15, gpuprofile.DECODING: 0.25, gpuprofile.OTHERS: 0.03}),
    })  # fmt: skip


def test_profiles_have_a_table_of_their_own(capsys):
    profile = gpuprofile.of_works(gpuprofile.works_of(TRACE), 2)
    runs = {"profile": profile}, {"profile": {**profile, "gaps_ms": 1.557}}, {"profile": None}
    gputable.print_profiles({(DEMAND, 0): {True: [runs[2]]}})
    assert not capsys.readouterr().out
    gputable.print_profiles({(DEMAND, 0): {True: [runs[0]]}, (DALI, 8): {True: list(runs), False: [runs[2]]}})
    lines = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in capsys.readouterr().out.splitlines() if "|" in line
    ]
    others = ["0.50", "100.00", "0.15", "0.25", "0.03"]
    assert lines[0] == list(gputable.PROFILE_HEAD)
    assert lines[2:] == [[DEMAND, "2.50", "1.95", "0.56", *others], [f"{DALI}, 8 workers", "2.50", "1.95", "1.06", *others]]


@pytest.fixture(scope="module", name="tool")
def _tool() -> ModuleType:
    loader = SourceFileLoader("gpu_check", str(TOOL))
    module = module_from_spec(spec_from_loader("gpu_check", loader))  # type: ignore[arg-type]
    loader.exec_module(module)
    return module


def test_the_tool_s_ways_are_the_benchmark_s(tool):
    assert {*tool.TRAINED, *tool.LOADED} <= {way.name for way in bench_gpu.WAYS}


def test_what_is_missing_is_named(tool, tmp_path, capsys, monkeypatch):
    make_photos(tmp_path / "photos")
    args = argparse.Namespace(photos="there", rows=None, steps=20, photo_files=10)
    monkeypatch.setattr(tool.handdali, "has_dali", lambda: False)
    found = tool.missing_of(args, {"files": "there"})
    assert [line.split(" ")[1] for line in found] == ["DALI", "jpegtran", "20:"]
    assert capsys.readouterr().out.splitlines() == found


def test_what_no_time_is_left_for_is_left_out_and_named(tool, tmp_path):
    record = tmp_path / "record.json"
    args = asked(json=str(record), workers=2)
    bench = tool.Bench(args, {"files": "there", "shards": "there"}, [], time.monotonic() + 1)
    bench.run_all()
    of_dali = {way.name for way in tool.bench_gpu.WAYS if way.dali is not None and way.packing in {"files", "shards"}}
    there = {TORCH, SHARDS, *(of_dali if tool.handdali.has_dali() else ())}
    trained, loaded = ([way for way in names if way in there] for names in (tool.TRAINED, tool.LOADED))
    ways = [run.way for run in gpuplan.runs_of(trained, loaded)]
    named = [line.removeprefix("left out: ") for line in bench.missing]
    assert [way for way, line in zip(ways, named, strict=True) if line.startswith(way)] == ways
    assert json.loads(record.read_text())["missing"] == bench.missing and not bench.found and not bench.failed


@pytest.mark.long
def test_a_run_that_fails_ends_nothing_else(tool, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    record = tmp_path / "record.json"
    bench = tool.Bench(asked(json=str(record), workers=1), {}, [], time.monotonic() + 100)
    bench.run_all()
    assert bench.failed == [f"{DEMAND}, training"] * 2 == json.loads(record.read_text())["failed"]
    assert capsys.readouterr().out.count("Traceback") == 2


def test_without_a_gpu_it_says_so_and_runs_nothing(tmp_path):
    command = ["env", "CUDA_VISIBLE_DEVICES=", sys.executable, str(TOOL), "--json", str(tmp_path / "record")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 2 and "torch finds 0 GPUs here" in done.stderr and not list(Path(tmp_path).iterdir())
