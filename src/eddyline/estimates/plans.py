"""Estimates of the rates and costs of whole plans, with bounds.

Costs are per input segment of an operator, rates per segment of the stream (Pulse 4.4). The
weighted sum of cost and risk decides everywhere (E7). Ranks are compared by products, which are
right also if a step gives more than it takes (E20).

``Accuracy`` measures how far estimates were off as they come true, and corrects the next ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, isfinite, log
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from eddyline.estimates.filters import INSTANTS, Estimate, Parts, pairs_below, spread_over

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eddyline.data.arrays import Floats, Indices
    from eddyline.estimates.histograms import CoefHistogram

ONE = Estimate.exactly(1.0)


@dataclass(frozen=True, slots=True)
class Node:
    """An operator of a plan.

    Attributes:
        cost: for each segment that comes in.
        gives: segments that it gives for each that comes in.
        of: what it reads; nothing for the stream itself. Rates of several add up.
    """

    cost: float
    gives: Estimate = ONE
    of: Sequence[Node] = ()


def cost_of(outputs: Sequence[Node]) -> Estimate:
    """Return what all that outputs need costs a segment of the stream, each operator once."""
    rates: dict[int, Floats] = {}
    """The rate that each operator gives: expected, at least, at most."""
    total = np.zeros(3)

    def rate(node: Node) -> Floats:
        if id(node) not in rates:
            came = np.sum([rate(source) for source in node.of], axis=0) if node.of else np.ones(3)
            total[:] += node.cost * came
            rates[id(node)] = came * [node.gives.value, node.gives.low, node.gives.high]
        return rates[id(node)]

    for output in outputs:
        rate(output)
    return Estimate(*total.tolist())


def comes_later(cost: float, passes: float, next_cost: float, next_passes: float) -> bool:
    """Return whether a filter should stand behind the next one: the rank, cross-multiplied.

    Args:
        cost: of a filter for each segment.
        passes: what it gives for each; above 1 where it cuts segments into pieces.
        next_cost: likewise of the next one.
        next_passes: of what has passed the first.
    """
    return cost * (1.0 - next_passes) > next_cost * (1.0 - passes)


FRESH = 0.25
"""Weight of the newest measurement against all before it."""

MOST_OFF = log(1_000.0)
"""Factor beyond which an estimate being off says nothing about the next one."""


class Accuracy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
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

    def corrected(self, estimate: Estimate) -> Estimate:
        """Return an estimate put right, with bounds as wide as it varied."""
        factor, wider = exp(self.bias), exp(self.spread)
        return Estimate(
            estimate.value * factor, estimate.low * factor / wider, estimate.high * factor * wider
        )

    @property
    def factor(self) -> float:
        """What came true over what was estimated."""
        return exp(self.bias)


# -- results ---------------------------------------------------------------------------------------
# Estimates of results: pairs of joined segments, and segments of aggregates.
#
# ``overlaps`` and ``share_of_pairs`` say how many pairs of segments overlap in time and on what
# share
# of them a comparison holds. ``share_of_maximum``, ``stays_constant`` and ``n_sums`` say which
# entity
# has the greatest value, for how long it stays, and how many sums there are.


MAX_SIDE_CELLS = 150
"""Cells of each side: their pairs are looked at."""

MAX_PAIRS = 20_000
"""Pairs of cells that are computed at once."""


def overlaps(n_one: float, n_other: float, *, is_aligned: bool) -> float:
    """Return how many pairs of segments overlap that tile the same time (E6).

    Args:
        n_one: segments of one side.
        n_other: segments of the other side.
        is_aligned: whether segments of both sides begin and end at the same instants.
    """
    if min(n_one, n_other) <= 0.0:
        return 0.0
    return min(n_one, n_other) if is_aligned else max(n_one + n_other - 1.0, 0.0)


def share_of_pairs(
    one: CoefHistogram, other: CoefHistogram, *, is_aligned: bool, max_cells: int = MAX_SIDE_CELLS
) -> Estimate:
    """Return on what share of overlapping pairs ``one < other`` holds somewhere.

    Args:
        one: the left side, with at least one segment.
        other: the right side.
        is_aligned: whether segments of both sides begin and end at the same instants.
        max_cells: of each side; the time goes by their square.
    """
    one, other = one.within(max_cells), other.within(max_cells)
    left, right = (places.ravel() for places in np.indices((len(one), len(other))))
    sums = np.zeros(4)
    for start in range(0, len(left), MAX_PAIRS):
        rows = slice(start, start + MAX_PAIRS)
        sums += _pairs(one, other, left[rows], right[rows], is_aligned=is_aligned)
    value, low, high = sums[:3] / max(float(sums[3]), 1e-300)
    return Estimate(float(value), float(low), float(min(high, 1.0)))


def _pairs(
    one: CoefHistogram, other: CoefHistogram, left: Indices, right: Indices, *, is_aligned: bool
) -> Floats:
    """Return of pairs of cells in how many results they are, at least, at most, and all of them."""
    lengths = one.length[left], other.length[right]
    shorter = np.minimum(*lengths)
    # Pairs overlap as often as the edges of one are in the other.
    overlap = shorter if is_aligned else lengths[0] + lengths[1]
    counts = one.counts[left] * other.counts[right] * np.where(overlap > 0.0, overlap, 1e-9)
    parts = _parts(one, other, left, right, shorter)
    unsure, value = counts @ (1.0 - parts.sure), counts @ parts.any
    return np.array([value, max(0.0, value - unsure), value + unsure, counts.sum()])


def _parts(
    one: CoefHistogram, other: CoefHistogram, left: Indices, right: Indices, length: Floats
) -> Parts:
    if max(one.size, other.size) <= 2:
        first, second = _boxes(one, 2), _boxes(other, 2)
        return pairs_below(
            (first[0][left], first[1][left]), (second[0][right], second[1][right]), length
        )
    size = max(one.size, other.size)
    first, second = _boxes(one, size), _boxes(other, size)
    low, high = (np.concatenate([first[end][left], second[end][right]], axis=1) for end in (0, 1))
    points = spread_over(low, high)
    apart = (points[..., :size] - points[..., size:]) * length[:, None, None] ** np.arange(size)
    is_below = apart @ (np.linspace(0, 1, INSTANTS) ** np.arange(size)[:, None]) < 0.0
    whole, none = is_below.all(axis=2).mean(axis=1), (~is_below).all(axis=2).mean(axis=1)
    return Parts(whole, none, whole + none)


def _boxes(histogram: CoefHistogram, size: int) -> tuple[Floats, Floats]:
    """Return the least and the greatest coefficients of each cell, of so many powers of seconds."""
    length = np.where(histogram.length > 0.0, histogram.length, np.inf)[:, None]
    per_second = length ** -np.arange(histogram.size, dtype=float)
    more = (0, 0), (0, size - histogram.size)
    return np.pad(histogram.low * per_second, more), np.pad(histogram.high * per_second, more)


def share_of_maximum(
    histograms: Sequence[CoefHistogram], place: int, n_entities: float | None = None
) -> float:
    """Return on what share of an entity's segments it has the greatest value of all, in the middle.

    It has to beat *each* other entity, so chances multiply (E10).

    Args:
        histograms: for each entity its segments, at least one.
        place: the entity.
        n_entities: how many entities there are, for all of which those that are given stand; None:
            there are no others.
    """
    low, high = _middle(histograms[place])
    shares = histograms[place].counts / histograms[place].total
    # Points of each cell, as chances of beating several do not multiply by cell.
    points = (np.arange(8) + 0.5) / 8
    values = low[:, None] + points * (high - low)[:, None]
    chance = np.ones_like(values)
    for other, histogram in enumerate(histograms):
        if other != place:
            chance *= _chance_below(histogram, values)
    if n_entities is not None and len(histograms) > 1:
        chance **= max(n_entities - 1.0, 1.0) / (len(histograms) - 1)
    return float(shares @ chance.mean(axis=1))


def _middle(histogram: CoefHistogram) -> tuple[Floats, Floats]:
    """Return the least and the greatest value in the middle of the segments of each cell."""
    powers = 0.5 ** np.arange(histogram.size)
    return (histogram.low * powers).sum(axis=1), (histogram.high * powers).sum(axis=1)


def _chance_below(histogram: CoefHistogram, values: Floats) -> Floats:
    """Return how likely a segment is below each value, half of it where it is the same."""
    low, high = _middle(histogram)
    width = high - low
    room = values[..., None] - low
    fixed = np.where(room == 0.0, 0.5, room > 0.0)
    share = np.where(width > 0.0, np.clip(room / np.where(width > 0.0, width, 1.0), 0, 1), fixed)
    chances: Floats = share @ (histogram.counts / histogram.total)
    return chances


def stays_constant(n: float) -> float:
    """Return how often the maximum of a window of so many segments stays as the window moves.

    What leaves was not the maximum, and what comes in is not: of ``n + 1`` values in any order
    neither the first nor the last is the greatest (E11).
    """
    return max(0.0, (n - 1) / (n + 1))


def n_sums(n_segments: float, n_entities: float, *, is_aligned: bool) -> float:
    """Return how many segments a sum over entities has whose segments tile the same time.

    Args:
        n_segments: of all entities together.
        n_entities: at least 1.
        is_aligned: whether all begin and end at the same instants.
    """
    return n_segments / n_entities if is_aligned else max(n_segments - n_entities + 1.0, 0.0)
