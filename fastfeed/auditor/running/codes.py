"""What the loading of a sample itself can show: that it cannot be read, hangs, or takes its process along."""

from fastfeed.auditor.finding import Code, Severity, catalogue

UNREADABLE = Code(
    "unreadable", Severity.ERROR, "It cannot be read",
    "Look at permissions, links and the disk; leave it out with a skip list, or fetch it again.",
)  # fmt: skip
SPECIAL = Code(
    "special-file", Severity.ERROR, "It is no file but a FIFO, a socket or a device: it was not opened",
    "Remove it: a loader that opens a FIFO waits for ever.",
)  # fmt: skip
LEFT_OUT = Code(
    "left-out-image", Severity.WARNING, "Named like an image, but a leftover of a system or a notebook",
    "Remove it: fastfeed leaves it out, but torchvision's ImageFolder takes it as a sample.",
)  # fmt: skip
LOOP = Code(
    "folder-loop", Severity.WARNING, "A link to a folder that it lies in itself",
    "Remove the link: fastfeed does not follow it, but torchvision's ImageFolder lists the same files again, dozens of times.",
)  # fmt: skip
KERNEL_FOLDER = Code(
    "kernel-folder", Severity.WARNING, "A folder of the kernel's own, such as /proc or /sys",
    "Remove the link to it: fastfeed does not follow it, but torchvision's ImageFolder lists it, perhaps without end.",
)  # fmt: skip
DAMAGED_SHARD = Code(
    "damaged-shard", Severity.ERROR, "Its bytes in the shard are not those that were packed",
    "Copy the shard again, or pack again; fastfeed verify names every damaged byte.",
)  # fmt: skip
FAILS = Code(
    "fails", Severity.ERROR, "The dataset raises an error instead of giving it",
    "The text says where it was raised: mend the sample or the dataset, or leave it out with a skip list.",
)  # fmt: skip
STOPS_EARLY = Code(
    "stops-early", Severity.ERROR, "The dataset says that it ends here, though by its length it does not",
    "An IndexError or StopIteration of one's own code ends a for loop without a word: raise another error, or mend __len__.",
)  # fmt: skip
UNSENDABLE = Code(
    "unpicklable", Severity.WARNING, "A worker cannot send it: it cannot be pickled",
    "Give tensors, arrays, numbers and texts, or let collate_fn make such of it. Torch's loader names no such sample.",
)  # fmt: skip
CRASH = Code(
    "crash", Severity.ERROR, "It kills the process that loads it, each time",
    "Leave it out with a skip list: in training it takes a worker along. The text says how and, if that is known, where in "
    "the code.",
)  # fmt: skip
CRASH_ONCE = Code(
    "crash-once", Severity.WARNING, "A process that loaded it died; a new one loaded it",
    "What came before it, chance, or the machine may be the cause: look whether the same sample shows up again.",
)  # fmt: skip
HANG = Code(
    "hang", Severity.ERROR, "Loading it did not end",
    "The text has the Python stack at which it stood. Leave it out with a skip list, or mend what it waits for.",
)  # fmt: skip
TAKES_LONG = Code(
    "takes-long", Severity.WARNING, "Loading it took very much longer than others",
    "The text has the Python stack at which it stood meanwhile. A whole volume or video may be so; a photo should not.",
)  # fmt: skip
MEMORY = Code(
    "memory", Severity.ERROR, "Loading it takes more memory than it may",
    "Make it smaller, or give --memory-limit more than by default.",
)  # fmt: skip
RUNNING = catalogue(
    UNREADABLE,
    SPECIAL,
    LEFT_OUT,
    LOOP,
    KERNEL_FOLDER,
    DAMAGED_SHARD,
    FAILS,
    STOPS_EARLY,
    UNSENDABLE,
    CRASH,
    CRASH_ONCE,
    HANG,
    TAKES_LONG,
    MEMORY,
)
