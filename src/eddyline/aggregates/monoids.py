"""Monoids: associative operations that combine partial aggregates.

They work on the entries of a column, over many ranges at once. In comes a column of partials with
ranges of its entries. Out comes the partial of each range (``merge``), or what the final SQL reads
of it (``value``). Ranges follow each other: their first and their last entries are both in
ascending order. So one pass over the entries serves all ranges, however long they are. Where the
entries of one group end, those of the next begin, and ranges jump.

Below the interface stand the monoids: sums and counts, averages, moments (of which variances,
covariances and correlations are made), extremes, the first and last entry by time, lists and
distinct values, and exact quantiles of rows. ``MONOIDS`` names them with their SQL. A new one is a
row there, with a class here if the arithmetic is new.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eddyline.aggregates.columns import (
    codes_of,
    counts_of,
    from_limbs,
    from_plain,
    is_bytes,
    is_there,
    limbs,
    plain,
    ranks_of,
    settled,
    taken,
    words_of,
)
from eddyline.aggregates.monoids_kernels import (
    are_within,
    before_of,
    distinct_counts,
    float_sums,
    least_bytes,
    least_words,
    moments,
    places_of_ranks,
    whole_sums,
)
from eddyline.data.arrays import starts_of
from eddyline.errors import AggregateError, PlanError

if TYPE_CHECKING:
    from eddyline.data.arrays import Bytes, Floats, Ints, Mask


@dataclass(frozen=True, slots=True, kw_only=True)
class Monoid(ABC):
    """An associative operation on partials; NULL is its neutral element.

    ``lo`` and ``hi`` ((ranges,)) say which entries a range has: [lo, hi). Both are in ascending
    order, with lo <= hi. A range without entries, or of NULL alone, gives NULL.
    """

    reduce_sql: str = ""
    """Spark's aggregate that makes one partial of the lifted values ``{x}`` of many rows. Empty if
    there is none, so that only rows can be combined."""
    lift_sql: str = "{x}"
    """SQL of the partial of a single row, of the same type; ``{type}`` is that type's name. Empty
    if there is none, so that only cells can be combined."""
    ansi: bool = True
    """Whether a sum that its type cannot hold raises, as in Spark's ANSI mode. Else whole numbers
    wrap, and decimals and their averages are NULL."""

    can_merge: ClassVar[bool] = True
    """Whether partials of ranges can be partials again."""

    commutes: ClassVar[bool] = False
    """Whether the order of entries is of no account."""

    @abstractmethod
    def merge(self, column: pa.Array, lo: Ints, hi: Ints) -> pa.Array:
        """Return the partial of each range, of the type of the column.

        Raises:
            AggregateError: a partial that its type cannot hold, where Spark would raise.
            PlanError: a column of a type that has no such partials.
        """

    def value(self, column: pa.Array, lo: Ints, hi: Ints) -> pa.Array:
        """Return what the final SQL reads of each range: its partial, if nothing else is said."""
        return self.merge(column, lo, hi)


_WORD = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Sum(Monoid):
    """Sums of whole numbers and decimals (exact), and of floating-point numbers.

    A range is summed exactly before its sum is checked, so entries that would leave the type on
    the way do no harm; partials themselves are of the type of Spark's sum. Out of ANSI mode a cell
    that Spark could not sum is NULL and so does not count: it takes decimals of 29 digits or more.
    """

    commutes: ClassVar[bool] = True

    def merge(self, column: pa.Array, lo: Ints, hi: Ints) -> pa.Array:
        """Return the sum of each range."""
        kind = column.type
        if pa.types.is_decimal128(kind):
            return self._decimals(column, lo, hi)
        if pa.types.is_signed_integer(kind) or pa.types.is_duration(kind):
            return self._integers(column, lo, hi)
        if pa.types.is_floating(kind):
            return _floats(column, lo, hi)
        message = f"sums of {kind} are not known; they are of whole numbers, decimals and doubles"
        raise PlanError(message, type=str(kind))

    def _integers(self, column: pa.Array, lo: Ints, hi: Ints) -> pa.Array:
        there, dtype = is_there(column), np.dtype(f"i{column.type.bit_width // 8}")
        values = np.where(there, plain(column, dtype), 0).astype(np.int64)
        low, high, top = whole_sums(values.view(np.uint64), values >> 63, lo, hi)
        sums = low.view(np.int64).astype(dtype)
        is_right = (sums == low.view(np.int64)) & (high == sums >> 63) & (top == high >> 63)
        if self.ansi:
            _must_hold(is_right, column.type)
        return from_plain(sums, column.type, counts_of(there, lo, hi) > 0)

    def _decimals(self, column: pa.Array, lo: Ints, hi: Ints) -> pa.Array:
        there, bound = is_there(column), 10**column.type.precision
        low, high = (np.where(there, limb, 0) for limb in limbs(column))
        sums = whole_sums(low, high, lo, hi)
        is_right = are_within(*sums, np.uint64(bound & _WORD), np.uint64(bound >> 64))
        if self.ansi:
            _must_hold(is_right, column.type)
        is_known = is_right & (counts_of(there, lo, hi) > 0)
        return from_limbs(sums[0], sums[1], column.type, is_known)


def _floats(column: pa.Array, lo: Ints, hi: Ints) -> pa.Array:
    there = is_there(column)
    values = np.where(there, plain(column, column.type.to_pandas_dtype()), 0.0).astype(np.float64)
    sums = float_sums(values, lo, hi).astype(column.type.to_pandas_dtype())
    return from_plain(sums, column.type, counts_of(there, lo, hi) > 0)


def _must_hold(is_right: Mask, kind: pa.DataType) -> None:
    if not is_right.all():
        message = (
            f"the sum of {np.count_nonzero(~is_right)} ranges does not fit into {kind}; sum a "
            f"wider type, or set spark.sql.ansi.enabled to false to go on as Spark then does"
        )
        raise AggregateError(message, type=str(kind))


_MORE_DIGITS = 4
"""Digits behind the point that Spark's average of decimals has more than they."""

