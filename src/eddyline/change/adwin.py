"""ADWIN2: an adaptive window over the items [Bifet07 4].

The window is cut where the means of its two parts differ. The window is kept as an exponential
histogram, in space and time that grow with its logarithm. It is not amnesic: after a change the
window keeps the items after the split whose sides differ most. The paper drops the oldest buckets
one at a time until no split is significant. That leaves hundreds of older items. They make the same
change significant again and hide the next one.

The guarantee of the paper is for a conservative cut; the cut here, like everyone's, uses the
window's variance, and false alarms are rarer than δ says.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from eddyline.change.machine import KernelBank, plain
from eddyline.data.jit import compiled
from eddyline.options import in_range, is_one_of

if TYPE_CHECKING:
    from eddyline.data.arrays import Floats, Ints, Mask

_FIRST_ROWS = 8
"""Rows of a fresh histogram: with five buckets a row, windows of up to some hundreds of items."""

CHANGE_POINTS = ("window", "split")
"""Ways to tell the beginning of a change."""

_GROWING = ("_bucket_sums", "_squares", "_counts")


@dataclass(frozen=True, slots=True, kw_only=True)
class AdwinOptions:
    """Options of ADWIN2: the conditions of a cut of its window.

    Raises:
        OptionError: a value is out of its range.
    """

    significance: float = 0.01
    """Probability of a false alarm per item that the cut allows ((0, 1)). δ."""
    buckets_per_row: int = 5
    """Buckets of one size before two of them are merged (≥ 2): more cut more precisely and cost
    more. L."""
    n_feedback: int = 10
    """Items in the window before it checks (≥ 1)."""
    check_every: int = 1
    """Items between two checks (≥ 1); river's default is 32."""
    min_part: int = 1
    """Items that either part of a split has at least (≥ 1); river's default is 5."""

    change_point: str = "split"
    """Date of a change. ``split``: the border whose two sides differ most, where the window is cut.
    ``window``: the oldest item that the cut of the paper would leave; it lies far before the
    change, because that cut drops one bucket at a time and stops early."""

    def __post_init__(self) -> None:
        in_range(self, "significance", 1e-300, 1.0 - 1e-12)
        in_range(self, "buckets_per_row", 2, 2**16)
        in_range(self, "n_feedback", 1, 2**31)
        in_range(self, "check_every", 1, 2**31)
        in_range(self, "min_part", 1, 2**31)
        is_one_of(self, "change_point", CHANGE_POINTS)

    def build(self, n: int) -> Adwin:
        """Return n fresh detectors."""
        return Adwin(self, n)


