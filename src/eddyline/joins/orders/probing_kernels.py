"""Compiled: partners of a few sampled rows, up to so many of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from eddyline.data.jit import compiled
from eddyline.state.run_index_kernels import first_alive, shift_of

if TYPE_CHECKING:
    from numpy.typing import NDArray


@compiled
def count_partners(
    units: NDArray[np.int64],
    hashes: NDArray[np.uint64],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    checks: NDArray[np.int64],
    entries: NDArray[np.int64],
    directory: NDArray[np.uint32],
    places: NDArray[np.uint32],
    bounds: NDArray[np.int64],
    index_checks: NDArray[np.int64],
    most: int,
    counts: NDArray[np.int64],
    found_probes: NDArray[np.int64],
    found_rows: NDArray[np.int64],
) -> int:
    """Count the partners of each unit in one run, until it has as many as are asked for.

    Args:
        units: whose probe each one is, as a place in ``counts``.
        hashes: of each probe's code.
        starts: of each probe, the instant from which it lives (µs).
        ends: the last instant at which it does (µs).
        checks: other codes that must be equal ((codes, probes)).
        entries: see ``index.Index``, as the next three.
        directory: see there.
        places: see there.
        bounds: see there.
        index_checks: other codes of the indexed rows ((codes, rows)).
        most: partners after which a unit's search ends.
        counts: partners of each unit in the runs before; added to.
        found_probes: the probe of each partner; filled as far as there is room.
        found_rows: its row; filled as far as there is room.

    Returns:
        The partners that were found.
    """
    shift = shift_of(directory)
    n = 0
    for at in range(hashes.size):
        unit, wanted, alive = units[at], hashes[at], starts[at]
        slot = wanted >> shift
        place, stop = np.int64(directory[slot]), np.int64(directory[slot + np.uint64(1)])
        place = first_alive(wanted, alive, place, stop, entries, bounds)
        while place < stop and np.uint64(entries[place, 0]) == wanted and counts[unit] < most:
            if entries[place, 1] > ends[at]:
                break
            row = np.int64(places[place]) if places.size else place
            is_found = max(alive, entries[place, 1]) <= min(ends[at], entries[place, 2])
            for code in range(checks.shape[0]):
                is_found = is_found and checks[code, at] == index_checks[code, row]
            place += 1
            if not is_found:
                continue
            counts[unit] += 1
            if n < found_rows.size:
                found_probes[n] = at
                found_rows[n] = row
            n += 1
    return n
