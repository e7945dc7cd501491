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
    text: str, known: Catalog, options: Mapping[str, Any]
) -> tuple[str, Sequence[Step], Mapping[str, Relation]]:
    """Return the stem of a query's name, its steps, and the relations that they read.

    Raises:
        QueryError: the text cannot be understood, or names what does not exist.
        NotSupportedError: valid SQL that is not run yet; the message shows where.
        OptionError: an option of models that is none.
    """
    columns = {name: column_types(each.df) for name, each in known.relations.items()}
    columns |= {name: made.columns for name, made in known.results.items()}
    aggregates = [*AGGREGATES, *known.aggregates]
    selects = _selects_of(text, known)
    if not asks_for_models(selects):
        named = tables_of(text, selects, known)
        if not named:
            return _of_rows(selects or text, known, columns, aggregates, known.tables)
        with suppress(QueryError):  # Spark reports the error
            read = read_query(selects or text, columns, known.functions, aggregates=aggregates)
            is_filter = not (read.is_join or read.parts or read.overs or read.grouping)
            if is_filter and not _says_streams(selects):
                return _of_rows(selects, known, columns, aggregates, ())
        name = ", ".join(dict.fromkeys(each.name for each in named))
        return named[0].name, (ReadStep(name, name),), {name: answered(text, named, known)}
    names = {name: list(each) for name, each in columns.items()}
    hidden = {each.lower() for each in known.functions}
    called = {each.lower() for each in aggregates if each.isidentifier()} - hidden
    plain = selects_beside_models(selects)
    exact = read_exact(plain, names, known.times, called)
    if exact is None:
        return model_steps(plain, known, options)
    instead = rows_of_models(plain, known, exact)
    columns |= {each.made.stream: columns[each.made.rows] for each in exact.parts if each.made.rows}
    # Of a table whose rows are asked more than joins read.
    tables = {*known.tables} - {each.made.stream for each in exact.parts}
    return _of_rows(exact.text, known, columns, aggregates, tables, instead)


def _says_streams(selects: Sequence[Statement | SetOperation]) -> bool:
    """Return whether a query has windows or ISTREAM(…), which tables do not have."""
    nodes = (node for each in selects for node in each.tree.walk())
    return any(EMITTED in each.meta or each.meta.get(WINDOWS) for each in nodes)


def reads_tables_alone(text: str, known: Catalog) -> bool:
    """Return whether a query of rows names tables in FROM, and no stream."""
    if not text or not known.tables:
        return False
    selects = _selects_of(text, known)
    return not asks_for_models(selects) and bool(tables_of(text, selects, known))


def _selects_of(text: str, known: Catalog) -> Sequence[Statement | SetOperation]:
    """Return the SELECTs of a query; none if it may be one over tables that only Spark reads."""
    try:
        return Statement.read_all(text)
    except QueryError:
        if not known.tables or "MODEL" in text.upper():
            raise
        return ()


def _of_rows(
    query: str | Sequence[Statement | SetOperation],
    known: Catalog,
    columns: Mapping[str, Mapping[str, str]],
    aggregates: Collection[str],
    tables: Collection[str],
    instead: Mapping[str, Relation] = MappingProxyType({}),
) -> tuple[str, Sequence[Step], Mapping[str, Relation]]:
    """Return a query without models.

    Args:
        query: its text, or its SELECTs.
        known: what the engine knows.
        columns: of each stream and table.
        aggregates: names of functions.
        tables: those that only joins read.
        instead: what is read of some names.
    """
    relations = {**known.relations, **instead}
    times = {name: _time_of(made) for name, made in known.results.items()}
    times |= {name: each.time for name, each in relations.items()}
    read = read_query(
        query, columns, known.functions, tables=tables, aggregates=aggregates, times=times
    )
    _check_times(read, known)
    inner: dict[str, Sequence[Step]] = {}
    for number, (name, made) in enumerate(known.results.items()):
        if name in instead:
            continue
        marks = {each: f"{each}{_MARK}{number}" for each in made.relations}
        inner[name] = _reading(made.steps, marks)
        relations |= {marks[each]: relation for each, relation in made.relations.items()}
    first = read.inputs[0]
    is_join = read.is_join or (first.query is not None and first.query.is_join)
    stem = "join" if is_join else first.stream
    found = with_own(steps(read, inner), known.aggregates)
    plain = _plain_names(found, relations)
    return stem, _reading(found, plain), {plain[each]: relations[each] for each in plain}


def _time_of(made: Query) -> str | None:
    """Return the column of the results of a query that has their event time in a join."""
    if all(isinstance(each, ReadStep | FilterStep | ProjectStep) for each in made.steps):
        return made.time
    return made.result_time if made.is_time_exact else None


def _plain_names(steps: Sequence[Step], relations: Mapping[str, Relation]) -> dict[str, str]:
    """Return for each name that steps read one without a mark, which no other relation has."""
    read = dict.fromkeys(each.stream for each in steps if isinstance(each, ReadStep))
    found: dict[str, str] = {}
    taken: dict[str, Relation] = {}
    for marked in sorted(read, key=lambda each: _MARK in each):  # the engine's own come first
        stem, relation = marked.split(_MARK)[0], relations[marked]
        names = (stem if n == 1 else f"{stem} {n}" for n in count(1))
        found[marked] = next(each for each in names if taken.get(each, relation) is relation)
        taken[found[marked]] = relation
    return found


def _reading(steps: Sequence[Step], names: Mapping[str, str]) -> tuple[Step, ...]:
    """Return steps that read relations by other names."""
    return tuple(
        replace(each, stream=names[each.stream]) if isinstance(each, ReadStep) else each
        for each in steps
    )


