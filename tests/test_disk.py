import errno

import pytest

from fastfeed.disk import disk_error, publish, remove, sync_folder


def test_publish_puts_a_file_whole_or_not_at_all(tmp_path):
    part, target = str(tmp_path / "x.part"), tmp_path / "x"
    publish(part, str(target), lambda file: file.write(b"one"))
    with pytest.raises(ValueError, match="half way"):
        publish(part, str(target), half_way)
    assert target.read_bytes() == b"one"
    remove(part)
    remove(part)  # nothing there is fine
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def half_way(file):
    file.write(b"tw")
    raise ValueError("half way")


def test_an_overwritten_file_is_replaced_at_once(tmp_path):
    for content in (b"one", b"two"):

        def write(file, content=content):
            file.write(content)

        publish(str(tmp_path / "x.part"), str(tmp_path / "x"), write)
        assert (tmp_path / "x").read_bytes() == content
        assert not (tmp_path / "x.part").exists()


def test_only_folders_are_flushed(tmp_path):
    sync_folder(str(tmp_path))
    (tmp_path / "x").write_text("x")
    with pytest.raises(NotADirectoryError, match="x"):
        sync_folder(str(tmp_path / "x"))


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS])
def test_a_refusal_says_whether_the_same_command_goes_on(tmp_path, number):
    goes_on, begins_anew = (str(disk_error("x: refused", number, str(tmp_path), continues=told)) for told in (True, False))
    assert "it continues" in goes_on and "anew" not in goes_on
    assert "begins anew" in begins_anew and "continues" not in begins_anew and "Nothing is lost" not in begins_anew
