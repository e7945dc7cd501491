"""Graphs over streams as queries.

Answers of rows, exactly as without models, are here, too. ``query_of`` makes a graph over streams a
query, which is started as any other.

``exact_rows`` returns what Spark's SQL says of the rows, because Spark evaluates the condition:
NaN, ties at an edge and rows of one instant are as they are there. Stored segments only say which
rows can be skipped. Spark reads the ranges in which their certified errors leave room for the
condition to hold, and the instants of rows for which errors do not hold. These instants are found
once for the same segments and rows.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ByteType,
    DoubleType,
    FloatType,
    IntegerType,
    NumericType,
    ShortType,
    StructField,
    StructType,
    TimestampNTZType,
)

from eddyline.errors import NotSupportedError, OptionError, QueryError
from eddyline.models import graph
from eddyline.models.fitting.declared import Declared
from eddyline.models.graph import SIDE
from eddyline.models.segments import entity_ids, micros_of
from eddyline.models.solving import expressions
from eddyline.models.solving.exact import (
    ATTRIBUTE,
    ROW_TIME,
    ROW_VALUE,
    SINCE,
    UNTIL,
    check_rows_have,
    closed,
    open_ranges,
    uncovered_instants,
)
from eddyline.models.solving.expressions import And
from eddyline.models.solving.text import has_root
from eddyline.models.steps import Where
from eddyline.models.streams.bucket import check_early
from eddyline.models.streams.plan import ModelStep, StreamInput, StreamPlan, check_streams
from eddyline.query.predicates import SqlPredicate
from eddyline.query.select.reader import read_query
from eddyline.query.steps import RESULT, FilterStep, ReadStep, steps
from eddyline.registry import checked_text
from eddyline.spark.analysis import column_types, refused, unlogged
from eddyline.spark.arrow_tasks import map_batches
from eddyline.spark.models.graphs import Leaf, precise, settled
from eddyline.spark.models.laying import RawRows, Source, by_entity, over_tables
from eddyline.spark.query import Query
from eddyline.spark.relation import Relation as Named
from eddyline.spark.relation import checked_frame, checked_relation
from eddyline.sql.parsing import SparkText, parse_condition, quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

    from eddyline.data.arrays import Ints
    from eddyline.query.steps import Step
    from eddyline.spark.models.graphs import Graph

INPUT = "rows"
"""The name of the stream in a query that has no other input."""
RENAME = "name='…' of models.fit"
"""Advice on giving a query another name."""


def rows_of(graph: Graph) -> DataFrame | Query:
    """Return what comes out of a graph: rows, or of streams a query."""
    return query_of(graph) if graph.is_streaming else graph.df


def query_of(
    query_graph: Graph,
    step: Callable[[tuple[str, ...], StreamPlan], ModelStep] = ModelStep,
    options: Mapping[str, Any] | None = None,
) -> Query:
    """Return what comes out of a graph over streams, and segments that are there, as a query.

    It has the name of the first stream.

    Args:
        query_graph: over one stream or more.
        step: makes the step of the query, over relations.
        options: of the operators of the query.

    Raises:
        NotSupportedError: no source is a stream, one has segments, or what is asked cannot be told
            of one.
        OptionError: it is not said what a gap is, or bounds depend on how large values are.
    """
    if not query_graph.is_streaming:
        msg = "a query has the segments of a stream; segments of DataFrames have to_df()"
        raise NotSupportedError(msg)
    query_graph = settled(precise(query_graph, measures=False))
    conditions = _conditions(query_graph)
    roots, node = query_graph.placed
    order = sorted(range(len(roots)), key=lambda number: not roots[number].is_streaming)
    # What is fitted of a batch DataFrame is there from the start, as segments that are read are.
    sources = [
        root if root.is_streaming else Source(root.segments, root.shape)
        for root in map(roots.__getitem__, order)
    ]
    places = [graph.Input(order.index(number), root.shape) for number, root in enumerate(roots)]
    node = graph.with_inputs(node, places)
    inputs = tuple(StreamInput(source.maker, source.shape) for source in sources)
    plan = StreamPlan(inputs, node, is_early=_are_early(sources))
    check_streams(plan)
    check_early(plan)
    names = _names(sources)
    relations = {
        name: checked_relation(f"{name!r} of models", source.df, source.maker.time, source.lateness)
        if source.maker
        else Named(source.df)
        for name, source in zip(names, sources, strict=True)
    }
    reads: list[Step] = [ReadStep(name, name) for name in names]
    all_steps = [*reads, step(tuple(names), plan)]
    if conditions:
        all_steps.append(FilterStep(RESULT, tuple(map(SqlPredicate, conditions))))
    lane = {"lane": sources[0].lane} if sources[0].lane != "auto" else {}
    return Query(
        sources[0].name, "", all_steps, relations, {**lane, **(options or {})}, rename=RENAME
    )


def _conditions(query_graph: Graph) -> tuple[str, ...]:
    """Return what is asked of the keys of pairs: results must have these, and are asked it."""
    conditions: list[str] = []
    pairs = (
        part for part in graph.parts(query_graph.node) if isinstance(part, graph.OtherEntities)
    )
    for pair in pairs:
        if pair.conditions and pair.shape.keys != query_graph.shape.keys:
            msg = (
                f"the condition on keys of pairs {pair.conditions[0]!r} needs these keys in the "
                f"results of a stream, which have {', '.join(query_graph.shape.keys) or 'no key'}; "
                "filter entities before they are paired"
            )
            raise NotSupportedError(msg, condition=pair.conditions[0])
        conditions += pair.conditions
    return tuple(dict.fromkeys(conditions))


def _are_early(sources: Sequence[Source]) -> bool:
    """Return whether results are given early: of all streams, or of none."""
    kinds = {source.is_early for source in sources if source.is_streaming}
    if len(kinds) > 1:
        early, final = (
            next(
                source.name for source in sources if source.is_streaming and source.is_early is kind
            )
            for kind in (True, False)
        )
        msg = (
            f"{early!r} has results='early', and {final!r} has not: give it to all streams of a "
            "query, or to none"
        )
        raise OptionError(msg, early=early, final=final)
    return kinds == {True}


def _names(sources: Sequence[Source]) -> list[str]:
    """Return a name for each input: of the stream, with a number where several have it."""
    stems = [source.name if source.maker else "segments" for source in sources]
    if len(stems) == 1:
        return [INPUT]
    return [
        name if stems.count(name) == 1 else f"{name} {stems[: number + 1].count(name)}"
        for number, name in enumerate(stems)
    ]


# -- exact answers --------------------------------------------------------------------------------


MOST_ENTITIES, MOST_RANGES = 64, 16
"""A filter has ranges of each entity if there are no more than so many, each at most so many; of
more entities it has those of all together, as many as it would have of both."""

_AS_DOUBLES = (DoubleType, FloatType, IntegerType, ShortType, ByteType)
"""Types of which a double keeps every value."""


def exact_rows(query_graph: Graph, rows: DataFrame | None, time: str | None) -> DataFrame | Query:
    """Return the rows that satisfy the conditions of a graph, as SQL says.

    Args:
        query_graph: conditions over the segments of one DataFrame or stream.
        rows: what the segments stand for; None: what they were made of.
        time: their column of timestamps, if they are given.

    Returns:
        The rows, or of a stream a query that filters them.

    Raises:
        NotSupportedError: there is something else in the graph, or rows alone have no value of what
            is compared.
        QueryError: it is not known what the segments stand for, rows have other columns, or Spark
            refuses a condition.
    """
    source, asked = _asked(query_graph)
    if source.is_streaming and rows is not None:
        msg = "exact() of a stream takes no DataFrame: its rows are those of its models"
        raise QueryError(msg)
    raw = _raw(source.every, rows, time)
    if raw is None:
        msg = (
            "exact() needs the DataFrame of the rows, which these segments do not know: give it, "
            "exact(df, time='ts')"
        )
        raise QueryError(msg)
    _check_columns(raw, source, asked)
    if source.is_streaming:
        return _query(source.every, [*source.conditions, *(where.text for where in asked)])
    kept = raw.where(source.conditions).df
    if source.maker is None and asked:
        kept = kept.where(_may_hold(source, raw, asked))
    for where in asked:
        try:
            with unlogged():
                kept = kept.where(where.text)
        except AnalysisException as error:
            raise refused(f"exact answers of {where.text}", error, text=where.text) from error
    return kept


def _raw(source: Source, rows: DataFrame | None, time: str | None) -> RawRows | None:
    """Return the rows that segments stand for, None if that is not known."""
    if rows is None:
        return source.raw if source.maker is None else RawRows(source.df, source.maker.time)
    frame = checked_frame("the rows of exact", rows)
    raw = source.raws.get(id(frame))
    if raw is None or raw.time != time:
        raw = RawRows(frame, checked_text("time of exact", time))
        source.raws[id(frame)] = raw
    return raw


def _asked(query_graph: Graph) -> tuple[Source, list[Where]]:
    """Return the segments that conditions are over, and the conditions in their order."""
    asked: list[Where] = []
    node = query_graph.node
    while isinstance(node, graph.Unary) and isinstance(node.step, Where):
        asked.insert(0, node.step)
        node = node.of
    if not isinstance(node, Leaf):
        msg = (
            "exact() returns the rows that satisfy conditions: segments.where(…).exact(); got "
            f"{query_graph}, which is computed from several rows"
        )
        raise NotSupportedError(msg)
    source = node.source
    for where in asked:
        check_rows_have(where.condition)
        _check_are_columns(source, where)
        if has_root(where.text):
            msg = (
                f"exact answers of {where.text}: the root of a number below 0 is NaN in SQL, above "
                "all numbers, and a model has no such root; compare squares"
            )
            raise NotSupportedError(msg, text=where.text)
    return source, asked


def _check_are_columns(source: Source, asked: Where) -> None:
    """Refuse attributes that are computed from rows and are no columns."""
    names = sorted(expressions.attributes(asked.condition))
    raw = source.raw.columns if source.raw is not None else {}
    places = raw if source.maker is None else getattr(source.maker, "places", {})
    if not places.keys().isdisjoint(names):
        msg = (
            f"exact answers of {asked.text}: rows have no position in metres; write conditions on "
            "their latitude and longitude"
        )
        raise NotSupportedError(msg, text=asked.text)
    if not isinstance(source.maker, Declared):
        return
    for name in names:
        equation = source.maker.equations[name]
        if equation.column != name:
            msg = (
                f"exact answers of {asked.text}: rows have no {name!r}, which is computed from "
                f"them ({equation.text}); declare a column, such as x = x + vx * t"
            )
            raise NotSupportedError(msg, attribute=name)


def _query(source: Source, conditions: Sequence[str]) -> Query:
    """Return a query of the rows of a stream that satisfy conditions, as any other filter."""
    assert source.maker is not None
    what, time = f"the input of query {source.name!r}", source.maker.time
    relation = checked_relation(what, source.df, time, source.lateness)
    asked = " AND ".join(
        f"({condition}\n)" for condition in conditions
    )  # behind a note goes a line
    text = f"SELECT * FROM {INPUT}" + (f" WHERE {asked}" if asked else "")
    read = read_query(text, {INPUT: column_types(source.df)})
    (of_rows,) = read.inputs
    # Conditions on keys are among those of the text that they were part of.
    by_text = {
        parse_condition(predicate.text).sql(SparkText): predicate
        for predicate in of_rows.predicates
    }
    read = replace(read, inputs=(replace(of_rows, predicates=(*by_text.values(),)),))
    return Query(source.name, "", steps(read), {INPUT: relation}, {}, rename=RENAME)


def _check_columns(raw: RawRows, source: Source, asked: Sequence[Where]) -> None:
    names = {name for where in asked for name in expressions.attributes(where.condition)}
    for name in [*source.shape.keys, raw.time, *sorted(names)]:
        if name not in raw.types:
            msg = f"exact answers: rows have no column {name!r}; there are {', '.join(raw.types)}"
            raise QueryError(msg, name=name)
    for name in sorted(names):
        if not isinstance(raw.types[name], NumericType):
            msg = f"exact answers: {name!r} is {raw.types[name].simpleString()}; give a number"
            raise QueryError(msg, name=name)


def _may_hold(source: Source, raw: RawRows, asked: Sequence[Where]) -> Column:
    """Return a filter that all rows pass for which conditions may hold."""
    condition = And(tuple(where.condition for where in asked))
    names = sorted(expressions.attributes(condition))
    are_doubles = all(isinstance(raw.types[name], _AS_DOUBLES) for name in names)
    layout = source.shape.layout
    task = over_tables(lambda parts: open_ranges(parts, layout, condition, are_doubles=are_doubles))
    tables = [map_batches(source.segments, task, _ranges_schema(source)).toArrow()]
    tables += _uncovered(raw, source.every, names)
    ranges = [(micros_of(table.column(SINCE)), micros_of(table.column(UNTIL))) for table in tables]
    return F.col(quoted(raw.time)).isNull() | _filter(tables, ranges, source, raw)


def _filter(
    tables: Sequence[pa.Table], ranges: Sequence[tuple[Ints, Ints]], source: Source, raw: RawRows
) -> Column:
    lo, hi = (np.concatenate([bounds[end] for bounds in ranges]) for end in (0, 1))
    if not len(lo):
        return F.lit(False)
    keys = list(source.shape.keys)
    is_naive = isinstance(raw.types[raw.time], TimestampNTZType)
    names = pa.concat_tables([table.select(keys) for table in tables]) if keys else pa.table({})
    ids, first = entity_ids(names, keys)
    if not keys or len(first) > MOST_ENTITIES:
        every = closed(lo, hi, MOST_ENTITIES * MOST_RANGES)
        return _in_ranges(raw.time, *every, is_naive=is_naive)
    entities = names.take(pa.array(first))
    parts = []
    for number in range(len(first)):
        is_entity = ids == number
        part = _in_ranges(
            raw.time, *closed(lo[is_entity], hi[is_entity], MOST_RANGES), is_naive=is_naive
        )
        for name in keys:
            value = _literal(entities.column(name)[number], raw.types[name])
            part = F.col(quoted(name)).eqNullSafe(value) & part
        parts.append(part)
    return reduce(lambda one, other: one | other, parts)


def _literal(value: pa.Scalar, kind: DataType) -> Column:
    """Return the value of a key; Python's own time zone has no part in it."""
    if isinstance(kind, TimestampNTZType) and value.is_valid:
        return _instant(value.cast(pa.timestamp("us")).value, is_naive=True)
    return F.lit(value.as_py()).cast(kind)


