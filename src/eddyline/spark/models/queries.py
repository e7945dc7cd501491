"""Graphs over streams as queries, which are started as any other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eddyline.errors import NotSupportedError, OptionError
from eddyline.models import graph
from eddyline.models.early import check_early
from eddyline.models.step import ModelStep
from eddyline.models.streaming import StreamInput, StreamPlan, check_streams
from eddyline.query.predicates import SqlPredicate
from eddyline.query.steps import RESULT, FilterStep, ReadStep
from eddyline.spark.models.graphs import Crossing, inlined, precise
from eddyline.spark.models.laying import Source
from eddyline.spark.query import Query
from eddyline.spark.relation import Relation as Named
from eddyline.spark.relation import checked_relation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame

    from eddyline.query.steps import Step
    from eddyline.spark.models.graphs import Graph
    from eddyline.spark.models.laying import Relation

INPUT = "rows"
"""The name of the stream in a query that has no other input."""
RENAME = "name='…' of models.fit"
"""Advice on giving a query another name."""


def rows_of(graph: Graph) -> DataFrame | Query:
    """Return what comes out of a graph: rows, or of streams a query."""
    return query_of(graph) if graph.is_streaming else graph.df


def query_of(
    given: Graph,
    step: Callable[[tuple[str, ...], StreamPlan], ModelStep] = ModelStep,
    options: Mapping[str, Any] | None = None,
) -> Query:
    """Return what comes out of a graph over streams, and segments that are there, as a query.

    It has the name of the first stream.

    Args:
        given: over one stream or more.
        step: makes the step of the query, over relations.
        options: of the operators of the query.

    Raises:
        NotSupportedError: no source is a stream, one has segments, or what is asked cannot be told
            of one.
        OptionError: it is not said what a gap is, or bounds depend on how large values are.
    """
    if not given.is_streaming:
        msg = "a query has the segments of a stream; segments of DataFrames have to_df()"
        raise NotSupportedError(msg)
    roots, _ = inlined(given, lambda each: each.is_streaming)
    if any(each.is_streaming and each.maker is None for each in roots):
        msg = (
            "segments are read from tables or files; rows of a stream are fitted or declared: "
            "el.models.fit(…), el.models.declare(…)"
        )
        raise NotSupportedError(msg)
    given = precise(given, measures=False)
    conditions = _conditions(given)
    roots, node = inlined(given, lambda each: each.is_streaming)
    order = sorted(range(len(roots)), key=lambda at: not roots[at].is_streaming)
    # What is fitted of a batch DataFrame is there from the start, as segments that are read are.
    sources = [_as_input(roots[at]) for at in order]
    places = [graph.Input(order.index(at), each.shape) for at, each in enumerate(roots)]
    node = graph.with_inputs(node, places)
    inputs = tuple(StreamInput(each.maker, each.shape) for each in sources)
    plan = StreamPlan(inputs, node, is_early=_are_early(sources))
    check_streams(plan)
    check_early(plan)
    names = _names(sources)
    relations = {
        name: checked_relation(f"{name!r} of models", each.df, each.maker.time, each.lateness)
        if each.maker
        else Named(each.df)
        for name, each in zip(names, sources, strict=True)
    }
    reads: list[Step] = [ReadStep(each, each) for each in names]
    made = [*reads, step(tuple(names), plan)]
    if conditions:
        made.append(FilterStep(RESULT, tuple(map(SqlPredicate, conditions))))
    return Query(sources[0].name, "", made, relations, options or {}, rename=RENAME)


def _conditions(given: Graph) -> tuple[str, ...]:
    """Return what is asked of the keys of pairs: results have these, and are asked it.

    Raises:
        NotSupportedError: results have other keys.
    """
    found: list[str] = []
    for each in _crossings(given):
        if each.conditions and each.shape.keys != given.shape.keys:
            msg = (
                f"of a stream, a condition on keys of pairs ({each.conditions[0]}) is asked of "
                f"results, which have the keys {', '.join(given.shape.keys) or 'of none'}; let it "
                "leave out entities before they are paired"
            )
            raise NotSupportedError(msg, condition=each.conditions[0])
        found += each.conditions
    return tuple(dict.fromkeys(found))


def _crossings(given: Graph) -> Iterator[Crossing]:
    for each in given.sources:
        if isinstance(each, Crossing) and each.is_streaming:
            yield each
            for part in each.parts:
                yield from _crossings(part)


def _are_early(sources: Sequence[Source]) -> bool:
    """Return whether results are given early.

    Raises:
        OptionError: they are asked for of some streams only.
    """
    found = {each.is_early for each in sources if each.is_streaming}
    if len(found) > 1:
        early, final = (
            next(each.name for each in sources if each.is_streaming and each.is_early is kind)
            for kind in (True, False)
        )
        msg = (
            f"results of {early!r} are asked for early, and those of {final!r} once they are "
            "final: give results='early' to all streams of a query, or to none"
        )
        raise OptionError(msg, early=early, final=final)
    return found == {True}


def _as_input(given: Relation) -> Source:
    """Return a stream as it is, and anything else as segments that are there from the start."""
    if isinstance(given, Source) and given.is_streaming:
        return given
    return Source(given.segments, given.shape)


def _names(sources: Sequence[Source]) -> list[str]:
    """Return a name for each input: of the stream, with a number where several have it."""
    given = [each.name if each.maker else "segments" for each in sources]
    if len(given) == 1:
        return [INPUT]
    return [
        name if given.count(name) == 1 else f"{name} {given[: at + 1].count(name)}"
        for at, name in enumerate(given)
    ]
