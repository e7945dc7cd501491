"""Route table: bins of one attribute, each with a filter order.

In come values of the attribute as doubles; NaN is NULL. A ``Partition`` cuts them into bins, and
each bin is a *class* of rows. A ``RouteTable`` gives each class an order. The worker asks it for
the order of each row (``group_of``), the JVM evaluates the same bins as a CASE (``conditions``),
and people read them as words.

A table is a plan like an order: it can change the work and never the answer, because each of its
orders has every filter once. Every double has exactly one bin, infinities and both zeros included,
and NULL has the last one. NumPy, SQL and words agree on the bins. Classes that take the same order
form an *order group*; executors run one selection per group. [Bizarro05 3, f_j; 4.2]

Deviations: numbers are cut where the sample has equally many rows on both sides of each bin
(equi-depth), which outliers do not spoil; the paper's ranges have one width. An attribute with few
distinct values gets a bin per value instead of a hash, so that no two values share one. A class has
one order per batch; the paper chooses for each tuple.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from eddyline.errors import PlanError
from eddyline.sql.parsing import quoted

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from collections.abc import Set as AbstractSet

    from eddyline.data.arrays import Bytes, Floats, Indices, Ints
    from eddyline.stats.profile import Order

MAX_GROUPS = 16
"""Most order groups: each is a branch of generated code and a call of each filter per batch."""

N_BUCKETS = 24
"""Most bins of an attribute with many values [Bizarro05 Table 2]."""

MAX_POINTS = 254
"""Most values or edges of a partition: how many a value has below it is counted in one byte."""

MAX_VALUES = 64
"""Most distinct values that get a bin each."""

MIN_ROWS_PER_BIN = 8
"""Sampled rows that a bin should hold, or nothing can be learned of it."""

MIN_SHARE = 0.5
"""Least share of the rows that the frequent values of a category must hold; else it is hashed."""

MAX_DISTINCT_FRAC = 0.5
"""Distinct values per row above which a category is as good as free text."""

MAX_TREND = 0.99
"""Correlation with the order of arrival from which on a number is a time or a sequence."""

MIN_STEPS = 20
"""Values below which growing may well be chance."""

_EXACT = 2.0**53
"""Whole numbers up to here are doubles without gaps."""


@dataclass(frozen=True, slots=True)
class Partition:
    """Cuts the values of one attribute into bins; the last bin is NULL.

    >>> cut = Partition("light", "ranges", (10.0, 500.0))
    >>> cut.bins(np.array([3.0, 10.0, 900.0, np.nan]))
    array([0, 1, 2, 3])
    >>> cut.words({1})
    '10 <= light < 500'

    Raises:
        PlanError: the points are not finite in number, not ascending, or NaN.
    """

    attribute: str
    """Name of the attribute."""
    kind: Literal["values", "ranges", "hash"]
    """``values``: a bin for each of ``points``, one for everything else; ``ranges``: cut at
    ``points``, each the first value of the next bin; ``hash``: by remainder."""
    points: tuple[float, ...] = ()
    """Values or edges, ascending."""
    n_hash: int = 0
    """Remainders of a ``hash`` (0 for the other kinds)."""

    def __post_init__(self) -> None:
        points = self.points
        # A nan compares false, so one among several points ascends to nothing.
        ascends = all(a < b for a, b in pairwise(points)) and not math.isnan(sum(points[:1]))
        fits = len(points) <= MAX_POINTS and self.n_hash >= 0
        is_listed = self.kind in {"values", "ranges"} and self.n_hash == 0
        is_hash = self.kind == "hash" and self.n_hash > 0 and not points
        if not (ascends and fits and (is_listed or is_hash)):
            msg = f"no partition: {self.attribute!r} {self.kind} {points} {self.n_hash}"
            raise PlanError(msg, attribute=self.attribute, kind=self.kind, points=points)

    @property
    def n_bins(self) -> int:
        """Number of bins, NULL included."""
        if self.kind == "hash":
            return self.n_hash + 1
        return len(self.points) + 2

    def bins(self, values: Floats) -> Indices:
        """Return the bin of each value, nan for NULL ([0, ``n_bins``); (N,))."""
        values = np.ascontiguousarray(values)
        if self.kind == "hash":
            whole = np.fmin(np.abs(values), _EXACT).astype(np.int64)
            bins = (whole % self.n_hash).astype(np.intp)
        elif self.kind == "ranges":
            bins = _at_most(self.points, values).astype(np.intp)
        else:
            bins = self._place(values)
        missing = np.isnan(values)
        if missing.any():
            bins[missing] = self.n_bins - 1
        return bins

    def _place(self, values: Floats) -> Indices:
        """Return the place of each value among the points; behind the last if it is none."""
        n = len(self.points)
        if n == 0:
            return np.zeros(len(values), dtype=np.intp)
        below = _at_most(self.points, values)
        # Nothing equals nan, so a value below all points is none of them.
        point = np.array([np.nan, *self.points]).take(below)
        place = np.array([n, *range(n)]).take(below)
        place[point != values] = n
        return place

    def condition(self, expr: str, bins: Collection[int]) -> str:
        """Return Spark SQL that is true for exactly the rows in some bins.

        For other rows it is false, or NULL if the value is.

        Args:
            expr: an expression of type DOUBLE.
            bins: which bins.
        """
        x, null = f"({expr})", self.n_bins - 1
        wanted = sorted(set(bins) & set(range(null)))
        parts = []
        if wanted and len(wanted) == null:
            if null in bins:
                return "TRUE"
            parts.append(f"{x} IS NOT NULL AND NOT isnan({x})")
        elif wanted:
            parts += self._among(x, wanted)
        if null in bins:
            parts.append(_is_null(x))
        if len(parts) == 1:
            return parts[0]
        return " OR ".join(f"({part})" for part in parts) if parts else "FALSE"

    def _among(self, x: str, bins: list[int]) -> list[str]:
        """Return SQL for some, not all, of the bins of a value; any of it holds.

        NaN, which is greater than all numbers there, needs a thought where there is no upper end.
        """
        if self.kind == "hash":
            test = f"{self._remainder(x)} IN ({', '.join(map(str, bins))})"
            return [f"{x} IS NOT NULL AND NOT isnan({x}) AND {test}"]
        if self.kind == "ranges":
            return [self._range(x, *run) for run in _runs(bins)]
        other = len(self.points)
        if other in bins:
            rest = sorted(set(range(other)) - set(bins))
            named = ", ".join(literal(self.points[b]) for b in rest)
            return [f"{x} NOT IN ({named}) AND NOT isnan({x})"]
        return [f"{x} IN ({', '.join(literal(self.points[b]) for b in bins)})"]

    def _range(self, x: str, first: int, last: int) -> str:
        """Return SQL for the bins from ``first`` to ``last``."""
        low = [f"{x} >= {literal(self.points[first - 1])}"] if first else []
        has_end = last < len(self.points)
        high = f"{x} < {literal(self.points[last])}" if has_end else f"NOT isnan({x})"
        return " AND ".join([*low, high])

    def _remainder(self, x: str) -> str:
        # An infinity has no place among the whole numbers; cut off, it has one. LEAST leaves a
        # NULL out, so whoever calls has to ask for that first.
        return f"(CAST(FLOOR(LEAST(ABS({x}), {literal(_EXACT)})) AS BIGINT) % {self.n_hash})"

    def without(self, useless: Collection[int]) -> Self:
        """Return a partition without some points, whose bins merge with a neighbour's.

        Args:
            useless: places in ``points``: values that count as any other, or edges that part
                nothing.
        """
        kept = tuple(p for place, p in enumerate(self.points) if place not in useless)
        return type(self)(self.attribute, self.kind, kept, self.n_hash)

    def words(self, bins: Collection[int], labels: Mapping[float, str] | None = None) -> str:
        """Return some bins as a person would say it.

        Args:
            bins: which bins.
            labels: what values stand for, such as a text for its hash.

        >>> Partition("x", "values", (1.0, 2.0, 3.0)).words({0, 2, 4})
        'x in (1, 3) or x is NULL'
        """
        name, null = self.attribute, self.n_bins - 1
        wanted = sorted(set(bins) & set(range(null)))
        texts = [] if not wanted else [f"any {name}"]
        if wanted and len(wanted) < null:
            texts = self._words(wanted, labels or {})
        if null in bins:
            texts.append(f"{name} is NULL")
        return " or ".join(texts) if texts else f"no {name}"

    def _words(self, bins: list[int], labels: Mapping[float, str]) -> list[str]:
        name, points = self.attribute, self.points
        if self.kind == "hash":
            return [f"{name} hashes to {', '.join(map(str, bins))} of {self.n_hash}"]
        if self.kind == "ranges":
            return [self._range_words(*run) for run in _runs(bins)]
        is_other = bins[-1] == len(points)
        named = sorted(set(range(len(points))) - set(bins)) if is_other else bins
        values = ", ".join(labels.get(points[b], f"{points[b]:g}") for b in named)
        if is_other:
            return [f"{name} not in ({values})"]
        return [f"{name} = {values}" if len(named) == 1 else f"{name} in ({values})"]

    def _range_words(self, first: int, last: int) -> str:
        low = f"{self.points[first - 1]:g} <= " if first else ""
        high = f" < {self.points[last]:g}" if last < len(self.points) else ""
        return f"{low}{self.attribute}{high}"

    def to_state(self) -> dict[str, Any]:
        """Return plain values (JSON, which has no infinity: those are texts)."""
        points = [p if math.isfinite(p) else repr(p) for p in self.points]
        return {
            "attribute": self.attribute,
            "kind": self.kind,
            "points": points,
            "n_hash": self.n_hash,
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        """Return the partition that ``to_state`` saved.

        Raises:
            PlanError: the state is of no partition.
        """
        points = tuple(map(float, state["points"]))
        return cls(str(state["attribute"]), state["kind"], points, int(state["n_hash"]))


@dataclass(frozen=True, slots=True)
class RouteTable:
    """Gives each class of rows one of a few orders.

    >>> cut = Partition("light", "ranges", (500.0,))
    >>> table = RouteTable(cut, ((0, 1), (1, 0)), (0, 1, 0))
    >>> table.group_of(np.array([3.0, 500.0, np.nan]))
    array([0, 1, 0], dtype=uint8)

    Raises:
        PlanError: an order has not every filter once, or bins and groups do not fit.
    """

    partition: Partition
    """Cuts the attribute into classes, a bin each."""
    orders: tuple[Order, ...]
    """The order of each group. The first is the order of all rows, for classes that want no other
    and so follow it when it changes; a class that keeps its order whatever becomes of that one is
    of another group, even while the two are equal."""
    groups: tuple[int, ...]
    """The group of each bin."""
    _lookup: Bytes = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        filters = list(range(len(self.orders[0]))) if self.orders else []
        for order in self.orders:
            if sorted(order) != filters:
                msg = f"{order} is no order of {len(filters)} filters; another answer would follow"
                raise PlanError(msg, order=order)
        n_bins, n_groups = self.partition.n_bins, len(self.orders)
        fits = 1 <= n_groups <= MAX_GROUPS and set(self.groups) <= set(range(n_groups))
        if not fits or len(self.groups) != n_bins:
            msg = (
                f"{len(self.groups)} classes in {n_groups} groups do not fit a partition of "
                f"{n_bins} bins; at most {MAX_GROUPS} groups"
            )
            raise PlanError(msg, bins=n_bins, groups=n_groups)
        object.__setattr__(self, "_lookup", np.array(self.groups, dtype=np.uint8))

    @property
    def attribute(self) -> str:
        """Name of the attribute whose value is the class of a row."""
        return self.partition.attribute

    @property
    def n_filters(self) -> int:
        """F, the number of filters."""
        return len(self.orders[0])

    @property
    def n_groups(self) -> int:
        """Number of order groups, the default one included."""
        return len(self.orders)

    def group_of(self, values: Floats) -> Bytes:
        """Return the order group of each row ((N,)): ``orders[group]`` is its order.

        Args:
            values: values of the attribute, nan for NULL ((N,)).
        """
        if self.n_groups == 1:
            return np.zeros(len(values), dtype=np.uint8)
        return self._lookup[self.partition.bins(values)]

    def conditions(self, expr: str) -> list[str]:
        """Return Spark SQL that is true for exactly the rows of each group but the first.

        The conditions exclude each other and are never NULL; rows of which none is true take
        ``orders[0]``. The expression of the attribute is of type DOUBLE.
        """
        conditions = [self.partition.condition(expr, bins) for bins in self._bins()]
        # Nothing negates a part that a NULL makes NULL, so what is NULL in the end is false.
        return [f"COALESCE({condition}, FALSE)" for condition in conditions]

    def compact(self) -> Self:
        """Return the same routes with fewer bins and orders where none differ."""
        numbers: dict[Order, int] = {}
        for group in sorted({*self.groups} - {0}):
            numbers.setdefault(self.orders[group], len(numbers) + 1)
        orders = (self.orders[0], *numbers)
        renamed = [0, *(numbers.get(order, 0) for order in self.orders[1:])]
        groups = [renamed[group] for group in self.groups]
        n, is_cut = len(self.partition.points), self.partition.kind == "ranges"
        # Edge i parts bins i and i + 1; a value that is none of the points is in bin n.
        useless = {i for i in range(n) if groups[i] == groups[i + 1 if is_cut else n]}
        kept = tuple(group for bin_, group in enumerate(groups) if bin_ not in useless)
        return type(self)(self.partition.without(useless), orders, kept)

    def with_default(self, order: Order) -> Self:
        """Return the table with another order for rows of no class in particular.

        Raises:
            PlanError: it is no order of the filters.
        """
        return self if order == self.orders[0] else replace(self, orders=(order, *self.orders[1:]))

    def rows_in_words(self, labels: Mapping[float, str] | None = None) -> list[str]:
        """Return the rows of each group, as a person would say it; see ``Partition.words``.

        >>> cut = Partition("light", "ranges", (500.0,))
        >>> RouteTable(cut, ((0, 1), (1, 0)), (0, 1, 0)).rows_in_words()
        ['other rows', '500 <= light']
        """
        return ["other rows", *(self.partition.words(bins, labels) for bins in self._bins())]

    def _bins(self) -> list[list[int]]:
        """Return the bins of each group but the first."""
        return [np.flatnonzero(self._lookup == g).tolist() for g in range(1, self.n_groups)]

    def to_state(self) -> dict[str, Any]:
        """Return plain values (JSON)."""
        return {
            "partition": self.partition.to_state(),
            "orders": [list(order) for order in self.orders],
            "groups": list(self.groups),
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        """Return the table that ``to_state`` saved.

        Raises:
            PlanError: the state is of no table.
        """
        return cls(
            Partition.from_state(state["partition"]),
            tuple(tuple(map(int, order)) for order in state["orders"]),
            tuple(map(int, state["groups"])),
        )


def choose_partition(
    name: str, kind: Literal["number", "category"], values: Floats, n_bins: int = N_BUCKETS
) -> Partition | str:
    """Choose how to cut an attribute by a sample of its values, or say why it is left out.

    An attribute is left out if it is constant; if it only grows or falls with time, so that rows to
    come are in bins of which nothing is known [Bizarro05 4.4]; or if it is a category of which
    nearly every row has another value.

    Args:
        name: of the attribute.
        kind: ``number`` (values have an order) or ``category`` (only equality means anything).
        values: sampled values in order of arrival, nan for NULL ((M,)).
        n_bins: most bins where values share one (≥ 2).
    """
    present = values[~np.isnan(values)]
    distinct, counts = np.unique(present, return_counts=True)
    why_not = _left_out(kind, values, present, len(distinct))
    if why_not:
        return why_not
    room = max(2, min(n_bins, len(present) // MIN_ROWS_PER_BIN))
    if len(distinct) <= min(MAX_VALUES, max(2, len(present) // 2)):
        return Partition(name, "values", _plain(distinct))
    if kind == "number":
        return Partition(name, "ranges", _plain(equal_parts(distinct, counts, room)))
    frequent = np.sort(np.argsort(-counts, kind="stable")[: room - 1])
    if counts[frequent].sum() >= MIN_SHARE * len(present):
        return Partition(name, "values", _plain(distinct[frequent]))
    return Partition(name, "hash", n_hash=room)


def _left_out(kind: str, values: Floats, present: Floats, n_distinct: int) -> str:
    """Return the reason why an attribute is left out, or nothing."""
    if n_distinct == 0:
        return "always NULL"
    if n_distinct == 1:
        return "constant" if len(present) == len(values) else ""
    if kind == "number":
        return "follows the order of arrival" if follows_time(present) else ""
    too_many = n_distinct > 2 and n_distinct > MAX_DISTINCT_FRAC * len(present)
    return "nearly every row has another value" if too_many else ""


def equal_parts(distinct: Floats, counts: Ints, n_bins: int) -> Floats:
    """Return the edges that part a sample into at most so many bins of about equally many rows.

    It has two or more distinct values, ascending, each so often ((K,)).
    """
    below = np.cumsum(counts) - counts
    wanted = np.arange(1, n_bins) * (counts.sum() / n_bins)
    edges = np.unique(np.searchsorted(below, wanted).clip(1, len(distinct) - 1))
    points: Floats = distinct[edges]
    return points


def follows_time(values: Floats) -> bool:
    """Return whether values only grow or only fall, or nearly so, in order of arrival."""
    if len(values) < MIN_STEPS:
        return False
    before, after = values[:-1], values[1:]
    if (after >= before).all() or (after <= before).all():
        return True
    finite = values[np.isfinite(values)]
    if len(finite) < len(values):
        return False
    finite = finite / np.abs(finite).max()  # large ones have no variance that is a double
    place = np.arange(len(finite)) - (len(finite) - 1) / 2.0
    trend = (place @ finite) / (len(finite) * place.std() * max(finite.std(), 1e-12))
    return bool(abs(trend) > MAX_TREND)


def literal(value: float) -> str:
    """Return a double as Spark SQL reads it, bit for bit.

    >>> literal(1.5), literal(float("-inf"))
    ('1.5D', "CAST('-Infinity' AS DOUBLE)")
    """
    if math.isinf(value):
        return f"CAST('{'-' if value < 0 else ''}Infinity' AS DOUBLE)"
    return f"{value!r}D"


def _is_null(x: str) -> str:
    return f"{x} IS NULL OR isnan({x})"


def _plain(values: Floats) -> tuple[float, ...]:
    """Return values as numbers, zero without a sign."""
    return tuple((np.asarray(values) + 0.0).tolist())


def _runs(bins: list[int]) -> list[tuple[int, int]]:
    """Return the first and the last of each run of neighbours."""
    runs: list[tuple[int, int]] = []
    for number in bins:
        if runs and runs[-1][1] == number - 1:
            runs[-1] = runs[-1][0], number
        else:
            runs.append((number, number))
    return runs


def _at_most(points: tuple[float, ...], values: Floats) -> Bytes:
    """Return the number of points that are at most each value ((N,)); 0 for nan.

    One comparison of all values per point: for two dozen points 3 times as fast as a binary
    search per value, whose branches the processor cannot foresee.
    """
    count = np.zeros(len(values), dtype=np.uint8)
    reached = np.empty(len(values), dtype=np.bool_)
    for point in points:
        np.greater_equal(values, point, out=reached)
        count += reached.view(np.uint8)
    return count


# -- attributes ------------------------------------------------------------------------------------
# Attributes that may tell classes of rows apart: columns, as numbers that can be cut into bins.


_WHOLE = {"tinyint", "smallint", "int", "bigint"}
_REAL = {"float", "double"}
_TEXTS = ("string", "varchar", "char")

_SHOWN_CHARS = 24
"""Characters of a text that people are shown."""

HASH_BITS = (1 << 52) - 1
"""A text's hash is cut to as many bits as a double holds exactly."""


