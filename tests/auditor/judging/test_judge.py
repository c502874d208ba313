"""Planted samples and traps, by clocks that a seed draws; and each class of finding, from records to words."""

import time

import pytest
from clocksim import Sample, Scene, photos, planted

from fastfeed.auditor.judging.codes import PROVEN_SLOW
from fastfeed.auditor.judging.judge import judge, judge_ledger
from fastfeed.auditor.judging.ledger import Ledger
from fastfeed.auditor.judging.noise import Beat, Noise
from fastfeed.auditor.judging.rules import Cuts
from fastfeed.auditor.record import SampleRecord, StageTime

NOISY = Noise([Beat(0.01, 0.6), Beat(0.013, 0.7)])
SLOW_NAMES = {code.name for code in PROVEN_SLOW}


def codes(records):
    """By index, where there are any."""
    return {record.index: [finding.code.name for finding in record.findings] for record in records if record.findings}


def slow(records):
    """Indices that are proven to be slow."""
    return {index for index, names in codes(records).items() if SLOW_NAMES & set(names)}


def judged(scene, **how):
    records = scene.records()
    return judge(records, scene.remeasure, **how), records


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("machine", ["idle", "busy", "busy and known to be"])
def test_all_planted_and_no_other(seed, machine):
    scene, true, stalls = planted(seed, busy=machine != "idle")
    verdict, records = judged(scene, noise=NOISY if machine == "busy and known to be" else Noise())
    assert slow(records) == true
    assert {index for index, names in codes(records).items() if "stall-once" in names} >= stalls
    assert verdict.counts["slow"] == 24
    assert verdict.slow.samples == 24
    assert "formats of fewer than 30 samples are compared with the nearest in size: JPEG2000 (8) with JPEG" in verdict.notes


def test_measuring_again_is_little_work():
    scene, _, _ = planted(3)
    judged(scene)
    assert sum(len(indices) for indices, _ in scene.calls) < 0.5 * len(scene.samples)


def test_large_ones_are_large_and_not_slow():
    scene, _, _ = planted(4)
    verdict, records = judged(scene)
    large = {n for n, sample in enumerate(scene.samples) if sample.pixels == 4_300_000}
    assert {index for index, names in codes(records).items() if names == ["oversize"]} == large
    assert verdict.oversize.samples == 16


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("busy", [False, True])
def test_an_ordinary_set_has_nothing(seed, busy):
    _, records = judged(Scene(photos(seed, 1500), seed=seed, busy=busy))
    assert slow(records) == set()
    assert all(names == ["stall-once"] for names in codes(records).values())


def test_slow_when_cold():
    scene = Scene(photos(1, 300), cold_first=True)
    scene.samples[40].cold_blocked = 0.2
    verdict, records = judged(scene)
    assert slow(records) == {40}
    (finding,) = records[40].findings
    assert finding.code.name == "slow-cold"
    assert "when its file is not in memory" in finding.text
    assert verdict.slow.stage == "read"


def test_slow_when_cold_where_nothing_can_be_made_cold():
    scene = Scene(photos(1, 300), cold_first=True, can_be_cold=False)
    scene.samples[40].cold_blocked = 0.2
    _, records = judged(scene)
    assert codes(records)[40] == ["stall-once"]


def test_slow_at_random():
    scene = Scene(photos(2, 300), transform=True)
    for index in range(0, 300, 15):
        scene.samples[index].sometimes = (0.5, 50e-3)
    scene.samples[0].sometimes = (0.0, 0.0)
    _, records = judged(scene)
    found = [names for index, names in codes(records).items() if index % 15 == 0]
    assert {"random-slow"} <= {name for names in found for name in names}
    assert all(index % 15 == 0 for index in slow(records))


def test_what_all_draw_now_and_then_is_nobodys_fault():
    scene = Scene([Sample(sometimes=(0.02, 50e-3)) for _ in range(600)], transform=True, seed=5)
    verdict, records = judged(scene)
    assert len(slow(records)) <= 1
    assert verdict.counts["stall-once"] >= 5
    assert any("stalled once and not again" in note for note in verdict.notes)


def test_a_dataset_that_cannot_be_taken_apart():
    scene = Scene(photos(3, 500), opaque=True)
    scene.samples[11].decode = 0.3
    scene.samples[12].blocked = 0.1
    verdict, records = judged(scene)
    assert slow(records) == {11, 12}
    assert records[11].findings[0].text.startswith("load takes ")
    assert verdict.lines[0].group.name == "samples of unknown format"


def test_equal_times():
    records = [SampleRecord(n, times={"load": StageTime(1e-3, 1e-3, 0)}) for n in range(200)]
    records[9].times["load"] = StageTime(0.1, 0.1, 0)
    judge(records, lambda indices, *, cold: {n: [records[n].times] for n in indices})
    assert slow(records) == {9}


@pytest.mark.parametrize("count", [0, 1, 2])
def test_too_few_to_say_anything(count):
    scene = Scene([Sample(decode=0.001 * 100**n) for n in range(count)])
    verdict, records = judged(scene)
    assert codes(records) == {}
    assert verdict.samples == count
    assert verdict.slow is None


def test_one_of_five():
    scene = Scene([Sample(decode=1.0 if n == 3 else 0.01) for n in range(5)])
    verdict, records = judged(scene)
    assert "Fewer than 10 samples have times: which of them is oversize is not judged" in verdict.notes
    assert slow(records) == {3}
    assert verdict.sentences()[0].startswith("slow: 20 % of samples take 96 % of decode time")


