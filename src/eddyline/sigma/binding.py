"""From conditions to rule trees over the columns of events.

What a test means depends on the type of its column: a number in a rule and a text in the events
(or the reverse) still meet. Nothing here raises on a row: casts are those that never fail.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import TYPE_CHECKING

from eddyline.errors import QueryError
from eddyline.query.conditions import (
    TRUE,
    And,
    Compare,
    Constant,
    Is,
    IsNull,
    NativeTest,
    Not,
    Or,
    TextTest,
    ValueTest,
    necessary_tests,
)
from eddyline.sigma.conditions import (
    AllOf,
    AnyOf,
    BooleanIs,
    Exists,
    InNetwork,
    IsEmpty,
    Matches,
    Negated,
    NumberIs,
    SameAs,
    TextIs,
    TimePart,
)
from eddyline.sql.like import ANY, Wild

if TYPE_CHECKING:
    from eddyline.query.conditions import Node
    from eddyline.sigma.conditions import Condition, Leaf
    from eddyline.sigma.fields import Columns, Found
    from eddyline.sql.literals import Scalar
    from eddyline.sql.types import SqlType

_NUMBER = re.compile(r"[+-]?\d{1,30}(\.\d{1,30})?", re.ASCII)
_EXACT = "DECIMAL(38,18)"
"""Type of texts that are compared with numbers: it holds every 64-bit integer exactly."""

_PARTS = {
    "minute": "minute",
    "hour": "hour",
    "day": "dayofmonth",
    "week": "weekofyear",
    "month": "month",
    "year": "year",
}


class Binder:
    """Makes trees over the columns of one input.

    A test of a field that an event does not have is ``null`` or ``false``, as ``missing`` says.
    """

    def __init__(self, columns: Columns, missing: str) -> None:
        self._columns = columns
        self._two_valued = missing == "false"

    def node(self, condition: Condition) -> Node:
        """Return the tree of a condition; the types of fields have to fit their tests."""
        match condition:
            case Negated(part):
                return Not(self.node(part))
            case AllOf(parts):
                return And(tuple(self.node(part) for part in parts))
            case AnyOf(parts):
                return Or(tuple(self.node(part) for part in parts))
        tested = self._leaf(condition)
        if not self._two_valued:
            return tested
        if isinstance(tested, Constant):
            return Constant(bool(tested.value))
        return Is(tested, TRUE)

    def _leaf(self, leaf: Leaf) -> Node:  # noqa: PLR0911 - a case, a return
        if leaf.field is None:
            return self._keyword(leaf)
        found = self._columns.find(leaf.field)
        match leaf:
            case IsEmpty():
                return Constant(True) if found is None else _is_null(found)
            case Exists(_, value):
                if found is None:
                    return Constant(not value)
                return Not(_is_null(found)) if value else _is_null(found)
        if found is None:
            return Constant(None)
        if found.is_nested:
            msg = (
                f"field {leaf.field!r} is of type {found.type_text};"
                " texts, numbers, booleans and times can be tested"
            )
            raise QueryError(msg)
        if isinstance(leaf, SameAs):
            return self._same(found, leaf)
        return test_of(found, leaf)

    def _same(self, found: Found, leaf: SameAs) -> Node:
        other = self._columns.find(leaf.other)
        if other is None:
            return Constant(None)
        if other.is_nested:
            msg = f"field {leaf.other!r} is of type {other.type_text}; it cannot be compared"
            raise QueryError(msg)
        used = tuple(dict.fromkeys((found.column, other.column)))
        if found.type.is_numeric and other.type.is_numeric and not (leaf.starts or leaf.ends):
            return NativeTest(f"{found.sql} = {other.sql}", used)
        texts = f"lower({found.as_text.sql})", f"lower({other.as_text.sql})"
        name = {(True, True): "contains", (True, False): "startswith", (False, True): "endswith"}
        function = name.get((leaf.starts, leaf.ends))
        return NativeTest(
            f"{function}({', '.join(texts)})" if function else " = ".join(texts), used
        )

    def _keyword(self, leaf: Leaf) -> Node:
        """Return whether any text of the event has it; never unknown."""
        match leaf:
            case TextIs(_, parts, cased):
                anywhere = TextIs(None, _anywhere(parts), cased)
                tests = [test_of(found, anywhere) for found in self._columns.texts()]
            case NumberIs(_, _, number):
                anywhere = TextIs(None, _anywhere((str(number),)))
                tests = [test_of(found, anywhere) for found in self._columns.texts()]
                tests += [test_of(found, leaf) for found in self._columns.numbers()]
            case BooleanIs(_, value):
                anywhere = TextIs(None, _anywhere((str(value),)))
                tests = [test_of(found, anywhere) for found in self._columns.texts()]
            case Matches() | InNetwork():
                tests = [test_of(found, leaf) for found in self._columns.texts()]
            case _:
                raise AssertionError(leaf)
        return Is(Or(tuple(tests)), TRUE) if tests else Constant(False)


def _anywhere(parts: tuple[str | Wild, ...]) -> tuple[str | Wild, ...]:
    any_text = Wild(ANY)
    before = () if parts[:1] == (any_text,) else (any_text,)
    after = () if parts[-1:] == (any_text,) else (any_text,)
    return (*before, *parts, *after) if parts else before


def test_of(found: Found, leaf: Leaf) -> Node:  # noqa: PLR0911 - a case, a return
    """Return the test of one value (a text, number, boolean or time)."""
    match leaf:
        case TextIs(_, parts, cased):
            return _text(found, parts, cased)
        case NumberIs(_, op, number):
            return _number(found, op, number)
        case BooleanIs(_, value):
            if found.type.family == "boolean":
                return Compare(found.operand, "=", value)
            if found.type.is_numeric:
                return _number(found, "=", int(value))
            return _text(found, (str(value),), cased=False)
        case Matches(_, pattern, flags):
            # Even one character: without any, every event would be asked.
            needs = necessary_tests(found.as_text, pattern, flags, min_length=1)
            return ValueTest(found.as_text, "regex", pattern, flags, needs)
        case InNetwork(_, network):
            return ValueTest(found.as_text, "cidr", network)
        case TimePart(_, part, number):
            return _time_part(found, part, number)
    raise AssertionError(leaf)


test_of.__test__ = False  # type: ignore[attr-defined]  # not a test, whatever pytest thinks


def _is_null(found: Found) -> Node:
    if found.is_nested:
        return NativeTest(f"{found.sql} IS NULL", (found.column,))
    return IsNull(found.operand)


def _text(found: Found, parts: tuple[str | Wild, ...], cased: bool) -> Node:
    plain = parts[0] if len(parts) == 1 and isinstance(parts[0], str) else None
    if plain is not None and found.type.is_numeric and _NUMBER.fullmatch(plain):
        return Compare(found.operand, "=", _constant(Decimal(plain), found.type))
    if plain is not None and found.type.family == "boolean" and plain.lower() in ("true", "false"):
        return Compare(found.operand, "=", plain.lower() == "true")
    if not cased:
        parts = tuple(part.lower() if isinstance(part, str) else part for part in parts)
    return TextTest(found.as_text, parts, not cased)


def _number(found: Found, op: str, number: int | float) -> Node:
    if op == "!=":
        return Not(_number(found, "=", number))
    if found.type.is_numeric:
        return Compare(found.operand, op, _constant(Decimal(str(number)), found.type))
    if op == "=":
        return _text(found, (str(number),), cased=False)
    text = found.as_text
    value = f"try_cast({text.sql} AS {_EXACT})"
    return NativeTest(f"{value} {op} {_literal(number)}", text.columns)


def _constant(number: Decimal, column: SqlType) -> Scalar:
    if column.family == "float":
        return float(number)
    return int(number) if number == number.to_integral_value() else number


def _literal(number: int | float) -> str:
    """Return a number as SQL: exact where a decimal of Spark can hold it.

    >>> _literal(7), _literal(-0.5), _literal(1e300)
    ('7BD', '-0.5BD', '1e+300D')
    """
    exact = format(Decimal(str(number)), "f")
    return f"{exact}BD" if len(exact.strip("-").replace(".", "")) <= 38 else f"{number!r}D"


def _time_part(found: Found, part: str, number: int) -> Node:
    family = found.type.family
    if found.type.is_numeric or family in ("boolean", "binary"):
        msg = f"{part!r} is a part of a time; {found.sql} is of type {found.type_text}"
        raise QueryError(msg)
    sql = f"try_cast({found.sql} AS TIMESTAMP)" if family == "string" else found.sql
    return NativeTest(f"{_PARTS[part]}({sql}) = {number}", (found.column,))
