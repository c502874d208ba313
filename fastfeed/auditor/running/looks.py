"""What looking at bytes takes beside loading them: no clock of a sample has it, and one huge file may take most of an audit."""

from fastfeed.auditor.record import SampleRecord
from fastfeed.units import format_seconds

_NOTABLE_SECONDS = 5.0
"""Nobody asks where less has gone."""
_NOTABLE_PART = 0.5


class Looks:
    """Adds up what samples took beyond their own stages."""

    def __init__(self) -> None:
        self.seconds = 0.0
        """Of all, by the wall clock."""
        self._longest = (0.0, "")

    def add(self, record: SampleRecord, took_seconds: float) -> None:
        """One more.

        Args:
            record: A sample that was loaded and looked at.
            took_seconds: From when it was begun until its record was heard.
        """
        beside = (
            took_seconds - record.wall_seconds
        )  # below 0 where it is the mean of several that came together: the sum is right
        self.seconds += beside
        self._longest = max(self._longest, (beside, record.name))

    def notes(self) -> list[str]:
        """A sentence where looking took long and one sample had the most of it."""
        seconds, name = self._longest
        if self.seconds < _NOTABLE_SECONDS or seconds < _NOTABLE_PART * self.seconds:
            return []
        of_it = f"{format_seconds(seconds)} of it at {name}"
        return [f"looking at bytes, beside loading them, took {format_seconds(self.seconds)}, {of_it}"]
