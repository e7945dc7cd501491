"""The caches of one bucket as its pipelines meet them: look-ups, fills, and taps.

A cache must agree with the windows as its pipeline sees them: with the new rows of those inputs
that had their turn. Every input of a store has a tap in its own pipeline, so its new rows are put
in during its turn; a cache is asked in the pipelines of other inputs [Babu05 5.4].
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from eddyline.joins.caches.counts import UseCounts
from eddyline.joins.caches.keys import Keys
from eddyline.joins.operator.composites import SEED, Composites

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from eddyline.joins.caches.candidate_profile import CandidateSamples
    from eddyline.joins.caches.counts import CacheReport
    from eddyline.joins.caches.hash_store import KeptRows
    from eddyline.joins.caches.prefix_invariant import Candidate, Store
    from eddyline.joins.caches.row_ids import RowNumbers
    from eddyline.joins.caches.semijoin_partners import PartnerRows
    from eddyline.joins.operator.pipeline import Through


class CachedProbes:
    """The shortcut of the pipelines of a bucket in a batch; see ``pipeline.Shortcut``.

    Stores, samples and report are added to. Without stores that have partners there is no
    ``partners``, the rows that decide which hits are sound.
    """

    def __init__(
        self,
        used: Iterable[Candidate],
        stores: Mapping[Store, KeptRows],
        numbers: RowNumbers,
        samples: CandidateSamples,
        partners: PartnerRows | None,
        report: CacheReport,
        batch_id: int,
    ) -> None:
        self._used = {(each.pipeline, each.start): each for each in used}
        self._stores = stores
        self._numbers = numbers
        self._samples = samples
        self._partners = partners
        self._report = report
        self._batch_id = batch_id
        self._keys: Keys | None = None

    def passed(self, pipeline: str, position: int, joined: Composites) -> None:
        """Put changes into stores that have a tap at a position, and sample keys there."""
        keys = self._keys_of(joined)
        for store, rows in self._stores.items():
            if pipeline in store.closed and store.tap == position:
                self._tap(pipeline, store, rows, keys)
        self._samples.take(pipeline, position, keys, self._partners)

    def joined(
        self, pipeline: str, position: int, joined: Composites, through: Through
    ) -> tuple[Composites | None, int]:
        """Join combinations by the cache at a position, or with the next window without one."""
        cache = self._used.get((pipeline, position))
        # Rows that ended before the horizon were removed from the store. No new row starts before
        # it, but a row of a table may: such rows go without the cache.
        if cache is None or int(joined.starts.min()) < self._stores[cache.store].horizon:
            return through(joined, position, position + 1), position + 1
        return self._with_cache(cache, joined, through), cache.stop

    def _keys_of(self, joined: Composites) -> Keys:
        """Return the keys of combinations; a tap and a cache of one position share them."""
        if self._keys is None or self._keys.joined is not joined:
            self._keys = Keys(joined)
        return self._keys

    # -- a cache that is asked ------------------------------------------------------------------

    def _with_cache(
        self, cache: Candidate, joined: Composites, through: Through
    ) -> Composites | None:
        """Join combinations with the windows that a cache spares; None if none is left.

        Of a hit the cache holds all rows, of a missing key it will: see ``_fill``. What has no
        memory, and rows that may not use their hits, are joined as without a cache.
        """
        started = time.perf_counter_ns()
        counts = self._report.uses.setdefault(cache, UseCounts())
        rows, keys = self._stores[cache.store], self._keys_of(joined)
        hashes, codes = keys.hashed(cache.store.key)
        entries, n_hits = rows.find(hashes, codes, self._batch_id)
        counts.n_rows += hashes.size
        counts.n_hits += n_hits
        counts.n_keys += n_hits
        missing = np.flatnonzero(entries < 0)
        unsupported = self._unsupported(cache, joined, entries, counts)
        entries[unsupported] = -1
        missing = self._fill(cache, keys, entries, missing, through)
        parts = [self._hits(rows, joined, entries)]
        if missing.size or unsupported.size:
            rest = joined.take(np.concatenate([missing, unsupported]))
            plain = through(rest, cache.start, cache.stop)
            parts += [] if plain is None else [plain]
        whole = Composites.concat(parts)
        counts.n_out += len(whole)
        counts.ns += time.perf_counter_ns() - started
        return whole if len(whole) else None

    def _fill(
        self,
        cache: Candidate,
        keys: Keys,
        entries: NDArray[np.int32],
        missing: NDArray[np.int64],
        through: Through,
    ) -> NDArray[np.int64]:
        """Join missing keys and keep what is found, as far as memory reaches.

        A missing key is joined without a time limit. The cache must serve later probes too, so the
        result may not be cut to the lifetime of the row that asked. Completes ``entries`` and
        returns the places of the keys that still have none.
        """
        counts, rows = self._report.uses[cache], self._stores[cache.store]
        hashes, codes = keys.hashed(cache.store.key)
        while missing.size:
            started = time.perf_counter_ns()
            fresh, firsts, n_refused = rows.admit(
                hashes[missing], codes.take(missing, axis=1), self._batch_id
            )
            counts.n_keys += firsts.size or n_refused
            if not firsts.size:
                break
            entries[missing], firsts = fresh, missing[firsts]
            seeds = Composites.seeds(keys.joined, firsts, cache.store.key, rows.horizon)
            found = through(seeds, cache.start, cache.stop)
            if found is not None:
                counts.n_put += len(found)
                filled = entries[firsts][found.rows[SEED]]
                rows.append(filled, *self._columns(rows, found), found.starts, found.ends)
            missing = missing[fresh < 0]
            counts.miss_ns += time.perf_counter_ns() - started
        return missing

    def _unsupported(
        self,
        cache: Candidate,
        joined: Composites,
        entries: NDArray[np.int32],
        counts: UseCounts,
    ) -> NDArray[np.int64]:
        """Return the places of combinations that may join more than their entries hold.

        An entry that is made now (-1 before) will hold everything.
        """
        if not cache.is_self_supporting or self._partners is None:
            return np.empty(0, np.int64)
        at = np.flatnonzero(entries >= 0)
        may_hit, n_asked = self._partners.ask(cache.pipeline, joined.rows[cache.pipeline][at])
        counts.n_asked += n_asked
        return at[~may_hit]

    def _hits(self, rows: KeptRows, joined: Composites, entries: NDArray[np.int32]) -> Composites:
        """Return combinations with the rows of their entries; those of entry -1 are left out."""
        at, kept = rows.pairs(entries, joined.starts, joined.ends)
        starts, ends = rows.lives(kept)
        refs, codes = joined.columns(at)
        codes |= {key: rows.codes(key, kept) for key in rows.extra}
        refs |= {
            name: self._numbers.positions(name, rows.refs(name, kept)) for name in rows.windows
        }
        starts = np.maximum(joined.starts[at], starts)
        return Composites(refs, codes, starts, np.minimum(joined.ends[at], ends))

    # -- taps -----------------------------------------------------------------------------------

    def _tap(self, pipeline: str, store: Store, rows: KeptRows, keys: Keys) -> None:
        """Put the combinations into a store whose keys it has."""
        started, counts = time.perf_counter_ns(), self._report.stores[store]
        joined, (hashes, codes) = keys.joined, keys.hashed(store.key)
        looked_up = self._untold(pipeline, store, joined)
        if looked_up is not None:
            hashes, codes = hashes[looked_up], codes.take(looked_up, axis=1)
        counts.n_seen += hashes.size
        if rows.n_entries and hashes.size:
            entries, _ = rows.find(hashes, codes)
            at = np.flatnonzero(entries >= 0)
            found = joined.take(at if looked_up is None else looked_up[at])
            counts.n_kept += self._add(pipeline, rows, entries[at], found)
        counts.ns += time.perf_counter_ns() - started

    def _untold(self, pipeline: str, store: Store, joined: Composites) -> NDArray[np.int64] | None:
        """Return the places of combinations whose rows a store may lack; None: of all of them."""
        if pipeline not in store.partners or self._partners is None:
            return None
        are_there = self._partners.known(pipeline, joined.rows[pipeline])
        return None if are_there is None else np.flatnonzero(~are_there)

    def _add(
        self, pipeline: str, rows: KeptRows, entries: NDArray[np.int32], found: Composites
    ) -> int:
        """Put combinations into the entries of their keys, and return how many."""
        partners = self._partners if rows.store.partners else None
        starts, ends = found.starts, found.ends
        if partners is not None:
            # Rows of a store live on when those of its partners do not.
            starts, ends = partners.lives(rows.windows, found)
        stay = np.flatnonzero(ends >= rows.horizon)
        if not stay.size:
            return 0
        if stay.size < len(found):
            found, entries = found.take(stay), entries[stay]
            starts, ends = starts[stay], ends[stay]
        columns = self._columns(rows, found)
        if partners is not None:
            # The same rows may come with one row of a partner after the other.
            are_new = pipeline in rows.store.windows
            rows.append_once(entries, *columns, starts, ends, are_new=are_new)
        else:
            rows.append(entries, *columns, starts, ends)
        return stay.size

    def _columns(
        self, rows: KeptRows, found: Composites
    ) -> tuple[list[NDArray[np.int64]], list[NDArray[np.int64]]]:
        """Return the numbers of the rows of each window, and the codes that a store keeps."""
        refs = [self._numbers.of(name, found.rows[name]) for name in rows.windows]
        return refs, [found.codes[key] for key in rows.extra]
