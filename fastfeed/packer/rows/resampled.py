"""The rows of a list, of tables or of tars, some of which an audit's report leaves out or changes."""

from collections.abc import Iterator

from fastfeed.config import ImageConfig
from fastfeed.errors import UsageError
from fastfeed.media import is_image_field
from fastfeed.packer.rows.auditreport import ERROR, Audited, read_report
from fastfeed.packer.rows.files import FileRows
from fastfeed.packer.rows.folder import Place
from fastfeed.packer.rows.images import ReencodedRows
from fastfeed.packer.rows.remedies import BASELINE, Case, Change, LeftAlone, Remedies, concerns, decide
from fastfeed.packer.rows.source import Row, RowFacts, RowMember, RowSource
from fastfeed.packer.rows.treated import TreatedRows
from fastfeed.sample import SkipList, printable

_JPEG_FIELDS = frozenset({"jpg", "jpeg"})


class Resampled:
    """What becomes of a source of rows.

    Args:
        rows: The source: one that can be read in this process.
        images: What was asked for.
        report: JSONL file of an audit of the same source.

    Raises:
        UsageError: The report cannot be read, or is one of something else.
    """

    def __init__(self, rows: RowSource, images: ImageConfig, report: str) -> None:
        self._inner, self._images, self._facts = rows, images, rows.facts()
        self._remedies = Remedies()
        self._numbers = {name: number for number in range(self._facts.count) for name in _called(rows, self._facts, number)}
        flagged = self._flagged(report)
        numbers = sorted(flagged)
        for number, row in zip(numbers, rows.rows(numbers), strict=True):
            if isinstance(row, Row):  # else packing itself says why it cannot be read
                self._decide(number, row, flagged[number])
            elif flagged[number].code_of(ERROR) is not None:
                self._remedies.excluded[self._facts.name(number)] = str(flagged[number].code_of(ERROR))

    def _flagged(self, report: str) -> dict[int, Audited]:
        """What the report flags, by number."""
        flagged, known = dict[int, Audited](), 0
        for audited in read_report(report):
            number = self._numbers.get(audited.path) if audited.path is not None else None
            known += number is not None
            if audited.path is not None and number is None:
                self._remedies.missing.append(audited.path)
            elif number is not None and concerns(audited):
                flagged[number] = audited
        if not known:
            msg = "the audit report has no sample of this source"
            hint = "Audit what is packed, with the same options: samples are known by the names that the report has."
            raise UsageError(msg, path=report, expected=f"such as {printable(self._facts.name(0))}", hint=hint)
        return flagged

    def _decide(self, number: int, row: Row, audited: Audited) -> None:
        """Left out, changed, or left as it is."""
        found, name, code = self._remedies, self._facts.name(number), audited.code_of(ERROR)
        size = sum(len(member.data) for member in self._audited_members(row))
        if audited.size_bytes not in {None, size}:
            found.differing.append(f"{name} ({audited.size_bytes:,} bytes then, {size:,} now)")
            return
        if code is not None:
            found.excluded[name] = code
            return
        images = [member for member in row.members if is_image_field(member.field)]
        first = (images or row.members)[0]
        others = tuple(member.field for member in row.members if member is not first)
        case = Case(name, audited, Place(name, first.field, others), lambda: first.data)
        decide(found, case, self._images, set())
        self._keep_what_is_unsure(case, images)

    def _audited_members(self, row: Row) -> list[RowMember]:
        """Those that the audit has seen: of a list its files, and not the row's JSON that is added to them."""
        return [member for member in row.members if member.source or not isinstance(self._inner, FileRows)]

    def _keep_what_is_unsure(self, case: Case, images: list[RowMember]) -> None:
        """A report tells of a sample, not of which of its images; and a field is called for what is in it."""
        change = self._remedies.changes.get(case.path)
        why = ""
        if change is not None and len(images) > 1:
            why = "it has several images, and the report does not tell which"
        elif change is not None and change.what == BASELINE and not case.audited.is_jpeg:
            field = case.place.field
            why = "" if field.rpartition(".")[2] in _JPEG_FIELDS else f"its field is called {field}, and would hold a JPEG"
        if change is not None and why:
            del self._remedies.changes[case.path]
            left = self._remedies.left.setdefault((change.code, why), LeftAlone(change.code, why, []))
            left.paths.append(case.path)

    def rows(self) -> RowSource:
        """The samples, with what is done to some."""
        by_number: dict[int, Change] = {self._numbers[name]: change for name, change in self._remedies.changes.items()}
        treated = TreatedRows(self._inner, self._remedies, self._images, by_number=by_number, known=self._facts)
        if not self._images.jpeg_rows:
            return treated
        return ReencodedRows(treated, ImageConfig(jpeg_rows=True, only_field=self._images.only_field))

    def options(self) -> dict[str, object]:
        """What a rerun must find equal besides the options themselves."""
        return {"from_audit": self._remedies.record()}

    def excluded(self, given: SkipList) -> SkipList:
        """What is left out: what a skip list names, and what the report calls an error."""
        return SkipList([*given.entries, *self._remedies.entries()])


def _called(rows: RowSource, facts: RowFacts, number: int) -> Iterator[str]:
    """What an audit may call a sample: its name; of a list of several fields the path of any of its files."""
    yield facts.name(number)
    if isinstance(rows, FileRows):
        yield from rows.sources(number)
