"""What ADWIN2 does with its exponential histograms, over the detectors of a bank.

The window of detector i is a list of buckets. Row r of ``sums[i]`` holds buckets of 2**r items,
the oldest in slot 0; ``counts[i, r]`` says how many. The oldest bucket of all is in the last row
that is not empty. ``totals[i]`` are number, sum and sum of squares of all items in the window.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from eddyline.change.compiled import compiled

if TYPE_CHECKING:
    from eddyline.change.protocol import Floats, Ints, Mask


@compiled
def take(
    which: Ints,
    items: Floats,
    n_seen: Ints,
    sums: Floats,
    squares: Floats,
    counts: Ints,
    totals: Floats,
    significance: float,
    min_part: int,
    check_every: int,
    hits: Mask,
) -> int:
    """Insert an item in each window and, where ``check_every`` says so, look for a split.

    Args:
        which: the detectors ((m,)).
        items: their items ((m,)).
        n_seen: items that each detector has taken in ((n,)).
        sums: sums of the buckets ((n, rows, slots); the last row is empty).
        squares: sums of squares of the buckets ((n, rows, slots)).
        counts: buckets of each row ((n, rows)).
        totals: number, sum, sum of squares of the window ((n, 3)).
        significance: δ.
        min_part: items that either side of a split has at least.
        check_every: items between two checks; 0: insert only.
        hits: set for those that found a significant split ((m,)).

    Returns:
        The last row that is in use now.
    """
    last = 0
    for j in range(len(which)):
        i = which[j]
        x = items[j]
        totals[i, 0] += 1.0
        totals[i, 1] += x
        totals[i, 2] += x * x
        row = _insert(sums[i], squares[i], counts[i], x)
        last = max(last, row)
        if check_every > 0 and n_seen[i] % check_every == 0:
            hits[j] = _splits(sums[i], counts[i], totals[i], significance, min_part)
    return last


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
def _insert(sums: Floats, squares: Floats, counts: Ints, x: float) -> int:
    """Add a bucket of one item, merge where a row is too full; return the last row reached."""
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

    The cut is that of [Bifet07 4.2]: normal term with the variance of the window, and the term
    that covers small windows.
    """
    n, total = totals[0], totals[1]
    if n < 2.0 * min_part or n < 2.0:
        return False
    mean = total / n
    variance = max(totals[2] / n - mean * mean, 0.0)
    log_term = math.log(2.0 * math.log(n) / significance)
    normal = 2.0 * variance * log_term
    small = 2.0 / 3.0 * log_term
    n0 = 0.0
    sum0 = 0.0
    last = counts.shape[0] - 1
    while counts[last] == 0:
        last -= 1
    for row in range(last, -1, -1):
        size = float(1 << row)
        for slot in range(counts[row]):
            n0 += size
            sum0 += sums[row, slot]
            n1 = n - n0
            if n1 < min_part or n1 < 1.0:
                return False
            if n0 < min_part:
                continue
            gap = sum0 / n0 - (total - sum0) / n1
            one_over_m = 1.0 / n0 + 1.0 / n1
            # The root is larger than its first term: most splits are told without one.
            if gap * gap > normal * one_over_m:
                cut = math.sqrt(normal * one_over_m) + small * one_over_m
                if abs(gap) > cut:
                    return True
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
