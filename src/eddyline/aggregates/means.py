"""Averages: a sum with the number of its values."""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eddyline.aggregates.columns import (
    counts_of,
    from_limbs,
    is_there,
    limbs,
    one_array,
    settled,
)
from eddyline.aggregates.monoid import Monoid
from eddyline.aggregates.sums import Sum
from eddyline.errors import AggregateError

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MORE_DIGITS = 4
"""Digits behind the point that Spark's average of decimals has more than they."""

_MOST_DIGITS = 38
_SMALL = 2**61


@dataclass(frozen=True, slots=True)
class Mean(Monoid):
    """Averages of doubles and decimals: structs of their sum and number; the average is the value.

    Decimals are divided exactly and rounded once, half up, to four more digits behind the point.
    """

    ansi: bool = True
    """Whether a sum that its type cannot hold raises; else the average is NULL."""

    reduce_sql: ClassVar[str] = "named_struct('sum', sum({x}), 'n', count({x}))"
    lift_sql: ClassVar[str] = (
        "CAST(named_struct('sum', {x}, 'n', CASE WHEN {x} IS NULL THEN 0L ELSE 1L END) AS {type})"
    )

    def merge(
        self, column: pa.Array | pa.ChunkedArray, lo: NDArray[np.int64], hi: NDArray[np.int64]
    ) -> pa.Array:
        """Return the sum and the number of each range."""
        array = one_array(column)
        there = is_there(array)
        sums, numbers = array.field(0), array.field(1)
        is_spoiled = there & ~is_there(sums) & (pc.fill_null(numbers, 0).to_numpy() > 0)
        if not there.all():
            sums, numbers = (pc.if_else(pa.array(there), each, None) for each in (sums, numbers))
        total = Sum(self.ansi).merge(sums, lo, hi)
        if is_spoiled.any():
            total = pc.if_else(pa.array(counts_of(is_spoiled, lo, hi) > 0), None, total)
        n = Sum().merge(numbers, lo, hi)
        fields = [array.type.field(at) for at in range(2)]
        return settled(pa.StructArray.from_arrays([total, n], fields=fields, mask=pc.is_null(n)))

    def value(
        self, column: pa.Array | pa.ChunkedArray, lo: NDArray[np.int64], hi: NDArray[np.int64]
    ) -> pa.Array:
        """Return the average of each range."""
        merged = self.merge(column, lo, hi)
        numbers = pc.fill_null(merged.field(1), 0).to_numpy()
        n = pa.array(numbers, mask=numbers == 0)
        if pa.types.is_decimal(merged.field(0).type):
            return self._ratio(merged.field(0), n)
        return pc.divide(merged.field(0), n.cast(pa.float64()))

    def under(self, *, ansi: bool) -> Mean:
        """Return averages that raise when the type cannot hold their sum, or not."""
        return replace(self, ansi=ansi)

    def _ratio(self, sums: pa.Array, n: pa.Array) -> pa.Array:
        """Return decimals divided by whole numbers."""
        scale = sums.type.scale
        digits = min(scale + _MORE_DIGITS, _MOST_DIGITS)
        quick = _small_ratio(sums, n, digits)
        if quick is not None:
            return quick
        # Arrow cuts the quotient off, 20 digits further on: what follows does not change rounding.
        wide: Any = pc.divide(
            sums.cast(pa.decimal256(_MOST_DIGITS, scale)), n.cast(pa.decimal256(19, 0))
        )
        exact = pc.round(wide, digits, round_mode="half_towards_infinity")
        exact = exact.cast(pa.decimal256(76, digits))
        limit = pa.scalar(Decimal(10) ** (_MOST_DIGITS - digits), exact.type)
        is_right = pc.less(pc.abs(exact), limit)
        if self.ansi and not pc.all(is_right, min_count=0).as_py():
            message = f"an average of {sums.type} has more than {_MOST_DIGITS} digits"
            raise AggregateError(message, type=str(sums.type))
        return pc.if_else(is_right, exact, None).cast(pa.decimal128(_MOST_DIGITS, digits))


def _small_ratio(sums: pa.Array, n: pa.Array, digits: int) -> pa.Array | None:
    """Return decimals divided by whole numbers in 64 bits, a tenth of the work; None if in vain."""
    low, high = limbs(sums)
    there = is_there(sums) & is_there(n)
    numbers = np.where(there, pc.fill_null(n, 1).to_numpy(), 1)
    whole = np.where(there, low.view(np.int64), 0)
    factor = 10 ** (digits - sums.type.scale)
    is_wide = np.any(there & (high != low.view(np.int64) >> 63)) or numbers.max(initial=1) > _SMALL
    if is_wide or not np.all((whole > -_SMALL // factor) & (whole < _SMALL // factor)):
        return None
    quotients = (2 * factor * np.abs(whole) + numbers) // (2 * numbers)
    found = np.where(whole < 0, -quotients, quotients)
    kind = pa.decimal128(_MOST_DIGITS, digits)
    return from_limbs(found.view(np.uint64), found >> 63, kind, there)
