"""Table of aggregate functions.

A row says which partials a function needs, and how its value follows from them. A function is SQL
at both ends, which Spark evaluates natively: ``lift`` gives what is combined of one row, ``final``
the value of combined partials. Between them stand monoids, which Spark's aggregate
(``Monoid.reduce_sql``) and eddyline's kernels know alike.

Placeholders of templates:

* ``{x}`` ``{y}``: the arguments. Of functions that take any number of them, ``{x}`` is all of them
  as one value (``joint``). In ``reduce_sql`` and ``lift_sql`` of a monoid ``{x}`` is the lifted
  value, and ``{type}`` the type that Spark gives to ``reduce_sql``.
* ``{t}``: the event time of the row (µs, bigint).
* ``{number}``: the type in which averages are taken (``number_type``).
* ``{0}`` ``{1}``: in ``final``, what the monoids gave for each partial, besides the arguments, of
  which only those can be read there that are constants.

FILTER is applied around a lift: ``CASE WHEN condition THEN lift END``. The final value is cast to
the type that Spark gives to ``reference``, its own aggregate.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from eddyline.aggregates.columns import is_there, one_array, taken
from eddyline.aggregates.monoids import Monoid, united
from eddyline.data.arrays import starts_of
from eddyline.errors import OptionError, PlanError, QueryError
from eddyline.registry import unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from eddyline.data.arrays import Ints, Mask


@dataclass(frozen=True, slots=True)
class Partial:
    """What a function combines: a value of each row, and the monoid that combines them."""

    lift: str
    """SQL template of one row; NULL if the row does not count."""
    monoid: str
    """Name in ``MONOIDS``."""


@dataclass(frozen=True, slots=True)
class AggregateFunction:
    """An aggregate function as SQL templates around monoids."""

    partials: tuple[Partial, ...]
    final: str
    """SQL template over the combined partials."""
    reference: str
    """SQL template of Spark's own aggregate over the arguments: it says type and meaning."""
    n_arguments: int = 1
    """How many arguments it takes; -1 for one or more."""
    by_row: AggregateFunction | None = None
    """The same where single rows are combined, not cells; itself if None."""

    def lifts(self, arguments: Sequence[str], *, time: str, number: str) -> tuple[str, ...]:
        """Return the SQL of each partial of one row, without a FILTER.

        Args:
            arguments: SQL of each argument.
            time: SQL of the event time (µs).
            number: the type in which averages are taken; see ``number_type``.
        """
        placeholders = self._placeholders(arguments)
        return tuple(
            part.lift.format(t=time, number=number, **placeholders) for part in self.partials
        )

    def final_of(self, values: Sequence[str], arguments: Sequence[str]) -> str:
        """Return the SQL of the value.

        Args:
            values: SQL of what the monoid of each partial gave.
            arguments: SQL of each argument; constants can be read.
        """
        return self.final.format(*values, **self._placeholders(arguments))

    def reference_of(self, arguments: Sequence[str], *, time: str) -> str:
        """Return Spark's own aggregate over arguments, as SQL."""
        return self.reference.format(t=time, **self._placeholders(arguments))

    def _placeholders(self, arguments: Sequence[str]) -> dict[str, str]:
        if self.n_arguments < 0:
            return {"x": joint(arguments), "all": ", ".join(arguments)}
        return dict(zip("xy", arguments, strict=False))


def number_type(kind: str) -> str:
    """Return the type in which Spark averages values of a type: doubles, but for decimals.

    >>> number_type("int"), number_type("decimal(10,2)")
    ('double', 'decimal(10,2)')
    """
    return kind if kind.lower().startswith("decimal") else "double"


def joint(arguments: Sequence[str]) -> str:
    """Return SQL of arguments as one value, which is NULL if any of them is.

    >>> joint(["a"]), joint(["a", "b"])
    ('a', 'CASE WHEN a IS NOT NULL AND b IS NOT NULL THEN struct(a, b) END')
    """
    if len(arguments) == 1:
        return arguments[0]
    are_there = " AND ".join(f"{argument} IS NOT NULL" for argument in arguments)
    return f"CASE WHEN {are_there} THEN struct({', '.join(arguments)}) END"


def function_of(name: str, n_arguments: int, *, is_distinct: bool = False) -> AggregateFunction:
    """Return a function by the name that a query calls it by.

    Args:
        name: in any case.
        n_arguments: how many arguments the call has; 0 of ``COUNT(*)``.
        is_distinct: whether equal arguments count once.

    Raises:
        QueryError: there is no such function, or it takes other arguments.
    """
    plain = name.lower()
    suffix = "(distinct)" if is_distinct else "" if n_arguments else "(*)"
    if n_arguments == 2 and f"{plain}{IGNORING}" in AGGREGATES and not is_distinct:
        suffix = IGNORING
    function = AGGREGATES.get(plain + suffix)
    if function is None and plain not in AGGREGATES:
        names = sorted(known_name for known_name in AGGREGATES if "(" not in known_name)
        raise QueryError(unknown("aggregate function", name, names), name=name, known=names)
    if function is None or not _takes(function, n_arguments):
        message = (
            f"{name.upper()} does not take {_arguments_text(n_arguments, is_distinct=is_distinct)}"
        )
        raise QueryError(message, name=name, n_arguments=n_arguments)
    return function


