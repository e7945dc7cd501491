"""Beta distributions by maximum likelihood, as kernels [Tsamoura16 5 (2)-(6), App. 1].

The paper maximises with Nelder-Mead. Newton's method finds the same maximum: the Beta laws are an
exponential family in (a, b), so the log-likelihood is concave. Kernels cannot call scipy's special
functions, so these are here: recurrences up to ``_LARGE``, and Stirling's series from there.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from eddyline.data.jit import compiled

if TYPE_CHECKING:
    from eddyline.data.arrays import Floats

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
