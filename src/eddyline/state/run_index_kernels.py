"""Compiled: rows in the order of the hash of a key, and probes into them.

A hash is a bijection of the key's code, so equal hashes are equal codes. A directory says where the
entries of each of 2^bits equal ranges of hashes start. A look-up touches one slot and the few tags
behind it, which are the upper halves of hashes, and an entry only if its tag is the right one.
Probes go through each of these steps in groups: what one of them waits for from memory, others wait
for at the same time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from eddyline.data.jit import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray

_FACTOR = np.uint64(0xD6E8FEB86659FD93)
_HALF = np.uint64(32)

WIDTH = 8
"""Tags that are compared in any case: most slots have at most as many."""

LONG = 16
"""Entries of one tag from which on they are searched, not walked through."""

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
    """Return the first entry of each of 2^bits slots when sorted, and the number of all."""
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

    Fast where few rows of a slot (of 2^bits) are out of order.
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
def shift_of(directory: NDArray[np.uint32]) -> np.uint64:
    """Return by how many bits a hash is shifted to give its slot in a directory."""
    bits = 0
    while (1 << bits) < directory.size - 1:
        bits += 1
    return np.uint64(64 - bits)


@compiled
def probe(  # noqa: C901, PLR0912 - calls inside the loop cost more than what they do
    first: int,
    hashes: NDArray[np.uint64],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    checks: NDArray[np.int64],
    tags: NDArray[np.uint32],
    entries: NDArray[np.int64],
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
    """Find the pairs of a probe and an entry with equal codes that live at one instant (µs).

    Probes are best in ascending order of their hashes; ``checks`` are the other codes that must be
    equal ((codes, probes) and (codes, rows)). For the index see ``run_index.Index``. ``base`` is
    added to the number of a row; pairs are filled in behind the ``n`` that were found before.

    Returns:
        The probe to go on with, as there is no room (their number if there is), and the pairs.
    """
    n_entries = tags.size
    if n_entries == 0:
        return hashes.size, n
    shift, last_low = shift_of(directory), np.int64(max(0, n_entries - WIDTH))
    lows, hits = np.empty(GROUP, np.int64), np.empty(GROUP, np.int64)
    heads, tails = np.empty(GROUP, np.uint32), np.empty(GROUP, np.uint32)
    begins = np.empty(GROUP, np.int64)
    for group in range(first, hashes.size, GROUP):
        n_group, n_hits = min(GROUP, hashes.size - group), 0
        # What is less is counted, from the first of a slot on or before it: tags of other slots are
        # less or greater, so that its end need not be known, and no branch is guessed wrongly.
        for each in range(n_group):
            lows[each] = min(np.int64(directory[hashes[group + each] >> shift]), last_low)
        if n_entries >= WIDTH:
            for each in range(n_group):
                heads[each] = tags[lows[each]]
            for each in range(n_group):
                tails[each] = tags[lows[each] + WIDTH - 1]
        for each in range(n_group):
            tag, place = np.uint32(hashes[group + each] >> _HALF), lows[each]
            n_less = np.int64(WIDTH)
            if n_entries >= WIDTH:
                n_less = np.int64(heads[each] < tag) + np.int64(tails[each] < tag)
                for step in range(1, WIDTH - 1):
                    n_less += tags[place + step] < tag
                place += n_less
            if n_less == WIDTH:
                place = _first_of(tag, place, hashes[group + each] >> shift, tags, directory)
            lows[each], hits[n_hits] = place, each
            n_hits += place < n_entries and tags[place] == tag
        for hit in range(n_hits):
            begins[hit] = entries[lows[hits[hit]], 1]
        for hit in range(n_hits):
            at, place, before = group + hits[hit], lows[hits[hit]], n
            wanted, alive, last = np.int64(hashes[at]), starts[at], ends[at]
            tag = np.uint32(hashes[at] >> _HALF)
            if begins[hit] > last and entries[place, 0] == wanted:
                continue
            far = place + LONG
            if entries[place, 2] < alive and far < n_entries and tags[far] == tag:
                # A key with many rows: those that left before are not walked through.
                place = _next_alive(hashes[at], alive, place, tags, entries, bounds)
            while place < n_entries and tags[place] == tag:
                start, end = max(alive, entries[place, 1]), min(last, entries[place, 2])
                is_found = entries[place, 0] == wanted
                if is_found and start > last:
                    break
                row = np.int64(places[place]) if places.size else place
                is_found = is_found and start <= end
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


@compiled
def _first_of(
    tag: np.uint32,
    low: np.int64,
    slot: np.uint64,
    tags: NDArray[np.uint32],
    directory: NDArray[np.uint32],
) -> np.int64:
    """Return the first place from one on in a slot whose tag is not less than one."""
    high = np.int64(directory[slot + np.uint64(1)])
    while low < high:
        middle = (low + high) // 2
        if tags[middle] < tag:
            low = middle + 1
        else:
            high = middle
    return low


@compiled
def _next_alive(
    wanted: np.uint64,
    alive: int,
    low: np.int64,
    tags: NDArray[np.uint32],
    entries: NDArray[np.int64],
    bounds: NDArray[np.int64],
) -> np.int64:
    """Return the first place from one on of an entry that is alive; see ``first_alive``."""
    high, step = low, LONG
    while high < tags.size and tags[high] == tags[low]:
        high, step = high + step, 2 * step
    return first_alive(wanted, alive, low, min(high, np.int64(tags.size)), entries, bounds)


@compiled
def first_alive(
    wanted: np.uint64,
    alive: int,
    low: np.int64,
    high: np.int64,
    entries: NDArray[np.int64],
    bounds: NDArray[np.int64],
) -> np.int64:
    """Return the first place in [low, high) whose entry has a hash and may live at an instant (µs).

    With bounds that entry itself may have left, but none before it lives. Without any, it is the
    place behind the last of that hash.
    """
    while low < high:
        middle = (low + high) // 2
        own = np.uint64(entries[middle, 0])
        is_before = own < wanted
        if own == wanted:
            end = bounds[middle] if bounds.size else entries[middle, 2]
            is_before = end < alive
        if is_before:
            low = middle + 1
        else:
            high = middle
    return low


@compiled
def first_starts(
    hashes: NDArray[np.uint64], entries: NDArray[np.int64], directory: NDArray[np.uint32]
) -> NDArray[np.int64]:
    """Return the earliest start of the entries of each hash (µs); the greatest one if it has none.

    For the index see ``run_index.Index``; hashes are best ascending.
    """
    found = np.full(hashes.size, np.iinfo(np.int64).max)
    shift = shift_of(directory)
    for at in range(hashes.size):
        wanted = hashes[at]
        slot = wanted >> shift
        low, end = np.int64(directory[slot]), np.int64(directory[slot + np.uint64(1)])
        high = end
        while low < high:
            middle = (low + high) // 2
            if np.uint64(entries[middle, 0]) < wanted:
                low = middle + 1
            else:
                high = middle
        if low < end and np.uint64(entries[low, 0]) == wanted:
            found[at] = entries[low, 1]
    return found
