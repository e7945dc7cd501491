"""Hypothesis strategies for LEFT, SEMI and ANTI joins: recast from inner joins."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
from hypothesis import strategies as st

from eddyline.query.query import RangeWindow, RowsWindow
from eddyline.query.select.reader import read_query
from tests.oracles.join_strategies import join_cases

if TYPE_CHECKING:
    from eddyline.query.query import Input, JoinKind
    from tests.oracles.join_strategies import JoinCase

WORDS: dict[JoinKind, str] = {
    "left": "LEFT JOIN",
    "semi": "LEFT SEMI JOIN",
    "anti": "LEFT ANTI JOIN",
}

_OF_PAIRS = ("", "", "{a}.v < {b}.v", "{a}.v + {b}.v <> 3", "{a}.v > 0", "NOT {a}.v = {b}.v")
_OF_RESULTS = ("", "", "{b}.v IS NULL", "{a}.v = {b}.v OR {b}.v IS NULL", "{b}.v > 0")


@st.composite
def partner_cases(
    draw: st.DrawFn,
    *,
    conditions: bool = True,
    expressions: bool = True,
    counted: bool | None = None,
) -> JoinCase:
    """Return joins of two inputs that are not inner, and cuts of their streams into batches.

    Args:
        draw: given by hypothesis.
        conditions: whether more than equalities may make two rows partners.
        expressions: whether some keys are more than a column.
        counted: whether the second input has a window of N rows; None: some have.
    """
    drawn = join_cases(min_inputs=2, max_inputs=2, expressions=expressions)
    case = draw(drawn.filter(lambda case: _fits(case, counted=counted)))
    a, b = case.query.inputs
    a = _recast(draw, case, a)
    if case.times[b.stream] is None:
        b = _recast(draw, case, b)
    if not isinstance(a.window, RangeWindow):
        a = replace(a, window=RangeWindow(draw(st.integers(0, 3)) * _unit(case)))
    kind: JoinKind = draw(st.sampled_from(sorted(WORDS)))
    names = {"a": a.name, "b": b.name}
    on = [*case.query.equalities, *_own(b)]
    if conditions and (more := draw(st.sampled_from(_OF_PAIRS))):
        on.append(more.format(**names))
    where = _own(a)
    columns = [field for field in case.tables[a.stream].column_names if field != "ts"]
    select = [f"{a.name}.{column}" for column in columns]
    if kind == "left":
        select += [f"{b.name}.{column} AS b_{column}" for column in columns]
        if conditions and (more := draw(st.sampled_from(_OF_RESULTS))):
            where.append(more.format(**names))
    met = " AND ".join(f"({each})" for each in on)
    text = f"SELECT {', '.join(select)} FROM {_source(a)}"
    if kind != "left" and draw(st.booleans()):
        asked = f"EXISTS (SELECT 1 FROM {_source(b)} WHERE {met})"
        where.append(f"NOT {asked}" if kind == "anti" else asked)
    else:
        text = f"{text} {WORDS[kind]} {_source(b)} ON {met}"
    if where:
        text = f"{text} WHERE {' AND '.join(f'({each})' for each in where)}"
    tables = [name for name, time in case.times.items() if time is None]
    return replace(case, query=read_query(text, case.columns, tables=tables))


def _fits(case: JoinCase, *, counted: bool | None) -> bool:
    """Return whether the first input is a stream, and the second one as it is asked for."""
    first, second = case.query.inputs
    counts = isinstance(second.window, RowsWindow) and case.times[second.stream] is not None
    return case.times[first.stream] is not None and counted in (None, counts)


def _recast(draw: st.DrawFn, case: JoinCase, each: Input) -> Input:
    """Return an input without a window that counts rows."""
    if not isinstance(each.window, RowsWindow):
        return each
    return replace(each, window=RangeWindow(draw(st.integers(0, 3)) * _unit(case)))


def _unit(case: JoinCase) -> int:
    """Return what event times are multiples of (µs)."""
    streams = [rows for name, rows in case.tables.items() if case.times[name]]
    instants = [at for rows in streams for at in rows["ts"].cast(pa.int64()).to_pylist()]
    return 1 if any(at % 1_000_000 for at in instants if at is not None) else 1_000_000


def _own(each: Input) -> list[str]:
    """Return the predicates of an input with qualified columns."""
    return [re.sub(r"\b(v|k\d)\b", rf"{each.name}.\1", of.text) for of in each.predicates]


def _source(each: Input) -> str:
    return f"{each.stream} AS {each.name} [{each.window.text}]"
