"""Pillow-SIMD in Pillow's place, in an environment of its own: all that is said of exact and close holds there too."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
LINE = 'CC="cc -mavx2" pip install --no-deps --force-reinstall pillow-simd'
"""As the README has it."""


def test_the_line_is_the_readmes():
    assert LINE in (ROOT / "README.md").read_text()


@pytest.mark.soak
def test_the_tests_of_decoding_pass_with_pillow_simd(tmp_path):
    here = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", str(here)], check=True)
    python = here / "bin" / "python"
    found = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], check=True, capture_output=True, text=True
    )
    # What this environment has is seen behind what that one has of its own, which is Pillow-SIMD alone.
    Path(found.stdout.strip(), "behind.pth").write_text(sysconfig.get_path("purelib") + "\n")
    built = subprocess.run(
        LINE.replace("pip install", f"{python} -m pip install -q"), shell=True, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if built.returncode:
        pytest.skip(f"Pillow-SIMD cannot be built here: {built.stderr.strip().splitlines()[-1]}")
    code = "import PIL; from fastfeed.feed.decode import picture; print(picture.HAS_SIMD, PIL.__version__)"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    said = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert said.stdout.startswith("True "), said.stdout
    command = [
        python,
        "-m",
        "pytest",
        "-q",
        "-x",
        "-p",
        "no:cacheprovider",
        "-m",
        "not soak and not long",
        "tests/feed/decode",
        "tests/feed/test_loader_images.py",
    ]
    tested = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT, check=False)
    assert tested.returncode == 0, tested.stdout[-4000:]
