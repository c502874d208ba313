"""What lies in a source folder: every file with size and modification time, in columns, and what is left out and why.

Nothing is opened here but files whose names do not tell what they are; FIFOs, sockets and devices never are.
"""

import hashlib
import io
import os
import stat
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import NamedTuple

from fastfeed.archive import columns
from fastfeed.archive.columns import BYTES, ColumnData, proven_columns
from fastfeed.errors import IndexDamaged, SourceUnreadable
from fastfeed.media import Codec, sniff
from fastfeed.sample import printable
from fastfeed.source.names import canonical, has_extension, split_names
from fastfeed.trace import QUIET, Progress

NOT_SNIFFED = 255
UNREADABLE = 254
_SNIFF_BYTES = 512
CONTENT_FIELDS: dict[int, str] = {
    Codec.JPEG: "jpg", Codec.PNG: "png", Codec.GIF: "gif", Codec.BMP: "bmp", Codec.WEBP: "webp", Codec.TIFF: "tiff",
    Codec.AVIF: "avif", Codec.HEIF: "heic", Codec.JPEG2000: "jp2", Codec.JPEGXL: "jxl", Codec.PNM: "ppm", Codec.ICO: "ico",
}  # fmt: skip
_SYSTEM_NAMES = {
    "Thumbs.db": "Windows thumbnails",
    "desktop.ini": "Windows folder settings",
    "__MACOSX": "leftovers of a macOS archive",
    ".DS_Store": "macOS folder settings",
    ".ipynb_checkpoints": "copies made by a notebook",
}
_KINDS = (
    (stat.S_ISFIFO, "FIFO"),
    (stat.S_ISSOCK, "socket"),
    (stat.S_ISCHR, "character device"),
    (stat.S_ISBLK, "block device"),
)

FOLDER_WHY = "a folder, "
"""How the reason begins where a whole folder is left out."""
_NO_FACTS = os.stat_result((0,) * 19)
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class LeftOut(NamedTuple):
    """A file or folder of the source that is not packed."""

    source: str
    """Path below the source folder, undecodable bytes as surrogate escapes."""
    kind: str
    """A short code: hidden, system, special, loop, beside, excluded, unreadable."""
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
            prefix = f"{folder}/" if folder else ""
            found.extend([prefix + self.names[file] for file in self.files_of(number)])
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


def scan(root: str, progress: Progress = QUIET, *, hidden: bool = False) -> Listing:
    """List a source folder, links followed by content.

    Args:
        root: The folder.
        hidden: Take what begins with a dot as well.
        progress: Hears of folders as they are listed.

    Raises:
        SourceUnreadable: There is no such folder.
    """
    if not os.path.isdir(root):
        what = "is not a folder" if os.path.exists(root) else "does not exist"
        msg = f"the source {what}"
        raise SourceUnreadable(msg, path=root, hint="Give a folder of files.")
    walk = _Walk(root, progress, hidden=hidden)
    progress.start("scan", None, None)
    walk.run()
    progress.finish()
    return walk.listing


