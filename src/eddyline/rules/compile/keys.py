"""Values of every ordered type as whole numbers, so that all constructs are searched alike.

A key is an int64 that keeps the order of the values: whole numbers, days, microseconds and booleans
as they are, decimals without their point, floats by their bits (-0.0 is 0.0; NaN is equal to itself
and above all). A comparison with a constant becomes an interval of keys. Of texts of which rules
only ask what they are, the key is the place among the constants, or ``OTHER``; where order matters,
and for decimals of more digits, it is a rank (see ``ranks``).
"""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eddyline.sql.literals import Moment
from eddyline.sql.types import TIMES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from eddyline.data.arrays import Floats, Ints, Mask
    from eddyline.sql.literals import Scalar
    from eddyline.sql.types import SqlType

LOWEST, HIGHEST = -(2**63), 2**63 - 1
"""The ends of the keys."""

OTHER = -1
"""Key of a text that no rule names."""

Interval = tuple[int, int]
"""Keys from a first to a last one, both included; first ≤ last."""

_EPOCH = date(1970, 1, 1).toordinal()


def interval(kind: SqlType, op: str, value: Scalar) -> tuple[Interval, ...]:
    """Return the keys of the values for which a comparison is true: one interval, or none.

    Example:
        >>> from decimal import Decimal
        >>> from eddyline.sql.types import INT
        >>> interval(INT, "<", Decimal("5.5"))
        ((-9223372036854775808, 5),)
        >>> interval(INT, "=", Decimal("5.5"))
        ()
    """
    return between(op, *around(kind, value))


def between(op: str, below: int, above: int) -> tuple[Interval, ...]:
    """Return the keys for which a comparison is true, by the keys next to its constant.

    The greatest key not above the constant is ``below``, the least not below it ``above``: the same
    one if the constant has a key.
    """
    is_exact = below == above
    low, high = {
        "=": (above, below),
        "<": (LOWEST, below - is_exact),
        "<=": (LOWEST, below),
        ">": (above + is_exact, HIGHEST),
        ">=": (above, HIGHEST),
    }[op]
    low, high = max(low, LOWEST), min(high, HIGHEST)
    return ((low, high),) if low <= high else ()


def around(kind: SqlType, value: Scalar) -> tuple[int, int]:
    """Return the greatest key not above the value and the least not below it."""
    if kind.family == "float":
        key = int(float_keys(np.array([value], np.float64))[0])
        return key, key
    if isinstance(value, date):
        days = value.toordinal() - _EPOCH
        return days, days
    if isinstance(value, Moment):
        msg = f"no session has said when {value.text!r} is"
        raise TypeError(msg)
    exact = Fraction(value) * 10**kind.scale
    return math.floor(exact), math.ceil(exact)


def complement(intervals: Iterable[Interval]) -> tuple[Interval, ...]:
    """Return the keys outside sorted, disjoint intervals.

    >>> complement([(0, 4)])
    ((-9223372036854775808, -1), (5, 9223372036854775807))
    """
    gaps: list[Interval] = []
    start = LOWEST
    for low, high in intervals:
        if start < low:
            gaps.append((start, low - 1))
        start = high + 1
    if start <= HIGHEST:
        gaps.append((start, HIGHEST))
    return tuple(gaps)


def united(intervals: Iterable[Interval]) -> tuple[Interval, ...]:
    """Return intervals sorted and disjoint, neighbours joined.

    >>> united([(5, 6), (0, 1), (2, 3)])
    ((0, 3), (5, 6))
    """
    found: list[Interval] = []
    for low, high in sorted(intervals):
        if found and low <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(found[-1][1], high)
        else:
            found.append((low, high))
    return tuple(found)


def is_keyed(kind: SqlType) -> bool:
    """Return whether values of a type have keys that keep their order."""
    if kind.family == "decimal":
        return kind.precision <= 18
    return kind.family in ("integer", "float", "boolean", "date", *TIMES)


def keys_of(values: pa.Array, kind: SqlType) -> tuple[Ints, Mask]:
    """Return the key of each value (anything where it is NULL), and which are NULL."""
    nulls = nulls_of(values)
    if kind.family == "float":
        floats = pc.fill_null(values, 0.0) if nulls.any() else values
        return float_keys(floats.to_numpy(zero_copy_only=False).astype(np.float64)), nulls
    if kind.family == "decimal":
        wide = values.cast(pa.decimal128(max(values.type.precision, 19), kind.scale))
        # The lower half of the two's complement: 18 digits fit.
        halves = np.frombuffer(wide.buffers()[1], np.int64)
        return halves[2 * wide.offset :: 2][: len(wide)].copy(), nulls
    if kind.family == "date":
        values = values.cast(pa.date32()).cast(pa.int32())
    elif kind.family in TIMES:
        values = values.cast(pa.timestamp("us", values.type.tz)).cast(pa.int64())
    elif kind.family == "boolean":
        values = values.cast(pa.int8())
    whole = pc.fill_null(values, 0) if nulls.any() else values
    return whole.to_numpy(zero_copy_only=False).astype(np.int64), nulls


def float_keys(values: Floats) -> Ints:
    """Return the keys of floats.

    >>> float_keys(np.array([-0.0, 0.0, 1.0])).tolist()
    [0, 0, 4607182418800017408]
    """
    clean = values + 0.0  # -0.0 becomes 0.0; a copy
    clean[np.isnan(clean)] = np.nan
    bits = clean.view(np.int64)
    return bits ^ ((bits >> 63) & HIGHEST)


def value_of(kind: SqlType, key: int) -> Scalar:
    """Return the value of a key, or the key itself where no value of Python's is so far out.

    >>> from eddyline.sql.types import DATE, DOUBLE
    >>> value_of(DATE, 0).isoformat(), value_of(DOUBLE, 4607182418800017408)
    ('1970-01-01', 1.0)
    """
    if kind.family == "float":
        return float(np.array([key ^ ((key >> 63) & HIGHEST)], np.int64).view(np.float64)[0])
    if kind.family == "decimal":
        return Decimal(f"{key}E{-kind.scale}")
    if kind.family == "boolean":
        return bool(key)
    if kind.family == "date" and 0 < key + _EPOCH <= date.max.toordinal():
        return date.fromordinal(key + _EPOCH)
    if kind.family in TIMES:
        return _time_of(kind, key)
    return key


def _time_of(kind: SqlType, micros: int) -> datetime | int:
    epoch = datetime(1970, 1, 1, tzinfo=UTC if kind.family == "timestamp" else None)
    try:
        return epoch + timedelta(microseconds=micros)
    except OverflowError:
        return micros


def nulls_of(values: pa.Array) -> Mask:
    """Return a mask of the values that are NULL (NaN is not)."""
    if values.null_count == 0:
        return np.zeros(len(values), dtype=np.bool_)
    found: Mask = values.is_null(nan_is_null=False).to_numpy(zero_copy_only=False)
    return found


def places_of(values: pa.Array, constants: pa.Array) -> tuple[Ints, Mask]:
    """Return the place of each text among constants (``OTHER`` if it is none), and the NULLs."""
    found = pc.index_in(values, value_set=constants)
    places = pc.fill_null(found, OTHER).to_numpy(zero_copy_only=False).astype(np.int64)
    return places, nulls_of(values)
