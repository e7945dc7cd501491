"""The registry: every suite and its scenarios, in the order in which they run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks import (
    change_bank,
    change_intrusion,
    change_monitors,
    change_paper,
    change_priced,
    change_quality,
    intrusion,
    joins,
    joins_caches,
    joins_caches_plans,
    joins_growth,
    joins_operator,
    joins_pathway,
    joins_real,
    predicate_eval,
    routing_counted,
    routing_spark,
    sharing_automaton,
    sharing_methods,
    sharing_paper,
    sharing_rules,
    sharing_sigma,
    spark_end_to_end,
    thesis,
)

if TYPE_CHECKING:
    from benchmarks.scenario import Scenario

SUITES: dict[str, tuple[Scenario, ...]] = {
    "filters": (
        *thesis.SCENARIOS,
        *predicate_eval.SCENARIOS,
        *intrusion.SCENARIOS,
        *spark_end_to_end.SCENARIOS,
    ),
    "change": (
        *change_paper.SCENARIOS,
        *change_priced.SCENARIOS,
        *change_intrusion.SCENARIOS,
        *change_monitors.SCENARIOS,
        *change_quality.SCENARIOS,
        *change_bank.SCENARIOS,
    ),
    "routing": (
        *routing_counted.SCENARIOS,
        *routing_spark.SCENARIOS,
    ),
    "sharing": (
        *sharing_paper.SCENARIOS,
        *sharing_methods.SCENARIOS,
        *sharing_rules.SCENARIOS,
        *sharing_sigma.SCENARIOS,
        *sharing_automaton.SCENARIOS,
    ),
    "joins": (
        *joins.SCENARIOS,
        *joins_growth.SCENARIOS,
        *joins_operator.SCENARIOS,
        *joins_caches.SCENARIOS,
        *joins_caches_plans.SCENARIOS,
        *joins_real.SCENARIOS,
        *joins_pathway.SCENARIOS,
    ),
}
"""``python -m benchmarks run SUITE`` runs one of them."""
