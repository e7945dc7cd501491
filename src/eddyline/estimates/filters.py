"""Estimates of conditions: on what share of segments they hold, and when.

A comparison on one attribute is estimated by exact volumes of cells. For AND and OR it matters
*when* comparisons hold, as all have to at the same instant (Pulse 3.3.1 leaves that out: E9): what
is derived of an attribute is how much of it holds in which of 64 parts of a segment's time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from eddyline.estimates.volumes import Parts, below, spread_over

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eddyline.data.arrays import Floats, Words
    from eddyline.estimates.histograms import CoefHistogram

INSTANTS = 64
"""Parts into which the time of a segment is cut: a bit each."""

POINTS = 16
"""Points of each cell that say when a comparison holds."""

ALL = np.uint64(2**64 - 1)

MOST_MASKS = 2_000
"""Different times that are told apart; of more the rarest are rounded to half as many parts."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A share or a number, with bounds."""

    value: float
    low: float
    """What it is at least."""
    high: float
    """What it is at most."""

    def times(self, other: Estimate) -> Estimate:
        """Return the product; of numbers that are not negative."""
        return Estimate(self.value * other.value, self.low * other.low, self.high * other.high)

    @classmethod
    def exactly(cls, value: float) -> Estimate:
        """Return what is known."""
        return cls(value, value, value)


@dataclass(frozen=True, eq=False)
class Times:
    """When a condition holds on segments: how many of them hold in which parts of their time.

    Attributes:
        masks: a bit for each part of time; different ones, ``[n]``.
        shares: of segments, ``[n]``; they add up to 1.
    """

    masks: Words
    shares: Floats

    @classmethod
    def of(cls, masks: Words, shares: Floats) -> Times:
        """Return shares by mask, each mask once."""
        known, which = np.unique(masks, return_inverse=True)
        found = cls(known, np.bincount(which.ravel(), shares, len(known)).astype(float))
        return found if len(known) <= MOST_MASKS else found._rounded()

    def both(self, other: Times) -> Times:
        """Return when two conditions hold at once that know nothing of each other."""
        return self._with(other, np.bitwise_and)

    def either(self, other: Times) -> Times:
        """Return when one of two conditions holds that know nothing of each other."""
        return self._with(other, np.bitwise_or)

    @property
    def any(self) -> float:
        """The share of segments on which it holds somewhere."""
        return float(self.shares[self.masks != 0].sum())

    @property
    def pieces(self) -> float:
        """Ranges of time on which it holds, for each segment on which it holds somewhere."""
        begins = np.bitwise_count(self.masks & ~(self.masks << np.uint64(1)))
        return float(begins @ self.shares) / max(self.any, 1e-300) if self.any else 1.0

    @property
    def whole(self) -> float:
        """The share on which it holds all along."""
        return float(self.shares[self.masks == ALL].sum())

    def _with(self, other: Times, how: np.ufunc) -> Times:
        masks = how.outer(self.masks, other.masks).ravel()
        return Times.of(masks, np.outer(self.shares, other.shares).ravel())

    def _rounded(self) -> Times:
        """Return rare masks with neighbouring parts of time as one, so that fewer differ."""
        rare = np.argsort(-self.shares)[MOST_MASKS // 2 :]
        masks = self.masks.copy()
        pairs = masks[rare] & np.uint64(0x5555555555555555)
        odd = (masks[rare] >> np.uint64(1)) & np.uint64(0x5555555555555555)
        # Whole and none stay what they are.
        masks[rare] = np.where(masks[rare] == ALL, ALL, (pairs | odd) * np.uint64(3))
        known, which = np.unique(masks, return_inverse=True)
        return Times(known, np.bincount(which.ravel(), self.shares, len(known)).astype(float))


def comparison(given: CoefHistogram, op: str, constant: float) -> tuple[Estimate, Times]:
    """Return on what share of segments ``x op constant`` holds somewhere, and when.

    Args:
        given: of the attribute, with at least one segment.
        op: one of ``< <= > >=``.
        constant: what it is compared with.
    """
    parts = _parts(given, op, constant)
    counts = given.counts / given.total
    unsure = float(counts @ (1.0 - parts.sure))
    any_ = float(counts @ parts.any)
    bounds = max(0.0, any_ - unsure), min(1.0, any_ + unsure)
    return Estimate(any_, *bounds), _times(given, op, constant, parts)


def _parts(given: CoefHistogram, op: str, constant: float) -> Parts:
    ones = np.ones(len(given))
    if op in {"<", "<="}:
        return below(given.low, given.high, ones, constant, or_at=op == "<=")
    return below(-given.high, -given.low, ones, -constant, or_at=op == ">=")


def _times(given: CoefHistogram, op: str, constant: float, parts: Parts) -> Times:
    """Return when a comparison holds; how much holds all along or nowhere is as of ``parts``."""
    points = spread_over(given.low, given.high, POINTS)
    at = (np.arange(INSTANTS) + 0.5) / INSTANTS
    values = points @ (at ** np.arange(given.size)[:, None])
    sign = 1.0 if op in {"<", "<="} else -1.0
    is_true = sign * values < sign * constant
    bits = np.uint64(1) << np.arange(INSTANTS, dtype=np.uint64)
    masks = np.where(is_true, bits, np.uint64(0)).sum(axis=2, dtype=np.uint64)
    counts = given.counts / given.total
    crosses = (masks != 0) & (masks != ALL)
    n_crossing = crosses.sum(axis=1)
    # Of a cell that no point crosses, what crosses is rounded to half of a segment's time.
    share = np.where(n_crossing > 0, parts.crossing / np.maximum(n_crossing, 1), 0.0)
    left = np.where(n_crossing > 0, 0.0, parts.crossing)
    half = np.uint64(2**32 - 1)
    every = [
        (masks[crosses], np.broadcast_to((counts * share)[:, None], masks.shape)[crosses]),
        (np.array([0, ALL, half], np.uint64), np.array([
            counts @ parts.none, counts @ parts.whole, counts @ left,
        ])),
    ]  # fmt: skip
    return Times.of(np.concatenate([m for m, _ in every]), np.concatenate([s for _, s in every]))


# -- conjunctions -------------------------------------------------------------------------------


def conjunction(parts: Sequence[tuple[Estimate, Times]]) -> tuple[Estimate, Times]:
    """Return an AND of conditions on attributes that know nothing of each other.

    The bounds hold whatever they know of each other, but for when: that ``k`` conditions hold
    somewhere on a segment does not say that they do at once, so the least is what is surely whole.
    """
    (_, times), *rest = parts
    for _, other in rest:
        times = times.both(other)
    # All of a segment for all conditions but one, which holds somewhere on it.
    whole = [each.whole for _, each in parts]
    surely = max(
        max(0.0, part.low + sum(whole) - whole[at] - (len(parts) - 1))
        for at, (part, _) in enumerate(parts)
    )
    most = min(part.high for part, _ in parts)
    return Estimate(float(np.clip(times.any, surely, most)), surely, most), times


def disjunction(parts: Sequence[tuple[Estimate, Times]]) -> tuple[Estimate, Times]:
    """Return an OR of conditions on attributes that know nothing of each other."""
    (_, times), *rest = parts
    for _, other in rest:
        times = times.either(other)
    least = max(part.low for part, _ in parts)
    most = min(1.0, sum(part.high for part, _ in parts))
    return Estimate(float(np.clip(times.any, least, most)), least, most), times
