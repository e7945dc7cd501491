"""Windows that follow from bounds on event times.

An example is ``t.ts BETWEEN s.ts AND s.ts + INTERVAL '5' MINUTES``.

In: the conjuncts of a join. Out: lengths of windows for streams of which the query states none.

A result needs all its rows to be in their windows at one instant. So a window of the length L for
``s`` keeps exactly the combinations with ``x.ts - s.ts <= L`` for every other stream ``x``. If the
condition implies these bounds, the window changes no result. Bounds are differences of event times,
so they add up along paths: the shortest paths are the bounds that the conjuncts imply together
[Dechter91]. The windows that the query states are bounds as well, because every result meets them.

Only conjuncts over the very columns of event times count, and only spans of fixed length. In Spark,
``TIMESTAMP + INTERVAL`` moves whole days by the wall clock of the session, and so does the
difference of two ``TIMESTAMP``. The result differs from exact time by the difference of two offsets
of a time zone. Such a bound is longer by ``MAX_SHIFT``.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from itertools import permutations, product
from typing import TYPE_CHECKING

from sqlglot import exp

from eddyline.query.query import MAX_SPAN
from eddyline.query.spans import UNITS, micros_in
from eddyline.sql.functions import as_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sqlglot import Expr

DAY = UNITS["day"]

MAX_SHIFT = 36 * UNITS["hour"]
"""µs between the offsets of two time zones at most: Java's are within 18 hours of UTC."""

_AT_MOST = (exp.LT, exp.LTE, exp.EQ, exp.NullSafeEQ)
_AT_LEAST = (exp.GT, exp.GTE, exp.EQ, exp.NullSafeEQ)

_ADDING = ("timestampadd", "dateadd", "date_add")
"""Functions that add a number of units to a timestamp."""


@dataclass(frozen=True, slots=True)
class _Sum:
    """Event times that are added or subtracted, and a span of time."""

    times: Mapping[str, int]
    """How often the event time of each stream is added; negative if it is subtracted."""
    span: int
    """µs, may be negative."""
    size: int = 0
    """The sum of the absolute values of the spans (µs)."""
    shift: int = 0
    """µs by which its value may differ, because some of it goes by the wall clock."""

    def plus(self, other: _Sum, sign: int, *, is_local: bool) -> _Sum:
        """Return the sum with another one, or the difference if ``sign`` is -1."""
        times = Counter(self.times)
        for name, n in other.times.items():
            times[name] += sign * n
        spans = [part.size for part in (self, other) if not part.times]
        is_moved = len(spans) < 2 and all(size >= DAY for size in spans) and not is_local
        return _Sum(
            times,
            self.span + sign * other.span,
            self.size + other.size,
            self.shift + other.shift + MAX_SHIFT * is_moved,
        )


class TimeBounds:
    """Upper bounds of differences between the event times of streams.

    Args:
        is_local: whether the event times are ``TIMESTAMP_NTZ``.
    """

    def __init__(self, *, is_local: bool) -> None:
        self._is_local = is_local
        self._bounds: dict[tuple[str, str], int] = {}
        """By two streams, the most by which the first event time is later than the second (µs)."""

    def add(self, condition: Expr, stream_of: Callable[[exp.Column], str]) -> set[str]:
        """Add the bounds that a conjunct states, if it states any; return their streams.

        Args:
            condition: the conjunct.
            stream_of: returns the stream whose event time a column is; empty if it is none.
        """
        before, self._bounds = self._bounds, {}
        if isinstance(condition, exp.Between):
            low, high = condition.args["low"], condition.args["high"]
            if not condition.args.get("symmetric"):
                self._add(low, condition.this, stream_of)
                self._add(condition.this, high, stream_of)
        if isinstance(condition, _AT_MOST):
            self._add(condition.this, condition.expression, stream_of)
        if isinstance(condition, _AT_LEAST):
            self._add(condition.expression, condition.this, stream_of)
        added, self._bounds = self._bounds, before
        for (later, earlier), most in added.items():
            self.limit(later, earlier, most)
        return {name for pair in added for name in pair}

    def _add(self, less: Expr, more: Expr, stream_of: Callable[[exp.Column], str]) -> None:
        """Add that one expression is at most another."""
        left, right = self._sum(less, stream_of), self._sum(more, stream_of)
        if left is None or right is None:
            return
        difference = left.plus(right, -1, is_local=True)
        sides = {n: name for name, n in difference.times.items() if n}
        n_times = sum(map(abs, difference.times.values()))
        if n_times == 2 and {*sides} == {1, -1}:
            self.limit(sides[1], sides[-1], difference.shift - difference.span)

    def add_all(self, other: TimeBounds) -> None:
        """Add the bounds of another object."""
        for (later, earlier), most in other._bounds.items():
            self.limit(later, earlier, most)

    def limit(self, later: str, earlier: str, most: int) -> None:
        """Add that one event time is later than another one by at most so much (µs)."""
        bound = self._bounds.get((later, earlier), most)
        self._bounds[later, earlier] = min(bound, most)

    def _sum(self, tree: Expr, stream_of: Callable[[exp.Column], str]) -> _Sum | None:
        """Return an expression as a sum; None if it is no sum of event times and spans."""
        tree = tree.unnest()
        if isinstance(tree, exp.Column):
            name = stream_of(tree)
            return _Sum({name: 1}, 0) if name else None
        if isinstance(tree, exp.Add | exp.Sub):
            sides = self._sum(tree.left, stream_of), self._sum(tree.right, stream_of)
            sign = 1 if isinstance(tree, exp.Add) else -1
        elif as_name(tree) in _ADDING and len(tree.expressions) == 3:
            unit, number, time = tree.expressions
            sides, sign = (self._sum(time, stream_of), _units(unit, number)), 1
        else:
            return _span(tree)
        left, right = sides
        if left is None or right is None:
            return None
        return left.plus(right, sign, is_local=self._is_local)

    def lengths(self, stated: Mapping[str, int | None]) -> dict[str, int]:
        """Return the lengths of windows that the bounds imply (µs), by stream.

        Args:
            stated: of every stream of the join, the length of the window that the query states
                (µs), or None if it states none.
        """
        pairs = [*permutations(stated, 2)]
        most = {pair: self._bounds[pair] for pair in pairs if pair in self._bounds}
        for pair in pairs:
            if (length := stated[pair[1]]) is not None:
                most[pair] = min(most.get(pair, length), length)
        for via, (later, earlier) in product(stated, pairs):
            if (later, via) in most and (via, earlier) in most:
                path = most[later, via] + most[via, earlier]
                most[later, earlier] = min(most.get((later, earlier), path), path)
        lengths: dict[str, int] = {}
        for name in [name for name, length in stated.items() if length is None]:
            limits = [most.get(pair, MAX_SPAN + 1) for pair in pairs if pair[1] == name]
            if limits and max(limits) <= MAX_SPAN:
                lengths[name] = max(0, *limits)
        return lengths


