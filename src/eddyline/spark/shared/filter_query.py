"""The parts of a query that filters one stream and does nothing else: it may run with others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eddyline.query.steps import FilterStep, ProjectStep, ReadStep
from eddyline.spark.filters.operator import FilterOperator

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eddyline.filters.binding import Pinned
    from eddyline.query.predicates import FunctionPredicate, Predicate
    from eddyline.spark.query import Query


def is_filter(query: Query) -> bool:
    """Return whether a query reads one stream, filters it and projects, and does nothing else."""
    return tuple(map(type, query.steps)) == (ReadStep, FilterStep, ProjectStep)


def predicates_of(query: Query) -> tuple[Predicate, ...]:
    """Return the predicates."""
    return next(each.predicates for each in query.steps if isinstance(each, FilterStep))


def projections_of(query: Query) -> tuple[str, ...]:
    """Return the output columns, as SQL."""
    return next(each.projections for each in query.steps if isinstance(each, ProjectStep))


def calls_of(query: Query) -> Mapping[str, FunctionPredicate]:
    """Return the Python functions that output columns call."""
    return next(each.calls for each in query.steps if isinstance(each, ProjectStep))


def pinned_of(query: Query) -> tuple[Pinned, ...]:
    """Return the predicates that keep their place; rules have none."""
    filters = (each for each in query.operators if isinstance(each, FilterOperator))
    return next((each.bound.pinned for each in filters), ())
