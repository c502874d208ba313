"""What lies in a source folder: every file with size and modification time, in columns, and what is left out and why."""

import hashlib
import io
import os
import time
from array import array
from collections.abc import Callable, Iterator
from functools import cached_property
from itertools import accumulate, islice, starmap
from typing import NamedTuple, Protocol

from fastfeed.archive import columns
from fastfeed.archive.columns import BYTES, ColumnData, proven_columns
from fastfeed.errors import IndexDamaged, SourceUnreadable
from fastfeed.media import Codec
from fastfeed.sample import printable
from fastfeed.source.lister import ListOrder, Place, Segment, walk
from fastfeed.source.names import canonical, split_names
from fastfeed.source.wire import Message, Task
from fastfeed.trace import QUIET, Progress
from fastfeed.units import format_count

CONTENT_FIELDS: dict[int, str] = {
    Codec.JPEG: "jpg", Codec.PNG: "png", Codec.GIF: "gif", Codec.BMP: "bmp", Codec.WEBP: "webp", Codec.TIFF: "tiff",
    Codec.AVIF: "avif", Codec.HEIF: "heic", Codec.JPEG2000: "jp2", Codec.JPEGXL: "jxl", Codec.PNM: "ppm", Codec.ICO: "ico",
}  # fmt: skip
_ALONE_SECONDS = 0.01
"""A walk that ends sooner needs no hands: they take longer to come."""
_SLICE_SECONDS = 0.005
"""How long a walk here goes on before it looks what the hands have found."""
_MOST_NAMES = 2000
"""A folder with more is looked up in parts of this size."""
_MOST_PLACES = 100
"""Folders that one of the hands gets at once."""


class LeftOut(NamedTuple):
    """A file or folder of the source that is not packed."""

    source: str
    """Path below the source folder, undecodable bytes as surrogate escapes."""
    kind: str
    """A short code: hidden, system, special, loop, kernel, beside, excluded, unreadable."""
    why: str


class Listing:
    """All files below a folder, in columns: no object a file but its name.

    Folders are listed before what is in them; files of one folder stand together, sorted by name.
    """

    def __init__(self) -> None:
        self.folders: list[str] = []
        """Paths below the source, "" for itself."""
        self.folder_starts = array("Q", [0])
        """Files of folder i: [starts[i], starts[i+1])."""
        self.names: list[str] = []
        self.sizes = array("Q")
        self.mtimes_ns = array("q")
        self.codecs = array("B")
        """Codec by content where the name does not tell, else NOT_SNIFFED; UNREADABLE for a file that is also in unreadable:
    it is listed so that the sample that it belongs to is known."""
        self.left_out: list[LeftOut] = []
        self.unreadable: list[LeftOut] = []
        self.repeated: list[LeftOut] = []
        """Files that are the same inode as one listed before; packed all the same."""

    def __len__(self) -> int:
        return len(self.names)

    def files_of(self, folder: int) -> range:
        """File numbers of a folder."""
        return range(self.folder_starts[folder], self.folder_starts[folder + 1])

    @cached_property
    def paths(self) -> list[str]:
        """Path of each file below the source, in file order. Not before the listing is complete."""
        found: list[str] = []
        for number, folder in enumerate(self.folders):
            files, prefix = self.files_of(number), f"{folder}/" if folder else ""
            found.extend([prefix + name for name in self.names[files.start : files.stop]])
        return found

    @cached_property
    def fields(self) -> list[str]:
        """Field of each file by its extension (canonical), else by its content, "bin" if neither tells."""
        return self._split[1]

    @cached_property
    def bases(self) -> list[str]:
        """Name of each file without its extension."""
        return self._split[0]

    @cached_property
    def _split(self) -> tuple[list[str], list[str]]:
        all_bases: list[str] = []
        all_fields: list[str] = []
        for number in range(len(self.folders)):
            files = self.files_of(number)
            bases, extensions = split_names(self.names[files.start : files.stop])
            all_bases.extend(bases)
            if len(set(extensions)) == 1 and extensions[0]:
                all_fields.extend([canonical(extensions[0])] * len(extensions))
            else:
                codecs = self.codecs[files.start : files.stop]
                named = zip(extensions, codecs, strict=True)
                all_fields.extend([canonical(name) or CONTENT_FIELDS.get(codec, "bin") for name, codec in named])
        return all_bases, all_fields

    def digest(self) -> str:
        """sha256 over (path, size, mtime) of all files: equal exactly if no file came, went, grew or was touched."""
        digest = hashlib.sha256()
        for part in (*self._name_parts(), self.folder_starts.tobytes(), self.sizes.tobytes(), self.mtimes_ns.tobytes()):
            digest.update(len(part).to_bytes(8, "little"))
            digest.update(part)
        return digest.hexdigest()

    def _name_parts(self) -> tuple[bytes, bytes]:
        return os.fsencode("\0".join(self.folders)), os.fsencode("\0".join(self.names))

    def save(self) -> bytes:
        """The listing as a column file, to be kept for resumption."""
        folders, names = self._name_parts()
        rest = [
            ColumnData("file", "size", "uint64", (self.sizes,)),
            ColumnData("file", "mtime_ns", "int64", (self.mtimes_ns,)),
            ColumnData("file", "codec", "uint8", (self.codecs,)),
            ColumnData("folder_starts", "start", "uint64", (self.folder_starts,)),
        ]
        texts = []
        for name, raw in (("folders", folders), ("names", names), *self._notes()):
            texts.append(ColumnData("text", name, BYTES, (array("Q", [0, len(raw)]), raw)))
        out = io.BytesIO()
        columns.write(out, {"file": len(self), "folder_starts": len(self.folder_starts), "text": 1}, rest + texts)
        return out.getvalue()

    def _notes(self) -> Iterator[tuple[str, bytes]]:
        for name in ("left_out", "unreadable", "repeated"):
            yield name, os.fsencode("\0".join(part for item in getattr(self, name) for part in item))

    @classmethod
    def load(cls, raw: bytes, path: str) -> "Listing":
        """Read what save() wrote.

        Args:
            raw: The file.
            path: For messages.

        Raises:
            IndexDamaged: It is damaged.
        """
        kept, found = _Kept(raw, path), cls()
        try:
            found.folders, found.names = kept.decode("folders").split("\0"), kept.texts("names")
            for name, owner in (("sizes", "size"), ("mtimes_ns", "mtime_ns"), ("codecs", "codec")):
                getattr(found, name).frombytes(kept.part("file", owner))
            found.folder_starts = array("Q", kept.part("folder_starts", "start").cast("Q"))
            for name in ("left_out", "unreadable", "repeated"):
                parts = kept.texts(name)
                setattr(found, name, [LeftOut(*parts[at : at + 3]) for at in range(0, len(parts), 3)])
        except KeyError as error:
            msg = f"the kept scan has no column {error}"
            raise IndexDamaged(msg, path=path) from error
        return found


