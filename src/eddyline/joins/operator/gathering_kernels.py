"""Compiled: values of several parts put where they belong."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from eddyline.data.jit import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray


@compiled
def split_by_part(
    rows: NDArray[np.int64], firsts: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Sort rows by the part they are in, those of a part as they came.

    Args:
        rows: places in all parts, one after the other.
        firsts: the first row of each part; and their number.

    Returns:
        Which of the rows they are, their place in their part, and where those of each part start;
        and their number.
    """
    n_parts = firsts.size - 1
    parts = np.empty(rows.size, np.uint16)
    cuts = np.zeros(n_parts + 1, np.int64)
    part = 0
    for at in range(rows.size):
        row = rows[at]
        # A row is most often in the part of the one before it.
        if not firsts[part] <= row < firsts[part + 1]:
            low, high = 0, n_parts
            while high - low > 1:
                middle = (low + high) // 2
                if firsts[middle] <= row:
                    low = middle
                else:
                    high = middle
            part = low
        parts[at] = part
        cuts[part + 1] += 1
    for each in range(n_parts):
        cuts[each + 1] += cuts[each]
    room = cuts[:-1].copy()
    order, local = np.empty(rows.size, np.int64), np.empty(rows.size, np.int64)
    for at in range(rows.size):
        part = parts[at]
        place = room[part]
        order[place], local[place] = at, rows[at] - firsts[part]
        room[part] = place + 1
    return order, local, cuts


@compiled
def put(
    values: NDArray[np.unsignedinteger],
    local: NDArray[np.int64],
    order: NDArray[np.int64],
    found: NDArray[np.unsignedinteger],
) -> None:
    """Put values of a part where they belong.

    Args:
        values: of the part.
        local: which of them.
        order: where each belongs.
        found: filled there.
    """
    for at in range(local.size):
        found[order[at]] = values[local[at]]