def test_a_kernel_that_does_not_tell_waiting_for_a_processor():
    scene, true, _ = planted(5, busy=True, schedstat=False)
    waits = {index for index in true if scene.samples[index].blocked}
    verdict, records = judged(scene)
    assert slow(records) == true - waits, "computing is proven all the same"
    unconfirmed = {index for index, names in codes(records).items() if "slow-unconfirmed" in names}
    assert waits <= unconfirmed
    assert len(unconfirmed) < 40, "though more than half of the samples have waited for a processor"
    assert all(records[index].status == "ok" for index in unconfirmed if "oversize" not in codes(records)[index])
    assert any("/proc/thread-self/schedstat" in note for note in verdict.notes)


def test_what_cannot_be_measured_again_is_unconfirmed():
    scene = Scene(photos(6, 300))
    scene.samples[7].decode = 0.5
    records = scene.records()
    verdict = judge(records, None)
    assert codes(records) == {7: ["slow-unconfirmed"]}
    assert records[7].findings[0].text.endswith("unconfirmed: samples could not be measured again")
    assert records[7].status == "ok"
    assert verdict.slow is None


def test_what_cannot_be_measured_again_in_time_is_unconfirmed():
    scene = Scene(photos(6, 300))
    scene.samples[7].decode = 0.5
    ledger = Ledger()
    for record in scene.records():
        ledger.add(record)
    verdict = judge_ledger(ledger, scene.remeasure, deadline=time.monotonic())
    ((index, (finding,)),) = verdict.findings.items()
    assert (index, finding.code.name, scene.calls) == (7, "slow-unconfirmed", [])
    assert finding.text.endswith("unconfirmed: time was up before it was measured again often enough")
    assert "1 suspect of 1 unconfirmed: time was up" in verdict.notes


def test_without_sure_clocks_and_repeats_nothing_is_said_of_waiting():
    scene = Scene(photos(6, 300), busy=True, schedstat=False)
    scene.samples[7].decode = 0.5
    records = scene.records()
    judge(records, None)
    assert codes(records) == {7: ["slow-unconfirmed"]}


def test_a_noisy_machine_is_said():
    verdict, _ = judged(Scene(photos(7, 100)), noise=NOISY)
    assert verdict.notes[0].startswith("The machine was noisy, so cuts were raised: a fixed piece of work took")
    assert verdict.as_json()["noise"]["host_noisy"] is True


@pytest.mark.parametrize(("noise", "asked"), [(Noise(), 3), (NOISY, 0)])
def test_on_a_noisy_machine_a_little_more_is_no_suspicion(noise, asked):
    records = [SampleRecord(n, times={"load": StageTime(10e-3, 10e-3, 0)}) for n in range(100)]
    records[9].times["load"] = StageTime(19e-3, 19e-3, 0)
    calls = []

    def remeasure(indices, *, cold):
        calls.append(indices)
        return {n: [records[n].times] for n in indices}

    judge(records, remeasure, noise=noise)
    assert sum(9 in indices for indices in calls) >= asked
    assert bool(calls) == bool(asked)
    assert codes(records) == {}, "and it is proven to be nothing where it is one"


def test_only_the_costliest_are_measured_again():
    scene = Scene(photos(8, 400))
    for index in range(10):
        scene.samples[index].decode = 0.1 + index / 100
    ledger = Ledger()
    for record in scene.records():
        ledger.add(record)
    verdict = judge_ledger(ledger, scene.remeasure, cuts=Cuts(most_suspects=4))
    assert verdict.counts == {"slow": 4, "slow-unconfirmed": 6}
    assert {index for index, found in verdict.findings.items() if found[0].code.name == "slow"} == {6, 7, 8, 9}
    assert any("6 suspects of 10 not measured again: that would have taken too long" in note for note in verdict.notes)


def test_measuring_again_has_a_budget_of_time():
    scene = Scene([Sample(decode=40.0 if n < 3 else 0.05) for n in range(100)])
    verdict, _ = judged(scene)
    assert verdict.counts == {"slow": 1, "slow-unconfirmed": 2}, "60 s are not enough for 40 s thrice; one is always tried"


def test_a_format_that_is_slow_as_a_whole():
    """A hundred JPEG 2000 are no outliers: said of each, but as no fault of theirs."""
    scene, _, _ = planted(2, count=2000)
    for sample in scene.samples[:100]:
        sample.format, sample.decode = "JPEG2000", sample.decode * 40
    verdict, records = judged(scene)
    assert verdict.counts["slow-format"] == 100 + 8
    assert all("slow-format" in codes(records)[index] for index in range(100))
    assert sum(names == ["slow-format"] for names in codes(records).values()) > 90
    assert records[0].status == "ok" or "slow" in codes(records)[0]


def test_two_kinds_of_samples_that_nothing_tells_apart():
    scene = Scene([Sample(decode=10e-3 if n % 5 == 0 else 1e-3) for n in range(600)], opaque=True)
    scene.samples[7].decode = 0.2
    verdict, records = judged(scene)
    assert slow(records) == {7} and verdict.counts["slow-kind"] == 120
    assert any("so many are a kind of their own" in note for note in verdict.notes)


def test_samples_without_times_are_counted():
    records = [*Scene(photos(9, 50)).records(), SampleRecord(50)]
    verdict = judge(records, None)
    assert (verdict.samples, verdict.timed) == (51, 50)


def test_findings_are_appended_by_index():
    scene = Scene(photos(10, 100))
    scene.samples[7].decode = 0.5
    records = scene.records()[::-1]
    judge(records, scene.remeasure)
    assert [record.index for record in records if record.findings] == [7]


def test_the_same_again():
    one, other = (judged(planted(11, count=1000)[0])[0] for _ in range(2))
    assert one.findings == other.findings
    assert one.as_json() == other.as_json()
