"""Listing and removing caches: those in use stay, whatever is damaged can still be removed."""

from pathlib import Path

from caching import NAME, OTHER, caches_in, folder_of

from fastfeed.store.cachelist import caches
from fastfeed.store.lease import Lease


def test_what_is_there_and_what_clearing_leaves(tmp_path: Path):
    used = Lease(str(tmp_path), NAME, 8, about={"path": "/data/train", "of": "1.0 GiB in 2 shards"})
    Lease(str(tmp_path), OTHER, 8, about={"path": "/data/value"}, keep=True).close()
    found = caches([str(tmp_path)])
    assert [(info.data, info.in_use, info.kept) for info in found.caches] == [
        ("/data/train", True, False),
        ("/data/value", False, True),
    ]
    assert found.caches[0].path == str(folder_of(tmp_path) / NAME) and found.caches[0].holds == "1.0 GiB in 2 shards"
    assert [info.data for info in caches([str(tmp_path)], data="/data/value/").caches] == ["/data/value"]
    assert len(caches([str(tmp_path)], data="/data").caches) == 2 and not caches([str(tmp_path)], data="/dat").caches
    cleared = caches([str(tmp_path)], clear=True)
    assert [info.data for info in cleared.removed] == ["/data/value"] and [info.data for info in cleared.caches] == [
        "/data/train"
    ]
    assert caches_in(tmp_path) == [NAME]
    used.close()
    assert not list(tmp_path.iterdir())


def test_a_damaged_one_is_listed_and_removed(tmp_path: Path):
    Lease(str(tmp_path), NAME, 8, about={}, keep=True).close()
    (folder_of(tmp_path) / NAME / "about").write_text("{")
    (info,) = caches([str(tmp_path)]).caches
    assert (info.data, info.holds) == ("", "")
    assert len(caches([str(tmp_path)], clear=True).removed) == 1
    assert not list(tmp_path.iterdir())


def test_usual_places_and_those_that_cannot_be_used(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path / "one"))
    monkeypatch.setenv("SLURM_TMPDIR", str(tmp_path / "two"))
    (tmp_path / "one").mkdir()
    lease = Lease(str(tmp_path / "one"), NAME, 8, about={})
    assert str(folder_of(tmp_path / "one") / NAME) in [info.path for info in caches().caches]
    lease.close()
    folder_of(tmp_path / "one").mkdir(mode=0o755)
    (text,) = caches([str(tmp_path / "one"), str(tmp_path / "two")]).unusable
    assert "may be entered by others" in text
