"""Findings that were there before: a report of an earlier audit, against which only what is new counts."""

import json
from collections.abc import Iterable
from typing import Any

import xxhash

from fastfeed.auditor.finding import Finding
from fastfeed.auditor.record import SampleRecord
from fastfeed.auditor.result import Compared
from fastfeed.errors import UsageError

_HINT = "Give the file that an earlier audit wrote with --jsonl."


class Baseline:
    """An earlier report. A finding is known if the same sample had one of the same code.

    A sample is known by its split and path, else its key, else its position.
    One that had findings takes some 200 bytes, others none.

    Args:
        path: The file that audit(jsonl=) wrote.

    Raises:
        UsageError: It cannot be read, or is no such file.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._left_out = 0
        self._codes: dict[int, frozenset[str]] = {}
        """Codes by the digest of a sample's name."""
        self._met: dict[int, set[str]] = {}
        """Of the same samples, once they were met: codes that they still have."""
        try:
            with open(path, "rb") as file:
                for number, line in enumerate(file, 1):
                    self._take(line, number)
        except OSError as error:
            msg = f"the baseline cannot be read: {error.strerror}"
            raise UsageError(msg, path=path, hint=_HINT) from error

    def _take(self, line: bytes, number: int) -> None:
        try:
            found = json.loads(line)
            name = _name(found.get("split"), found.get("path"), found.get("key"), found["index"])
            codes = frozenset(one["code"] for one in found["findings"])
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            msg = f"line {number} of the baseline is no record of an audit"
            raise UsageError(msg, path=self.path, hint=_HINT) from error
        if codes:
            self._codes[name] = self._codes.get(name, frozenset()) | codes

    def leave_out(self, record: SampleRecord) -> None:
        """Take from a record what was known."""
        name = _name(record.split, record.path, record.key, record.index)
        known = self._codes.get(name)
        if known is None:
            return
        record.findings, met = _new(record.findings, known)
        self._met.setdefault(name, set()).update(met)
        self._left_out += len(met)

    def compared(self, *, whole: bool) -> Compared:
        """What was left out, once each record was given.

        Args:
            whole: Whether each sample was audited: else nothing is known of those that were not met.
        """
        names = self._codes if whole else self._met
        gone = sum(len(self._codes[name] - self._met.get(name, set())) for name in names)
        return Compared(self.path, self._left_out, gone)


def _new(findings: Iterable[Finding], known: frozenset[str]) -> tuple[list[Finding], set[str]]:
    """Those whose code is not known; and the known codes that are still there."""
    new, met = list[Finding](), set[str]()
    for finding in findings:
        if finding.code.name in known:
            met.add(finding.code.name)
        else:
            new.append(finding)
    return new, met


def _name(split: Any, path: Any, key: Any, index: Any) -> int:  # noqa: ANN401 - JSON
    """By what a sample is known again: packed splits have the same paths and keys."""
    if path is not None:
        told = f"path {path}"
    elif key is not None:
        told = f"key {key}"
    else:
        told = f"index {int(index)}"
    return xxhash.xxh3_64_intdigest(f"{told} split {split}".encode("utf-8", "surrogatepass"))