def is_plain(final: str) -> bool:
    """Return whether the value of a call is what its one monoid gives, 0 for the NULL of a count.

    A count of any row is not NULL, so two such values are distinct if what the monoid gives is.
    """
    return final in (_VALUE, _COUNT)


def is_count(final: str) -> bool:
    """Return whether a NULL of the one monoid means 0."""
    return final == _COUNT


def _takes(function: AggregateFunction, n_arguments: int) -> bool:
    return function.n_arguments == n_arguments or function.n_arguments < 0 < n_arguments


def _arguments_text(n_arguments: int, *, is_distinct: bool) -> str:
    number = f"{n_arguments} argument{'' if n_arguments == 1 else 's'}"
    return f"DISTINCT and {number}" if is_distinct else number


def _one(lift: str, monoid: str, final: str, reference: str, n: int = 1) -> AggregateFunction:
    """Return a function of one partial."""
    return AggregateFunction((Partial(lift, monoid),), final, reference, n)


def _timely(monoid: str, reference: str) -> AggregateFunction:
    """Return a function that gives the value of a row by its time, be it NULL."""
    return _one("struct({t} AS t, {x} AS x)", monoid, "{0}", reference)


def _timely_of_values(monoid: str, aggregate: str) -> AggregateFunction:
    """Return a function of the first or last value that is not NULL, by event time."""
    lift = "CASE WHEN {x} IS NOT NULL THEN struct({t} AS t, {x} AS x) END"
    return _one(lift, monoid, "{0}", f"{aggregate}({lift}).x", 2)


def _by(monoid: str, reference: str) -> AggregateFunction:
    """Return a function that gives one argument of the row in which the other is extreme."""
    lift = "CASE WHEN {y} IS NOT NULL THEN struct({y} AS y, {x} AS x) END"
    return _one(lift, monoid, "{0}.x", reference, 2)


def _spread(final: str, least: int, reference: str) -> AggregateFunction:
    """Return a function of moments of so many rows or more."""
    value = f"CASE WHEN {{0}}.n >= {least} THEN {final} END"
    return _one("CAST({x} AS DOUBLE)", "moments", value, reference)


def _pair_spread(final: str, condition: str, reference: str) -> AggregateFunction:
    """Return a function of moments of pairs under a condition."""
    are_there = "{x} IS NOT NULL AND {y} IS NOT NULL"
    pair = "struct(CAST({x} AS DOUBLE) AS x, CAST({y} AS DOUBLE) AS y)"
    lift, value = (
        f"CASE WHEN {are_there} THEN {pair} END",
        f"CASE WHEN {condition} THEN {final} END",
    )
    return _one(lift, "pair_moments", value, reference, 2)


def _quantile(frac: str, reference: str, n: int = 2) -> AggregateFunction:
    """Return a function that gives a quantile.

    Sketches leave NaN out: it goes in as infinity, is counted apart, and is the greatest, as in
    Spark.
    """
    number, sketch = "CAST({x} AS DOUBLE)", united("{0}", "kll_sketch_merge_double")
    size = f"kll_sketch_get_n_double({sketch})"
    value = (
        f"CASE WHEN coalesce({size}, 0L) = 0 THEN NULL "
        f"WHEN ceil({frac} * {size}) > {size} - coalesce({{1}}, 0L) THEN double('NaN') "
        f"ELSE kll_sketch_get_quantile_double({sketch}, {frac}) END"
    )
    largest = f"CASE WHEN isnan({number}) THEN double('Infinity') ELSE {number} END"
    partials = (
        Partial(largest, "quantile_sketch"),
        Partial(f"CASE WHEN isnan({number}) THEN 1 END", "count"),
    )
    lift = f"struct({frac} AS p, {{x}} AS x)"
    return AggregateFunction(
        partials, value, reference, n, _one(lift, "quantile", "{0}", reference, n)
    )


IGNORING = "(ignore nulls)"
"""Suffix of the name of a function whose second argument says that it skips NULL."""

_VALUE, _COUNT = "{0}", "coalesce({0}, 0L)"
_LEAST = _one("{x}", "min", "{0}", "min({x})")
_GREATEST = _one("{x}", "max", "{0}", "max({x})")
_EVERY = _one("{x}", "min", "{0}", "every({x})")
_SOME = _one("{x}", "max", "{0}", "some({x})")
_FIRST = _timely("first", "min(struct({t} AS t, {x} AS x)).x")
_LAST = _timely("last", "max(struct({t} AS t, {x} AS x)).x")
_FIRST_VALUE = _timely_of_values("first", "min")
_LAST_VALUE = _timely_of_values("last", "max")
COUNT_IF = "CASE WHEN {x} THEN 1 END"
"""What is counted of a row for which a condition is true."""