_MOST_DIGITS = 38
_SMALL = 2**61


@dataclass(frozen=True, slots=True)
class Mean(Monoid):
    """Averages of doubles and decimals: structs of their sum and number; the average is the value.

    Decimals are divided exactly and rounded once, half up, to four more digits behind the point.
    """

    commutes: ClassVar[bool] = True

    def merge(self, column: pa.Array, lo: Ints, hi: Ints) -> pa.Array:
        """Return the sum and the number of each range."""
        there = is_there(column)
        sums, numbers = column.field(0), column.field(1)
        is_spoiled = there & ~is_there(sums) & (pc.fill_null(numbers, 0).to_numpy() > 0)
        if not there.all():
            sums, numbers = (pc.if_else(pa.array(there), array, None) for array in (sums, numbers))
        total = Sum(ansi=self.ansi).merge(sums, lo, hi)
        if is_spoiled.any():
            total = pc.if_else(pa.array(counts_of(is_spoiled, lo, hi) > 0), None, total)
        n = Sum().merge(numbers, lo, hi)
        fields = [column.type.field(number) for number in range(2)]
        return settled(pa.StructArray.from_arrays([total, n], fields=fields, mask=pc.is_null(n)))

    def value(self, column: pa.Array, lo: Ints, hi: Ints) -> pa.Array:
        """Return the average of each range."""
        merged = self.merge(column, lo, hi)
        numbers = pc.fill_null(merged.field(1), 0).to_numpy()
        n = pa.array(numbers, mask=numbers == 0)
        if pa.types.is_decimal(merged.field(0).type):
            return self._ratio(merged.field(0), n)
        return pc.divide(merged.field(0), n.cast(pa.float64()))

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
    rounded = np.where(whole < 0, -quotients, quotients)
    kind = pa.decimal128(_MOST_DIGITS, digits)
    return from_limbs(rounded.view(np.uint64), rounded >> 63, kind, there)


@dataclass(frozen=True, slots=True)
class Moments(Monoid):
    """Moments of doubles, or of pairs of doubles of which neither is NULL.

    Structs of doubles have their number ``n``, ``mean`` and squared deviations ``m2``. Those of
    pairs have ``n``, the means of ``x`` and ``y``, and the sums of the products ``xy``, ``xx`` and
    ``yy`` of deviations.
    """

    commutes: ClassVar[bool] = True

    def merge(self, column: pa.Array, lo: Ints, hi: Ints) -> pa.Array:
        """Return the moments of each range."""
        fields = [column.field(number) for number in range(column.type.num_fields)]
        cells = np.column_stack([_numbers(array) for array in fields])
        cells[~is_there(column), 0] = 0.0
        totals = moments(cells, lo, hi)
        there = totals[:, 0] > 0
        columns = [
            pa.array(np.ascontiguousarray(totals[:, number]), mask=~there).cast(array.type)
            for number, array in enumerate(fields)
        ]
        parts = [column.type.field(number) for number in range(len(fields))]
        return settled(pa.StructArray.from_arrays(columns, fields=parts, mask=pa.array(~there)))


