"""pack --compress: the same samples in fewer bytes, the same bytes for any run, and what is told of it."""

import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import zstandard
from helpers import ROOT, files_below, make_captioned, make_photos, packed
from packing import Interrupt, children_of, interrupt_after, manifest_of, packing_process, tree, wait_for

import fastfeed
from fastfeed.archive import frame
from fastfeed.config import PackConfig
from fastfeed.errors import DestinationOccupied, UsageError
from fastfeed.packer.compression import LEAST_GAIN, READERS, compression_of, encoder_of, notes_of, prove_frames, why_compressed

SMALL: dict[str, Any] = {"compress": "zstd", "frame_bytes": 4096}
FIELDS = ["compress", "level", "frame_bytes"]


def mixed(folder: Path, samples: int = 60) -> Path:
    """Splits with classes, captions, an empty file, and members larger than a frame and than a piece of the worker."""
    chance = random.Random(5)
    files: dict[str, bytes] = {}
    for split, count in (("train", samples), ("val", 9)):
        for at in range(count):
            stem = f"{split}/{'ab'[at % 2]}/{at:03d}"
            files[f"{stem}.txt"] = b" ".join(
                chance.choice([b"a", b"photo", b"of", b"shards"]) for _ in range(chance.randrange(400))
            )
            files[f"{stem}.json"] = json.dumps({"id": at, "words": len(files[f"{stem}.txt"])}).encode()
    files["train/a/large.txt"] = b"large " * 5000
    files["train/a/large.json"] = chance.randbytes(5_000_000)
    tree(folder, files)
    return folder


def tars_in(dataset: Path) -> dict[str, bytes]:
    """The tar in each compressed shard by the plain shard's name, by a decoder that knows nothing of seek tables."""
    found = {}
    for path in sorted(dataset.rglob("*.tar.zst")):
        with path.open("rb") as file, zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True) as reader:
            found[str(path.relative_to(dataset)).removesuffix(".zst")] = reader.read()
    return found


def plain_tars(dataset: Path) -> dict[str, bytes]:
    return {name: raw for name, raw in files_below(dataset).items() if name.endswith(".tar")}


def test_z7_the_tar_in_a_compressed_shard_is_the_one_that_packing_without_writes(tmp_path):
    source = mixed(tmp_path / "s")
    packed(source, tmp_path / "plain", samples_per_shard=20)
    packed(source, tmp_path / "zst", samples_per_shard=20, **SMALL)
    assert tars_in(tmp_path / "zst") == plain_tars(tmp_path / "plain")
    for split in ("train", "val"):
        one, other = (files_below(tmp_path / name / split / ".fastfeed") for name in ("plain", "zst"))
        assert (one["index"], one["left-out.jsonl"]) == (other["index"], other["left-out.jsonl"])
    assert not list((tmp_path / "zst").rglob("*.tar"))
    assert fastfeed.verify(tmp_path / "zst").ok


def test_z1_z2_the_manifest_says_how(tmp_path):
    source = make_captioned(tmp_path / "s", 6)
    packed(source, tmp_path / "plain", shards=2)
    packed(source, tmp_path / "zst", shards=2, compress="zstd", level=7)
    plain, found = manifest_of(tmp_path / "plain"), manifest_of(tmp_path / "zst")
    version = ".".join(map(str, zstandard.ZSTD_VERSION))
    assert found["compression"] == {"codec": "zstd", "encoder": f"zstd {version}", "frame_bytes": 262144, "level": 7}
    for entry, other in zip(found["shards"], plain["shards"], strict=True):
        raw = (tmp_path / "zst" / entry["file"]).read_bytes()
        assert entry["file"] == other["file"] + ".zst"
        assert (entry["size_bytes"], entry["sha256"]) == (len(raw), hashlib.sha256(raw).hexdigest())
        assert entry["tar_bytes"] == other["size_bytes"]
    assert {name: found["options"][name] for name in FIELDS} == {"compress": "zstd", "level": 7, "frame_bytes": 262144}
    rest = [{k: v for k, v in m["options"].items() if k not in FIELDS} for m in (plain, found)]
    assert rest[0] == rest[1]


