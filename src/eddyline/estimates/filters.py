"""Estimates of the share of segments on which conditions hold, and when.

*Volumes.* A comparison on one attribute is estimated by exact volumes of cells, not by centroids. A
box of coefficients has three parts: segments on which the comparison holds all along (``whole``),
on which it holds nowhere (``none``), and those between, which cross. For lines these are areas in
closed form. Above that, a Bernstein certificate says what is sure, and fixed points of the box say
what is likely (Pulse 3.3, corrected: E1 to E5).

*Times.* For AND and OR it matters *when* comparisons hold, because all have to hold at the same
instant (Pulse 3.3.1 leaves that out: E9). So an attribute tells how much of it holds in which of 64
parts of a segment's time.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import product
from math import comb
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eddyline.data.arrays import Floats, Mask, Words
    from eddyline.estimates.histograms import CoefHistogram

TIME_PARTS = 64
"""Parts into which the time of a segment is cut: a bit each."""

CELL_POINTS = 16
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
    def from_masks(cls, masks: Words, shares: Floats) -> Times:
        """Return shares by mask, each mask once."""
        distinct, which = np.unique(masks, return_inverse=True)
        times = cls(distinct, np.bincount(which.ravel(), shares, len(distinct)).astype(float))
        return times if len(distinct) <= MOST_MASKS else times._rounded()

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
        return Times.from_masks(masks, np.outer(self.shares, other.shares).ravel())

    def _rounded(self) -> Times:
        """Return rare masks with neighbouring parts of time as one, so that fewer differ."""
        rare = np.argsort(-self.shares)[MOST_MASKS // 2 :]
        masks = self.masks.copy()
        pairs = masks[rare] & np.uint64(0x5555555555555555)
        odd = (masks[rare] >> np.uint64(1)) & np.uint64(0x5555555555555555)
        # Whole and none stay what they are.
        masks[rare] = np.where(masks[rare] == ALL, ALL, (pairs | odd) * np.uint64(3))
        distinct, which = np.unique(masks, return_inverse=True)
        return Times(distinct, np.bincount(which.ravel(), self.shares, len(distinct)).astype(float))


def comparison(histogram: CoefHistogram, op: str, constant: float) -> tuple[Estimate, Times]:
    """Return on what share of segments ``x op constant`` holds somewhere, and when.

    Args:
        histogram: of the attribute, with at least one segment.
        op: one of ``< <= > >=``.
        constant: what it is compared with.
    """
    parts = _parts(histogram, op, constant)
    counts = histogram.counts / histogram.total
    unsure = float(counts @ (1.0 - parts.sure))
    any_ = float(counts @ parts.any)
    bounds = max(0.0, any_ - unsure), min(1.0, any_ + unsure)
    return Estimate(any_, *bounds), _times(histogram, op, constant, parts)


def _parts(histogram: CoefHistogram, op: str, constant: float) -> Parts:
    ones = np.ones(len(histogram))
    if op in {"<", "<="}:
        return below(histogram.low, histogram.high, ones, constant, or_at=op == "<=")
    return below(-histogram.high, -histogram.low, ones, -constant, or_at=op == ">=")


def _times(histogram: CoefHistogram, op: str, constant: float, parts: Parts) -> Times:
    """Return when a comparison holds; how much holds all along or nowhere is as of ``parts``."""
    points = spread_over(histogram.low, histogram.high, CELL_POINTS)
    instants = (np.arange(TIME_PARTS) + 0.5) / TIME_PARTS
    values = points @ (instants ** np.arange(histogram.size)[:, None])
    sign = 1.0 if op in {"<", "<="} else -1.0
    is_true = sign * values < sign * constant
    bits = np.uint64(1) << np.arange(TIME_PARTS, dtype=np.uint64)
    masks = np.where(is_true, bits, np.uint64(0)).sum(axis=2, dtype=np.uint64)
    counts = histogram.counts / histogram.total
    crosses = (masks != 0) & (masks != ALL)
    n_crossing = crosses.sum(axis=1)
    # Of a cell that no point crosses, what crosses is rounded to half of a segment's time.
    share = np.where(n_crossing > 0, parts.crossing / np.maximum(n_crossing, 1), 0.0)
    rest = np.where(n_crossing > 0, 0.0, parts.crossing)
    half = np.uint64(2**32 - 1)
    every = [
        (masks[crosses], np.broadcast_to((counts * share)[:, None], masks.shape)[crosses]),
        (np.array([0, ALL, half], np.uint64), np.array([
            counts @ parts.none, counts @ parts.whole, counts @ rest,
        ])),
    ]  # fmt: skip
    return Times.from_masks(
        np.concatenate([m for m, _ in every]), np.concatenate([s for _, s in every])
    )


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
    whole = [other_times.whole for _, other_times in parts]
    surely = max(
        max(0.0, part.low + sum(whole) - whole[place] - (len(parts) - 1))
        for place, (part, _) in enumerate(parts)
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


POINTS = 64
"""Points of a box where its part is not known in closed form."""

INSTANTS = 17
"""Instants at which these are looked at, both ends among them."""


@dataclass(frozen=True, slots=True)
class Parts:
    """Parts of boxes, ``[n]`` each in [0, 1]; ``whole + none + crossing`` is 1.

    Attributes:
        whole: of polynomials on which a comparison holds all along.
        none: on which it holds nowhere.
        sure: of those of either kind that are certain to be; 1 where ``whole`` and ``none`` are
            exact.
    """

    whole: Floats
    none: Floats
    sure: Floats

    @property
    def crossing(self) -> Floats:
        """The part on which it holds in between."""
        return np.maximum(1.0 - self.whole - self.none, 0.0)

    @property
    def any(self) -> Floats:
        """The part on which it holds somewhere."""
        return 1.0 - self.none


def below(
    low: Floats, high: Floats, length: Floats, constant: float, *, or_at: bool = False
) -> Parts:
    """Return the parts of boxes on which ``p(t) < constant``, ``0 <= t < length``.

    Args:
        low: the least coefficients, ascending powers, ``[n, degree + 1]``.
        high: the greatest; the same where a box has no extent.
        length: seconds, ``[n]``.
        constant: what is compared with.
        or_at: whether values that are equal to it count, which matters without an extent.
    """
    if low.shape[1] <= 2:
        low, high = (_as_lines(ends) for ends in (low, high))
        whole = _below_at_both_ends(low, high, length, constant, or_at=or_at)
        none = _below_at_both_ends(-high, -low, length, -constant, or_at=not or_at)
        return Parts(whole, none, np.ones(len(whole)))
    return _by_points(low, high, length, constant, or_at=or_at)


def _as_lines(coefs: Floats) -> Floats:
    return coefs if coefs.shape[1] == 2 else np.concatenate([coefs, np.zeros_like(coefs)], axis=1)


def _below_at_both_ends(
    low: Floats, high: Floats, length: Floats, constant: float, *, or_at: bool
) -> Floats:
    """Return the part of each box of lines that is below a constant from 0 to ``length``.

    For a slope ``v`` it is the part of begins that are below ``min(c, c - v * length)``: piecewise
    linear in ``v``, so the trapezoid rule between its bends is exact.
    """
    first, width = low[:, 0], high[:, 0] - low[:, 0]
    bends = [low[:, 1], high[:, 1], np.zeros(len(low))]
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        bends += [(constant - first) / length, (constant - high[:, 0]) / length]
    slopes = np.stack(bends, axis=1)
    slopes = np.where(np.isfinite(slopes), slopes, low[:, 1:2])
    slopes = np.sort(np.clip(slopes, low[:, 1:2], high[:, 1:2]), axis=1)
    room = np.minimum(constant, constant - slopes * length[:, None]) - first[:, None]
    share = np.where(
        width[:, None] > 0.0,
        np.clip(room / np.where(width > 0.0, width, 1.0)[:, None], 0.0, 1.0),
        np.where(_is_room(room, or_at=or_at), 1.0, 0.0),
    )
    spread = high[:, 1] - low[:, 1]
    area = ((share[:, 1:] + share[:, :-1]) / 2 * np.diff(slopes, axis=1)).sum(axis=1)
    if (width <= 0.0).any():  # without a begin to vary, the share jumps between two bends
        middle = slopes[:, 1:] / 2 + slopes[:, :-1] / 2
        gap = np.minimum(constant, constant - middle * length[:, None]) - first[:, None]
        steps = (np.where(_is_room(gap, or_at=or_at), 1.0, 0.0) * np.diff(slopes, axis=1)).sum(
            axis=1
        )
        area = np.where(width > 0.0, area, steps)
    return np.where(spread > 0.0, area / np.where(spread > 0.0, spread, 1.0), share[:, 0])


def _is_room(room: Floats, *, or_at: bool) -> Mask:
    return room >= 0.0 if or_at else room > 0.0


def _by_points(low: Floats, high: Floats, length: Floats, constant: float, *, or_at: bool) -> Parts:
    """Return the parts by fixed points of each box, and what Bernstein coefficients are sure of."""
    points = spread_over(low, high)
    unit = points * length[:, None, None] ** np.arange(low.shape[1])
    powers = np.linspace(0.0, 1.0, INSTANTS) ** np.arange(low.shape[1])[:, None]
    values = unit @ powers
    under = values <= constant if or_at else values < constant
    # The curve lies between the least and the greatest Bernstein coefficient.
    control = unit @ bernstein(low.shape[1]).T
    sure = (control < constant).all(axis=2) | (control > constant).all(axis=2)
    return Parts(
        under.all(axis=2).mean(axis=1), (~under).all(axis=2).mean(axis=1), sure.mean(axis=1)
    )


def spread_over(low: Floats, high: Floats, n: int = POINTS) -> Floats:
    """Return points that fill each box evenly, always the same ones, ``[boxes, n, degree + 1]``."""
    points: Floats = low[:, None, :] + halton(n, low.shape[1]) * (high - low)[:, None, :]
    return points


@cache
def bernstein(size: int) -> Floats:
    """Return what turns coefficients on [0, 1] into those of Bernstein, ``[size, size]``."""
    degree = size - 1
    matrix = np.zeros((size, size))
    for k, j in product(range(size), repeat=2):
        if j <= k:
            matrix[k, j] = comb(k, j) / comb(degree, j)
    return matrix


_PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37)


@cache
def halton(n: int, dims: int) -> Floats:
    """Return the first points of Halton's sequence but the corner, ``[n, dims]``."""
    points = np.zeros((n, dims))
    for dim in range(dims):
        base = _PRIMES[dim % len(_PRIMES)]
        number, share = np.arange(1, n + 1) + dim // len(_PRIMES) * n, 1.0 / base
        while number.any():
            points[:, dim] += number % base * share
            number, share = number // base, share / base
    return points


