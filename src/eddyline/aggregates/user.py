"""Aggregates of users, as classes with three methods.

A class lifts rows to partials, combines partials, and lowers them to values.

Example:
    >>> import pyarrow.compute as pc
    >>> class Product(Aggregate):
    ...     def lift(self, values):
    ...         return values.cast("double")
    ...     def combine(self, one, other):
    ...         return pc.multiply(one, other)
    >>> product = UserMonoid(Product())
    >>> column = pa.array([2.0, None, 3.0, 5.0])
    >>> product.value(column, np.array([0, 2, 3]), np.array([3, 4, 3])).to_pylist()
    [6.0, 15.0, None]
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from eddyline.aggregates.columns import is_there, one_array, taken
from eddyline.aggregates.monoids import Monoid
from eddyline.data.arrays import starts_of
from eddyline.errors import OptionError, PlanError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from eddyline.data.arrays import Ints, Mask


class Aggregate:
    """What a user derives an aggregate from; instances go to Spark's workers, pickled.

    Methods take and return whole Arrow arrays, never single values, and get no NULL partials: NULL
    is what does not count. They are called some 2 log2(n) times for the longest window of n
    entries, not once per row, and must not change what they are given.
    """

    inverse: Callable[[pa.Array, pa.Array], pa.Array] | None = None
    """A method ``inverse(self, a, b)`` that takes partials ``b`` away again from the left end of
    ``a``: ``inverse(combine(b, c), b)`` is ``c``. Give it only where that is exact, whatever the
    values are: sums of doubles are not."""

    def lift(self, *arrays: pa.Array) -> pa.Array:
        """Return the partial of each row: any type, structs included; NULL if it does not count.

        Args:
            *arrays: the arguments of the call, of equal length.
        """
        raise NotImplementedError

    def combine(self, one: pa.Array, other: pa.Array) -> pa.Array:
        """Return the partials of pairs of partials, one after the other in time: associative."""
        raise NotImplementedError

    def lower(self, partials: pa.Array) -> pa.Array:
        """Return the value of each partial; the partial itself if there is no other method."""
        return partials


@dataclass(frozen=True, slots=True)
class UserMonoid(Monoid):
    """What a user's aggregate combines, over many ranges at once."""

    aggregate: Aggregate
    lift_sql: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        for name in ("lift", "combine", "lower"):
            if not callable(getattr(self.aggregate, name, None)):
                message = f"{self._name} has no method {name!r}; an aggregate has lift and combine"
                raise OptionError(message, name=name)

    def lifted(self, arrays: Sequence[pa.Array]) -> pa.Array:
        """Return the partial of each row of arguments.

        Raises:
            PlanError: the aggregate gave something else than an array of that length.
        """
        return self._checked(self.aggregate.lift(*arrays), "lift", len(arrays[0]), None)

    def merge(self, column: pa.Array, lo: Ints, hi: Ints) -> pa.Array:
        """Return the partial of each range; see ``lower`` for values."""
        before = starts_of(is_there(column))
        column, lo, hi = column.drop_null(), before[lo], before[hi]
        some = np.flatnonzero(lo < hi)
        if not some.size:
            return pa.nulls(lo.size, column.type)
        method = self._by_tree if self.aggregate.inverse is None else self._by_prefixes
        return _with_nulls(method(column, lo[some], hi[some]), some, lo.size)

    def value(self, column: pa.Array, lo: Ints, hi: Ints) -> pa.Array:
        """Return the lowered partial of each range."""
        merged = self.merge(column, lo, hi)
        some = np.flatnonzero(is_there(merged))
        lowered = self.aggregate.lower(merged.drop_null())
        return _with_nulls(self._checked(lowered, "lower", some.size, None), some, lo.size)

    def _by_tree(self, array: pa.Array, lo: Ints, hi: Ints) -> pa.Array:
        """Combine blocks of 1, 2, 4, … entries, as the bits of the lengths of ranges say.

        A block is made only where a range has all of it: entries of different groups never meet.
        """
        reach, starts = _reach(lo, hi, len(array)), np.arange(len(array))
        place, positions, sizes = starts.copy(), lo.copy(), hi - lo
        blocks, totals = array, pa.nulls(lo.size, array.type)
        for level in range(int(sizes.max()).bit_length()):
            taking = np.flatnonzero(sizes >> level & 1)
            parts = blocks.take(pa.array(place[positions[taking]]))
            before = totals.take(pa.array(taking))
            totals = _put(
                totals, taking, self._joined(before, parts, positions[taking] == lo[taking])
            )
            positions[taking] += 1 << level
            starts = starts[starts + (2 << level) <= reach[starts]]
            pair = (place[starts], place[starts + (1 << level)])
            blocks = self._combined(*(blocks.take(pa.array(places)) for places in pair))
            place[starts] = np.arange(starts.size)
        return totals

    def _by_prefixes(self, array: pa.Array, lo: Ints, hi: Ints) -> pa.Array:
        """Take away what is before each range from all up to its end, among ranges that overlap."""
        reach = _reach(lo, hi, len(array))
        is_first = np.ones(len(array), np.bool_)
        is_first[1:] = reach[:-1] <= np.arange(1, len(array))
        sums = self._prefixes(array, is_first)
        totals = sums.take(pa.array(hi - 1))
        some = np.flatnonzero(~is_first[lo])
        rest = totals.take(pa.array(some)), sums.take(pa.array(lo[some] - 1))
        inverse = self.aggregate.inverse
        if not some.size or inverse is None:
            return totals
        return _put(totals, some, self._checked(inverse(*rest), "inverse", some.size, array.type))

    def _prefixes(self, array: pa.Array, is_first: Mask) -> pa.Array:
        """Return all entries up to each one combined, from the last first one on.

        Pairs are combined, then the pairs up to each pair, then the entries between them.
        """
        n = len(array)
        if n == 1:
            return array
        even, odd = np.arange(0, n, 2), np.arange(1, n, 2)
        later, firsts = even[1:], even[: odd.size]
        one, other, rest = (array.take(pa.array(indexes)) for indexes in (firsts, odd, later))
        pairs = self._joined(one, other, is_first[odd])
        sums = self._prefixes(pairs, is_first[firsts] | is_first[odd])
        between = self._joined(sums[: later.size], rest, is_first[later])
        places = np.concatenate([[0], odd, later])
        return pa.concat_arrays([array[:1], sums, between]).take(pa.array(np.argsort(places)))

    def _joined(self, one: pa.Array, other: pa.Array, is_alone: Mask) -> pa.Array:
        """Return pairs combined, but the second alone where that is said."""
        some = np.flatnonzero(~is_alone)
        if some.size == len(other):
            return self._combined(one, other)
        chosen = pa.array(some)
        return _put(other, some, self._combined(one.take(chosen), other.take(chosen)))

    def _combined(self, one: pa.Array, other: pa.Array) -> pa.Array:
        if not len(one):
            return one
        return self._checked(self.aggregate.combine(one, other), "combine", len(one), one.type)

    @property
    def _name(self) -> str:
        return f"the aggregate {type(self.aggregate).__name__}"

    def _checked(self, result: object, method: str, n: int, kind: pa.DataType | None) -> pa.Array:
        """Return what a method gave as one array, if it is what it has to be."""
        phrase = f"{method} of {self._name}"
        if not isinstance(result, pa.Array | pa.ChunkedArray):
            message = f"{phrase} returns a {type(result).__name__}; it has to return an Arrow array"
            raise PlanError(message, method=method)
        if len(result) != n:
            message = (
                f"{phrase} returns {len(result)} values for {n}; it has to return one for each"
            )
            raise PlanError(message, method=method, n_values=len(result), expected=n)
        if kind is not None and result.type != kind:
            message = (
                f"{phrase} returns {result.type}, but partials are {kind}; cast what it returns"
            )
            raise PlanError(message, method=method, type=str(result.type), expected=str(kind))
        if kind is not None and result.null_count:
            message = f"{phrase} returns NULL for partials that are not; NULL stands for no rows"
            raise PlanError(message, method=method)
        return one_array(result)


def _reach(lo: Ints, hi: Ints, n: int) -> Ints:
    """Return, by entry, where the last range ends that starts at or before it; 0 if none does."""
    before = np.searchsorted(lo, np.arange(n), side="right")
    return np.concatenate([[0], hi])[before]


def _put(array: pa.Array, places: Ints, values: pa.Array) -> pa.Array:
    """Return an array with other values at some places."""
    chosen = np.arange(len(array))
    chosen[places] = len(array) + np.arange(places.size)
    return pa.concat_arrays([array, values]).take(pa.array(chosen))


def _with_nulls(values: pa.Array, places: Ints, n: int) -> pa.Array:
    """Return n values: these at their places, NULL elsewhere."""
    chosen = np.full(n, -1)
    chosen[places] = np.arange(places.size)
    return taken(values, chosen)
