"""Aggregates over batch DataFrames: all is final; types, names and values are Spark's own."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import Phase, given, reject
from hypothesis import strategies as st
from pyspark.sql import functions as F

from eddyline.aggregates.functions import AGGREGATES
from eddyline.errors import NotSupportedError
from eddyline.query.query import SlideWindow
from eddyline.query.select.reader import read_query
from eddyline.query.steps import steps
from eddyline.spark.analysis import column_types
from eddyline.spark.query import Query
from eddyline.spark.relation import Relation
from tests.examples import examples
from tests.oracles.aggregate_strategies import (
    KINDS,
    WORLDS,
    ZONE,
    aggregate_cases,
    as_found,
    over_cases,
    rows_of,
    table_of,
)
from tests.oracles.aggregates import START, differences, results
from tests.spark.aggregates.aggregate_streams import found, settings, wanted

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

BATCH_KINDS = tuple(kind for kind in KINDS if kind != "unbounded slides")
"""Kinds of windows that end when the stream does."""


def over_frame(text, df, lateness=0):
    """Return a query over a DataFrame."""
    relation = Relation(df, "ts", f"{lateness} microseconds")
    try:
        query = read_query(text, {"s": column_types(df)}, {}, aggregates=AGGREGATES)
        return Query("drawn", text, steps(query), {"s": relation}, {})
    except NotSupportedError:
        reject()


@pytest.mark.large
@given(case=st.one_of(aggregate_cases(BATCH_KINDS), over_cases()))
@examples(20, phases=[Phase.explicit, Phase.reuse, Phase.generate])
def test_all_is_final(spark, case):
    case_rows = tuple(row for batch in case.batches for row in batch)
    whole = type(case)(
        case.text, case.of, case.window, case.emits, (case_rows,), case.lateness, case.world
    )
    with settings(spark, zone=ZONE):
        df = spark.createDataFrame(table_of(case_rows))
        answer = found(whole, over_frame(case.text, df).to_df().toArrow())
    assert differences(answer, wanted(whole, whole=True)) == ([], []), whole


def is_spark_s(case):
    """Return whether Spark knows such windows, and breaks ties as the reference does."""
    names = {call.function for call in case.of.calls}
    return (
        isinstance(case.window, SlideWindow)
        and case.emits is None
        and case.window.slide <= case.window.length
        and START in case.of.output
        and names.isdisjoint({"first", "last"})
    )


def text_of(of, window):
    """Return the query as Spark reads it: it is told when windows start, not when they end."""
    spans = (window.length, window.slide, (window.origin - window.length) % window.slide)
    micros = ", ".join(f"'{span} microseconds'" for span in spans)
    groups = [f"{each.text} AS {name}" for name, each in of.groups]
    calls = [f"{each.text} AS {each.column}" for each in of.calls]
    columns = ", ".join([*groups, *calls, "window.start AS ws, window.end AS we"])
    where = of.where.text if of.where else "TRUE"
    by = ", ".join([*(each.text for _, each in of.groups), f"window(ts, {micros})"])
    having = f" HAVING {of.having.text}" if of.having else ""
    return f"SELECT {columns} FROM {{df}} WHERE {where} GROUP BY {by}{having}"


@pytest.mark.large
@given(case=aggregate_cases(["tumbling", "slides"]).filter(is_spark_s))
@examples(30, phases=[Phase.explicit, Phase.reuse, Phase.generate])
def test_windows_of_spark(spark, case):
    rows = [row for batch in case.batches for row in batch]
    of = replace(case.of, output=tuple(name for name in case.of.output if name != "h"))
    with settings(spark, zone=ZONE, partitions=1):
        answer = spark.sql(text_of(of, case.window), df=spark.createDataFrame(table_of(rows)))
        found = as_found(answer.toArrow(), of.output)
    wanted = results([rows], case.lateness, of, case.window, whole=True)
    assert differences(found, wanted) == ([], [])


CALLS = (
    *("count(*)", "count(x)", "sum(v)", "sum(g)", "sum(x)", "sum(d)", "avg(v)", "avg(x)"),
    *("avg(d)", "min(k)", "max(x)", "min(d)", "var_samp(x)", "var_samp(v)", "stddev_samp(v)"),
    *("count(DISTINCT x)", "sum(v) FILTER (WHERE v > 1)", "first(v)", "last(k)", "max(ts)"),
)


@pytest.mark.large
def test_types_and_values_are_those_of_spark(spark):
    rows = [row for row in rows_of(random.Random(3), 60, WORLDS[0]) if row["ts"] is not None]
    df = spark.createDataFrame(table_of(rows))
    columns = [f"{call} AS c{at}" for at, call in enumerate(CALLS)]
    select = f"SELECT g, window, {', '.join(columns)}"
    text = f"{select} FROM s [RANGE 4 SECONDS SLIDE 2 SECONDS] GROUP BY g"
    answer = over_frame(text, df).to_df()
    windowed = df.groupBy("g", F.window("ts", "4 seconds", "2 seconds")).agg(*map(F.expr, columns))
    kinds = {field.name: field.dataType for field in windowed.schema}
    assert {field.name: field.dataType for field in answer.schema} == kinds
    exact = [f"c{at}" for at, call in enumerate(CALLS) if not call.startswith(("first", "last"))]
    names = ["g", "window.start", "window.end", *exact]
    bags = [
        [tuple(row.asDict().values()) for row in each.select(*names).collect()]
        for each in (answer, windowed)
    ]
    assert differences(*bags) == ([], [])