def _in_ranges(time: str, lo: Ints, hi: Ints, *, is_naive: bool) -> Column:
    column = F.col(quoted(time))
    ranges = [
        (column >= _instant(begin, is_naive=is_naive)) & (column < _instant(end, is_naive=is_naive))
        for begin, end in zip(lo.tolist(), hi.tolist(), strict=True)
    ]
    return reduce(lambda one, other: one | other, ranges)


def _instant(micros: int, *, is_naive: bool) -> Column:
    if not is_naive:
        return F.timestamp_micros(F.lit(micros))
    days, rest = divmod(micros, 86_400_000_000)
    seconds, fraction = divmod(rest, 1_000_000)
    day = np.datetime64(days, "D")
    text = f"{day} {seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{fraction:06}"
    return F.expr(f"TIMESTAMP_NTZ'{text}'")


def _ranges_schema(source: Source) -> StructType:
    times = [StructField(name, source.time_type) for name in (SINCE, UNTIL)]
    return StructType([*source.key_fields, *times])


def _uncovered(raw: RawRows, source: Source, names: Sequence[str]) -> list[pa.Table]:
    """Return for each attribute the instants of rows whose value errors do not hold for."""
    missing = [name for name in names if name not in raw.uncovered]
    if missing:
        instants = _looked_for(raw, source, missing)
        attributes = instants.column(ATTRIBUTE).to_numpy()
        for number, name in enumerate(missing):
            raw.uncovered[name] = instants.filter(pa.array(attributes == number)).drop_columns(
                [ATTRIBUTE]
            )
    return [raw.uncovered[name] for name in names]


def _looked_for(raw: RawRows, source: Source, names: Sequence[str]) -> pa.Table:
    layout, keys = source.shape.layout, source.shape.keys
    values = {ROW_TIME: quoted(raw.time)}
    values |= {ROW_VALUE + name: f"CAST({quoted(name)} AS DOUBLE)" for name in names}
    columns = [f"{text} AS {quoted(name)}" for name, text in values.items()]
    rows = raw.df.where(F.col(quoted(raw.time)).isNotNull())
    rows = rows.selectExpr(*map(quoted, keys), *columns, f"1 AS {SIDE}")
    segments = source.segments.withColumn(SIDE, F.lit(0))
    both = segments.unionByName(rows, allowMissingColumns=True)
    task = over_tables(lambda tables: uncovered_instants(tables, layout, names), keys)
    schema = StructType([*_ranges_schema(source), StructField(ATTRIBUTE, IntegerType())])
    return map_batches(by_entity(both, keys), task, schema).toArrow()
