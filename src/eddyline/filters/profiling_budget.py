"""How often batches are profiled: as often as what that takes is a small share of their time.

To profile a sample of the rows of a statement is more than to evaluate predicates on it. Spark
plans and compiles another statement, and hands all rows from one piece of code to the next once
more. That takes as long whatever the predicates cost, and longer than cheap ones do: so batches are
timed with and without, and of short ones most are not profiled.
"""

from __future__ import annotations

from eddyline.runtime.budget import Budget

SHARE = 0.05
"""Most time that profiling may add to batches, as a share of their time."""

SHARE_OF_WORK = 0.1
"""The same as a share of the time that predicates take, where that is more: an order saves a part
of that."""

MOST_SKIPPED = 16
"""Batches in a row that are not profiled at most: what changes in the data is to be seen."""

FADE = 0.5
"""What is known of batches weighs so much one batch later."""

MOST_PROFILED = 32
"""Batches in a row that are profiled at most, so that what they would take without is known."""

MOST_UNLIKE = 2.0
"""Batches of so many times the rows tell nothing of each other."""


class ProfilingBudget:
    """Keeps what profiling takes to a share of the time of batches."""

    def __init__(self) -> None:
        self._budget = Budget(1.0, saves=False, most_owed=MOST_SKIPPED)
        self._plain_ns = self._plain_rows = 0.0
        """Of batches that were not profiled, newer ones weighing more."""
        self._n_profiled = 0
        """Batches that were timed and profiled since one that was not."""

    @property
    def may(self) -> bool:
        """Whether the next batch may be profiled."""
        most = MOST_PROFILED if self._plain_rows else 1
        return self._budget.may and self._n_profiled < most

    def passed(
        self, ns: float, *, work_ns: float = 0.0, n_rows: float = 0.0, planned_ns: float = 0.0
    ) -> None:
        """Take in a batch.

        Args:
            ns: its time (ns).
            work_ns: what its predicates took (ns).
            n_rows: its rows; 0 if its time says nothing, because other things went on.
            planned_ns: what planning a profiled statement took at least (ns); 0 if it was not
                profiled.
        """
        if planned_ns:
            self._n_profiled += n_rows > 0
            self._budget.spend(max(planned_ns, self._extra_ns(ns, n_rows)))
        elif n_rows:
            self._n_profiled = 0
            self._plain_ns = FADE * self._plain_ns + ns
            self._plain_rows = FADE * self._plain_rows + n_rows
        self._budget.earn(max(SHARE * ns, SHARE_OF_WORK * work_ns))

    def _extra_ns(self, ns: float, n_rows: float) -> float:
        """Return how much longer a batch took than others of as many rows (ns); 0: not known."""
        if not (self._plain_rows and n_rows):
            return 0.0
        # The sums fade alike, so that one over the other is a mean.
        expected_ns = self._plain_ns * n_rows / self._plain_rows
        mean_rows = self._plain_rows * (1 - FADE)
        is_alike = mean_rows / MOST_UNLIKE <= n_rows <= mean_rows * MOST_UNLIKE
        return ns - expected_ns if is_alike else 0.0
