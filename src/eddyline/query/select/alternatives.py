"""Rewriting of EXISTS and IN under OR as several SELECTs.

The rows of all these together are the results.

In: the conditions of WHERE. Out: alternatives, each of which is a list of conjuncts. A conjunct is
plain SQL, or it is EXISTS or IN, each of them negated or not. No row meets two of the alternatives,
so UNION ALL of them has each result once.

NOT moves inwards, which SQL's three truth values allow. Then WHERE is true if enough of its parts
are true, so a part that is NULL may count as false. ``a OR b`` becomes ``a``, and ``b`` where ``a``
is not true. ``x NOT IN (SELECT y …)`` is true if no row has ``y = x``, none has ``y`` NULL, and
there is no row at all if ``x`` is NULL. Where an equality with a column outside finds few rows, one
join asks for all three.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING

from sqlglot import exp

from eddyline.errors import NotSupportedError, NullWarning, own_frames
from eddyline.query.query import (
    CALL,
    GROUP,
    UNBOUNDED,
    AggregateCall,
    Grouping,
    Input,
    Query,
    StayWindow,
)
from eddyline.query.select.joined import INSTANT, LATEST, TIME
from eddyline.query.select.statement import Exists, Fragment, SetOperation, asked_by, identifier
from eddyline.sql.functions import as_name, drawn, joined_by
from eddyline.sql.parsing import at, offset_of, refuse

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from sqlglot import Expr

    from eddyline.query.query import Window
    from eddyline.query.select.joined import JoinReader, Stay
    from eddyline.query.select.statement import Statement

MOST = 64
"""Most alternatives of one WHERE."""


@dataclass(frozen=True, slots=True)
class _All:
    """Conditions that are all to be true."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class _Any:
    """Conditions of which one is to be true."""

    parts: tuple[Condition, ...]


Condition = Fragment | Exists | _All | _Any


@dataclass(frozen=True, slots=True)
class Alternative:
    """Conjuncts of WHERE."""

    plain: tuple[Fragment, ...]
    asked: tuple[Exists, ...]


def alternatives(statement: Statement) -> list[Alternative]:
    """Return the alternatives of a statement's WHERE; one if no subquery stands under OR.

    Raises:
        NotSupportedError: there are more than ``MOST``.
    """
    where = statement.tree.args.get("where")
    if where is None:
        return [Alternative((), ())]
    conjuncts = statement.conjuncts(where.this)
    if not statement.exists:
        return [Alternative(tuple(conjuncts), ())]
    conditions = [
        _condition(statement, part.tree, negated=False) if _asks(part.tree) else part
        for part in conjuncts
    ]
    _warn_of_nulls(statement, conditions)
    trees = [condition.tree for condition in conditions if isinstance(condition, Fragment)]
    conditions = [_asked_once(_without_known(condition, trees)) for condition in conditions]
    results: list[Alternative] = []
    for plain, asked in _cut(conditions):
        signs = {(id(exists.select), exists.asks, exists.is_negated): exists for exists in asked}
        split = (
            [fragment] if fragment.around[0] else statement.conjuncts(fragment.tree)
            for fragment in plain
        )
        alternative = Alternative(tuple(chain.from_iterable(split)), tuple(signs.values()))
        if not any((select, asks, not sign) in signs for select, asks, sign in signs):
            results.append(alternative)
        if len(results) > MOST:
            message = f"EXISTS and IN under OR make more than {MOST} alternatives of WHERE"
            refuse(message, statement.text, statement.part(where.this).start, NotSupportedError)
    return results or [alternative]  # one that no row meets, if there is no other


def _asks(tree: Expr) -> bool:
    """Return whether EXISTS or IN of a SELECT is in a condition."""
    return any(asked_by(node) is not None for node in tree.walk())


def _condition(statement: Statement, tree: Expr, *, negated: bool) -> Condition:
    """Return a condition, or NOT of it, without NOT around AND and OR."""
    if (asked := asked_by(tree)) is not None:
        return _asked(replace(asked, is_negated=asked.is_negated != negated))
    if not _asks(tree):
        fragment = statement.part(tree)
        if (node := drawn(tree)) is not None:
            message = (
                f"WHERE: {as_name(node)}() is drawn anew, so it cannot stand beside a subquery"
            )
            statement.refuse(f"{message} under OR or NOT", fragment.start)
        return fragment.negated(is_null_true=False) if negated else fragment
    inner = tree.unnest()
    if isinstance(inner, exp.Not):
        return _condition(statement, inner.this, negated=not negated)
    kind = exp.And if isinstance(inner, exp.And) else exp.Or
    parts = [_condition(statement, part, negated=negated) for part in joined_by(kind, inner)]
    return (_All if (kind is exp.And) != negated else _Any)(tuple(parts))


