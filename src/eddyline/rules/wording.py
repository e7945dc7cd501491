"""Tests, attributes and regions of a program in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eddyline.query.conditions import FunctionTest, TextTest, ValueTest
from eddyline.rules.compile.regions import HIGHEST, LOWEST, value_of
from eddyline.sql.regexes import ANY

if TYPE_CHECKING:
    from eddyline.rules.compile.program import Program
    from eddyline.rules.compile.regions import RegionConstruct

MAX_CONSTANTS = 4
"""Texts of one region that are named."""


def construct_name(program: Program, construct: RegionConstruct) -> str:
    """Return the column or expression whose regions or errors a construct tells apart."""
    error = program.errors.get(construct.operand.sql)
    return _region_name(construct) if error is None else f"errors of {error.text}"


def column_name(sql: str, *, folded: bool) -> str:
    """Return a column or expression, in lower case if it is folded."""
    return f"lower({sql})" if folded else sql


def _region_name(construct: RegionConstruct) -> str:
    return column_name(construct.operand.sql, folded=construct.folded)


def region_text(construct: RegionConstruct, keys: tuple[int, int] | None) -> str:
    """Return the region of two keys and all between in words: ``a in (5, 10]``; None: NULL."""
    name = _region_name(construct)
    if keys is None:
        return f"{name} is NULL"
    if construct.ranks is not None:
        return _ranked_region(name, construct, *keys)
    if construct.constants is not None:
        return _text_region(name, tuple(map(str, construct.constants)), *keys)
    if keys[0] == keys[1]:
        return f"{name} = {value_of(construct.operand.type, keys[0])}"
    return f"{name} {_range(construct, *keys)}"


def _range(construct: RegionConstruct, low: int, high: int) -> str:
    left, opens = _bound(construct, low, -1)
    right, closes = _bound(construct, high, 1)
    if low == LOWEST and high == HIGHEST:
        return "is not NULL"
    if low == LOWEST:
        return f"{'<' if closes else '<='} {right}"
    if high == HIGHEST:
        return f"{'>' if opens else '>='} {left}"
    return f"in {'(' if opens else '['}{left}, {right}{')' if closes else ']'}"


def _bound(construct: RegionConstruct, key: int, step: int) -> tuple[Any, bool]:
    """Return a bound of a region, and whether it is outside: of floats the shorter to write."""
    kind = construct.operand.type
    if kind.family != "float":
        return value_of(kind, key), False
    inside = value_of(kind, key)
    outside = value_of(kind, max(LOWEST, min(HIGHEST, key + step)))
    return (outside, True) if len(str(outside)) < len(str(inside)) else (inside, False)


def _ranked_region(name: str, construct: RegionConstruct, low: int, high: int) -> str:
    """Return a region of ranks in words: an odd one is a constant, an even one lies below it."""
    kind, constants = construct.operand.type, construct.constants or ()
    shown = [
        repr(each) if isinstance(each, str) else str(value_of(kind, each)) for each in constants
    ]
    if low == high and low % 2:
        return f"{name} = {shown[low // 2]}"
    left = shown[(low - 1) // 2] if low > 0 else ""
    right = shown[high // 2] if high < 2 * len(shown) else ""
    if not left and not right:
        return f"{name} is not NULL"
    if not left:
        return f"{name} {'<=' if high % 2 else '<'} {right}"
    if not right:
        return f"{name} {'>=' if low % 2 else '>'} {left}"
    return f"{name} in {'[' if low % 2 else '('}{left}, {right}{']' if high % 2 else ')'}"


def _text_region(name: str, constants: tuple[str, ...], low: int, high: int) -> str:
    named = [repr(text) for text in constants[max(low, 0) : high + 1]]
    if low < 0:
        return f"{name} is any other text"
    if len(named) == 1:
        return f"{name} = {named[0]}"
    more = f", … {len(named) - MAX_CONSTANTS:,} more" if len(named) > MAX_CONSTANTS else ""
    return f"{name} in ({', '.join(named[:MAX_CONSTANTS])}{more})"


def test_text(test: Any) -> str:
    """Return a test as a person would write it."""
    if isinstance(test, TextTest):
        parts = "".join(
            part if isinstance(part, str) else ("%" if part.what == ANY else "_")
            for part in test.parts
        )
        return f"{column_name(test.operand.sql, folded=test.folded)} LIKE {parts!r}"
    if isinstance(test, ValueTest):
        verb = "RLIKE" if test.kind == "regex" else "IN NETWORK"
        return f"{test.operand.sql} {verb} {test.pattern!r}"
    if isinstance(test, FunctionTest):
        return test.predicate.text
    return str(test)