def test_without_it_nothing_of_it_is_written(tmp_path):
    packed(make_captioned(tmp_path / "s"), tmp_path / "out")
    manifest = manifest_of(tmp_path / "out")
    assert "compression" not in manifest and not set(FIELDS) & set(manifest["options"])
    assert all("tar_bytes" not in entry for entry in manifest["shards"])


@pytest.mark.parametrize("options", [{}, {"shuffle": 3, "samples_per_shard": 7}], ids=["one", "shuffled"])
def test_w1_the_same_bytes_for_any_number_of_workers(tmp_path, options):
    source = mixed(tmp_path / "s")
    for workers in (1, 2, 5):
        fastfeed.pack(source, tmp_path / str(workers), workers=workers, **SMALL, **options)
    one = files_below(tmp_path / "1")
    assert files_below(tmp_path / "2") == one == files_below(tmp_path / "5")


@pytest.mark.long
def test_pain_24_killed_at_random_moments_it_ends_with_the_same_bytes(tmp_path):
    chance = random.Random(8)
    texts = {f"{at:03d}.txt": b" ".join(chance.choice([b"a", b"b", b"cc"]) for _ in range(20_000)) for at in range(40)}
    source = tree(tmp_path / "s", texts)
    packed(source, tmp_path / "straight", samples_per_shard=1, **SMALL)
    for goal in (0, 9, 25):
        with packing_process(source, tmp_path / "out", workers=2, samples_per_shard=1, **SMALL) as process:
            wait_for(
                lambda goal=goal, process=process: (
                    len(list((tmp_path / "out").glob("*.zst"))) > goal or process.poll() is not None
                ),
                "shards",
            )
            for pid in [*children_of(process.pid)[:1], process.pid]:
                os.kill(pid, signal.SIGKILL)
            process.communicate(timeout=60)
    assert packed(source, tmp_path / "out", samples_per_shard=1, **SMALL).shards_kept > 9
    assert files_below(tmp_path / "out") == files_below(tmp_path / "straight")


def interrupted(source: Path, out: Path, **options: object) -> None:
    with pytest.raises(Interrupt, match="enough"):
        packed(source, out, samples_per_shard=1, progress=interrupt_after(3), **options)


@pytest.fixture
def begun(tmp_path: Path) -> Path:
    """Ten texts, some of whose shards are written."""
    interrupted(tree(tmp_path / "s", {f"{at}.txt": "x" * 20_000 for at in range(10)}), tmp_path / "out", **SMALL)
    return tmp_path


def test_another_version_of_the_library_does_not_continue(begun, monkeypatch):
    here = frame.encoder()
    monkeypatch.setattr("fastfeed.archive.frame.encoder", lambda: "zstd 9.9.9")
    match = (
        rf"another version of the compression library.*expected {here}, got zstd 9.9.9.*with {here} to continue.*--overwrite"
    )
    with pytest.raises(DestinationOccupied, match=match):
        packed(begun / "s", begun / "out", samples_per_shard=1, **SMALL)
    (note,) = fastfeed.pack(begun / "s", begun / "out", samples_per_shard=1, dry_run=True, **SMALL).notes
    assert "would be refused" in note and "compression library" in note
    result = packed(begun / "s", begun / "out", samples_per_shard=1, overwrite=True, **SMALL)
    assert result.shards_written == 10
    assert manifest_of(begun / "out")["compression"]["encoder"] == "zstd 9.9.9"
    monkeypatch.undo()
    assert packed(begun / "s", begun / "out", samples_per_shard=1, **SMALL).already_packed  # nothing would be written


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "--compress was zstd, now not given; --frame-size was 4.0 KiB, now not given; --level was 3, now not given"),
        ({**SMALL, "level": 4}, "--level was 3, now 4"),
        ({"compress": "zstd"}, "--frame-size was 4.0 KiB, now 256.0 KiB"),
    ],
)
def test_other_options_do_not_continue(begun, options, words):
    with pytest.raises(DestinationOccupied, match=words):
        packed(begun / "s", begun / "out", samples_per_shard=1, **options)


