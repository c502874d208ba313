"""What the loader does about samples that fail: policies, caps, and which sample stands in for another."""

from dataclasses import dataclass

from fastfeed.errors import DecodeError, UsageError
from fastfeed.feed.seeds import mix
from fastfeed.units import format_count

ON_ERROR = ("raise", "skip", "replace")
_MIN_SEEN = 200
"""A rate means something from so many samples on."""
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class ErrorCaps:
    """When tolerated faults are too many."""

    consecutive: int = 20
    """Samples that failed one after another, in the order of delivery."""
    rate: float = 0.05
    """Share of all samples of an epoch, once 200 were asked for."""


@dataclass(frozen=True, slots=True)
class Replacement:
    """Which sample stands in for one that failed: a pure function of base, epoch and index, the same on every rank.

    Args:
        size: Samples of the dataset.
        base: Of sample mode's random numbers, or the loader's seed, or 0.
    """

    size: int
    base: int

    def __call__(self, index: object, epoch: int, attempt: int) -> int:
        """Another index."""
        number = index if isinstance(index, int) else hash(index)
        return mix(mix(self.base + epoch) ^ mix(number) ^ mix(attempt + 0x5F)) % self.size


class FaultCounter:
    """Counts tolerated faults in the main process.

    Args:
        caps: When they are too many.
    """

    def __init__(self, caps: ErrorCaps) -> None:
        self.caps = caps
        self.seen = self.failed = self.consecutive = 0
        self.names: list[str] = []

    def batch(self, size: int, names: list[str]) -> None:
        """A batch came.

        Args:
            size: Samples that were asked for.
            names: Of those that failed.

        Raises:
            DecodeError: They are too many.
        """
        self.seen += size
        if not names:
            self.consecutive = 0
            return
        self.failed += len(names)
        self.consecutive = self.consecutive + len(names) if len(names) >= size else 0
        self.names = [*self.names, *names][-_SHOWN:]
        if self.consecutive >= self.caps.consecutive:
            raise self._too_many(f"{format_count(self.consecutive, 'sample')} failed one after another")
        if self.seen >= _MIN_SEEN and self.failed / self.seen > self.caps.rate:
            raise self._too_many(
                f"{self.failed:,} of {format_count(self.seen, 'sample')} failed ({self.failed / self.seen:.1%})"
            )

    def _too_many(self, what: str) -> DecodeError:
        msg = f"{what}, which is more than on_error tolerates; the last: {'; '.join(self.names)}"
        expected = f"fewer than {self.caps.consecutive} in a row, and at most {self.caps.rate:.1%}"
        return DecodeError(msg, expected=expected, hint="Mend the data, leave samples out with skip=, or raise error_caps=.")


def prove_policy(on_error: str, *, shuffles: bool, forced: bool) -> None:
    """Whether a policy may be had.

    Raises:
        UsageError: No such policy, or one that would change an evaluation silently.
    """
    if on_error not in ON_ERROR:
        msg = f"on_error is one of {', '.join(ON_ERROR)}"
        raise UsageError(msg, got=repr(on_error))
    if on_error != "raise" and not shuffles and not forced:
        msg = f"on_error={on_error!r} without shuffle would change what an evaluation is over"
        hint = "Leave known samples out with skip=, or insist with force_on_error=True."
        raise UsageError(msg, got=f"on_error={on_error!r}, shuffle=False", hint=hint)
