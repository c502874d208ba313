"""Conditions on columns as text: "width >= 256 and label in (1, 2) and not caption.startswith('a photo')".

The text is Python's syntax, parsed with ast and worked out by this module, node by node, on whole columns; nothing is ever
compiled or run, and what is not listed here is refused:

===========================================  ====================================================================
names                                        columns; with a dot ``x.size``, ``extra.size``; ``col("any name")``,
                                             ``col("size", "txt")`` of the member of a field
numbers, strings, True, False                themselves
``== != < <= > >=``, also chained            numbers with numbers, text with text (by code points)
``in (1, 2)``, ``not in ["a", "b"]``         a list of constants
``"dog" in caption``                         text within text
``and or not & | ^ ~``                       of true and false only
``+ - * / // %``, ``abs(x)``                 of numbers
``len(text)``, ``lower(text)``               characters; lower case
``text.startswith(s) .endswith(s)            of text; s a constant
.contains(s) .lower()``
``missing(column)``                          NaN, or the empty text
===========================================  ====================================================================

A missing number is NaN: every comparison with it is false, only ``!=`` and ``not in`` are true, so ``not (x > 3)`` is true
where x is missing; ``missing(x)`` asks. Whole numbers are int64 here and never wrap around: what could leave int64 is refused.
"""

import ast
import difflib
import operator
import os
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, Unpack

import numpy as np
from numpy.typing import NDArray

from fastfeed.errors import Facts, UsageError
from fastfeed.feed.textrows import TextRows

Array = NDArray[Any]
Value = Array | TextRows | int | float | str | bool
Column = Callable[[str, str | None], Array | TextRows]
"""A column by name and field; KeyError if there is no such name."""

_MAX_CHARACTERS = 10_000
_INT64 = range(-(1 << 63), 1 << 63)
_RELATIONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}  # fmt: skip
_MIRRORED = {
    operator.eq: operator.eq, operator.ne: operator.ne, operator.lt: operator.gt, operator.le: operator.ge,
    operator.gt: operator.lt, operator.ge: operator.le,
}  # fmt: skip
_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
}  # fmt: skip
_BITWISE: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.BitAnd: operator.and_, ast.BitOr: operator.or_, ast.BitXor: operator.xor,
}  # fmt: skip


def evaluate(text: str, column: Column, names: Sequence[str], rows: int) -> NDArray[np.bool_]:
    """Where a condition holds.

    Args:
        text: The condition.
        column: Gives a column by name and field.
        names: Of the columns, for messages.
        rows: Of each column.

    Returns:
        A truth value for each row.

    Raises:
        UsageError: The text is no such condition; the message says what in it is wrong.
    """
    if len(text) > _MAX_CHARACTERS:
        msg = f"a condition has at most {_MAX_CHARACTERS} characters"
        raise UsageError(msg, got=len(text), hint="Give a mask or an array of positions instead.")
    working = _Working(text, column, names)
    try:
        tree = _parsed(text)
        with np.errstate(all="ignore"):  # NaN and infinity are answers here
            value = working.value(tree.body)
    except SyntaxError as error:
        msg = f"the condition cannot be read: {error.msg}"
        raise UsageError(msg, got=repr(text), hint='Write it as in where("width >= 256 and label == 3").') from error
    except (RecursionError, MemoryError, OverflowError, ValueError) as error:
        if isinstance(error, UsageError):
            raise
        msg = f"the condition cannot be worked out: {str(error) or type(error).__name__}"
        raise UsageError(msg, got=repr(text[:200])) from error
    if _kind(value) != "true or false":
        msg = f"the condition gives {_kind(value)}, not true or false"
        raise UsageError(msg, got=repr(text), hint="Compare it with something.")
    return np.broadcast_to(np.asarray(value, dtype=np.bool_), (rows,))


