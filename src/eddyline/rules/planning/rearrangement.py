"""Tells when a sequence has to be learned again: it drops other rows than when it was adopted.

The paper compares the share of rows that the covering part of the sequence drops [ASC Eq 5]. A
shift that keeps this share and changes which construct does the work escapes it, so the share of
rows that enter each construct is compared too (ours). Both come from what selection counts anyway.
A change must also be beyond chance (ours): a tenth of a small share is less than two periods of
the same stream differ by.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from eddyline.data.arrays import Floats, Mask
    from eddyline.rules.profile import SelectionCounts

MIN_ERRORS = 4.0
"""Standard errors beyond which two shares differ by more than chance: of a thousand looks at ten
constructs, less than one is false."""


def has_changed(initial: float, current: float, min_change: float) -> bool:
    """Return whether a share differs from what it was by a share of that [ASC Eq 5].

    >>> has_changed(0.5, 0.41, 0.2), has_changed(0.5, 0.41, 0.1), has_changed(0.5, 0.5, 0.0)
    (False, True, True)
    """
    if initial == 0.0:
        return current > 0.0 or min_change == 0.0
    return abs(current - initial) / initial >= min_change


class RearrangementMonitor:
    """Says when the shares differ from those of the first period after a sequence was adopted."""

    def __init__(self, review_rows: int, min_change: float) -> None:
        self._review_rows = review_rows
        self._min_change = min_change
        self._prefix: tuple[int, ...] = ()
        self._initial: SelectionCounts | None = None
        self._period: SelectionCounts | None = None

    def adopt(self, prefix: tuple[int, ...]) -> None:
        """Start over with a sequence, by the constructs at its start that cover all rules."""
        self._prefix = prefix
        self._initial = self._period = None

    def is_due(self, counts: SelectionCounts) -> bool:
        """Take in what selection counted, and return whether it is time to learn again."""
        self._period = counts if self._period is None else self._period + counts
        if self._period.n_rows < self._review_rows:
            return False
        current, self._period = self._period, None
        if self._initial is None:
            self._initial = current
            return self._min_change == 0.0
        if self._min_change == 0.0:
            return True
        before, now = self._drop_frac(self._initial), self._drop_frac(current)
        rows = self._initial.n_rows, current.n_rows
        entered = _entered(self._initial), _entered(current)
        moved = np.abs(entered[1] - entered[0]) >= self._min_change
        return (
            has_changed(before, now, self._min_change)
            and bool(_differs(np.array([before]), np.array([now]), rows)[0])
        ) or bool((moved & _differs(*entered, rows)).any())

    def _drop_frac(self, counts: SelectionCounts) -> float:
        return float(counts.dropped[list(self._prefix)].sum() / max(counts.n_rows, 1))


def _differs(before: Floats, now: Floats, rows: tuple[int, int]) -> Mask:
    """Return whether shares of two periods differ by more than ``MIN_ERRORS`` standard errors."""
    both = (before * rows[0] + now * rows[1]) / sum(rows)
    error = np.sqrt(both * (1.0 - both) * (1.0 / rows[0] + 1.0 / rows[1]))
    return np.abs(now - before) > MIN_ERRORS * error


def _entered(counts: SelectionCounts) -> Floats:
    found: Floats = counts.evaluated / max(counts.n_rows, 1)
    return found
