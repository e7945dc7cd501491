"""A filter that is evaluated as a rule: its predicates call Python inside larger expressions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from eddyline.options import SharingOptions
from eddyline.query.rules.sources import PredicateRule
from eddyline.rules.store import RuleStore
from eddyline.spark.rules.binding import RuleBinder
from eddyline.spark.rules.operator import RuleOperator
from eddyline.spark.rules.output import MatchedRows

if TYPE_CHECKING:
    from eddyline.query.steps import FilterStep
    from eddyline.spark.operator import Site


class RuleFilter(RuleOperator):
    """Keeps the rows for which a conjunction, the only rule of its set, is true."""

    takes = SharingOptions

    @classmethod
    def of(cls, step: FilterStep, site: Site) -> Self:  # type: ignore[override]
        """Return the operator of a step."""
        options, _ = SharingOptions.taken(site.options)
        store = RuleStore(site.query, options, {})
        store.put({site.query: PredicateRule(site.query, step.predicates, noun="query")})
        return cls(store, RuleBinder(), MatchedRows(), site.df, query=site.query)
