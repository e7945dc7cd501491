"""Compiled: sums of the polynomials that are there between two instants."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from eddyline.data.jit import compiled
from eddyline.models.segments import MICROS

if TYPE_CHECKING:
    from eddyline.data.arrays import Floats, Indices, Ints


@compiled
def add_up(
    coefs: Floats,
    origin: Ints,
    errors: Floats,
    first: Indices,
    last: Indices,
    lo: Ints,
    hi: Ints,
    sums: Floats,
    far: Floats,
    size: Floats,
    count: Ints,
) -> None:
    """Add segments, in their order, to the ranges from ``first`` to before ``last`` of each.

    Args:
        coefs: of segments, (segments, degree + 1).
        origin: of segments (µs).
        errors: of segments.
        first: the first range that each segment covers.
        last: the range behind the last one.
        lo: where ranges begin (µs).
        hi: where they end.
        sums: of polynomials whose origin is where the range begins, (ranges, degree + 1).
        far: of errors, of each range.
        size: of the greatest sizes that terms have on the range.
        count: how many segments there are.
    """
    width = coefs.shape[1]
    moved = np.empty(width)
    for row in range(first.size):
        for at in range(first[row], last[row]):
            by = np.float64(lo[at] - origin[row]) * MICROS
            for power in range(width):
                moved[power] = coefs[row, power]
            if by != 0.0:
                for low in range(width - 1):
                    for power in range(width - 2, low - 1, -1):
                        moved[power] += by * moved[power + 1]
            reach, most = abs(by) + np.float64(hi[at] - lo[at]) * MICROS, 0.0
            for power in range(width - 1, -1, -1):
                sums[at, power] += moved[power]
                most = most * reach + abs(coefs[row, power])
            size[at] += most
            far[at] += errors[row]
            count[at] += 1
