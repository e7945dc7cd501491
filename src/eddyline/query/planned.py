"""The steps of a query: what is evaluated, in which order, over which relations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eddyline.query.aggregates import both
from eddyline.query.predicates import SqlPredicate
from eddyline.query.select.names import identifier
from eddyline.query.steps import (
    AggregateStep,
    FilterStep,
    JoinedInput,
    JoinStep,
    OverStep,
    ProjectStep,
    ReadStep,
    Step,
    UnionStep,
    columns_read,
    inlined,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eddyline.query.query import Input, Query


def steps(query: Query, made: Mapping[str, Sequence[Step]] | None = None) -> tuple[Step, ...]:
    """Return the steps of a query in the order in which they are evaluated.

    A query over one input is filtered even where it has no predicate; of a join, the inputs that
    have some, and the results if there are conditions beside the equalities.

    Args:
        query: the query.
        made: of the streams that are results of other queries, the steps of those by the stream's
            name. They take the place of reading it, over relations of their own: ``s`` of the query
            behind the input ``a`` is called ``a.s`` (an input of that very name is in backticks).

    Example:
        >>> from eddyline.query.select.reader import read_query
        >>> columns = {"s": {"k": "int", "v": "int"}, "t": {"k": "int", "w": "int"}}
        >>> query = read_query("SELECT v FROM s [NOW], t WHERE s.k = t.k AND v > 3", columns)
        >>> for step in steps(query):
        ...     print(step)
        read s
        filter s: v > 3
        read t
        join s [NOW], t [UNBOUNDED] on s.k = t.k
        project s ⋈ t: s.v AS v
    """
    if query.parts:
        return _union(query, made)
    found: list[Step] = []
    for each in query.inputs:
        found += _input_steps(query, each, made or {})
    names = [identifier(each.name) for each in query.inputs]
    if query.grouping is not None:
        return (*found, _aggregate_step(query, names[0]))
    overs = query.overs
    found += [OverStep(names[0], over.partition_by, over.calls, over.time) for over in overs]
    if not query.is_join:
        return (*found, ProjectStep(names[0], query.projections, calls=query.calls))
    output = " ⋈ ".join(names)
    qualifiers = [each.name for each in query.inputs]
    needed = columns_read(qualifiers, (*query.projections, *query.residual, *query.conditions))
    joined = tuple(
        JoinedInput(each.name, name, each.window, needed[each.name])
        for name, each in zip(names, query.inputs, strict=True)
    )
    asked = query.emits or "istream", output, query.kind, query.conditions
    found.append(JoinStep(joined, query.keys, query.equalities, *asked))
    if query.residual:
        found.append(FilterStep(output, tuple(map(SqlPredicate, query.residual))))
    return (*found, ProjectStep(output, query.projections))


def _union(query: Query, made: Mapping[str, Sequence[Step]] | None) -> tuple[Step, ...]:
    """Return the steps of UNION ALL; the relations of its parts are told apart by number."""
    names = [f"part {number}" for number in range(1, len(query.parts) + 1)]
    parts = zip(names, query.parts, strict=True)
    inner = [step for name, part in parts for step in inlined(steps(part, made), name)]
    return (*inner, UnionStep(tuple(names)))


def _aggregate_step(query: Query, input: str) -> AggregateStep:
    """Return the step that aggregates an input."""
    assert query.grouping is not None
    grouping, window = query.grouping, query.inputs[0].window
    where = both(*(each.text for each in query.inputs[0].predicates)) if window.counts else ""
    return AggregateStep(
        input,
        grouping.groups,
        grouping.calls,
        window,
        query.projections,
        grouping.having,
        query.emits,
        time=query.times[0].name if query.times else "",
        where=where,
    )


def _input_steps(query: Query, each: Input, made: Mapping[str, Sequence[Step]]) -> list[Step]:
    """Return the steps that make an input: its stream, and what passes its predicates."""
    name, inner = identifier(each.name), made.get(each.stream)
    if each.query is not None:
        inner = steps(each.query, made)
    found: list[Step] = [ReadStep(each.stream, name)]
    if inner is not None:
        found = inlined(inner, name)
    if each.predicates or not query.is_join:
        # Where rows are counted and aggregated, WHERE is asked of those that the window has.
        is_counted = query.grouping is not None and each.window.counts is not None
        found.append(FilterStep(name, () if is_counted else each.predicates))
    return found
