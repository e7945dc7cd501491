"""Numbers in SQL: the types of literals and of arithmetic, and the errors of arithmetic.

The types and their limits are those of Spark's ANSI mode. A range that fits its type cannot
overflow, so ``smallint_column + 1`` (an int) and ``60 * 60 * 24`` never raise.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from eddyline.sql.types import (
    BIGINT,
    DOUBLE,
    INT,
    MAX_PRECISION,
    OTHER,
    SqlType,
    as_decimal,
    common_type,
    decimal,
    integer,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlglot import Expr


def number_type(text: str) -> tuple[SqlType, bool]:
    """Return the type of a number literal, and whether it is other than 0."""
    never_zero = any(char in "123456789" for char in text.lower().partition("e")[0])
    if "e" in text.lower():
        return DOUBLE, never_zero
    digits = text.lstrip("-")
    if "." in digits:
        whole, _, fraction = digits.partition(".")
        precision = max(len(whole.lstrip("0")) + len(fraction), 1)
        return decimal(precision, len(fraction)), never_zero
    value = int(text)
    for kind in (INT, BIGINT):
        if kind.low <= value <= kind.high:
            return replace(kind, low=value, high=value), never_zero
    return decimal(len(digits), 0), never_zero


def has_opposite(kind: SqlType) -> bool:
    """Return whether each value of a type has an opposite: Spark negates with 34 digits."""
    return kind.family == "float" or (kind.family == "decimal" and kind.precision <= 34)


def excludes_zero(kind: SqlType) -> bool:
    """Return whether no value of an integer type is 0."""
    return kind.family == "integer" and not kind.low <= 0 <= kind.high


def result_of(
    operation: type[Expr], left: SqlType, right: SqlType, *, is_never_zero: bool
) -> tuple[SqlType, str]:
    """Return the type of an arithmetic operation, and the error that it may end in."""
    divides = operation in (exp.Div, exp.Mod, exp.IntDiv)
    zero = "divides by what may be 0" if divides and not is_never_zero else ""
    common = common_type(left, right)
    if operation is exp.IntDiv:
        fits = common.family == "integer" and left.low > BIGINT.low
        return BIGINT, zero or ("" if fits else "can overflow")
    if common.family == "float" or (operation is exp.Div and common.family == "integer"):
        return (DOUBLE if operation is exp.Div else common), zero
    if common.family == "decimal":
        kind = _decimal_result(operation, as_decimal(left), as_decimal(right))
        return kind, zero or ("" if kind.is_known else "can overflow")
    low, high = _INTEGER_RANGE[operation](left, right)
    full = integer(common.text)
    fits = full.low <= low and high <= full.high
    return (replace(full, low=low, high=high) if fits else full), zero or (
        "" if fits else "can overflow"
    )


def _decimal_result(operation: type[Expr], left: SqlType, right: SqlType) -> SqlType:
    whole = max(left.precision - left.scale, right.precision - right.scale)
    scale = max(left.scale, right.scale)
    if operation is exp.Mul:
        precision, scale = left.precision + right.precision + 1, left.scale + right.scale
    elif operation is exp.Div:
        scale = max(6, left.scale + right.precision + 1)
        precision = left.precision - left.scale + right.scale + scale
    else:
        precision = whole + scale + 1
    return decimal(precision, scale) if precision <= MAX_PRECISION else OTHER


def _product(left: SqlType, right: SqlType) -> tuple[int, int]:
    corners = [a * b for a in (left.low, left.high) for b in (right.low, right.high)]
    return min(corners), max(corners)


def _remainder(left: SqlType, right: SqlType) -> tuple[int, int]:
    most = max(abs(right.low), abs(right.high)) - 1
    return max(min(left.low, 0), -most), min(max(left.high, 0), most)


_INTEGER_RANGE: dict[type, Callable[[SqlType, SqlType], tuple[int, int]]] = {
    exp.Add: lambda a, b: (a.low + b.low, a.high + b.high),
    exp.Sub: lambda a, b: (a.low - b.high, a.high - b.low),
    exp.Mul: _product,
    exp.Mod: _remainder,
}
