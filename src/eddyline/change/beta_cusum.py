"""β-CUSUM: a CUSUM of Beta laws [Tsamoura16 5, App. 1].

It watches shares of rows, in O(1) time and space. Learns the law P0 of an estimated fraction from
its first ``n_feedback`` items. Afterwards it keeps mean and variance of all items, turns them into
a law P1, and while a parameter of P1 is outside the confidence interval of P0's it sums ln P1(x) /
P0(x): S = max(0, S + ln P1 / P0), alarm when S > h.

Deviations. The paper's misprints are corrected: moments take the variance, intervals z·σ, and the
likelihood is maximised. Items are clipped, as counts of small blocks reach 0 and 1. Variances have
a floor of a tenth of the binomial's, without which a constant stream is evidence against itself.
``memory`` and ``min_shift`` are not in the paper and off by default. S is untouched while the law
is inside the intervals: literally.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from eddyline.change.machine import KernelBank, plain, update_rows
from eddyline.data.jit import compiled
from eddyline.errors import OptionError
from eddyline.options import in_range

if TYPE_CHECKING:
    from eddyline.data.arrays import Floats


if TYPE_CHECKING:
    from eddyline.data.arrays import Floats, Ints, Mask

    Constants = tuple[float, float, float, float, float, float]
    Machine = tuple[Ints, Ints, Mask, Floats]
    Learned = tuple[Floats, Floats, Floats]

_LOW_A, _HIGH_A, _LOW_B, _HIGH_B, _A, _B, _LOG_BETA, _MEAN = range(8)
"""Columns of what a detector learned from its feedback."""

_FLOOR = 0.1
"""Least variance of items, as a share of the binomial variance of a block's estimate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BetaCusumOptions:
    """Options of β-CUSUM, which reports a change of a fraction.

    Raises:
        OptionError: a value is out of its range.
    """

    threshold: float = 25.0
    """Sum of log ratios that is a change (> 0). The paper's h."""
    n_feedback: int = 40
    """Items that the law is learned from (≥ 3). The paper's ``|D|``. Fewer leave wide intervals,
    which miss changes; more leave it blind for longer after each change (change_quality_t10)."""
    confidence: float = 0.95
    """Confidence of the intervals around the learned parameters ((0, 1)). 1 - ζ."""
    change_point_back: int = 5
    """Items before the alarm at which the change is taken to have begun (≥ 0; the item just
    checked counts as the first; 0: with the next item). The paper's ν."""
    block_rows: int = 50
    """Rows that an item is a share of (≥ 1): where items are clipped and variances floored."""
    clip: float | None = None
    """Items are kept this far from 0 and 1 ((0, 0.5)); None: half a row of a block."""
    memory: int | None = None
    """Items over which the moments fade (≥ 2); None: all since the last change, as in the paper,
    which makes the delay grow with the stable run before a change."""
    min_shift: float = 0.0
    """Least distance of the mean from the learned one that counts ([0, 1]): blocks of thousands of
    rows show shifts too small to matter."""

    def __post_init__(self) -> None:
        in_range(self, "threshold", 1e-9, 1e9)
        in_range(self, "n_feedback", 3, 2**20)
        in_range(self, "confidence", 1e-6, 1.0 - 1e-12)
        in_range(self, "change_point_back", 0, 2**31)
        in_range(self, "block_rows", 1, 2**53)
        in_range(self, "min_shift", 0.0, 1.0)
        if self.clip is not None:
            in_range(self, "clip", 1e-15, 0.5 - 1e-9)
        elif self.block_rows == 1:
            msg = "option 'clip' must be given for blocks of one row, whose items are 0 and 1"
            raise OptionError(msg, name="clip", value=None)
        if self.memory is not None:
            in_range(self, "memory", 2, 2**53)

    def build(self, n: int) -> BetaCusum:
        """Return n fresh detectors."""
        return BetaCusum(self, n)


