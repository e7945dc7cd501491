"""Graphs over streams as queries, which are started as any other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eddyline.errors import NotSupportedError
from eddyline.models.step import ModelStep
from eddyline.models.streaming import StreamPlan, check_streams
from eddyline.query.steps import ReadStep
from eddyline.spark.models.graphs import precise
from eddyline.spark.models.laying import Source
from eddyline.spark.query import Query
from eddyline.spark.relation import checked_relation

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from eddyline.spark.models.graphs import Graph

INPUT = "rows"
"""The name of the stream in its query."""


def rows_of(graph: Graph) -> DataFrame | Query:
    """Return what comes out of a graph: rows, or of a stream a query."""
    return query_of(graph) if graph.is_streaming else graph.df


def query_of(graph: Graph) -> Query:
    """Return what comes out of a graph over a stream as a query.

    Raises:
        NotSupportedError: it is over several streams, over none, or cannot be told of a stream.
        OptionError: it is not said what a gap is, or bounds depend on how large values are.
    """
    if not graph.is_streaming or len(graph.sources) > 1:
        msg = "a query has the segments of one stream; segments of DataFrames have to_df()"
        raise NotSupportedError(msg)
    graph = precise(graph, measures=False)
    (source,) = graph.sources
    assert isinstance(source, Source)
    assert source.maker is not None  # of a stream there are rows, and no segments
    plan = StreamPlan(source.maker, graph.node, source.shape)
    check_streams(plan)
    relation = checked_relation("the rows of models", source.df, source.maker.time, source.lateness)
    made = (ReadStep(INPUT, INPUT), ModelStep(INPUT, plan))
    return Query(source.name, "", made, {INPUT: relation}, {}, rename="name='…' of models.fit")
