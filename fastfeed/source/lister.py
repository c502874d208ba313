"""What lies in folders: one walk over a part of a source, in this process or in a worker; the result travels as columns.

Nothing is opened here but folders and files whose names do not tell what they are; FIFOs, sockets and devices never are.
"""

import os
import stat
import time
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple, Self

from fastfeed.media import sniff
from fastfeed.mounts import kernel_devices
from fastfeed.source import wire
from fastfeed.source.names import has_extension, split_names

NOT_SNIFFED = 255
UNREADABLE = 254
FOLDER_WHY = "a folder, "
"""How the reason begins where a whole folder is left out."""
SLICE_SECONDS = 0.02
"""A walk gives back what it has not listed after this time, so that others may take it."""
_SNIFF_BYTES = 512
_SYSTEM_NAMES = {
    "Thumbs.db": "Windows thumbnails",
    "desktop.ini": "Windows folder settings",
    "__MACOSX": "leftovers of a macOS archive",
    ".DS_Store": "macOS folder settings",
    ".ipynb_checkpoints": "copies made by a notebook",
}
_KINDS = {stat.S_IFIFO: "FIFO", stat.S_IFSOCK: "socket", stat.S_IFCHR: "character device", stat.S_IFBLK: "block device"}
_NO_FACTS = os.stat_result((0,) * 19)
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC

Inode = tuple[int, int]
"""Device and number."""
Note = tuple[str, str, str]
"""Path below the source, code of the kind, reason."""


class Place(NamedTuple):
    """A folder that is still to be listed."""

    path: str
    """Below the source, "" for itself; undecodable bytes as surrogate escapes."""
    inode: Inode
    above: tuple[Inode, ...]
    """The folders that hold it, so that a link to one of them is found."""
    names: Sequence[str] = ()
    """Of what to look up in a part of a large folder; empty where the folder is to be listed."""


class ListOrder(NamedTuple):
    """Folders to list, one after the other, each with the folders in it."""

    root: str
    hidden: bool
    """Whether names that begin with a dot are taken."""
    most_names: int
    """A folder with more is given back with its names, so that others look up parts of them."""
    places: Sequence[Place]
    """In the order of a walk; one alone where it has names."""

    def encode(self) -> bytes:
        """The order as it passes the pipe."""
        head = {"order": "list", "root": self.root, "hidden": self.hidden, "most_names": self.most_names}
        return wire.encode({**head, **_places_head(self.places)}, [_text(self.places[0].names)])

    @classmethod
    def decode(cls, message: wire.Message) -> Self:
        """Back from the pipe."""
        head = message.head
        return cls(head["root"], head["hidden"], head["most_names"], _places(head, message.columns[0]))


class Segment:
    """A piece of a walk: files in columns, in the walk's order, and where it goes on."""

    def __init__(self) -> None:
        self.folders: list[str] = []
        self.counts = array("Q")
        """Files of each folder."""
        self.names: list[str] = []
        self.sizes, self.mtimes_ns, self.codecs = array("Q"), array("q"), array("B")
        self.devices, self.inodes = array("Q"), array("Q")
        """Zeros for a file of which nothing is known."""
        self.left_out: list[Note] = []
        self.unreadable: list[Note] = []
        self.linked = False
        """Whether there is a link, so that a file may be met twice."""
        self.late: str | None = None
        """A file whose modification time is beyond what 64 bits hold: nothing that comes after it is listed."""
        self.rest: list[Place] = []
        """What comes next, in order; only the first may have names: all those of a large folder."""

    def encode(self) -> bytes:
        """The event as it passes the pipe."""
        head = {
            "event": "listed", "folders": self.folders, "left_out": self.left_out, "unreadable": self.unreadable,
            "linked": self.linked, "late": self.late, **_places_head(self.rest),
        }  # fmt: skip
        columns = [column.tobytes() for column in self._columns()]
        return wire.encode(head, [_text(self.names), _text(self.rest[0].names if self.rest else ()), *columns])

    @classmethod
    def decode(cls, message: wire.Message) -> Self:
        """Back from the pipe."""
        found, head = cls(), message.head
        found.folders, found.linked, found.late = head["folders"], head["linked"], head["late"]
        found.left_out, found.unreadable = [tuple(note) for note in head["left_out"]], [tuple(n) for n in head["unreadable"]]
        names, rest, *columns = message.columns
        found.names, found.rest = _names(names), _places(head, rest)
        for column, raw in zip(found._columns(), columns, strict=True):
            column.frombytes(raw)
        return found

    def _columns(self) -> Sequence["array[int]"]:
        return self.counts, self.sizes, self.mtimes_ns, self.codecs, self.devices, self.inodes