class _Kept:
    """The columns of a kept scan."""

    def __init__(self, raw: bytes, path: str) -> None:
        self._view, self._columns = memoryview(raw), proven_columns(raw, path)

    def part(self, owner: str, name: str) -> memoryview:
        """The bytes of a column."""
        start, stop = self._columns[owner, name].extents[-1]
        return self._view[start:stop]

    def decode(self, name: str) -> str:
        """A text."""
        return os.fsdecode(bytes(self.part("text", name)))

    def texts(self, name: str) -> list[str]:
        """A text cut at its NULs."""
        text = self.decode(name)
        return text.split("\0") if text else []


class Hands(Protocol):
    """Others who list folders as well: a crew of workers."""

    count: int

    def share(
        self,
        following: Callable[[], Task | None],
        hear: Callable[[Task, Message], None],
        meanwhile: Callable[[], bool],
    ) -> None:
        """Have tasks done until there is none left.

        Args:
            following: Gives the next one, None where there is none at present.
            hear: Called with each task that is done, and what came of it.
            meanwhile: Does a little here, while there is nothing to hear; gives whether there was anything to do.
        """


def scan(root: str, progress: Progress = QUIET, *, hidden: bool = False, hands: Hands | None = None) -> Listing:
    """List a source folder, links followed by content. The listing is the same with and without hands.

    Args:
        root: The folder.
        hidden: Take what begins with a dot as well.
        progress: Hears of folders as they are listed.
        hands: Help where there is much to list.

    Raises:
        SourceUnreadable: There is no such folder.
        WorkerDied: One of the hands was killed.
    """
    if not os.path.isdir(root):
        what = "is not a folder" if os.path.exists(root) else "does not exist"
        msg = f"the source {what}"
        raise SourceUnreadable(msg, path=root, hint="Give a folder of files.")
    walk = _Walk(root, progress, hidden=hidden, hands=hands)
    progress.start("scan", None, None)
    walk.run()
    progress.finish()
    return walk.listing


class _Part:
    """A part of the walk: folders to list one after the other, and what came of it."""

    shard = None

    def __init__(self, order: ListOrder, siblings: "_Siblings | None" = None) -> None:
        self.order, self.siblings = order, siblings
        self.found: Segment | None = None
        self.then: list[_Part] = []
        """What is behind it in the walk and was left to others."""

    @property
    def doing(self) -> str:
        """What a worker did when it died."""
        paths = [place.path or "." for place in self.order.places]
        return f"listed {format_count(len(paths), 'folder')} from {paths[0]!r} to {paths[-1]!r}"

    def encode(self) -> bytes:
        """The order as it passes the pipe."""
        return self.order.encode()


class _Siblings:
    """The parts of one large folder: what is in the folders in it comes behind all of them."""

    def __init__(self, count: int) -> None:
        self.left, self.count = count, count
        self.then: list[_Part] = []

    def pass_on(self, part: _Part) -> list[_Part]:
        """What comes behind this part, in which all that precede it have had their turn."""
        self.then.extend(part.then)
        self.left -= 1
        return [] if self.left else self.then


