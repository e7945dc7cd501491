"""Spark's types, as far as errors and arithmetic need them.

Integers carry the range of values that an expression can have: ``i % 10 + 1`` lies in [-8, 10]
and so never overflows, whatever the column holds. A range that fits its type cannot overflow, so
``smallint_column + 1`` (an int) and ``60 * 60 * 24`` never raise. Casts, common types and limits
are those of Spark's ANSI mode, as observed on Spark 4.3.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from sqlglot import exp

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlglot import Expr

_INTEGER_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_ALIASES = {
    "byte": "tinyint",
    "short": "smallint",
    "integer": "int",
    "long": "bigint",
    "real": "float",
    "bool": "boolean",
    "void": "null",
    "dec": "decimal",
    "numeric": "decimal",
    "timestamp_ltz": "timestamp",
}
_PLAIN = {"boolean", "binary", "date", "timestamp", "timestamp_ntz", "null"}
_NESTED = ("array", "map", "struct")

TIMES = ("timestamp", "timestamp_ntz")
"""Families of timestamps: in the session's time zone, and without one."""

MAX_PRECISION = 38
"""Digits of Spark's widest decimal."""


@dataclass(frozen=True, slots=True)
class SqlType:
    """A type, and for integers the range of values that an expression can have."""

    family: str
    """integer, decimal, float, string, boolean, date, timestamp, timestamp_ntz, binary, null,
    array, map, struct, interval, or other (not known)."""
    text: str
    """Spark's name of the type in lower case: ``bigint``, ``array<int>``."""
    low: int = 0
    """Least value (integers)."""
    high: int = 0
    """Greatest value (integers)."""
    precision: int = 0
    """Digits (decimals)."""
    scale: int = 0
    """Digits behind the point (decimals)."""

    @property
    def is_numeric(self) -> bool:
        """Whether values are numbers."""
        return self.family in ("integer", "decimal", "float")

    @property
    def is_known(self) -> bool:
        """Whether the type is known at all."""
        return self.family != "other"


OTHER = SqlType("other", "?")
NULL = SqlType("null", "void")
STRING = SqlType("string", "string")
BOOLEAN = SqlType("boolean", "boolean")
BINARY = SqlType("binary", "binary")
DATE = SqlType("date", "date")
TIMESTAMP = SqlType("timestamp", "timestamp")
DOUBLE = SqlType("float", "double")


def integer(text: str, low: int | None = None, high: int | None = None) -> SqlType:
    """Return an integer type with its full range, or a narrower one."""
    limit = 1 << (_INTEGER_BITS[text] - 1)
    return SqlType(
        "integer", text, -limit if low is None else low, limit - 1 if high is None else high
    )


INT = integer("int")
BIGINT = integer("bigint")


def decimal(precision: int, scale: int) -> SqlType:
    """Return a decimal type."""
    return SqlType("decimal", f"decimal({precision},{scale})", precision=precision, scale=scale)


def parse_type(text: str) -> SqlType:
    """Return the type that Spark writes as ``text``.

    >>> parse_type("decimal(10,2)").precision
    10
    >>> parse_type("struct<a:int>").family
    'struct'
    """
    name = text.strip().lower()
    head = re.split(r"[<(\s]", name, maxsplit=1)[0]
    head = _ALIASES.get(head, head)
    if head in _INTEGER_BITS:
        return integer(head)
    if head in ("float", "double"):
        return SqlType("float", head)
    if head in ("string", "varchar", "char"):
        return SqlType("string", "string")
    if head in _PLAIN and "(" not in name:  # timestamp(9) is another type
        return SqlType(head, head)
    if head == "decimal":
        digits = [int(part) for part in re.findall(r"\d+", name)]
        return decimal(*(digits + [10, 0][len(digits) :]))
    return SqlType(head if head in (*_NESTED, "interval") else "other", name)


def element_type(container: SqlType) -> SqlType:
    """Return the type of an array's elements or a map's values."""
    inside = nested_parts(container.text)
    return parse_type(inside[-1]) if inside and container.family in ("array", "map") else OTHER


def key_type(container: SqlType) -> SqlType:
    """Return the type of a map's keys."""
    inside = nested_parts(container.text)
    return parse_type(inside[0]) if inside and container.family == "map" else OTHER


def field_type(container: SqlType, name: str) -> SqlType:
    """Return the type of a field of a struct (``other`` if it cannot be told)."""
    if container.family == "map":
        return element_type(container)
    for part in nested_parts(container.text) if container.family == "struct" else []:
        field, _, kind = part.partition(":")
        if field.strip("` ") == name.lower():
            return parse_type(kind)
    return OTHER


def nested_parts(text: str) -> list[str]:
    """Split what is inside the outermost < > at its commas."""
    inside = text.partition("<")[2].rpartition(">")[0]
    parts, depth = [""], 0
    for char in inside:
        depth += (char in "<(") - (char in ">)")
        if char == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += char
    return [part.strip() for part in parts if part.strip()]


def common_type(left: SqlType, right: SqlType) -> SqlType:
    """Return the type to which ANSI mode brings both sides of a comparison."""
    if left.family == "null" or right.family == "null":
        return right if left.family == "null" else left
    if left.is_numeric and right.is_numeric:
        return _common_number(left, right)
    if left.text == right.text:
        return left
    families = {left.family, right.family}
    if families <= {"date", *TIMES}:
        return max(left, right, key=lambda kind: ("date", *reversed(TIMES)).index(kind.family))
    if "string" in families:
        return _read_as(right if left.family == "string" else left)
    return OTHER