def _check_times(read: QueryText, known: Catalog) -> None:
    """Refuse a query that orders rows by another column than the event time of its stream."""
    stream = read.inputs[0].stream
    relation = known.relations.get(stream)
    if relation is None or read.inputs[0].query is not None:
        return  # a subquery may have the name of a stream
    for each in read.times:
        if each.name != relation.time:
            own = f"is {relation.time!r}" if relation.time else "was not given"
            message = (
                f"{each.what} names {each.name!r}, and the event time of {stream!r} {own}; to "
                f"change that: engine.stream({stream!r}, …, time={each.name!r})"
            )
            refuse(message, read.text, each.start, stream=stream, time=each.name)


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
    names = {each.lower() for each in catalog.tables}
    if not names:
        return []
    unused = selects[0].unused if selects else ()
    try:
        roots = [each[0].tree.root() for each in (selects, *unused) if each]
        tree = roots[0] if roots else parse_one(text, read=SparkText)
    except SqlglotError:
        return []
    nodes = [node for each in roots or [tree] for node in each.walk()]
    windows = [span for each in nodes for span in each.meta.get(WINDOWS, ())]
    # Spark reads [NOW], and says that it is wrong behind a table.
    is_of_streams = EMITTED in tree.meta or any(last - first > 1 for first, last in windows)
    if is_of_streams or not isinstance(tree, exp.Select | exp.SetOperation | exp.Subquery):
        return []  # Spark would run what is no query
    ctes = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
    found = [each for each in nodes if isinstance(each, exp.Table)]
    # A query of WITH that is read twice is twice in the tree, and once in the text.
    places = {offset_of(each): each for each in found if each.name.lower() not in ctes}
    tables = list(places.values())
    is_table = (each.name.lower() in names and not each.args.get("db") for each in tables)
    return tables if all(is_table) else []


def answered(text: str, tables: Sequence[exp.Table], catalog: Catalog) -> Relation:
    """Return Spark's results of a query over tables.

    Raises:
        QueryError: Spark refuses it.
        NotSupportedError: it calls a function of the engine, which Spark does not know.
    """
    functions = {name.lower() for name in (*catalog.functions, *catalog.aggregates)}
    roots = {id(root): root for root in (each.root() for each in tables)}.values()
    for call in (call for root in roots for call in root.find_all(exp.Anonymous)):
        if str(call.name).lower() in functions:
            msg = (
                f"{call.name}() is a function of the engine; over tables alone only a plain "
                f"SELECT … FROM t WHERE … may call it; aggregates have el.window_aggregate(df, …)"
            )
            raise NotSupportedError(msg, function=str(call.name))
    frames = {each.lower(): df for each, df in catalog.tables.items()}
    read: dict[str, Any] = {f"t{at}": frames[each.name.lower()] for at, each in enumerate(tables)}
    places = [each.this.meta for each in tables]
    pieces, end = [], 0
    order = sorted(range(len(tables)), key=lambda at: places[at]["start"])
    for at in order:
        alias = "" if tables[at].alias else f" AS {identifier(tables[at].name)}"
        pieces += [_plain(text[end : places[at]["start"]]), f"{{t{at}}}{alias}"]
        end = places[at]["end"] + 1
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


def timed(name: str, made: Query, time: str, lateness: str | None) -> Query:
    """Return a query whose results have an event time, to be a stream.

    Raises:
        QueryError: the column is no event time of theirs, or they have another lateness.
    """
    of = [each for each in made.relations.values() if each.df.isStreaming]
    is_own = {each.time for each in of} == {time} and carries(made.steps, time)
    last = made.steps[-1]
    if lateness is not None and not (is_own and {each.lateness for each in of} == {lateness}):
        msg = (
            f"stream {name!r}: results of a query have the lateness of the streams that it reads; "
            f"leave out lateness={lateness!r}, or give it to these"
        )
        raise QueryError(msg, name=name, lateness=lateness)
    is_end = isinstance(last, AggregateStep) and last.end == time
    if is_own or is_end or (isinstance(last, UnionStep) and made.result_time == time):
        return made
    timed = _with_time(made.steps, time)
    if timed != made.steps:
        given = made.with_steps(*timed)
        if given.result_time == time:
            return given
    msg = (
        f"stream {name!r}: {time!r} is not the event time of the results of {made.name!r}. That is "
        f"the unchanged event time of the stream that it reads; window.end of aggregates and set "
        f"operations; and of joins the event time of one stream, or greatest(…) of all"
    )
    raise QueryError(msg, name=name, time=time)


def _with_time(steps: Sequence[Step], time: str) -> tuple[Step, ...]:
    """Return steps whose last projection says that a column is the event time of its results.

    Those of UNION ALL do so for each part that is a join, or calls the column so; columns go by
    position.
    """
    found, last = list(steps), steps[-1]
    ends = [len(found) - 1]
    if isinstance(last, UnionStep):
        ends = [maker(steps, ends[0], each) for each in last.inputs]
    first, place = found[ends[0]], None
    for at in ends:
        step = found[at]
        if not isinstance(step, ProjectStep) or "*" in step.projections:
            continue
        if step is first:
            names = [name_of(each) for each in step.projections]
            place = names.index(time) if time in names else None
        if place is None:
            break
        text, before = step.projections[place], made_by(steps, at, step.input)
        is_join = any(isinstance(each, JoinStep) for each in before)
        if is_join or (isinstance(last, UnionStep) and text != identifier(name_of(text))):
            found[at] = replace(step, time=name_of(text))
    return tuple(found)