@dataclass(frozen=True, slots=True)
class Attribute:
    """One attribute of the rows of an input."""

    name: str
    """The column, or the SQL expression, as its user names it."""
    kind: Literal["number", "category"]
    """``number``: values have an order; ``category``: only equality means anything."""
    sql: str
    """Its value as a DOUBLE: a number, 0 or 1 for a boolean, the hash of a text."""
    reads: frozenset[str] = frozenset()
    """The columns that it is made of."""
    text_sql: str = ""
    """For a text, the start of the text as SQL; empty if the value needs no text."""

    @property
    def labels(self) -> dict[float, str]:
        """Meaning of values, as far as the type alone says it."""
        return {0.0: "false", 1.0: "true"} if self.kind == "category" and not self.text_sql else {}

    def decides(self, columns: AbstractSet[str]) -> bool:
        """Return whether a filter that reads these columns reads nothing but the attribute's.

        A bin of the attribute is no prediction then, but the filter's own work [Bizarro05 Fig 8].
        """
        return bool(columns) and columns <= self.reads


def attribute(name: str, sql: str, kind: str, reads: Iterable[str]) -> Attribute | None:
    """Return an attribute, or None if a value of that type says nothing useful.

    Args:
        name: of the attribute.
        sql: its value as Spark SQL that cannot raise.
        kind: its type as ``DataFrame.dtypes`` writes it.
        reads: the columns that it is made of.
    """
    read = frozenset(reads)
    base = _base(kind)
    if base in _TEXTS:
        # The hash of NULL is a number like any other.
        hashed = (
            f"CASE WHEN {sql} IS NOT NULL THEN CAST(xxhash64({sql}) & {HASH_BITS}L AS DOUBLE) END"
        )
        return Attribute(name, "category", hashed, read, f"substring({sql}, 1, {_SHOWN_CHARS})")
    if base == "boolean":
        return Attribute(name, "category", f"CAST({sql} AS DOUBLE)", read)
    if base in _WHOLE | _REAL | {"decimal"}:
        return Attribute(name, "number", f"CAST({sql} AS DOUBLE)", read)
    if base == "date":
        return Attribute(name, "number", f"CAST(unix_date({sql}) AS DOUBLE)", read)
    if base.startswith("timestamp"):
        # Classes of rows need an order alone: a time without a zone may be read in the session's.
        micros = f"unix_micros(CAST({sql} AS TIMESTAMP))"
        return Attribute(name, "number", f"CAST({micros} AS DOUBLE)", read)
    return None


def candidates(types: Mapping[str, str], limit: int) -> tuple[Attribute, ...]:
    """Return the columns that may tell classes apart, at most so many.

    Texts, booleans, whole numbers and dates come first, in the order of the input, then real
    numbers. Times are left out: rows to come have others.
    """
    names = [name for name, kind in types.items() if not _base(kind).startswith("timestamp")]
    names.sort(key=lambda name: _base(types[name]) in _REAL | {"decimal"})
    columns = (attribute(name, quoted(name), types[name], [name]) for name in names)
    return tuple(column for column in columns if column is not None)[:limit]


def _base(kind: str) -> str:
    """Return a type without its digits or length."""
    return kind.split("(", maxsplit=1)[0].strip().lower()
