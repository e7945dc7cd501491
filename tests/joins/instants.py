"""A second oracle of windowed joins, slower still: what CQL says, instant by instant.

At each instant at which something may change, the windows are filled anew from the rows so far,
filtered, and joined by nested loops; what is emitted are the differences between one instant and
the one before [Babu05 2.1.2]. Plain Python throughout: conditions are walked as trees. Only for a
handful of rows. What the definition leaves open is settled as in ``testing.reference_joins``.

One thing is not as in CQL: results are told apart by the rows that they are made of. Where CQL
takes the difference of two bags of values, a result that ends at the very instant at which an equal
one begins would cancel it.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import sqlglot
from sqlglot import exp

from eddyline.query.predicates import FunctionPredicate
from eddyline.query.query import RangeWindow, RowsWindow
from tests.oracles.conjunctions import kleene_and, kleene_not, kleene_or

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from eddyline.query.query import Input, Query, Window

    Values = Mapping[str, Any]
    Scope = Mapping[str, Values]
    """The row of each input, by its name; of an unqualified column, under no name."""


class Arrival(NamedTuple):
    """A row of a stream."""

    us: int
    """Its event time (µs)."""
    order: tuple[tuple[bool, Any], ...]
    """Its contents as they are ordered: NULL before all values."""
    place: int
    """Which row of its table it is."""
    values: Values


def results_by_instants(
    query: Query, tables: Mapping[str, pa.Table], times: Mapping[str, str | None]
) -> list[dict[str, Any]]:
    """Return the results of a join over whole streams, in the order of their instants.

    Args:
        query: the join.
        tables: the rows of each stream and static table, by its name.
        times: the column of each stream that has its event time; None for a static table.

    Returns:
        For each result the output columns by name, and ``_at``: when it is emitted (µs).

    Raises:
        NotImplementedError: a condition has something in it that is not known here.
    """
    streams = {name: _arrivals(tables[name], time) for name, time in times.items()}
    join = _Join(query, streams, {name for name, time in times.items() if time is None})
    emitted, before = [], dict[tuple[int, ...], dict[str, Any]]()
    for instant in join.instants():
        now = join.at(instant)
        if query.emits == "istream":
            new = [now[which] for which in now if which not in before]
        elif query.emits == "dstream":
            new = [before[which] for which in before if which not in now]
        else:
            new = list(now.values()) if instant in join.arrived else []
        emitted += [{**values, "_at": instant} for values in new]
        before = now
    return emitted


class _Join:
    """A join at any instant."""

    def __init__(
        self, query: Query, streams: Mapping[str, list[Arrival]], static: set[str]
    ) -> None:
        self._query = query
        self._streams = streams
        self._static = static
        self._conditions = [
            (tree, {column.table for column in tree.find_all(exp.Column)})
            for tree in map(_read, (*query.equalities, *query.residual))
        ]
        self._columns = [_read(each) for each in query.projections]
        self._own = {each.name: _own(each) for each in query.inputs}
        self.arrived = {
            row.us
            for each in query.inputs
            if each.stream not in static
            for row in streams[each.stream]
        }

    def instants(self) -> list[int]:
        """Return every instant at which what a window holds may change."""
        found = set(self.arrived)
        for each in self._query.inputs:
            if isinstance(each.window, RangeWindow) and each.stream not in self._static:
                found |= {row.us + each.window.length + 1 for row in self._streams[each.stream]}
        return sorted(found)

    def at(self, instant: int) -> dict[tuple[int, ...], dict[str, Any]]:
        """Return all that holds at an instant, by the place of the row of each input."""
        held = [self._held(each, instant) for each in self._query.inputs]
        return dict(self._combined(held, {}, ()))

    def _held(self, given: Input, instant: int) -> list[Arrival]:
        rows = self._streams[given.stream]
        if given.stream not in self._static:
            rows = contents(given.window, rows, instant)
        return [row for row in rows if self._own[given.name](row.values)]

    def _combined(
        self, held: Sequence[list[Arrival]], scope: Scope, places: tuple[int, ...]
    ) -> Iterator[tuple[tuple[int, ...], dict[str, Any]]]:
        """Nested loops: each condition is asked as soon as all its inputs have a row."""
        if len(places) == len(held):
            yield places, {tree.alias: value(tree.this, scope) for tree in self._columns}
            return
        name = self._query.inputs[len(places)].name
        asked = [
            tree for tree, needs in self._conditions if name in needs and needs <= {*scope, name}
        ]
        for row in held[len(places)]:
            more = {**scope, name: row.values}
            if all(value(tree, more) is True for tree in asked):
                yield from self._combined(held, more, (*places, row.place))


def contents(window: Window, rows: Sequence[Arrival], instant: int) -> list[Arrival]:
    """Return the rows of a stream that a window holds at an instant."""
    so_far = sorted(row for row in rows if row.us <= instant)
    match window:
        case RangeWindow(length):
            return [row for row in so_far if row.us >= instant - length]
        case RowsWindow(n_rows, partition_by):
            groups: dict[tuple[Any, ...], list[Arrival]] = {}
            for row in so_far:
                groups.setdefault(tuple(row.values[k] for k in partition_by), []).append(row)
            return [row for group in groups.values() for row in group[-n_rows:]]
    return so_far


def _arrivals(table: pa.Table, time: str | None) -> list[Arrival]:
    us = [0] * table.num_rows
    if time is not None:
        instants = table[time]
        if pa.types.is_timestamp(instants.type):
            instants = instants.cast(pa.timestamp("us", instants.type.tz), safe=False)
        us = instants.cast(pa.int64()).to_pylist()
    return [
        Arrival(at, tuple((each is not None, each) for each in values.values()), place, values)
        for place, (at, values) in enumerate(zip(us, table.to_pylist(), strict=True))
        if at is not None
    ]


def _own(given: Input) -> Callable[[Values], bool]:
    """Return whether the predicates of an input keep a row of its."""
    trees = []
    for each in given.predicates:
        if isinstance(each, FunctionPredicate):
            msg = f"only SQL is walked here, not the function {each.name}"
            raise NotImplementedError(msg)
        trees.append(_read(each.text))
    return lambda row: all(value(tree, {"": row}) is True for tree in trees)


def _read(text: str) -> exp.Expression:
    tree = sqlglot.parse_one(text, dialect="spark")
    assert isinstance(tree, exp.Expression)
    return tree


def value(node: Any, scope: Scope) -> Any:
    """Return the value of an expression in SQL's three-valued logic; None is NULL.

    >>> value(_read("a.n + 1 = b.n OR a.n IS NULL"), {"a": {"n": 1}, "b": {"n": 2}})
    True

    Raises:
        NotImplementedError: the expression has something in it that is not known here.
    """
    if isinstance(node, exp.Column):
        return scope[node.table][node.name]
    if isinstance(node, exp.Literal | exp.Boolean | exp.Null):
        return _constant(node)
    parts = [value(part, scope) for part in node.iter_expressions()]
    if type(node) in _LOGIC:
        return _LOGIC[type(node)](parts)
    if type(node) not in _OPERATORS:
        msg = f"not known here: {node.sql()}"
        raise NotImplementedError(msg)
    return None if any(part is None for part in parts) else _OPERATORS[type(node)](*parts)


def _constant(node: Any) -> Any:
    if isinstance(node, exp.Null):
        return None
    return int(node.this) if isinstance(node, exp.Literal) and not node.is_string else node.this


_LOGIC: dict[type, Callable[[list[Any]], Any]] = {
    exp.And: kleene_and,
    exp.Or: kleene_or,
    exp.Not: lambda parts: kleene_not(parts[0]),
    exp.Paren: lambda parts: parts[0],
    exp.Is: lambda parts: parts[0] is parts[1],
}
_OPERATORS: dict[type, Callable[..., Any]] = {
    exp.EQ: operator.eq,
    exp.NEQ: operator.ne,
    exp.LT: operator.lt,
    exp.LTE: operator.le,
    exp.GT: operator.gt,
    exp.GTE: operator.ge,
    exp.Add: operator.add,
    exp.Sub: operator.sub,
    exp.Mul: operator.mul,
    exp.Upper: str.upper,
}
