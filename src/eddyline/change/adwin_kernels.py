"""What ADWIN2 does with its exponential histograms, over the detectors of a bank.

The window of detector i is a list of buckets. Row r of ``sums[i]`` holds buckets of 2**r items,
the oldest in slot 0; ``counts[i, r]`` says how many. The oldest bucket of all is in the last row
that is not empty. ``totals[i]`` are number, sum and sum of squares of all items in the window.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from eddyline.data.jit import compiled

if TYPE_CHECKING:
    from eddyline.data.arrays import Floats, Ints, Mask


@compiled
def advance(
    given: Floats,
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
    """Run the state machine for one item of each detector, up to where a change is found.

    Args:
        given: the items; nan for none ((n,)).
        n_seen: items that each detector has taken in ((n,)).
        ready: which detectors have feedback ((n,)).
        sums: sums of the buckets ((n, rows, slots); the last row is empty).
        squares: sums of squares of the buckets ((n, rows, slots)).
        counts: buckets of each row ((n, rows)).
        totals: number, sum, sum of squares of the window ((n, 3)).
        significance: δ.
        min_part: items that either side of a split has at least.
        check_every: items between two checks.
        n_feedback: items in the window before it checks.
        changed: set for those that found a significant split ((n,)).

    Returns:
        How many found one, or -1 if an item is out of range and nothing was taken in; and the last
        row of the histograms that is in use now.
    """
    for i in range(len(given)):
        if given[i] < 0.0 or given[i] > 1.0:
            return -1, 0
    n_hits = 0
    last = 0
    for i in range(len(given)):
        x = given[i]
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
    """Return which of some windows have a significant split ((m,))."""
    hits = np.zeros(len(which), dtype=np.bool_)
    for j in range(len(which)):
        i = which[j]
        hits[j] = _splits(sums[i], counts[i], totals[i], significance, min_part)
    return hits


@compiled
def newest_parts(which: Ints, sums: Floats, counts: Ints, totals: Floats, min_part: int) -> Ints:
    """Return how many items came after the border whose two sides differ most ((m,)).

    The most by a test of two means of one variance: the likeliest place of one change.
    """
    parts = np.zeros(len(which), dtype=np.int64)
    for j in range(len(which)):
        i = which[j]
        n, total = totals[i, 0], totals[i, 1]
        n0, sum0, best = 0.0, 0.0, -1.0
        for row in range(counts.shape[1] - 1, -1, -1):
            for slot in range(counts[i, row]):
                n0 += float(1 << row)
                sum0 += sums[i, row, slot]
                n1 = n - n0
                if n0 < min_part or n1 < min_part:
                    continue
                gap = sum0 * n - total * n0
                size = gap * gap / (n0 * n1)
                # The first of equals; rounding alone does not make a border better.
                if size > best * (1.0 + 1e-9):
                    best = size
                    parts[j] = int(n1)
    return parts


@compiled
def drop_stale(
    which: Ints,
    sums: Floats,
    squares: Floats,
    counts: Ints,
    totals: Floats,
    significance: float,
    min_part: int,
) -> None:
    """Drop the oldest buckets one at a time until no split of a window is significant."""
    for j in range(len(which)):
        i = which[j]
        while True:
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
