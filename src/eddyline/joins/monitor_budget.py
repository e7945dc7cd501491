"""When the constraints of a join are measured: as often as a share of the time allows.

Where nothing that is learned is in use, and the last batch that was measured gave no hope of any,
measuring rests, ever longer up to a bound.
"""

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

MOST_RESTED = 32
"""Most batches in a row that are not measured while there is nothing to learn. With it one in 33 is
measured, so that all sizes of merges, which come every fourth, sixteenth, … batch, are seen."""

CHANGED = 2.0
"""Measuring rests no longer where new rows find so many times the results that they found when it
was measured last, or so many times fewer."""

WARM_BATCHES = 16
"""First batches of a run, which are measured whatever it takes: little is known."""


class MonitorBudget:
    """Says whether the next batch is measured."""

    def __init__(self) -> None:
        self._budget = Budget(MAX_OVERHEAD, saves=False, most_owed=MOST_SKIPPED)
        self._is_urgent = self._has_measured = False
        self._n_batches = self._rest = self._n_to_rest = 0
        self._per_row = 0.0

    @property
    def may(self) -> bool:
        """Whether the next batch is measured."""
        is_due = self._budget.may and not self._n_to_rest
        return is_due or self._is_urgent or self._n_batches < WARM_BATCHES

    def learning(self) -> AbstractContextManager[None]:
        """Take off the time that the body takes, which learns of what a batch measured.

        Without a measurement it is no cost of one, and measuring more rarely would not spare it.
        """
        return self._budget.spending() if self._has_measured else nullcontext()

    def step(self, reports: Iterable[BucketReport], ages: Mapping[str, AgeCounts]) -> None:
        """Take in what the tasks of a batch took, and what they found."""
        self._has_measured = self.may
        self._n_batches += 1
        n_rows = n_results = 0
        for each in reports:
            self._budget.spend(each.monitor_ns)
            self._budget.earn(each.ns)
            n_rows += each.n_here
            n_results += each.n_results
        self._count_results(n_results / n_rows if n_rows else self._per_row)
        self._is_urgent = any(each.n_cold > MANY_COLD * each.n_pairs for each in ages.values())

    def _count_results(self, per_row: float) -> None:
        """Take note of results for each new row, and whether they wake what rests."""
        low, high = sorted((per_row, self._per_row))
        if self._has_measured:
            self._per_row = per_row
        elif low != high and high >= CHANGED * low:
            self._rest = self._n_to_rest = 0
        else:
            self._n_to_rest = max(self._n_to_rest - 1, 0)

    def rest(self, *, unless: bool) -> None:
        """Take in, once it is learned of a batch, whether measuring is worth its time.

        Args:
            unless: whether something that was learned is in use, or may come to be.
        """
        if self._has_measured:
            self._rest = 0 if unless else min(2 * self._rest or 1, MOST_RESTED)
            self._n_to_rest = self._rest
