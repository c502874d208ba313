"""Which kind of source something is (folder, list, table, lines, tars, Python object), and what gains nothing by packing."""

import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from glob import glob
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from typing import Any

from fastfeed.config import RowConfig
from fastfeed.errors import NothingGained, SourceAmbiguous, SourceUnreadable, UsageError
from fastfeed.packer.rows.lines import LineRows, is_lines
from fastfeed.packer.rows.parquet import EXTENSIONS as TABLES
from fastfeed.packer.rows.parquet import ParquetRows
from fastfeed.packer.rows.python import PythonRows
from fastfeed.packer.rows.source import RowSource
from fastfeed.units import format_size

LISTS = (".csv", ".tsv")
_TARS = (".tar", ".tar.gz", ".tgz", ".tar.zst")
_ALREADY_FAST = {
    ".bin": "a memory-mapped file of tokens or numbers", ".npy": "a memory-mapped array", ".mmap": "a memory-mapped array",
    ".npz": "one archive of arrays", ".h5": "one HDF5 file", ".hdf5": "one HDF5 file", ".lmdb": "an LMDB", ".mdb": "an LMDB",
    ".idx": "an index of memory-mapped tokens", ".zarr": "a Zarr store", ".beton": "an FFCV file", ".tfrecord": "TFRecords",
}  # fmt: skip
_LARGE_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Chosen:
    """A source of rows, or an iterable."""

    where: str
    """What messages call it."""
    name: str
    """Stem of the shards' names."""
    rows: RowSource | None
    samples: Iterable[Any] | None = None
    """The iterable, where there are no rows by number."""


def choose(source: Any, config: RowConfig, *, root: str | None = None, anyway: bool = False) -> Chosen | None:  # noqa: ANN401
    """What a source is; None for a folder of files, which packer/job.py packs itself.

    Args:
        source: A path, a glob, "module:name" or "file.py:name", or a Python object.
        config: How rows become samples.
        root: Folder to which a list's files are relative; by default the list's own.
        anyway: Pack what gains nothing by it.

    Raises:
        SourceUnreadable: There is no such thing.
        NothingGained: It is read fast as it is.
        UsageError: It is nothing that can be packed.
    """
    if not isinstance(source, str | os.PathLike):
        return _object(source, config)
    path = os.fsdecode(source)
    if os.path.isdir(path):
        return _folder(path, config, anyway=anyway)
    found = _matches(path)
    if not found:
        if ":" in path and not os.path.exists(path):
            return _object(load_object(path), config)
        return None  # the scan says what is wrong with it
    return _files(path, found, config, root=root, anyway=anyway)


def _object(source: Any, config: RowConfig) -> Chosen:  # noqa: ANN401
    what = f"{type(source).__module__}.{type(source).__qualname__}"
    if hasattr(source, "__getitem__") and hasattr(source, "__len__") and not isinstance(source, dict | str | bytes):
        return Chosen(what, "data", PythonRows(source, config))
    if isinstance(source, Iterable) and not isinstance(source, dict | str | bytes):
        return Chosen(what, "data", None, source)
    msg = f"a {what} cannot be packed"
    hint = "Give a folder, a file, a dataset with __len__ and __getitem__, or an iterable of samples."
    raise UsageError(msg, got=what, hint=hint)


def _matches(path: str) -> list[str]:
    """The files that a path or a glob names, sorted."""
    if os.path.isfile(path):
        return [path]
    return (
        sorted(match for match in glob(path, recursive=True) if os.path.isfile(match)) if any(c in path for c in "*?[") else []
    )


def _files(path: str, found: Sequence[str], config: RowConfig, *, root: str | None, anyway: bool) -> Chosen:
    kinds = {_kind(match) for match in found}
    name = os.path.basename(path).partition(".")[0].strip("*-_?[]{}") or "data"
    if len(kinds) > 1:
        msg = f"{path} names files of different kinds: {', '.join(sorted(kinds))}"
        raise SourceAmbiguous(msg, hint="Name one kind.")
    (kind,) = kinds
    if kind == "table":
        rows = ParquetRows(found, config)
        if not rows.has_payload() and not config.field and not anyway:
            msg = "these rows hold no bytes (images, audio): a table of numbers and texts is read fast as it is"
            hint = "Read it with pyarrow or Hugging Face datasets. --anyway packs it all the same."
            raise NothingGained(msg, path=path, hint=hint)
        return Chosen(path, name, rows)
    if kind in {"list", "lines"} and len(found) > 1:
        msg = f"{path} names {len(found)} lists"
        raise SourceAmbiguous(msg, hint="Pack them one by one, or join them into one.")
    if kind == "list" or (kind == "lines" and config.field):
        from fastfeed.packer.rows.files import FileRows  # noqa: PLC0415 - reads the list when it is made

        return Chosen(path, name, FileRows.of_list(found[0], config, root))
    if kind == "lines":
        return Chosen(path, name, LineRows(found[0], config))
    if kind == "tar":
        from fastfeed.packer.rows.tars import TarRows  # noqa: PLC0415 - indexes the tars when it is made

        return Chosen(path, name, TarRows.of_paths(found, config))
    _refuse(path, found, kind, anyway=anyway)
    msg = f"{os.path.basename(found[0])} is no source that fastfeed knows"
    hint = "Give a folder, .csv, .tsv, .jsonl, .parquet, .arrow, or tars."
    raise SourceUnreadable(msg, path=path, got=kind, hint=hint)


