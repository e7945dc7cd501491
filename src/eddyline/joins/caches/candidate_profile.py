"""The profile of candidates: sampled keys, and changes that their stores would have to keep."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from eddyline.data.arrays import distinct
from eddyline.joins.caches.between_batches import SeenKeys, sampled_places
from eddyline.joins.caches.counts import ChangeCounts, KeyCounts, place_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from eddyline.joins.caches.between_batches import BucketCaches
    from eddyline.joins.caches.counts import CacheReport, Place
    from eddyline.joins.caches.keys import Keys
    from eddyline.joins.caches.prefix_invariant import Candidate, Store
    from eddyline.joins.caches.semijoin_partners import PartnerRows
    from eddyline.joins.operator.composites import Composites

FEWER_BITS = 2
"""One in 4 of the usual keys is sampled where only caches with partners would be asked: there are
more such caches, and they pay more rarely."""


class CandidateSamples:
    """Sampled keys (one in 2^bits) of one bucket during one batch; added to what is kept of it."""

    def __init__(
        self,
        profiled: Iterable[Candidate],
        bits: int,
        kept: BucketCaches,
        report: CacheReport,
    ) -> None:
        self.profiled = tuple(profiled)
        self._at: dict[Place, list[Candidate]] = {}
        for each in self.profiled:
            self._at.setdefault(place_of(each), []).append(each)
        self._stores = tuple(dict.fromkeys(each.store for each in self.profiled))
        self._bits = bits
        self._kept = kept
        self._report = report
        self._samples: dict[Place, list[NDArray[np.uint64]]] = {}
        self._changes: dict[Store, list[NDArray[np.uint64]]] = {}

    def take(self, pipeline: str, position: int, keys: Keys, partners: PartnerRows | None) -> None:
        """Note sampled keys where candidates would be asked, and changes they would keep.

        The keys are of the combinations that come to a position of the pipeline.
        """
        if not self.profiled:
            return
        started = time.perf_counter_ns()
        for place in self._at:
            if (pipeline, position) == place[:2]:
                hashes = keys.hashed(place[2])[0]
                at = self._seen(place).sampled(hashes)
                counts = self._report.keys.setdefault(place, KeyCounts())
                counts.n_rows += at.size
                counts.n_looked += at.size
                self._samples.setdefault(place, []).append(hashes[at])
                self._take_support(place, keys.joined, at, counts, partners)
        for store in self._stores:
            # Where a store has partners, all their combinations come by: too many to sample.
            is_told = pipeline in store.closed and store.tap == position
            if is_told and not store.partners:
                hashes = keys.hashed(store.key)[0]
                sampled = sampled_places(hashes, self._bits)
                self._changes.setdefault(store, []).append(hashes[sampled])
        self._report.profile_ns += time.perf_counter_ns() - started

    def _take_support(
        self,
        place: Place,
        joined: Composites,
        at: NDArray[np.int64],
        counts: KeyCounts,
        partners: PartnerRows | None,
    ) -> None:
        """Count the sampled rows that might use a hit, if some candidate there supports itself."""
        is_asked = any(each.is_self_supporting for each in self._at[place])
        if is_asked and partners is not None:
            positions = joined.rows[place[0]][at]
            may_hit, _ = partners.ask(place[0], positions)
            counts.n_asked += at.size
            counts.n_looked += at.size
            counts.n_supported += int(may_hit.sum())

    def _seen(self, place: Place) -> SeenKeys:
        is_rare = all(each.store.partners for each in self._at[place])
        bits = self._bits + (FEWER_BITS if is_rare else 0)
        seen = self._kept.seen.get(place)
        if seen is None:
            seen = self._kept.seen[place] = SeenKeys(bits)
        elif seen.bits < bits:
            seen.thin(bits)
        return seen

    def count(self, batch_id: int) -> None:
        """Count the samples of the batch, and remember its keys."""
        started = time.perf_counter_ns()
        for place in self._samples:
            seen, counts = self._seen(place), self._report.keys[place]
            hashes = distinct(np.concatenate(self._samples[place]))
            scale = 1 << seen.bits
            counts.n_new += seen.add(hashes, batch_id) * scale
            counts.n_rows *= scale
            counts.n_asked *= scale
            counts.n_supported *= scale
        for store, parts in self._changes.items():
            hashes = np.concatenate(parts)
            known = np.zeros(hashes.size, np.bool_)
            scale = 1 << self._bits
            for each in self.profiled:
                if each.store == store and place_of(each) in self._kept.seen:
                    known |= self._known(place_of(each), hashes)
            changes = self._report.changes.setdefault(store, ChangeCounts())
            changes.n_seen += hashes.size * scale
            changes.n_kept += int(known.sum()) * scale
        self._kept.seen = {
            place: seen for place, seen in self._kept.seen.items() if place in self._at
        }
        self._report.profile_ns += time.perf_counter_ns() - started

    def _known(self, place: Place, hashes: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Return for keys whether they would be kept; true if none of them is sampled any more."""
        seen = self._kept.seen[place]
        mask = np.uint64((1 << seen.bits) - 1)
        is_sampled = (hashes & mask) == 0
        return np.where(is_sampled, seen.has(hashes), not is_sampled.any())