class _Walk:
    """One walk over a source. Its parts are listed in any order, by anyone, and taken in the order of the walk.

    No part stands for a level of folders, so that depth is no limit.
    """

    def __init__(self, root: str, progress: Progress, *, hidden: bool, hands: Hands | None) -> None:
        self.root, self.progress, self.hidden, self.hands, self.listing = root, progress, hidden, hands, Listing()
        self._ahead: list[_Part] = []
        """Parts that nobody has yet, the next one last."""
        self._awaited: list[_Part] = []
        """All parts that are not taken yet, the next one last."""
        self._inodes = (array("Q"), array("Q"))
        """Device and inode of each listed file; zeros where it cannot be told."""
        self._linked = False
        """Whether there is a link, so that a file may be met twice."""

    def run(self) -> None:
        facts = os.stat(self.root)
        first = self._part([Place("", (facts.st_dev, facts.st_ino), ())])
        self._ahead, self._awaited = [first], [first]
        deadline = time.monotonic() + _ALONE_SECONDS
        while self._ahead and (self.hands is None or time.monotonic() < deadline):
            self._list_here()
        if self._ahead and self.hands is not None:
            self.hands.share(self._following, self._heard, self._list_here)
        if self._linked:
            self._note_repeats()

    def _following(self) -> _Part | None:
        return self._ahead.pop() if self._ahead else None

    def _list_here(self) -> bool:
        part = self._following()
        if part is not None:
            self._found(part, walk(part.order, _SLICE_SECONDS))
        return part is not None

    def _heard(self, part: Task, message: Message) -> None:
        assert isinstance(part, _Part)
        self._found(part, Segment.decode(message))

    def _found(self, part: _Part, found: Segment) -> None:
        """Leave to others what a part did not list, and take what can be taken."""
        part.found = found
        part.then = list(self._parts(found.rest))
        self._ahead.extend(reversed(part.then))
        self.progress.advance(len(found.names), 0)  # nothing is read: bytes a second would mislead
        while self._awaited and self._awaited[-1].found is not None:
            part = self._awaited.pop()
            self._take(part)
            self._awaited.extend(reversed(part.siblings.pass_on(part) if part.siblings else part.then))

    def _parts(self, places: list[Place]) -> Iterator[_Part]:
        """Cut what is to be listed: a large folder in parts, others so that all hands get some, but not one by one."""
        if places and (names := places[0].names):
            cuts = range(0, len(names), _MOST_NAMES)
            siblings = _Siblings(len(cuts))
            for at in cuts:
                yield self._part([places[0]._replace(names=names[at : at + _MOST_NAMES])], siblings)
            places = places[1:]
        most = len(places) // (4 * (self.hands.count if self.hands else 1))
        step = max(1, min(most, _MOST_PLACES))
        for at in range(0, len(places), step):
            yield self._part(places[at : at + step])

    def _part(self, places: list[Place], siblings: _Siblings | None = None) -> _Part:
        return _Part(ListOrder(self.root, self.hidden, _MOST_NAMES, places), siblings)

    def _take(self, part: _Part) -> None:
        """Add what was found next in the walk."""
        found = part.found
        assert found is not None
        if found.late is not None:
            msg = "a source file has a modification time that is beyond the year 2262"
            raise SourceUnreadable(msg, path=found.late, hint="Set a sensible one: touch FILE.")
        listing = self.listing
        if part.siblings is not None and part.siblings.left < part.siblings.count:  # the folder is there already
            del found.folders[0]
            listing.folder_starts.pop()
            found.unreadable = [note for note in found.unreadable if note not in listing.unreadable[-1:]]  # itself has gone
        listing.folders.extend(found.folders)
        starts = accumulate(found.counts, initial=len(listing))
        listing.folder_starts.extend(islice(starts, 1, None))
        listing.names.extend(found.names)
        listing.sizes.extend(found.sizes)
        listing.mtimes_ns.extend(found.mtimes_ns)
        listing.codecs.extend(found.codecs)
        listing.left_out.extend(starmap(LeftOut, found.left_out))
        listing.unreadable.extend(starmap(LeftOut, found.unreadable))
        self._inodes[0].extend(found.devices)
        self._inodes[1].extend(found.inodes)
        self._linked = self._linked or found.linked

    def _note_repeats(self) -> None:
        """Files that were met before under another name: by a hard link, a link, or a folder that is a link."""
        firsts: dict[tuple[int, int], int] = {}
        paths = self.listing.paths
        for number, inode in enumerate(zip(*self._inodes, strict=True)):
            first = firsts.setdefault(inode, number)
            if first != number and inode != (0, 0):
                self.listing.repeated.append(LeftOut(paths[number], "repeated", f"the same file as {printable(paths[first])}"))
