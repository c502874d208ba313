"""Reports of audits, written by hand: the lines are the interface between an audit and packing."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

SEVERITIES = {
    "oversize": "warning",
    "scan-bomb": "warning",
    "slow-format": "info",
    "truncated": "error",
    "progressive": "info",
}


def write_report(path: Path, source: Path, flagged: Mapping[str, Sequence[str]], **facts: Mapping[str, Any]) -> Path:
    """A report of all files of a folder.

    Args:
        path: Where it goes.
        source: The folder.
        flagged: Codes by path; a code that SEVERITIES does not have is a warning.
        **facts: Fields of a line by name, each by path: width={"a.jpg": 5}.

    Returns:
        The path.
    """
    names = sorted(str(file.relative_to(source)) for file in source.rglob("*") if file.is_file())
    with path.open("w") as file:
        for index, name in enumerate(dict.fromkeys([*names, *flagged])):
            there = source / name
            codes = [
                {"code": code, "severity": SEVERITIES.get(code, "warning"), "text": "said"} for code in flagged.get(name, ())
            ]
            record = {"path": name, "index": index, "size_bytes": there.stat().st_size if there.exists() else 1}
            if name.endswith((".jpg", ".png", ".jp2")):
                record |= {
                    "width": 40,
                    "height": 20,
                    "mode": "RGB",
                    "format": "JPEG" if name.endswith("g") and "png" not in name else name[-3:],
                }
            record |= {fact: values[name] for fact, values in facts.items() if name in values}
            file.write(json.dumps({**record, "findings": codes, "times": {}, "status": "flagged" if codes else "ok"}) + "\n")
    return path
