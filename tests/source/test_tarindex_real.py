"""Indexes of real and hostile tars, against other readers."""

import csv
import random
from collections import Counter
from pathlib import Path

import pytest
from helpers import SHARED_DATA
from tarring import read_all, webdataset_reads, write_tar

from fastfeed.archive.tars import LOST
from fastfeed.errors import SourceUnreadable
from fastfeed.source.tarfiles import find_tars
from fastfeed.source.tarindex import index_tars, make
from fastfeed.source.tarrows import TarWalk


# ------------------------------------------------------------------------------------------------ real tars
def real(folder: str) -> list[Path]:
    base = SHARED_DATA / "wds-real" / folder
    if not base.exists():
        pytest.skip("needs ../shared/data")
    return sorted(path for path in base.rglob("*") if path.name.endswith((".tar", ".tgz", ".tar.gz")))


@pytest.mark.parametrize("folder", ["dali-mnist", "kamildre-robot", "torchdata-fakedata", "webdataset-testdata"])
def test_real_tars_as_webdataset_reads_them(tmp_path: Path, folder: str):
    paths = real(folder)
    assert paths
    for path in paths:
        result = index_tars(str(path), index_dir=tmp_path, checksums=True)
        assert read_all(result) == webdataset_reads([path]), path
        assert result.lost == 0


def test_real_and_hostile_archives_as_expected(tmp_path: Path):
    """Every archive is read as far as expected.csv says it can be, or refused with words."""
    base = SHARED_DATA / "wds-real"
    if not base.exists():
        pytest.skip("needs ../shared/data")
    with (base / "expected.csv").open() as file:
        rows = list(csv.DictReader(file))
    refused = damaged = 0
    for row in rows:
        path = base / row["path"]
        walk = TarWalk(str(path.parent), path.name, checksums=False)
        if path.read_bytes().startswith(b"BZh"):
            with pytest.raises(SourceUnreadable, match="is compressed with bzip2, which cannot be read in place"):
                walk.run()
            refused += 1
            continue
        item = walk.run()
        found = Counter(finding.kind for finding in item.rows.findings)
        damaged += any(found[kind] for kind in LOST)
        if row["path"].endswith(".tar.pzstd"):  # frames behind one that is skipped: tarfile knows no Zstandard, but this does
            assert (list(item.rows.sizes), dict(found)) == ([10_240], {"no-field": 1})
        elif row["result"] != "ok":
            assert any(found[kind] for kind in LOST), path
        elif row["path"].endswith(".tar.zst.zst") or ".tar." in row["path"].replace(".tar.gz", "").replace(".tar.0", ""):
            assert found["damaged"] or found["cut"], path
        else:
            told = sum(found[kind] for kind in ("no-field", "hidden", "meta", "sparse"))
            assert len(item.rows.offsets) + told == int(row["files"]), path
            assert not any(found[kind] for kind in LOST - {"sparse"}), path
    assert (len(rows), refused, damaged) == (48, 5, 7)


def test_a_random_tar_of_three_hundred_pieces_with_every_format(tmp_path: Path):
    import tarfile

    chance = random.Random(5)
    for at, kind in enumerate((tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)):
        listed = []
        for number in range(100):
            key = f"{'d' * chance.randrange(1, 60)}/{number:04d}" + (
                "" if kind == tarfile.USTAR_FORMAT else "\u00e9" * chance.randrange(80)
            )
            listed += [(f"{key}.{field}", chance.randbytes(chance.randrange(2000))) for field in ("jpg", "json", "cls")]
        write_tar(tmp_path / f"{at}.tar", listed, kind)
    result = index_tars(str(tmp_path / "*.tar"))
    assert read_all(result) == webdataset_reads([tmp_path / f"{at}.tar" for at in range(3)])
    assert make(find_tars(str(tmp_path / "*.tar")), None)[1] == 0
