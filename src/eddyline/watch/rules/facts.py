"""Which rules of a set are worth a look: one computation for explanation and report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eddyline.watch.formatting import count

if TYPE_CHECKING:
    from eddyline.rules.view import RuleCount, RuleView


def dead_rules(view: RuleView) -> list[RuleCount]:
    """Return the rules that saw rows and were true for none, in the order of the set."""
    return [each for each in view.rules if each.n_rows and not each.n_matches]


def rules_met_in_vain(view: RuleView) -> list[RuleCount]:
    """Return the rules that were decided for rows that they were not true for, the most first."""
    met = [each for each in view.rules if each.n_met > each.n_matches]
    return sorted(met, key=lambda each: each.n_matches - each.n_met)


def rules_by_matches(view: RuleView) -> list[RuleCount]:
    """Return the rules that were true for some row, the most often true first."""
    true = [each for each in view.rules if each.n_matches]
    return sorted(true, key=lambda each: -each.n_matches)


def natives_title(view: RuleView) -> str:
    """Return how many tests are left to Spark, in words."""
    n_tests = len(view.natives)
    if n_tests == 1:
        return "1 test is left to Spark, a column of its own"
    return f"{count(n_tests)} tests are left to Spark, one column each"
