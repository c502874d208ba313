"""Which kind of source something is (folder, list, table, lines, tars, Python object), and what gains nothing by packing."""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from glob import glob
from itertools import islice
from typing import Any

from fastfeed.archive.manifest import FOLDER, GROUP, MANIFEST
from fastfeed.config import RowConfig
from fastfeed.errors import NothingGained, SourceAmbiguous, SourceUnreadable, UsageError
from fastfeed.packer.rows import huggingface
from fastfeed.packer.rows.byname import is_named, load_object, type_name
from fastfeed.packer.rows.jsonfile import lines_of, parse
from fastfeed.packer.rows.lines import LineRows, is_lines
from fastfeed.packer.rows.parquet import EXTENSIONS as TABLES
from fastfeed.packer.rows.parquet import ParquetRows
from fastfeed.packer.rows.python import PythonRows
from fastfeed.packer.rows.source import RowSource
from fastfeed.source.tables import table_format
from fastfeed.units import format_count, format_size

_TARS = (".tar", ".tar.gz", ".tgz", ".tar.zst")
_ALREADY_FAST = {
    ".bin": "a memory-mapped file of tokens or numbers", ".npy": "a memory-mapped array", ".mmap": "a memory-mapped array",
    ".npz": "one archive of arrays", ".h5": "one HDF5 file", ".hdf5": "one HDF5 file", ".lmdb": "an LMDB", ".mdb": "an LMDB",
    ".idx": "an index of memory-mapped tokens", ".zarr": "a Zarr store", ".beton": "an FFCV file", ".tfrecord": "TFRecords",
}  # fmt: skip
_LARGE_BYTES = 64 << 20
_SOURCES = (
    "a folder of files, a list (.csv .tsv .jsonl), tables with bytes (.parquet .arrow), tars, "
    "or package.module:name of a dataset"
)
_DOCUMENTS = (".md", ".json", ".txt", ".yaml", ".yml")
"""What lies beside tables and is no data."""
_PROBED_ROWS, _PROBED_PATHS = 50, 8
_PATH_MAX = 4096
_FRAMES = {
    "pandas": "frame.to_dict('records')", "polars": "frame.to_dicts()", "pyarrow": "table.to_pylist(), or write it as Parquet",
}  # fmt: skip
"""Tables in memory, whose rows are not had by number: what is."""


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
    if "://" in path and not os.path.exists(path):
        msg = f"{path} is a remote address, and what is packed must be on this machine"
        raise SourceUnreadable(msg, hint="Copy or mount it first, or give an iterable that reads it.")
    found = _matches(path)
    if not found:
        if not os.path.exists(path) and is_named(path):
            return _object(load_object(path), config)
        if not os.path.lexists(path):
            msg = "no file has such a name" if any(c in path for c in "*?[") else "the source does not exist"
            raise SourceUnreadable(msg, path=os.path.abspath(path), hint=f"Give {_SOURCES}.")
        return None  # a FIFO, a device, a link that leads nowhere: the scan says what is wrong with it
    return _files(path, found, config, root=root, anyway=anyway)


def _object(source: Any, config: RowConfig) -> Chosen:  # noqa: ANN401
    what = type_name(source)
    _refuse_object(source, what)
    if isinstance(source, Iterable) and (huggingface.is_stream(source) or _is_iterable_dataset(source)):
        return Chosen(what, "data", None, source)
    if hasattr(source, "__getitem__") and hasattr(source, "__len__"):
        return Chosen(what, "data", PythonRows(source, config))
    if isinstance(source, Iterable):
        return Chosen(what, "data", None, source)
    msg = f"a {what} cannot be packed"
    hint = "Give a folder, a file, a dataset with __len__ and __getitem__, or an iterable of samples."
    raise UsageError(msg, got=what, hint=hint)


def _refuse_object(source: Any, what: str) -> None:  # noqa: ANN401
    """Objects that look like datasets and are none, with what to give in their place."""
    hint = ""
    if huggingface.is_splits(source):
        names = ", ".join(map(repr, source))
        hint = (
            f"It holds the splits {names}: pack each into a folder of its own, as pack(dataset[{next(iter(source))!r}], ...)."
        )
    elif isinstance(source, Mapping | bytes | bytearray):
        hint = "Give a list or an iterable of samples."
    elif type(source).__module__.partition(".")[0] in _FRAMES and type(source).__name__ in {"DataFrame", "Table", "Series"}:
        hint = f"Give its rows as dicts: {_FRAMES[type(source).__module__.partition('.')[0]]}."
    elif isinstance(source, list | tuple) and source and all(map(_is_path, source[:_PROBED_PATHS])):
        hint = "It is a list of paths: give a folder, a glob, a list in a file (.csv), or samples that hold the bytes."
    if hint:
        msg = f"a {what} cannot be packed as it is"
        raise UsageError(msg, got=what, hint=hint)


