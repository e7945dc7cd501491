"""Event times among result columns, and how late they are.

In: the event times of the inputs of a join, their windows, and output columns. Out: whether a
column can be the event time of a stream that is made of the results, and its lag. Results of a join
come in the order of their latest rows. A row without a partner waits, and the rows of other inputs
are earlier by up to their windows. So each column has a bound, which later steps trust: no result
is late.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from sqlglot import exp

from eddyline.query.query import LONGEST
from eddyline.query.select.statement import identifier
from eddyline.sql.parsing import parse_column, parse_output

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sqlglot import Expr

    from eddyline.query.query import JoinKind

ABSENT = -1
"""What is said in the place of a span of an event time that results may not have."""

Sets = tuple[frozenset[str], ...]


@dataclass(frozen=True, slots=True)
class TimedInput:
    """An input of a join that has an event time."""

    name: str
    time: str
    length: int
    """The time that its rows stay in their window (µs)."""
    result_times: ResultTimes | None = None
    """The event times among its columns, if it is itself results of a join."""


@dataclass(frozen=True, slots=True)
class ResultTimes:
    """The columns that are event times, as expressions name them."""

    lags: Mapping[str, int]
    """How far each may be behind the instant up to which all results have come (µs); ``LONGEST`` if
    there is no bound, ``ABSENT`` of a stream that a result may have no row of."""
    spans: Mapping[str, int]
    """How far each may be behind the event time of its own result (µs), in the same way."""
    latest: tuple[Sets, ...]
    """Sets of columns. The greatest of some columns is the event time of a result if they have one
    set of each of these."""
    lag: int = 0
    """How far the event time of a result may be behind (µs)."""

    @classmethod
    def of_stream(cls, time: str) -> Self:
        """Return those of rows that have the event time of their stream."""
        name = identifier(time)
        return cls({name: 0}, {name: 0}, ((frozenset([name]),),))

    @classmethod
    def of_join(cls, kind: JoinKind, inputs: Sequence[TimedInput]) -> Self:
        """Return those of a join's results, which come to be as the query asks by ISTREAM.

        Args:
            kind: of the join; where it is not inner, the first input waits for the second.
            inputs: those with event times, in the order of the join.
        """
        waits = kind != "inner" and len(inputs) > 1
        # A row without a partner is a result once its window has passed.
        lag = _sum(inputs[0].length, 1) if waits else 0
        lags: dict[str, int] = {}
        spans: dict[str, int] = {}
        latest: list[Sets] = []
        for number, item in enumerate(inputs):
            if number and kind in ("semi", "anti"):
                break
            length = item.length if len(inputs) > 1 else 0
            times = item.result_times or cls.of_stream(item.time)
            for column, behind in times.spans.items():
                name = _qualified(item.name, column)
                is_absent = behind == ABSENT or (number and kind == "left")
                spans[name] = ABSENT if is_absent else _sum(length, behind)
                lags[name] = ABSENT if is_absent else max(spans[name], _sum(lag, behind))
            event_time = frozenset([_qualified(item.name, identifier(item.time))])
            for sets in times.latest:
                moved = (
                    frozenset(_qualified(item.name, one) for one in columns) for columns in sets
                )
                latest.append((*dict.fromkeys([*moved, event_time]),))
        return cls(lags, spans, tuple(latest), lag)

    @classmethod
    def of_union(cls, parts: Sequence[tuple[Sequence[str], ResultTimes]]) -> Self:
        """Return those of UNION ALL.

        Args:
            parts: output columns and event times of each part; columns go by position.
        """
        names = [identifier(name) for name in parts[0][0]]
        lags: dict[str, int] = {}
        spans: dict[str, int] = {}
        latest: list[Sets] = []
        column_names = [[identifier(name) for name in columns] for columns, _ in parts]
        for place, name in enumerate(names):
            places = [
                (columns[place], part_times)
                for columns, (_, part_times) in zip(column_names, parts, strict=True)
            ]
            if all(column in part_times.lags for column, part_times in places):
                lags[name] = _longest(part_times.lags[column] for column, part_times in places)
                spans[name] = _longest(part_times.spans[column] for column, part_times in places)
        for columns, (_, times) in zip(column_names, parts, strict=True):
            called = {column: [name] for column, name in zip(columns, names, strict=True)}
            latest += _renamed(times.latest, called)
        return cls(lags, spans, tuple(latest), max(part_times.lag for _, part_times in parts))

    def projected(self, projections: Sequence[str], time: str) -> ResultTimes:
        """Return those of output columns, of which ``time`` is the event time of the results."""
        if "*" in projections:
            return self
        lags: dict[str, int] = {}
        spans: dict[str, int] = {}
        called: dict[str, list[str]] = {}
        for text in projections:
            tree = parse_column(text)
            name, inner = identifier(tree.alias_or_name), tree.unalias()
            named = _named(inner)
            if isinstance(inner, exp.Null):
                lags[name] = spans[name] = ABSENT
            elif named and named <= self.lags.keys():
                lags[name] = self._bound(named, self.lags, self.lag)
                spans[name] = self._bound(named, self.spans, 0)
                if isinstance(inner, exp.Column):
                    (column,) = named
                    called.setdefault(column, []).append(name)
        event_time = identifier(time)
        behind = lags.get(event_time, 0)
        lags = {
            name: lag if lag in (ABSENT, LONGEST) else max(lag - behind, 0)
            for name, lag in lags.items()
        }
        latest = _renamed(self.latest, called)
        with_own = ((*dict.fromkeys([*sets, frozenset([event_time])]),) for sets in latest)
        return ResultTimes(lags, spans, tuple(with_own))

    def lag_of(self, projection: str) -> int | None:
        """Return how far an output column may be behind the instant of a result (µs).

        Returns:
            None if the column is neither one of them nor the greatest of some, or has no bound.

        >>> times = ResultTimes.of_join(
        ...     "left", [TimedInput("s", "ts", 5), TimedInput("t", "ts", 9)]
        ... )
        >>> times.lag_of("greatest(s.ts, t.ts) AS ts"), times.lag_of("t.ts AS ts")
        (6, None)
        """
        named = _named(parse_output(projection))
        if not named or not named <= self.lags.keys():
            return None
        lag = self._bound(named, self.lags, self.lag)
        return None if lag in (ABSENT, LONGEST) else lag

    def _bound(self, named: frozenset[str], spans: Mapping[str, int], least: int) -> int:
        """Return the bound of the greatest of some columns, given that of the latest."""
        if self.latest and all(any(one <= named for one in sets) for sets in self.latest):
            return least
        return min((spans[name] for name in named if spans[name] != ABSENT), default=ABSENT)

    @property
    def bounded(self) -> list[str]:
        """The columns each of which can be the event time of results."""
        return [name for name, lag in self.lags.items() if 0 <= lag < LONGEST]


def _named(tree: Expr) -> frozenset[str]:
    """Return the columns of an expression that is one, or the greatest of some; none of others."""
    is_greatest = isinstance(tree, exp.Anonymous) and str(tree.name).lower() == "greatest"
    parts = tree.expressions if is_greatest else [tree]
    columns = [part for part in parts if isinstance(part, exp.Column)]
    if len(columns) < len(parts):
        return frozenset()
    return frozenset(".".join(identifier(part.name) for part in column.parts) for column in columns)


def _renamed(latest: tuple[Sets, ...], names: Mapping[str, Sequence[str]]) -> tuple[Sets, ...]:
    """Return the sets all of whose columns have names, by the first of these."""
    return tuple(
        tuple(
            frozenset(names[name][0] for name in columns)
            for columns in sets
            if columns <= names.keys()
        )
        for sets in latest
    )


def _qualified(name: str, column: str) -> str:
    return f"{identifier(name)}.{column}"


def _sum(*spans: int) -> int:
    return min(sum(spans), LONGEST)


def _longest(spans: Iterable[int]) -> int:
    """Return the longest of some spans; ABSENT if one may be."""
    lengths = [*spans]
    return ABSENT if ABSENT in lengths else max(lengths)