def _kind(path: str) -> str:
    lower = path.lower()
    if is_lines(lower):
        return "lines"
    for kind, endings in (("tar", _TARS), ("table", TABLES), ("list", LISTS)):
        if lower.endswith(endings):
            return kind
    return os.path.splitext(lower)[1] or "no extension"


def _refuse(path: str, found: Sequence[str], kind: str, *, anyway: bool) -> None:
    """Stop at what is read fast as it is."""
    if kind in _ALREADY_FAST and not anyway:
        size = sum(os.path.getsize(match) for match in found)
        msg = (
            f"this is {_ALREADY_FAST[kind]} ({format_size(size)}): reading it at random is fast already, packing gains nothing"
        )
        hint = "Read it with what made it (numpy.memmap, h5py, ...); pack many small files."
        raise NothingGained(msg, path=path, hint=hint)


def _folder(path: str, config: RowConfig, *, anyway: bool) -> Chosen | None:
    """Tables in a folder, or None for a folder of files."""
    names = sorted(name for name in os.listdir(path) if not name.startswith("."))
    tables = [name for name in names if name.lower().endswith(TABLES)]
    if os.path.exists(os.path.join(path, "state.json")) and tables:
        return _saved(path, config)
    others = [name for name in names if name not in tables and not name.lower().endswith((".md", ".json", ".txt"))]
    if tables and not others:
        splits = sorted({name.split("-")[0].partition(".")[0] for name in tables})
        if len(splits) > 1:
            globs = ", ".join(repr(os.path.join(path, f"{split}*")) for split in splits)
            msg = f"the folder holds tables of several names ({', '.join(splits)}): they may be splits"
            raise SourceAmbiguous(msg, path=path, hint=f"Pack each on its own: {globs}.")
        return _files(path, [os.path.join(path, name) for name in tables], config, root=None, anyway=anyway)
    _refuse_large(path, names, anyway=anyway)
    return None


def _saved(path: str, config: RowConfig) -> Chosen:
    """What Hugging Face's save_to_disk wrote: state.json knows the files and their order, and a selection of rows."""
    try:
        from datasets import load_from_disk  # noqa: PLC0415 - optional
    except ImportError as error:
        msg = "the folder was written by Hugging Face's save_to_disk, and datasets is not installed"
        raise UsageError(msg, path=path, hint="Install it: pip install datasets.") from error
    return Chosen(path, os.path.basename(os.path.abspath(path)), PythonRows(load_from_disk(path), config))


def _refuse_large(path: str, names: Sequence[str], *, anyway: bool) -> None:
    """Stop at a folder of a few large files that are memory-mapped or databases."""
    if anyway or not names:
        return
    known = {name: _ALREADY_FAST.get(os.path.splitext(name.lower())[1]) for name in names}
    sizes = [os.path.getsize(os.path.join(path, name)) for name in names if os.path.isfile(os.path.join(path, name))]
    large = sizes and sum(sizes) // len(sizes) >= _LARGE_BYTES
    if large and len(sizes) == len(names) and all(known.values()):
        msg = f"the folder holds {len(names)} large files, each {known[names[0]]}: packing gains nothing"
        raise NothingGained(msg, path=path, hint="Read them with what made them. --anyway packs them all the same.")


def load_object(text: str) -> Any:  # noqa: ANN401 - whatever is there
    """The object that "package.module:name" or "path/file.py:name" names, called without arguments if it is no dataset.

    Raises:
        UsageError: There is no such module or name.
    """
    home, _, name = text.rpartition(":")
    try:
        if home.endswith(".py"):
            spec = spec_from_file_location(os.path.basename(home)[:-3], home)
            assert spec is not None
            assert spec.loader is not None
            module = module_from_spec(spec)
            sys.path.insert(0, os.path.dirname(os.path.abspath(home)))
            spec.loader.exec_module(module)
        else:
            sys.path.insert(0, os.getcwd())
            module = import_module(home)
        found: Any = module
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, FileNotFoundError, ValueError) as error:
        msg = f"{text!r} names no file and no Python object ({error})"
        raise UsageError(msg, hint="A Python object is package.module:name or path/file.py:name.") from error
    is_data = not isinstance(found, type) and (hasattr(found, "__getitem__") or hasattr(found, "__iter__"))
    return found() if callable(found) and not is_data else found
