"""Hypothesis strategies for joins with bounds of event times in place of some windows."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import permutations
from typing import TYPE_CHECKING

from hypothesis import strategies as st

from eddyline.query.query import UNBOUNDED, RangeWindow
from eddyline.query.select.reader import read_query
from tests.oracles.join_strategies import UNITS, join_cases
from tests.oracles.partner_strategies import partner_cases

if TYPE_CHECKING:
    from eddyline.query.query import Query
    from tests.oracles.join_strategies import JoinCase

_BOUNDS = (
    "{b}.ts <= {a}.ts + INTERVAL {n} {unit}",
    "{a}.ts > {b}.ts - INTERVAL '{n}' {unit}",
    "{b}.ts BETWEEN {a}.ts - INTERVAL {m} {unit} AND {a}.ts + INTERVAL {n} {unit}",
    "{b}.ts - INTERVAL {n} {unit} <= {a}.ts",
    "{a}.ts - INTERVAL {m} {unit} >= {b}.ts",
    "{a}.ts = {b}.ts + INTERVAL {m} {unit}",
)

_PLACE_OF_PARTNERS = re.compile(r" ON |\(SELECT 1 FROM \S+ AS \S+(?: \[[^\]]*\])? WHERE ")


def is_derived(query: Query) -> bool:
    """Return whether some windows of a query follow from its condition."""
    return any(isinstance(w := each.window, RangeWindow) and w.is_derived for each in query.inputs)


def undone(query: Query) -> Query:
    """Return a query without the windows that follow from its condition."""
    inputs = tuple(
        replace(each, window=UNBOUNDED)
        if isinstance(each.window, RangeWindow) and each.window.is_derived
        else each
        for each in query.inputs
    )
    return replace(query, inputs=inputs)


@st.composite
def bounded_cases(draw: st.DrawFn, *, max_inputs: int = 4) -> JoinCase:
    """Return inner joins in which bounds of event times stand in place of some windows."""
    case = draw(
        join_cases(max_inputs=max_inputs).filter(lambda case: case.query.emits != "rstream")
    )
    text = _stripped(draw, case.query.text)
    bounds = " AND ".join(_bounds(draw, case))
    end = ")" if text.startswith("DSTREAM") else ""
    return _read(case, f"{text.removesuffix(end)} AND {bounds}{end}" if bounds else text)


@st.composite
def bounded_partner_cases(draw: st.DrawFn) -> JoinCase:
    """Return joins that are not inner, with a bound that gives the first input a window."""
    drawn = partner_cases().filter(lambda case: all(case.times.values()))
    case = draw(drawn)
    a, b = (each.name for each in case.query.inputs)
    first = f"{b}.ts <= {a}.ts + INTERVAL {draw(st.integers(-2, 4))} {_unit_of(case)}"
    bounds = " AND ".join([first, *_bounds(draw, case)])
    text = _PLACE_OF_PARTNERS.sub(lambda at: f"{at[0]}{bounds} AND ", case.query.text)
    return _read(case, _stripped(draw, text))


def _stripped(draw: st.DrawFn, text: str) -> str:
    """Return a query without some of its windows."""
    return re.sub(r" \[[^\]]*\]", lambda at: at[0] if not draw(st.integers(0, 2)) else "", text)


def _bounds(draw: st.DrawFn, case: JoinCase) -> list[str]:
    timed = [each.name for each in case.query.inputs if case.times[each.stream]]
    pairs = [*permutations(timed, 2)]
    chosen = draw(st.lists(st.sampled_from(pairs), max_size=2 * len(timed))) if pairs else []
    return [
        draw(st.sampled_from(_BOUNDS)).format(
            a=a, b=b, n=draw(st.integers(-1, 4)), m=draw(st.integers(0, 3)), unit=_unit_of(case)
        )
        for a, b in chosen
    ]


def _unit_of(case: JoinCase) -> str:
    """Return what event times are multiples of, by its name in a query."""
    streams = (rows for name, rows in case.tables.items() if case.times[name])
    instants = (at for rows in streams for at in rows["ts"].to_pylist() if at is not None)
    names = sorted(UNITS, key=UNITS.__getitem__, reverse=True)
    return names[0] if all(at.microsecond == 0 for at in instants) else names[1]


def _read(case: JoinCase, text: str) -> JoinCase:
    tables = [name for name, time in case.times.items() if time is None]
    query = read_query(text, case.columns, tables=tables, times=case.times)
    return replace(case, query=query)
