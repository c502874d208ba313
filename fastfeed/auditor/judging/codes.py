"""What is said of times, with codes that stay the same."""

from fastfeed.auditor.finding import Code, Severity, catalogue

SLOW = Code(
    "slow", Severity.WARNING, "Slow for its size, each time",
    "Find out what it is made of (the format and the number of scans are in the report), re-encode it, or leave it out "
    "(--skip-list). Where it waits instead of computing, look at the storage that its file is on.",
)  # fmt: skip
SLOW_COLD = Code(
    "slow-cold", Severity.WARNING, "Slow whenever its file is not in memory",
    "Its place on the storage is slow (a damaged or fragmented part of a disk, a far server): copy the file anew, or pack the "
    "dataset, so that it is read in one stretch with others.",
)  # fmt: skip
RANDOM_SLOW = Code(
    "random-slow", Severity.WARNING, "Slow in some of its repeats",
    "Something in it is drawn at random, and some draws are slow for this sample: look at the random transforms, or at the "
    "storage if it waits.",
)  # fmt: skip
STALL_ONCE = Code(
    "stall-once", Severity.INFO, "Slow once, and not again",
    "Nothing to do for this sample: it was the machine, the storage or a first use. Many of them are a matter of the machine.",
)  # fmt: skip
SLOW_UNCONFIRMED = Code(
    "slow-unconfirmed", Severity.INFO, "Seemed slow, unconfirmed",
    "Audit it again where samples can be measured again, and where the kernel tells how long a thread waits for a processor "
    "(/proc/thread-self/schedstat): until then it may have been the machine.",
)  # fmt: skip
OVERSIZE = Code(
    "oversize", Severity.WARNING, "Far larger than the others, and takes as much time as many of them",
    "Make it smaller if training does not need its size: fastfeed pack --max-side for images; cut or split texts.",
)  # fmt: skip
SLOW_FORMAT = Code(
    "slow-format", Severity.INFO, "Its format is slow to decode",
    "No fault of this sample. Where decoding is what training waits for, store it in the format that the others have.",
)  # fmt: skip
SLOW_KIND = Code(
    "slow-kind", Severity.INFO, "One of many that take longer than the others",
    "No fault of this sample. Where loading is what training waits for, look at what they have in common: a source, a size, a "
    "transform that is drawn for them.",
)  # fmt: skip

TIMING_CODES = catalogue(SLOW, SLOW_COLD, RANDOM_SLOW, STALL_ONCE, SLOW_UNCONFIRMED, OVERSIZE, SLOW_FORMAT, SLOW_KIND)
"""By name."""
PROVEN_SLOW = (SLOW, SLOW_COLD, RANDOM_SLOW)
"""The worst first."""
