"""A query's text as steps over what an engine knows: rows, results of other queries, models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eddyline.aggregates.functions import AGGREGATES
from eddyline.models.sql.exact import read_exact
from eddyline.models.sql.reader import asks_for_models
from eddyline.query.planned import steps
from eddyline.query.select.reader import read_query
from eddyline.query.steps import with_own
from eddyline.spark.analysis import column_types
from eddyline.spark.models.sql import check_models, model_steps
from eddyline.sql.parsing import refuse

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from eddyline.query.query import Query as QueryText
    from eddyline.query.steps import Step
    from eddyline.spark.catalog import Catalog
    from eddyline.spark.relation import Relation


def read_steps(
    text: str, known: Catalog, options: Mapping[str, Any]
) -> tuple[str, Sequence[Step], dict[str, Relation]]:
    """Return the stem of a query's name, its steps, and tables that only these read.

    Raises:
        QueryError: the text cannot be understood, or names what does not exist.
        NotSupportedError: valid SQL that is not run yet; the message shows where.
        OptionError: an option of models that is none.
    """
    columns = {name: column_types(each.df) for name, each in known.relations.items()}
    columns |= {name: made.columns for name, made in known.results.items()}
    aggregates = [*AGGREGATES, *known.aggregates]
    if not asks_for_models(text):
        return _of_rows(text, known, columns, aggregates, known.tables)
    names = {name: list(each) for name, each in columns.items()}
    hidden = {each.lower() for each in known.functions}
    called = {each.lower() for each in aggregates if each.isidentifier()} - hidden
    exact = read_exact(text, names, known.times, called)
    if exact is None:
        return model_steps(text, known, options)
    check_models(text, known, exact.made)
    return _of_rows(exact.text, known, columns, aggregates, ())


def _of_rows(
    text: str,
    known: Catalog,
    columns: Mapping[str, Mapping[str, str]],
    aggregates: Collection[str],
    tables: Collection[str],
) -> tuple[str, Sequence[Step], dict[str, Relation]]:
    """Return a query without models; ``tables`` are those that only joins read."""
    read = read_query(text, columns, known.functions, tables=tables, aggregates=aggregates)
    _check_times(read, known)
    inner = {name: made.steps for name, made in known.results.items()}
    stem = "join" if read.is_join else read.inputs[0].stream
    return stem, with_own(steps(read, inner), known.aggregates), {}


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
