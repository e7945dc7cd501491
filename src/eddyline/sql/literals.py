"""Constants in SQL, and the operands they compare with exactly.

Spark brings both sides of a comparison to one type first. Where that changes a value (a bigint
read as a double, a timestamp as text) the comparison is left to Spark. When a constant is in the
session's time zone stays open (``Moment``): Spark says it, for all rules at once.
"""

from __future__ import annotations

import math
import re
import struct
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING

from sqlglot import exp

from eddyline.sql.parsing import SparkText
from eddyline.sql.types import BIGINT, TIMES, TIMESTAMP, integer, literal_fits, parse_type

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlglot import Expr

    from eddyline.sql.types import SqlType

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NEGATED_DIGITS = 34
"""Digits of the decimals that Spark negates exactly."""
EXACT_DOUBLE, _EXACT_FLOAT = 2**53, 2**24
"""From here on a float of 64 bits, and of 32, has no digits behind the point."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A point in time as text; which instant it is, depends on the session's time zone."""

    text: str
    kind: str = "timestamp"
    """The type as which the text is read before it becomes a timestamp: ``timestamp``,
    ``timestamp_ntz`` or ``date``, which is a day at its start in the session's time zone."""


Scalar = bool | int | float | Decimal | str | date | Moment
"""A constant that an operand is compared with; never NULL and never NaN."""


@dataclass(frozen=True, slots=True)
class SqlConstant:
    """A literal, perhaps with a sign or a suffix."""

    family: str
    """integer, decimal, float, string, boolean, date, timestamp, timestamp_ntz or null."""
    value: Scalar | None
    is_single: bool = False
    """Whether it is a 32-bit float."""


def constant_of(node: Expr) -> SqlConstant | None:
    """Return the constant that a node is (None: it is none, or not one of these kinds)."""
    node = node.unnest()
    if isinstance(node, exp.Null):
        return SqlConstant("null", None)
    if isinstance(node, exp.Boolean):
        return SqlConstant("boolean", bool(node.this))
    if isinstance(node, exp.RawString):
        return SqlConstant("string", str(node.this))
    if isinstance(node, exp.Cast) and not isinstance(node, exp.TryCast):
        return _cast(node)
    if isinstance(node, exp.Literal) and node.args.get("is_string"):
        return SqlConstant("string", str(node.this))
    return _number(node)


def _number(node: Expr) -> SqlConstant | None:
    sign = "-" if isinstance(node, exp.Neg) else ""
    literal = node.this.unnest() if sign else node
    if isinstance(literal, exp.Cast) and sign:
        constant = _cast(literal)
        return None if constant is None else _negated(constant)
    if not isinstance(literal, exp.Literal) or literal.args.get("is_string"):
        return None
    text = f"{sign}{literal.this}"
    if sign and literal is not node.this and _is_rounded(Decimal(str(literal.this))):
        return None
    if re.fullmatch(r"-?[0-9]+", text):
        return SqlConstant("integer", int(text))
    if "e" in text.lower():
        return _float(text)
    return SqlConstant("decimal", Decimal(text))


def _negated(constant: SqlConstant) -> SqlConstant | None:
    if isinstance(constant.value, bool) or not isinstance(constant.value, int | float | Decimal):
        return None
    value = constant.value
    if isinstance(value, Decimal) and _is_rounded(value):
        return None
    # A minus sign would round a decimal to the digits of Python's context.
    negated = value.copy_negate() if isinstance(value, Decimal) else -value
    return SqlConstant(constant.family, negated, constant.is_single)


def _is_rounded(value: Decimal) -> bool:
    """Return whether Spark rounds a number when it negates it, where it does not read it so."""
    return len(value.as_tuple().digits) > _NEGATED_DIGITS


def _float(text: str) -> SqlConstant | None:
    value = float(text)
    return SqlConstant("float", value) if math.isfinite(value) else None


def _cast(node: exp.Cast) -> SqlConstant | None:
    """Return a literal with a suffix (``10L``, ``1.5D``), or a cast that changes nothing."""
    source = node.this.unnest()
    if not isinstance(source, exp.Literal):
        return None
    target = parse_type(node.args["to"].sql(SparkText))
    text = str(source.this)
    if target.family == "date" and source.args.get("is_string"):
        return date_constant(text)
    if target.family in TIMES and source.args.get("is_string"):
        is_time = literal_fits(text, TIMESTAMP)
        return SqlConstant(target.family, Moment(text, target.family)) if is_time else None
    if re.fullmatch(r"([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", text) is None:
        return None
    return _cast_number(Decimal(text), text, target)