# -- spans of time ---------------------------------------------------------------------------------


def _span(tree: Expr) -> _Sum | None:
    """Return an interval of fixed length; None if it is none."""
    tree, sign = tree.unnest(), 1
    if isinstance(tree, exp.Neg):
        tree, sign = tree.this.unnest(), -1
    if not isinstance(tree, exp.Interval):
        return None
    value, unit = tree.this, tree.args.get("unit")
    if isinstance(value, exp.Neg):
        value, sign = value.this, -sign
    if not isinstance(value, exp.Literal):
        return None
    if isinstance(unit, exp.IntervalSpan):
        micros = _between(value.name, unit.name, unit.expression.name)
    elif isinstance(unit, exp.Var | None):
        micros = micros_in(f"{value.name} {'' if unit is None else unit.name}")
        if micros is not None and "-" in value.name.strip()[1:]:
            return None  # 1 day -2 hours: its days may go by the wall clock
    else:
        return None
    return None if micros is None else _Sum({}, sign * micros, abs(micros))


_FIELDS = ("day", "hour", "minute", "second")
_OF_FIELDS = re.compile(r"([+-]?)(\d+(?:[ :]\d+)+(?:\.\d+)?)", re.ASCII)


def _between(text: str, first: str, last: str) -> int | None:
    """Return the length of ``INTERVAL '1:30' MINUTE TO SECOND`` in µs; None if it has months.

    >>> _between("1:30", "MINUTE", "SECOND"), _between("-1 02", "DAY", "HOUR")
    (90000000, -93600000000)
    """
    match = _OF_FIELDS.fullmatch(text.strip())
    if match is None or not {first.lower(), last.lower()} <= {*_FIELDS}:
        return None
    units = _FIELDS[_FIELDS.index(first.lower()) : _FIELDS.index(last.lower()) + 1]
    numbers = re.split("[ :]", match[2])
    if len(numbers) != len(units):
        return None
    parts = zip(numbers, units, strict=True)
    micros = sum(Fraction(number[:4_000]) * UNITS[unit] for number, unit in parts)
    whole = int(micros) if Fraction(micros).denominator == 1 else None
    return -whole if whole is not None and match[1] == "-" else whole


def _units(unit: Expr, number: Expr) -> _Sum | None:
    """Return so many units as a span; None if these are no whole number of a fixed unit."""
    number, sign = number.unnest(), 1
    if isinstance(number, exp.Neg):
        number, sign = number.this.unnest(), -1
    is_whole = isinstance(number, exp.Literal) and not number.is_string and number.name.isdecimal()
    if not is_whole or len(number.name) > 18 or unit.name.lower() not in UNITS:
        return None
    micros = int(number.name) * UNITS[unit.name.lower()]
    return _Sum({}, sign * micros, micros)
