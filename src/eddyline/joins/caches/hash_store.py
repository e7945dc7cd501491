"""The content of one store: keys, and for each key the joined rows of some windows.

Keys are kept apart from rows, so that a key without any joined row is a hit as well. A joined row
is the number of a row of each window, the instants between which all of them live, and their codes
in the key classes beside the key; the columns of results are fetched when these are put together.

Rows that have left their windows are not deleted at once. No probe lives as long ago, so none finds
them; they are removed when there are enough of them, or when memory is short.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from eddyline.joins.caches.hash_kernels import (
    add,
    chain_pairs,
    chained,
    chained_once,
    find,
    in_chains,
    key_hashes,
    placed,
    renumbered,
)
from eddyline.state.rows import ALWAYS
from eddyline.state.run_index import stacked

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from eddyline.joins.caches.prefix_invariant import Store
    from eddyline.joins.graph import JoinGraph
    from eddyline.joins.operator.composites import Composites

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
    ) -> None:
        """Put joined rows in: their entries, and from when to when they live (µs).

        ``refs`` are the numbers of the rows of each window, ``more`` the codes of each class of
        ``extra``.
        """
        self._grow_rows(entries.size)
        fresh = slice(self.n_rows, self.n_rows + entries.size)
        for column, values in zip(self._refs, refs, strict=True):
            column[fresh] = values
        for column, values in zip(self._more, more, strict=True):
            column[fresh] = values
        self._starts[fresh], self._ends[fresh] = starts, ends
        chained(entries, self.n_rows, self._heads, self._older)
        self.n_rows += entries.size

    def append_once(
        self,
        entries: NDArray[np.int32],
        refs: list[NDArray[np.int64]],
        more: list[NDArray[np.int64]],
        starts: NDArray[np.int64],
        ends: NDArray[np.int64],
        *,
        are_new: bool,
    ) -> None:
        """Put joined rows in, as ``append`` does, except those that are there.

        If all are new, each holds a row that nothing held before this call: then they are compared
        with each other only.
        """
        self._grow_rows(entries.size)
        since = self.n_rows if are_new else 0
        chosen = chained_once(
            entries, np.stack(refs), self.n_rows, since, self._heads, self._older, self._refs
        )
        fresh = slice(self.n_rows, self.n_rows + chosen.size)
        for column, values in zip(self._more, more, strict=True):
            column[fresh] = values[chosen]
        self._starts[fresh], self._ends[fresh] = starts[chosen], ends[chosen]
        self.n_rows += chosen.size

    def pairs(
        self, entries: NDArray[np.int32], starts: NDArray[np.int64], ends: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the pairs of a probe and a kept row of its entry that live at one instant (µs).

        A probe with entry -1 finds nothing.
        """
        first, room, found = 0, max(1024, entries.size), []
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
            found.append(out[:, :n])
            room *= 4 if first == before else 1
        if not found:
            found = [np.empty((2, 0), np.int64)]
        at, rows = found[0] if len(found) == 1 else np.concatenate(found, axis=1)
        return at, rows

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
            known = np.ascontiguousarray(self._codes[:, : self.n_entries])
            placed(key_hashes(known), self._slots, self._shift)

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
    found = np.empty((*values.shape[:-1], room), values.dtype)
    found[..., : values.shape[-1]] = values
    return found


class Keys:
    """The keys of combinations; each kind is made when it is first asked for."""

    def __init__(self, joined: Composites) -> None:
        self.joined = joined
        self._made: dict[tuple[int, ...], tuple[NDArray[np.uint64], NDArray[np.int64]]] = {}

    def hashed(self, key: tuple[int, ...]) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        """Return the hash and the codes of each combination in some classes."""
        if key not in self._made:
            codes = [np.ascontiguousarray(self.joined.codes[each]) for each in key]
            made = stacked(codes, len(self.joined))
            self._made[key] = key_hashes(made), made
        return self._made[key]
