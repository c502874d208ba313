"""Results go to stdout, notes and errors to stderr. Nothing else prints but bars.py, which tells how far a job is."""

import dataclasses
import json
import shlex
import sys
import textwrap
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fastfeed.errors import FastfeedError
from fastfeed.media import is_image_field
from fastfeed.sample import printable
from fastfeed.units import format_count, format_seconds, format_size

if TYPE_CHECKING:
    from rich.console import Console

    from fastfeed.archive.summary import DatasetInfo, InfoResult
    from fastfeed.packer.result import PackResult, UnpackResult
    from fastfeed.packer.sidecars import SidecarsResult
    from fastfeed.packer.verify import VerifyResult
    from fastfeed.source.scan import LeftOut
    from fastfeed.store.cachelist import CacheInfo, CachesResult

_WIDTH = 100
_SHOWN = 5


def console(*, to_stderr: bool = False) -> "Console":
    """What rich prints on."""
    from rich.console import Console  # noqa: PLC0415 - rich takes 50 ms, and --help needs none of it

    found = Console(stderr=to_stderr, highlight=False, markup=False, emoji=False)
    if not found.is_terminal:
        found.width = 160  # a file or a pipe has no width: tables must not be cut to 80
    return found


def json_record(record: Any, **extra: object) -> None:  # noqa: ANN401 - any result record
    """A result record as one JSON object; undecodable names as surrogate escapes."""
    print(json.dumps(_plain({**dataclasses.asdict(record), **extra}), indent=2))


def _plain(value: Any) -> Any:  # noqa: ANN401 - whatever records hold
    """Named tuples as objects: json would make bare lists of them."""
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return _plain(value._asdict())
    return [_plain(part) for part in value] if isinstance(value, list | tuple) else value


def say(text: str = "") -> None:
    """A paragraph to stdout, lines that begin with blanks kept as they are."""
    for line in text.split("\n"):
        print(line if line.startswith(" ") else _paragraph(line))


def say_indented(text: str, indent: str) -> None:
    """A paragraph to stdout that stands further right."""
    width, deeper = _WIDTH + len(indent), indent + "  "
    print(
        textwrap.fill(
            text, width, initial_indent=indent, subsequent_indent=deeper, break_long_words=False, break_on_hyphens=False
        )
    )


def silent(text: str = "") -> None:
    """Nothing."""


