"""Compiled: a hash table of keys, each with a chain of the rows that are kept for it.

A slot of the table is named by the upper bits of a key's hash, so keys that are looked up in the
order of their hashes touch the table in ascending order. The rows of a key are chained from the
newest to the oldest; those that were kept together lie side by side.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from eddyline.data.jit import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray

_FACTOR = np.uint64(0xD6E8FEB86659FD93)
_HALF = np.uint64(32)


@compiled
def key_hashes(codes: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return a hash of each key by its codes ((classes, keys)).

    That of keys of one class is the bijective one of ``run_index``.
    """
    found = np.zeros(codes.shape[1], np.uint64)
    for part in range(codes.shape[0]):
        for row in range(codes.shape[1]):
            bits = found[row] ^ np.uint64(codes[part, row])
            bits = (bits ^ (bits >> _HALF)) * _FACTOR
            bits = (bits ^ (bits >> _HALF)) * _FACTOR
            found[row] = bits ^ (bits >> _HALF)
    return found


@compiled
def find(
    hashes: NDArray[np.uint64],
    codes: NDArray[np.int64],
    slots: NDArray[np.int32],
    shift: np.uint64,
    entry_codes: NDArray[np.int64],
    touched: NDArray[np.int32],
    now: int,
) -> tuple[NDArray[np.int32], int]:
    """Look keys up; their codes are by class ((classes, keys)).

    The table has 2^bits slots with an entry or -1, and ``shift`` is 64 - bits. An entry that is
    found is touched with the number of the batch, unless that is negative.

    Returns:
        The entry of each key, -1 where it is not kept, and how many entries were touched first now.
    """
    found = np.empty(hashes.size, np.int32)
    n_fresh, mask = 0, np.int64(slots.size - 1)
    for at in range(hashes.size):
        if at > 0 and hashes[at] == hashes[at - 1]:
            is_same = True
            for part in range(codes.shape[0]):
                is_same = is_same and codes[part, at] == codes[part, at - 1]
            if is_same:
                found[at] = found[at - 1]
                continue
        slot = np.int64(hashes[at] >> shift)
        entry = slots[slot]
        while entry >= 0:
            is_same = True
            for part in range(codes.shape[0]):
                is_same = is_same and codes[part, at] == entry_codes[part, entry]
            if is_same:
                break
            slot = (slot + 1) & mask
            entry = slots[slot]
        found[at] = entry
        if entry >= 0 and now >= 0 and touched[entry] != now:
            touched[entry] = now
            n_fresh += 1
    return found, n_fresh


@compiled
def add(
    hashes: NDArray[np.uint64],
    codes: NDArray[np.int64],
    slots: NDArray[np.int32],
    shift: np.uint64,
    entry_codes: NDArray[np.int64],
    n_entries: int,
    most: int,
) -> tuple[NDArray[np.int32], NDArray[np.int64], int]:
    """Look keys up as ``find`` does, and make an entry for each that has none, up to ``most``.

    Returns:
        The entry of each key, -1 where none may be made; the first key of each new entry; how many
        distinct keys got none, those that come apart counted again.
    """
    found = np.empty(hashes.size, np.int32)
    firsts = np.empty(hashes.size, np.int64)
    n_new, n_refused, mask = 0, 0, np.int64(slots.size - 1)
    for at in range(hashes.size):
        slot = np.int64(hashes[at] >> shift)
        entry = slots[slot]
        while entry >= 0:
            is_same = True
            for part in range(codes.shape[0]):
                is_same = is_same and codes[part, at] == entry_codes[part, entry]
            if is_same:
                break
            slot = (slot + 1) & mask
            entry = slots[slot]
        if entry < 0 and n_entries + n_new < most:
            entry = np.int32(n_entries + n_new)
            slots[slot] = entry
            for part in range(codes.shape[0]):
                entry_codes[part, entry] = codes[part, at]
            firsts[n_new] = at
            n_new += 1
        elif entry < 0 and (at == 0 or hashes[at] != hashes[at - 1]):
            n_refused += 1
        found[at] = entry
    return found, firsts[:n_new], n_refused


