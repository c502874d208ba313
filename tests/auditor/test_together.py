import io
import tarfile

from fastfeed.auditor.record import SampleRecord
from fastfeed.auditor.together import Together, of_tars

DIGESTS = [f"{number:032x}" for number in range(1, 100)]


def codes(together):
    found: dict[int, list[str]] = {}
    for index, finding in together.found(lambda index: f"sample {index}"):
        found.setdefault(index, []).append(finding.code.name)
    return found


def test_equal_bytes():
    together = Together(names=False)
    for index, (digest, label) in enumerate([(0, "cat"), (1, "cat"), (0, "dog"), (1, "cat")]):
        together.add(SampleRecord(index, digest=DIGESTS[digest], label=label, path=f"{index}.exe"))
    found = codes(together)
    assert found == {0: ["duplicate-across-classes"], 2: ["duplicate-across-classes"], 3: ["duplicate"]}


def test_names_matter_in_folders_alone():
    records = [SampleRecord(0, path="a.jpg", format="JPEG"), SampleRecord(1, path="A.jpg", format="JPEG"),
               SampleRecord(2, path="b.jfif", format="JPEG"), SampleRecord(3, path="c.jfif", format="data")]  # fmt: skip
    folder, packed = Together(names=True), Together(names=False)
    for record in records:
        folder.add(record)
        packed.add(record)
    assert codes(folder) == {0: ["name-case-clash"], 1: ["name-case-clash"], 2: ["left-out-by-imagefolder"]}
    assert codes(packed) == {}


def test_texts_of_odd_lengths():
    together = Together(names=False)
    for index in range(50):
        length = 100_000 if index == 7 else 100 + index
        together.add(SampleRecord(index, characters=length, tokens=9000 if index in {7, 9} else 20))
    assert codes(together) == {7: ["text-length-outlier", "text-tokens-outlier"], 9: ["text-tokens-outlier"]}


def test_without_a_tokenizer_there_are_characters_alone():
    together = Together(names=False)
    for index in range(50):
        together.add(SampleRecord(index, characters=100_000 if index == 7 else 100 + index))
    together.add(SampleRecord(50, format="JPEG"))
    assert codes(together) == {7: ["text-length-outlier"]}


def test_classes():
    together = Together(names=False)
    for index in range(301):
        together.add(SampleRecord(index, label="few" if index == 300 else f"class {index % 3}"))
    assert [(name, found.code.name) for name, found in together.of_set()] == [("classes", "class-tiny")]


def test_a_class_without_a_sample():
    together = Together(names=False)
    for index in range(30):
        together.add(SampleRecord(index, label=f"class {index % 3}"))
    folders = frozenset({(None, "class 0"), (None, "class 1"), (None, "class 2"), (None, "none")})
    assert [(found.code.name, found.text) for _, found in together.of_set(folders)] == [("class-empty", "none")]
    assert list(together.of_set()) == []


def test_a_tar_that_is_cut(tmp_path):
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as tar:
        for number in range(3):
            info = tarfile.TarInfo(f"{number}.txt")
            info.size = 600
            tar.addfile(info, io.BytesIO(bytes(600)))
    assert [found.code.name for _, found in of_tars([str(path)])] == []
    path.write_bytes(path.read_bytes()[:2000])
    found = list(of_tars([str(path)]))
    assert {name for name, _ in found} == {str(path)} and "tar-cut" in [finding.code.name for _, finding in found]