def _numbers(column: pa.Array) -> Floats:
    """Return numbers as doubles, 0 for NULL."""
    values: Floats = column.to_numpy(zero_copy_only=False).astype(np.float64)
    if column.null_count:
        values = np.where(is_there(column), values, 0.0)
    return values


@dataclass(frozen=True, slots=True, kw_only=True)
class Extreme(Monoid):
    """The least or the greatest entry: of all types that Spark sorts."""

    commutes: ClassVar[bool] = True

    is_greatest: bool = False

    def merge(self, column: pa.Array, lo: Ints, hi: Ints) -> pa.Array:
        """Return that entry of each range."""
        return taken(column, self.positions(column, lo, hi))

    def positions(self, column: pa.Array, lo: Ints, hi: Ints) -> Ints:
        """Return where the entry of each range is, -1 where there is none."""
        there = is_there(column)
        if is_bytes(column.type):
            content = _bytes_of(column)
            return least_bytes(*content, -1 if self.is_greatest else 1, there, lo, hi)
        words = words_of(column)
        return self.of_words(ranks_of(column) if words is None else words, there, lo, hi)

    def of_words(self, words: Ints, there: Mask, lo: Ints, hi: Ints) -> Ints:
        """Return the same by whole numbers that sort as the entries do."""
        return least_words(~words if self.is_greatest else words, there, lo, hi)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timely(Extreme):
    """The first or the last entry by time that is not NULL.

    Entries are structs of a time (whole number or timestamp) and a value, which may be NULL; the
    value decides where times are equal, so that the order of rows does not. Values are ranked only
    where times are equal, and times are compared only where a range has them out of order. Entries
    of other types are in order as they are.
    """

    commutes: ClassVar[bool] = False

    def positions(self, column: pa.Array, lo: Ints, hi: Ints) -> Ints:
        """Return where the first or last entry of each range is, -1 where there is none."""
        there = is_there(column)
        places = np.flatnonzero(there)  # what is NULL may stand between equal times
        before = starts_of(there)
        begin, end = before[lo], before[hi]
        if not pa.types.is_struct(column.type):
            return self.of_places(places, begin, end)
        times = words_of(column.field(0))
        if times is None:
            return Extreme.positions(self, column, lo, hi)
        is_ordered = _are_ordered(times[places], begin, end)
        order = places if is_ordered else places[np.argsort(times[places], kind="stable")]
        same = times[order][1:] == times[order][:-1]
        if is_ordered and not same.any():
            return self.of_places(places, begin, end)
        is_tied = np.append(same, False) | np.append(False, same)
        values = np.zeros(order.size, np.int64)
        values[is_tied] = ranks_of(column.field(1).take(pa.array(order[is_tied])))
        # One number that sorts as the rank of the time and then that of the value.
        words = np.zeros(times.size, np.int64)
        words[order] = np.cumsum(np.append(True, ~same)) * (values.max() + 1) + values
        return self.of_words(words, there, lo, hi)

    def value(self, column: pa.Array, lo: Ints, hi: Ints) -> pa.Array:
        """Return the value of that entry of each range, without its time."""
        if not pa.types.is_struct(column.type):
            return self.merge(column, lo, hi)
        return taken(column.field(1), self.positions(column, lo, hi))

    def of_places(self, places: Ints, begin: Ints, end: Ints) -> Ints:
        """Return the first or last of the places from begin to end."""
        chosen = np.full(begin.size, -1)
        some = begin < end
        chosen[some] = places[end[some] - 1 if self.is_greatest else begin[some]]
        return chosen


@dataclass(frozen=True, slots=True, kw_only=True)
class InOrder(Timely):
    """The first or last of entries that stand in the order of their rows, ties included."""

    def positions(self, column: pa.Array, lo: Ints, hi: Ints) -> Ints:
        """Return where the first or last entry of each range is, -1 where there is none."""
        there = is_there(column)
        before = starts_of(there)
        return self.of_places(np.flatnonzero(there), before[lo], before[hi])


def _are_ordered(times: Ints, begin: Ints, end: Ints) -> bool:
    """Return whether times never fall from begin to end of a range."""
    falls = np.concatenate([[0, 0], np.cumsum(times[1:] < times[:-1])])[: times.size + 1]
    some = begin < end
    return bool((falls[end[some]] == falls[begin[some] + 1]).all())


