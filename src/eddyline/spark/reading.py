"""From a query's text to steps over an engine's relations.

A relation has rows, results of another query, or models.

In reading order:

1. ``read_steps`` reads a text. Results of a query are over the streams and tables that it read when
   it was made. These may have been replaced since, so a name alone does not say which is meant.
   Reads of results are marked while steps are put together, and get plain names again where these
   are of one relation only.
2. ``answered``: Spark answers queries over tables alone that are more than a filter, as written.
   They are not continuous, so the engine has nothing to learn, and they need no windows.
3. ``timed`` gives the results of a query an event time, so that they can be a stream.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from itertools import count
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException, ParseException
from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError

from eddyline.aggregates.functions import AGGREGATES
from eddyline.errors import NotSupportedError, QueryError
from eddyline.models.sql.exact import read_exact
from eddyline.models.sql.reader import asks_for_models
from eddyline.query.select.grammar import EMITTED, WINDOWS
from eddyline.query.select.reader import read_query
from eddyline.query.select.statement import (
    SetOperation,
    Statement,
    identifier,
    selects_beside_models,
)
from eddyline.query.steps import (
    AggregateStep,
    FilterStep,
    JoinStep,
    ProjectStep,
    ReadStep,
    UnionStep,
    carries,
    made_by,
    maker,
    name_of,
    steps,
    with_own,
)
from eddyline.spark.analysis import column_types, refused, unlogged
from eddyline.spark.models.sql import model_steps, rows_of_models
from eddyline.spark.relation import Relation
from eddyline.sql.parsing import SparkText, deep, offset_of, refuse

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from eddyline.query.query import Query as QueryText
    from eddyline.query.steps import Step
    from eddyline.spark.query import Catalog, Query

_MARK = "\0"
"""Between the name of a relation and the number of the results that it is read for."""


def read_steps(
    text: str, catalog: Catalog, options: Mapping[str, Any]
) -> tuple[str, Sequence[Step], Mapping[str, Relation]]:
    """Return the stem of a query's name, its steps, and the relations that they read.

    Raises:
        QueryError: the text cannot be understood, or names what does not exist.
        NotSupportedError: valid SQL that is not run yet; the message shows where.
        OptionError: an option of models that is none.
    """
    columns = {name: column_types(relation.df) for name, relation in catalog.relations.items()}
    columns |= {name: result.columns for name, result in catalog.results.items()}
    aggregates = [*AGGREGATES, *catalog.aggregates]
    selects = _selects_of(text, catalog)
    if not asks_for_models(selects):
        named = tables_of(text, selects, catalog)
        if not named:
            return _of_rows(selects or text, catalog, columns, aggregates, catalog.tables)
        with suppress(QueryError):  # Spark reports the error
            read = read_query(selects or text, columns, catalog.functions, aggregates=aggregates)
            is_filter = not (read.is_join or read.parts or read.overs or read.grouping)
            if is_filter and not _says_streams(selects):
                return _of_rows(selects, catalog, columns, aggregates, ())
        name = ", ".join(dict.fromkeys(table.name for table in named))
        return named[0].name, (ReadStep(name, name),), {name: answered(text, named, catalog)}
    names = {name: list(types) for name, types in columns.items()}
    hidden = {function.lower() for function in catalog.functions}
    called = {aggregate.lower() for aggregate in aggregates if aggregate.isidentifier()} - hidden
    plain = selects_beside_models(selects)
    exact = read_exact(plain, names, catalog.times, called)
    if exact is None:
        return model_steps(plain, catalog, options)
    instead = rows_of_models(plain, catalog, exact)
    columns |= {part.made.stream: columns[part.made.rows] for part in exact.parts if part.made.rows}
    # Of a table whose rows are asked more than joins read.
    tables = {*catalog.tables} - {part.made.stream for part in exact.parts}
    return _of_rows(exact.text, catalog, columns, aggregates, tables, instead)


def _says_streams(selects: Sequence[Statement | SetOperation]) -> bool:
    """Return whether a query has windows or ISTREAM(…), which tables do not have."""
    nodes = (node for select in selects for node in select.tree.walk())
    return any(EMITTED in node.meta or node.meta.get(WINDOWS) for node in nodes)


def reads_tables_alone(text: str, catalog: Catalog) -> bool:
    """Return whether a query of rows names tables in FROM, and no stream."""
    if not text or not catalog.tables:
        return False
    selects = _selects_of(text, catalog)
    return not asks_for_models(selects) and bool(tables_of(text, selects, catalog))


def _selects_of(text: str, catalog: Catalog) -> Sequence[Statement | SetOperation]:
    """Return the SELECTs of a query; none if it may be one over tables that only Spark reads."""
    try:
        return Statement.read_all(text)
    except QueryError:
        if not catalog.tables or "MODEL" in text.upper():
            raise
        return ()


def _of_rows(
    query: str | Sequence[Statement | SetOperation],
    catalog: Catalog,
    columns: Mapping[str, Mapping[str, str]],
    aggregates: Collection[str],
    tables: Collection[str],
    instead: Mapping[str, Relation] = MappingProxyType({}),
) -> tuple[str, Sequence[Step], Mapping[str, Relation]]:
    """Return a query without models.

    Args:
        query: its text, or its SELECTs.
        catalog: what the engine knows.
        columns: of each stream and table.
        aggregates: names of functions.
        tables: those that only joins read.
        instead: what is read of some names.
    """
    relations = {**catalog.relations, **instead}
    times = {name: _time_of(result) for name, result in catalog.results.items()}
    times |= {name: relation.time for name, relation in relations.items()}
    read = read_query(
        query, columns, catalog.functions, tables=tables, aggregates=aggregates, times=times
    )
    _check_times(read, catalog)
    inner: dict[str, Sequence[Step]] = {}
    for number, (name, result) in enumerate(catalog.results.items()):
        if name in instead:
            continue
        marks = {stream: f"{stream}{_MARK}{number}" for stream in result.relations}
        inner[name] = _reading(result.steps, marks)
        relations |= {marks[stream]: relation for stream, relation in result.relations.items()}
    first = read.inputs[0]
    is_join = read.is_join or (first.query is not None and first.query.is_join)
    stem = "join" if is_join else first.stream
    all_steps = with_own(steps(read, inner), catalog.aggregates)
    plain = _plain_names(all_steps, relations)
    return stem, _reading(all_steps, plain), {plain[marked]: relations[marked] for marked in plain}


def _time_of(query: Query) -> str | None:
    """Return the column of the results of a query that has their event time in a join."""
    if all(isinstance(step, ReadStep | FilterStep | ProjectStep) for step in query.steps):
        return query.time
    return query.result_time if query.is_time_exact else None


def _plain_names(steps: Sequence[Step], relations: Mapping[str, Relation]) -> dict[str, str]:
    """Return for each name that steps read one without a mark, which no other relation has."""
    read = dict.fromkeys(step.stream for step in steps if isinstance(step, ReadStep))
    plain: dict[str, str] = {}
    taken: dict[str, Relation] = {}
    for marked in sorted(read, key=lambda stream: _MARK in stream):  # the engine's own come first
        stem, relation = marked.split(_MARK)[0], relations[marked]
        names = (stem if n == 1 else f"{stem} {n}" for n in count(1))
        plain[marked] = next(
            candidate for candidate in names if taken.get(candidate, relation) is relation
        )
        taken[plain[marked]] = relation
    return plain


def _reading(steps: Sequence[Step], names: Mapping[str, str]) -> tuple[Step, ...]:
    """Return steps that read relations by other names."""
    return tuple(
        replace(step, stream=names[step.stream]) if isinstance(step, ReadStep) else step
        for step in steps
    )


def _check_times(read: QueryText, catalog: Catalog) -> None:
    """Refuse a query that orders rows by another column than the event time of its stream."""
    stream = read.inputs[0].stream
    relation = catalog.relations.get(stream)
    if relation is None or read.inputs[0].query is not None:
        return  # a subquery may have the name of a stream
    for asked_time in read.times:
        if asked_time.name != relation.time:
            event_time = f"is {relation.time!r}" if relation.time else "was not given"
            message = (
                f"{asked_time.what} names {asked_time.name!r}, and the event time of "
                f"{stream!r} {event_time}; to change that: engine.stream({stream!r}, …, "
                f"time={asked_time.name!r})"
            )
            refuse(message, read.text, asked_time.start, stream=stream, time=asked_time.name)


@deep
def tables_of(
    text: str, selects: Sequence[Statement | SetOperation], catalog: Catalog
) -> Sequence[exp.Table]:
    """Return the tables in the tree of a query; nothing if it also reads other inputs.

    Args:
        text: the query.
        selects: its SELECTs; none if it is no query of the engine, but perhaps one of Spark.
        catalog: the tables of the engine.
    """
    names = {table.lower() for table in catalog.tables}
    if not names:
        return []
    unused = selects[0].unused if selects else ()
    try:
        roots = [statements[0].tree.root() for statements in (selects, *unused) if statements]
        tree = roots[0] if roots else parse_one(text, read=SparkText)
    except SqlglotError:
        return []
    nodes = [node for root in roots or [tree] for node in root.walk()]
    windows = [span for node in nodes for span in node.meta.get(WINDOWS, ())]
    # Spark reads [NOW], and says that it is wrong behind a table.
    is_of_streams = EMITTED in tree.meta or any(last - first > 1 for first, last in windows)
    if is_of_streams or not isinstance(tree, exp.Select | exp.SetOperation | exp.Subquery):
        return []  # Spark would run what is no query
    ctes = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
    table_nodes = [node for node in nodes if isinstance(node, exp.Table)]
    # A query of WITH that is read twice is twice in the tree, and once in the text.
    places = {offset_of(table): table for table in table_nodes if table.name.lower() not in ctes}
    tables = list(places.values())
    is_table = (table.name.lower() in names and not table.args.get("db") for table in tables)
    return tables if all(is_table) else []


def answered(text: str, tables: Sequence[exp.Table], catalog: Catalog) -> Relation:
    """Return Spark's results of a query over tables.

    Raises:
        QueryError: Spark refuses it.
        NotSupportedError: it calls a function of the engine, which Spark does not know.
    """
    functions = {name.lower() for name in (*catalog.functions, *catalog.aggregates)}
    roots = {id(root): root for root in (table.root() for table in tables)}.values()
    for call in (call for root in roots for call in root.find_all(exp.Anonymous)):
        if str(call.name).lower() in functions:
            msg = (
                f"{call.name}() is a function of the engine; over tables alone only a plain "
                f"SELECT … FROM t WHERE … may call it; aggregates have el.window_aggregate(df, …)"
            )
            raise NotSupportedError(msg, function=str(call.name))
    frames = {name.lower(): df for name, df in catalog.tables.items()}
    read: dict[str, Any] = {
        f"t{number}": frames[table.name.lower()] for number, table in enumerate(tables)
    }
    places = [table.this.meta for table in tables]
    pieces, end = [], 0
    order = sorted(range(len(tables)), key=lambda number: places[number]["start"])
    for number in order:
        alias = "" if tables[number].alias else f" AS {identifier(tables[number].name)}"
        pieces += [_plain(text[end : places[number]["start"]]), f"{{t{number}}}{alias}"]
        end = places[number]["end"] + 1
    statement = "".join([*pieces, _plain(text[end:])])
    session = next(iter(read.values())).sparkSession
    try:
        with unlogged():
            return Relation(session.sql(statement, **read))
    except (AnalysisException, ParseException) as error:
        raise refused("the query over tables, which Spark answers", error) from error


def _plain(text: str) -> str:
    """Return a text with escaped braces."""
    return text.replace("{", "{{").replace("}", "}}")


def timed(name: str, query: Query, time: str, lateness: str | None) -> Query:
    """Return a query whose results have an event time, to be a stream.

    Raises:
        QueryError: the column is no event time of theirs, or they have another lateness.
    """
    relations = [relation for relation in query.relations.values() if relation.df.isStreaming]
    is_own = {relation.time for relation in relations} == {time} and carries(query.steps, time)
    last = query.steps[-1]
    if lateness is not None and not (
        is_own and {relation.lateness for relation in relations} == {lateness}
    ):
        msg = (
            f"stream {name!r}: results of a query have the lateness of the streams that it reads; "
            f"leave out lateness={lateness!r}, or give it to these"
        )
        raise QueryError(msg, name=name, lateness=lateness)
    is_end = isinstance(last, AggregateStep) and last.end == time
    if is_own or is_end or (isinstance(last, UnionStep) and query.result_time == time):
        return query
    timed = _with_time(query.steps, time)
    if timed != query.steps:
        timed_query = query.with_steps(*timed)
        if timed_query.result_time == time:
            return timed_query
    msg = (
        f"stream {name!r}: {time!r} is not the event time of the results of {query.name!r}. "
        f"That is the unchanged event time of the stream that it reads; window.end of aggregates "
        f"and set operations; and of joins the event time of one stream, or greatest(…) of all"
    )
    raise QueryError(msg, name=name, time=time)


def _with_time(steps: Sequence[Step], time: str) -> tuple[Step, ...]:
    """Return steps whose last projection says that a column is the event time of its results.

    Those of UNION ALL do so for each part that is a join, or calls the column so; columns go by
    position.
    """
    changed, last = list(steps), steps[-1]
    ends = [len(changed) - 1]
    if isinstance(last, UnionStep):
        ends = [maker(steps, ends[0], input_name) for input_name in last.inputs]
    first, place = changed[ends[0]], None
    for number in ends:
        step = changed[number]
        if not isinstance(step, ProjectStep) or "*" in step.projections:
            continue
        if step is first:
            names = [name_of(projection) for projection in step.projections]
            place = names.index(time) if time in names else None
        if place is None:
            break
        text, before = step.projections[place], made_by(steps, number, step.input)
        is_join = any(isinstance(step, JoinStep) for step in before)
        if is_join or (isinstance(last, UnionStep) and text != identifier(name_of(text))):
            changed[number] = replace(step, time=name_of(text))
    return tuple(changed)
