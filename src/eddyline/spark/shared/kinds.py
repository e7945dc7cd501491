"""The kinds of queries that may run together. A new one is a line here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from eddyline.spark.shared import aggregate_query
from eddyline.spark.shared.filter_query import FilterEvaluation, is_filter, why_not_shared

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from eddyline.spark.query import Query
    from eddyline.spark.shared.evaluation import Evaluation, Listed


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of queries that may run together."""

    takes: Callable[[Query], bool]
    """Returns whether a query is of the kind."""
    together: Callable[[Sequence[Query]], dict[str, str]]
    """Returns, by the names of queries, what those are called that may run together: a folder."""
    why_lone: Callable[[Query], str]
    """Returns the reason why none of the others over its stream may run with a query."""
    why_not: Callable[[Query], str]
    """Returns the reason why a query would mean something else with others; "" if none."""
    fit: Callable[[Sequence[Query]], bool]
    """Returns whether queries are worth running together."""
    evaluation: Callable[[Sequence[Query], Mapping[str, Listed]], Evaluation]
    """Returns what evaluates queries; those that ran with them before and left are told, too."""


KINDS = (
    Kind(
        is_filter,
        lambda queries: {each.name: each.streams[0] for each in queries},
        lambda _: "the others have another trigger",
        why_not_shared,
        lambda _: True,
        lambda queries, _: FilterEvaluation(queries),
    ),
    Kind(
        aggregate_query.is_aggregate,
        aggregate_query.together_of,
        aggregate_query.why_lone,
        aggregate_query.why_not_shared,
        aggregate_query.fit_together,
        aggregate_query.AggregateEvaluation,
    ),
)
"""All of them; a query is of the first that takes it."""
