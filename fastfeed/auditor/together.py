"""What samples show together: equal bytes, odd classes, names that clash, texts of odd lengths, tars that are damaged."""

from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from fastfeed.auditor.finding import Finding
from fastfeed.auditor.indexes import Indexes
from fastfeed.auditor.looking import classes, lengths, naming, setcodes
from fastfeed.auditor.looking.archives import TarLook
from fastfeed.auditor.looking.copies import Copies
from fastfeed.auditor.looking.look import DATA, TEXT
from fastfeed.auditor.record import SampleRecord
from fastfeed.sample import printable
from fastfeed.source.tarrows import open_tar

Found = Iterator[tuple[int, Finding]]
_UNITS = {setcodes.LENGTH_OUTLIER: "character", setcodes.TOKENS_OUTLIER: "token"}


class Together:
    """Takes records one by one, and keeps of them what is needed: about 30 bytes each, 16 or 32 more of texts, paths of files.

    Args:
        names: Whether samples are files of a folder, whose names matter elsewhere.
    """

    def __init__(self, *, names: bool) -> None:
        self._names = names
        self._copies = Copies()
        self._classes: Counter[tuple[str | None, str]] = Counter()
        self._paths: dict[str, int] = {}
        self._lengths = {code: (array("q"), array("q")) for code in _UNITS}
        """By what is said of it: positions of texts, and the length of each."""
        self._of_names: list[tuple[int, Finding]] = []

    def add(self, record: SampleRecord) -> None:
        """One sample."""
        if record.digest is not None:
            self._copies.add(record.index, record.digest, record.label, record.split)
        if record.label is not None:
            self._classes[record.split, record.label] += 1
        for (texts, lengths_of), length in zip(self._lengths.values(), (record.characters, record.tokens), strict=True):
            if length is not None:
                texts.append(record.index)
                lengths_of.append(length)
        if self._names and record.path is not None:
            self._paths[record.path] = record.index
            is_image = record.format not in {None, DATA, TEXT}
            self._of_names += [(record.index, found) for found in naming.findings_of(record.path, is_image=is_image)]

    def found(self, name_of: Callable[[int], str]) -> Found:
        """What there is to say about single samples.

        Args:
            name_of: The name of a sample by its position.
        """
        for copy in self._copies.found():
            yield from copy.findings(name_of).items()
        yield from self._of_names
        for paths, finding in naming.clashes(self._paths):
            yield from ((self._paths[path], finding) for path in paths)
        for code, (texts, lengths_of) in self._lengths.items():
            for at, finding in lengths.outliers(lengths_of, _UNITS[code], code).items():
                yield texts[at], finding

    def of_set(self, class_folders: frozenset[tuple[str | None, str]] = frozenset()) -> Iterator[tuple[str, Finding]]:
        """What there is to say about classes.

        Args:
            class_folders: (split, class) of those that are known to be, also without any sample.
        """
        for finding in classes.findings_of(self._classes, class_folders - self._classes.keys()):
            yield "classes", finding


def of_tars(paths: Sequence[str]) -> Iterator[tuple[str, Finding]]:
    """What there is to say about tars and the indexes beside them, each with its name; their headers are walked."""
    beside = Indexes()
    for path in paths:
        with open_tar(path) as blocks:
            look = TarLook(blocks)
        for finding in look.findings:
            yield printable(path), finding
        for index, finding in beside.disagreements(path, look.rows):
            yield printable(index), finding
