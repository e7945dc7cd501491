"""How far estimates were off, measured as they come true, and used to put the next ones right."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, isfinite, log

import msgspec

from eddyline.estimates.filters import Estimate

FRESH = 0.25
"""Weight of the newest measurement against all before it."""

MOST_OFF = log(1_000.0)
"""Factor beyond which an estimate being off says nothing about the next one."""


class SavedAccuracy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The saved state of an ``Accuracy``."""

    bias: float = 0.0
    spread: float = 0.0
    n: int = 0


@dataclass(frozen=True, slots=True)
class Accuracy:
    """By what factor an estimator is off, and how much that varies."""

    bias: float = 0.0
    """Logarithm of what came true over what was estimated, newer ones counting more."""
    spread: float = 0.0
    """Mean distance of that logarithm from ``bias``."""
    n: int = 0
    """How many estimates came true."""

    def after(self, estimated: float, true: float) -> Accuracy:
        """Return it with one more estimate, before it was corrected, and what came true.

        Nothing is learned where either is 0 or less, or no number.
        """
        if not (estimated > 0.0 and true > 0.0 and isfinite(estimated) and isfinite(true)):
            return self
        off = max(-MOST_OFF, min(MOST_OFF, log(true / estimated)))
        weight = max(FRESH, 1.0 / (self.n + 1))
        bias = self.bias + weight * (off - self.bias)
        spread = self.spread + weight * (abs(off - self.bias) - self.spread) if self.n else 0.0
        return Accuracy(bias, spread, self.n + 1)

    def corrected(self, given: Estimate) -> Estimate:
        """Return an estimate put right, with bounds as wide as it varied."""
        factor, wider = exp(self.bias), exp(self.spread)
        return Estimate(
            given.value * factor, given.low * factor / wider, given.high * factor * wider
        )

    @property
    def saved(self) -> SavedAccuracy:
        """The same to be saved."""
        return SavedAccuracy(self.bias, self.spread, self.n)

    @classmethod
    def of(cls, saved: SavedAccuracy) -> Accuracy:
        """Return what was saved."""
        return cls(saved.bias, saved.spread, saved.n)

    @property
    def factor(self) -> float:
        """What came true over what was estimated."""
        return exp(self.bias)
