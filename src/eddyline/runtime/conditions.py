"""Conditions that are counted batch by batch, where no monitor says when they change.

A batch whose shares are further from those before it than a situation is left at begins anew. So
what is known is never of two situations together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from eddyline.runtime.situations import LEAVES, Situation, distance

if TYPE_CHECKING:
    from eddyline.data.arrays import Floats
    from eddyline.runtime.situations import Met

KEPT = 0.8
"""What a row counts one batch later."""


class Conditions:
    """Shares of rows since they last changed; newer batches count more."""

    def __init__(self) -> None:
        self._forget(())

    def _forget(self, names: tuple[str, ...]) -> None:
        self.names = names
        self._hits, self.counts = np.zeros(len(names)), np.zeros(len(names))
        self.n_sampled = 0.0

    @property
    def shares(self) -> Floats:
        """The share of each condition ([0, 1]; nan: not known; (C,))."""
        found = np.full(len(self.names), np.nan)
        np.divide(self._hits, self.counts, out=found, where=self.counts > 0.0)
        return found

    def step(
        self, names: tuple[str, ...], shares: Floats, counts: Floats, n_sampled: float
    ) -> bool:
        """Take in a batch.

        Args:
            names: what the conditions are of.
            shares: of the batch ([0, 1]; nan: not measured in it; (C,)).
            counts: rows that each was counted over (≥ 0; (C,)).
            n_sampled: rows that were looked at.

        Returns:
            Whether all before was of other conditions, so that what is known begins with this
            batch. False where other things are counted from now on: nothing can be compared.
        """
        is_told = np.isfinite(shares) & (counts > 0.0)
        is_other = False
        if names != self.names:
            self._forget(names)
        elif is_told.any():
            apart = distance(shares, counts, self.shares, self.counts)
            is_other = bool(np.isfinite(apart)) and apart > LEAVES
        if is_other:
            self._forget(names)
        weights = np.where(is_told, KEPT, 1.0)
        fresh = np.where(is_told, counts, 0.0)
        self._hits = weights * self._hits + fresh * np.where(is_told, shares, 0.0)
        self.counts = weights * self.counts + fresh
        self.n_sampled = (KEPT if n_sampled else 1.0) * self.n_sampled + n_sampled
        return is_other

    def situation(self, evidence: Any, least: float, met: Met | None = None) -> Situation | None:
        """Return the conditions as the log knows them; None while nothing was measured.

        Args:
            evidence: plain values that price any plan.
            least: rows that have to be looked at to choose a plan by.
            met: what all rows of the last batch showed.
        """
        if not self.n_sampled and met is None:
            return None
        return Situation(
            self.names,
            self.shares,
            np.maximum(self.counts, 1.0),
            evidence,
            self.n_sampled,
            is_settled=self.n_sampled >= least,
            met=met,
        )
