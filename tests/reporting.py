"""What the tests of the audit's page share: records and results as an audit gives them."""

from collections.abc import Iterable
from html.parser import HTMLParser
from typing import Any

from fastfeed.auditor.finding import Code, Finding
from fastfeed.auditor.record import SampleRecord, StageTime
from fastfeed.auditor.report.gather import Gathered
from fastfeed.auditor.result import AuditResult, Summary


class Reader(HTMLParser):
    """Tags and words of a page, as a browser takes them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words += data


def sample(
    index: int, *, path: str | None = None, kind: str | None = "JPEG", seconds: float = 0.5, **facts: Any
) -> SampleRecord:
    """A sample of 1,000 bytes; a quarter of its time is reading."""
    times = {"read": StageTime(seconds / 4, seconds / 4, 0.0), "decode": StageTime(0.75 * seconds, 0.75 * seconds, 0.0)}
    facts = {"size_bytes": 1000, "width": 40, "height": 30, "mode": "RGB", **facts}
    return SampleRecord(index, path=f"cat/{index}.jpg" if path is None else path, format=kind, times=times, **facts)


def flagged(index: int, *codes: Code, text: str = "as found", **facts: Any) -> SampleRecord:
    """A sample with findings."""
    record = sample(index, **facts)
    record.findings = [Finding(code, text) for code in codes]
    return record


def result_of(records: Iterable[SampleRecord], **facts: Any) -> tuple[AuditResult, Gathered]:
    """What an audit of these gives."""
    summary, gathered = Summary(), Gathered()
    for record in records:
        summary.add(record)
        gathered.add(record)
    own = {"samples": summary.records, "kind": "folder", "complete": True, "report": None, "costs": (), "costliest": (),
           "target": "/data/photos", "what": "a folder of files", "fast": False, "workers": 2, "notes": ("as asked",),
           "seconds": 2.0, "judged": {}, **facts}  # fmt: skip
    sums = summary.facts(others=0, at_most=own.pop("at_most", None))
    return AuditResult(**own, **sums), gathered
