"""fastfeed.open: whatever a path names becomes a dataset, and it says what it is."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastfeed.archive.dataset import datasets_in
from fastfeed.archive.manifest import FOLDER
from fastfeed.config import Group, Layout, PackConfig
from fastfeed.errors import NotADataset, SourceAmbiguous
from fastfeed.feed.dataset import PackedDataset
from fastfeed.feed.inplace import FileDataset, TarDataset
from fastfeed.sample import printable
from fastfeed.source.layout import read_layout
from fastfeed.source.plain import PlainFiles, write_index
from fastfeed.source.scan import scan
from fastfeed.source.tarfiles import SUFFIXES, find_tars, is_tar_name

Transform = Callable[[Any], Any] | Mapping[str, Callable[[Any], Any]]


@dataclass(frozen=True, slots=True)
class FolderRecipe:
    """A folder, and how it is read."""

    root: str
    layout: Layout = "auto"
    group: Group = "auto"
    hidden: bool = False

    def files(self) -> PlainFiles:
        """List the folder.

        Raises:
            SourceError: There is no file, or there are two readings.
            NotADataset: It holds splits.
        """
        listing = scan(self.root, hidden=self.hidden)
        config = PackConfig(layout=self.layout, group=self.group, hidden=self.hidden, class_map="union")
        try:
            drafts = read_layout(listing, config)
        except SourceAmbiguous as error:
            error.path, error.hint = self.root, _in_python(error.hint)
            raise
        if len(drafts) > 1 or drafts[0].split:
            names = ", ".join(printable(draft.split) for draft in drafts)
            msg = f"this folder holds the splits {names}, not one dataset"
            first = os.path.join(self.root, drafts[0].split)
            raise NotADataset(msg, path=self.root, hint=f"Open one of them: fastfeed.open({first!r}).")
        return write_index(self.root, listing, drafts[0])


def _in_python(hint: str | None) -> str | None:
    """Options of the command as arguments of open()."""
    if hint is None:
        return None
    for name, values in (("layout", ("files", "classes", "splits")), ("group", ("stem", "none"))):
        for value in values:
            hint = hint.replace(f"--{name} {value}", f'{name}="{value}"')
    return hint


def open(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    transform: Transform | None = None,
    **options: Any,  # noqa: ANN401 - PackedDataset's, and those of the kind
) -> PackedDataset:
    """Open a dataset: what pack wrote, tars as they are, or a folder of plain files.

    Args:
        path: What pack wrote (of a pack with splits, the folder of one of them); tars ("laion/*.tar",
            "laion/{000..099}.tar", or a list of paths); or a folder of files that is read as pack would read it.
        transform: As PackedDataset's.
        **options: The other arguments of PackedDataset. For tars also index_dir and progress; for a folder of files also
            layout ("auto", "classes", "files"), group ("auto", "stem", "none") and hidden.

    Raises:
        NotADataset: Nothing that can be read is there, or the folder holds several splits.
        SourceError: Tars or files are unreadable, ambiguous, or not there.
    """
    if not isinstance(path, str | os.PathLike):
        return TarDataset(find_tars(path), transform, **options)
    place = os.fsdecode(path)
    if not os.path.isdir(place):
        _prove_tar_name(place)
        return TarDataset(find_tars(place), transform, **options)
    if _is_packed(place):
        folders = datasets_in(place)
        if len(folders) > 1:
            names = ", ".join(map(os.path.basename, folders))
            msg = f"this folder holds the splits {names}, not one dataset"
            raise NotADataset(msg, path=place, hint=f"Open one of them: fastfeed.open({folders[0]!r}).")
        return PackedDataset(folders[0], transform, **options)
    of_folder = {name: options.pop(name) for name in ("layout", "group", "hidden") if name in options}
    return FileDataset(FolderRecipe(os.path.abspath(place), **of_folder), transform, **options)


def _prove_tar_name(place: str) -> None:
    """Whether what is no folder is the name of tars.

    Raises:
        NotADataset: It is not.
    """
    if is_tar_name(place):
        return
    if os.path.exists(place) or any(mark in place for mark in "*?[{"):
        msg = f"{place} is no folder, and names no tars"
        raise NotADataset(msg, hint="Give a folder, or tars by names that end in .tar, .tar.gz, .tgz or .tar.zst.")
    msg = f"{place} does not exist"
    raise NotADataset(msg, hint="Give a folder that fastfeed pack wrote, a folder of files, or tars (laion/*.tar).")


def _is_packed(folder: str) -> bool:
    """Whether a folder is pack's, also one that is unfinished or has lost something: then the error says so.

    Raises:
        NotADataset: It holds tars, which are opened by their names.
    """
    tars = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name == FOLDER or (entry.is_dir() and os.path.isdir(os.path.join(entry.path, FOLDER))):
                return True
            if is_tar_name(entry.name) and entry.is_file():
                tars.append(entry.name)
    if tars:
        name = min(tars)
        pattern = os.path.join(folder, "*" + next(end for end in SUFFIXES if name.lower().endswith(end)))
        such = f"{printable(name)} ..." if len(tars) > 1 else printable(name)
        msg = f"this folder holds tars ({such}), and no {FOLDER} folder with an index"
        hint = f"Read them as they are: fastfeed.open({pattern!r}). "
        hint += f"If pack wrote them, copy {FOLDER} along (it is hidden: cp -r takes it, * does not)."
        raise NotADataset(msg, path=folder, hint=hint)
    return False
