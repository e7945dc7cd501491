"""Sums and counts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pyarrow as pa

from eddyline.aggregates.columns import (
    counts_of,
    from_limbs,
    from_plain,
    is_there,
    limbs,
    one_array,
    plain,
)
from eddyline.aggregates.monoid import Monoid
from eddyline.aggregates.sums_kernels import are_within, float_sums, whole_sums
from eddyline.errors import AggregateError, PlanError

if TYPE_CHECKING:
    from numpy.typing import NDArray

_WORD = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Sum(Monoid):
    """Sums of whole numbers and decimals (exact), and of floating-point numbers.

    A range is summed exactly before its sum is checked, so entries that would leave the type on
    the way do no harm; partials themselves are of the type of Spark's sum. Out of ANSI mode a cell
    that Spark could not sum is NULL and so does not count: it takes decimals of 29 digits or more.
    """

    ansi: bool = True
    """Whether a sum that its type cannot hold raises; else whole numbers wrap and decimals are
    NULL, as Spark's."""

    reduce_sql: ClassVar[str] = "sum({x})"
    lift_sql: ClassVar[str] = "CAST({x} AS {type})"

    def merge(
        self, column: pa.Array | pa.ChunkedArray, lo: NDArray[np.int64], hi: NDArray[np.int64]
    ) -> pa.Array:
        """Return the sum of each range."""
        array = one_array(column)
        kind = array.type
        if pa.types.is_decimal128(kind):
            return self._decimals(array, lo, hi)
        if pa.types.is_signed_integer(kind) or pa.types.is_duration(kind):
            return self._integers(array, lo, hi)
        if pa.types.is_floating(kind):
            return _floats(array, lo, hi)
        message = f"sums of {kind} are not known; they are of whole numbers, decimals and doubles"
        raise PlanError(message, type=str(kind))

    def under(self, *, ansi: bool) -> Sum:
        """Return sums that raise when their type cannot hold them, or not."""
        return replace(self, ansi=ansi)

    def _integers(self, array: pa.Array, lo: NDArray[np.int64], hi: NDArray[np.int64]) -> pa.Array:
        there, dtype = is_there(array), np.dtype(f"i{array.type.bit_width // 8}")
        values = np.where(there, plain(array, dtype), 0).astype(np.int64)
        low, high, top = whole_sums(values.view(np.uint64), values >> 63, lo, hi)
        sums = low.view(np.int64).astype(dtype)
        is_right = (sums == low.view(np.int64)) & (high == sums >> 63) & (top == high >> 63)
        if self.ansi:
            _must_hold(is_right, array.type)
        return from_plain(sums, array.type, counts_of(there, lo, hi) > 0)

    def _decimals(self, array: pa.Array, lo: NDArray[np.int64], hi: NDArray[np.int64]) -> pa.Array:
        there, bound = is_there(array), 10**array.type.precision
        low, high = (np.where(there, each, 0) for each in limbs(array))
        sums = whole_sums(low, high, lo, hi)
        is_right = are_within(*sums, np.uint64(bound & _WORD), np.uint64(bound >> 64))
        if self.ansi:
            _must_hold(is_right, array.type)
        is_known = is_right & (counts_of(there, lo, hi) > 0)
        return from_limbs(sums[0], sums[1], array.type, is_known)


class Count(Sum):
    """Counts of rows: sums of whole numbers, of which each row has 0 or 1."""

    __slots__ = ()
    reduce_sql: ClassVar[str] = "count({x})"
    lift_sql: ClassVar[str] = "CASE WHEN {x} IS NULL THEN 0L ELSE 1L END"


def _floats(array: pa.Array, lo: NDArray[np.int64], hi: NDArray[np.int64]) -> pa.Array:
    there = is_there(array)
    values = np.where(there, plain(array, array.type.to_pandas_dtype()), 0.0).astype(np.float64)
    sums = float_sums(values, lo, hi).astype(array.type.to_pandas_dtype())
    return from_plain(sums, array.type, counts_of(there, lo, hi) > 0)


def _must_hold(is_right: NDArray[np.bool_], kind: pa.DataType) -> None:
    if not is_right.all():
        message = (
            f"the sum of {np.count_nonzero(~is_right)} ranges does not fit into {kind}; sum a "
            f"wider type, or set spark.sql.ansi.enabled to false to go on as Spark then does"
        )
        raise AggregateError(message, type=str(kind))
