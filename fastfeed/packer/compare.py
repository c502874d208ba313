"""Whether what is at a destination already is this very pack: finished, unfinished, or another one."""

import json
import os
from collections.abc import Callable, Mapping
from typing import Any

from fastfeed.archive.dataset import read_record
from fastfeed.archive.manifest import FOLDER, LEFT_OUT, WRITER, Group, Manifest
from fastfeed.archive.regular import open_regular
from fastfeed.errors import DatasetError, DestinationError, DestinationOccupied, NotADataset, SourceChanged
from fastfeed.packer.journal import peek, refuse_foreign
from fastfeed.packer.writing import Job
from fastfeed.sample import printable
from fastfeed.source.scan import LeftOut, Listing
from fastfeed.units import format_size

_SHOWN = 5


def standing(
    destination: str,
    *,
    overwrite: bool,
    prove_finished: Callable[[Mapping[str, Manifest]], None],
    prove_begun: Callable[[Mapping[str, Any]], None],
) -> list[str]:
    """What a dry run should say of what is at a destination.

    Args:
        destination: Where the pack would go.
        overwrite: Whether what is there would be replaced.
        prove_finished: Raises what packing would where a finished pack, given by its manifests, is another one.
        prove_begun: The same of an unfinished one, given by its options.
    """
    try:
        refuse_foreign(destination)
    except DestinationError as error:
        return [f"this would be refused: {error.message}"]
    try:
        done, before = published(destination), peek(destination)
        if done is not None:
            if overwrite:
                return ["the destination holds a finished pack: it would be replaced"]
            prove_finished(done)
            return ["the destination holds this very pack: there would be nothing to do"]
        if before is not None:
            if overwrite:
                return ["the destination holds an unfinished pack: it would be replaced"]
            prove_begun(before)
            return ["the destination holds an unfinished pack with these options: it would be continued"]
    except (DestinationError, SourceChanged, DatasetError) as error:
        return [f"without --overwrite this would be refused: {error.message}"]
    except OSError as error:
        return [f"the destination cannot be looked at: {error.strerror}"]
    return []


def published(destination: str) -> dict[str, Manifest] | None:
    """The manifests of a finished pack at the destination, None where there is none."""
    try:
        record = read_record(destination)
    except NotADataset:
        return None
    if not isinstance(record, Group):
        return {"": record}
    found = {}
    for split in record.splits:
        below = read_record(os.path.join(destination, split))
        assert isinstance(below, Manifest)
        found[split] = below
    return found


def compare_published(job: Job, done: Mapping[str, Manifest], listing: Listing) -> None:
    """A finished pack is left alone if it is this one.

    Raises:
        DestinationOccupied: It was made with other options.
        SourceChanged: The source is not what it was.
    """
    for manifest in done.values():
        compare_options(
            job.destination, job.identity, {"writer": manifest.writer, "options": dict(manifest.options)}, "a finished pack"
        )
        if manifest.source_digest != listing.digest():
            msg = "the source has changed since it was packed (files came, went, grew or were touched)"
            hint = "Pack into another folder, or replace the old pack with --overwrite."
            raise SourceChanged(msg, path=job.source, hint=hint)