def _asked(asked: Exists) -> Condition:
    """Return EXISTS or IN, or the conditions that NOT IN is: of equal values, and of NULLs."""
    if not (asked.compared and asked.is_negated):
        return asked
    if len(asked.compared) > 1:
        return _All((asked, replace(asked, asks="unknown")))
    parts = [asked, replace(asked, asks="null"), replace(asked, asks="any")]
    where = asked.select.args.get("where")
    inside = [] if where is None else joined_by(exp.And, where.this)
    if _is_known(asked.select.expressions[0].unalias(), inside):
        parts.pop(1)
    return _All(tuple(parts))


def _asked_once(condition: Condition) -> Condition:
    """Return a condition in which one join asks for equal values and NULLs where that is cheap."""
    if not isinstance(condition, _All | _Any):
        return condition
    parts = tuple(map(_asked_once, condition.parts))
    first = parts[0]
    if isinstance(condition, _All) and isinstance(first, Exists) and _is_connected(first.select):
        same = [isinstance(part, Exists) and part.select is first.select for part in parts]
        if len(first.compared) == 1 and len(parts) > 1 and all(same):
            return replace(first, asks="possible")
    return replace(condition, parts=parts)


def _is_connected(select: exp.Select) -> bool:
    """Return whether WHERE has the equality of a column of a SELECT and one outside."""
    where, alias = select.args.get("where"), select.args["from_"].this.alias_or_name.lower()
    for conjunct in [] if where is None else joined_by(exp.And, where.this):
        inner = conjunct.unnest()
        sides = [inner.left, inner.right] if isinstance(inner, exp.EQ) else []
        names = [side.table.lower() for side in sides if isinstance(side, exp.Column)]
        if len(names) == 2 and alias in names and any(name not in ("", alias) for name in names):
            return True
    return False


def _is_known(value: Expr, conjuncts: Iterable[Expr]) -> bool:
    """Return whether a conjunct says that a value is not NULL."""
    for conjunct in conjuncts:
        inner = conjunct.unnest()
        if isinstance(inner, exp.Not) and isinstance(inner.this.unnest(), exp.Is):
            comparison = inner.this.unnest()
            same = comparison.this.sql().lower() == value.unnest().sql().lower()
            if same and isinstance(comparison.expression, exp.Null):
                return True
    return False


def _without_known(condition: Condition, conjuncts: Sequence[Expr]) -> Condition:
    """Return a condition that asks nothing for a NULL before NOT IN which WHERE excludes."""
    if not isinstance(condition, _All):
        return condition
    parts = [_without_known(part, conjuncts) for part in condition.parts]
    return _All(
        tuple(
            part
            for part in parts
            if not (
                isinstance(part, Exists)
                and part.asks == "any"
                and _is_known(part.compared[0], conjuncts)
            )
        )
    )


def _warn_of_nulls(statement: Statement, conditions: Sequence[Condition]) -> None:
    """Warn of each NOT IN whose SELECT may have a NULL."""
    for condition in conditions:
        if isinstance(condition, _All | _Any):
            _warn_of_nulls(statement, condition.parts)
        elif isinstance(condition, Exists) and condition.asks in ("null", "unknown"):
            column = statement.items_of(condition.select)[0].text
            place = offset_of(condition.select.args["from_"])
            message = (
                "NOT IN (SELECT …): a NULL among the values drops every row, as SQL has it; write "
                f"WHERE {column} IS NOT NULL in the SELECT, or NOT EXISTS"
            )
            text = at(message, statement.text, place)
            warnings.warn(text, NullWarning, stacklevel=own_frames())


def _not_true(condition: Condition) -> Condition:
    """Return the condition that a condition is false or NULL."""
    if isinstance(condition, Fragment):
        return condition.negated(is_null_true=True)
    if isinstance(condition, Exists):
        return replace(condition, is_negated=not condition.is_negated)
    kind = _Any if isinstance(condition, _All) else _All
    return kind(tuple(map(_not_true, condition.parts)))


def _cut(conditions: Sequence[Condition]) -> Iterator[tuple[list[Fragment], list[Exists]]]:
    """Yield the alternatives of conditions that are all to be true."""
    plain = [condition for condition in conditions if isinstance(condition, Fragment)]
    asked = [condition for condition in conditions if isinstance(condition, Exists)]
    rest = [condition for condition in conditions if isinstance(condition, _All | _Any)]
    if not rest:
        yield plain, asked
        return
    first, *others = rest
    same = [*plain, *asked, *others]
    if isinstance(first, _All):
        yield from _cut([*same, *first.parts])
        return
    # Plain SQL comes first: rows that it decides wait for no partner.
    one, *more = sorted(first.parts, key=lambda part: not isinstance(part, Fragment))
    yield from _cut([*same, one])
    if more:
        yield from _cut([*same, _not_true(one), _Any(tuple(more))])


# -- set operations as aggregates ------------------------------------------------------------------
# Set operations as aggregates: UNION, EXCEPT and INTERSECT, with and without ALL.
#
# In: a set operation, and the joins that its SELECTs read. Out: a query of aggregates. The rows of
# all SELECTs are one relation, in which a column says whose row it is. Equal rows are a group, and
# counts of its rows by SELECT say how often the result has it. NULL equals NULL in a group, as SQL
# wants of set operations. A row counts until it leaves the window of its own SELECT.


