"""The registry: every suite and its scenarios, in the order in which they run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks import intrusion, predicate_eval, spark_end_to_end, thesis

if TYPE_CHECKING:
    from benchmarks.scenario import Scenario

SUITES: dict[str, tuple[Scenario, ...]] = {
    "filters": (
        *thesis.SCENARIOS,
        *predicate_eval.SCENARIOS,
        *intrusion.SCENARIOS,
        *spark_end_to_end.SCENARIOS,
    ),
}
"""``python -m benchmarks run SUITE`` runs one of them."""