def compare_options(destination: str, identity: Mapping[str, object], before: Mapping[str, Any], what: str) -> None:
    """What is there was made with the same options.

    Raises:
        DestinationOccupied: With others.
    """
    if "unpack" in before:
        msg = "an interrupted fastfeed unpack --shards is there"
        raise DestinationOccupied(msg, path=destination, hint="Continue it, choose another folder, or use --overwrite.")
    if before.get("writer") != WRITER:
        msg = f"{what} by another version of the writer is there"
        raise DestinationOccupied(
            msg, path=destination, expected=WRITER, got=before.get("writer"), hint="Use --overwrite to pack anew."
        )
    then, now = before["options"], dict(identity["options"])  # type: ignore[call-overload]
    # what to do about unreadable files may be decided anew: finished shards stay as they are
    differing = sorted(name for name in {*then, *now} if then.get(name) != now.get(name) and name != "on_error")
    if differing:
        changes = "; ".join(
            f"{_flag(name)} was {_told(name, then.get(name))}, now {_told(name, now.get(name))}" for name in differing
        )
        msg = f"{what} with other options is there ({changes})"
        hint = "Give the same options, choose another folder, or use --overwrite to pack anew."
        raise DestinationOccupied(msg, path=destination, hint=hint)
    if "encoder" in before and before["encoder"] != identity.get("encoder"):  # what is finished stays as it is
        msg = f"{what} is there whose shards another version of the compression library wrote"
        hint = f"Install the zstandard package with {before['encoder']} to continue, or use --overwrite to pack anew."
        raise DestinationOccupied(msg, path=destination, expected=before["encoder"], got=identity.get("encoder"), hint=hint)
    if "jpegtran" in before and before["jpegtran"] != identity.get("jpegtran"):
        msg = f"{what} is there whose JPEGs another version of jpegtran wrote"
        hint = f"Install {before['jpegtran']} to continue, or use --overwrite to pack anew."
        raise DestinationOccupied(msg, path=destination, expected=before["jpegtran"], got=identity.get("jpegtran"), hint=hint)


def listed_left_out(folder: str) -> tuple[LeftOut, ...] | None:
    """What a finished pack's own list says was left out; None where it is lost or damaged: verify says so, here it counts."""
    try:
        with open(os.path.join(folder, FOLDER, LEFT_OUT), encoding="ascii", opener=open_regular) as file:
            return tuple(LeftOut(**json.loads(line)) for line in file)
    except (OSError, ValueError, TypeError):
        return None


def _flag(name: str) -> str:
    """The command line's name of an option."""
    named = {"shard_bytes": "--shard-size", "write_cls": "--cls", "frame_bytes": "--frame-size"}
    return named.get(name, f"--{name.replace('_', '-')}")


def _told(name: str, value: object) -> str:
    if value is None:
        return "not given"
    if isinstance(value, list):
        return ", ".join(map(_part, value)) or "none"
    return format_size(value) if name in {"shard_bytes", "frame_bytes"} and isinstance(value, int) else str(value)


def _part(value: object) -> str:
    """An item of a list of names, or of pairs such as --field NAME=TEMPLATE."""
    return "=".join(map(str, value)) if isinstance(value, list) else str(value)


def compare_job(job: Job, before: Mapping[str, Any] | None, kept: Listing | None, listing: Listing) -> None:
    """An unfinished job is continued if source and options are what they were.

    Raises:
        DestinationOccupied: Other options.
        SourceChanged: Another list, size or mtime.
    """
    if before is not None:
        compare_options(job.destination, job.identity, before, "an unfinished pack")
    if kept is None or kept is listing or kept.digest() == listing.digest():
        return
    changes = _changes(kept, listing)
    msg = f"the source has changed since this pack began: {'; '.join(changes[:_SHOWN])}" + (
        "; ..." if len(changes) > _SHOWN else ""
    )
    hint = "Undo the change to continue, or start anew with --overwrite."
    if len(changes) == len(set(kept.paths) - set(listing.paths)):
        hint += " What is gone can be left out: --on-error skip --trust-scan."
    raise SourceChanged(msg, path=job.source, hint=hint)


def _changes(before: Listing, now: Listing) -> list[str]:
    was, is_ = (dict(zip(side.paths, zip(side.sizes, side.mtimes_ns, strict=True), strict=True)) for side in (before, now))
    found = [f"{printable(path)} is gone" for path in was if path not in is_]
    found += [f"{printable(path)} is new" for path in is_ if path not in was]
    for path in was:
        if path in is_ and was[path] != is_[path]:
            what = f"had {was[path][0]} bytes and has {is_[path][0]}" if was[path][0] != is_[path][0] else "was touched (mtime)"
            found.append(f"{printable(path)} {what}")
    folders = {True: set(before.folders) - set(now.folders), False: set(now.folders) - set(before.folders)}
    return found + [
        f"folder {printable(path)} is {'gone' if gone else 'new'}" for gone in folders for path in sorted(folders[gone])
    ]
