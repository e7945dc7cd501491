"""Content of one cache: joined rows of some windows, by key.

Keys are kept apart from rows, so a key without any joined row is a hit as well. A joined row has
the number of a row of each window, the instants between which all of them live, and their codes in
the key classes beside the key. The columns of results are fetched when results are put together.

Rows that have left their windows stay for a while. No probe finds them, because probes live later.
They are removed when there are enough of them, or when memory is short.

The first half of the module are compiled kernels: a hash table of keys, each with a chain of its
rows. The upper bits of a key's hash name a slot of the table, so keys that are looked up in the
order of their hashes touch the table in ascending order. The rows of a key are chained from the
newest to the oldest. Rows that were kept together lie side by side.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from eddyline.data.jit import compiled
from eddyline.state.rows import ALWAYS
from eddyline.state.run_index import stacked

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from eddyline.joins.caches.prefix_invariant import Store
    from eddyline.joins.graph import JoinGraph
    from eddyline.joins.operator.composites import Composites

_FACTOR = np.uint64(0xD6E8FEB86659FD93)
_HALF = np.uint64(32)


@compiled
def key_hashes(codes: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return a hash of each key by its codes ((classes, keys)).

    That of keys of one class is the bijective one of ``run_index``.
    """
    hashes = np.zeros(codes.shape[1], np.uint64)
    for part in range(codes.shape[0]):
        for row in range(codes.shape[1]):
            bits = hashes[row] ^ np.uint64(codes[part, row])
            bits = (bits ^ (bits >> _HALF)) * _FACTOR
            bits = (bits ^ (bits >> _HALF)) * _FACTOR
            hashes[row] = bits ^ (bits >> _HALF)
    return hashes


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
    entries = np.empty(hashes.size, np.int32)
    n_fresh, mask = 0, np.int64(slots.size - 1)
    for key in range(hashes.size):
        if key > 0 and hashes[key] == hashes[key - 1]:
            is_same = True
            for part in range(codes.shape[0]):
                is_same = is_same and codes[part, key] == codes[part, key - 1]
            if is_same:
                entries[key] = entries[key - 1]
                continue
        slot = np.int64(hashes[key] >> shift)
        entry = slots[slot]
        while entry >= 0:
            is_same = True
            for part in range(codes.shape[0]):
                is_same = is_same and codes[part, key] == entry_codes[part, entry]
            if is_same:
                break
            slot = (slot + 1) & mask
            entry = slots[slot]
        entries[key] = entry
        if entry >= 0 and now >= 0 and touched[entry] != now:
            touched[entry] = now
            n_fresh += 1
    return entries, n_fresh


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
    entries = np.empty(hashes.size, np.int32)
    firsts = np.empty(hashes.size, np.int64)
    n_new, n_refused, mask = 0, 0, np.int64(slots.size - 1)
    for key in range(hashes.size):
        slot = np.int64(hashes[key] >> shift)
        entry = slots[slot]
        while entry >= 0:
            is_same = True
            for part in range(codes.shape[0]):
                is_same = is_same and codes[part, key] == entry_codes[part, entry]
            if is_same:
                break
            slot = (slot + 1) & mask
            entry = slots[slot]
        if entry < 0 and n_entries + n_new < most:
            entry = np.int32(n_entries + n_new)
            slots[slot] = entry
            for part in range(codes.shape[0]):
                entry_codes[part, entry] = codes[part, key]
            firsts[n_new] = key
            n_new += 1
        elif entry < 0 and (key == 0 or hashes[key] != hashes[key - 1]):
            n_refused += 1
        entries[key] = entry
    return entries, firsts[:n_new], n_refused


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
    for offset in range(entries.size):
        row = np.int32(first + offset)
        older[row] = heads[entries[offset]]
        heads[entries[offset]] = row


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
    for offset in range(entries.size):
        row, is_there = heads[entries[offset]], False
        while row >= since and not is_there:
            is_there = True
            for part in range(refs.shape[0]):
                is_there = is_there and refs[part, offset] == kept_refs[part, row]
            row = older[row]
        if is_there:
            continue
        fresh = np.int32(first + n)
        for part in range(refs.shape[0]):
            kept_refs[part, fresh] = refs[part, offset]
        older[fresh] = heads[entries[offset]]
        heads[entries[offset]] = fresh
        chosen[n] = offset
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
    for probe in range(first, entries.size):
        if entries[probe] < 0:
            continue
        before, row = n, heads[entries[probe]]
        while row >= 0:
            if max(starts[probe], row_starts[row]) <= min(ends[probe], row_ends[row]):
                if n == found_rows.size:
                    return probe, before
                found_probes[n] = probe
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
    for owner in range(entries.size):
        begin, row = n, heads[entries[owner]]
        while row >= 0:
            if row_ends[row] >= horizon:
                rows[n] = row
                owners[n] = owner
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
    for place in range(numbers.size):
        offset = 0
        for run in range(bases.size):
            within = numbers[place] - bases[run]
            if 0 <= within < sizes[run]:
                numbers[place] = renamed[offset + within]
                break
            offset += sizes[run]


