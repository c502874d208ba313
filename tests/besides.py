"""What the tests of sidecars share: what lies beside the shards, and what verify says of it."""

import json
from pathlib import Path

from helpers import files_below

import fastfeed


def kinds(folder: Path) -> list[str]:
    """Of what verify finds."""
    return [found.kind for found in fastfeed.verify(folder, workers=1).findings]


def texts(folder: Path) -> str:
    """Of what verify finds."""
    return "\n".join(found.text for found in fastfeed.verify(folder, workers=1).findings)


def beside(folder: Path) -> dict[str, bytes]:
    """All files but those that a pack without sidecars has."""
    plain = (".fastfeed/manifest.json", ".fastfeed/index", ".fastfeed/left-out.jsonl", ".fastfeed/pack.json")
    return {name: raw for name, raw in files_below(folder).items() if not name.endswith((".tar", *plain))}


def listed(folder: Path) -> dict[str, str | None]:
    """What the record of the sidecars says: file -> sha256."""
    found = json.loads((folder / ".fastfeed" / "sidecars.json").read_bytes())["files"]
    return {entry["file"]: entry["sha256"] for entry in found}
