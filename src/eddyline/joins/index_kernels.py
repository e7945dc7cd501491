"""Compiled: rows in the order of the hash of a key, and probes into them.

A hash is a bijection of the key's code, so equal hashes are equal codes. A directory says where the
entries of each of 2^bits equal ranges of hashes start, so a look-up touches one slot and the few
hashes behind it, and what else is known of an entry only if its hash is the right one. Probes go
through each of these steps in groups: what one of them waits for from memory, others wait for at
the same time.
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

GROUP = 256
"""Probes that take a step together: what is known of them stays in the nearest cache."""


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
def directory_of(hashes: NDArray[np.uint64], bits: int) -> NDArray[np.uint32]:
    """Return where the entries of each of 2^bits slots start when sorted, and their number.

    Args:
        hashes: of each row, in any order.
        bits: at least one.
    """
    shift = np.uint64(64 - bits)
    directory = np.zeros((1 << bits) + 1, np.uint32)
    for row in range(hashes.size):
        directory[(hashes[row] >> shift) + np.uint64(1)] += np.uint32(1)
    for slot in range(1, directory.size):
        directory[slot] += directory[slot - 1]
    return directory


@compiled
def sorted_rows(
    hashes: NDArray[np.uint64], starts: NDArray[np.int64], directory: NDArray[np.uint32], bits: int
) -> NDArray[np.uint32]:
    """Return the rows in the order of their hashes, equal ones by start, and then as they came.

    Fast where few rows of a slot are out of order.

    Args:
        hashes: of each row.
        starts: of each row.
        directory: of the hashes.
        bits: it has 2^bits slots.
    """
    shift = np.uint64(64 - bits)
    room = directory[:-1].copy()
    order = np.empty(hashes.size, np.uint32)
    for row in range(hashes.size):
        slot = hashes[row] >> shift
        order[room[slot]] = row
        room[slot] += np.uint32(1)
    for slot in range(directory.size - 1):
        for place in range(directory[slot] + 1, directory[slot + 1]):
            row, hole = order[place], place
            own, start = hashes[row], starts[row]
            while hole > directory[slot]:
                before = order[hole - 1]
                if hashes[before] < own or (hashes[before] == own and starts[before] <= start):
                    break
                order[hole] = before
                hole -= 1
            order[hole] = row
    return order


@compiled
def probe(  # noqa: C901, PLR0912 - calls inside the loop cost more than what they do
    first: int,
    hashes: NDArray[np.uint64],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    checks: NDArray[np.int64],
    index_hashes: NDArray[np.uint64],
    spans: NDArray[np.int64],
    directory: NDArray[np.uint32],
    places: NDArray[np.uint32],
    bounds: NDArray[np.int64],
    index_checks: NDArray[np.int64],
    base: int,
    n: int,
    found_probes: NDArray[np.int64],
    found_rows: NDArray[np.int64],
    found_starts: NDArray[np.int64],
    found_ends: NDArray[np.int64],
) -> tuple[int, int]:
    """Find the pairs of a probe and an entry with equal codes that live at one instant.

    Args:
        first: the probe to start with.
        hashes: of each probe's code; best in ascending order.
        starts: of each probe, the instant from which it lives (µs).
        ends: the last instant at which it does (µs).
        checks: other codes that must be equal ((codes, probes)).
        index_hashes: see ``index.Index``, as the next four.
        spans: see there.
        directory: see there.
        places: see there.
        bounds: see there.
        index_checks: other codes of the indexed rows ((codes, rows)).
        base: what is added to the number of a row.
        n: pairs that were found before.
        found_probes: the probe of each pair; filled from there on, as the next three.
        found_rows: its row.
        found_starts: the instant from which both live (µs).
        found_ends: the last instant at which they do (µs).

    Returns:
        The probe to go on with, as there is no room (their number if there is), and the pairs.
    """
    if index_hashes.size == 0:
        return hashes.size, n
    bits = 0
    while (1 << bits) < directory.size - 1:
        bits += 1
    shift, last_entry = np.uint64(64 - bits), index_hashes.size - 1
    lows, stops = np.empty(GROUP, np.int64), np.empty(GROUP, np.int64)
    heads, hits = np.empty(GROUP, np.uint64), np.empty(GROUP, np.int64)
    for group in range(first, hashes.size, GROUP):
        n_group, n_hits = min(GROUP, hashes.size - group), 0
        for each in range(n_group):
            slot = hashes[group + each] >> shift
            lows[each], stops[each] = directory[slot], directory[slot + np.uint64(1)]
        for each in range(n_group):
            heads[each] = index_hashes[min(lows[each], last_entry)]
        for each in range(n_group):
            wanted, place, stop = hashes[group + each], lows[each], stops[each]
            if stop - place > LONG:
                # A key with many rows is here: neither it nor its neighbours are walked through.
                high, alive = stop, starts[group + each]
                while place < high:
                    middle = (place + high) // 2
                    is_before = index_hashes[middle] < wanted
                    if index_hashes[middle] == wanted:
                        end = bounds[middle] if bounds.size else spans[middle, 1]
                        is_before = end < alive
                    if is_before:
                        place = middle + 1
                    else:
                        high = middle
            elif place < stop and heads[each] < wanted:
                place += 1
                while place < stop and index_hashes[place] < wanted:
                    place += 1
            lows[each] = place
            hits[n_hits] = each
            n_hits += place < stop and index_hashes[place] == wanted
        for hit in range(n_hits):
            each = hits[hit]
            at, place, stop, before = group + each, lows[each], stops[each], n
            wanted, alive, last = hashes[at], starts[at], ends[at]
            while place < stop and index_hashes[place] == wanted and spans[place, 0] <= last:
                start, end = max(alive, spans[place, 0]), min(last, spans[place, 1])
                row = np.int64(places[place]) if places.size else place
                is_found = start <= end
                for code in range(checks.shape[0]):
                    is_found = is_found and checks[code, at] == index_checks[code, row]
                place += 1
                if not is_found:
                    continue
                if n == found_rows.size:
                    return at, before
                found_probes[n], found_rows[n] = at, row + base
                found_starts[n], found_ends[n] = start, end
                n += 1
    return hashes.size, n
