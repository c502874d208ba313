"""Where a suspicion begins and when it is proven."""

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Cuts:
    """The numbers of the rule. They were chosen on 4,000 photos, idle and beside spinning processes: tools/audit-experiment."""

    z_alone: float = 6.0
    """Robust standard deviations above what is usual for the size that are enough alone."""
    z_with_ratio: float = 3.5
    """That are enough where it takes ratio times as long, too."""
    ratio: float = 3.0
    """Suspicious is more than so many times the usual."""
    proof_ratio: float = 5.0
    """Slow is more than so many times what its like take. Progressive photos, which are no fault, take up to 3.1 times as long
    as others of their size, and where contents differ more than in those photos 4 would call some of them slow."""
    least_excess_seconds: float = 1e-3
    """No suspicion, and no proof, for less than this above the usual: 0.3 ms instead of 0.05 ms harm nobody."""
    ratio_excess_seconds: float = 3e-3
    """The same for a suspicion by ratio."""
    blocked_seconds: float = 10e-3
    """Waiting for less than this is no suspicion."""
    blocked_factor: float = 10.0
    """And it has to be so many times the median."""
    repeats: int = 3
    """How often a suspect is measured again; the least of its repeats counts."""
    more_repeats: int = 6
    """On top, where repeats differ or the stage may draw at random."""
    random_part: float = 1 / 3
    """What is slow in so large a part of its repeats, but not in all, is slow at random."""

    controls: int = 3
    """Samples like a suspect that are measured beside it."""
    most_suspects: int = 2000
    """More of them are not measured again, but said to be unconfirmed: those that cost the least."""
    least_repeat_seconds: float = 60.0
    """Measuring again may always take so long (computing and being blocked, as the first time) ..."""
    repeat_part: float = 0.3
    """... or so large a part of what all samples took, where that is more. The costliest sample may take longer, but not ..."""
    longest_repeat_seconds: float = 600.0
    """... than this: nobody waits an hour to hear that a sample of twenty minutes was no stall."""

    def raised(self) -> "Cuts":
        """For a machine on which clocks move by themselves: higher cuts, and more repeats."""
        factor = 1.5
        return replace(
            self,
            z_alone=self.z_alone * factor,
            z_with_ratio=self.z_with_ratio * factor,
            blocked_seconds=self.blocked_seconds * factor,
            repeats=self.repeats + 2,
        )
