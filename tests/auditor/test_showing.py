import os
import time

import pytest
from auditing import children
from helpers import make_photos
from reporting import flagged, result_of

from fastfeed.auditor import showing
from fastfeed.auditor.looking.filecodes import EMPTY
from fastfeed.auditor.record import SampleRecord
from fastfeed.auditor.running import child
from fastfeed.auditor.running.codes import CRASH, CRASH_ONCE, HANG
from fastfeed.auditor.running.crew import Crew
from fastfeed.auditor.running.limits import Limits
from fastfeed.auditor.running.process import starter
from fastfeed.auditor.running.targets import find_target
from fastfeed.auditor.showing import thumbnails_of, write_page
from fastfeed.errors import DestinationError


class Pictures:
    """Samples whose thumbnails are their positions."""

    count = 40

    def __init__(self, does):
        self.does = does

    def load(self, index, how):
        assert how.thumbnail
        self.does(index)
        return SampleRecord(index, thumbnail=str(index))


@pytest.fixture
def crew_of(monkeypatch):
    monkeypatch.setattr(child, "subject_of", lambda dataset, _: dataset)

    def make(does, **limits):
        return Crew(starter({"live": True}, Pictures(does)), {"live": True}, count=2, limits=Limits(**limits))

    return make


@pytest.mark.long
def test_an_image_that_kills_or_stops_a_decoder_has_no_thumbnail_and_all_others_have(crew_of):
    def does(index):
        if index == 3:
            os.abort()
        if index == 5:
            time.sleep(1000)

    found, notes = thumbnails_of([flagged(at, CRASH_ONCE) for at in range(12)], crew_of(does, kill_seconds=1.0))
    assert found == {at: str(at) for at in range(12) if at not in {3, 5}}
    assert notes == [] and not children()


def test_where_all_of_them_kill_it_is_said(crew_of):
    found, notes = thumbnails_of([flagged(at, CRASH_ONCE) for at in range(12)], crew_of(lambda _: os._exit(3)))
    assert found == {}
    assert notes == ["some thumbnails are missing: samples ended the processes that made them"]
    assert not children()


def test_those_that_killed_a_process_and_those_that_are_no_image_are_not_loaded(crew_of, tmp_path):
    def does(index):
        (tmp_path / str(index)).touch()

    rows = [flagged(0, CRASH), flagged(1, HANG, CRASH_ONCE), flagged(2, CRASH_ONCE), flagged(3, EMPTY, kind=None),
            flagged(4, CRASH_ONCE, kind="text"), flagged(5, CRASH_ONCE, kind="data")]  # fmt: skip
    assert thumbnails_of(rows, crew_of(does)) == ({2: "2"}, [])
    assert [path.name for path in tmp_path.iterdir()] == ["2"]


def test_number_bytes_and_time_are_bounded(crew_of, monkeypatch):
    rows = [flagged(at, CRASH_ONCE) for at in range(40)]
    monkeypatch.setattr(showing, "MOST_THUMBNAILS", 5)
    found, notes = thumbnails_of(rows, crew_of(lambda _: None))
    assert sorted(found) == [0, 1, 2, 3, 4]
    assert notes == ["thumbnails were made of the first 5 of 40 flagged images"]
    monkeypatch.setattr(showing, "MOST_BYTES", 3)
    assert len(thumbnails_of(rows, crew_of(lambda _: None))[0]) == 3
    monkeypatch.setattr(showing, "MOST_SECONDS", -1.0)
    assert thumbnails_of(rows, crew_of(lambda _: None))[0] == {}


def test_of_files(tmp_path):
    folder = make_photos(tmp_path / "photos")
    target = find_target(folder)
    crew = Crew(starter(target.spec, None), target.spec, count=1, limits=Limits())
    result, gathered = result_of(flagged(at, CRASH_ONCE) for at in range(6))
    write_page(str(tmp_path / "page.html"), result, gathered, crew)
    assert (tmp_path / "page.html").read_text().count('<img src="data:image/jpeg;base64,/9j/') == 6
    write_page(str(tmp_path / "page.html"), result, gathered, None)
    assert "<img" not in (tmp_path / "page.html").read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["page.html", "photos"]


def test_a_place_that_cannot_be_written(tmp_path):
    result, gathered = result_of([])
    with pytest.raises(DestinationError, match="No such file"):
        write_page(str(tmp_path / "none" / "page.html"), result, gathered, None)
    assert not list(tmp_path.iterdir())
