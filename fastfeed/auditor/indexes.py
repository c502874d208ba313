"""Index files of other readers beside tars, against what the tars hold: of DALI, Energon, and lists of shards (wids).

A reader believes its index: one of another version of the tar gives wrong bytes, or too few samples, without an error.
"""

import json
import os
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import NamedTuple

from fastfeed.archive.regular import open_regular
from fastfeed.auditor.finding import Finding
from fastfeed.auditor.looking import setcodes
from fastfeed.auditor.looking.archives import count_disagreement, dali_disagreement, energon_disagreement
from fastfeed.sample import printable
from fastfeed.source.wds import TarRows

_MOST_BYTES = 256 << 20
"""Of an index; and a JSON file of more is no list of shards."""
_KINDS: tuple[tuple[Callable[[str], str], Callable[[bytes, TarRows], list[Finding]]], ...] = (
    (lambda path: os.path.splitext(path)[0] + ".idx", dali_disagreement),
    (lambda path: path + ".idx", energon_disagreement),
)


class _Listed(NamedTuple):
    """What a list of shards says of one tar."""

    path: str
    """Of the list."""
    samples: int


class Indexes:
    """Looks at them, a folder's lists once."""

    def __init__(self) -> None:
        self._lists = lru_cache(8)(_lists_in)

    def disagreements(self, path: str, rows: TarRows) -> Iterator[tuple[str, Finding]]:
        """What the indexes of a tar say otherwise, each with the path of the index.

        Args:
            path: Of the tar.
            rows: What it has.
        """
        for name_of, compared in _KINDS:
            index = name_of(path)
            if not os.path.lexists(index):
                continue
            try:
                found = compared(_content(index), rows)
            except OSError as error:
                found = [Finding(setcodes.INDEX_DISAGREES, f"it cannot be read: {error.strerror}")]
            yield from ((index, finding) for finding in found)
        for listed in self._lists(os.path.dirname(path)).get(os.path.basename(path), ()):
            for finding in count_disagreement(listed.samples, len(rows.keys), f"of {printable(os.path.basename(path))} it"):
                yield listed.path, finding


def _content(path: str) -> bytes:
    """All of an index.

    Raises:
        OSError: It cannot be read, is no file, or too large for an index.
    """
    with open(path, "rb", opener=open_regular) as file:
        data = file.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise OSError(27, "it is too large for an index")
    return data


def _lists_in(folder: str) -> dict[str, list[_Listed]]:
    """By the name of a tar what the lists of shards in a folder say of it."""
    found: dict[str, list[_Listed]] = {}
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        if not name.endswith(".json"):
            continue
        try:
            body = json.loads(_content(path))
        except (OSError, ValueError, RecursionError):  # no list, then: JSON beside tars may be anything
            continue
        for tar, samples in _shards_of(body):
            found.setdefault(os.path.basename(tar), []).append(_Listed(path, samples))
    return found


def _shards_of(body: object) -> Iterator[tuple[str, int]]:
    """Tars and how many samples each has, by a list as wids has it."""
    shards = body.get("shardlist") if isinstance(body, dict) else None
    for shard in shards if isinstance(shards, list) else ():
        url, samples = (shard.get("url"), shard.get("nsamples")) if isinstance(shard, dict) else (None, None)
        if isinstance(url, str) and isinstance(samples, int):
            yield url, samples