def _is_path(item: object) -> bool:
    return isinstance(item, os.PathLike) or (isinstance(item, str) and len(item) < _PATH_MAX and os.path.lexists(item))


def _is_iterable_dataset(source: object) -> bool:
    """Whether it is torch's IterableDataset, which has __getitem__ and cannot be indexed."""
    return any(base.__module__.startswith("torch.") and base.__name__ == "IterableDataset" for base in type(source).__mro__)


def _matches(path: str) -> list[str]:
    """The files that a path or a glob names, sorted."""
    if os.path.isfile(path):
        return [path]
    return (
        sorted(match for match in glob(path, recursive=True) if os.path.isfile(match)) if any(c in path for c in "*?[") else []
    )


def _files(path: str, found: Sequence[str], config: RowConfig, *, root: str | None, anyway: bool) -> Chosen:
    kinds = {_kind(match) for match in found}
    name = _stem(path)
    if len(kinds) > 1:
        msg = f"{path} names files of different kinds: {', '.join(sorted(kinds))}"
        raise SourceAmbiguous(msg, hint="Name one kind.")
    (kind,) = kinds
    if kind == "table":
        return _tables(path, found, config, root=root, anyway=anyway)
    if kind in {"list", "lines"} and len(found) > 1:
        msg = f"{path} names {len(found)} lists"
        raise SourceAmbiguous(msg, hint="Pack them one by one, or join them into one.")
    if kind == "list" or (kind == "lines" and (config.field or root is not None or _lines_name_files(found[0]))):
        return _list(found[0], config, root)
    if kind == "lines":
        return Chosen(path, name, LineRows(found[0], config))
    if kind == "tar":
        from fastfeed.packer.rows.tars import TarRows  # noqa: PLC0415 - indexes the tars when it is made

        return Chosen(path, name, TarRows.of_paths(found, config))
    _refuse(path, found, kind, anyway=anyway)
    msg = f"{os.path.basename(found[0])} is no source that fastfeed knows"
    hint = f"Give {_SOURCES}."
    if kind == ".json":
        hint = "Write it as JSON lines, an object a line: jq -c '.[]' FILE.json > FILE.jsonl."
    raise SourceUnreadable(msg, path=path, got=kind, hint=hint)


def _stem(path: str) -> str:
    """A name for the shards."""
    return os.path.basename(path).partition(".")[0].strip("*-_?[]{}") or "data"


def _list(path: str, config: RowConfig, root: str | None) -> Chosen:
    from fastfeed.packer.rows.files import FileRows  # noqa: PLC0415 - reads the list when it is made

    return Chosen(path, _stem(path), FileRows.of_list(path, config, root))


def _tables(path: str, found: Sequence[str], config: RowConfig, *, root: str | None, anyway: bool) -> Chosen:
    """Rows with bytes in them, or a list of files."""
    as_list = bool(config.field) or root is not None
    if as_list and len(found) == 1:
        return _list(found[0], config, root)
    if as_list:
        msg = f"{path} names {len(found)} lists"
        raise SourceAmbiguous(msg, hint="Pack them one by one, or join them into one.")
    rows = ParquetRows(found, config)
    if rows.has_payload() or anyway:
        return Chosen(path, _stem(path), rows)
    base = os.path.dirname(os.path.abspath(found[0]))
    if len(found) == 1 and _name_files(rows.first(_PROBED_ROWS), base):
        return _list(found[0], config, root)
    msg = "these rows hold no bytes (images, audio): a table of numbers and texts is read fast as it is"
    hint = (
        "Read it with pyarrow or Hugging Face datasets. If it lists files, say where they are: "
        "--field image='images/{id}.jpg', or --root. --anyway packs it all the same."
    )
    raise NothingGained(msg, path=path, hint=hint)


def _lines_name_files(path: str) -> bool:
    """Whether rows of JSON lines name files that lie beside them: then they are a list, else they are the samples."""
    lines = ((line, text) for line, _, text in lines_of(path) if text)
    rows = [parse(text, line, path) for line, text in islice(lines, _PROBED_ROWS)]
    return _name_files(rows, os.path.dirname(os.path.abspath(path)))


def _name_files(rows: Sequence[Mapping[str, Any]], base: str) -> bool:
    """Whether most texts of some column are files below a folder."""
    texts: dict[str, list[str]] = {}
    for row in rows:
        for name, value in row.items():
            if isinstance(value, str) and 0 < len(value) < _PATH_MAX and "\0" not in value:
                texts.setdefault(name, []).append(value)
    return any(2 * sum(os.path.isfile(os.path.join(base, text)) for text in own) > len(own) for own in texts.values())


