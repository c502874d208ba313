"""A tenth of the samples that all take longer are no outliers but another kind of sample, which the audit cannot see as such.

A Python dataset may hold clips beside photos: nothing tells its formats and sizes. To call each clip slow would bury what is,
and a warning for a tenth of all samples asks for a remedy that nobody would apply: leaving them out. An outlier is what is
far from the bulk, and these are of the bulk. So each has its name with what is worth knowing (slow-kind), as samples of a slow
format have, and is neither flagged, nor measured again, nor in a skip list.
"""

from collections import defaultdict

import numpy as np

from fastfeed.auditor.finding import Finding
from fastfeed.auditor.judging.codes import SLOW_KIND
from fastfeed.auditor.judging.groups import FEWEST, Group
from fastfeed.auditor.judging.regression import robust_scale
from fastfeed.auditor.judging.rules import Cuts
from fastfeed.auditor.judging.suspects import Suspect
from fastfeed.units import format_count, format_seconds

_PART = 0.1
"""Of the samples that are compared with one another."""


def without_kinds(found: list[Suspect], cuts: Cuts) -> tuple[list[Suspect], dict[int, Finding], list[str]]:
    """The suspects but for those that are many alike, in the same order; what is said of these, by row; a sentence a kind.

    Args:
        found: All suspects.
        cuts: Where a suspicion begins: those that stand out among the many stay suspects.
    """
    computing: dict[tuple[Group, str], list[Suspect]] = defaultdict(list)
    for suspect in found:
        if suspect.clock == "cpu":
            computing[suspect.group, suspect.stage].append(suspect)
    alike: set[Suspect] = set()
    findings: dict[int, Finding] = {}
    notes = []
    for (group, stage), several in computing.items():
        if len(several) < max(FEWEST, _PART * len(group.rows)):
            continue
        kind, times = _alike(several, cuts)
        alike.update(kind)
        told = (
            f"{format_count(len(kind), 'sample')} of {group.name} ({len(kind) / len(group.rows):.0%}) take {times:.0f} times "
            f"as long as the others in {stage}"
        )
        notes.append(f"{told}: so many are a kind of their own, or drawn so at random, not called slow")
        for one in kind:
            own = f"{stage} takes {format_seconds(one.seconds)}, and its like {format_seconds(one.usual_seconds)}; {told}"
            findings.setdefault(one.row, Finding(SLOW_KIND, own))
    return [suspect for suspect in found if suspect not in alike], findings, notes


def _alike(several: list[Suspect], cuts: Cuts) -> tuple[list[Suspect], float]:
    """Those that do not stand out among them, and how many times the usual the middle one takes."""
    logs = np.log([suspect.seconds / suspect.usual_seconds for suspect in several])
    middle = float(np.median(logs))
    usual = logs - middle <= np.maximum(cuts.z_alone * robust_scale(logs), np.log(cuts.ratio))
    return [suspect for suspect, within in zip(several, usual.tolist(), strict=True) if within], float(np.exp(middle))
