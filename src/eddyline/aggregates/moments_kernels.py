"""Compiled: means and sums of squared deviations over ranges that follow each other.

Never by differences: moments up to the right end of what was seen and moments from there on are
combined ("two stacks"), so what left a range leaves no trace. The combination is that of Chan,
Golub and LeVeque (Updating Formulae and a Pairwise Algorithm for Computing Sample Variances, 1979).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from eddyline.data.jit import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray


@compiled
def moments(
    cells: NDArray[np.float64], lo: NDArray[np.int64], hi: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return the moments of ranges of cells ((cells, 3): number, mean, sum of squares)."""
    found, ahead = np.empty((lo.size, 3)), np.empty_like(cells)
    middle, right = np.int64(0), np.int64(0)
    n, mean, square = 0.0, 0.0, 0.0
    for each in range(lo.size):
        start, stop = lo[each], hi[each]
        if start >= middle:
            middle = right = stop
            n, mean, square = 0.0, 0.0, 0.0
            for place in range(stop - 1, start - 1, -1):
                n, mean, square = joined(cells[place], n, mean, square)
                ahead[place, 0], ahead[place, 1], ahead[place, 2] = n, mean, square
            n, mean, square = 0.0, 0.0, 0.0
        while right < stop:
            n, mean, square = joined(cells[right], n, mean, square)
            right += 1
        whole = n, mean, square
        if start < middle:
            whole = joined(ahead[start], n, mean, square)
        found[each, 0], found[each, 1], found[each, 2] = whole
    return found


@compiled
def joined(
    cell: NDArray[np.float64], n: float, mean: float, square: float
) -> tuple[float, float, float]:
    """Return the moments of a cell and others together."""
    if cell[0] == 0:
        return n, mean, square
    if n == 0:
        return cell[0], cell[1], cell[2]
    total = n + cell[0]
    delta = cell[1] - mean
    share = cell[0] / total
    return total, mean + delta * share, square + cell[2] + delta * delta * n * share


@compiled
def comoments(
    cells: NDArray[np.float64], lo: NDArray[np.int64], hi: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return the moments of ranges of cells of pairs.

    Axes: (cells, 6): number, mean of x and of y, sums of products, of squares of x and of y.
    """
    found, ahead = np.empty((lo.size, 6)), np.empty_like(cells)
    middle, right = np.int64(0), np.int64(0)
    back = np.zeros(6)
    for each in range(lo.size):
        start, stop = lo[each], hi[each]
        if start >= middle:
            middle = right = stop
            back[:] = 0.0
            for place in range(stop - 1, start - 1, -1):
                join_pairs(cells[place], back)
                ahead[place] = back
            back[:] = 0.0
        while right < stop:
            join_pairs(cells[right], back)
            right += 1
        found[each] = back
        if start < middle:
            join_pairs(ahead[start], found[each])
    return found


@compiled
def join_pairs(cell: NDArray[np.float64], into: NDArray[np.float64]) -> None:
    """Add the moments of a cell of pairs to others."""
    if cell[0] == 0:
        return
    if into[0] == 0:
        into[:] = cell
        return
    n, total = into[0], into[0] + cell[0]
    delta_x, delta_y = cell[1] - into[1], cell[2] - into[2]
    share = cell[0] / total
    into[0] = total
    into[1] += delta_x * share
    into[2] += delta_y * share
    into[3] += cell[3] + delta_x * delta_y * n * share
    into[4] += cell[4] + delta_x * delta_x * n * share
    into[5] += cell[5] + delta_y * delta_y * n * share