def _kind(path: str) -> str:
    lower = path.lower()
    if is_lines(lower):
        return "lines"
    for kind, endings in (("tar", _TARS), ("table", TABLES)):
        if lower.endswith(endings):
            return kind
    return "list" if table_format(path) is not None else os.path.splitext(lower)[1] or "no extension"


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
    _refuse_packed(path)
    names = _telling_names(path)
    if names is None:
        return None
    _refuse_tars(path, names)
    tables = [name for name in names if name.lower().endswith(TABLES)]
    if "dataset_dict.json" in names:
        splits = ", ".join(name for name in names if os.path.isdir(os.path.join(path, name)))
        msg = f"the folder holds the splits {splits} of Hugging Face's save_to_disk"
        raise SourceAmbiguous(msg, path=path, hint="Pack each on its own: the folder of one split.")
    if "state.json" in names and tables:
        return _saved(path, config)
    others = [name for name in names if name not in tables and not name.lower().endswith(_DOCUMENTS)]
    if tables and not others:
        _refuse_splits(path, tables)
        return _files(path, [os.path.join(path, name) for name in tables], config, root=None, anyway=anyway)
    _refuse_nested_tables(path, others)
    _refuse_large(path, [name for name in names if not name.lower().endswith(_DOCUMENTS)], anyway=anyway)
    return None


def _refuse_packed(path: str) -> None:
    """A packed dataset: as a folder of files, each shard would become one sample."""
    if any(os.path.isfile(os.path.join(path, FOLDER, name)) for name in (MANIFEST, GROUP)):
        msg = "the folder is a packed dataset already"
        hint = "Read it with fastfeed.open, or pack anew from its source. To pack its shards again name them: 'FOLDER/*.tar'."
        raise SourceAmbiguous(msg, path=path, hint=hint)


def _refuse_tars(path: str, names: Sequence[str]) -> None:
    """Tars that hold samples: as a folder of files, each tar would become one."""
    tars = [name for name in names if name.lower().endswith(_TARS)]
    if tars and not [name for name in names if name not in tars and not name.lower().endswith(_DOCUMENTS)]:
        shown = os.path.join(path, "*" + os.path.splitext(tars[0])[1])
        msg = f"the folder holds {format_count(len(tars), 'tar')} and no other files ({tars[0]}, ...)"
        hint = f"Pack the samples in them: {shown!r}. If each tar is one sample, list them in a .csv with a column path."
        raise SourceAmbiguous(msg, path=path, hint=hint)


def _telling_names(path: str) -> list[str] | None:
    """Names in a folder, sorted; None at the first plain file, for then it is a folder of files: a million are not listed."""
    found = []
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                ending = os.path.splitext(entry.name.lower())[1]
                telling = ending in _ALREADY_FAST or entry.name.lower().endswith((*TABLES, *_TARS, *_DOCUMENTS))
                if entry.name.startswith("."):
                    continue
                if not telling and not entry.is_dir():
                    return None
                found.append(entry.name)
    except OSError:
        return None  # the scan of a folder of files names it, with the reason
    return sorted(found)


def _refuse_splits(path: str, tables: Sequence[str]) -> None:
    """Tables whose names differ by more than their numbers may be splits."""
    names = sorted({re.split(r"[-_.]?\d", name.partition(".")[0], maxsplit=1)[0] for name in tables})
    if len(names) > 1:
        globs = ", ".join(repr(os.path.join(path, f"{name}*")) for name in names)
        msg = (
            f"the folder holds tables of several names ({', '.join(name or '(numbers)' for name in names)}): they may be splits"
        )
        raise SourceAmbiguous(msg, path=path, hint=f"Pack each on its own: {globs}.")


def _refuse_nested_tables(path: str, others: Sequence[str]) -> None:
    """Folders of nothing but tables, as on Hugging Face's hub: as files they would be packed whole."""
    folders = [name for name in others if os.path.isdir(os.path.join(path, name))]
    if not folders or len(folders) < len(others):
        return
    below = []
    for name in folders:
        found = _tables_in(os.path.join(path, name))
        if found is None:
            return
        below += [os.path.join(name, file) for file in found]
    if below:
        shown = repr(os.path.join(path, os.path.dirname(below[0]), "*" + os.path.splitext(below[0])[1]))
        msg = f"the folder holds {format_count(len(below), 'table')} in folders ({below[0]}, ...)"
        raise SourceAmbiguous(msg, path=path, hint=f"Name the tables of one split: {shown}.")


def _tables_in(folder: str) -> list[str] | None:
    """Names of the tables in a folder that holds nothing else; None at the first thing that is none, so that it is cheap."""
    found = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if not entry.name.lower().endswith(TABLES):
                    return None
                found.append(entry.name)
    except OSError:
        return None  # the scan of a folder of files names it, with the reason
    return sorted(found)


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
    if not all(known.values()) or not all(os.path.isfile(os.path.join(path, name)) for name in names):
        return
    sizes = [os.path.getsize(os.path.join(path, name)) for name in names]
    if sum(sizes) // len(sizes) >= _LARGE_BYTES:
        msg = f"the folder holds {len(names)} large files, each {known[names[0]]}: packing gains nothing"
        raise NothingGained(msg, path=path, hint="Read them with what made them. --anyway packs them all the same.")
