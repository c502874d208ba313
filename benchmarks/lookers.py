"""Other tools that look for broken images, each as a function from a folder to the names that it flags."""

import json
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from PIL import Image

Peer = Callable[[Path], "set[str] | None"]
"""Another tool: names of the files in a folder that it flags; None where it came to no end."""


def by_jpeginfo(source: Path) -> set[str]:
    """JPEGs that it does not call OK."""
    names = sorted(path.name for path in source.glob("*.jp*g"))
    done = subprocess.run(["jpeginfo", "-c", *names], cwd=source, capture_output=True, text=True, check=False)
    fine = {line.split()[0] for line in done.stdout.splitlines() if line.rstrip().endswith("OK")}
    return set(names) - fine


def by_verify(source: Path) -> set[str]:
    """Files that Pillow's verify() refuses."""
    found = set()
    for path in sorted(source.iterdir()):
        try:
            with Image.open(path) as image:
                image.verify()
        except Exception:  # noqa: BLE001 - whatever it raises, it refuses it
            found.add(path.name)
    return found


def by_cleanvision(python: str) -> Peer:
    """Files that it gives an issue; None where a file ends its run."""
    code = (
        "import json, sys; from cleanvision import Imagelab; lab = Imagelab(data_path=sys.argv[1]); lab.find_issues(n_jobs=1); "
        "d = lab.issues; c = [x for x in d.columns if x.startswith('is_')]; "
        "open(sys.argv[2], 'w').write(json.dumps([str(p) for p, bad in d[c].any(axis=1).items() if bad]))"
    )

    def look(source: Path) -> set[str] | None:
        with tempfile.TemporaryDirectory() as home:
            copy, out = Path(home) / "images", Path(home) / "out.json"
            shutil.copytree(source, copy)
            done = subprocess.run([python, "-c", code, copy, out], capture_output=True, text=True, check=False, timeout=600)
            if out.exists():
                return {Path(path).name for path in json.loads(out.read_text())}
            DIED.append(done.stderr.strip().splitlines()[-1])
            return None

    return look


DIED: list[str] = []
"""Last words of cleanvision's runs that a file ended."""
