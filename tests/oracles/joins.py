"""The slow oracle of windowed joins: whole streams, by the definition, computed by DuckDB.

Each row gets the first and the last instant at which its window holds it; a combination of one row
of each input is a result if all predicates are true of it and there is an instant at which all its
windows hold their rows. Nothing here is fast and nothing outside of tests may use it. It shares no
code with the room that joins.

What the definition leaves open:

* In a ROWS window the order among equal event times is that of the rows' contents: all columns of
  the stream, the first one first, ascending, NULL before all values. Rows that are wholly equal
  may stand in any order, for it makes no difference.
* NULLs are one group of PARTITION BY.
* A row without an event time is not in its stream: no window holds it, none counts it.
* For RSTREAM an instant is one at which a row of the stream of any input arrives, whether or not
  the predicates of that input keep the row; a static table has no instants.
* DSTREAM emits all that ever ends, also after the last row of the streams; take the rows whose
  ``_at`` is not later than event time got to.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import sqlglot
from sqlglot.dialects import DuckDB, Spark

from eddyline.query.predicate_results import coerce_outcome
from eddyline.query.predicates import FunctionPredicate
from eddyline.query.query import RangeWindow, RowsWindow

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from eddyline.query.query import Input, Query, Window

ALWAYS, FOREVER = -(2**63), 2**63 - 1
"""The start of a row that was always there, and the end of one that stays (µs)."""


def results(
    query: Query, tables: Mapping[str, pa.Table], times: Mapping[str, str | None]
) -> pa.Table:
    """Return the results of a join over whole streams.

    Args:
        query: the join; its predicates mean in DuckDB what they mean in Spark.
        tables: the rows of each stream and static table, by its name.
        times: the column of each stream that has its event time, a timestamp or µs as an integer;
            None for a static table.

    Returns:
        The output columns as the projections name them, and ``_at``: the instant at which a result
        is emitted (µs). In the order of all columns, the first one first.

    Raises:
        ValueError: every input is a static table, so nothing happens at any instant.
    """
    if all(times[each.stream] is None for each in query.inputs):
        msg = f"a join of static tables has no instants: {query.text}"
        raise ValueError(msg)
    with _database().cursor() as connection:
        arrived = {name: with_time(tables[name], time) for name, time in times.items()}
        for name, rows in arrived.items():
            connection.register(_arrived(name), rows)
        held = {
            each.name: _held(
                connection, each, arrived[each.stream].column_names, times[each.stream]
            )
            for each in query.inputs
        }
        return connection.sql(_select(query, held, times)).to_arrow_table()


def results_by_partner(
    query: Query,
    tables: Mapping[str, pa.Table],
    times: Mapping[str, str | None],
    until: int = FOREVER,
) -> pa.Table:
    """Return the results of a LEFT, SEMI or ANTI join of two inputs, once event time came so far.

    A row of the first input is decided if it left its window before ``until`` (µs), and at once if
    a key of it is missing, or two of its members of one class are not equal; combinations stand at
    any time, but where rows are counted before ``until``. See ``results``.
    """
    left, right = query.inputs
    is_counted = isinstance(right.window, RowsWindow) and times[right.stream] is not None
    with _database().cursor() as connection:
        held = []
        for each in (left, right):
            rows = with_time(tables[each.stream], times[each.stream])
            connection.register(_arrived(each.stream), rows)
            held.append(_held(connection, each, rows.column_names, times[each.stream]))
        rows = f"(SELECT *, row_number() OVER () AS _row FROM ({held[0]})) AS {_name(left.name)}"
        a, b = _name(left.name), _name(right.name)
        met = [*map(_sql, (*query.equalities, *query.conditions))]
        met.append(f"greatest({a}._start, {b}._start) <= least({a}._end, {b}._end)")
        pair = " AND ".join(f"({each})" for each in met)
        members = [[f"({_sql(of)})" for of in key.members[left.name]] for key in query.keys]
        alike = [f"{of[0]} = {each}" for of in members for each in of]
        keyed = f"coalesce({' AND '.join(alike)}, FALSE)"
        partners = f"SELECT _row FROM {rows} JOIN ({held[1]}) AS {b} ON {pair}"
        due = f"(NOT {keyed} OR _end < {until} OR {until} = {FOREVER})"
        is_in = "IN" if query.kind == "semi" else "NOT IN"
        lonely = f"SELECT * FROM {rows} WHERE {due} AND _row {is_in} ({partners})"
        columns, where = ", ".join(map(_sql, query.projections)), "TRUE"
        if query.residual:
            where = " AND ".join(f"({_sql(each)})" for each in query.residual)
        text = f"SELECT {columns} FROM ({lonely}) AS {a}"
        if query.kind == "left":
            text = f"{text} LEFT JOIN ({held[1]}) AS {b} ON FALSE WHERE {where}"
            if is_counted and until < FOREVER:
                pair = f"{pair} AND greatest({a}._start, {b}._start) < {until}"
            pairs = f"FROM {rows} JOIN ({held[1]}) AS {b} ON {pair} WHERE {where}"
            text = f"SELECT {columns} {pairs} UNION ALL {text}"
        return connection.sql(text).to_arrow_table()


@cache
def _database() -> duckdb.DuckDBPyConnection:
    """Return an empty database that all calls share: making one takes longer than most joins."""
    database = duckdb.connect(config={"threads": 1})
    database.execute("SET GLOBAL TimeZone = 'UTC'")
    return database


def bag(table: pa.Table) -> Counter[tuple[Any, ...]]:
    """Return how often each row is in a table: the columns in the order of their names.

    >>> bag(pa.table({"b": [1, 1], "a": ["x", "x"]}))
    Counter({('x', 1): 2})
    """
    columns = [table[name].to_pylist() for name in sorted(table.column_names)]
    return Counter(zip(*columns, strict=True))


def with_time(rows: pa.Table, time: str | None) -> pa.Table:
    """Return the rows that have an event time, with it as ``_us`` (µs; 0 for a static table)."""
    if time is None:
        return rows.append_column("_us", pa.array([0] * rows.num_rows, pa.int64()))
    instants = rows[time]
    if pa.types.is_timestamp(instants.type):
        instants = instants.cast(pa.timestamp("us", instants.type.tz), safe=False)
    rows = rows.append_column("_us", instants.cast(pa.int64()))
    return rows.filter(pc.is_valid(rows["_us"]))


def _held(
    connection: duckdb.DuckDBPyConnection, given: Input, columns: list[str], time: str | None
) -> str:
    """Return what the window of an input ever holds, from when until when, as SQL.

    The window is that of the stream: the predicates of the input come after it.
    """
    start = f"({ALWAYS})::BIGINT" if time is None else "_us"
    end = f"{FOREVER}::BIGINT" if time is None else _end(given.window, columns)
    text = f"SELECT *, {start} AS _start, {end} AS _end FROM {_name(_arrived(given.stream))}"
    text = f"SELECT * FROM ({text}) WHERE _start <= _end"
    for number, predicate in enumerate(given.predicates):
        if isinstance(predicate, FunctionPredicate):
            rows = connection.sql(text).to_arrow_table()
            kept = f"_kept_{number}_of_{given.name}"
            connection.register(kept, rows.filter(_said(connection, predicate, rows)))
            text = f"SELECT * FROM {_name(kept)}"
        else:
            text = f"SELECT * FROM ({text}) WHERE {_sql(predicate.text)}"
    return text


def _end(window: Window, columns: Iterable[str]) -> str:
    """Return the last instant at which a window holds a row, as SQL."""
    match window:
        case RangeWindow(length):
            return f'least("_us"::HUGEINT + {length}, {FOREVER})::BIGINT'
        case RowsWindow(rows, groups):
            order = ", ".join(f"{_name(each)} ASC NULLS FIRST" for each in ["_us", *columns])
            within = f"PARTITION BY {', '.join(map(_name, groups))} " if groups else ""
            return f'coalesce(lead("_us", {rows}) OVER ({within}ORDER BY {order}) - 1, {FOREVER})'
    return f"{FOREVER}::BIGINT"


def _said(
    connection: duckdb.DuckDBPyConnection, predicate: FunctionPredicate, rows: pa.Table
) -> pa.Array:
    """Return which rows a function keeps."""
    connection.register("_rows", rows)
    reads = ", ".join(f"{_sql(each)} AS _{at}" for at, each in enumerate(predicate.reads))
    read = connection.sql(f"SELECT {reads} FROM _rows").to_arrow_table()
    given: list[Any] = [column.combine_chunks() for column in read.columns]
    if predicate.arrays == "pandas":
        given = [array.to_pandas() for array in given]
    elif predicate.arrays == "numpy":
        given = [array.to_numpy(zero_copy_only=False) for array in given]
    said = predicate.fn(*given)
    kept = coerce_outcome(said, read.num_rows, predicate.name, negated=predicate.negated)
    return pa.array(kept)


def _select(query: Query, held: Mapping[str, str], times: Mapping[str, str | None]) -> str:
    """Return the join as one SELECT over what the windows hold."""
    names = [_name(each) for each in held]
    start = f"greatest({', '.join(f'{name}._start' for name in names)})"
    end = f"least({', '.join(f'{name}._end' for name in names)})"
    sources = [f"({text}) AS {_name(name)}" for name, text in held.items()]
    at, more = start, []
    if query.emits == "dstream":
        at, more = f"{end} + 1", [f"{end} < {FOREVER}"]
    if query.emits == "rstream":
        streams = [each.stream for each in query.inputs if times[each.stream] is not None]
        each_one = " UNION ".join(
            f"SELECT DISTINCT _us FROM {_name(_arrived(name))}" for name in streams
        )
        sources.append(f"({each_one}) AS _instants")
        at, more = "_instants._us", [f"_instants._us BETWEEN {start} AND {end}"]
    conditions = [_sql(each) for each in (*query.equalities, *query.residual)]
    where = " AND ".join(f"({each})" for each in (*conditions, f"{start} <= {end}", *more))
    columns = ", ".join((*map(_sql, query.projections), f"{at} AS _at"))
    return f"SELECT {columns} FROM {', '.join(sources)} WHERE {where} ORDER BY ALL"


def _arrived(stream: str) -> str:
    """Return the name of a stream's table, which is none that an input may have."""
    return f"_arrived at {stream}"


def _sql(text: str) -> str:
    """Return Spark SQL as DuckDB writes it."""
    return sqlglot.parse_one(text, dialect=Spark).sql(dialect=DuckDB, identify=True)


def _name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