def test_options_that_say_what_is_the_case_anyway_continue(begun):
    result = packed(begun / "s", begun / "out", samples_per_shard=1, level=3, **SMALL)
    assert result.shards_kept >= 3
    assert packed(begun / "s", begun / "out", samples_per_shard=1, **{**SMALL, "frame_bytes": "4KiB"}).already_packed


def test_a_plain_pack_is_not_taken_for_a_compressed_one(tmp_path):
    source = make_captioned(tmp_path / "s")
    packed(source, tmp_path / "out")
    with pytest.raises(DestinationOccupied, match=r"a finished pack with other options .*--compress was not given, now zstd"):
        packed(source, tmp_path / "out", **SMALL)
    packed(source, tmp_path / "out", overwrite=True, **SMALL)
    assert {path.name for path in (tmp_path / "out").iterdir()} == {".fastfeed", "s-000000.tar.zst"}
    packed(source, tmp_path / "out", overwrite=True)
    assert {path.name for path in (tmp_path / "out").iterdir()} == {".fastfeed", "s-000000.tar"}


def test_a_killed_overwrite_of_compressed_shards_leaves_none_of_them(begun):
    """What an unfinished job wrote is known by its names, compressed or not."""
    packed(begun / "s", begun / "out", samples_per_shard=5, overwrite=True)
    assert {path.name for path in (begun / "out").iterdir()} == {".fastfeed", "s-000000.tar", "s-000001.tar"}
    assert fastfeed.verify(begun / "out").ok


def test_a_shard_that_was_cut_after_it_was_finished_is_written_again(begun):
    os.truncate(begun / "out" / "s-000000.tar.zst", 100)
    packed(begun / "s", begun / "out", samples_per_shard=1, **SMALL)
    assert fastfeed.verify(begun / "out").ok


# ------------------------------------------------------------------------------------------------ what is told
def test_the_result_tells_the_ratio_and_who_reads_it(tmp_path):
    source = tree(tmp_path / "s", {f"{at:03d}.txt": "one sentence and another one. " * 20 for at in range(50)})
    result = packed(source, tmp_path / "out", compress="zstd")
    (dataset,) = result.datasets
    assert dataset.size_bytes == (tmp_path / "out" / "s-000000.tar.zst").stat().st_size
    assert dataset.tar_bytes is not None and dataset.size_bytes < dataset.tar_bytes / 10
    assert result.notes == (READERS,)
    for word in (
        "tar --zstd -x",
        "zstd -d",
        "not by webdataset, Hugging Face datasets, DALI, Energon or wids",
        "unpack --shards",
    ):
        assert word in READERS
    again = packed(source, tmp_path / "out", compress="zstd")
    assert again.already_packed and again.datasets[0].size_bytes == dataset.size_bytes and again.notes == (READERS,)


def test_the_plan_tells_the_gain_by_a_probe(tmp_path):
    source = tree(tmp_path / "s", {f"{at:03d}.txt": "one sentence and another one. " * 20 for at in range(50)})
    seen: list[Any] = []
    result = packed(source, tmp_path / "out", compress="zstd", level=5, on_plan=seen.append)
    ratio = result.datasets[0].size_bytes / (result.datasets[0].tar_bytes or 1)
    (line,) = [why for why in seen[0].datasets[0].why if "zstd" in why]
    assert line.startswith("compressed with zstd level 5, as many samples a frame as fit into 256.0 KiB: 0.0")
    assert "of the tar by a probe of" in line and "leave out" not in line
    assert abs(float(line.partition("KiB: ")[2].split()[0]) - ratio) < 0.05
    assert seen[0].datasets[0].size_bytes == seen[0].datasets[0].tar_bytes == result.datasets[0].tar_bytes


