"""Which rules of a set are worth a look: one computation for explanation and report."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from eddyline.runtime.rule_view import RuleCount, RuleView


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