# -- pairs of boxes -----------------------------------------------------------------------------


def pairs_below(one: tuple[Floats, Floats], other: tuple[Floats, Floats], length: Floats) -> Parts:
    """Return of pairs of boxes the part of pairs of lines with ``p < q`` on ``[0, length)``.

    The differences of both coefficients are independent, each of a trapezoid; between the bends of
    their densities the integrand is cubic, so four points of Gauss and Legendre are exact.

    Args:
        one: the least and the greatest coefficients of ``p``, ``[n, 2]`` each.
        other: those of ``q``, ``[n, 2]`` each.
        length: of the common range (s), ``[n]``.
    """
    begin = _Difference(one[0][:, 0], one[1][:, 0], other[0][:, 0], other[1][:, 0])
    slope = _Difference(one[0][:, 1], one[1][:, 1], other[0][:, 1], other[1][:, 1])
    whole = _both_below(begin, slope, length)
    none = _both_below(begin.negative, slope.negative, length)
    return Parts(whole, none, np.ones(len(whole)))


_AT, _WEIGHT = np.polynomial.legendre.leggauss(4)


def _both_below(begin: _Difference, slope: _Difference, length: Floats) -> Floats:
    """Return the chance that a difference is below 0 from 0 to ``length``."""
    with np.errstate(divide="ignore", invalid="ignore"):
        crossed = -begin.bends / length[:, None]
    crossed = np.where(np.isfinite(crossed), crossed, slope.bends)
    bends = np.concatenate([slope.bends, crossed, np.zeros((len(length), 1))], axis=1)
    bends = np.sort(np.clip(bends, slope.bends[:, :1], slope.bends[:, 3:]), axis=1)
    half = np.diff(bends, axis=1) / 2
    places = (bends[:, 1:] + bends[:, :-1])[:, :, None] / 2 + half[:, :, None] * _AT
    flat = places.reshape(len(length), -1)
    chance = begin.below(np.minimum(0.0, -flat * length[:, None])) * slope.density(flat)
    chances = (chance.reshape(places.shape) * _WEIGHT).sum(axis=2) * half
    fixed = slope.bends[:, 3] <= slope.bends[:, 0]
    alone = begin.below(np.minimum(0.0, -slope.bends[:, :1] * length[:, None]))[:, 0]
    return np.clip(np.where(fixed, alone, chances.sum(axis=1)), 0.0, 1.0)


