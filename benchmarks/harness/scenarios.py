"""The registry: every suite and its scenarios, in the order in which they run."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.harness.scenario import Scenario

MODULES: dict[str, tuple[str, ...]] = {
    "filters": (
        "filters.thesis",
        "filters.predicate_eval",
        "filters.intrusion",
        "filters.spark_end_to_end",
    ),
    "change": (
        "change.paper",
        "change.priced",
        "change.intrusion",
        "change.monitors",
        "change.quality",
        "change.bank",
    ),
    "routing": ("routing.counted", "routing.spark"),
    "sharing": (
        "rules.paper",
        "rules.methods",
        "rules.numbers",
        "rules.sigma",
        "rules.automaton",
    ),
    "joins": (
        "joins.chained",
        "joins.growth",
        "joins.operator",
        "joins.caches",
        "joins.caches_plans",
        "joins.real",
        "joins.pathway",
    ),
}
"""Modules of scenarios by suite; rules keep the name under which their results stand: sharing."""

SUITES: dict[str, tuple[Scenario, ...]] = {
    suite: tuple(
        scenario for name in names for scenario in import_module(f"benchmarks.{name}").SCENARIOS
    )
    for suite, names in MODULES.items()
}
"""``python -m benchmarks run SUITE`` runs one of them."""