class Adwin(KernelBank):
    """A bank of ADWIN2 detectors.

    The window of detector i is a list of buckets. Row r of ``_bucket_sums[i]`` holds buckets of
    2**r items, the oldest in slot 0; ``_counts[i, r]`` says how many. The oldest bucket of all is
    in the last row that is not empty. ``_totals[i]`` are number, sum and sum of squares of all
    items in the window.
    """

    kind = "adwin"
    is_amnesic = False
    is_sequential = True
    _low, _high = 0.0, 1.0
    _growing = _GROWING
    _state = (*_GROWING, "_totals")

    def __init__(self, options: AdwinOptions, n: int) -> None:
        super().__init__(n, options.n_feedback)
        self._options = options
        self._bucket_sums = np.zeros((self.n, _FIRST_ROWS, options.buckets_per_row + 1))
        self._squares = np.zeros_like(self._bucket_sums)
        self._counts: Ints = np.zeros((self.n, _FIRST_ROWS), dtype=np.int64)
        self._totals = np.zeros((self.n, 3))

    def update(self, values: Floats) -> Mask:
        """Make the transitions of ``MachineBank.update`` in one kernel.

        At 64 detectors, what NumPy needs to sort out who gets an item is more than the windows do.
        """
        items = plain(np.asarray(values, dtype=np.float64))
        if items.shape != (self.n,):
            return super().update(items)
        options = self._options
        changed = np.zeros(self.n, dtype=np.bool_)
        n_found, last_row = advance(
            items,
            self.n_seen,
            self._ready,
            *self._windows,
            options.significance,
            options.min_part,
            options.check_every,
            options.n_feedback,
            changed,
        )
        if n_found < 0:
            return super().update(items)
        self._make_room(last_row)
        if n_found > 0:
            self._react(np.flatnonzero(changed))
        return changed

    def _use_feedback(self, which: Ints, items: Floats) -> None:
        self._take(which, np.ascontiguousarray(items[:, 0]))
        self._ready[which] = self._totals[which, 0] >= self.n_feedback

    def _check(self, which: Ints, items: Floats) -> Mask:
        self._take(which, items)
        options = self._options
        hits: Mask = find_splits(
            which,
            self._bucket_sums,
            self._counts,
            self._totals,
            options.significance,
            options.min_part,
        )
        hits[self.n_seen[which] % options.check_every != 0] = False
        return hits

    @property
    def _windows(self) -> tuple[Floats, Floats, Ints, Floats]:
        return self._bucket_sums, self._squares, self._counts, self._totals

    def _take(self, which: Ints, items: Floats) -> None:
        self._make_room(take(which, items, *self._windows))

    def _make_room(self, last_row: int) -> None:
        """Keep the last row empty, so that the next item finds room for all its merges."""
        if last_row == self._counts.shape[1] - 1:
            self._grow(2 * self._counts.shape[1])

    def _adjust(self, which: Ints) -> None:
        options = self._options
        cut(which, *self._windows, options.significance, options.min_part, True)
        self._ready[which] = self._totals[which, 0] >= self.n_feedback

    def _change_point(self, which: Ints) -> Ints:
        # The oldest item that a cut would leave; the cut itself is the next state's.
        options, totals = self._options, self._totals[which]
        copies = (self._bucket_sums[which], self._squares[which], self._counts[which], totals)
        at_split = options.change_point == "split"
        cut(np.arange(len(which)), *copies, options.significance, options.min_part, at_split)
        return self.n_seen[which] - totals[:, 0].astype(np.int64)


@compiled
def advance(
    items: Floats,
    n_seen: Ints,
    ready: Mask,
    sums: Floats,
    squares: Floats,
    counts: Ints,
    totals: Floats,
    significance: float,
    min_part: int,
    check_every: int,
    n_feedback: int,
    changed: Mask,
) -> tuple[int, int]:
    """Run the state machine for one item of each detector ((n,); nan: none), up to a change.

    The arrays are those of the bank (``sums`` and ``squares``: (n, rows, slots), the last row
    empty); ``changed`` is set for the detectors that found a significant split.

    Returns:
        How many found one, or -1 if an item is out of range and nothing was taken in; and the last
        row of the histograms that is in use now.
    """
    for i in range(len(items)):
        if items[i] < 0.0 or items[i] > 1.0:
            return -1, 0
    n_hits = 0
    last = 0
    for i in range(len(items)):
        x = items[i]
        if math.isnan(x):
            continue
        n_seen[i] += 1
        last = max(last, _take(sums[i], squares[i], counts[i], totals[i], x))
        if not ready[i]:
            ready[i] = totals[i, 0] >= n_feedback
        elif n_seen[i] % check_every == 0:
            changed[i] = _splits(sums[i], counts[i], totals[i], significance, min_part)
            n_hits += changed[i]
    return n_hits, last


@compiled
def take(
    which: Ints, items: Floats, sums: Floats, squares: Floats, counts: Ints, totals: Floats
) -> int:
    """Insert an item in the window of some detectors; return the last row in use ((m,))."""
    last = 0
    for j in range(len(which)):
        i = which[j]
        last = max(last, _take(sums[i], squares[i], counts[i], totals[i], items[j]))
    return last


@compiled
def find_splits(
    which: Ints, sums: Floats, counts: Ints, totals: Floats, significance: float, min_part: int
) -> Mask:
    """Return a mask of the windows that have a significant split ((m,))."""
    hits = np.zeros(len(which), dtype=np.bool_)
    for j in range(len(which)):
        i = which[j]
        hits[j] = _splits(sums[i], counts[i], totals[i], significance, min_part)
    return hits