@dataclass(frozen=True)
class _Difference:
    """The difference of two numbers that are uniform between two bounds each, ``[n]``."""

    low: Floats
    high: Floats
    other_low: Floats
    other_high: Floats

    @property
    def negative(self) -> _Difference:
        return _Difference(self.other_low, self.other_high, self.low, self.high)

    @property
    def bends(self) -> Floats:
        """Where the density bends, ascending, ``[n, 4]``."""
        ends = [
            self.low - self.other_high,
            self.low - self.other_low,
            self.high - self.other_high,
            self.high - self.other_low,
        ]
        return np.sort(np.stack(ends, axis=1), axis=1)

    @property
    def _widths(self) -> tuple[Floats, Floats]:
        one, other = self.high - self.low, self.other_high - self.other_low
        return np.maximum(one, other)[:, None], np.minimum(one, other)[:, None]

    def density(self, places: Floats) -> Floats:
        """Return the density at places, ``[n, m]``; of a difference that varies."""
        wide, narrow = self._widths
        first, second, third, last = (self.bends[:, k : k + 1] for k in range(4))
        slant = np.where(narrow > 0.0, narrow, 1.0)
        rise, fall = (places - first) / slant, (last - places) / slant
        flat = np.where((places >= second) & (places <= third), 1.0, np.minimum(rise, fall))
        densities: Floats = np.clip(flat, 0.0, 1.0) / np.where(wide > 0.0, wide, 1.0)
        return densities

    def below(self, places: Floats) -> Floats:
        """Return the chance to be less than places, ``[n, m]``."""
        wide, narrow = self._widths
        first = self.bends[:, :1]
        slant = np.where(narrow > 0.0, narrow, 1.0)

        def under(width: Floats, x: Floats) -> Floats:
            """Return the integral of what rises from 0 to 1 over a width, then stays."""
            risen: Floats = np.where(x < width, x * x / (2 * slant), x - width / 2)
            return np.where(x > 0.0, risen, 0.0)

        x = places - first
        area = under(narrow, x) - under(narrow, x - wide)
        varied = area / np.where(wide > 0.0, wide, 1.0)
        return np.where(wide > 0.0, np.clip(varied, 0.0, 1.0), np.where(x > 0.0, 1.0, 0.0))
