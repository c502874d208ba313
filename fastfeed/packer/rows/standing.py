"""Whether what is at a destination already is this very pack of rows: finished, unfinished, or another one."""

from collections.abc import Mapping
from typing import Any

from fastfeed.archive.manifest import Manifest
from fastfeed.errors import DestinationOccupied, SourceChanged
from fastfeed.packer.compare import compare_options
from fastfeed.packer.rows.asked import RowJob


def compare_published(job: RowJob, done: Mapping[str, Manifest]) -> None:
    """A finished pack is left alone if it is this one.

    Raises:
        DestinationOccupied: It was made with other options, or of another kind of source.
        SourceChanged: The source is not what it was.
    """
    refuse_splits(job.destination, done)
    manifest = done[""]
    compare_rows(
        job.destination, job.identity, {"writer": manifest.writer, "options": dict(manifest.options)}, "a finished pack"
    )
    if manifest.source_digest != job.source_digest():
        msg = "the source has changed since it was packed"
        hint = "Pack into another folder, or replace the old pack with --overwrite."
        raise SourceChanged(msg, path=job.where, hint=hint)


def refuse_splits(destination: str, done: Mapping[str, Manifest]) -> None:
    """Rows have no splits.

    Raises:
        DestinationOccupied: What is there has.
    """
    if set(done) != {""}:
        msg = "a finished pack of a folder with splits is there"
        raise DestinationOccupied(msg, path=destination, hint="Choose another folder, or use --overwrite.")


def compare_rows(destination: str, identity: Mapping[str, object], before: Mapping[str, Any], what: str) -> None:
    """What is there was made of rows, with the same options.

    Raises:
        DestinationOccupied: It was not.
    """
    if "row_json" not in before.get("options", {}):
        msg = f"{what} of a folder of files is there"
        raise DestinationOccupied(msg, path=destination, hint="Choose another folder, or use --overwrite to pack anew.")
    compare_options(destination, identity, before, what)


def compare_job(job: RowJob, before: Mapping[str, Any] | None) -> None:
    """An unfinished job is continued if source and options are what they were.

    Raises:
        DestinationOccupied: Other options.
        SourceChanged: Another source.
    """
    if before is None:
        return
    compare_rows(job.destination, job.identity, before, "an unfinished pack")
    then, now = before.get("source") or {}, job.identity["source"]
    if then != now:
        names = [_what(name) for name in sorted({*then, *now}) if then.get(name) != now.get(name)]
        msg = f"the source has changed since this pack began ({', '.join(names)})"
        hint = "Undo the change to continue, or start anew with --overwrite."
        raise SourceChanged(msg, path=job.where, hint=hint)


_TOLD = {
    "rows": "how many rows there are", "size": "the file's size", "mtime_ns": "the time of its last change",
    "sizes": "the files' sizes", "mtimes_ns": "the times of their last change", "probe": "samples that were looked at",
    "features": "its features", "type": "its type", "list": "the list", "files": "the files that it names", "file": "its name",
}  # fmt: skip


def _what(name: str) -> str:
    return _TOLD.get(name, name)