def walk(order: ListOrder, seconds: float = SLICE_SECONDS) -> Segment:
    """List folders, and the folders in them before the next one, links followed by content.

    Args:
        order: Which.
        seconds: After this time the rest is given back; one folder is always listed.
    """
    found, deadline = Segment(), time.monotonic() + seconds
    stack = list(reversed(order.places))
    while stack:
        place = stack.pop()
        note = _closed(place)
        if note is not None:
            found.left_out.append(note)
            continue
        with _opened(order.root, place, found) as (descriptor, names):
            if len(names) > order.most_names and not place.names:
                stack.append(place._replace(names=names))
                break
            below = _Folder(place, order, found, descriptor).list(names)
        stack.extend(reversed(below))
        if place.names or found.late is not None or time.monotonic() >= deadline:  # below a part stands behind all parts
            break
    found.rest = stack[::-1]
    return found


def _closed(place: Place) -> Note | None:
    """Why a folder is not entered: below it there would be no end. None for one that is."""
    if place.inode in place.above:
        return place.path, "loop", "a link to a folder that contains it"
    kernel = _kernel_devices().get(place.inode[0])
    if kernel is not None:  # /proc/self holds links to all folders of the machine, and to itself
        return place.path or ".", "kernel", f"{FOLDER_WHY}made up by the kernel ({kernel}), not of a disk"
    return None


_kernel_devices = cache(kernel_devices)
"""Read once a process: a mount list may be long."""


@contextmanager
def _opened(root: str, place: Place, found: Segment) -> Iterator[tuple[int, Sequence[str]]]:
    """A descriptor of a folder, from which its files are looked up, and the names in it, sorted."""
    descriptor = -1
    try:
        try:
            descriptor = os.open(os.path.join(root, place.path) if place.path else root, _FOLDER)
            names = place.names or sorted(os.listdir(descriptor))
        except OSError as error:
            found.unreadable.append((place.path or ".", "unreadable", error.strerror or "unreadable"))
            names = []
        yield descriptor, names
    finally:
        if descriptor >= 0:
            os.close(descriptor)


