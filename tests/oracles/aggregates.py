"""The slow reference of windowed aggregates: by the definition, instant by instant, over rows.

A stream is a list of batches, a batch a list of rows, a row a dict. Event times are in ``ts``, µs
as an int or None. At each instant the rows of the window are filtered out of all rows and
aggregated anew. Nothing here is fast, and it shares no code with the room that aggregates.

What the definition leaves open is decided here:

* Event time moves on by all rows of a stream, those included that WHERE drops; a row that WHERE
  drops is never late, unless a ROWS window counts it.
* In a ROWS window the order among equal event times is that of the rows' contents: all columns of
  the stream, the first one first, ascending, NaN behind all values and NULL behind that.
* Where a frame of OVER counts rows, those of one instant are in the order of their columns, for
  FIRST and LAST, too. Elsewhere FIRST takes of the rows of the earliest instant the smallest
  value, NULL before all values; LAST of the rows of the latest instant the greatest.
* WHERE is asked before rows are counted in frames of OVER, as these are of the rows that are left.
  A ROWS window counts all rows of the stream, and WHERE is asked of those that it holds.
* ISTREAM and DSTREAM compare the row of a group with that of the same group before, as if both had
  the window of the instant.
* RSTREAM of a window without slides gives rows at instants of rows that WHERE keeps, and of a ROWS
  window at those of all rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cmp_to_key
from typing import TYPE_CHECKING, Any

from eddyline.query.query import (
    LONGEST,
    RangeWindow,
    RowsWindow,
    SessionWindow,
    SlideWindow,
    Window,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    Row = Mapping[str, Any]
    Batches = Sequence[Sequence[Row]]
    Relation = dict[tuple[Any, ...], tuple[Any, ...]]
    """The output row of each group that has one, at an instant."""

FOREVER = 2**63 - 1
"""An instant behind all others (µs): nothing is waited for."""

START, END = "ws", "we"
"""Output columns with the start and the end of the window (µs)."""


@dataclass(frozen=True, slots=True)
class Expression:
    """A value of a row, as Spark's SQL and as Python."""

    text: str
    of: Callable[[Row], Any] = field(compare=False)


@dataclass(frozen=True, slots=True)
class Call:
    """One call of an aggregate function."""

    function: str
    column: str
    """The name of its value."""
    argument: str | None = None
    """A column; None of ``count(*)``."""
    distinct: bool = False
    where: Expression | None = None
    """Condition of FILTER."""

    @property
    def text(self) -> str:
        """The call in Spark's SQL."""
        argument = ("DISTINCT " if self.distinct else "") + (self.argument or "*")
        filtered = f" FILTER (WHERE {self.where.text})" if self.where else ""
        return f"{self.function}({argument}){filtered}"

    def value(self, rows: Iterable[Row], *, in_order: bool = False) -> Any:
        """Return the value over some rows; in order, FIRST and LAST are of their first and last."""
        rows = [row for row in rows if self.where is None or self.where.of(row)]
        if self.argument is None:
            return len(rows)
        timed = [(row["ts"], row[self.argument]) for row in rows]
        if in_order and self.function in ("first", "last"):
            return timed[0 if self.function == "first" else -1][1] if timed else None
        if self.function in ("first", "last"):
            return _ordered(timed)[0 if self.function == "first" else -1][1] if timed else None
        values = [value for _, value in timed if value is not None]
        if self.distinct:
            values = list({plain(value): value for value in values}.values())
        return FUNCTIONS[self.function](values)


@dataclass(frozen=True, slots=True)
class Aggregation:
    """What is asked of the rows of windows."""

    groups: tuple[tuple[str, Expression], ...]
    """Name and expression of each member of GROUP BY."""
    calls: tuple[Call, ...]
    output: tuple[str, ...]
    """The output columns: names of groups and calls, ``ws`` and ``we``."""
    where: Expression | None = None
    having: Expression | None = None
    """Over the names of groups and calls."""

    def keeps(self, row: Row) -> bool:
        """Return whether WHERE keeps a row."""
        return self.where is None or bool(self.where.of(row))

    def grouped(self, rows: Iterable[Row]) -> dict[tuple[Any, ...], list[Row]]:
        """Return the rows that WHERE keeps, by group."""
        found: dict[tuple[Any, ...], list[Row]] = {}
        for row in rows:
            if self.keeps(row):
                group = tuple(plain(each.of(row)) for _, each in self.groups)
                found.setdefault(group, []).append(row)
        return found

    def row(self, rows: Sequence[Row], start: int | None, end: int) -> tuple[Any, ...] | None:
        """Return the output row of a group, or None if HAVING is not true of it."""
        known = {name: each.of(rows[0]) for name, each in self.groups}
        known |= {each.column: each.value(rows) for each in self.calls}
        known |= {START: start, END: end}
        if self.having is not None and not self.having.of(known):
            return None
        return tuple(known[name] for name in self.output)

    def relation(self, rows: Iterable[Row], start: int | None, end: int) -> Relation:
        """Return the output rows of all groups of some rows."""
        made = {g: self.row(held, start, end) for g, held in self.grouped(rows).items()}
        return {group: row for group, row in made.items() if row is not None}


