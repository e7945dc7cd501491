"""A query's text as steps over what an engine knows: rows, results of other queries, models.

Results of a query are over the streams and tables that it read when it was made. These may have
been replaced since, so a name alone does not say which is meant: reads of results are marked while
steps are put together, and have plain names again where these are of one relation only.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from itertools import count
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from eddyline.aggregates.functions import AGGREGATES
from eddyline.errors import QueryError
from eddyline.models.sql.exact import read_exact
from eddyline.models.sql.reader import asks_for_models
from eddyline.query.select.reader import read_query
from eddyline.query.select.statement import Statement
from eddyline.query.steps import ReadStep, steps, with_own
from eddyline.spark.analysis import column_types
from eddyline.spark.models.sql import model_steps, rows_of_models
from eddyline.spark.table_sql import answered, tables_of
from eddyline.sql.parsing import refuse

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from eddyline.query.query import Query as QueryText
    from eddyline.query.steps import Step
    from eddyline.spark.catalog import Catalog
    from eddyline.spark.relation import Relation


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
            if not (read.is_join or read.parts or read.overs or read.grouping):
                return _of_rows(selects, known, columns, aggregates, ())
        name = ", ".join(dict.fromkeys(each.name for each in named))
        return named[0].name, (ReadStep(name, name),), {name: answered(text, named, known)}
    names = {name: list(each) for name, each in columns.items()}
    hidden = {each.lower() for each in known.functions}
    called = {each.lower() for each in aggregates if each.isidentifier()} - hidden
    exact = read_exact(selects, names, known.times, called)
    if exact is None:
        return model_steps(selects, known, options)
    instead = rows_of_models(selects, known, exact)
    columns |= {each.made.stream: columns[each.made.rows] for each in exact.parts if each.made.rows}
    # Of a table whose rows are asked more than joins read.
    tables = {*known.tables} - {each.made.stream for each in exact.parts}
    return _of_rows(exact.text, known, columns, aggregates, tables, instead)


def reads_tables_alone(text: str, known: Catalog) -> bool:
    """Return whether a query of rows names tables in FROM, and no stream."""
    if not text or not known.tables:
        return False
    selects = _selects_of(text, known)
    return not asks_for_models(selects) and bool(tables_of(text, selects, known))


def _selects_of(text: str, known: Catalog) -> Sequence[Statement]:
    """Return the SELECTs of a query; none if it may be one over tables that only Spark reads."""
    try:
        return Statement.read_all(text)
    except QueryError:
        if not known.tables or "MODEL" in text.upper():
            raise
        return ()


def _of_rows(
    query: str | Sequence[Statement],
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
    read = read_query(query, columns, known.functions, tables=tables, aggregates=aggregates)
    _check_times(read, known)
    inner: dict[str, Sequence[Step]] = {}
    relations = {**known.relations, **instead}
    for number, (name, made) in enumerate(known.results.items()):
        if name in instead:
            continue
        marks = {each: f"{each}{_MARK}{number}" for each in made.relations}
        inner[name] = _reading(made.steps, marks)
        relations |= {marks[each]: relation for each, relation in made.relations.items()}
    stem = "join" if read.is_join else read.inputs[0].stream
    found = with_own(steps(read, inner), known.aggregates)
    plain = _plain_names(found, relations)
    return stem, _reading(found, plain), {plain[each]: relations[each] for each in plain}


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
    if relation is None:
        return
    for each in read.times:
        if each.name != relation.time:
            own = f"is {relation.time!r}" if relation.time else "was not given"
            message = (
                f"{each.what} goes by {each.name!r}, and the event time of {stream!r} {own}; "
                f"engine.stream({stream!r}, …, time={each.name!r}) makes it that"
            )
            refuse(message, read.text, each.start, stream=stream, time=each.name)
