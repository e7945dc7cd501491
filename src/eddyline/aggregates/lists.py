"""Lists of values: collected, or each distinct value once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eddyline.aggregates.columns import from_plain, is_there, one_array
from eddyline.aggregates.keys import codes_of
from eddyline.aggregates.lists_kernels import before_of, distinct_counts
from eddyline.aggregates.means import Mean
from eddyline.aggregates.monoid import Monoid
from eddyline.aggregates.sums import Sum
from eddyline.errors import AggregateError, PlanError

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MOST = 2**31 - 1
"""Elements of all lists of an Arrow array."""


@dataclass(frozen=True, slots=True)
class Elements:
    """The elements of a column of lists that are not NULL, and those that each range has."""

    values: pa.Array
    lo: NDArray[np.int64]
    hi: NDArray[np.int64]

    @classmethod
    def of(cls, array: pa.Array, lo: NDArray[np.int64], hi: NDArray[np.int64]) -> Elements:
        """Return the elements of ranges of lists."""
        sizes = pc.fill_null(pc.list_value_length(array), 0).to_numpy()
        starts = np.zeros(sizes.size + 1, np.int64)
        np.cumsum(sizes, out=starts[1:])
        values = one_array(pc.list_flatten(array))
        if values.null_count:
            before = np.zeros(len(values) + 1, np.int64)
            np.cumsum(is_there(values), out=before[1:])
            starts, values = before[starts], values.drop_null()
        return cls(values, starts[lo], starts[hi])

    def places(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the elements of all ranges one after the other, and the range that each is in."""
        sizes = self.hi - self.lo
        ranges = np.repeat(np.arange(sizes.size), sizes)
        shift = self.lo - (np.cumsum(sizes) - sizes)
        return np.arange(ranges.size) + shift[ranges], ranges


@dataclass(frozen=True, slots=True)
class Lists(Monoid):
    """All values in a list: what only Spark can combine, such as sketches, is handed to it so.

    The work grows with what is collected: a value that is in many ranges is copied to each.
    """

    reduce_sql: ClassVar[str] = "collect_list({x})"
    lift_sql: ClassVar[str] = "CASE WHEN {x} IS NOT NULL THEN array({x}) END"

    def merge(
        self, column: pa.Array | pa.ChunkedArray, lo: NDArray[np.int64], hi: NDArray[np.int64]
    ) -> pa.Array:
        """Return the values of each range in one list."""
        array = one_array(column)
        elements = Elements.of(array, lo, hi)
        return _listed(array.type, elements.values, *elements.places(), lo.size)


@dataclass(frozen=True, slots=True)
class Distinct(Monoid):
    """Each distinct value once, in a list; what is counted of it does not need the lists of ranges.

    Values are equal as in Spark's groups: NaN is NaN, -0.0 is 0.0. Lists that are merged grow the
    work as ``Lists`` do; counting takes one pass over all values.
    """

    reduce_sql: ClassVar[str] = "collect_set({x})"
    lift_sql: ClassVar[str] = "CASE WHEN {x} IS NOT NULL THEN array({x}) END"

    def merge(
        self, column: pa.Array | pa.ChunkedArray, lo: NDArray[np.int64], hi: NDArray[np.int64]
    ) -> pa.Array:
        """Return the distinct values of each range in one list, as they first come."""
        array = one_array(column)
        elements = Elements.of(array, lo, hi)
        before = before_of(*codes_of(elements.values))
        places, ranges = elements.places()
        is_first = before[places] < elements.lo[ranges]
        return _listed(array.type, elements.values, places[is_first], ranges[is_first], lo.size)

    def value(
        self, column: pa.Array | pa.ChunkedArray, lo: NDArray[np.int64], hi: NDArray[np.int64]
    ) -> pa.Array:
        """Return the number of distinct values of each range."""
        elements = Elements.of(one_array(column), lo, hi)
        counts = distinct_counts(*codes_of(elements.values), elements.lo, elements.hi)
        return from_plain(counts, pa.int64(), counts > 0)


@dataclass(frozen=True, slots=True)
class DistinctSum(Distinct):
    """Sums of distinct numbers."""

    ansi: bool = True
    """See ``Sum``."""

    def value(
        self, column: pa.Array | pa.ChunkedArray, lo: NDArray[np.int64], hi: NDArray[np.int64]
    ) -> pa.Array:
        """Return the sum of the distinct values of each range, in the widest type of its kind."""
        elements = Elements.of(self.merge(column, lo, hi), *_each(lo.size))
        return self._of(_widest(elements.values), elements.lo, elements.hi)

    def under(self, *, ansi: bool) -> DistinctSum:
        """Return sums that raise when their type cannot hold them, or not."""
        return replace(self, ansi=ansi)

    def _of(self, values: pa.Array, lo: NDArray[np.int64], hi: NDArray[np.int64]) -> pa.Array:
        return Sum(self.ansi).value(values, lo, hi)


@dataclass(frozen=True, slots=True)
class DistinctMean(DistinctSum):
    """Averages of distinct numbers."""

    def _of(self, values: pa.Array, lo: NDArray[np.int64], hi: NDArray[np.int64]) -> pa.Array:
        numbers = values.cast(pa.float64()) if pa.types.is_integer(values.type) else values
        ones = pa.array(np.ones(len(values), np.int64))
        return Mean(self.ansi).value(
            pa.StructArray.from_arrays([numbers, ones], ["sum", "n"]), lo, hi
        )


def _each(n: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    return np.arange(n), np.arange(1, n + 1)


def _widest(values: pa.Array) -> pa.Array:
    kind = values.type
    if pa.types.is_decimal(kind):
        return values.cast(pa.decimal128(38, kind.scale))
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return values.cast(pa.int64() if pa.types.is_integer(kind) else pa.float64())
    message = f"sums of distinct {kind} are not known; they are of numbers"
    raise PlanError(message, type=str(kind))


def _listed(
    kind: pa.DataType,
    values: pa.Array,
    places: NDArray[np.int64],
    ranges: NDArray[np.int64],
    n_ranges: int,
) -> pa.Array:
    """Return lists of values by place, in the order of the ranges; NULL of ranges without any."""
    if places.size > _MOST:
        message = (
            f"{places.size:,} values are in the lists of {n_ranges:,} windows, more than one array "
            f"holds; take smaller batches, or an approximate aggregate"
        )
        raise AggregateError(message, n_values=places.size)
    sizes = np.bincount(ranges, minlength=n_ranges)
    offsets = np.zeros(n_ranges + 1, np.int64 if pa.types.is_large_list(kind) else np.int32)
    np.cumsum(sizes, out=offsets[1:])
    content = values.take(pa.array(places))
    mask = None if sizes.all() else pa.py_buffer(np.packbits(sizes > 0, bitorder="little"))
    buffers = [mask, pa.py_buffer(offsets)]
    return pa.Array.from_buffers(kind, n_ranges, buffers, children=[content])