@dataclass(frozen=True, slots=True)
class Arrived:
    """A stream after all its batches."""

    rows: list[Row]
    """Those that are not late, in the order of arrival."""
    late: list[Row]
    n_untimed: int
    """Rows without an event time, which are dropped."""
    low: int | None
    """Every row before it has come (µs); None before the first row."""


def results(
    batches: Batches,
    lateness: int,
    of: Aggregation,
    window: Window,
    emits: str | None = None,
    *,
    whole: bool = False,
) -> list[tuple[Any, ...]]:
    """Return the results of a query with GROUP BY or of DISTINCT, whatever its window.

    Args:
        batches: the rows of the stream.
        lateness: of the stream (µs).
        of: what is asked; for DISTINCT groups without calls.
        window: of the stream.
        emits: ``istream``, ``dstream`` or ``rstream``; None for the default.
        whole: whether the stream is over, as in a batch: all is final.

    Returns:
        The results that are final after the last batch, in any order.
    """
    if isinstance(window, SlideWindow):
        return slides(batches, lateness, of, window, emits, whole=whole)
    if isinstance(window, SessionWindow):
        return sessions(batches, lateness, of, window.gap, whole=whole)
    return changes(batches, lateness, of, window, emits or "istream", whole=whole)


def slides(
    batches: Batches,
    lateness: int,
    of: Aggregation,
    window: SlideWindow,
    emits: str | None = None,
    *,
    whole: bool = False,
) -> list[tuple[Any, ...]]:
    """Return what windows hold at every slide; see ``results``."""
    stream = arrived(batches, lateness, of.keeps)
    until = FOREVER if whole else stream.low
    found: list[tuple[Any, ...]] = []
    for end in slides_of(stream, window, until):
        now = _at_slide(stream.rows, of, window, end)
        before = _at_slide(stream.rows, of, window, end, end - window.slide)
        found += _emitted(now, before, emits or "rstream")
    return found


def _at_slide(
    rows: Iterable[Row], of: Aggregation, window: SlideWindow, end: int, at: int | None = None
) -> Relation:
    """Return the output rows of the window that ends at an instant, or those of another instant."""
    past = end if at is None else at
    held = [row for row in rows if row["ts"] < past and row["ts"] >= past - window.length]
    return of.relation(held, None if window.length == LONGEST else end - window.length, end)


def slides_of(stream: Arrived, window: SlideWindow, until: int | None) -> list[int]:
    """Return the instants up to one at which windows may hold rows, or held some a slide before.

    Without an end, windows that are unbounded slide until the first one that holds all rows.
    """
    if until is None or not stream.rows:
        return []
    times = [row["ts"] for row in stream.rows]
    if window.length == LONGEST:
        first, last = next_slide(min(times), window), next_slide(max(times), window)
        return list(range(first, (last if until == FOREVER else until) + 1, window.slide))
    found: set[int] = set()
    for ts in times:
        first, past = next_slide(ts, window), ts + window.length + window.slide
        found.update(range(first, past + 1, window.slide))
    return sorted(end for end in found if end <= until)


def next_slide(ts: int, window: SlideWindow) -> int:
    """Return the first slide after an instant.

    >>> next_slide(9, SlideWindow(10, 5)), next_slide(10, SlideWindow(10, 5))
    (10, 15)
    """
    return ts + window.slide - (ts - window.origin) % window.slide


def changes(
    batches: Batches,
    lateness: int,
    of: Aggregation,
    window: Window,
    emits: str = "istream",
    *,
    whole: bool = False,
) -> list[tuple[Any, ...]]:
    """Return what a window without slides holds at each instant at which it changes; see
    ``results``."""
    counts = isinstance(window, RowsWindow)
    stream = arrived(batches, lateness) if counts else arrived(batches, lateness, of.keeps)
    until = FOREVER if whole else stream.low
    instants = {row["ts"] for row in stream.rows}
    if emits != "rstream" and window.length < LONGEST:
        instants |= {row["ts"] + window.length + 1 for row in stream.rows}
    found: list[tuple[Any, ...]] = []
    for t in sorted(instants):
        if until is not None and t < until:
            start = t - window.length if isinstance(window, RangeWindow) else None
            now = of.relation(held_at(stream.rows, window, t), start, t)
            before = of.relation(held_at(stream.rows, window, t - 1), start, t)
            found += _emitted(now, before, emits)
    return found


