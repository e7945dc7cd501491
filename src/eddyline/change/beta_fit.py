"""Beta distributions by maximum likelihood, many at once [Tsamoura16 5 (2)-(6), App. 1].

The paper maximises with Nelder-Mead. Newton's method finds the same maximum: the Beta laws are an
exponential family in (a, b), so the log-likelihood is concave. scipy.special is all this needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.special import betaln, digamma, polygamma

if TYPE_CHECKING:
    from eddyline.data.arrays import Floats

_MAX_ROUNDS = 100
_MAX_HALVINGS = 40
_CLOSE = 1e-12
"""Relative step at which a parameter counts as found."""
_LEAST_TOTAL = 1e-2
"""Smallest a + b to start from: samples that spread wider than any Beta law."""


class BetaFit(NamedTuple):
    """Fitted laws, and how well their parameters are known."""

    a: Floats
    b: Floats
    sd_a: Floats
    """Standard error of a: root of the diagonal of the inverse Fisher information."""
    sd_b: Floats
    """Standard error of b."""


def fit_beta(items: Floats, min_variance: Floats) -> BetaFit:
    """Fit a Beta law to each row of samples, strictly between 0 and 1 ((m, D), D ≥ 2).

    A row whose variance is below its floor ((m,)) gets the law of its mean and that variance, as
    its likelihood grows without end.
    """
    mean, variance = items.mean(axis=1), items.var(axis=1, ddof=1)
    a, b = beta_of_moments(mean, np.maximum(variance, min_variance))
    rows = np.flatnonzero(variance > min_variance)
    if rows.size:
        log_x, log_rest = np.log(items[rows]).mean(axis=1), np.log1p(-items[rows]).mean(axis=1)
        a[rows], b[rows] = _maximum(log_x, log_rest, a[rows], b[rows])
    return BetaFit(a, b, *standard_errors(a, b, items.shape[1]))


def beta_of_moments(mean: Floats, variance: Floats) -> tuple[Floats, Floats]:
    """Return a and b of the Beta laws with these moments.

    The paper prints the standard deviation where the variance belongs.
    """
    total = np.maximum(mean * (1.0 - mean) / variance - 1.0, _LEAST_TOTAL)
    return total * mean, total * (1.0 - mean)


def log_likelihood(log_x: Floats, log_rest: Floats, a: Floats, b: Floats) -> Floats:
    """Return the mean log-likelihood of samples by their means of ln x and ln(1 - x) [(2)]."""
    value: Floats = (a - 1.0) * log_x + (b - 1.0) * log_rest - betaln(a, b)
    return value


def standard_errors(a: Floats, b: Floats, n_items: int) -> tuple[Floats, Floats]:
    """Return the standard errors of a and b when fitted to so many items [(5), (6)]."""
    rest_a, rest_b, _, det = _information(a, b)
    return np.sqrt(rest_b / det / n_items), np.sqrt(rest_a / det / n_items)


def _information(a: Floats, b: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """Return the information of one item: both diagonal entries, ψ1(a + b), the determinant."""
    tri_a, tri_b, tri_sum = polygamma(1, a), polygamma(1, b), polygamma(1, a + b)
    det: Floats = tri_a * tri_b - tri_sum * (tri_a + tri_b)
    return tri_a - tri_sum, tri_b - tri_sum, tri_sum, det


def _maximum(log_x: Floats, log_rest: Floats, a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """Climb from (a, b); rows that have arrived stand still, so rows do not affect each other."""
    a, b = a.copy(), b.copy()
    rows = np.arange(len(a))
    for _ in range(_MAX_ROUNDS):
        at_a, at_b, one, other = a[rows], b[rows], log_x[rows], log_rest[rows]
        common = digamma(at_a + at_b)
        slope_a, slope_b = one - digamma(at_a) + common, other - digamma(at_b) + common
        curve_a, curve_b, cross, det = _information(at_a, at_b)
        step_a = (curve_b * slope_a + cross * slope_b) / det
        step_b = (curve_a * slope_b + cross * slope_a) / det
        size = _step_size(one, other, at_a, at_b, step_a, step_b)
        a[rows], b[rows] = at_a + size * step_a, at_b + size * step_b
        moved = (np.abs(step_a) > _CLOSE * at_a) | (np.abs(step_b) > _CLOSE * at_b)
        rows = rows[moved & (size > 0.0)]
        if not rows.size:
            break
    return a, b


def _step_size(
    log_x: Floats, log_rest: Floats, a: Floats, b: Floats, step_a: Floats, step_b: Floats
) -> Floats:
    """Return the share of a Newton step to take: inside the domain, and not downhill."""
    towards_zero = np.maximum(np.maximum(-step_a / a, -step_b / b), 1e-300)
    size = np.minimum(1.0, 0.9 / towards_zero)
    before = log_likelihood(log_x, log_rest, a, b)
    # Near the maximum, rounding of the likelihood is all that differs.
    slack = 1e-13 * (1.0 + np.abs(before))
    for _ in range(_MAX_HALVINGS):
        after = log_likelihood(log_x, log_rest, a + size * step_a, b + size * step_b)
        worse = after < before - slack
        if not worse.any():
            return size
        size = np.where(worse, size / 2.0, size)
    return np.where(worse, 0.0, size)