SIDE = "__side"
"""The column with the number of the SELECT that a row is of."""

RESERVED = SIDE, LATEST, TIME, "__copies"
"""What no output column of a set operation may begin with: its own columns, and those of copies."""


Side = tuple["JoinReader", "Sequence[str]"]
"""Joins of a SELECT, or of an alternative of its WHERE, and the output columns."""


def query_of(
    operation: SetOperation, sides: Sequence[Sequence[Side]], names: Sequence[str]
) -> Query:
    """Return the query of a set operation.

    Args:
        operation: the operation.
        sides: its SELECTs, in the order of the text, each with its alternatives.
        names: what the columns are called.
    """
    stays = [side[0][0].stay for side in sides]
    # Rows of a join have columns for their windows; those of SELECTs with one window need none.
    is_one = all(stay.n_streams == 1 and stay.window == stays[0].window for stay in stays)
    windows = [] if is_one else [window for stay in stays for _, window in stay.ends]
    instants = instants_of(operation, [side[0][1] for side in sides])
    parts, n_before = [], 0
    for number, side in enumerate(sides):
        for reader, outputs in side:
            times, stay = ["NULL"] * len(windows), reader.stay
            if windows:
                times[n_before : n_before + len(stay.ends)] = [text for text, _ in stay.ends]
            added = [f"{text} AS {TIME}{place}" for place, text in enumerate(times)]
            added_columns = (*added, f"{number} AS {SIDE}", f"{stay.latest} AS {LATEST}")
            columns = (*_without(instants, outputs), *added_columns)
            parts.append(replace(reader.query(columns), time=LATEST))
        n_before += len(stays[number].ends)
    inputs = tuple(source for part in parts for source in part.inputs)
    text = operation.text
    rows = Query(inputs, (), (), (), parts[0].projections, None, text, parts=tuple(parts))
    window = stays[0].window if is_one else _together(stays, windows)
    read = Input(operation.said, operation.said, window, (), operation.start, rows)
    compared = _without(instants, names)
    groups = tuple((f"{GROUP}{place}", identifier(name)) for place, name in enumerate(compared))
    texts = {name: group for group, name in groups}
    shown = tuple(f"{texts.get(name, INSTANT)} AS {name}" for name in map(identifier, names))
    selects = operation.selects
    calls = [
        AggregateCall("count", (), f"{CALL}{place}", where=f"{SIDE} = {place}")
        for place in range(len(selects))
    ]
    columns_of = {id(select): call.column for select, call in zip(selects, calls, strict=True)}
    n_times = _n_times(operation, columns_of)
    grouping = Grouping(groups, tuple(calls), copies=n_times)
    return Query((read,), (), (), (), shown, operation.emits, text, grouping=grouping)


def instants_of(operation: SetOperation, outputs: Sequence[Sequence[str]]) -> frozenset[int]:
    """Return the places of output columns that are the instant of a result, and no part of rows.

    Raises:
        QueryError: they are in other places in another SELECT, or there is no other column.
    """
    places = [
        frozenset(place for place, text in enumerate(columns) if text.startswith(f"{INSTANT} AS "))
        for columns in outputs
    ]
    selects = zip(operation.selects, places, strict=True)
    other = next((select for select, instants in selects if instants != places[0]), None)
    if other is not None:
        message = f"{INSTANT} is the instant of a result of {operation.said}, so it stands in"
        refuse(f"{message} the same place of each SELECT", operation.text, other.own[0].start)
    if places[0] and len(places[0]) == len(outputs[0]):
        message = f"{operation.said} compares columns, and {INSTANT} is none of them; add one"
        refuse(message, operation.text, operation.start)
    return places[0]


def _without(places: Collection[int], columns: Sequence[str]) -> list[str]:
    return [column for place, column in enumerate(columns) if place not in places]


def _together(stays: Sequence[Stay], windows: Sequence[Window]) -> Window:
    """Return the window of rows of several SELECTs, each of which begins those of its own."""
    if not windows:
        return UNBOUNDED
    ends = tuple((f"{TIME}{place}", window) for place, window in enumerate(windows))
    return StayWindow(ends, max(stay.length for stay in stays))


def _n_times(part: Statement | SetOperation, counts: Mapping[int, str]) -> str:
    """Return SQL of how often a part has a row, given the columns of the counts of SELECTs."""
    if not isinstance(part, SetOperation):
        count = counts[id(part)]
        return f"least({count}, 1L)" if part.tree.args.get("distinct") else count
    sides = [" + ".join(_n_times(operand, counts) for operand in side) for side in part.sides]
    one, other = (f"({text})" for text in sides)
    if isinstance(part.tree, exp.Except):
        if part.is_all:
            return f"greatest({one} - {other}, 0L)"
        return f"CASE WHEN {one} > 0 AND {other} = 0 THEN 1L ELSE 0L END"
    n_times = (
        f"least({one}, {other})" if isinstance(part.tree, exp.Intersect) else f"{one} + {other}"
    )
    return n_times if part.is_all else f"least({n_times}, 1L)"
