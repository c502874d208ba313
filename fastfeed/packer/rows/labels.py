"""What a source calls a class, as its number; whatever is no class is refused where the sample is read, not at the end."""

import operator
from collections.abc import Iterable, Mapping, Sequence

from fastfeed.archive.shard import CLASS_FIELD
from fastfeed.errors import UsageError
from fastfeed.packer.rows.kinds import is_index
from fastfeed.packer.rows.source import Row
from fastfeed.packer.rows.values import Encoded, Names

MAX_NUMBERED_CLASSES = 1 << 20
"""Without names the classes are "0" up to the largest number: more of them are no classes but a quantity."""
_NO_CLASS = -1


class LabelReader:
    """From what a source calls a class to its number.

    Args:
        classes: Names by number, None where labels are numbers.
        labelled: Whether each sample must have a class (True) or none may (False); None while that is not known.
    """

    def __init__(self, classes: Sequence[str] | None, *, labelled: bool | None = None) -> None:
        self._numbers = None if classes is None else {name: number for number, name in enumerate(classes)}
        self.labelled = labelled

    def settle(self, numbers: Sequence[int | None]) -> None:
        """Some samples' classes tell whether all have one."""
        with_class = sum(number is not None for number in numbers)
        if with_class in {0, len(numbers)}:
            self.labelled = with_class > 0
            return
        at = next(at for at, number in enumerate(numbers) if number is None)
        msg = f"{len(numbers) - with_class} of {len(numbers)} samples that were looked at have no class, and the others have"
        hint = "Give every sample a class, or none: keep the number as a column under another name."
        raise UsageError(msg, got=f"sample {at} of those has none", hint=hint)

    def number(self, value: object) -> int | None:
        """The class number; None for a missing class (None, or -1 as Hugging Face has it).

        Raises:
            UsageError: It is neither a number nor a known name, or missing where others have one.
        """
        number = self._number(value)
        if number is None and self.labelled:
            msg = "it has no class, and the samples that were looked at first have one"
            raise UsageError(msg, got=repr(value), hint="Give every sample a class, or none.")
        if number is not None and self.labelled is False:
            msg = f"it has the class {value!r}, and the samples that were looked at first have none"
            raise UsageError(msg, got=repr(value), hint="Give every sample a class, or none.")
        return number

    def _number(self, value: object) -> int | None:
        if value is None:
            return None
        if isinstance(value, str):
            return self._of_name(value)
        if not isinstance(value, bool) and not is_index(value):
            msg = f"the class {str(value)[:80]!r} is no whole number"
            hint = "Keep it as a column under another name, or give whole numbers or the names of the classes."
            raise UsageError(msg, expected="a whole number from 0, or a name", got=type(value).__qualname__, hint=hint)
        number = operator.index(value)  # type: ignore[arg-type] # is_index says so
        most = MAX_NUMBERED_CLASSES if self._numbers is None else len(self._numbers)
        if number != _NO_CLASS and not 0 <= number < most:
            known = "classes are numbered from 0" if number < 0 else f"there are {most:,} classes at most"
            msg = f"the class {number} is none: {known}"
            hint = "Keep the number as a column under another name, or name all the classes (classes=)."
            raise UsageError(msg, expected=f"0 to {most - 1}", got=number, hint=hint)
        return None if number == _NO_CLASS else number

    def _of_name(self, name: str) -> int:
        if self._numbers is not None and name in self._numbers:
            return self._numbers[name]
        if self._numbers is None:
            msg = f"the class is the text {name[:80]!r}, and nothing says which number it is"
            hint = "Give the names of all classes in the order of their numbers: classes=[...], or --classes FILE."
        else:
            msg = f"the class {name[:80]!r} is not among the {len(self._numbers)} names that are known"
            hint = "Add it to classes=, or mend the sample."
        raise UsageError(msg, expected="a known name", got=repr(name[:80]), hint=hint)


def keep_unlabelled(names: Names, labels: LabelReader, rows: Iterable[Mapping[str, object]]) -> bool:
    """Where no sample that was looked at has a class and some say so by -1, that value stays, as a typed column.

    Args:
        names: Gets the column.
        labels: Settled.
        rows: Those that were looked at.

    Returns:
        Whether there is such a column, so that rows encoded before have not its value.
    """
    name = names.label if names.label is not None else CLASS_FIELD
    if labels.labelled or not any(is_index(row.get(name)) for row in rows):
        return False
    if name not in (names.columns or ()):
        names.columns = [*(names.columns or ()), name]
    names.why.append(f"column {name!r} is no class, but a typed column: it is {_NO_CLASS} in every sample that was looked at")
    return True


def to_row(encoded: Encoded, labels: LabelReader, key: str | None = None) -> Row:
    """A row from its values.

    Raises:
        UsageError: Its class is none.
    """
    return Row(encoded.members, labels.number(encoded.label), encoded.scalars or None, key)