PATIENCE = 8
"""Batches without a probe after which a key makes room when memory is short."""

LONG_UNASKED = 64
"""Batches without a probe after which a key is removed anyway."""

FIRST_KEYS = 4096
"""Most keys that are put in at once, as long as there are fewer in all."""

SLACK = 1.5
"""Most rows, over those that were alive when dead ones were removed last, before that is done."""


class KeptRows:
    """The keys and joined rows of one store."""

    def __init__(self, store: Store, graph: JoinGraph) -> None:
        self.store = store
        self.limit = 0
        """Memory that it may take (bytes)."""
        self.horizon = ALWAYS
        """The instant before which joined rows that ended may have been removed (µs)."""
        self.windows = tuple(sorted(store.windows))
        classes = {key for name in self.windows for key in graph.classes_of[name]}
        self.extra = tuple(sorted(classes - set(store.key)))
        """The key classes that rows have a code of, beside those of the key."""
        self.clear()

    def clear(self) -> None:
        """Remove all keys and rows."""
        self.n_entries = self.n_rows = self._alive = 0
        self._codes = np.empty((len(self.store.key), 16), np.int64)
        self._heads = np.empty(16, np.int32)
        self._touched = np.empty(16, np.int32)
        self._refs = np.empty((len(self.windows), 16), np.int64)
        self._more = np.empty((len(self.extra), 16), np.int64)
        self._starts, self._ends = np.empty((2, 16), np.int64)
        self._older = np.empty(16, np.int32)
        self._slots = np.full(64, -1, np.int32)

    @property
    def entry_bytes(self) -> int:
        """Size of a key, with its share of the table (bytes)."""
        return 8 * len(self.store.key) + 8 + 4 * 3

    @property
    def row_bytes(self) -> int:
        """Size of a joined row (bytes)."""
        return 8 * (len(self.windows) + len(self.extra) + 2) + 4

    @property
    def n_bytes(self) -> int:
        """Size of all keys and rows, without the room that arrays have to grow (bytes)."""
        return self.n_entries * self.entry_bytes + self.n_rows * self.row_bytes

    # -- keys -----------------------------------------------------------------------------------

    def find(
        self, hashes: NDArray[np.uint64], codes: NDArray[np.int64], now: int = -1
    ) -> tuple[NDArray[np.int32], int]:
        """Return the entry of each key, -1 without one, and how many were first asked for now.

        ``now`` numbers the batch; -1: a look-up by a tap, for which no key is kept longer.
        """
        return find(hashes, codes, self._slots, self._shift, self._codes, self._touched, now)

    def admit(
        self, hashes: NDArray[np.uint64], codes: NDArray[np.int64], now: int
    ) -> tuple[NDArray[np.int32], NDArray[np.int64], int]:
        """Make an entry for each key that has none, as far as memory reaches.

        Returns:
            The entry of each key, -1 where it gets none; the first place of each new one among the
            keys; and about how many keys got none.
        """
        rows_per_entry = self.n_rows / self.n_entries if self.n_entries else 1.0
        expected = self.entry_bytes + rows_per_entry * self.row_bytes
        room = max(int((self.limit - self.n_bytes) / expected), 0)
        if self.n_entries < FIRST_KEYS:
            room = min(room, FIRST_KEYS)  # the mean size of an entry is not known well yet
        self._grow_entries(min(hashes.size, room))
        most = self.n_entries + min(hashes.size, room)
        entries, firsts, n_refused = add(
            hashes, codes, self._slots, self._shift, self._codes, self.n_entries, most
        )
        fresh = slice(self.n_entries, self.n_entries + firsts.size)
        self._heads[fresh], self._touched[fresh] = -1, now
        self.n_entries += firsts.size
        return entries, firsts, n_refused

    # -- rows -----------------------------------------------------------------------------------

    def append(
        self,
        entries: NDArray[np.int32],
        refs: list[NDArray[np.int64]],
        more: list[NDArray[np.int64]],
        starts: NDArray[np.int64],
        ends: NDArray[np.int64],
        *,
        known_from: int | None = None,
    ) -> None:
        """Put joined rows in: their entries, and from when to when they live (µs).

        Args:
            entries: the entry of each.
            refs: the numbers of the rows of each window.
            more: the codes of each class of ``extra``.
            starts: from when on they live (µs).
            ends: until when they live (µs).
            known_from: leave out rows that equal another one that is there, or a kept one from this
                number on; None if no two are equal.
        """
        self._grow_rows(entries.size)
        if known_from is None:
            fresh = slice(self.n_rows, self.n_rows + entries.size)
            for column, values in zip(self._refs, refs, strict=True):
                column[fresh] = values
            chained(entries, self.n_rows, self._heads, self._older)
        else:
            args = self.n_rows, known_from, self._heads, self._older, self._refs
            chosen = chained_once(entries, np.stack(refs), *args)
            fresh = slice(self.n_rows, self.n_rows + chosen.size)
            more, starts, ends = [values[chosen] for values in more], starts[chosen], ends[chosen]
        for column, values in zip(self._more, more, strict=True):
            column[fresh] = values
        self._starts[fresh], self._ends[fresh] = starts, ends
        self.n_rows = fresh.stop

    def pairs(
        self, entries: NDArray[np.int32], starts: NDArray[np.int64], ends: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the pairs of a probe and a kept row of its entry that live at one instant (µs).

        A probe with entry -1 finds nothing.
        """
        first, room, parts = 0, max(1024, entries.size), []
        while first < entries.size:
            out, before = np.empty((2, room), np.int64), first
            first, n = chain_pairs(
                first,
                entries,
                starts,
                ends,
                self._heads,
                self._older,
                self._starts,
                self._ends,
                *out,
            )
            parts.append(out[:, :n])
            room *= 4 if first == before else 1
        if not parts:
            parts = [np.empty((2, 0), np.int64)]
        probes, rows = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)
        return probes, rows

    def refs(self, name: str, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the numbers of the rows of one window in kept rows."""
        column: NDArray[np.int64] = self._refs[self.windows.index(name)]
        return column[rows]

    def codes(self, key: int, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the codes of kept rows in one class of ``extra``."""
        column: NDArray[np.int64] = self._more[self.extra.index(key)]
        return column[rows]

    def lives(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return from when to when kept rows live (µs)."""
        return self._starts[rows], self._ends[rows]

    # -- removal --------------------------------------------------------------------------------

    def renumber(
        self,
        name: str,
        bases: NDArray[np.int64],
        sizes: NDArray[np.int64],
        renamed: NDArray[np.int64],
    ) -> None:
        """Give rows of a window other numbers; see ``hash_kernels.renumbered``."""
        if name in self.windows:
            column = self._refs[self.windows.index(name)]
            renumbered(column[: self.n_rows], bases, sizes, renamed)

    def expire(self, horizon: int, now: int) -> None:
        """Remove dead rows and keys that are not asked for, if it is time to.

        Rows that ended before the horizon (µs) are never looked for again.
        """
        self.horizon = max(self.horizon, horizon)
        is_short = self.n_bytes >= self.limit
        if self.n_rows <= max(SLACK * self._alive, 1024) and not is_short and now % LONG_UNASKED:
            return
        self._compact(now - (PATIENCE if is_short else LONG_UNASKED))
        if self.n_bytes > self.limit:
            # Keys that stay are any of them, so that keys in turn still hit a share of the time.
            per_entry = self.n_bytes / max(self.n_entries, 1)
            self._compact(now - PATIENCE, most=int(self.limit / per_entry))

    def _compact(self, asked_since: int, most: int | None = None) -> None:
        stay = self._slots[self._slots >= 0].astype(np.int64)  # about in the order of hashes
        stay = stay[self._touched[stay] >= asked_since]
        codes = self._codes.take(stay, axis=1)
        hashes = key_hashes(codes)
        if most is not None and most < stay.size:
            # By the lower bits: the upper ones say where a key is looked for.
            chosen = np.argsort(hashes & np.uint64(0xFFFFFFFF))[:most]
            chosen.sort()
            stay, hashes, codes = stay[chosen], hashes[chosen], codes.take(chosen, axis=1)
        rows, entries = in_chains(
            stay, self._heads, self._older, self._ends, self.horizon, self.n_rows
        )
        touched = self._touched[stay]
        refs, more = self._refs.take(rows, axis=1), self._more.take(rows, axis=1)
        starts, ends = self.lives(rows)
        self.clear()
        self._grow_entries(stay.size)
        n = self.n_entries = stay.size
        self._codes[:, :n], self._touched[:n], self._heads[:n] = codes, touched, -1
        placed(hashes, self._slots, self._shift)
        self.append(entries, list(refs), list(more), starts, ends)
        self._alive = self.n_rows

    @property
    def _shift(self) -> np.uint64:
        return np.uint64(64 - (self._slots.size.bit_length() - 1))

    def _grow_entries(self, n_more: int) -> None:
        need = self.n_entries + n_more
        if need > self._heads.size:
            room = _room(need)
            self._codes = _wider(self._codes, room)
            self._heads, self._touched = _wider(self._heads, room), _wider(self._touched, room)
        if 2 * need > self._slots.size:
            self._slots = np.full(1 << (2 * need).bit_length(), -1, np.int32)
            codes = np.ascontiguousarray(self._codes[:, : self.n_entries])
            placed(key_hashes(codes), self._slots, self._shift)

    def _grow_rows(self, n_more: int) -> None:
        need = self.n_rows + n_more
        if need <= self._older.size:
            return
        room = _room(need)
        self._refs, self._more = _wider(self._refs, room), _wider(self._more, room)
        self._starts, self._ends = _wider(self._starts, room), _wider(self._ends, room)
        self._older = _wider(self._older, room)


def _room(need: int) -> int:
    return need + need // 2


def _wider(values: NDArray[Any], room: int) -> NDArray[Any]:
    """Return an array with room for more along its last axis."""
    widened = np.empty((*values.shape[:-1], room), values.dtype)
    widened[..., : values.shape[-1]] = values
    return widened


class Keys:
    """The keys of combinations; each kind is made when it is first asked for."""

    def __init__(self, joined: Composites) -> None:
        self.joined = joined
        self._made: dict[tuple[int, ...], tuple[NDArray[np.uint64], NDArray[np.int64]]] = {}

    def hashed(self, key: tuple[int, ...]) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        """Return the hash and the codes of each combination in some classes."""
        if key not in self._made:
            codes = [np.ascontiguousarray(self.joined.codes[part]) for part in key]
            matrix = stacked(codes, len(self.joined))
            self._made[key] = key_hashes(matrix), matrix
        return self._made[key]