def _common_number(left: SqlType, right: SqlType) -> SqlType:
    if "float" in (left.family, right.family):
        return left if left.text == right.text else DOUBLE
    if "decimal" in (left.family, right.family):
        a, b = as_decimal(left), as_decimal(right)
        scale = max(a.scale, b.scale)
        return decimal(max(a.precision - a.scale, b.precision - b.scale) + scale, scale)
    wider = left if _INTEGER_BITS[left.text] >= _INTEGER_BITS[right.text] else right
    return replace(wider, low=min(left.low, right.low), high=max(left.high, right.high))


def _read_as(other: SqlType) -> SqlType:
    """Return as what a string is read when it meets a value of another type."""
    if other.family == "integer":
        return BIGINT
    if other.is_numeric:
        return DOUBLE
    plain = other.family in ("boolean", "date", "timestamp", "timestamp_ntz", "binary")
    return other if plain else OTHER


def as_decimal(number: SqlType) -> SqlType:
    """Return the decimal type that holds every value of an integer type."""
    if number.family == "decimal":
        return number
    return decimal({"tinyint": 3, "smallint": 5, "int": 10}.get(number.text, 20), 0)


def cast_may_raise(source: SqlType, target: SqlType, literal: str | None = None) -> bool:
    """Return whether a cast can raise in ANSI mode for some value, or for a string literal."""
    if "other" in (source.family, target.family):
        return True
    if source.family == "null":
        return False
    if target.family == "string":
        return source.family in (*_NESTED, "interval")
    if source.text == target.text and source.family != "integer":
        return False
    if literal is not None:
        return not literal_fits(literal, target)
    rule = _CASTS.get((source.family, target.family))
    return rule is None or not rule(source, target)


def _always(source: SqlType, target: SqlType) -> bool:
    return bool(source) and bool(target)


def _integer_fits(source: SqlType, target: SqlType) -> bool:
    full = integer(target.text)
    return full.low <= source.low and source.high <= full.high


def _digits_fit(source: SqlType, target: SqlType) -> bool:
    digits = as_decimal(source)
    whole = digits.precision - digits.scale + (digits.scale > target.scale)
    return whole <= target.precision - target.scale


def _decimal_fits_integer(source: SqlType, target: SqlType) -> bool:
    limit: int = 10 ** (source.precision - source.scale)
    return limit <= integer(target.text).high


_CASTS = {
    ("integer", "integer"): _integer_fits,
    ("integer", "float"): _always,
    ("integer", "decimal"): _digits_fit,
    ("integer", "boolean"): _always,
    ("float", "float"): _always,
    ("float", "boolean"): _always,
    ("decimal", "decimal"): _digits_fit,
    ("decimal", "integer"): _decimal_fits_integer,
    ("decimal", "float"): _always,
    ("decimal", "boolean"): _always,
    ("boolean", "integer"): _always,
    ("boolean", "float"): _always,
    ("string", "binary"): _always,
    ("timestamp", "date"): _always,
    ("timestamp_ntz", "date"): _always,
}
"""Casts that never raise, or never under a condition; every other pair may."""

_HOUR = r"(?:[01]\d|2[0-3])"
_ZONE = r"Z|[+-](?:0\d|1[0-7]):[0-5]\d"

_SAFE_TEXTS = {
    "tinyint": r"[+-]?\d{1,2}",
    "smallint": r"[+-]?\d{1,4}",
    "int": r"[+-]?\d{1,9}",
    "bigint": r"[+-]?\d{1,18}",
    "float": r"[+-]?\d{1,15}(\.\d{1,15})?([eE][+-]?\d{1,2})?",
    "decimal": r"[+-]?\d{1,15}(\.\d{1,15})?",
    "boolean": r"(?i:true|false)",
    "date": r"\d{4}-\d\d-\d\d",
    # A zone stands only behind seconds. Python 3.14 reads an hour 24, which Spark does not.
    "timestamp": rf"\d{{4}}-\d\d-\d\d([ T]{_HOUR}:\d\d(:\d\d(\.\d{{1,6}})?({_ZONE})?)?)?",
    "binary": r"(?s:.*)",
}
"""String literals that surely read as a value, by type or family."""


def literal_fits(literal: str, target: SqlType) -> bool:
    """Return whether a string literal surely reads as a value of the type.

    >>> literal_fits("2024-01-31 10:00", TIMESTAMP), literal_fits("2024-02-31", DATE)
    (True, False)
    """
    family = target.family.removesuffix("_ntz")
    form = _SAFE_TEXTS.get(target.text) or _SAFE_TEXTS.get(family)
    if form is None or re.fullmatch(form, literal) is None:
        return False
    if family == "decimal":
        whole, _, fraction = literal.lstrip("+-").partition(".")
        fits = len(whole) <= target.precision - target.scale
        return fits and len(fraction) <= target.scale
    return family not in ("date", "timestamp") or _is_iso(literal)


def _is_iso(literal: str) -> bool:
    try:
        datetime.fromisoformat(literal)
    except ValueError:
        return False
    return True


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