class _Folder:
    """Lists one folder, or a part of it, into a segment."""

    def __init__(self, place: Place, order: ListOrder, found: Segment, descriptor: int) -> None:
        self.place, self.order, self.found, self.descriptor = place, order, found, descriptor
        self.prefix = f"{place.path}/" if place.path else ""
        self.left_out: list[Note] = []
        self.unreadable: list[Note] = []

    def list(self, names: Sequence[str]) -> list[Place]:
        """Give the folders in it, sorted."""
        names = self._without_junk(names)
        names, facts, below = self._sorted_out(names, self._look_up(names))
        self._take(names, facts)
        self.found.left_out.extend(sorted(self.left_out))
        self.found.unreadable.extend(sorted(self.unreadable))
        above = (*self.place.above, self.place.inode)
        return [Place(self.prefix + name, (facts.st_dev, facts.st_ino), above) for name, facts in below]

    def _without_junk(self, names: Sequence[str]) -> Sequence[str]:
        """The names of data; the others are noted."""
        junk = {}
        for name in [name for name in names if name[0] == "." or name in _SYSTEM_NAMES]:
            why = _junk(name, hidden=self.order.hidden)
            if why is not None:
                junk[name] = why
        for name, (kind, reason) in junk.items():
            folder_too = FOLDER_WHY if self._is_folder(name) else ""
            self.left_out.append((self.prefix + name, kind, folder_too + reason))
        return [name for name in names if name not in junk] if junk else names

    def _is_folder(self, name: str) -> bool:
        try:
            return stat.S_ISDIR(os.stat(name, dir_fd=self.descriptor).st_mode)
        except OSError:
            return False

    def _look_up(self, names: Sequence[str]) -> Sequence[os.stat_result]:
        """What the system says of each; of a link, what it says of the link."""
        look, descriptor = os.stat, self.descriptor
        try:
            return [look(name, dir_fd=descriptor, follow_symlinks=False) for name in names]
        except OSError:  # one of them: which, is found out one by one
            return [self._facts(name, follow=False) for name in names]

    def _facts(self, name: str, *, follow: bool) -> os.stat_result:
        """What the system says of a file or folder; _NO_FACTS for one that cannot be read."""
        try:
            return os.stat(name, dir_fd=self.descriptor, follow_symlinks=follow)
        except OSError as error:
            self._note(name, "a link that leads nowhere" if follow else error.strerror or "unreadable")
            return _NO_FACTS

    def _note(self, name: str, why: str) -> None:
        self.unreadable.append((self.prefix + name, "unreadable", why))

    def _sorted_out(
        self, names: Sequence[str], found: Sequence[os.stat_result]
    ) -> tuple[Sequence[str], Sequence[os.stat_result], Sequence[tuple[str, os.stat_result]]]:
        """Files with their facts, links as what they lead to; and folders. Anything else is noted."""
        kinds = {stat.S_IFMT(facts.st_mode) for facts in found}
        if kinds <= {stat.S_IFREG}:  # as in most folders
            return names, found, ()
        files, all_facts, below = [], [], []
        for name, own in zip(names, found, strict=True):
            facts = own
            if stat.S_ISLNK(own.st_mode):
                self.found.linked = True
                facts = self._facts(name, follow=True)
            if stat.S_ISREG(facts.st_mode) or facts is _NO_FACTS:
                files.append(name)
                all_facts.append(facts)
            elif stat.S_ISDIR(facts.st_mode):
                below.append((name, facts))
            else:
                what = _KINDS.get(stat.S_IFMT(facts.st_mode), "no regular file")
                self.left_out.append((self.prefix + name, "special", f"{what}, never opened"))
        return files, all_facts, below

    def _take(self, names: Sequence[str], all_facts: Sequence[os.stat_result]) -> None:
        """Add the files."""
        found = self.found
        try:
            mtimes_ns = array("q", [facts.st_mtime_ns for facts in all_facts])
        except OverflowError:
            named = zip(names, all_facts, strict=True)
            late = next(name for name, facts in named if not -(1 << 63) <= facts.st_mtime_ns < 1 << 63)
            found.late = self.prefix + late
            return
        found.folders.append(self.place.path)
        found.counts.append(len(names))
        found.names.extend(names)
        found.mtimes_ns.extend(mtimes_ns)
        found.sizes.extend(array("Q", [facts.st_size for facts in all_facts]))
        found.devices.extend(array("Q", [facts.st_dev for facts in all_facts]))
        found.inodes.extend(array("Q", [facts.st_ino for facts in all_facts]))
        found.linked = found.linked or not {facts.st_nlink for facts in all_facts} <= {0, 1}
        found.codecs.frombytes(self._codecs(names, all_facts))

    def _codecs(self, names: Sequence[str], all_facts: Sequence[os.stat_result]) -> bytes:
        if all(split_names(names)[1]) and not self.unreadable:
            return bytes([NOT_SNIFFED]) * len(names)
        codecs = bytearray()
        for name, facts in zip(names, all_facts, strict=True):
            if facts is _NO_FACTS:
                codecs.append(UNREADABLE)
            else:
                codecs.append(NOT_SNIFFED if has_extension(name) else self._sniff(name))
        return bytes(codecs)

    def _sniff(self, name: str) -> int:
        full = os.path.join(self.order.root, self.prefix + name)
        try:
            with open(os.open(full, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
                return int(sniff(file.read(_SNIFF_BYTES)))
        except OSError as error:
            self._note(name, error.strerror or "unreadable")
            return UNREADABLE


def _junk(name: str, *, hidden: bool) -> tuple[str, str] | None:
    """Kind and reason of a name that begins with a dot or is a system's, None where it is data all the same."""
    if name in _SYSTEM_NAMES:
        return "system", _SYSTEM_NAMES[name]
    if name.startswith("._"):
        return "hidden", "AppleDouble: macOS's notes on another file"
    return None if hidden else ("hidden", "hidden: its name begins with a dot")


# ------------------------------------------------------------------------------------------------ through the pipe
def _text(names: Sequence[str]) -> bytes:
    return os.fsencode("\0".join(names))


def _names(raw: bytes) -> list[str]:
    return os.fsdecode(raw).split("\0") if raw else []


def _places_head(places: Sequence[Place]) -> dict[str, object]:
    """Places without names; the folders above are told once for all that have the same."""
    numbers: dict[tuple[Inode, ...], int] = {}
    rows = [(place.path, *place.inode, numbers.setdefault(place.above, len(numbers))) for place in places]
    return {"places": rows, "above": list(numbers)}


def _places(head: dict[str, Any], names: bytes) -> list[Place]:
    above = [tuple((device, inode) for device, inode in folders) for folders in head["above"]]
    found = [Place(path, (device, inode), above[number]) for path, device, inode, number in head["places"]]
    if names:
        found[0] = found[0]._replace(names=_names(names))
    return found