def held_at(rows: Sequence[Row], window: Window, t: int) -> list[Row]:
    """Return the rows that a window without slides holds at an instant."""
    come = [row for row in rows if row["ts"] <= t]
    if isinstance(window, RowsWindow):
        parts: dict[tuple[Any, ...], list[Row]] = {}
        for row in by_contents(come):
            part = tuple(plain(row[name]) for name in window.partition_by)
            parts.setdefault(part, []).append(row)
        return [row for part in parts.values() for row in part[-window.rows :]]
    return [row for row in come if row["ts"] >= t - window.length]


def _emitted(now: Relation, before: Relation, emits: str) -> list[tuple[Any, ...]]:
    """Return which output rows came to be, which went, or which there are."""
    if emits == "rstream":
        return list(now.values())
    new, old = (now, before) if emits == "istream" else (before, now)
    return [row for group, row in new.items() if same(row) != same(old.get(group))]


def sessions(
    batches: Batches, lateness: int, of: Aggregation, gap: int, *, whole: bool = False
) -> list[tuple[Any, ...]]:
    """Return the sessions of each group that are over; see ``results``."""
    stream = arrived(batches, lateness, of.keeps)
    until = FOREVER if whole else stream.low
    found = []
    for rows in of.grouped(stream.rows).values():
        for session in runs(rows, gap):
            end = session[-1]["ts"] + gap
            row = of.row(session, session[0]["ts"], end)
            if row is not None and until is not None and end < until:
                found.append(row)
    return found


def runs(rows: Iterable[Row], gap: int) -> Iterator[list[Row]]:
    """Yield the rows of one group that follow each other by no more than a gap."""
    run: list[Row] = []
    for row in sorted(rows, key=lambda row: row["ts"]):
        if run and row["ts"] - run[-1]["ts"] > gap:
            yield run
            run = []
        run.append(row)
    if run:
        yield run


@dataclass(frozen=True, slots=True)
class Over:
    """A query in which each row has aggregates of its own."""

    partition_by: tuple[Expression, ...]
    calls: tuple[tuple[Call, Window], ...]
    """Each call with its frame: ``RangeWindow``, ``RowsWindow`` (its own row included) or
    ``UNBOUNDED``."""
    output: tuple[str, ...]
    """The output columns: those of the stream, and names of calls."""
    where: Expression | None = None

    def keeps(self, row: Row) -> bool:
        """Return whether WHERE keeps a row."""
        return self.where is None or bool(self.where.of(row))

    @property
    def counts_rows(self) -> bool:
        """Whether a frame counts rows, so that rows of one instant are in order."""
        return any(isinstance(window, RowsWindow) for _, window in self.calls)

    def part(self, row: Row) -> tuple[Any, ...]:
        """Return the partition of a row."""
        return tuple(plain(each.of(row)) for each in self.partition_by)


def over(
    batches: Batches, lateness: int, of: Over, *, whole: bool = False
) -> list[tuple[Any, ...]]:
    """Return each row that is final with its aggregates; see ``results``."""
    stream = arrived(batches, lateness, of.keeps)
    until = FOREVER if whole else stream.low
    found = []
    in_order = of.counts_rows
    for row in stream.rows:
        if until is not None and row["ts"] < until:
            known = dict(row)
            for call, window in of.calls:
                frame = framed(row, stream.rows, of, window)
                frame = by_contents(frame) if in_order else frame
                known[call.column] = call.value(frame, in_order=in_order)
            found.append(tuple(known[name] for name in of.output))
    return found


def framed(row: Row, rows: Iterable[Row], of: Over, window: Window) -> list[Row]:
    """Return the rows of the frame of a row."""
    part = [each for each in rows if of.part(each) == of.part(row)]
    if isinstance(window, RowsWindow):
        ordered = by_contents(part)
        at = next(at for at, each in enumerate(ordered) if each is row)
        return ordered[max(0, at + 1 - window.rows) : at + 1]
    return [each for each in part if row["ts"] - window.length <= each["ts"] <= row["ts"]]


# -- arrival --------------------------------------------------------------------------------------


def arrived(
    batches: Batches, lateness: int, keeps: Callable[[Row], bool] = lambda _: True
) -> Arrived:
    """Return which rows of a stream are late, and how far event time has come.

    Args:
        batches: the rows.
        lateness: µs.
        keeps: whether a row passes what stands before the windows.
    """
    low, rows, late, n_untimed = None, [], [], 0
    for batch in batches:
        timed = [row for row in batch if row["ts"] is not None]
        n_untimed += len(batch) - len(timed)
        for row in filter(keeps, timed):
            (late if low is not None and row["ts"] < low else rows).append(row)
        low = low_after(batch, lateness, low)
    return Arrived(rows, late, n_untimed, low)


