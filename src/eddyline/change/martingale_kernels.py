"""The martingale test over the detectors of a bank: strangeness, p-values, logarithms.

``recent[i]`` are the items that detector i keeps, in the order of arrival, as a ring once it is
full; ``ordered[i]`` are the same items by size.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from eddyline.data.jit import compiled

if TYPE_CHECKING:
    from eddyline.data.arrays import Floats, Ints, Mask


@compiled
def check(
    which: Ints,
    items: Floats,
    n_seen: Ints,
    recent: Floats,
    ordered: Floats,
    n_items: Ints,
    log_values: Floats,
    exponent: float,
    threshold: float,
    seed: int,
    tie_share: float,
    floor: float,
) -> Mask:
    """Take in an item of each detector and return which martingales exceed the threshold ((m,)).

    Args:
        which: the detectors ((m,)).
        items: their items ((m,)).
        n_seen: items that each detector has taken in ((n,)); numbers the random ties.
        recent: items by arrival ((n, capacity)).
        ordered: items by size ((n, capacity)).
        n_items: items since the start ((n,)).
        log_values: logarithms of the martingales ((n,)).
        exponent: ε of the power martingale.
        threshold: logarithm of the bound.
        seed: of the random shares of ties.
        tie_share: what a tie counts for; nan: a random share.
        floor: least logarithm of a martingale.
    """
    hits = np.zeros(len(which), dtype=np.bool_)
    strange = np.empty(recent.shape[1])
    for j in range(len(which)):
        i = which[j]
        n_held, place = _insert(recent[i], ordered[i], n_items[i], items[j])
        n_items[i] += 1
        _strangeness(ordered[i], n_held, strange)
        mine = strange[place]
        n_more, n_same = 0, 0
        for r in range(n_held):
            if strange[r] > mine:
                n_more += 1
            elif strange[r] == mine:
                n_same += 1
        share = uniform(seed, n_seen[i]) if math.isnan(tie_share) else tie_share
        p = (n_more + share * n_same) / n_held
        log_values[i] += math.log(exponent) + (exponent - 1.0) * math.log(p)
        log_values[i] = max(log_values[i], floor)
        hits[j] = log_values[i] > threshold
    return hits


@compiled
def _insert(recent: Floats, ordered: Floats, n_before: int, x: float) -> tuple[int, int]:
    """Add an item, in place of the oldest if there is no room; return number and rank of x."""
    capacity = len(recent)
    slot = n_before % capacity
    n_held = min(n_before, capacity)
    if n_before >= capacity:
        gone = np.searchsorted(ordered[:n_held], recent[slot])
        for r in range(gone, n_held - 1):
            ordered[r] = ordered[r + 1]
        n_held -= 1
    recent[slot] = x
    place = int(np.searchsorted(ordered[:n_held], x))
    for r in range(n_held, place, -1):
        ordered[r] = ordered[r - 1]
    ordered[place] = x
    return n_held + 1, place


@compiled
def _strangeness(ordered: Floats, n_held: int, strange: Floats) -> None:
    """Write the median distance of every item to all items, itself included."""
    half = (n_held + 1) // 2
    _kth_distance(ordered, n_held, half, strange, 0.0)
    if n_held % 2 == 0:
        _kth_distance(ordered, n_held, half + 1, strange, 0.5)


@compiled
def _kth_distance(ordered: Floats, n_held: int, k: int, out: Floats, share: float) -> None:
    """Write the k-th smallest distance of each item, or mix it into what is there.

    The k nearest of an item stand side by side in the order, and where they begin moves only to
    the right from one item to the next: one pass for all items.
    """
    begin = 0
    for r in range(n_held):
        x = ordered[r]
        while begin + k < n_held and ordered[begin + k] - x < x - ordered[begin]:
            begin += 1
        distance = max(x - ordered[begin], ordered[begin + k - 1] - x)
        out[r] = distance if share == 0.0 else (out[r] + distance) * share


@compiled
def uniform(seed: int, number: int) -> float:
    """Return a number in (0, 1] that depends on both arguments only [Steele14]."""
    mixed = np.uint64(seed) + np.uint64(number) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed = mixed ^ (mixed >> np.uint64(31))
    return (float(mixed >> np.uint64(11)) + 1.0) * 2.0**-53
