"""Set operations as aggregates: UNION, EXCEPT and INTERSECT, with and without ALL.

In: a set operation, and the joins that its SELECTs read. Out: a query of aggregates. The rows of
all SELECTs are one relation, in which a column says whose row it is. Equal rows are a group, and
counts of its rows by SELECT say how often the result has it. NULL equals NULL in a group, as SQL
wants of set operations. A row counts until it leaves the window of its own SELECT.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

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
from eddyline.query.select.statement import SetOperation, identifier
from eddyline.sql.parsing import refuse

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from eddyline.query.query import Window
    from eddyline.query.select.joined import JoinReader, Stay
    from eddyline.query.select.statement import Statement

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
