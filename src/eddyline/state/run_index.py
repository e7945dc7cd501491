"""Index of a run, by hashes of one key class.

It has the order of the rows, and probes into it. ``Index.from_ranges`` takes the codes and
lifetimes of rows; ``Index.pairs`` gives each probe the rows with equal codes that live at the same
time.

A hash is a bijection of the key's code, so equal hashes are equal codes. A directory says where the
entries of each of 2^bits equal ranges of hashes start. A look-up touches one slot of it and the few
tags behind the slot, which are upper halves of hashes; it reads an entry only if its tag fits. The
compiled probe takes each of these steps for a group of probes: while one of them waits for memory,
the others wait too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from eddyline.data.jit import compiled

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

CROWDED = 64
"""Rows of a slot from which on all rows are sorted by start first: the cost of the other way, which
sorts each slot by itself, grows with the square of the rows in it."""


AS_ENDS = -1
"""No limit for how long entries live but their ends."""


class Probes(NamedTuple):
    """Probes into an index."""

    hashes: NDArray[np.uint64]
    """Hashes of the codes; ascending is fastest."""
    starts: NDArray[np.int64]
    """The instant from which each lives (µs)."""
    ends: NDArray[np.int64]
    """The last instant at which it does (µs)."""
    checks: NDArray[np.int64]
    """Other codes that must be equal ((codes, probes))."""


class Pairs(NamedTuple):
    """Pairs of a probe and a row that were found."""

    probes: NDArray[np.int64]
    rows: NDArray[np.int64]
    starts: NDArray[np.int64]
    """The instant from which both live (µs)."""
    ends: NDArray[np.int64]
    """The last instant at which they do (µs)."""

    @classmethod
    def room(cls, n_pairs: int) -> Pairs:
        """Return room for so many pairs."""
        return cls(*(np.empty(n_pairs, np.int64) for _ in cls._fields))

    def first(self, n_pairs: int) -> Pairs:
        """Return the first pairs."""
        return Pairs(*(array[:n_pairs] for array in self))

    def wider(self, n_pairs: int) -> Pairs:
        """Return room for four times as many, with the first pairs in it."""
        room = Pairs.room(4 * self.probes.size)
        for now, before in zip(room, self, strict=True):
            now[:n_pairs] = before[:n_pairs]
        return room


@dataclass(frozen=True, slots=True, eq=False)
class Index:
    """The entries of a run by the hash of their code in one key class."""

    tags: NDArray[np.uint32]
    """The upper half of the hash of each entry."""
    entries: NDArray[np.int64]
    """The bits of its hash, the instant from which it lives, and the last at which it does (µs), in
    ascending order of hashes (without sign) and starts. Ends ascend among equal hashes, unless
    there are bounds ((entries, 3))."""
    directory: NDArray[np.uint32]
    """First entry of each of 2^b equal ranges of hashes, and the number of all."""
    places: NDArray[np.uint32] = field(default_factory=lambda: np.empty(0, np.uint32))
    """Their rows in the run; none if these are in the same order."""
    bounds: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    """For each entry the latest end of it and those before it with its hash (µs); none if ends
    ascend."""
    stays: int = AS_ENDS
    """For how long after its start an entry lives at most (µs); ``AS_ENDS``: its end says it."""
    marks: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    """Bits of each row of the run; none if all rows are there."""
    bit: int = 0
    """The bit of the rows that are there, of those with marks."""

    @classmethod
    def from_ranges(
        cls, codes: NDArray[np.int64], starts: NDArray[np.int64], ends: NDArray[np.int64]
    ) -> Index:
        """Return the index of rows.

        Args:
            codes: of each row in the key class.
            starts: the instant from which each row lives (µs).
            ends: the last instant at which it does (µs); of two rows, not the earlier one's later.
        """
        hashes, bits = hashes_of(codes), bits_for(codes.size)
        directory = directory_of(hashes, bits)
        if (directory[1:] - directory[:-1]).max() < CROWDED:
            rows = sorted_rows(hashes, starts, directory, bits)
        else:
            by_start = np.argsort(starts, kind="stable")
            order = sorted_rows(hashes[by_start], starts[by_start], directory, bits)
            rows = by_start[order].astype(np.uint32)
        hashes = hashes[rows]
        entries = np.empty((hashes.size, 3), np.int64)
        entries[:, 0] = hashes.view(np.int64)
        entries[:, 1], entries[:, 2] = starts[rows], ends[rows]
        return cls((hashes >> np.uint64(32)).astype(np.uint32), entries, directory, rows)

    def where(self, mask: NDArray[np.bool_]) -> Index:
        """Return the index of some rows, of rows that are in its order."""
        hashes = self.hashes[mask]
        directory = directory_of(hashes, bits_for(hashes.size))
        return Index(self.tags[mask], self.entries[mask], directory)

    def __len__(self) -> int:
        return self.tags.size

    @property
    def hashes(self) -> NDArray[np.uint64]:
        """The hash of each entry, ascending."""
        return self.entries[:, 0].view(np.uint64)

    @property
    def starts(self) -> NDArray[np.int64]:
        """The instant from which each entry lives (µs); ascending among equal hashes."""
        return self.entries[:, 1]

    @property
    def ends(self) -> NDArray[np.int64]:
        """The last instant at which each entry does (µs)."""
        return self.entries[:, 2]

    @property
    def rows(self) -> NDArray[np.uint32]:
        """The row of each entry in the run."""
        return self.places if self.places.size else np.arange(len(self), dtype=np.uint32)

    def pairs(
        self, probes: Probes, checks: NDArray[np.int64], base: int, pairs: Pairs, n_found: int
    ) -> tuple[Pairs, int]:
        """Find the pairs of a probe and a row with equal codes that live at one instant.

        Args:
            probes: what to look up.
            checks: the other codes of the rows, as those of the probes ((codes, rows)).
            base: what is added to the number of a row.
            pairs: the pairs of runs before this one, and room.
            n_found: how many pairs there are.

        Returns:
            With the pairs of this run behind them, in the order of the probes, or where there was
            no room a wider copy of it; and how many there are now.
        """
        first = 0
        while True:
            first, n_found = probe(
                first,
                *probes,
                self.tags,
                self.entries,
                self.directory,
                self.places,
                self.bounds,
                self.stays,
                self.marks,
                self.bit,
                checks,
                base,
                n_found,
                *pairs,
            )
            if first == probes.hashes.size:
                return pairs, n_found
            pairs = pairs.wider(n_found)


def stacked(codes: Sequence[NDArray[np.int64]], n_rows: int) -> NDArray[np.int64]:
    """Return codes of several key classes as one array; of one class without a copy."""
    if len(codes) == 1:
        return codes[0][np.newaxis]
    return np.stack(codes) if codes else np.empty((0, n_rows), np.int64)


def bits_for(n_rows: int) -> int:
    """Return for how many bits of a hash the directory of so many rows has slots.

    Each has two to four entries, so that nearly all have at most as many as are compared at once.
    """
    return max(1, n_rows.bit_length() - 2)


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
    hashes = np.empty(codes.size, np.uint64)
    for row in range(codes.size):
        bits = np.uint64(codes[row])
        bits = (bits ^ (bits >> _HALF)) * _FACTOR
        bits = (bits ^ (bits >> _HALF)) * _FACTOR
        hashes[row] = bits ^ (bits >> _HALF)
    return hashes


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
            key, start = hashes[row], starts[row]
            while hole > directory[slot]:
                before = order[hole - 1]
                if hashes[before] < key or (hashes[before] == key and starts[before] <= start):
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
def probe(  # noqa: C901, PLR0912, PLR0915 - calls inside the loop cost more than what they do
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
    stays: int,
    marks: NDArray[np.int64],
    bit: int,
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
        for nth in range(n_group):
            lows[nth] = min(np.int64(directory[hashes[group + nth] >> shift]), last_low)
        if n_entries >= WIDTH:
            for nth in range(n_group):
                heads[nth] = tags[lows[nth]]
            for nth in range(n_group):
                tails[nth] = tags[lows[nth] + WIDTH - 1]
        for nth in range(n_group):
            tag, place = np.uint32(hashes[group + nth] >> _HALF), lows[nth]
            n_less = np.int64(WIDTH)
            if n_entries >= WIDTH:
                n_less = np.int64(heads[nth] < tag) + np.int64(tails[nth] < tag)
                for step in range(1, WIDTH - 1):
                    n_less += tags[place + step] < tag
                place += n_less
            if n_less == WIDTH:
                place = _first_of(tag, place, hashes[group + nth] >> shift, tags, directory)
            lows[nth], hits[n_hits] = place, nth
            n_hits += place < n_entries and tags[place] == tag
        for hit in range(n_hits):
            begins[hit] = entries[lows[hits[hit]], 1]
        for hit in range(n_hits):
            asked, place, before = group + hits[hit], lows[hits[hit]], n
            wanted, alive, last = np.int64(hashes[asked]), starts[asked], ends[asked]
            tag = np.uint32(hashes[asked] >> _HALF)
            if begins[hit] > last and entries[place, 0] == wanted:
                continue
            far = place + LONG
            has_left = entries[place, 2] < alive
            if stays >= 0:
                has_left = entries[place, 1] + stays < alive
            if has_left and far < n_entries and tags[far] == tag:
                # A key with many rows: those that left before are not walked through.
                place = _next_alive(hashes[asked], alive, place, tags, entries, bounds, stays)
            while place < n_entries and tags[place] == tag:
                start, end = max(alive, entries[place, 1]), min(last, entries[place, 2])
                if stays >= 0:
                    end = min(end, entries[place, 1] + stays)
                is_found = entries[place, 0] == wanted
                if is_found and start > last:
                    break
                row = np.int64(places[place]) if places.size else place
                is_found = is_found and start <= end
                if marks.size:
                    is_found = is_found and (marks[row] & bit) != 0
                for code in range(checks.shape[0]):
                    is_found = is_found and checks[code, asked] == index_checks[code, row]
                place += 1
                if not is_found:
                    continue
                if n == found_rows.size:
                    return asked, before
                found_probes[n], found_rows[n] = asked, row + base
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
    stays: int,
) -> np.int64:
    """Return the first place from one on of an entry that is alive; see ``first_alive``."""
    high, step = low, LONG
    while high < tags.size and tags[high] == tags[low]:
        high, step = high + step, 2 * step
    high = min(high, np.int64(tags.size))
    return first_alive(wanted, alive, low, high, entries, bounds, stays)


@compiled
def first_alive(
    wanted: np.uint64,
    alive: int,
    low: np.int64,
    high: np.int64,
    entries: NDArray[np.int64],
    bounds: NDArray[np.int64],
    stays: int,
) -> np.int64:
    """Return the first place in [low, high) whose entry has a hash and may live at an instant (µs).

    With bounds that entry itself may have left, but none before it lives. Without any, it is the
    place behind the last of that hash. For ``stays`` see ``run_index.Index``.
    """
    while low < high:
        middle = (low + high) // 2
        key = np.uint64(entries[middle, 0])
        is_before = key < wanted
        if key == wanted:
            end = bounds[middle] if bounds.size else entries[middle, 2]
            is_before = end < alive
            if stays >= 0:  # starts ascend
                is_before = entries[middle, 1] + stays < alive
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
    earliest = np.full(hashes.size, np.iinfo(np.int64).max)
    shift = shift_of(directory)
    for asked in range(hashes.size):
        wanted = hashes[asked]
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
            earliest[asked] = entries[low, 1]
    return earliest