class _Walk:
    """One walk over a source: a stack of folders, so that depth is no limit."""

    def __init__(self, root: str, progress: Progress, *, hidden: bool) -> None:
        self.root, self.progress, self.hidden, self.listing = root, progress, hidden, Listing()
        self._inodes = (array("Q"), array("Q"))
        """Device and inode of each listed file; zeros where it cannot be told."""
        self._linked = False
        """Whether there is a link, so that a file may be met twice."""
        self._broken: set[str] = set()

    def run(self) -> None:
        facts = os.stat(self.root)
        stack: list[tuple[str, tuple[tuple[int, int], ...]]] = [("", ((facts.st_dev, facts.st_ino),))]
        while stack:
            folder, chain = stack.pop()
            below = self._folder(folder)
            for name in reversed(below):
                path = f"{folder}/{name}" if folder else name
                inode = self._inode(path)
                if inode in chain:
                    self.listing.left_out.append(LeftOut(path, "loop", "a link to a folder that contains it"))
                elif inode is not None:
                    stack.append((path, (*chain, inode)))
        if self._linked:
            self._note_repeats()

    def _inode(self, path: str) -> tuple[int, int] | None:
        try:
            facts = os.stat(os.path.join(self.root, path))
        except OSError as error:
            self.listing.unreadable.append(LeftOut(path, "unreadable", error.strerror or "unreadable"))
            return None
        return facts.st_dev, facts.st_ino

    def _folder(self, folder: str) -> list[str]:
        """List one folder's files; give the names of the folders in it, sorted."""
        listing, below = self.listing, []
        prefix = f"{folder}/" if folder else ""
        names, found = [], []
        with self._open(folder) as (descriptor, entries):
            for name in entries:
                if (name[0] == "." or name in _SYSTEM_NAMES) and (why := _junk(name, hidden=self.hidden)) is not None:
                    kind, reason = why
                    folder_too = FOLDER_WHY if _is_folder(name, descriptor) else ""
                    listing.left_out.append(LeftOut(prefix + name, kind, folder_too + reason))
                    continue
                facts = self._facts(prefix, name, descriptor)
                if stat.S_ISREG(facts.st_mode) or facts is _NO_FACTS:
                    names.append(name)
                    found.append(facts)
                elif stat.S_ISDIR(facts.st_mode):
                    below.append(name)
                else:
                    what = next((kind for test, kind in _KINDS if test(facts.st_mode)), "no regular file")
                    listing.left_out.append(LeftOut(prefix + name, "special", f"{what}, never opened"))
        listing.folders.append(folder)
        self._take(prefix, names, found)
        return below

    @contextmanager
    def _open(self, folder: str) -> Iterator[tuple[int, list[str]]]:
        """A descriptor of a folder, from which its files are looked up, and the names in it, sorted."""
        try:
            descriptor = os.open(os.path.join(self.root, folder) if folder else self.root, _FOLDER)
        except OSError as error:
            self.listing.unreadable.append(LeftOut(folder or ".", "unreadable", error.strerror or "unreadable"))
            yield -1, []
            return
        try:
            yield descriptor, self._entries(folder, descriptor)
        finally:
            os.close(descriptor)

    def _entries(self, folder: str, descriptor: int) -> list[str]:
        try:
            return sorted(os.listdir(descriptor))
        except OSError as error:
            self.listing.unreadable.append(LeftOut(folder or ".", "unreadable", error.strerror or "unreadable"))
            return []

    def _take(self, prefix: str, names: list[str], found: list[os.stat_result]) -> None:
        """Add the files of one folder."""
        listing, sizes = self.listing, [facts.st_size for facts in found]
        listing.names.extend(names)
        listing.sizes.extend(sizes)
        try:
            listing.mtimes_ns.extend([facts.st_mtime_ns for facts in found])
        except OverflowError:
            late = next(name for name, facts in zip(names, found, strict=True) if not -(1 << 63) <= facts.st_mtime_ns < 1 << 63)
            msg = "a source file has a modification time that is beyond the year 2262"
            raise SourceUnreadable(msg, path=prefix + late, hint="Set a sensible one: touch FILE.") from None
        self._inodes[0].extend([facts.st_dev for facts in found])
        self._inodes[1].extend([facts.st_ino for facts in found])
        if self._broken or not all(split_names(names)[1]):
            listing.codecs.extend([self._codec(prefix, name) for name in names])
        else:
            listing.codecs.frombytes(bytes([NOT_SNIFFED]) * len(names))
        listing.folder_starts.append(len(listing))
        self.progress.advance(len(names), 0)  # nothing is read: bytes a second would mislead

    def _facts(self, prefix: str, name: str, descriptor: int) -> os.stat_result:
        """What the system says of a file or folder, links followed; _NO_FACTS for one that cannot be read."""
        link = False
        try:
            facts = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
            if stat.S_ISLNK(facts.st_mode):
                link = self._linked = True
                facts = os.stat(name, dir_fd=descriptor)
        except OSError as error:
            self._unreadable(prefix + name, "a link that leads nowhere" if link else error.strerror or "unreadable")
            return _NO_FACTS
        if facts.st_nlink > 1:
            self._linked = self._linked or stat.S_ISREG(facts.st_mode)
        return facts

    def _unreadable(self, path: str, why: str) -> None:
        self.listing.unreadable.append(LeftOut(path, "unreadable", why))
        self._broken.add(path)

    def _codec(self, prefix: str, name: str) -> int:
        if self._broken and prefix + name in self._broken:
            return UNREADABLE
        return NOT_SNIFFED if has_extension(name) else self._sniff(prefix + name)

    def _note_repeats(self) -> None:
        """Files that were met before under another name: by a hard link, a link, or a folder that is a link."""
        firsts: dict[tuple[int, int], int] = {}
        paths = self.listing.paths
        for number, inode in enumerate(zip(*self._inodes, strict=True)):
            first = firsts.setdefault(inode, number)
            if first != number and inode != (0, 0):
                self.listing.repeated.append(LeftOut(paths[number], "repeated", f"the same file as {printable(paths[first])}"))

    def _sniff(self, path: str) -> int:
        try:
            with open(os.open(os.path.join(self.root, path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
                return int(sniff(file.read(_SNIFF_BYTES)))
        except OSError as error:
            self._unreadable(path, error.strerror or "unreadable")
            return UNREADABLE


def _is_folder(name: str, descriptor: int) -> bool:
    try:
        return stat.S_ISDIR(os.stat(name, dir_fd=descriptor).st_mode)
    except OSError:
        return False


def _junk(name: str, *, hidden: bool) -> tuple[str, str] | None:
    """Kind and reason of a name that begins with a dot or is a system's, None where it is data all the same."""
    if name in _SYSTEM_NAMES:
        return "system", _SYSTEM_NAMES[name]
    if name.startswith("._"):
        return "hidden", "AppleDouble: macOS's notes on another file"
    return None if hidden else ("hidden", "hidden: its name begins with a dot")