class BetaCusum(KernelBank):
    """A bank of β-CUSUM detectors."""

    kind = "beta_cusum"
    _low, _high = 0.0, 1.0
    _state = ("_model", "_moments", "_sums")

    def __init__(self, options: BetaCusumOptions, n: int) -> None:
        super().__init__(n, options.n_feedback)
        self._options, self._n_back = options, options.change_point_back
        self._constants: Constants = (
            0.5 / options.block_rows if options.clip is None else options.clip,
            _FLOOR / (options.block_rows + 1),
            float("inf") if options.memory is None else float(options.memory),
            NormalDist().inv_cdf(0.5 + options.confidence / 2.0),
            float(options.min_shift),
            float(options.threshold),
        )
        """Clip, least variance as a share of m(1 - m), memory, z-score, least shift, threshold."""
        self._model = np.zeros((self.n, 8))
        self._moments = np.zeros((self.n, 3))  # number of items, mean, sum of squared deviations
        self._sums = np.zeros(self.n)

    def advance(self, items: Floats) -> tuple[int, Mask]:
        """Take in rows of items in one kernel; see ``protocol.advance``."""
        rows = plain(np.asarray(items, dtype=np.float64))
        changed = np.zeros(self.n, dtype=np.bool_)
        machine = self.n_seen, self._started, self._ready, self._buffer
        n_taken = advance(rows, machine, self._learned, self._constants, changed)
        if n_taken < 0:
            return update_rows(super(), rows)
        if changed.any():
            self._react(np.flatnonzero(changed))
        return n_taken, changed

    def update(self, values: Floats) -> Mask:
        """Take in one item for each detector; see ``MachineBank.update``."""
        row = np.asarray(values, dtype=np.float64)
        return self.advance(row[None])[1] if row.shape == (self.n,) else super().update(row)

    @property
    def _learned(self) -> Learned:
        return self._model, self._moments, self._sums

    def _use_feedback(self, which: Ints, items: Floats) -> None:
        for i, feedback in zip(which, items, strict=True):
            learn(plain(feedback), i, self._learned, self._constants)

    def _check(self, which: Ints, items: Floats) -> Mask:
        hits = (
            check(x, i, self._learned, self._constants) for i, x in zip(which, items, strict=True)
        )
        return np.fromiter(hits, dtype=np.bool_, count=len(which))


@compiled
def advance(
    items: Floats, machine: Machine, learned: Learned, constants: Constants, changed: Mask
) -> int:
    """Run the state machine for rows of items up to the first row that shows a change.

    Args:
        items: one row per instant, one column per detector; nan: none ((T, n)).
        machine: items seen, items before the last start, who has feedback, what was collected.
        learned: see ``learn``.
        constants: see ``BetaCusum``.
        changed: is set for the detectors that found a change ((n,)).

    Returns:
        How many rows were taken in; -1 if an item is out of range, and nothing was taken in.
    """
    n_seen, started, ready, buffer = machine
    n_rows, n = len(items), items.shape[1]
    is_refused = False
    for t in range(n_rows):
        for i in range(n):
            is_refused |= items[t, i] < 0.0 or items[t, i] > 1.0
    if is_refused:
        return -1
    for t in range(n_rows):
        has_changed = False
        for i in range(n):
            x = items[t, i]
            if math.isnan(x):
                continue
            n_seen[i] += 1
            if ready[i]:
                changed[i] = check(x, i, learned, constants)
                has_changed |= changed[i]
                continue
            place = n_seen[i] - started[i] - 1
            buffer[i, place] = x
            if place == buffer.shape[1] - 1:
                learn(buffer[i], i, learned, constants)
                ready[i] = True
                buffer[i] = 0.0
        if has_changed:
            return t + 1
    return n_rows