@compiled
def cut(
    which: Ints,
    sums: Floats,
    squares: Floats,
    counts: Ints,
    totals: Floats,
    significance: float,
    min_part: int,
    at_split: bool,
) -> None:
    """Cut windows until no split is significant.

    At the border whose sides differ most or, as in the paper, by the oldest bucket each time.
    """
    for j in range(len(which)):
        i = which[j]
        while True:
            part = totals[i, 0] - 0.5
            if at_split:
                part = _newest_part(sums[i], counts[i], totals[i], min_part)
                if part == 0.0:
                    break
            while totals[i, 0] > part:
                _drop_oldest(sums[i], squares[i], counts[i], totals[i])
            if not _splits(sums[i], counts[i], totals[i], significance, min_part):
                break


@compiled
def _take(sums: Floats, squares: Floats, counts: Ints, totals: Floats, x: float) -> int:
    """Add a bucket of one item, merge where a row is too full; return the last row reached."""
    totals[0] += 1.0
    totals[1] += x
    totals[2] += x * x
    n_slots = sums.shape[1]
    total, square, row = x, x * x, 0
    while True:
        sums[row, counts[row]] = total
        squares[row, counts[row]] = square
        counts[row] += 1
        if counts[row] < n_slots:
            break
        total = sums[row, 0] + sums[row, 1]
        square = squares[row, 0] + squares[row, 1]
        for slot in range(2, n_slots):
            sums[row, slot - 2] = sums[row, slot]
            squares[row, slot - 2] = squares[row, slot]
        counts[row] -= 2
        row += 1
    return row


@compiled
def _splits(sums: Floats, counts: Ints, totals: Floats, significance: float, min_part: int) -> bool:
    """Return whether the means of two parts of the window differ significantly.

    The cut is that of [Bifet07 4.2]: sqrt(2/m · variance · t) + 2/(3m) · t, with t = ln(2 ln n / δ)
    and 1/m = 1/n0 + 1/n1. Both sides are multiplied by n0 · n1, which leaves no division.
    """
    n, total = totals[0], totals[1]
    least = max(float(min_part), 1.0)
    if n < 2.0 * least:
        return False
    mean = total / n
    variance = max(totals[2] / n - mean * mean, 0.0)
    log_term = math.log(2.0 * math.log(n) / significance)
    normal = 2.0 * variance * log_term * n
    small = 2.0 / 3.0 * log_term * n
    n0 = 0.0
    sum0 = 0.0
    row = counts.shape[0] - 1
    while counts[row] == 0:
        row -= 1
    while row >= 0:
        size = float(1 << row)
        for slot in range(counts[row]):
            n0 += size
            sum0 += sums[row, slot]
            n1 = n - n0
            if n1 < least:
                return False
            over = abs(sum0 * n - total * n0) - small
            if over > 0.0 and over * over > normal * n0 * n1 and n0 >= least:
                return True
        row -= 1
    return False


@compiled
def _newest_part(sums: Floats, counts: Ints, totals: Floats, min_part: int) -> float:
    """Return the number of items after the border whose two sides differ most; 0 without a border.

    The measure is a test of two means with one variance. It finds the likeliest place of a change.
    """
    n, total = totals[0], totals[1]
    n0, sum0, best, part = 0.0, 0.0, 0.0, 0.0
    for row in range(counts.shape[0] - 1, -1, -1):
        for slot in range(counts[row]):
            n0 += float(1 << row)
            sum0 += sums[row, slot]
            n1 = n - n0
            if n0 < min_part or n1 < min_part:
                continue
            gap = sum0 * n - total * n0
            size = gap * gap / (n0 * n1)
            # The first of equal borders wins; rounding alone makes no border better.
            if size > best * (1.0 + 1e-9):
                best, part = size, n1
    return part


@compiled
def _drop_oldest(sums: Floats, squares: Floats, counts: Ints, totals: Floats) -> None:
    row = counts.shape[0] - 1
    while counts[row] == 0:
        row -= 1
    totals[0] -= float(1 << row)
    totals[1] -= sums[row, 0]
    totals[2] -= squares[row, 0]
    for slot in range(1, counts[row]):
        sums[row, slot - 1] = sums[row, slot]
        squares[row, slot - 1] = squares[row, slot]
    counts[row] -= 1
    sums[row, counts[row]] = 0.0
    squares[row, counts[row]] = 0.0