def test_a_gain_below_ten_percent_is_told_before_and_after(tmp_path):
    chance = random.Random(2)
    source = tree(tmp_path / "s", {f"{at:03d}.bin": chance.randbytes(30_000) for at in range(10)})
    plan = fastfeed.pack(source, tmp_path / "out", dry_run=True, **SMALL)
    (line,) = [why for why in plan.datasets[0].why if "zstd" in why]
    assert "gains only" in line and "leave out --compress" in line
    result = packed(source, tmp_path / "out", **SMALL)
    weak, readers = result.notes
    assert weak.startswith("s: the compression gains only") and "fastfeed unpack --shards" in weak and readers == READERS


def test_each_split_is_told_by_itself(tmp_path):
    chance = random.Random(2)
    files = {f"train/a/{at}.bin": chance.randbytes(30_000) for at in range(5)} | {
        f"val/a/{at}.bin": bytes(30_000) for at in range(5)
    }
    result = packed(tree(tmp_path / "s", files), tmp_path / "out", **SMALL)
    weak = [note for note in result.notes if "gains" in note]
    assert len(weak) == 1 and weak[0].startswith("train: ")
    assert result.notes.count(READERS) == 1


def test_small_files_in_plain_tars_are_offered_compression(tmp_path):
    source = tree(tmp_path / "s", {f"{at:05d}.txt": "x" for at in range(12_000)})
    (note,) = fastfeed.pack(source, tmp_path / "out", dry_run=True).notes
    assert "its files are small" in note and "--compress zstd" in note
    assert fastfeed.pack(source, tmp_path / "out", dry_run=True, compress="zstd").notes == ()


def test_words_and_facts():
    plain, small = PackConfig(), PackConfig(compress="zstd")
    assert compression_of(plain) is None and encoder_of(plain) == {} and why_compressed(plain) == []
    assert encoder_of(small) == {"encoder": frame.encoder()}
    assert why_compressed(small) == ["compressed with zstd level 3, as many samples a frame as fit into 256.0 KiB"]
    assert "gains nothing" in why_compressed(small, (100, 101))[0] and "gains only 5%" in why_compressed(small, (100, 95))[0]
    assert 0 < LEAST_GAIN < 1 and "leave out" not in why_compressed(small, (100, 80))[0]
    assert notes_of() == notes_of(None) == ()


def test_more_frames_than_the_format_allows_are_refused():
    config = PackConfig(compress="zstd", frame_bytes=4096)
    prove_frames(config, 1 << 37)
    prove_frames(PackConfig(), 1 << 60)
    with pytest.raises(UsageError, match=r"a shard of 1.0 TiB may have more than 134,217,728 frames of 4.0 KiB.*--frame-size"):
        prove_frames(config, 1 << 40)


# ------------------------------------------------------------------------------------------------ other programs
def test_other_readers_get_no_index_files_beside_compressed_shards(tmp_path):
    source = make_captioned(tmp_path / "s")
    match = r"no other reader opens such shards at random.*fastfeed unpack --shards makes plain tars"
    with pytest.raises(UsageError, match=match):
        packed(source, tmp_path / "out", readers=["dali"], **SMALL)
    assert not (tmp_path / "out").exists()
    packed(source, tmp_path / "out", **SMALL)
    with pytest.raises(UsageError, match=match):
        fastfeed.write_sidecars(tmp_path / "out", ["wids"])
    fastfeed.unpack(tmp_path / "out", tmp_path / "plain", shards=True)
    assert fastfeed.write_sidecars(tmp_path / "plain", ["dali"]).written
    assert fastfeed.verify(tmp_path / "plain").ok


