"""What lies in a source folder: every file with size and modification time, in columns, and what is left out and why.

Nothing is opened here but files whose names do not tell what they are; FIFOs, sockets and devices never are.
"""

import hashlib
import io
import os
import stat
from array import array
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from fastfeed.archive import columns
from fastfeed.archive.columns import BYTES, ColumnData
from fastfeed.errors import IndexDamaged, SourceUnreadable
from fastfeed.media import Codec, sniff
from fastfeed.packer.names import canonical, split_name
from fastfeed.sample import printable
from fastfeed.trace import QUIET, Progress

NOT_SNIFFED = 255
UNREADABLE = 254
_SNIFF_BYTES = 512
_CONTENT_FIELDS: dict[int, str] = {
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
        return [
            canonical(split_name(name)[1]) or _CONTENT_FIELDS.get(codec, "bin")
            for name, codec in zip(self.names, self.codecs, strict=True)
        ]

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
        table = columns.read_table(raw, len(raw), path)
        view, found = memoryview(raw), cls()

        def part(owner: str, name: str) -> memoryview:
            column = table.columns[owner, name]
            start, stop = column.extents[-1]
            return view[start:stop]

        def text(name: str) -> list[str]:
            raw_text = os.fsdecode(bytes(part("text", name)))
            return raw_text.split("\0") if raw_text else []

        try:
            found.folders, found.names = os.fsdecode(bytes(part("text", "folders"))).split("\0"), text("names")
            for name, owner in (("sizes", "size"), ("mtimes_ns", "mtime_ns"), ("codecs", "codec")):
                getattr(found, name).frombytes(part("file", owner))
            found.folder_starts = array("Q", part("folder_starts", "start").cast("Q"))
            for name in ("left_out", "unreadable", "repeated"):
                parts = text(name)
                setattr(found, name, [LeftOut(*parts[at : at + 3]) for at in range(0, len(parts), 3)])
        except KeyError as error:
            msg = f"the kept scan has no column {error}"
            raise IndexDamaged(msg, path=path) from error
        return found


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
        self._inodes: dict[tuple[int, int], str] = {}

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

    def _inode(self, path: str) -> tuple[int, int] | None:
        try:
            facts = os.stat(os.path.join(self.root, path))
        except OSError as error:
            self.listing.unreadable.append(LeftOut(path, "unreadable", error.strerror or "unreadable"))
            return None
        return facts.st_dev, facts.st_ino

    def _folder(self, folder: str) -> list[str]:
        """List one folder's files; give the names of the folders in it, sorted."""
        listing, below, size_bytes = self.listing, [], 0
        try:
            with os.scandir(os.path.join(self.root, folder) if folder else self.root) as scanned:
                entries = sorted(scanned, key=lambda entry: entry.name)
        except OSError as error:
            listing.unreadable.append(LeftOut(folder or ".", "unreadable", error.strerror or "unreadable"))
            entries = []
        listing.folders.append(folder)
        first = len(listing)
        for entry in entries:
            why = _junk(entry.name, hidden=self.hidden)
            if why is not None:
                listing.left_out.append(LeftOut(f"{folder}/{entry.name}" if folder else entry.name, *why))
            elif _is_folder(entry):
                below.append(entry.name)
            else:
                size_bytes += self._file(folder, entry)
        listing.folder_starts.append(len(listing))
        self.progress.advance(len(listing) - first, size_bytes)
        return below

    def _file(self, folder: str, entry: os.DirEntry[str]) -> int:
        """Take one file into the listing; give its size."""
        name = entry.name
        path = f"{folder}/{name}" if folder else name
        try:
            facts = entry.stat()
        except OSError as error:
            why = "a link that leads nowhere" if entry.is_symlink() else error.strerror or "unreadable"
            self.listing.unreadable.append(LeftOut(path, "unreadable", why))
            self._take(name, 0, 0, UNREADABLE)
            return 0
        if not stat.S_ISREG(facts.st_mode):
            what = next((kind for test, kind in _KINDS if test(facts.st_mode)), "no regular file")
            self.listing.left_out.append(LeftOut(path, "special", f"{what}, never opened"))
            return 0
        if facts.st_nlink > 1 or entry.is_symlink():
            self._note_repeat(path, facts)
        codec = NOT_SNIFFED if split_name(name)[1] else self._sniff(path)
        self._take(name, facts.st_size, facts.st_mtime_ns, codec)
        return facts.st_size

    def _take(self, name: str, size_bytes: int, mtime_ns: int, codec: int) -> None:
        self.listing.names.append(name)
        self.listing.sizes.append(size_bytes)
        self.listing.mtimes_ns.append(mtime_ns)
        self.listing.codecs.append(codec)

    def _note_repeat(self, path: str, facts: os.stat_result) -> None:
        first = self._inodes.setdefault((facts.st_dev, facts.st_ino), path)
        if first != path:
            self.listing.repeated.append(LeftOut(path, "repeated", f"the same file as {printable(first)}"))

    def _sniff(self, path: str) -> int:
        try:
            with open(os.open(os.path.join(self.root, path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
                return int(sniff(file.read(_SNIFF_BYTES)))
        except OSError as error:
            self.listing.unreadable.append(LeftOut(path, "unreadable", error.strerror or "unreadable"))
            return UNREADABLE


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False  # a link in a circle: taking it as a file finds and names the error


def _junk(name: str, *, hidden: bool) -> tuple[str, str] | None:
    """Kind and reason of a name that is never data, None for others."""
    if name.startswith("._"):
        return "hidden", "AppleDouble: macOS's notes on another file"
    why = _SYSTEM_NAMES.get(name)
    if why is None and name.startswith(".") and not hidden:
        return "hidden", "hidden: its name begins with a dot"
    return None if why is None else ("system", why)
