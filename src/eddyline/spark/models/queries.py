"""Graphs over streams as queries, which are started as any other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eddyline.errors import NotSupportedError
from eddyline.models import graph
from eddyline.models.step import ModelStep
from eddyline.models.streaming import StreamInput, StreamPlan, check_streams
from eddyline.query.steps import ReadStep
from eddyline.spark.models.laying import Source
from eddyline.spark.query import Query
from eddyline.spark.relation import Relation, checked_relation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from eddyline.query.steps import Step
    from eddyline.spark.models.laying import Graph


def rows_of(graph: Graph) -> DataFrame | Query:
    """Return what comes out of a graph: rows, or of streams a query."""
    return query_of(graph) if graph.is_streaming else graph.df


def query_of(given: Graph) -> Query:
    """Return what comes out of a graph over streams, and segments that are there, as a query.

    It has the name of the first stream.

    Raises:
        NotSupportedError: no source is a stream, or what is asked cannot be told of one.
        OptionError: it is not said what a gap is.
    """
    if not given.is_streaming:
        msg = "a query has the segments of a stream; segments of DataFrames have to_df()"
        raise NotSupportedError(msg)
    is_stream = [each.df.isStreaming for each in given.sources]
    order = sorted(range(len(is_stream)), key=lambda at: not is_stream[at])
    # What is fitted of a batch DataFrame is there from the start, as segments that are read are.
    sources = [given.sources[at] if is_stream[at] else _there(given.sources[at]) for at in order]
    node = graph.moved(given.node, [order.index(at) for at in range(len(order))])
    plan = StreamPlan(tuple(StreamInput(each.maker, each.shape) for each in sources), node)
    check_streams(plan)
    names = _names(sources)
    relations = {
        name: checked_relation(f"{name!r} of models", each.df, each.maker.time, each.lateness)
        if each.maker
        else Relation(each.df)
        for name, each in zip(names, sources, strict=True)
    }
    reads: list[Step] = [ReadStep(each, each) for each in names]
    made = [*reads, ModelStep(tuple(names), plan)]
    return Query(sources[0].name, "", made, relations, {}, rename="name='…' of models.fit")


def _there(source: Source) -> Source:
    return Source(source.segments, source.shape)


def _names(sources: Sequence[Source]) -> list[str]:
    """Return a name for each input: of the stream, with a number where several have it."""
    given = [each.name if each.maker else "segments" for each in sources]
    if len(given) == 1:
        return ["rows"]
    return [
        name if given.count(name) == 1 else f"{name} {given[: at + 1].count(name)}"
        for at, name in enumerate(given)
    ]
