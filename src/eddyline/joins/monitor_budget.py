"""When the constraints of a join are measured: as often as a share of the time allows."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

from eddyline.runtime.budget import Budget

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from contextlib import AbstractContextManager

    from eddyline.joins.operator.partner_ages import AgeCounts
    from eddyline.joins.plan import BucketReport

MAX_OVERHEAD = 0.02
"""Most time that measuring and learning of it take, as a share of the time of the join's tasks."""

MOST_SKIPPED = 8
"""Most batches in a row that are not measured because measuring took too long before."""

MANY_COLD = 0.01
"""Share of the pairs found cold from which the next batch is measured whatever it takes: a k that
has grown is to be followed at once."""

WARM_BATCHES = 16
"""First batches of a run, which are measured whatever it takes: little is known."""


class MonitorBudget:
    """Says whether the next batch is measured."""

    def __init__(self) -> None:
        self._budget = Budget(MAX_OVERHEAD, saves=False, most_owed=MOST_SKIPPED)
        self._is_urgent = self._has_measured = False
        self._n_batches = 0

    @property
    def may(self) -> bool:
        """Whether the next batch is measured."""
        return self._budget.may or self._is_urgent or self._n_batches < WARM_BATCHES

    def learning(self) -> AbstractContextManager[None]:
        """Take off the time that the body takes, which learns of what a batch measured.

        Without a measurement it is no cost of one, and measuring more rarely would not spare it.
        """
        return self._budget.spending() if self._has_measured else nullcontext()

    def step(self, reports: Iterable[BucketReport], ages: Mapping[str, AgeCounts]) -> None:
        """Take in what the tasks of a batch took, and what they found."""
        self._has_measured = self.may
        self._n_batches += 1
        for each in reports:
            self._budget.spend(each.monitor_ns)
            self._budget.earn(each.ns)
        self._is_urgent = any(each.n_cold > MANY_COLD * each.n_pairs for each in ages.values())
