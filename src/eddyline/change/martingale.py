"""Martingale test on the strangeness of items [Ho10].

It reports items that are too often stranger than those before. An item's strangeness is its median
distance to all items since the last change; its p-value is the share of items that are at least as
strange, ties counting for a random share. While items are exchangeable the p-values are uniform,
and the product of ε p^(ε-1) is a martingale from 1 on: that it ever exceeds h has a probability of
at most 1/h. It needs no feedback.

Deviations: all strangeness is recomputed with every item, not frozen; the number of items is
capped; the bound 1/h holds up to the cap. With ``floor`` the product is kept from falling below 1,
which finds changes after long stable runs sooner and gives the bound up.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from eddyline.change.machine import KernelBank, insert, replace
from eddyline.data.jit import compiled
from eddyline.options import in_range, is_switch

if TYPE_CHECKING:
    from eddyline.data.arrays import Floats, Ints, Mask

_FIRST_CAPACITY = 64
_GROWING = ("_recent", "_ordered")


@dataclass(frozen=True, slots=True, kw_only=True)
class MartingaleOptions:
    """Options of the martingale test.

    Raises:
        OptionError: a value is out of its range.
    """

    threshold: float = 25.0
    """Value of the martingale that is a change (> 1): reached by chance with a probability of at
    most 1 / threshold. h."""
    exponent: float = 0.9
    """Exponent: the larger, the less a small p-value counts ((0, 1)). ε."""
    max_items: int = 1000
    """Newest items that are compared (≥ 2): time of a check and space grow with them."""
    change_point_back: int = 5
    """Items before the alarm at which the change is taken to have begun (≥ 0; the item just
    checked counts as the first; 0: with the next item)."""
    seed: int = 0
    """Of the random shares of ties (≥ 0)."""
    tie_share: float | None = None
    """Share that a tie counts for ((0, 1]); None: a random one each time, as in the paper."""
    floor: bool = False
    """Whether the martingale is kept at 1 or above."""

    def __post_init__(self) -> None:
        in_range(self, "threshold", 1.0, 1e300)
        in_range(self, "exponent", 1e-6, 1.0 - 1e-9)
        in_range(self, "max_items", 2, 2**20)
        in_range(self, "change_point_back", 0, 2**31)
        in_range(self, "seed", 0, 2**63 - 1)
        if self.tie_share is not None:
            in_range(self, "tie_share", 1e-9, 1.0)
        is_switch(self, "floor")

    def build(self, n: int) -> Martingale:
        """Return n fresh detectors."""
        return Martingale(self, n)


class Martingale(KernelBank):
    """A bank of martingale tests.

    ``_recent[i]`` are the items that detector i keeps, in the order of arrival, as a ring once it
    is full; ``_ordered[i]`` are the same items by size.
    """

    kind = "martingale"
    _growing = _GROWING
    _state = (*_GROWING, "_n_items", "_log_values")

    def __init__(self, options: MartingaleOptions, n: int) -> None:
        super().__init__(n, 0)
        self._max_length = options.max_items
        self._options, self._n_back = options, options.change_point_back
        capacity = min(_FIRST_CAPACITY, options.max_items)
        self._recent = np.zeros((self.n, capacity))
        self._ordered = np.zeros((self.n, capacity))
        self._n_items: Ints = np.zeros(self.n, dtype=np.int64)
        self._log_values = np.zeros(self.n)

    def _use_feedback(self, which: Ints, items: Floats) -> None:
        """Never called: the test needs no feedback."""

    def _check(self, which: Ints, items: Floats) -> Mask:
        options, capacity = self._options, self._recent.shape[1]
        if capacity < options.max_items and self._n_items[which].max() >= capacity:
            self._grow(min(2 * capacity, options.max_items))
        return check(
            which,
            items,
            self.n_seen,
            self._recent,
            self._ordered,
            self._n_items,
            self._log_values,
            options.exponent,
            math.log(options.threshold),
            options.seed,
            math.nan if options.tie_share is None else options.tie_share,
            0.0 if options.floor else -math.inf,
        )


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

    ``n_seen`` numbers the random ties; ``threshold`` and ``floor`` are logarithms; a ``tie_share``
    of nan is a random one.
    """
    hits = np.zeros(len(which), dtype=np.bool_)
    strange = np.empty(recent.shape[1])
    for j in range(len(which)):
        i = which[j]
        slot = n_items[i] % recent.shape[1]
        if n_items[i] < recent.shape[1]:
            place = insert(ordered[i], slot, items[j])
        else:
            place = replace(ordered[i], recent[i, slot], items[j])
        recent[i, slot] = items[j]
        n_items[i] += 1
        n_held = min(n_items[i], recent.shape[1])
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
