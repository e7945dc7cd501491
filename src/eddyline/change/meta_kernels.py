"""Two-window tests over the detectors of a bank: Kuiper's distance on sorted windows."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from eddyline.data.jit import compiled

if TYPE_CHECKING:
    from eddyline.data.arrays import Floats, Ints, Mask


@compiled
def take(
    which: Ints,
    items: Floats,
    n_items: Ints,
    newest: Floats,
    baselines: Floats,
    currents: Floats,
    lengths: Ints,
    limits: Floats,
) -> Mask:
    """Take in an item of each detector and return which have a pair of windows too far apart.

    Args:
        which: the detectors ((m,)).
        items: their items ((m,)).
        n_items: items since the start ((n,)).
        newest: ring of the newest items ((n, longest current window)).
        baselines: sorted first items, the pairs side by side ((n, sum of baseline lengths)).
        currents: sorted newest items, the pairs side by side ((n, sum of current lengths)).
        lengths: lengths of baseline and current window of each pair ((pairs, 2)).
        limits: distance that is a change, of each pair ((pairs,)).
    """
    hits = np.zeros(len(which), dtype=np.bool_)
    for j in range(len(which)):
        i = which[j]
        begin_base, begin_now = 0, 0
        for pair in range(len(lengths)):
            n_base, n_now = lengths[pair]
            base = baselines[i, begin_base : begin_base + n_base]
            now = currents[i, begin_now : begin_now + n_now]
            n_before = n_items[i]
            if n_before < n_base:
                _insert(base, n_before, items[j])
            elif n_before < n_base + n_now:
                _insert(now, n_before - n_base, items[j])
            else:
                gone = newest[i, (n_before - n_now) % newest.shape[1]]
                _replace(now, gone, items[j])
            if n_before >= n_base + n_now and kuiper(base, now) > limits[pair]:
                hits[j] = True
            begin_base += n_base
            begin_now += n_now
        newest[i, n_items[i] % newest.shape[1]] = items[j]
        n_items[i] += 1
    return hits


@compiled
def kuiper(first: Floats, second: Floats) -> float:
    """Return Kuiper's distance of two sorted samples: the range of the gap of their laws.

    It is the largest difference of what they give to an interval, which is the Kolmogorov-Smirnov
    distance over intervals of [Kifer04].
    """
    a, b = 0, 0
    low, high = 0.0, 0.0
    n_a, n_b = len(first), len(second)
    while a < n_a or b < n_b:
        is_first = b == n_b or (a < n_a and first[a] <= second[b])
        x = first[a] if is_first else second[b]
        while a < n_a and first[a] == x:
            a += 1
        while b < n_b and second[b] == x:
            b += 1
        gap = a / n_a - b / n_b
        low = min(low, gap)
        high = max(high, gap)
    return high - low


@compiled
def largest_distances(
    n_base: int, n_now: int, n_items: int, n_runs: int, rng: np.random.Generator
) -> Floats:
    """Return the largest distance of each of many streams without a change ((n_runs,)).

    The distance depends on ranks only, so uniform items stand for items of any continuous law.
    """
    largest = np.zeros(n_runs)
    for run in range(n_runs):
        base = np.sort(rng.random(n_base))
        ring = rng.random(n_now)
        now = np.sort(ring)
        for t in range(n_items):
            largest[run] = max(largest[run], kuiper(base, now))
            x = rng.random()
            _replace(now, ring[t % n_now], x)
            ring[t % n_now] = x
    return largest


@compiled
def kuiper_tail(distance: float, n_base: int, n_now: int) -> float:
    """Return the probability of a larger distance of two samples of one law [Stephens70]."""
    n = math.sqrt(n_base * n_now / (n_base + n_now))
    z = (n + 0.155 + 0.24 / n) * distance
    if z < 0.4:
        return 1.0
    tail = 0.0
    for j in range(1, 101):
        square = (j * z) ** 2
        tail += 2.0 * (4.0 * square - 1.0) * math.exp(-2.0 * square)
    return min(tail, 1.0)


@compiled
def _insert(ordered: Floats, n_held: int, x: float) -> None:
    place = np.searchsorted(ordered[:n_held], x)
    for r in range(n_held, place, -1):
        ordered[r] = ordered[r - 1]
    ordered[place] = x


@compiled
def _replace(ordered: Floats, gone: float, x: float) -> None:
    """Put x in the place that keeps the order, and close the gap of one that equals ``gone``."""
    r = np.searchsorted(ordered, gone)
    while r + 1 < len(ordered) and ordered[r + 1] < x:
        ordered[r] = ordered[r + 1]
        r += 1
    while r > 0 and ordered[r - 1] > x:
        ordered[r] = ordered[r - 1]
        r -= 1
    ordered[r] = x
