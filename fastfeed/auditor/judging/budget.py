"""Which suspects are measured again: the costliest, as long as that takes a part of the time that all of them took."""

import numpy as np

from fastfeed.auditor.judging.ledger import Table
from fastfeed.auditor.judging.rules import Cuts
from fastfeed.auditor.judging.suspects import Suspect


def affordable(table: Table, found: list[Suspect], cuts: Cuts) -> tuple[list[Suspect], list[Suspect]]:
    """Those that are, and the rest. A sample is measured with all its clocks: it is in or out with all its suspicions.

    Args:
        table: The first measurement, which tells what another one takes.
        found: The costliest first.
        cuts: Says how much may be measured. The costliest one that is measured may take longer.
    """
    if not found:
        return [], []
    seconds = table.cost
    budget = max(cuts.least_repeat_seconds, cuts.repeat_part * float(seconds.sum()))
    beside = cuts.controls * float(np.median(seconds))
    chosen: set[int] = set()
    for row in dict.fromkeys(suspect.row for suspect in found):
        price = cuts.repeats * (float(seconds[row]) + beside)
        allowed = budget if chosen else max(budget, cuts.longest_repeat_seconds)
        if len(chosen) < cuts.most_suspects and price <= allowed:
            chosen.add(row)
            budget -= price
    return [one for one in found if one.row in chosen], [one for one in found if one.row not in chosen]