def _cast_number(value: Decimal, text: str, target: SqlType) -> SqlConstant | None:
    is_whole = value.is_finite() and value == value.to_integral_value()
    if target.family == "integer" and is_whole and re.fullmatch(r"[0-9]+", text):
        full = integer(target.text)
        fits = full.low <= int(value) <= full.high
        return SqlConstant("integer", int(value)) if fits else None
    if target.text == "double":
        return _float(text)
    if target.text == "float":
        return _single(text)
    digits = value.as_tuple()
    if target.family == "decimal" and isinstance(digits.exponent, int):
        scale = max(0, -digits.exponent)
        whole = max(len(digits.digits) + digits.exponent, 0)
        if scale <= target.scale and whole <= target.precision - target.scale:
            return SqlConstant("decimal", value)
    return None


def _single(text: str) -> SqlConstant | None:
    value = float(text)
    try:
        (rounded,) = struct.unpack("<f", struct.pack("<f", value))
    except OverflowError:
        return None
    # Rounding twice may differ from rounding once, unless the double was the text itself.
    return (
        SqlConstant("float", rounded, is_single=True) if Decimal(value) == Decimal(text) else None
    )


def date_constant(text: str) -> SqlConstant | None:
    """Return the day that a text surely reads as."""
    if re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text) is None:
        return None
    try:
        return SqlConstant("date", date.fromisoformat(text))
    except ValueError:
        return None


def scalars_for(kind: SqlType, constants: Sequence[SqlConstant]) -> list[Scalar] | None:
    """Return with what values an operand is compared exactly, or None if Spark must do it."""
    if kind.family in TIMES:
        times = [_time(kind, constant) for constant in constants]
        return None if any(time is None for time in times) else [t for t in times if t is not None]
    families = {constant.family for constant in constants}
    if kind.family == "integer" and "float" in families:
        return _whole_as_double(kind, constants)
    values = [_scalar(kind, constant) for constant in constants]
    return None if any(value is None for value in values) else [v for v in values if v is not None]


def _time(kind: SqlType, constant: SqlConstant) -> Scalar | None:
    """Return the point in time that a timestamp is compared with."""
    text = str(constant.value)
    moment: Moment | None = None
    if constant.family == "string" and literal_fits(text, TIMESTAMP):
        moment = Moment(text, kind.family)
    elif constant.family == "date":
        moment = Moment(text, "date")
    elif isinstance(constant.value, Moment):
        moment = constant.value
    if moment is None or kind.family == "timestamp":
        return moment
    return None if moment.kind == "timestamp" else _micros(moment.text)


def _micros(text: str) -> int | None:
    """Return the microseconds since 1970 of a time without a time zone."""
    time = datetime.fromisoformat(text)
    if time.tzinfo is not None:
        return None  # Spark reads it without its zone
    return (time.replace(tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)


def _scalar(kind: SqlType, constant: SqlConstant) -> Scalar | None:
    value = constant.value
    if kind.family == "date" and constant.family == "string":
        read = date_constant(str(value))
        return None if read is None else read.value
    if not kind.is_numeric:
        plain = ("string", "boolean", "date")
        return value if constant.family == kind.family and kind.family in plain else None
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return None
    if kind.family == "float":
        return _as_float(kind, value)
    is_known = not isinstance(value, float) and not _is_out_of_reach(kind, value)
    return _plain(value) if is_known else None  # type: ignore[arg-type]  # no float


def _is_out_of_reach(kind: SqlType, value: int | Decimal) -> bool:
    """Return whether Spark takes a comparison for false (or true) without looking for NULL.

    It does where a whole number meets a decimal that is beyond the ends of its type.
    """
    is_decimal = isinstance(value, Decimal) or not BIGINT.low <= value <= BIGINT.high
    if kind.family != "integer" or not is_decimal:
        return False
    full = integer(kind.text)
    return not full.low <= value <= full.high


def _as_float(kind: SqlType, value: float | Decimal) -> float | None:
    if isinstance(value, int) and kind.text == "float" and abs(value) > _EXACT_FLOAT:
        return None  # without ANSI Spark reads the integer as a 32-bit float
    return float(value) + 0.0  # -0.0 is 0.0


def _whole_as_double(kind: SqlType, constants: Sequence[SqlConstant]) -> list[Scalar] | None:
    """Return the values for whole numbers that Spark compares as doubles."""
    values: list[Scalar] = []
    for constant in constants:
        value = constant.value
        is_number = isinstance(value, int | float | Decimal) and not isinstance(value, bool)
        if not is_number or constant.is_single or value is None:
            return None
        as_double = float(value)  # type: ignore[arg-type]  # a number, see above
        if kind.text == "bigint" and abs(as_double) >= EXACT_DOUBLE:
            return None
        values.append(_plain(Decimal(as_double)))
    return values


def _plain(value: int | Decimal) -> int | Decimal:
    """Return whole numbers as int, so that equal constants are one."""
    return int(value) if value == int(value) else value
