"""What is usual for a size."""

import numpy as np
import pytest
from clocksim import JPEG_SECONDS, MEGAPIXEL, Sample, Scene, photos

from fastfeed.auditor.judging.expectation import expectations
from fastfeed.auditor.judging.groups import grouped
from fastfeed.auditor.judging.ledger import Ledger
from fastfeed.auditor.judging.rules import Cuts
from fastfeed.auditor.record import SampleRecord, StageTime


def of(records):
    ledger = Ledger()
    for record in records:
        ledger.add(record)
    table = ledger.table()
    found, lines = expectations(table, grouped(table), Cuts())
    return table, found, lines


def test_photos_cost_by_their_size():
    scene = Scene(photos(0, 1000))
    scene.samples[5].decode *= 50
    _, found, lines = of(scene.records())
    true = np.array([sample.pixels / MEGAPIXEL * JPEG_SECONDS for sample in scene.samples])
    assert np.median(found["decode"].cpu / true) == pytest.approx(1.05, abs=0.1)
    assert found["decode"].z[5] > 15
    line = next(line for line in lines if line.stage == "decode")
    assert (line.group.name, line.fit.slopes.sum()) == ("JPEG", pytest.approx(1.0, abs=0.15))
    assert line.samples < 1000, "what stands out makes no line"
    assert line.fit.scale == pytest.approx(0.15, abs=0.05)


def test_guests_are_judged_by_the_line_of_others():
    scene = Scene(photos(1, 200) + [Sample(format="JPEG2000", decode=60e-3)] * 5)
    _, found, lines = of(scene.records())
    assert (found["decode"].z[200:] > 15).all()
    assert {line.group.name for line in lines} == {"JPEG"}


def test_few_samples_grow_with_their_size():
    sizes = [10_000, 20_000, 40_000, 80_000]
    samples = [Sample(pixels=size * 5, size_bytes=size, decode=size * 1e-7) for size in sizes]
    _, found, lines = of(Scene(samples).records())
    assert found["decode"].cpu.tolist() == pytest.approx([size * 1e-7 for size in sizes], rel=0.3)
    assert next(line for line in lines if line.stage == "decode").fit.slopes.tolist() == [0.5, 0.5]


def test_without_sizes_there_is_a_level_alone():
    scene = Scene(photos(2, 300), opaque=True)
    table, found, lines = of(scene.records())
    assert np.ptp(found["load"].cpu) == pytest.approx(0, abs=1e-9)
    assert found["load"].cpu[0] == pytest.approx(float(np.median(table.stages["load"].cpu)), rel=0.1)
    assert lines[0].fit.slopes.tolist() == [0, 0]


def test_a_sample_of_unknown_size_is_taken_for_a_usual_one():
    scene = Scene(photos(3, 300))
    scene.samples[9].pixels = scene.samples[9].size_bytes = None
    _, found, _ = of(scene.records())
    assert found["decode"].cpu[9] == pytest.approx(float(np.median(found["decode"].cpu)), rel=0.1)


def test_a_stage_that_some_samples_lack():
    records = Scene(photos(4, 60)).records()
    for record in records[:20]:
        del record.times["decode"]
    _, found, _ = of(records)
    assert np.isnan(found["decode"].cpu[:20]).all()
    assert np.isfinite(found["decode"].cpu[20:]).all()


def test_a_stage_that_a_whole_format_lacks():
    records = Scene(photos(5, 60) + [Sample(format="text", pixels=None)] * 40).records()
    for record in records[60:]:
        del record.times["decode"]
    _, found, lines = of(records)
    assert np.isnan(found["decode"].z[60:]).all()
    assert {line.group.name for line in lines if line.stage == "decode"} == {"JPEG"}


def test_a_clock_that_shows_nothing():
    _, found, _ = of([SampleRecord(n, times={"load": StageTime(0, 0, 0)}) for n in range(40)])
    assert found["load"].z.tolist() == pytest.approx([0] * 40)


def test_a_line_in_a_report():
    _, _, lines = of(Scene(photos(6, 300)).records())
    found = next(line for line in lines if line.stage == "decode").as_json()
    assert (found["stage"], found["format"]) == ("decode", "JPEG")
    assert found["typical_cpu_seconds"] == pytest.approx(1.2e-3, rel=0.3)
    assert found["bytes_slope"] + found["pixels_slope"] == pytest.approx(1.0, abs=0.3)