_AVERAGE = _one("CAST({x} AS {number})", "mean", "{0}", "avg({x})")
_DISTINCT_AVERAGE = _one("{x}", "distinct_mean", "{0}", "avg(DISTINCT {x})")
_DISTINCT_COUNT = _one("{x}", "distinct", _COUNT, "count(DISTINCT {all})", -1)
_VARIANCE = _spread("{0}.m2 / ({0}.n - 1)", 2, "var_samp({x})")
_DEVIATION = _spread("sqrt({0}.m2 / ({0}.n - 1))", 2, "stddev_samp({x})")
_QUANTILE = _quantile("CAST({y} AS DOUBLE)", "percentile({x}, {y})")
_APPROXIMATE = _quantile("CAST({y} AS DOUBLE)", "approx_percentile({x}, {y})")
_SKETCHED_COUNT = f"coalesce(hll_sketch_estimate({united('{0}', 'hll_union')}), 0L)"

AGGREGATES: dict[str, AggregateFunction] = {
    "count(*)": _one("1", "count", _COUNT, "count(*)", 0),
    "count": _one("{x}", "count", _COUNT, "count({all})", -1),
    "count(distinct)": _DISTINCT_COUNT,
    "count_if": _one(COUNT_IF, "count", _COUNT, "count_if({x})"),
    "sum": _one("{x}", "sum", "{0}", "sum({x})"),
    "sum(distinct)": _one("{x}", "distinct_sum", "{0}", "sum(DISTINCT {x})"),
    "avg": _AVERAGE,
    "avg(distinct)": _DISTINCT_AVERAGE,
    "mean": _AVERAGE,
    "mean(distinct)": _DISTINCT_AVERAGE,
    "min": _LEAST,
    "min(distinct)": _LEAST,
    "max": _GREATEST,
    "max(distinct)": _GREATEST,
    "min_by": _by("min", "min_by({x}, {y})"),
    "max_by": _by("max", "max_by({x}, {y})"),
    "first": _FIRST,
    "first_value": _FIRST,
    "any_value": _FIRST,
    "last": _LAST,
    "last_value": _LAST,
    **{f"{name}{IGNORING}": _FIRST_VALUE for name in ("first", "first_value", "any_value")},
    **{f"{name}{IGNORING}": _LAST_VALUE for name in ("last", "last_value")},
    "bool_and": _EVERY,
    "every": _EVERY,
    "bool_or": _SOME,
    "any": _SOME,
    "some": _SOME,
    "var_pop": _spread("{0}.m2 / {0}.n", 1, "var_pop({x})"),
    "var_samp": _VARIANCE,
    "variance": _VARIANCE,
    "stddev_pop": _spread("sqrt({0}.m2 / {0}.n)", 1, "stddev_pop({x})"),
    "stddev_samp": _DEVIATION,
    "stddev": _DEVIATION,
    "std": _DEVIATION,
    "covar_pop": _pair_spread("{0}.xy / {0}.n", "{0}.n >= 1", "covar_pop({x}, {y})"),
    "covar_samp": _pair_spread("{0}.xy / ({0}.n - 1)", "{0}.n >= 2", "covar_samp({x}, {y})"),
    "corr": _pair_spread(
        "{0}.xy / sqrt({0}.xx * {0}.yy)", "{0}.n >= 2 AND {0}.xx * {0}.yy <> 0", "corr({x}, {y})"
    ),
    "approx_count_distinct": AggregateFunction(
        (Partial("CASE WHEN {x} IS NOT NULL THEN xxhash64({x}) END", "distinct_sketch"),),
        _SKETCHED_COUNT,
        "approx_count_distinct({x})",
        by_row=_DISTINCT_COUNT,
    ),
    "percentile": _QUANTILE,
    "quantile": _QUANTILE,
    "approx_percentile": _APPROXIMATE,
    "percentile_approx": _APPROXIMATE,
    "median": _quantile("0.5D", "median({x})", 1),
}
"""By the name that a query calls a function by, in lower case; ``(*)`` behind it stands for no
argument, ``(distinct)`` for DISTINCT, ``(ignore nulls)`` for a second argument that is TRUE.

Quantiles of windows of slices come of KLL sketches in double precision: a value whose rank is off
by less than 1.33 % of the rows (99 % sure), not one between two; over single rows (OVER) they are
exact. Approximate distinct counts of windows of slices have a relative standard error of 1.63 %;
over single rows they are exact."""


# -- aggregates of users ---------------------------------------------------------------------------
# Aggregates of users: a class that lifts rows to partials, combines these, and lowers them.


class Aggregate:
    """What a user derives an aggregate from; instances go to Spark's workers, pickled.

    Methods take and return whole Arrow arrays, never single values, and get no NULL partials: NULL
    is what does not count. They are called some 2 log2(n) times for the longest window of n
    entries, not once per row, and must not change what they are given.

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