def low_after(batch: Iterable[Row], lateness: int, low: int | None) -> int | None:
    """Return the instant before which every row has come, after a batch (µs)."""
    lows = [row["ts"] - lateness for row in batch if row["ts"] is not None]
    return max([*lows, *([] if low is None else [low])], default=None)


# -- values ---------------------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """Return a value such that equal ones of Spark's groups are equal: NaN, and the zeros.

    >>> plain(float("nan")) == plain(float("nan")), plain(-0.0)
    (True, 0.0)
    """
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    return value


def same(row: tuple[Any, ...] | None) -> tuple[Any, ...] | None:
    """Return a row such that equal ones of Spark are equal."""
    return None if row is None else tuple(map(plain, row))


def ids(rows: Iterable[Row]) -> set[int]:
    """Return which rows there are."""
    return {id(row) for row in rows}


def compared(a: Any, b: Any) -> int:
    """Return the order of two values: NULL before all, NaN behind all."""
    if a is None or b is None:
        return (a is not None) - (b is not None)
    nans = [isinstance(each, float) and math.isnan(each) for each in (a, b)]
    if any(nans):
        return nans[0] - nans[1]
    return (a > b) - (a < b)


def _ordered(rows: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Return tuples in the order of their values, the first one first."""

    def order(a: tuple[Any, ...], b: tuple[Any, ...]) -> int:
        pairs = (compared(x, y) for x, y in zip(a, b, strict=True))
        return next((each for each in pairs if each), 0)

    return sorted(rows, key=cmp_to_key(order))


def by_contents(rows: Sequence[Row]) -> list[Row]:
    """Return rows in the order of event time, and of their contents."""
    if not rows:
        return []
    names = ["ts", *(name for name in rows[0] if name != "ts")]
    keys = _ordered(
        [
            (*(part for name in names for part in (row[name] is None, row[name])), at)
            for at, row in enumerate(rows)
        ]
    )
    return [rows[key[-1]] for key in keys]


def _sum(values: Sequence[Any]) -> Any:
    return sum(values[1:], values[0]) if values else None


def _avg(values: Sequence[Any]) -> float | None:
    return float(_sum(values)) / len(values) if values else None


def _var_samp(values: Sequence[Any]) -> float | None:
    if len(values) < 2:
        return None
    mean = _avg(values)
    return float(sum((value - mean) ** 2 for value in values)) / (len(values) - 1)


def _stddev_samp(values: Sequence[Any]) -> float | None:
    variance = _var_samp(values)
    return None if variance is None else math.sqrt(variance)


def _least(values: Sequence[Any]) -> Any:
    return min(values, key=cmp_to_key(compared), default=None)


def _greatest(values: Sequence[Any]) -> Any:
    return max(values, key=cmp_to_key(compared), default=None)


FUNCTIONS: dict[str, Callable[[Sequence[Any]], Any]] = {
    "count": len,
    "sum": _sum,
    "avg": _avg,
    "min": _least,
    "max": _greatest,
    "var_samp": _var_samp,
    "stddev_samp": _stddev_samp,
}
"""Aggregate functions of values that are not NULL; FIRST and LAST need their times, too."""


# -- comparing ------------------------------------------------------------------------------------


def differences(
    found: Iterable[tuple[Any, ...]], wanted: Iterable[tuple[Any, ...]]
) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """Return what two bags of rows do not have in common; doubles agree to 9 digits.

    >>> differences([(1, 0.1 + 0.2), (2, None)], [(1, 0.3), (3, None)])
    ([(2, None)], [(3, None)])
    """
    left: dict[tuple[Any, ...], list[tuple[Any, ...]]] = {}
    for row in wanted:
        left.setdefault(_exact(row), []).append(row)
    surplus = []
    for row in found:
        candidates = left.get(_exact(row), [])
        at = next((at for at, each in enumerate(candidates) if _is_close(row, each)), None)
        if at is None:
            surplus.append(row)
        else:
            candidates.pop(at)
    return surplus, [row for rows in left.values() for row in rows]


def _exact(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple("double" if isinstance(value, float) else value for value in row)


def _is_close(a: tuple[Any, ...], b: tuple[Any, ...]) -> bool:
    pairs = [(x, y) for x, y in zip(a, b, strict=True) if isinstance(x, float)]
    return all(
        math.isclose(x, y, rel_tol=1e-9, abs_tol=1e-12) or (math.isnan(x) and math.isnan(y))
        for x, y in pairs
    )