def _paragraph(text: str) -> str:
    """Text in lines of the width, paths and commands whole."""
    return textwrap.fill(printable_lines(text), _WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def error(problem: FastfeedError) -> None:
    """An error as one readable paragraph: what, where, what to do."""
    print(_paragraph(f"fastfeed: {problem}"), file=sys.stderr)


def fault(error: Exception) -> None:
    """An error that nobody foresaw: what and where, and to whom to say it."""
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    where = f" ({frame.tb_frame.f_code.co_filename}:{frame.tb_lineno})" if frame is not None else ""
    text = f"fastfeed: this is a fault of fastfeed itself: {type(error).__name__}: {error}{where}. "
    print(_paragraph(text + "Run it again with --debug and report what it prints."), file=sys.stderr)


def traceback() -> None:
    """The error that is being handled, with its traceback."""
    import traceback as standard  # noqa: PLC0415 - for --debug alone

    standard.print_exc()


def interrupted(after: str, *, on_new_line: bool = False) -> None:
    """After Ctrl-C, which a terminal shows in the midst of a line."""
    print(f"{'' if on_new_line else chr(10)}fastfeed: interrupted. {after}", file=sys.stderr)


def printable_lines(text: str) -> str:
    """Text for a terminal: control characters escaped, line feeds kept as blanks."""
    return printable(" ".join(text.split("\n")))


def table(columns: Sequence[tuple[str, str]], rows: Sequence[Sequence[str]]) -> None:
    """A table where it fits the width, else a block of lines for each row."""
    from rich import box  # noqa: PLC0415
    from rich.cells import cell_len  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    terminal = console()
    widths = [
        max(cell_len(printable(cell)) for cell in (title, *cells)) for (title, _), *cells in zip(columns, *rows, strict=True)
    ]
    if sum(widths) + 3 * len(widths) > terminal.width:
        for row in rows:
            print()
            for (title, _), cell in zip(columns, row, strict=True):
                if cell:
                    print(f"  {title:<10} {printable(cell)}")
        print()
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for title, justify in columns:
        table.add_column(title, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    for row in rows:
        table.add_row(*map(printable, row))
    terminal.print(table)


def json_error(problem: FastfeedError) -> None:
    """An error as one JSON object on stdout, for a program that asked for --json."""
    names = ("message", "path", "shard", "sample", "key", "source", "member", "start", "stop", "hint")
    facts = {name: getattr(problem, name) for name in names}
    print(json.dumps({"error": type(problem).__name__, "exit_code": problem.exit_code, **facts}, indent=2))


def pack_plan(plan: "PackResult") -> None:
    """What was detected and why, a table, what is left out: shown before the first byte is written."""
    for number, dataset in enumerate(plan.datasets):
        if len(plan.datasets) > 1:
            say(f"{dataset.name}:")
        for reason in dataset.why[1 if number and len(plan.datasets) > 1 else 0 :]:  # the first says why these are splits
            say(f"- {printable(reason)}")
    size = "size" if all(d.tar_bytes is None for d in plan.datasets) else "tar size"
    columns = [("dataset", "left"), ("samples", "right"), ("fields", "left"), ("classes", "right"), ("source", "right"),
               ("shards", "right"), (size, "right"), ("tar adds", "right")]  # fmt: skip
    rows = []
    for d in plan.datasets:
        classes = "-" if d.classes is None else f"{d.classes:,}"
        tar_bytes = d.size_bytes if d.tar_bytes is None else d.tar_bytes
        adds = f"{(tar_bytes - d.source_bytes) / d.source_bytes:.1%}" if d.source_bytes else "-"
        sizes = [format_size(d.source_bytes), f"{d.shards:,}", format_size(tar_bytes), adds]
        rows.append([d.name, f"{d.samples:,}", " ".join(d.fields), classes, *sizes])
    table(columns, rows)
    _left_out(plan.left_out)
    if plan.limited:
        say(f"Note: {format_count(plan.limited, 'file')} beyond --limit {'is' if plan.limited == 1 else 'are'} not packed")
    say(f"{plan.workers_why}.")


def pack_result(result: "PackResult") -> None:
    """Outcome of pack, and what comes next. A dry run has only its plan, and nothing to announce before it."""
    if result.dry_run or result.already_packed:
        pack_plan(result)
    for note in result.notes:
        say(f"Note: {printable(note)}")
    if result.dry_run:
        need, free = format_size(result.needs_bytes), format_size(result.free_bytes)
        most = "at most " if any(dataset.tar_bytes is not None for dataset in result.datasets) else ""
        room = "" if result.needs_bytes <= result.free_bytes else f": that {'may not' if most else 'does not'} fit"
        say(f"This is the plan; nothing was written. It needs {most}{need}, {free} are free{room}.")
    elif result.already_packed:
        say(f"{result.destination} is packed already, and source and options are the same: nothing to do.")
    else:
        _packed(result)
    if result.sidecars is not None:
        sidecars_result(result.sidecars)


def _packed(result: "PackResult") -> None:
    total = sum(dataset.source_bytes for dataset in result.datasets)
    files = sum(dataset.source_files for dataset in result.datasets)
    kept = f" ({format_count(result.shards_kept, 'shard')} kept from an earlier run)" if result.shards_kept else ""
    samples = sum(dataset.samples for dataset in result.datasets)
    what = format_count(files, "file") if files >= samples else format_count(samples, "sample")
    say(f"Packed {what}, {format_size(total)}, in {format_seconds(result.seconds)}{kept}.")
    from fastfeed.packer.result import told_outcomes  # noqa: PLC0415 - loaded already, by whoever has packed

    for dataset in result.datasets:
        if dataset.jpeg_rows is not None:
            of = f" of {dataset.name}" if len(result.datasets) > 1 else ""
            say(f"Rows of JPEGs{of}: {told_outcomes(dataset.jpeg_rows)}.")
    tar_bytes = sum(dataset.tar_bytes or 0 for dataset in result.datasets)
    if tar_bytes:
        size_bytes = sum(dataset.size_bytes for dataset in result.datasets)
        say(f"The shards take {format_size(size_bytes)}, {size_bytes / tar_bytes:.2f} of the tar in them.")
    if result.skipped:
        pack_skipped(result)
    first = next((d for d in result.datasets if d.split.startswith("train")), result.datasets[0])
    pairs = first.classes is not None and sum(field != "cls" for field in first.fields) == 1
    use = (
        "transform=...)   # where ImageFolder(...) was"
        if pairs and is_image_field(first.fields[-1])
        else "...)   # ds[0] is a dict by field"
    )
    say(f"Next:  fastfeed verify {shlex.quote(result.destination)}")
    say(f"       ds = fastfeed.open({first.path!r}, {use}")


def pack_skipped(result: "PackResult") -> None:
    """The inputs that could not be read, by name: those that failed while shards were written stand in no plan."""
    items = [item for item in result.left_out if item.kind == "unreadable"]
    shown = "; ".join(f"{printable(item.source)}: {item.why}" for item in items[:_SHOWN])
    more = f"; and {len(items) - _SHOWN:,} more" if len(items) > _SHOWN else ""
    if result.dry_run:
        what = "cannot be read and would be skipped"
    else:
        what = f"could not be read and {'was' if result.skipped == 1 else 'were'} skipped"
    listed = "" if result.dry_run else ", listed in .fastfeed/left-out.jsonl"
    say(f"{format_count(result.skipped, 'input')} {what} ({shown}{more}){listed}: exit code 6.")


def _left_out(items: Sequence["LeftOut"]) -> None:
    if not items:
        return
    counts = Counter(item.kind for item in items)
    say(f"Left out: {format_count(len(items), 'entry', 'entries')} of the source (listed in .fastfeed/left-out.jsonl)")
    for kind, count in counts.most_common():
        examples = [item for item in items if item.kind == kind][:_SHOWN]
        for item in examples:
            print(f"  {kind:<11} {printable(item.source)}  ({printable(item.why)})")
        if count > len(examples):
            print(f"  {kind:<11} ... and {count - len(examples):,} more")


def verify_result(result: "VerifyResult") -> None:
    """Findings of verify, or that there are none."""
    counts = [(result.samples, "sample"), (result.members, "member"), (result.shards, "shard")]
    read = ", ".join(format_count(count, noun) for count, noun in counts)
    read += f", {format_size(result.size_bytes)} in {format_seconds(result.seconds)}"
    if result.ok:
        say(f"{result.path} is whole: {read}. Every byte is as packed.")
        return
    say(f"{result.path} is damaged: {format_count(len(result.findings), 'finding')} ({read})")
    for found in result.findings:
        print(_paragraph(f"- {found.text}"))


def unpack_result(result: "UnpackResult") -> None:
    """What unpack wrote."""
    kept = f" ({result.kept:,} of them by an interrupted run)" if result.kept else ""
    things = format_count(result.files, "file") if result.shards is None else format_count(result.shards, "plain tar")
    what = f"{things}, {format_size(result.size_bytes)}, to {result.destination}"
    say(f"Unpacked {what} in {format_seconds(result.seconds)}{kept}. Every byte was checked.")
    if result.jpegs_indexed:
        marked = format_count(result.jpegs_indexed, "JPEG has", "JPEGs have")
        say(
            f"{marked} rows that pack --jpeg-rows indexed: the coefficients, and so the pixels, are those of the source, the "
            "bytes are not (but for files that had such markers before)."
        )


def sidecars_result(result: "SidecarsResult") -> None:
    """What index --for wrote."""
    kept = f"; {format_count(len(result.kept), 'file')} there already" if result.kept else ""
    wrote, whom = format_count(len(result.written), "file"), ", ".join(result.readers)
    say(f"Wrote {wrote} for {whom} beside the shards of {result.path}, in {format_seconds(result.seconds)}{kept}.")
    for note in result.notes:
        say(f"Note: {printable(note)}")


def info_result(result: "InfoResult") -> None:
    """What info found, dataset by dataset."""
    for dataset in result.datasets:
        _dataset_info(dataset)


def caches_result(result: "CachesResult") -> None:
    """The caches that are there, and those that were removed."""
    for cache in result.removed:
        print(f"removed: {_cache(cache)}")
    for cache in result.caches:
        state = "in use" if cache.in_use else "kept" if cache.kept else "left by a process that was killed"
        print(f"{_cache(cache)}: {state}")
    if not result.caches and not result.removed:
        print(printable(f"no caches in {', '.join(result.places)}; --cache-dir names another place"))
    for text in result.unusable:
        print(printable(text))


def _cache(cache: "CacheInfo") -> str:
    return printable(f"{cache.path}  {format_size(cache.size_bytes)} of {cache.data or 'unknown data'} ({cache.holds})")


def _dataset_info(d: "DatasetInfo") -> None:
    sizes = f"{format_size(d.size_bytes)}; index {format_size(d.index_bytes)}"
    facts = [
        ("dataset", d.name + (f" (split {d.split})" if d.split else "")), ("path", d.path), ("digest", d.digest),
        ("format", f"version {d.format_version}, compression: {d.compression}"),
        ("samples", f"{d.samples:,} in {format_count(d.shards, 'shard')}, {sizes}"),
        ("source", f"{format_count(d.source_files, 'file')}, {format_size(d.source_bytes)}"),
        ("read as", f"{d.layout}, order {d.order}"),
        ("columns", ", ".join(d.columns) + "   (ds.column(name))"),
        *([("own", ", ".join(f"{name} ({kind})" for name, kind in d.user_columns.items()))] if d.user_columns else []),
        ("left out", ", ".join(f"{count:,} {kind}" for kind, count in d.left_out.items()) or "nothing"),
    ]  # fmt: skip
    for name, value in facts:
        print(f"{name:<9} {printable(value)}")
    columns = [("field", "left"), ("members", "right"), ("bytes", "right"), ("mean", "right"), ("largest", "right"),
               ("images", "left"), ("width min/median/max", "right"), ("height", "right"), ("rotated", "right")]  # fmt: skip
    indexed = any(f.row_indexed for f in d.fields)
    if indexed:
        columns.append(("row-indexed", "right"))
    rows = []
    for f in d.fields:
        codecs = ", ".join(f"{name} {count:,}" for name, count in f.codecs.items())
        width, height = ("/".join(map(str, spread)) if spread else "" for spread in (f.width, f.height))
        mean = format_size(f.size_bytes / f.members) if f.members else ""
        rows.append(
            [
                f.name,
                f"{f.members:,}",
                format_size(f.size_bytes),
                mean,
                format_size(f.largest_bytes),
                codecs,
                width,
                height,
                f"{f.rotated:,}" if codecs else "",
                *([f"{f.row_indexed:,}"] if indexed else []),
            ]
        )
    table(columns, rows)
    if d.classes is not None:
        shown = d.classes if len(d.classes) <= 2 * _SHOWN else (*d.classes[:_SHOWN], *d.classes[-_SHOWN:])
        table(
            [("class", "right"), ("name", "left"), ("samples", "right")],
            [[str(c.number), c.name, f"{c.samples:,}"] for c in shown],
        )
        if len(shown) < len(d.classes):
            say(f"{len(d.classes):,} classes, the first and last {_SHOWN} shown; --json has all.")
