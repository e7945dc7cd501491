"""The record of a set of rules after a micro-batch."""

from __future__ import annotations

from dataclasses import dataclass

COMPONENT = "rules"
"""Name of what decides, in the journal."""


@dataclass(frozen=True, slots=True)
class RuleRecord:
    """A set of rules after one micro-batch."""

    n_rules: int
    plan: str
    """The plan in words."""
    n_met: int
    """Pairs of a row of the batch and a rule that had to be decided."""
    n_matches: int
    """Pairs of a row of the batch and a rule that is true for it."""
    component: str = COMPONENT
