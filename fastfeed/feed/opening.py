"""fastfeed.open: whatever a path names becomes a dataset, and it says what it is."""

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastfeed.archive.dataset import datasets_in
from fastfeed.archive.manifest import FOLDER
from fastfeed.archive.shard import SHARD_NAME
from fastfeed.config import Group, Layout, PackConfig, RowConfig, row_config
from fastfeed.errors import NotADataset, SourceAmbiguous, SourceUnreadable, UsageError
from fastfeed.feed.dataset import PackedDataset
from fastfeed.feed.inplace import FileDataset, TarDataset
from fastfeed.sample import printable
from fastfeed.source.layout import read_layout
from fastfeed.source.listed import read_list, source_path
from fastfeed.source.plain import PlainFiles, write_index
from fastfeed.source.scan import scan
from fastfeed.source.tables import table_format
from fastfeed.source.tarfiles import SUFFIXES, find_tars, is_tar_name
from fastfeed.units import format_count

Transform = Callable[[Any], Any] | Mapping[str, Callable[[Any], Any]]


@dataclass(frozen=True, slots=True)
class FolderRecipe:
    """A folder, and how it is read."""

    root: str
    layout: Layout = "auto"
    group: Group = "auto"
    hidden: bool = False

    @property
    def home(self) -> str:
        """The folder: each file in it is looked at."""
        return self.root

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


@dataclass(frozen=True, slots=True)
class ListRecipe:
    """A table that names files, and how it is read."""

    path: str
    config: RowConfig
    folder: str | None = None
    """To which paths in the table are relative; None: its own folder."""

    @property
    def root(self) -> str:
        """The folder below which the files lie."""
        return os.path.dirname(self.path) if self.folder is None else self.folder

    @property
    def home(self) -> None:
        """None: only the files that the table names are looked at."""
        return

    def files(self) -> PlainFiles:
        """Read the table, and look at each file that it names.

        Raises:
            SourceError: The table cannot be read, or names nothing that is there.
            UsageError: A column that it has not.
        """
        try:
            listed = read_list(self.path, self.config, self.folder)
        except (SourceUnreadable, UsageError) as error:
            error.hint = _in_python(error.hint)
            raise
        if listed.missing:
            listed.draft.why.append(f"{format_count(len(listed.missing), 'row')} of the list name no file")
        sources = [source_path(path, listed.root) for path in listed.listing.paths]
        return write_index(listed.root, listed.listing, listed.draft, user=listed.columns, sources=sources)


def _in_python(hint: str | None) -> str | None:
    """Options of the command as arguments of open()."""
    if hint is None:
        return None
    for name, values in (("layout", ("files", "classes", "splits")), ("group", ("stem", "none"))):
        for value in values:
            hint = hint.replace(f"--{name} {value}", f'{name}="{value}"')
    return re.sub(r"--(root|field|column|label)\b", r"\1=", hint)


def open(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    transform: Transform | None = None,
    **options: Any,  # noqa: ANN401 - PackedDataset's, and those of the kind
) -> PackedDataset:
    """Open a dataset: what pack wrote, tars as they are, or a folder of plain files.

    Args:
        path: What pack wrote (of a pack with splits, the folder of one of them); tars ("laion/*.tar",
            "laion/{000..099}.tar", or a list of paths); a folder of files, read as pack would read it; or a table that names
            files (.csv .tsv .jsonl .parquet), whose other columns are columns of the dataset.
        transform: As PackedDataset's.
        **options: The other arguments of PackedDataset. For tars also index_dir and progress; for a folder of files also
            layout ("auto", "classes", "files"), group ("auto", "stem", "none") and hidden; for a table also root, field, label,
            key, column and classes, as pack takes them.

    Raises:
        NotADataset: Nothing that can be read is there, or the folder holds several splits.
        SourceError: Tars or files are unreadable, ambiguous, or not there.
        UsageError: It is neither a path nor a list of paths.
    """
    if not isinstance(path, str | bytes | os.PathLike):
        return TarDataset(find_tars(_paths(path)), transform, **options)
    place = os.fsdecode(path)
    if os.path.isfile(place) and table_format(place) is not None:
        return FileDataset(_list_recipe(place, options), transform, **options)
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


def _paths(given: object) -> list[str | os.PathLike[str]]:
    """The paths of a list.

    Raises:
        UsageError: It is no list of paths.
    """
    found: list[Any] = list(given) if isinstance(given, Iterable) else [given]
    wrong = [item for item in found if not isinstance(item, str | bytes | os.PathLike)]
    if wrong:
        msg = "open takes a path, or a list of paths of tars"
        what = f"{type(given).__name__} with {wrong[0]!r:.80}" if isinstance(given, Iterable) else repr(given)[:80]
        raise UsageError(msg, expected='open("packed") or open(["a.tar", "b.tar"])', got=what)
    return found


def _list_recipe(place: str, options: dict[str, Any]) -> ListRecipe:
    """How a table is read; its options are taken out of those of the dataset."""
    config = row_config({name: options.pop(name) for name in ("field", "label", "key", "column", "classes") if name in options})
    root = options.pop("root", None)
    return ListRecipe(os.path.abspath(place), config, None if root is None else os.path.abspath(os.fsdecode(root)))


def _prove_tar_name(place: str) -> None:
    """Whether what is no folder is the name of tars.

    Raises:
        NotADataset: It is not.
    """
    if is_tar_name(place):
        return
    if os.path.exists(place) or any(mark in place for mark in "*?[{"):
        msg = f"{place} is no folder, no table, and names no tars"
        hint = "Give a folder, tars by names that end in .tar, .tar.gz, .tgz or .tar.zst, or a .csv, .tsv, .jsonl or .parquet."
        raise NotADataset(msg, hint=hint)
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
        if any(SHARD_NAME.fullmatch(name) for name in tars):
            return True  # they may be pack's, with their index lost
        pattern = os.path.join(folder, "*" + next(end for end in SUFFIXES if name.lower().endswith(end)))
        such = f"{printable(name)} ..." if len(tars) > 1 else printable(name)
        msg = f"this folder holds tars ({such}), and no {FOLDER} folder with an index"
        raise NotADataset(msg, path=folder, hint=f"Read them as they are: fastfeed.open({pattern!r}).")
    return False
