"""Samples with equal bytes: those in several splits first, those in several classes next, the rest last."""

from array import array
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import xxhash

from fastfeed.auditor.finding import Code, Finding
from fastfeed.auditor.looking import setcodes
from fastfeed.units import format_count

_NOTHING = bytes.fromhex(xxhash.xxh3_128_hexdigest(b""))
_DIGEST_BYTES = 16
_NAMED = 3
_WORST_FIRST = (setcodes.COPY_IN_SPLITS, setcodes.COPY_IN_CLASSES, setcodes.COPY)


@dataclass(frozen=True, slots=True)
class Copy:
    """Samples with the same bytes."""

    code: Code
    samples: tuple[int, ...]
    """Two or more, rising."""

    def findings(self, name_of: Callable[[int], str]) -> dict[int, Finding]:
        """What there is to say about each; of copies in one class and split, the first is no copy.

        Args:
            name_of: The name of a sample by its number.
        """
        concerned = self.samples[1:] if self.code is setcodes.COPY else self.samples
        return {sample: Finding(self.code, self._told(sample, name_of)) for sample in concerned}

    def _told(self, sample: int, name_of: Callable[[int], str]) -> str:
        others = [other for other in self.samples if other != sample]
        names = ", ".join(name_of(other) for other in others[:_NAMED])
        more = f" and {format_count(len(others) - _NAMED, 'more', 'more')}" if len(others) > _NAMED else ""
        return f"the same bytes as {names}{more}"


class Copies:
    """Collects digests of samples, 24 bytes each, and finds equal ones."""

    def __init__(self) -> None:
        self._digests = bytearray()
        self._samples, self._labels, self._splits = array("q"), array("i"), array("i")
        self._numbers: dict[str | None, int] = {None: -1}

    def add(self, sample: int, digest: str, label: str | None = None, split: str | None = None) -> None:
        """One sample; empty ones are not compared.

        Args:
            sample: Its number.
            digest: 32 hex digits, of its main member alone: class numbers repeat in every sample.
            label: Class.
            split: Such as train.
        """
        raw = bytes.fromhex(digest)
        if raw == _NOTHING:
            return
        self._digests += raw
        self._samples.append(sample)
        self._labels.append(self._number(label))
        self._splits.append(self._number(split))

    def _number(self, name: str | None) -> int:
        return self._numbers.setdefault(name, len(self._numbers))

    def found(self) -> list[Copy]:
        """All groups of equal samples, the worst first."""
        halves = np.frombuffer(bytes(self._digests), dtype=np.uint64).reshape(-1, _DIGEST_BYTES // 8)
        order = np.lexsort((np.arange(len(halves)), halves[:, 1], halves[:, 0]))
        equal = (halves[order[1:]] == halves[order[:-1]]).all(axis=1)
        starts = np.flatnonzero(np.concatenate([[True], ~equal]))
        stops = np.append(starts[1:], len(halves))
        several = stops - starts > 1  # few of very many
        groups = zip(starts[several].tolist(), stops[several].tolist(), strict=True)
        found = [self._copy(order[start:stop].tolist()) for start, stop in groups]
        return sorted(found, key=lambda copy: (_WORST_FIRST.index(copy.code), copy.samples))

    def _copy(self, rows: list[int]) -> Copy:
        code = setcodes.COPY
        if len({self._splits[row] for row in rows}) > 1:
            code = setcodes.COPY_IN_SPLITS
        elif len({self._labels[row] for row in rows}) > 1:
            code = setcodes.COPY_IN_CLASSES
        return Copy(code, tuple(sorted(self._samples[row] for row in rows)))
