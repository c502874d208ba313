"""From recorded times to findings: what is usual, who stands out, what repeats, what it costs."""

from collections.abc import Iterable

import numpy as np

from fastfeed.auditor.finding import Finding
from fastfeed.auditor.judging.budget import affordable
from fastfeed.auditor.judging.codes import PROVEN_SLOW, STALL_ONCE
from fastfeed.auditor.judging.confirming import LATE, Outcome, confirmed, unconfirmed, worst_each
from fastfeed.auditor.judging.controls import matched
from fastfeed.auditor.judging.expectation import Expectation, expectations
from fastfeed.auditor.judging.formats import slow_formats
from fastfeed.auditor.judging.groups import grouped, notes_of
from fastfeed.auditor.judging.impact import costliest, impact
from fastfeed.auditor.judging.kinds import without_kinds
from fastfeed.auditor.judging.ledger import Ledger, Table
from fastfeed.auditor.judging.noise import Noise
from fastfeed.auditor.judging.oversize import FEWEST, oversized
from fastfeed.auditor.judging.repeats import Remeasure, Repeats
from fastfeed.auditor.judging.rules import Cuts
from fastfeed.auditor.judging.sentences import told
from fastfeed.auditor.judging.suspects import Suspect, suspects
from fastfeed.auditor.judging.trial import Case
from fastfeed.auditor.judging.verdict import Verdict
from fastfeed.auditor.record import SampleRecord
from fastfeed.units import format_count

_QUIET = Noise()
_TOO_MANY = "measuring it again would have taken too long"


def judge(records: Iterable[SampleRecord], remeasure: Remeasure | None, *, noise: Noise = _QUIET) -> Verdict:
    """Judges records that are all in memory, and appends what it finds to each.

    Args:
        records: All samples.
        remeasure: Measures samples again; None where that is impossible (a stream): suspicions then stay unconfirmed.
        noise: What the machine was like.
    """
    kept = list(records)
    ledger = Ledger()
    for record in kept:
        ledger.add(record)
    verdict = judge_ledger(ledger, remeasure, noise=noise)
    for record in kept:
        record.findings.extend(verdict.findings.get(record.index, ()))
    return verdict


def judge_ledger(
    ledger: Ledger, remeasure: Remeasure | None, *, noise: Noise = _QUIET, cuts: Cuts | None = None, wall_only: bool = False,
    deadline: float | None = None,
) -> Verdict:  # fmt: skip
    """The same for more records than memory holds: a ledger has seen each, and findings are in the verdict alone.

    Args:
        ledger: Has seen all samples.
        remeasure: As for :func:`judge`.
        noise: What the machine was like; a noisy one raises the cuts.
        cuts: Where a suspicion begins and when it is proven; None takes the usual ones.
        wall_only: Whether times are of the wall clock alone, given as processor time: findings then call them what they are.
        deadline: Of time.monotonic(): no round of measuring again is begun later. None for none.
    """
    table, cuts = ledger.table(), cuts or Cuts()
    cuts = cuts.raised() if noise.host_noisy else cuts
    groups = grouped(table)
    expected, lines = expectations(table, groups, cuts)
    found = suspects(table, groups, expected, cuts)
    single, kinds, sentences = without_kinds(found, cuts)
    outcomes = worst_each(_tried(table, single, expected, remeasure=remeasure, cuts=cuts, deadline=deadline))
    slow = sorted(row for row, outcome in outcomes.items() if outcome.code in PROVEN_SLOW)
    large = oversized(table, set(slow))
    formats = slow_formats(table, lines, cuts)
    words = {row: told(outcome, table.formats[table.kinds[row]], wall_only=wall_only) for row, outcome in outcomes.items()}
    return Verdict(
        samples=ledger.records,
        timed=table.samples,
        findings=_findings(table, words, large, formats, kinds),
        slow=impact(table, np.array(slow, np.int64)),
        oversize=impact(table, np.array(sorted(large), np.int64)),
        top=costliest(table),
        lines=tuple(lines),
        noise=noise,
        notes=(*notes_of(groups), *sentences, *_notes(table, noise, outcomes)),
    )


def _tried(
    table: Table, found: list[Suspect], expected: dict[str, Expectation], *, remeasure: Remeasure | None, cuts: Cuts,
    deadline: float | None,
) -> list[Outcome]:  # fmt: skip
    """Measures again what can be. Of the rest, a suspicion by a clock that is not sure is none."""
    if remeasure is None:
        return [unconfirmed(suspect, "samples could not be measured again") for suspect in found if suspect.sure]
    chosen, left = affordable(table, found, cuts)
    controls = matched(table, chosen, expected, found=found, count=cuts.controls)
    outcomes = confirmed(list(map(Case, chosen, controls)), Repeats(table, remeasure, deadline), cuts)
    return [*outcomes, *(unconfirmed(suspect, _TOO_MANY) for suspect in left if suspect.sure)]


def _findings(table: Table, *kinds: dict[int, Finding]) -> dict[int, list[Finding]]:
    """By index: rows are the judge's own."""
    found: dict[int, list[Finding]] = {}
    for kind in kinds:
        for row, finding in kind.items():
            found.setdefault(int(table.index[row]), []).append(finding)
    return found


def _notes(table: Table, noise: Noise, outcomes: dict[int, Outcome]) -> list[str]:
    notes = []
    if noise.host_noisy:
        notes.append(f"The machine was noisy, so cuts were raised: {'; '.join(noise.why)}")
    if not table.sure:
        notes.append(
            "This kernel does not tell how long a thread waits for a processor (/proc/thread-self/schedstat): samples that "
            "wait instead of computing are unconfirmed"
        )
    if 0 < table.samples < FEWEST:
        notes.append(f"Fewer than {FEWEST} samples have times: which of them is oversize is not judged")
    left = sum(outcome.why == _TOO_MANY for outcome in outcomes.values())
    if left:
        notes.append(f"{format_count(left, 'suspect')} of {len(outcomes):,} not measured again: that would have taken too long")
    late = sum(outcome.why == LATE for outcome in outcomes.values())
    if late:
        notes.append(f"{format_count(late, 'suspect')} of {len(outcomes):,} unconfirmed: time was up")
    once = sum(outcome.code is STALL_ONCE for outcome in outcomes.values())
    if once:
        notes.append(f"{format_count(once, 'sample')} stalled once and not again: no fault of theirs")
    return notes