@compiled
def learn(feedback: Floats, i: int, learned: Learned, constants: Constants) -> None:
    """Learn the law of detector i from its feedback.

    Args:
        feedback: its first items.
        i: the detector.
        learned: the laws ((n, 8), by the columns above); number of items, mean and sum of squared
            deviations ((n, 3)); sums of log ratios ((n,)).
        constants: see ``BetaCusum``.
    """
    model, moments, sums = learned
    clip, min_variance, memory, z, _, _ = constants
    kept = np.minimum(np.maximum(feedback, clip), 1.0 - clip)
    mean, n = kept.mean(), len(kept)
    a, b, sd_a, sd_b = fit_one(kept, min_variance * mean * (1.0 - mean))
    model[i, _LOW_A], model[i, _HIGH_A] = a - z * sd_a, a + z * sd_a
    model[i, _LOW_B], model[i, _HIGH_B] = b - z * sd_b, b + z * sd_b
    model[i, _A], model[i, _B], model[i, _LOG_BETA] = a, b, log_beta(a, b)
    model[i, _MEAN] = mean
    moments[i, 0], moments[i, 1] = min(float(n), memory), mean
    moments[i, 2] = moments[i, 0] * ((kept - mean) ** 2).mean()
    sums[i] = 0.0


@compiled
def check(item: float, i: int, learned: Learned, constants: Constants) -> bool:
    """Take an item of detector i into its moments [Welford] and its sum; return whether it alarms.

    When ``memory`` is full, old items fade: with W items, each is worth 1 - 1/W of what it was one
    item before.
    """
    model, moments, sums = learned
    clip, min_variance, memory, _, min_shift, threshold = constants
    x = min(max(item, clip), 1.0 - clip)
    count, mean, spread = moments[i]
    if count >= memory:
        spread *= 1.0 - 1.0 / memory
    count = min(count + 1.0, memory)
    off = x - mean
    mean += off / count
    spread += off * (x - mean)
    moments[i, 0], moments[i, 1], moments[i, 2] = count, mean, spread
    room = mean * (1.0 - mean)
    total = room / max(spread / (count - 1.0), min_variance * room) - 1.0
    a, b = total * mean, total - total * mean
    law = model[i]
    is_inside = law[_LOW_A] <= a <= law[_HIGH_A] and law[_LOW_B] <= b <= law[_HIGH_B]
    if not is_inside and total > 0.0 and abs(mean - law[_MEAN]) >= min_shift:
        ratio = (a - law[_A]) * math.log(x) + (b - law[_B]) * math.log1p(-x)
        sums[i] = max(0.0, sums[i] + ratio + law[_LOG_BETA] - log_beta(a, b))
    return bool(sums[i] > threshold)


# -- Beta distributions by maximum likelihood ------------------------------------------------------
# Beta distributions by maximum likelihood, as kernels [Tsamoura16 5 (2)-(6), App. 1].
#
# The paper maximises with Nelder-Mead. Newton's method finds the same maximum: the Beta laws are an
# exponential family in (a, b), so the log-likelihood is concave. Kernels cannot call scipy's
# special
# functions, so these are here: recurrences up to ``_LARGE``, and Stirling's series from there.


_MAX_ROUNDS = 100
_MAX_HALVINGS = 40
_CLOSE = 1e-9
"""Relative step at which a parameter counts as found: the next step is about its square."""
_LEAST_TOTAL = 1e-2
"""Smallest a + b to start from: samples that spread wider than any Beta law."""
_LARGE = 12.0
"""From here on, the terms of the series that are left out are less than rounding errors."""
_HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)


@compiled
def fit_one(items: Floats, min_variance: float) -> tuple[float, float, float, float]:
    """Fit a Beta law to one sample; return a, b and their standard errors [(5), (6)]."""
    mean, variance = items.mean(), 0.0
    log_x, log_rest = 0.0, 0.0
    for x in items:
        variance += (x - mean) ** 2
        log_x += math.log(x)
        log_rest += math.log1p(-x)
    n = len(items)
    variance /= n - 1.0
    a, b = beta_of_moments(mean, max(variance, min_variance))
    if variance > min_variance:
        a, b = _maximum(log_x / n, log_rest / n, a, b)
    rest_a, rest_b, _, det = _information(a, b)
    return a, b, math.sqrt(rest_b / det / n), math.sqrt(rest_a / det / n)


@compiled
def beta_of_moments(mean: float, variance: float) -> tuple[float, float]:
    """Return a and b of the Beta law with these moments.

    The paper prints the standard deviation where the variance belongs.
    """
    total = max(mean * (1.0 - mean) / variance - 1.0, _LEAST_TOTAL)
    return total * mean, total * (1.0 - mean)


