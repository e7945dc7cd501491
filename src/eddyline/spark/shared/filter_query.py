"""The parts of a query that filters one stream and does nothing else: it may run with others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eddyline.errors import EddylineError
from eddyline.options import FilterOptions
from eddyline.query.identity import Identity
from eddyline.query.rules.sources import PredicateRule
from eddyline.query.steps import FilterStep, ProjectStep, ReadStep
from eddyline.spark.analysis import column_types
from eddyline.spark.filters.operator import FilterOperator
from eddyline.spark.rules.output import MatchesColumn
from eddyline.spark.rules.rule_set import RuleSet
from eddyline.spark.run.job import settings_of
from eddyline.spark.session import is_ansi
from eddyline.spark.shared.evaluation import PLACES, Evaluation
from eddyline.sql.functions import READ_BY, names_among

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame

    from eddyline.filters.binding import Pinned
    from eddyline.query.predicates import FunctionPredicate, Predicate
    from eddyline.spark.operator import Operator
    from eddyline.spark.query import Query
    from eddyline.spark.rules.operator import RuleOperator


class FilterEvaluation(Evaluation):
    """Queries that filter, as rules: tests that several of them use are evaluated once."""

    words = "each is a rule there"

    def __init__(self, queries: Sequence[Query]) -> None:
        (stream,) = queries[0].relations.values()
        self.source = stream.narrowed([each.steps for each in queries], routes=False).rows
        self.rules = RuleSet.of(
            [_rule_of(each) for each in queries],
            name=f"queries over {queries[0].streams[0]}",
        )
        self.identity = Identity(self.rules.name, (), {}, legacy=self.rules.name)
        self.settings = settings_of(self.rules.options)
        self._operator: RuleOperator | None = None

    @property
    def names(self) -> Sequence[str]:  # type: ignore[override]
        """The queries by their places in the micro-batch that was laid last."""
        return () if self._operator is None else self._operator.names

    def operators(self) -> Sequence[Operator]:
        """Return the operator of the rules, with nothing learned yet."""
        column = MatchesColumn(PLACES, as_places=True)
        self._operator = self.rules.query_operator(self.source, column, "")
        return [self._operator]

    def projections(self, query: Query) -> tuple[str, ...]:
        """Return the output columns of a query, over the rows of the stream."""
        return projections_of(query)

    def shape(self) -> DataFrame:
        """Return the stream."""
        return self.source

    def remove(self, *names: str) -> None:
        """Let queries go while the others run on."""
        self.rules.remove(*names)


def is_filter(query: Query) -> bool:
    """Return whether a query reads one stream, filters it and projects, and does nothing else."""
    kinds = tuple(map(type, query.steps))
    return kinds == (ReadStep, FilterStep, ProjectStep) and bool(query.streams)


def predicates_of(query: Query) -> tuple[Predicate, ...]:
    """Return the predicates."""
    return next(each.predicates for each in query.steps if isinstance(each, FilterStep))


def _rule_of(query: Query) -> PredicateRule:
    return PredicateRule(query.name, predicates_of(query), noun="query")


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


def why_not_shared(query: Query) -> str:
    """Return the reason why a query would mean something else with others; "" if none."""
    if FilterOptions.taken(query.options)[0] != FilterOptions():
        return "it has options of its own"
    if pinned := pinned_of(query):
        return f"{pinned[0].text!r} keeps its place: {pinned[0].reason}"
    if calls := calls_of(query):
        return f"its output columns call {next(iter(calls.values())).text}, a Python function"
    if lots := names_among(READ_BY, projections_of(query)):
        return f"its output columns use {lots[0]}, which depends on how rows are read"
    try:
        _rule_of(query).bind(column_types(query.source), ansi=is_ansi(query.source.sparkSession))
    except EddylineError as error:
        return error.message
    return ""
