"""Samples that are compared with one another: those of one format; of a rare one, those of the nearest in size."""

from dataclasses import dataclass, field

import numpy as np

from fastfeed.auditor.judging.ledger import Floats, Rows, Table

FEWEST = 30
"""A format with fewer samples has no line of its own."""


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """Samples with one line for what is usual. A group equals itself alone."""

    name: str
    """Of the format, for sentences."""
    rows: Rows
    """All that are judged by the line."""
    base: Rows
    """Those that make it."""
    guests: dict[str, int] = field(default_factory=dict)
    """Rare formats that are judged by it: how many samples each has."""

    def hosts(self, format_name: str | None) -> bool:
        """Whether samples of a format are judged by those of another one."""
        return format_name in self.guests and len(self.base) < len(self.rows)


def grouped(table: Table) -> list[Group]:
    """Each sample in one group; none of an empty table."""
    rows = {name: np.flatnonzero(table.kinds == kind) for kind, name in enumerate(table.formats)}
    large = {name: found for name, found in rows.items() if len(found) >= FEWEST}
    rare = {name: found for name, found in rows.items() if name not in large}
    if not large:
        return [_all(rare)] if rare else []
    middles = {name: _middle(table, found) for name, found in large.items()}
    guests: dict[str | None, list[str | None]] = {name: [] for name in large}
    for name, found in rare.items():
        middle = _middle(table, found)
        guests[min(large, key=lambda other: (_distance(middle, middles[other]), -len(large[other])))].append(name)
    return [
        Group(
            _named(name),
            np.sort(np.concatenate([base, *(rare[guest] for guest in guests[name])])),
            base,
            {_named(guest): len(rare[guest]) for guest in guests[name]},
        )
        for name, base in large.items()
    ]


def notes_of(groups: list[Group]) -> list[str]:
    """What a reader must know of formats that are too rare to be judged by themselves: one line, or none."""
    hosts = [group for group in groups if group.guests]
    if not hosts:
        return []
    rare = f"formats of fewer than {FEWEST} samples"
    if any(len(group.base) == len(group.rows) for group in hosts):
        return [f"{rare} only, so all are compared with one another: {_counted(hosts[0].guests)}"]
    told = "; ".join(f"{_counted(group.guests)} with {group.name}" for group in hosts)
    return [f"{rare} are compared with the nearest in size: {told}"]


def _counted(guests: dict[str, int]) -> str:
    return ", ".join(f"{name} ({count})" for name, count in guests.items())


def _all(rare: dict[str | None, Rows]) -> Group:
    """Too few of each: they are compared with one another."""
    rows = np.sort(np.concatenate(list(rare.values())))
    if len(rare) == 1:
        return Group(_named(next(iter(rare))), rows, rows)
    return Group("all formats together", rows, rows, {_named(name): len(found) for name, found in rare.items()})


def _named(name: str | None) -> str:
    return name or "samples of unknown format"


def _middle(table: Table, rows: Rows) -> Floats:
    """Median log of bytes and of pixels; NaN where one is unknown."""
    sizes = table.sizes[rows]
    return np.array([np.nan if np.isnan(column).all() else np.nanmedian(column) for column in sizes.T])


def _distance(one: Floats, other: Floats) -> float:
    """In logarithms; what one of them does not know counts nothing."""
    return float(np.nansum(np.abs(one - other)))