def _parsed(text: str) -> ast.Expression:
    """The syntax tree; a SyntaxError also for what Python only warns of, at a line of a file that there is not."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return ast.parse(text.strip(), mode="eval")


def _kind(value: Value) -> str:
    """Of a value, in words."""
    if isinstance(value, TextRows | str):
        return "text"
    if isinstance(value, bool | np.bool_) or (isinstance(value, np.ndarray) and value.dtype.kind == "b"):
        return "true or false"
    return "a number"


class _Working:
    """One condition, worked out from its leaves up."""

    def __init__(self, text: str, column: Column, names: Sequence[str]) -> None:
        self.text, self._column, self._names = text, column, names
        self._known: dict[tuple[str, str | None], Array | TextRows] = {}

    def value(self, node: ast.expr) -> Value:
        """What a node gives."""
        work = _NODES.get(type(node))
        if work is None:
            self.refuse(f"a condition cannot hold {_article(type(node).__name__)}", node)
        return work(self, node)

    def refuse(self, what: str, node: ast.AST, **facts: Unpack[Facts]) -> NoReturn:
        """Raise, with the part of the condition that is wrong."""
        part = ast.get_source_segment(self.text.strip(), node) or self.text
        whole = "" if part == self.text.strip() else f" of the condition {self.text!r}"
        facts["got"] = f"{part!r}{whole}"
        raise UsageError(what, **facts)

    # ------------------------------------------------------------------------------------------------ leaves
    def constant(self, node: ast.Constant) -> Value:
        """A number, a string, True or False."""
        if not isinstance(node.value, bool | int | float | str):
            self.refuse(
                "a condition holds numbers, strings, True and False", node, hint="For missing values ask missing(name)."
            )
        return node.value

    def name(self, node: ast.Name) -> Value:
        """A column."""
        return self.column(node.id, None, node)

    def dotted(self, node: ast.Attribute) -> Value:
        """A column whose name has dots."""
        return self.column(self._path(node), None, node)

    def _path(self, node: ast.expr) -> str:
        if isinstance(node, ast.Attribute):
            return f"{self._path(node.value)}.{node.attr}"
        if not isinstance(node, ast.Name):
            self.refuse("a dot stands only in the name of a column, or before a function of text", node)
        return node.id

    def column(self, name: str, field: str | None, node: ast.AST) -> Value:
        """A column, looked up once."""
        if (name, field) not in self._known:
            try:
                self._known[name, field] = self._column(name, field)
            except KeyError:
                near = difflib.get_close_matches(name, self._names, 1)
                facts: Facts = {"expected": f"one of {', '.join(self._names)}"}
                if near:
                    facts["hint"] = f"Did you mean {near[0]}?"
                self.refuse(f"there is no column {name!r}", node, **facts)
        return self._known[name, field]

    # ------------------------------------------------------------------------------------------------ true and false
    def truth(self, node: ast.expr, word: str) -> Any:  # noqa: ANN401 - a mask, or True or False
        """A node's value, which must be true or false."""
        value = self.value(node)
        if _kind(value) != "true or false":
            hint = "Compare it with something."
            if word in {"&", "|", "^"}:
                hint = f"Comparisons beside {word} need parentheses: (a > 1) {word} (b > 2)."
            self.refuse(f"{word} joins true and false, and this is {_kind(value)}", node, hint=hint)
        return value

    def joined(self, node: ast.BoolOp) -> Value:
        """And, or."""
        word, join = ("and", np.logical_and) if isinstance(node.op, ast.And) else ("or", np.logical_or)
        result = self.truth(node.values[0], word)
        for part in node.values[1:]:
            result = join(result, self.truth(part, word))
        return result  # type: ignore[no-any-return]

    def unary(self, node: ast.UnaryOp) -> Value:
        """Not, ~, + and -."""
        if isinstance(node.op, ast.Not | ast.Invert):
            return np.logical_not(self.truth(node.operand, "not" if isinstance(node.op, ast.Not) else "~"))  # type: ignore[no-any-return]
        number = self.number(node.operand)
        return number if isinstance(node.op, ast.UAdd) else self.bounded(operator.sub, 0, number, node)

    # ------------------------------------------------------------------------------------------------ comparisons
    def compared(self, node: ast.Compare) -> Value:
        """One comparison, or a chain of them."""
        result: Any = True
        left, place = self.value(node.left), node.left
        for relation, after in zip(node.ops, node.comparators, strict=True):
            if isinstance(relation, ast.In | ast.NotIn):
                if len(node.ops) > 1:
                    self.refuse("'in' stands in no chain of comparisons", node, hint="Use parentheses.")
                return self._within(left, place, after, negated=isinstance(relation, ast.NotIn))
            if type(relation) not in _RELATIONS:
                self.refuse(
                    f"a condition cannot hold {_article(type(relation).__name__)}", node, hint="Use == or missing(name)."
                )
            right = self.value(after)
            result = np.logical_and(result, self._related(_RELATIONS[type(relation)], left, right, node))
            left, place = right, after
        return result  # type: ignore[no-any-return]

    def _related(self, relation: Callable[[Any, Any], Any], left: Value, right: Value, node: ast.AST) -> Any:  # noqa: ANN401
        if (_kind(left) == "text") != (_kind(right) == "text"):
            self.refuse(
                f"{_kind(left)} is compared with {_kind(right)}", node, hint="Text is written in quotes, a number is not."
            )
        if isinstance(left, TextRows):
            return left.compared(relation, os.fsencode(right) if isinstance(right, str) else right)  # type: ignore[arg-type]
        if isinstance(right, TextRows):
            assert isinstance(left, str)
            return right.compared(_MIRRORED[relation], os.fsencode(left))
        return relation(_signed(left), _signed(right))

    def _within(self, left: Value, place: ast.expr, after: ast.expr, *, negated: bool) -> Value:
        """``x in (1, 2)``, or ``"a" in text``."""
        if isinstance(after, ast.Tuple | ast.List | ast.Set):
            found: Any = False
            wanted = [self.value(item) for item in after.elts]
            for item, value in zip(after.elts, wanted, strict=True):
                if isinstance(value, TextRows | np.ndarray):
                    self.refuse("what stands behind 'in' is a list of numbers and strings", item)
                if (_kind(value) == "text") != (_kind(left) == "text"):
                    self.refuse(f"{_kind(left)} is looked up among {_kind(value)}", item)
            if isinstance(left, np.ndarray):
                found = _is_in(left, wanted)
            else:
                for value in wanted:
                    found = np.logical_or(found, self._related(operator.eq, left, value, place))
        else:
            found = self._contains(self.value(after), left, after)
        return np.logical_not(found) if negated else found  # type: ignore[no-any-return]

    def _contains(self, within: Value, text: Value, node: ast.AST) -> Any:  # noqa: ANN401
        if not isinstance(text, str) or not isinstance(within, TextRows | str):
            self.refuse("'in' takes a list in parentheses, or a string in quotes before it and text behind it", node)
        return text in within if isinstance(within, str) else within.contains(os.fsencode(text))

    # ------------------------------------------------------------------------------------------------ numbers
    def number(self, node: ast.expr) -> Any:  # noqa: ANN401 - an array or a number
        """A node's value, which must be a number; truth values count 1 and 0."""
        value = self.value(node)
        if isinstance(value, TextRows | str):
            self.refuse("text is no number", node)
        if isinstance(value, np.ndarray):
            return value.astype(np.int64) if value.dtype.kind in "bi" or value.dtype.itemsize < 8 else _signed(value)  # noqa: PLR2004
        return int(value) if isinstance(value, bool) else value

    def arithmetic(self, node: ast.BinOp) -> Value:
        """``+ - * / // %`` of numbers, ``& | ^`` of truth values."""
        kind = type(node.op)
        if kind in _BITWISE:
            word = {ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^"}[kind]
            return _BITWISE[kind](self.truth(node.left, word), self.truth(node.right, word))  # type: ignore[no-any-return]
        if kind not in _ARITHMETIC:
            self.refuse(f"a condition cannot hold {_article(kind.__name__)}", node)
        return self.bounded(_ARITHMETIC[kind], self.number(node.left), self.number(node.right), node)

    def bounded(self, work: Callable[[Any, Any], Any], left: Any, right: Any, node: ast.AST) -> Value:  # noqa: ANN401
        """Work with two numbers that neither leaves int64 nor divides a whole number by zero."""
        if all(isinstance(x, int) or (isinstance(x, np.ndarray) and x.dtype.kind in "iu") for x in (left, right)):
            if work in {operator.floordiv, operator.mod, operator.truediv} and bool(np.any(np.equal(right, 0))):
                self.refuse("a whole number is divided by zero", node)
            if work in {operator.add, operator.sub, operator.mul}:
                ends = [work(a, b) for a in _ends(left) for b in _ends(right)]
                if not all(end in _INT64 for end in ends):
                    self.refuse("whole numbers here may leave int64", node, hint="Multiply one of them by 1.0.")
        elif isinstance(left, int | float) and isinstance(right, int | float) and right == 0:
            left = np.float64(left)  # infinity or NaN, as in a column
        return work(left, right)  # type: ignore[no-any-return]

    # ------------------------------------------------------------------------------------------------ functions
    def called(self, node: ast.Call) -> Value:
        """One of the functions listed above."""
        if node.keywords or any(isinstance(argument, ast.Starred) for argument in node.args):
            self.refuse("functions here take plain arguments", node)
        if isinstance(node.func, ast.Attribute):
            method = _METHODS.get(node.func.attr)
            if method is None:
                self.refuse(f"text has no function {node.func.attr!r} here", node, expected=f"one of {', '.join(_METHODS)}")
            return method(self, node, [node.func.value, *node.args])
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name not in _FUNCTIONS:
            self.refuse("there is no such function here", node, expected=f"one of {', '.join(_FUNCTIONS)}")
        return _FUNCTIONS[name](self, node, node.args)

    def rows_of_text(self, node: ast.expr) -> TextRows:
        """A node's value, which must be a column of text."""
        value = self.value(node)
        if not isinstance(value, TextRows):
            self.refuse(f"this function is for columns of text, and this is {_kind(value)}", node)
        return value

    def arguments(self, node: ast.Call, given: Sequence[ast.expr], count: int) -> Sequence[ast.expr]:
        """The arguments, as many as there must be."""
        if len(given) != count:
            self.refuse("the function takes another number of arguments", node)
        return given

    def search(self, node: ast.Call, given: Sequence[ast.expr], find: Callable[[TextRows, bytes], Array]) -> Value:
        """A search for a constant in a column of text."""
        column, wanted = self.arguments(node, given, 2)
        text = self.value(wanted)
        if not isinstance(text, str):
            self.refuse("what is searched for is a string in quotes", wanted)
        return find(self.rows_of_text(column), os.fsencode(text))


def _col(working: _Working, node: ast.Call, given: Sequence[ast.expr]) -> Value:
    texts = [part.value for part in given if isinstance(part, ast.Constant) and isinstance(part.value, str)]
    if len(texts) != len(given) or len(texts) not in {1, 2}:
        working.refuse("col takes the name of a column in quotes, and perhaps that of a field", node)
    return working.column(texts[0], texts[1] if len(texts) > 1 else None, node)


def _missing(working: _Working, node: ast.Call, given: Sequence[ast.expr]) -> Value:
    (argument,) = working.arguments(node, given, 1)
    value = working.value(argument)
    if isinstance(value, TextRows):
        return value.equal(b"")
    if isinstance(value, int):
        return False  # numpy takes no whole number beyond int64
    return np.isnan(value) if not isinstance(value, str) else not value


def _lower(working: _Working, node: ast.Call, given: Sequence[ast.expr]) -> Value:
    return working.rows_of_text(working.arguments(node, given, 1)[0]).lowered()


def _abs(working: _Working, node: ast.Call, given: Sequence[ast.expr]) -> Value:
    value = working.number(working.arguments(node, given, 1)[0])
    working.bounded(operator.sub, 0, value, node)  # the smallest int64 has no counterpart
    return np.abs(value)  # type: ignore[no-any-return]


_FUNCTIONS: dict[str, Callable[[_Working, ast.Call, Sequence[ast.expr]], Value]] = {
    "abs": _abs,
    "col": _col,
    "len": lambda working, node, given: working.rows_of_text(working.arguments(node, given, 1)[0]).lengths(),
    "lower": _lower,
    "missing": _missing,
}
_METHODS: dict[str, Callable[[_Working, ast.Call, Sequence[ast.expr]], Value]] = {
    "contains": lambda working, node, given: working.search(node, given, TextRows.contains),
    "endswith": lambda working, node, given: working.search(node, given, TextRows.ends_with),
    "lower": _lower,
    "startswith": lambda working, node, given: working.search(node, given, TextRows.starts_with),
}
_NODES: dict[type[ast.expr], Callable[[_Working, Any], Value]] = {
    ast.Constant: _Working.constant, ast.Name: _Working.name, ast.Attribute: _Working.dotted, ast.BoolOp: _Working.joined,
    ast.UnaryOp: _Working.unary, ast.Compare: _Working.compared, ast.BinOp: _Working.arithmetic, ast.Call: _Working.called,
}  # fmt: skip


def _signed(value: Any) -> Any:  # noqa: ANN401 - an array or a number
    """uint64 as int64 where it fits: numpy makes float64 of the two together."""
    if isinstance(value, np.ndarray) and value.dtype == np.uint64 and (not len(value) or int(value.max()) in _INT64):
        return value.view(np.int64)
    return value


def _ends(value: Any) -> tuple[int, int]:  # noqa: ANN401 - an array or a number
    """The smallest and the largest."""
    if isinstance(value, int):
        return value, value
    return (int(value.min()), int(value.max())) if len(value) else (0, 0)


def _is_in(left: Array, wanted: Sequence[Any]) -> NDArray[np.bool_]:
    """Which of the numbers are among some; each compared by itself where they are few, or no array of one type holds them."""
    few = 16
    whole = all(isinstance(value, int) and value in _INT64 for value in wanted)
    if len(wanted) > few and whole and left.dtype.kind in "iu":
        return np.isin(_signed(left), np.array(wanted, dtype=np.int64))
    found = np.zeros(len(left), dtype=np.bool_)
    for value in wanted:
        found |= _signed(left) == value
    return found


def _article(name: str) -> str:
    return f"{'an' if name[0] in 'AEIOU' else 'a'} {name}"
