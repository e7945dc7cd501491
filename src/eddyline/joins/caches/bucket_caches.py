"""The caches of one bucket during one batch: look-ups, taps, and what is learned of candidates.

A cache must be as its pipeline sees the windows: with the new rows of those inputs that had their
turn. The inputs of a store have taps in their pipelines, so what their new rows change is put in
during their turn; the pipelines that ask it are those of other inputs [Babu05 5.4].
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from eddyline.joins.caches.between_batches import BucketCaches, put_back, taken
from eddyline.joins.caches.candidate_profile import CandidateSamples
from eddyline.joins.caches.counts import CacheReport, StoreCounts, UseCounts
from eddyline.joins.caches.hash_store import KeptRows
from eddyline.joins.caches.keys import Keys
from eddyline.joins.caches.prefix_invariant import are_compatible, is_sound, is_told
from eddyline.joins.caches.row_ids import RowNumbers
from eddyline.joins.caches.semijoin_partners import PartnerRows
from eddyline.joins.caches.worker_copies import read_copy, write_copy
from eddyline.state.rows import ALWAYS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray
    from pyarrow import fs

    from eddyline.joins.caches.counts import CachePlan
    from eddyline.joins.caches.prefix_invariant import Candidate, Pipelines, Store
    from eddyline.joins.graph import JoinGraph
    from eddyline.joins.operator.pipeline import Composites
    from eddyline.joins.plan import BatchPlan
    from eddyline.state.rows import SortedRun
    from eddyline.state.run_files import RunFile


def caches_of(
    plan: BatchPlan,
    files: fs.FileSystem,
    folder: str,
    bucket: int,
    before: Mapping[str, Sequence[RunFile]],
) -> CachedBatch | None:
    """Return the caches of a bucket in a batch; None if it uses none.

    Args:
        plan: of the batch.
        files: where the folder is.
        folder: of the query's window state.
        bucket: its number.
        before: the runs that it starts from, by input.
    """
    if plan.caches.is_empty:
        return None
    kept = taken(folder, bucket)
    names = {name: tuple(file.name for file in each) for name, each in before.items()}
    run = plan.caches.copies if is_on_this_machine(files) else ""
    if plan.moved is not None:
        kept = BucketCaches()  # what it holds is of other rows
    elif run and not kept.is_true_to(names):
        kept = read_copy(folder, bucket, run, plan.graph) or kept
    caches = CachedBatch(
        plan.caches, plan.graph, dict(plan.orders), plan.lows, plan.batch_id, names, kept
    )
    caches.place = (folder, bucket, run)
    return caches


def is_on_this_machine(files: fs.FileSystem) -> bool:
    """Return whether files are where all workers of this machine see them at once."""
    from pyarrow import fs  # noqa: PLC0415

    return isinstance(files, fs.LocalFileSystem)


class CachedBatch:
    """The caches of a bucket in a batch.

    Args:
        plan: what to do with them. What is not sound with the orders in force is left out.
        graph: what is joined with what.
        orders: the order of each pipeline.
        lows: for each stream, the instant before which no new row starts (µs).
        batch_id: of the batch.
        before: the names of the runs that it starts from, by input.
        kept: what was kept of the bucket, if anything; changed.
    """

    def __init__(
        self,
        plan: CachePlan,
        graph: JoinGraph,
        orders: Pipelines,
        lows: Mapping[str, int],
        batch_id: int,
        before: Mapping[str, Sequence[str]],
        kept: BucketCaches,
    ) -> None:
        self.graph, self.orders, self.batch_id = graph, orders, batch_id
        self.report = CacheReport()
        self.place: tuple[str, int, str] | None = None
        """The folder of the query's window state, the bucket, and the run whose workers get a copy
        of what is kept, if any; None if nothing is to be kept after the batch."""
        self._kept = kept
        self.used = _compatible(each for each in plan.used if is_sound(graph, orders, each))
        self._asked = {(each.pipeline, each.start): each for each in self.used}
        stores = {
            each
            for each in plan.stores
            if is_told(each, orders) and not any(cache.straddles(each) for cache in self.used)
        }
        profiled = [each for each in plan.profiled if is_sound(graph, orders, each)]
        self._samples = CandidateSamples(profiled, plan.sample_bits, kept, self.report)
        self._limits = plan.limits
        self._open(stores, lows, before)
        kept.latest = {name: at for name, at in kept.latest.items() if kept.is_at(name, before)}
        self._partners: PartnerRows | None = None

    def _open(
        self, stores: set[Store], lows: Mapping[str, int], before: Mapping[str, Sequence[str]]
    ) -> None:
        """Go on with the stores that are true to what is there, and begin the others anew."""
        opened = {}
        for store in sorted(stores, key=_by_name):
            limit = self._limits.get(store, 0)
            others = [low for name, low in lows.items() if name not in store.windows]
            horizon = min(others, default=ALWAYS)
            known = self._kept.stores.get(store)
            if known is None or not self._kept.fits(store, before) or horizon < known.horizon:
                known = KeptRows(store, self.graph, limit)
            self.report.stores[store] = StoreCounts(n_cold=int(known.n_entries == 0))
            known.limit = limit
            known.horizon = horizon
            opened[store] = known
        self._kept.stores = opened
        names = {name for store in opened for name in store.windows}
        self._numbers = RowNumbers(self._kept, names)

    # -- runs -----------------------------------------------------------------------------------

    def merged(
        self,
        name: str,
        runs: Mapping[str, SortedRun],
        horizon: int,
        made: Mapping[RunFile, SortedRun],
    ) -> None:
        """Follow rows of an input into another run; see ``RowNumbers.merged``."""
        if self._numbers.merged(name, runs, horizon, made):
            return
        for store, rows in self._kept.stores.items():
            if name in store.windows:
                self._kept.stores[store] = KeptRows(store, self.graph, rows.limit)
                self._kept.stores[store].horizon = rows.horizon

    def begin(
        self,
        files: Mapping[str, Sequence[RunFile]],
        windows: Mapping[str, Sequence[SortedRun]],
        news: Mapping[str, SortedRun],
    ) -> None:
        """Take in the windows.

        Args:
            files: those of the runs of each input before the batch, the oldest first.
            windows: these runs.
            news: the new rows of each input that has some.
        """
        profiled = any(each.is_self_supporting for each in self._samples.profiled)
        if profiled or any(store.partners for store in self._kept.stores):
            self._partners = PartnerRows(self.graph, windows, news, self._kept.latest)
        else:
            self._kept.latest = {}
        self._numbers.begin(files, windows, news)

    def finish(self, after: Mapping[str, Sequence[RunFile]]) -> BucketCaches:
        """Return what to keep for the next batch, and complete the report.

        Args:
            after: the runs of each input after the batch.
        """
        self._samples.count(self.batch_id)
        for store, rows in self._kept.stores.items():
            started, counts = time.perf_counter_ns(), self.report.stores[store]
            rows.expire(rows.horizon, self.batch_id)
            counts.n_entries, counts.n_rows = rows.n_entries, rows.n_rows
            counts.n_bytes = rows.n_bytes
            counts.ns += time.perf_counter_ns() - started
        self._kept.after = {
            name: tuple(file.name for file in files) for name, files in after.items()
        }
        return self._kept

    def close(self, after: Mapping[str, Sequence[RunFile]]) -> CacheReport:
        """Keep what is to be kept for the next batch, and return what was done.

        Args:
            after: the runs of each input after the batch.
        """
        kept = self.finish(after)
        if self.place is None:
            return self.report
        folder, bucket, run = self.place
        put_back(folder, bucket, kept)
        if run:
            started = time.perf_counter_ns()
            write_copy(folder, bucket, run, kept)
            ns = time.perf_counter_ns() - started
            n_bytes = max(sum(rows.n_bytes for rows in kept.stores.values()), 1)
            for store, rows in kept.stores.items():
                self.report.stores[store].ns += ns * rows.n_bytes // n_bytes
        return self.report

    # -- pipelines ------------------------------------------------------------------------------

    def asked(self, pipeline: str, position: int, joined: Composites) -> Candidate | None:
        """Return the cache that stands at a position of a pipeline, if there is one."""
        cache = self._asked.get((pipeline, position))
        if cache is None or not len(joined):
            return None
        # What ended before was removed. No stream brings a row that starts before; see ``lows``.
        is_within = int(joined.starts.min()) >= self._kept.stores[cache.store].horizon
        return cache if is_within else None

    @staticmethod
    def keys(joined: Composites) -> Keys:
        """Return the keys of combinations."""
        return Keys(joined)

    def passed(self, pipeline: str, position: int, keys: Keys) -> None:
        """Take in what comes to a position of a pipeline: changes of stores, and keys to count."""
        for store, rows in self._kept.stores.items():
            if pipeline in store.closed and store.tap == position:
                self._tap(pipeline, store, rows, keys)
        self._samples.take(pipeline, position, keys, self._partners)

    def use(self, cache: Candidate) -> UseCounts:
        """Return what a cache did so far; counted into by the caller as well."""
        return self.report.uses.setdefault(cache, UseCounts())

    def found(self, cache: Candidate, keys: Keys) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Look keys up.

        Returns:
            The entry of each, -1 without one; and the places of those that have none.
        """
        hashes, codes = keys.of(cache.store.key)
        counts = self.use(cache)
        entries, n_hits = self._kept.stores[cache.store].find(hashes, codes, self.batch_id)
        counts.n_rows += hashes.size
        counts.n_hits += n_hits
        counts.n_keys += n_hits
        return entries, np.flatnonzero(entries < 0)

    def alone(
        self, cache: Candidate, joined: Composites, entries: NDArray[np.int32]
    ) -> NDArray[np.int64]:
        """Return the places of combinations that may join more than their entries hold.

        Args:
            cache: the cache.
            joined: the combinations that came to it.
            entries: of each, -1 without one: one that is made now holds all.
        """
        if not cache.is_self_supporting or self._partners is None:
            return np.empty(0, np.int64)
        at = np.flatnonzero(entries >= 0)
        may_hit, n_asked = self._partners.ask(cache.pipeline, joined.rows[cache.pipeline][at])
        self.use(cache).n_asked += n_asked
        return at[~may_hit]

    def admitted(
        self, cache: Candidate, keys: Keys, missing: NDArray[np.int64]
    ) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Make entries for keys that are not kept, as far as memory reaches.

        Args:
            cache: the cache.
            keys: the keys that came to it.
            missing: the places of those that are not kept.

        Returns:
            The entries of the latter, -1 for those that get none; and for each new entry, which has
            to be filled, the place of its key.
        """
        hashes, codes = keys.of(cache.store.key)
        entries, firsts, n_refused = self._kept.stores[cache.store].admit(
            hashes[missing], codes.take(missing, axis=1), self.batch_id
        )
        self.use(cache).n_keys += firsts.size + (0 if firsts.size else n_refused)
        return entries, missing[firsts]

    def horizon(self, cache: Candidate) -> int:
        """Return the instant before which joined rows may be missing (µs)."""
        return self._kept.stores[cache.store].horizon

    def fill(self, cache: Candidate, entries: NDArray[np.int32], found: Composites) -> None:
        """Put the joined rows of new entries in."""
        self.use(cache).n_put += len(found)
        rows = self._kept.stores[cache.store]
        rows.append(entries, *self._columns(rows, found), found.starts, found.ends)

    def hits(self, cache: Candidate, joined: Composites, entries: NDArray[np.int32]) -> Composites:
        """Return combinations with what is kept for them; with an entry of -1 that is nothing."""
        rows = self._kept.stores[cache.store]
        at, kept = rows.pairs(entries, joined.starts, joined.ends)
        starts, ends = rows.lives(kept)
        refs, codes = joined.parts(at)
        codes |= {key: rows.codes(key, kept) for key in rows.extra}
        refs |= {
            name: self._numbers.positions(name, rows.refs(name, kept)) for name in rows.windows
        }
        starts = np.maximum(joined.starts[at], starts)
        return type(joined)(refs, codes, starts, np.minimum(joined.ends[at], ends))

    def _tap(self, pipeline: str, store: Store, rows: KeptRows, keys: Keys) -> None:
        started, counts = time.perf_counter_ns(), self.report.stores[store]
        joined, (hashes, codes) = keys.joined, keys.of(store.key)
        looked_up = self._untold(pipeline, store, joined)
        if looked_up is not None:
            hashes, codes = hashes[looked_up], codes.take(looked_up, axis=1)
        counts.n_seen += hashes.size
        if rows.n_entries and hashes.size:
            entries, _ = rows.find(hashes, codes)
            at = np.flatnonzero(entries >= 0)
            found = joined.taken(at if looked_up is None else looked_up[at])
            counts.n_kept += self._add(pipeline, store, entries[at], found)
        counts.ns += time.perf_counter_ns() - started

    def _untold(self, pipeline: str, store: Store, joined: Composites) -> NDArray[np.int64] | None:
        """Return the places of combinations whose rows of a store may not be there; None if all."""
        if pipeline not in store.partners or self._partners is None:
            return None
        are_there = self._partners.known(pipeline, joined.rows[pipeline])
        return None if are_there is None else np.flatnonzero(~are_there)

    def _add(
        self, pipeline: str, store: Store, entries: NDArray[np.int32], found: Composites
    ) -> int:
        """Put in what a tap saw and return how much; see ``_tap``."""
        rows = self._kept.stores[store]
        starts, ends = found.starts, found.ends
        if store.partners and self._partners is not None:
            # Rows of a store live on when those of its partners do not.
            starts, ends = self._partners.lives(rows.windows, found)
        stay = np.flatnonzero(ends >= rows.horizon)
        if not stay.size:
            return 0
        if stay.size < len(found):
            found, entries = found.taken(stay), entries[stay]
            starts, ends = starts[stay], ends[stay]
        columns = self._columns(rows, found)
        if store.partners:
            # It may be seen with one row of a partner after the other.
            are_new = pipeline in store.windows
            rows.append_once(entries, *columns, starts, ends, are_new=are_new)
        else:
            rows.append(entries, *columns, starts, ends)
        return stay.size

    def _columns(
        self, rows: KeptRows, found: Composites
    ) -> tuple[list[NDArray[np.int64]], list[NDArray[np.int64]]]:
        refs = [self._numbers.of(name, found.rows[name]) for name in rows.windows]
        return refs, [found.codes[key] for key in rows.extra]


def _compatible(caches: Iterable[Candidate]) -> tuple[Candidate, ...]:
    """Return the caches without those that one before them excludes."""
    found: list[Candidate] = []
    for each in caches:
        if all(are_compatible(each, other) for other in found):
            found.append(each)
    return tuple(found)


def _by_name(store: Store) -> tuple[list[str], tuple[int, ...], list[str]]:
    return sorted(store.windows), store.key, sorted(store.closed)