@compiled
def log_likelihood(log_x: float, log_rest: float, a: float, b: float) -> float:
    """Return the mean log-likelihood of a sample by its means of ln x and ln(1 - x) [(2)]."""
    return (a - 1.0) * log_x + (b - 1.0) * log_rest - log_beta(a, b)


@compiled
def _information(a: float, b: float) -> tuple[float, float, float, float]:
    """Return the information of one item: both diagonal entries, ψ1(a + b), the determinant."""
    tri_a, tri_b, tri_sum = trigamma(a), trigamma(b), trigamma(a + b)
    det = tri_a * tri_b - tri_sum * (tri_a + tri_b)
    return tri_a - tri_sum, tri_b - tri_sum, tri_sum, det


@compiled
def _maximum(log_x: float, log_rest: float, a: float, b: float) -> tuple[float, float]:
    """Climb from (a, b) to the largest likelihood."""
    for _ in range(_MAX_ROUNDS):
        common = digamma(a + b)
        slope_a, slope_b = log_x - digamma(a) + common, log_rest - digamma(b) + common
        curve_a, curve_b, cross, det = _information(a, b)
        step_a = (curve_b * slope_a + cross * slope_b) / det
        step_b = (curve_a * slope_b + cross * slope_a) / det
        size = _step_size(log_x, log_rest, a, b, step_a, step_b)
        is_there = size == 0.0 or (abs(step_a) <= _CLOSE * a and abs(step_b) <= _CLOSE * b)
        a, b = a + size * step_a, b + size * step_b
        if is_there:
            break
    return a, b


@compiled
def _step_size(
    log_x: float, log_rest: float, a: float, b: float, step_a: float, step_b: float
) -> float:
    """Return the share of a Newton step to take: inside the domain, and not downhill."""
    size = min(1.0, 0.9 / max(-step_a / a, -step_b / b, 1e-300))
    before = log_likelihood(log_x, log_rest, a, b)
    # Near the maximum, rounding of the likelihood is all that differs.
    slack = 1e-13 * (1.0 + abs(before))
    for _ in range(_MAX_HALVINGS):
        if log_likelihood(log_x, log_rest, a + size * step_a, b + size * step_b) >= before - slack:
            return size
        size /= 2.0
    return 0.0


@compiled
def log_beta(a: float, b: float) -> float:
    """Return ln B(a, b) (a, b > 0); large parameters do not cancel each other."""
    value = 0.0
    while a < _LARGE:
        value += math.log((a + b) / a)
        a += 1.0
    while b < _LARGE:
        value += math.log((a + b) / b)
        b += 1.0
    less, more = min(a, b), max(a, b)
    value += (less - 0.5) * math.log(less / (less + more)) - more * math.log1p(less / more)
    return value + _HALF_LOG_2PI - 0.5 * math.log(more) + _rest(a) + _rest(b) - _rest(a + b)


@compiled
def _rest(x: float) -> float:
    """Return what Stirling's formula leaves of ln Γ(x)."""
    r = 1.0 / x
    s = r * r
    return r * (1 / 12 - s * (1 / 360 - s * (1 / 1260 - s * (1 / 1680 - s * (1 / 1188)))))


@compiled
def digamma(x: float) -> float:
    """Return the derivative of ln Γ (x > 0)."""
    value = 0.0
    while x < _LARGE:
        value -= 1.0 / x
        x += 1.0
    r = 1.0 / x
    s = r * r
    series = s * (1 / 12 - s * (1 / 120 - s * (1 / 252 - s * (1 / 240 - s * (1 / 132)))))
    return value + math.log(x) - 0.5 * r - series


@compiled
def trigamma(x: float) -> float:
    """Return the second derivative of ln Γ (x > 0)."""
    value = 0.0
    while x < _LARGE:
        value += 1.0 / (x * x)
        x += 1.0
    r = 1.0 / x
    s = r * r
    return (
        value
        + r
        + 0.5 * s
        + r * s * (1 / 6 - s * (1 / 30 - s * (1 / 42 - s * (1 / 30 - s * (5 / 66)))))
    )
