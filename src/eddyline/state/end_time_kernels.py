"""Compiled: last instants that ascend where those of the rows do not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from eddyline.data.jit import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray


@compiled
def bounds_of(hashes: NDArray[np.uint64], ends: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return for each entry of an index the latest end of it and those before it with its hash.

    Args:
        hashes: of each entry, ascending.
        ends: of each entry, in any order (µs).
    """
    found = np.empty(ends.size, np.int64)
    for entry in range(ends.size):
        end = ends[entry]
        if entry > 0 and hashes[entry] == hashes[entry - 1]:
            end = max(end, found[entry - 1])
        found[entry] = end
    return found