def _bytes_of(column: pa.Array) -> tuple[Bytes, Ints]:
    """Return the bytes of all texts, and where each of them starts and the last one ends."""
    if not len(column):  # read-only as others are: a kernel is compiled for what it is given
        return np.frombuffer(b"", np.uint8), np.frombuffer(bytes(8), np.int64)
    wide = column if pa.types.is_large_binary(column.type) else column.cast(pa.large_binary())
    _, starts, content = wide.buffers()
    offsets = np.frombuffer(starts, np.int64, len(wide) + 1, wide.offset * 8)
    data = np.frombuffer(content, np.uint8) if content else np.frombuffer(b"", np.uint8)
    return data, offsets


_MOST = 2**31 - 1
"""Elements of all lists of an Arrow array."""


@dataclass(frozen=True, slots=True)
class Elements:
    """The elements of a column of lists that are not NULL, and those that each range has."""

    values: pa.Array
    lo: Ints
    hi: Ints

    @classmethod
    def from_column(cls, column: pa.Array, lo: Ints, hi: Ints) -> Elements:
        """Return the elements of ranges of lists."""
        starts = starts_of(pc.fill_null(pc.list_value_length(column), 0).to_numpy())
        values = pc.list_flatten(column)
        if values.null_count:
            starts, values = starts_of(is_there(values))[starts], values.drop_null()
        return cls(values, starts[lo], starts[hi])

    def places(self) -> tuple[Ints, Ints]:
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

    def merge(self, column: pa.Array, lo: Ints, hi: Ints) -> pa.Array:
        """Return the values of each range in one list."""
        elements = Elements.from_column(column, lo, hi)
        return _listed(column.type, elements.values, *elements.places(), lo.size)


@dataclass(frozen=True, slots=True)
class Distinct(Monoid):
    """Each distinct value once, in a list; what is counted of it does not need the lists of ranges.

    Values are equal as in Spark's groups: NaN is NaN, -0.0 is 0.0. Lists that are merged grow the
    work as ``Lists`` do; counting takes one pass over all values.
    """

    def merge(self, column: pa.Array, lo: Ints, hi: Ints) -> pa.Array:
        """Return the distinct values of each range in one list, as they first come."""
        elements = Elements.from_column(column, lo, hi)
        before = before_of(*codes_of(elements.values))
        places, ranges = elements.places()
        is_first = before[places] < elements.lo[ranges]
        return _listed(column.type, elements.values, places[is_first], ranges[is_first], lo.size)

    def value(self, column: pa.Array, lo: Ints, hi: Ints) -> pa.Array:
        """Return the number of distinct values of each range."""
        elements = Elements.from_column(column, lo, hi)
        counts = distinct_counts(*codes_of(elements.values), elements.lo, elements.hi)
        return from_plain(counts, pa.int64(), counts > 0)


@dataclass(frozen=True, slots=True)
class DistinctSum(Distinct):
    """Sums of distinct numbers."""

    def value(self, column: pa.Array, lo: Ints, hi: Ints) -> pa.Array:
        """Return the sum of the distinct values of each range, in the widest type of its kind."""
        elements = Elements.from_column(self.merge(column, lo, hi), *_single_ranges(lo.size))
        return self._aggregate(_widest(elements.values), elements.lo, elements.hi)

    def _aggregate(self, values: pa.Array, lo: Ints, hi: Ints) -> pa.Array:
        return Sum(ansi=self.ansi).value(values, lo, hi)


@dataclass(frozen=True, slots=True)
class DistinctMean(DistinctSum):
    """Averages of distinct numbers."""

    def _aggregate(self, values: pa.Array, lo: Ints, hi: Ints) -> pa.Array:
        numbers = values.cast(pa.float64()) if pa.types.is_integer(values.type) else values
        ones = pa.array(np.ones(len(values), np.int64))
        return Mean(ansi=self.ansi).value(
            pa.StructArray.from_arrays([numbers, ones], ["sum", "n"]), lo, hi
        )


def _single_ranges(n: int) -> tuple[Ints, Ints]:
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
    places: Ints,
    ranges: Ints,
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