@compiled
def placed(hashes: NDArray[np.uint64], slots: NDArray[np.int32], shift: np.uint64) -> None:
    """Fill an empty table with entries 0, 1, … of different keys."""
    mask = np.int64(slots.size - 1)
    for entry in range(hashes.size):
        slot = np.int64(hashes[entry] >> shift)
        while slots[slot] >= 0:
            slot = (slot + 1) & mask
        slots[slot] = entry


@compiled
def chained(
    entries: NDArray[np.int32], first: int, heads: NDArray[np.int32], older: NDArray[np.int32]
) -> None:
    """Put rows ``first``, ``first + 1``, … into the chains of their entries."""
    for at in range(entries.size):
        row = np.int32(first + at)
        older[row] = heads[entries[at]]
        heads[entries[at]] = row


@compiled
def chained_once(
    entries: NDArray[np.int32],
    refs: NDArray[np.int64],
    first: int,
    since: int,
    heads: NDArray[np.int32],
    older: NDArray[np.int32],
    kept_refs: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Put rows ``first``, ``first + 1``, … into the chains of their entries, each only once.

    A row is the numbers of rows of the windows ((windows, rows)); rows before ``since`` are known
    to be others. Returns which rows were put in.
    """
    chosen = np.empty(entries.size, np.int64)
    n = 0
    for at in range(entries.size):
        row, is_there = heads[entries[at]], False
        while row >= since and not is_there:
            is_there = True
            for part in range(refs.shape[0]):
                is_there = is_there and refs[part, at] == kept_refs[part, row]
            row = older[row]
        if is_there:
            continue
        fresh = np.int32(first + n)
        for part in range(refs.shape[0]):
            kept_refs[part, fresh] = refs[part, at]
        older[fresh] = heads[entries[at]]
        heads[entries[at]] = fresh
        chosen[n] = at
        n += 1
    return chosen[:n]


@compiled
def chain_pairs(
    first: int,
    entries: NDArray[np.int32],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    heads: NDArray[np.int32],
    older: NDArray[np.int32],
    row_starts: NDArray[np.int64],
    row_ends: NDArray[np.int64],
    found_probes: NDArray[np.int64],
    found_rows: NDArray[np.int64],
) -> tuple[int, int]:
    """Find the pairs of a probe (entry -1: it has no rows) and a row that live at one instant (µs).

    A chain starts at the head of its entry, and leads to older rows until -1.

    Returns:
        The probe to go on with, as there is no room (their number if there is), and the pairs.
    """
    n = 0
    for at in range(first, entries.size):
        if entries[at] < 0:
            continue
        before, row = n, heads[entries[at]]
        while row >= 0:
            if max(starts[at], row_starts[row]) <= min(ends[at], row_ends[row]):
                if n == found_rows.size:
                    return at, before
                found_probes[n] = at
                found_rows[n] = row
                n += 1
            row = older[row]
    return entries.size, n


@compiled
def in_chains(
    entries: NDArray[np.int64],
    heads: NDArray[np.int32],
    older: NDArray[np.int32],
    row_ends: NDArray[np.int64],
    horizon: int,
    n_rows: int,
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return the rows of entries that do not end before the horizon (µs), and the entry of each.

    An entry is given as its place in ``entries``. Its rows are together, the oldest first.
    """
    rows, owners = np.empty(n_rows, np.int64), np.empty(n_rows, np.int32)
    n = 0
    for at in range(entries.size):
        begin, row = n, heads[entries[at]]
        while row >= 0:
            if row_ends[row] >= horizon:
                rows[n] = row
                owners[n] = at
                n += 1
            row = older[row]
        for step in range((n - begin) // 2):
            low, high = begin + step, n - 1 - step
            rows[low], rows[high] = rows[high], rows[low]
    return rows[:n], owners[:n]


@compiled
def renumbered(
    numbers: NDArray[np.int64],
    bases: NDArray[np.int64],
    sizes: NDArray[np.int64],
    renamed: NDArray[np.int64],
) -> None:
    """Give rows of some runs the numbers that they have in another one, in place.

    A run has a first number (its base) and a size; ``renamed`` has the new numbers, run by run.
    """
    for at in range(numbers.size):
        offset = 0
        for run in range(bases.size):
            within = numbers[at] - bases[run]
            if 0 <= within < sizes[run]:
                numbers[at] = renamed[offset + within]
                break
            offset += sizes[run]
