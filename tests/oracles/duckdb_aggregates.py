"""Windowed aggregates by the definition as SQL, computed by DuckDB.

The rows of a stream that are not late, its event times in µs, are a table ``s``; instants are made
by ``generate_series`` or read from it, and joined with the rows that windows hold at them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import duckdb
import sqlglot
from sqlglot.dialects import DuckDB, Spark

from eddyline.query.query import LONGEST, RangeWindow, RowsWindow, SessionWindow, SlideWindow
from tests.oracles.aggregates import END, START, next_slide

if TYPE_CHECKING:
    import pyarrow as pa

    from eddyline.query.query import Window
    from tests.oracles.aggregates import Aggregation, Call, Over


def results(
    rows: pa.Table, of: Aggregation, window: Window, low: int, emits: str | None = None
) -> list[tuple[Any, ...]]:
    """Return the results of a query with GROUP BY or of DISTINCT; not of windows that count rows.

    Args:
        rows: those of the stream that are in time; ``ts`` are µs.
        of: what is asked.
        window: of the stream.
        low: the instant before which every row has come (µs).
        emits: ``istream``, ``dstream`` or ``rstream``; None for the default.
    """
    if not rows.num_rows:
        return []
    if isinstance(window, SessionWindow):
        return _asked(rows, _sessions(of, window.gap, low))
    times = rows["ts"].to_pylist()
    if isinstance(window, SlideWindow):
        return _asked(rows, _slides(times, of, window, low, emits or "rstream"))
    return _asked(rows, _changes(of, window, low, emits or "istream"))


def over(rows: pa.Table, of: Over, low: int) -> list[tuple[Any, ...]]:
    """Return each row that is final with its aggregates; rows have an ``id`` of their own."""
    parts = ", ".join(_sql(each.text) for each in of.partition_by) or "1"
    order = ", ".join(f"{name} NULLS LAST" for name in ["ts", *rows.column_names])
    numbered = (
        f"SELECT *, ({parts}) AS _part, "
        f"row_number() OVER (PARTITION BY ({parts}) ORDER BY {order}) AS _n "
        f"FROM s WHERE {_where(of)}"
    )
    columns = [
        f"(SELECT {_call(call, in_order=of.counts_rows)} FROM kept AS b "
        f"WHERE b._part IS NOT DISTINCT FROM a._part AND {_frame(window)}) AS {call.column}"
        for call, window in of.calls
    ]
    text = f"SELECT {', '.join(['a.*', *columns])} FROM kept AS a WHERE ts < {low}"
    return _asked(rows, f"WITH kept AS ({numbered}) SELECT {', '.join(of.output)} FROM ({text})")


def _frame(window: Window) -> str:
    if isinstance(window, RowsWindow):
        return f"b._n BETWEEN a._n - {window.rows - 1} AND a._n"
    return f"b.ts <= a.ts AND b.ts >= a.ts::HUGEINT - {window.length}"


def _slides(times: list[int], of: Aggregation, window: SlideWindow, low: int, emits: str) -> str:
    """Return a query for slides: windows that hold rows, or held some a slide before."""
    first = next_slide(min(times), window)
    last = next_slide(max(times), window)
    if window.length < LONGEST:
        last += window.length + window.slide
    elif low < 2**62:
        last = low
    ends = f"SELECT unnest(generate_series({first}, {min(last, low)}, {window.slide})) AS t"
    start = "NULL" if window.length == LONGEST else f"t - {window.length}"
    inside = "ts < t" if window.length == LONGEST else f"ts >= t - {window.length} AND ts < t"
    at = f"SELECT t FROM ends UNION SELECT t - {window.slide} FROM ends"
    relation = _relation(of, start, f"({at}) JOIN kept ON {inside}")
    return _emitted(of, f"ends AS ({ends}), {relation}", window.slide, emits)


def _changes(of: Aggregation, window: Window, low: int, emits: str) -> str:
    """Return a query for windows without slides: at each instant, and just before it."""
    ends, start, inside = "SELECT DISTINCT ts AS t FROM kept", "NULL", "ts <= t"
    if isinstance(window, RangeWindow):
        start, inside = f"t - {window.length}", f"ts <= t AND ts >= t - {window.length}"
        if emits != "rstream":
            ends += f" UNION SELECT ts + {window.length} + 1 FROM kept"
    ends = f"SELECT t FROM ({ends}) WHERE t < {low}"
    relation = _relation(
        of, start, f"(SELECT t FROM ends UNION SELECT t - 1 FROM ends) JOIN kept ON {inside}"
    )
    return _emitted(of, f"ends AS ({ends}), {relation}", 1, emits)


def _relation(of: Aggregation, start: str, source: str) -> str:
    """Return the output rows of all groups at all instants as a named part of a query."""
    groups = [f"_g{at}" for at, _ in enumerate(of.groups)]
    having = f" WHERE {_sql(of.having.text)}" if of.having else ""
    columns = [f"{each} AS {name}" for each, (name, _) in zip(groups, of.groups, strict=True)]
    columns += [f"{_call(each)} AS {each.column}" for each in of.calls]
    columns += [f"{start} AS {START}", f"t AS {END}"]
    made = f"SELECT t, {', '.join([*groups, *columns])} FROM {source} GROUP BY {_list('t', groups)}"
    return f"relation AS (SELECT * FROM ({made}){having})"


def _emitted(of: Aggregation, parts: str, before: int, emits: str) -> str:
    """Return which rows of a relation came to be, which went, or which there are."""
    groups = [f"_g{at}" for at, _ in enumerate(of.groups)]
    other, shift = "", 0
    if emits != "rstream":
        alike = " AND ".join(
            f"a.{name} IS NOT DISTINCT FROM b.{name}"
            for name in [*groups, *of.output]
            if name not in (START, END)
        )
        sign = "-" if emits == "istream" else "+"
        shift = 0 if emits == "istream" else before
        other = f" AND NOT EXISTS (FROM relation AS b WHERE b.t = a.t {sign} {before} AND {alike})"
    columns = ", ".join(
        f"{name} + {shift} AS {name}" if name in (START, END) else name for name in of.output
    )
    return (
        f"WITH {_kept(of)}, {parts} SELECT {columns} FROM relation AS a "
        f"WHERE a.t + {shift} IN (SELECT t FROM ends){other}"
    )


def _sessions(of: Aggregation, gap: int, low: int) -> str:
    """Return a query for sessions: a row begins one if none of its group is near before it."""
    groups = [f"_g{at}" for at, _ in enumerate(of.groups)]
    by = f"PARTITION BY {', '.join(groups)} " if groups else ""
    past = f"ts - lag(ts) OVER ({by}ORDER BY ts)"
    begins = f"SELECT *, coalesce({past} > {gap}, TRUE) AS b FROM kept"
    numbered = (
        f"SELECT *, sum(b::INT) OVER ({by}ORDER BY ts RANGE UNBOUNDED PRECEDING) AS _session "
        f"FROM ({begins})"
    )
    columns = [f"{each} AS {name}" for each, (name, _) in zip(groups, of.groups, strict=True)]
    columns += [f"{_call(each)} AS {each.column}" for each in of.calls]
    columns += [f"min(ts) AS {START}", f"max(ts) + {gap} AS {END}"]
    having = f" AND ({_sql(of.having.text)})" if of.having else ""
    made = f"SELECT {', '.join(columns)} FROM ({numbered}) GROUP BY {_list('_session', groups)}"
    return (
        f"WITH {_kept(of)} SELECT {', '.join(of.output)} FROM ({made}) WHERE {END} < {low}{having}"
    )


def _kept(of: Aggregation) -> str:
    """Return the rows that WHERE keeps as a named part of a query, with their groups."""
    groups = [f", {_sql(each.text)} AS _g{at}" for at, (_, each) in enumerate(of.groups)]
    return f"kept AS (SELECT *{''.join(groups)} FROM s WHERE {_where(of)})"


def _where(of: Aggregation | Over) -> str:
    return _sql(of.where.text) if of.where else "TRUE"


def _list(first: str, others: list[str]) -> str:
    return ", ".join([first, *others])


def _call(call: Call, *, in_order: bool = False) -> str:
    """Return a call as DuckDB has it; in order, ``_n`` numbers the rows."""
    filtered = f" FILTER (WHERE {_sql(call.where.text)})" if call.where else ""
    of = call.argument or "*"
    if call.function in ("first", "last"):
        order = "_n" if in_order else f"ts, {of} NULLS FIRST"
        return f"{call.function}({of} ORDER BY {order}){filtered}"
    if call.function in ("var_samp", "stddev_samp"):
        nan = f"bool_or(isnan({of}::DOUBLE)){filtered} AND count({of}){filtered} > 1"
        numbers = f"CASE WHEN isnan({of}::DOUBLE) THEN NULL ELSE {of} END"
        return f"CASE WHEN {nan} THEN 'NaN'::DOUBLE ELSE {call.function}({numbers}){filtered} END"
    if call.distinct:
        of = f"DISTINCT {of}"
    return f"{call.function}({of}){filtered}"


def _sql(text: str) -> str:
    """Return Spark SQL as DuckDB writes it."""
    return sqlglot.parse_one(text, dialect=Spark).sql(dialect=DuckDB)


def _asked(rows: pa.Table, text: str) -> list[tuple[Any, ...]]:
    """Return the answer over rows that are called ``s``."""
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.register("s", rows)
        return [tuple(row.values()) for row in connection.sql(text).to_arrow_table().to_pylist()]