@dataclass(frozen=True, slots=True)
class Quantile(Monoid):
    """The least value that so large a fraction of the values does not exceed.

    Entries are structs of the fraction ``p``, one and the same, and a value ``x``, of single rows:
    there are no cells of them, and nothing to merge.
    """

    can_merge: ClassVar[bool] = False

    def merge(self, column: pa.Array, lo: Ints, hi: Ints) -> pa.Array:
        """Refuse: two quantiles do not make one of both."""
        del lo, hi
        message = "quantiles of rows cannot be merged; merge the sketches of cells"
        raise PlanError(message, type=str(column.type))

    def value(self, column: pa.Array, lo: Ints, hi: Ints) -> pa.Array:
        """Return the quantile of each range."""
        wanted, values = column.field(0), column.field(1)
        there = is_there(column) & is_there(values)
        order = np.argsort(ranks_of(values), kind="stable")
        places = np.empty(order.size, np.int64)
        places[order] = np.arange(order.size)
        fractions = wanted.to_numpy(zero_copy_only=False).astype(np.float64)
        positions = places_of_ranks(np.where(there, places, -1), fractions, lo, hi)
        some = positions >= 0
        positions[some] = order[positions[some]]
        return taken(values, positions)


LG_K = 12
"""Binary logarithm of the registers of a sketch of distinct values: a relative standard error of
1.04 / sqrt(2^12) = 1.63 % of combined ones (DataSketches, HLL)."""

KLL_K = 200
"""Size of a sketch of quantiles: its ranks are off by less than 1.33 % of all rows, with a
confidence of 99 % (DataSketches, KLL)."""


def united(lists: str, union: str) -> str:
    """Return SQL of one sketch made of a list of sketches; NULL if there is no list.

    >>> united("c", "hll_union")
    'reduce(slice(c, 2, greatest(size(c), 1)), c[0], (a, b) -> hll_union(a, b))'
    """
    rest = f"slice({lists}, 2, greatest(size({lists}), 1))"
    return f"reduce({rest}, {lists}[0], (a, b) -> {union}(a, b))"


_COUNTED = "CASE WHEN {x} IS NULL THEN 0L ELSE 1L END"
"""The number of a single row."""

_LISTED = "CASE WHEN {x} IS NOT NULL THEN array({x}) END"

# The deviation of a row from itself is {x} - {x}: NaN of infinity, as Spark has it.
MONOIDS: dict[str, Monoid] = {
    "sum": Sum(reduce_sql="sum({x})", lift_sql="CAST({x} AS {type})"),
    "count": Sum(reduce_sql="count({x})", lift_sql=_COUNTED),
    "mean": Mean(
        reduce_sql="named_struct('sum', sum({x}), 'n', count({x}))",
        lift_sql=f"CAST(named_struct('sum', {{x}}, 'n', {_COUNTED}) AS {{type}})",
    ),
    "min": Extreme(reduce_sql="min({x})"),
    "max": Extreme(reduce_sql="max({x})", is_greatest=True),
    "first": Timely(reduce_sql="min({x})"),
    "last": Timely(reduce_sql="max({x})", is_greatest=True),
    "first_row": InOrder(),
    "last_row": InOrder(is_greatest=True),
    "moments": Moments(
        reduce_sql=(
            "named_struct('n', count({x}), 'mean', avg({x}), 'm2', var_pop({x}) * count({x}))"
        ),
        lift_sql=f"named_struct('n', {_COUNTED}, 'mean', {{x}}, 'm2', {{x}} - {{x}})",
    ),
    "pair_moments": Moments(
        reduce_sql=(
            "named_struct('n', count({x}), 'mean_x', avg(({x}).x), 'mean_y', avg(({x}).y), "
            "'xy', covar_pop(({x}).x, ({x}).y) * count({x}), "
            "'xx', var_pop(({x}).x) * count({x}), 'yy', var_pop(({x}).y) * count({x}))"
        ),
        lift_sql=(
            f"named_struct('n', {_COUNTED}, 'mean_x', ({{x}}).x, 'mean_y', ({{x}}).y, "
            "'xy', (({x}).x - ({x}).x) * (({x}).y - ({x}).y), "
            "'xx', ({x}).x - ({x}).x, 'yy', ({x}).y - ({x}).y)"
        ),
    ),
    "distinct": Distinct(reduce_sql="collect_set({x})", lift_sql=_LISTED),
    "distinct_sum": DistinctSum(reduce_sql="collect_set({x})", lift_sql=_LISTED),
    "distinct_mean": DistinctMean(reduce_sql="collect_set({x})", lift_sql=_LISTED),
    "lists": Lists(reduce_sql="collect_list({x})", lift_sql=_LISTED),
    "distinct_sketch": Lists(reduce_sql=f"array(hll_sketch_agg({{x}}, {LG_K}))", lift_sql=""),
    "quantile_sketch": Lists(
        reduce_sql=f"array(kll_sketch_agg_double({{x}}, {KLL_K}))", lift_sql=""
    ),
    "quantile": Quantile(),
}
"""As in Spark's ANSI mode; see ``Monoid.ansi``."""