def test_gnu_tar_and_zstd_read_it(tmp_path):
    if shutil.which("zstd") is None or shutil.which("tar") is None:
        pytest.skip("there is no zstd or no tar here")
    source = make_photos(tmp_path / "s", each=30)
    packed(source, tmp_path / "out", write_cls=False, **SMALL)
    (tmp_path / "x").mkdir()
    shard = tmp_path / "out" / "s-000000.tar.zst"
    subprocess.run(["tar", "--zstd", "-xf", shard, "-C", tmp_path / "x"], check=True)
    assert files_below(tmp_path / "x") == files_below(source)
    assert subprocess.run(["zstd", "-tq", shard], check=True, capture_output=True).returncode == 0


@pytest.mark.long
def test_packing_plain_tars_loads_no_zstandard(tmp_path):
    source = make_captioned(tmp_path / "s")
    code = (
        "import fastfeed, sys\n"
        "fastfeed.pack(sys.argv[1], sys.argv[2], workers=1)\n"
        "assert fastfeed.verify(sys.argv[2]).ok\n"
        "fastfeed.unpack(sys.argv[2], sys.argv[2] + '-files')\n"
        "fastfeed.open(sys.argv[2])[0]\n"
        "print('zstandard' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, source, tmp_path / "out"], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout == "False\n"


# ------------------------------------------------------------------------------------------------ rows
class Rows:
    """A map-style dataset of captions."""

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"txt": f"caption {index} " * (50 + index), "id": index}


@pytest.mark.parametrize("kind", ["dataset", "iterable", "lines"])
def test_rows_are_compressed_as_files_are(tmp_path, kind):
    rows = Rows()
    lines = tree(tmp_path / "s", {"rows.jsonl": "".join(json.dumps(rows[at]) + "\n" for at in range(40))}) / "rows.jsonl"
    source = {"dataset": Rows, "iterable": lambda: iter([rows[at] for at in range(40)]), "lines": lambda: lines}[kind]
    name = {"name": "rows", "samples_per_shard": 15}
    packed(source(), tmp_path / "plain", **name)
    result = packed(source(), tmp_path / "zst", **name, **SMALL)
    assert result.notes == (READERS,) and "compressed with zstd level 3" in " ".join(result.datasets[0].why)
    dataset = result.datasets[0]
    assert dataset.tar_bytes is not None and dataset.size_bytes < dataset.tar_bytes / 3
    assert tars_in(tmp_path / "zst") == plain_tars(tmp_path / "plain") and len(plain_tars(tmp_path / "plain")) == 3
    assert fastfeed.verify(tmp_path / "zst").ok
    fastfeed.unpack(tmp_path / "zst", tmp_path / "out", shards=True)
    assert files_below(tmp_path / "out") == files_below(tmp_path / "plain")
    one, other = fastfeed.open(tmp_path / "zst"), fastfeed.open(tmp_path / "plain")
    assert [one[at] for at in range(40)] == [other[at] for at in range(40)]


def test_an_interrupted_pack_of_rows_refuses_another_version_of_the_library(tmp_path, monkeypatch):
    with pytest.raises(Interrupt, match="enough"):
        packed(Rows(), tmp_path / "out", name="rows", samples_per_shard=5, progress=interrupt_after(7), **SMALL)
    monkeypatch.setattr("fastfeed.archive.frame.encoder", lambda: "zstd 9.9.9")
    with pytest.raises(DestinationOccupied, match="another version of the compression library"):
        packed(Rows(), tmp_path / "out", name="rows", samples_per_shard=5, **SMALL)
    monkeypatch.undo()
    packed(Rows(), tmp_path / "out", name="rows", samples_per_shard=5, **SMALL)
    packed(Rows(), tmp_path / "straight", name="rows", samples_per_shard=5, **SMALL)
    assert files_below(tmp_path / "out") == files_below(tmp_path / "straight")
