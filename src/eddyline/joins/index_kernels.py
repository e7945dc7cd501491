"""Compiled: rows in the order of the hash of a key, and probes into them.

A hash is a bijection of the key's code, so equal hashes are equal codes. A directory says where the
entries of each of 2^bits equal ranges of hashes start, so a look-up touches one slot and the few
entries behind it, whatever the size of the index; probes in the order of their hashes touch memory
in ascending order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from eddyline.data.compiled import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray

_FACTOR = np.uint64(0xD6E8FEB86659FD93)
_HALF = np.uint64(32)

LONG = 16
"""Entries of a slot from which on it is searched, not walked through."""


@compiled
def hashes_of(codes: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return a bijective mix of the bits of each code."""
    found = np.empty(codes.size, np.uint64)
    for row in range(codes.size):
        bits = np.uint64(codes[row])
        bits = (bits ^ (bits >> _HALF)) * _FACTOR
        bits = (bits ^ (bits >> _HALF)) * _FACTOR
        found[row] = bits ^ (bits >> _HALF)
    return found


@compiled
def sort_by_hash(
    hashes: NDArray[np.uint64], bits: int
) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """Return the rows in the order of their hashes, equal ones as they came, and the directory.

    Args:
        hashes: of each row.
        bits: the directory has 2^bits slots.
    """
    n, shift = hashes.size, np.uint64(64 - bits)
    directory = np.zeros((1 << bits) + 1, np.uint32)
    for row in range(n):
        directory[(hashes[row] >> shift) + np.uint64(1)] += np.uint32(1)
    for slot in range(1, directory.size):
        directory[slot] += directory[slot - 1]
    room = directory[:-1].copy()
    order = np.empty(n, np.uint32)
    for row in range(n):
        slot = hashes[row] >> shift
        order[room[slot]] = row
        room[slot] += np.uint32(1)
    for slot in range(directory.size - 1):
        for place in range(directory[slot] + 1, directory[slot + 1]):
            row, hole = order[place], place
            while hole > directory[slot] and hashes[order[hole - 1]] > hashes[row]:
                order[hole] = order[hole - 1]
                hole -= 1
            order[hole] = row
    return order, directory


@compiled
def probe(  # noqa: C901 - calls inside the loop cost more than what they do
    first: int,
    hashes: NDArray[np.uint64],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    checks: NDArray[np.int64],
    index_hashes: NDArray[np.uint64],
    index_starts: NDArray[np.int64],
    index_ends: NDArray[np.int64],
    index_rows: NDArray[np.uint32],
    directory: NDArray[np.uint32],
    index_checks: NDArray[np.int64],
    found_probes: NDArray[np.uint32],
    found_rows: NDArray[np.uint32],
) -> tuple[int, int]:
    """Find the pairs of a probe and an entry with equal codes that live at one instant.

    Args:
        first: the probe to start with.
        hashes: of each probe's code; best in ascending order.
        starts: of each probe, the instant from which it lives (µs).
        ends: the last instant at which it does (µs).
        checks: other codes that must be equal ((codes, probes)).
        index_hashes: the hashes of the index, ascending.
        index_starts: of each entry; ascending among equal hashes.
        index_ends: of each entry; ascending among equal hashes.
        index_rows: the row of each entry.
        directory: where the entries of each slot start.
        index_checks: other codes of the indexed rows ((codes, rows)).
        found_probes: the probe of each pair; filled.
        found_rows: the row of each pair; filled.

    Returns:
        The probe to go on with, as there is no room (their number if there is), and the pairs.
    """
    bits = 0
    while (1 << bits) < directory.size - 1:
        bits += 1
    shift = np.uint64(64 - bits)
    n = 0
    for at in range(first, hashes.size):
        wanted, alive, before = hashes[at], starts[at], n
        slot = wanted >> shift
        place, stop = np.int64(directory[slot]), np.int64(directory[slot + np.uint64(1)])
        if stop - place > LONG:
            # A key with many rows is here: neither it nor its neighbours are walked through.
            low, high = place, stop
            while low < high:
                middle = (low + high) // 2
                is_before = index_hashes[middle] < wanted or (
                    index_hashes[middle] == wanted and index_ends[middle] < alive
                )
                if is_before:
                    low = middle + 1
                else:
                    high = middle
            place = low
        while place < stop and index_hashes[place] < wanted:
            place += 1
        while place < stop and index_hashes[place] == wanted:
            if index_starts[place] > ends[at]:
                break
            row = index_rows[place]
            is_found = max(alive, index_starts[place]) <= min(ends[at], index_ends[place])
            for code in range(checks.shape[0]):
                is_found = is_found and checks[code, at] == index_checks[code, row]
            place += 1
            if not is_found:
                continue
            if n == found_rows.size:
                return at, before
            found_probes[n] = at
            found_rows[n] = row
            n += 1
    return hashes.size, n
