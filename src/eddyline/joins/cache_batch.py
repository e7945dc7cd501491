"""The caches of one bucket during one batch: look-ups, taps, and what is learned of candidates.

A cache must be as its pipeline sees the windows: with the new rows of those inputs that had their
turn. The inputs of a store have taps in their pipelines, so what their new rows change is put in
during their turn; the pipelines that ask it are those of other inputs [Babu05 5.4].

What rows a store refers to is said by numbers that outlast batches: each run has some of its own.
Positions in a window, which results are put together by, are other ones in each batch.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from eddyline.joins.cache_counts import (
    CacheReport,
    ChangeCounts,
    KeyCounts,
    StoreCounts,
    UseCounts,
    place_of,
)
from eddyline.joins.cache_files import read_copy, write_copy
from eddyline.joins.cache_keeper import BucketCaches, SeenKeys, put_back, taken
from eddyline.joins.cache_partners import PartnerRows
from eddyline.joins.cache_store import KeptRows
from eddyline.joins.closed_sets import are_compatible, is_sound, is_told
from eddyline.joins.index import Index
from eddyline.joins.rows import ALWAYS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray
    from pyarrow import fs

    from eddyline.joins.bucket import BatchPlan
    from eddyline.joins.cache_counts import CachePlan, Place
    from eddyline.joins.closed_sets import Candidate, Pipelines, Store
    from eddyline.joins.graph import JoinGraph
    from eddyline.joins.pipeline import Composites
    from eddyline.joins.rows import SortedRun
    from eddyline.joins.run_files import RunFile


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


FEWER_BITS = 2
"""One in 4 of the keys that are sampled elsewhere is, where only caches with partners would stand:
there are more of them, and they pay more rarely."""

NEWS = ""
"""The name of the run of new rows, until it is written."""


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
        self._profiled = tuple(each for each in plan.profiled if is_sound(graph, orders, each))
        self._limits = plan.limits
        self._bits = plan.sample_bits
        self._open(stores, lows, before)
        kept.latest = {name: at for name, at in kept.latest.items() if kept.is_at(name, before)}
        self._partners: PartnerRows | None = None
        self._samples: dict[Place, list[NDArray[np.uint64]]] = {}
        self._changes: dict[Store, list[NDArray[np.uint64]]] = {}
        self._offsets: dict[str, NDArray[np.int64]] = {}
        self._shifts: dict[str, NDArray[np.int64]] = {}

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
        self._names = {name for store in opened for name in store.windows}
        for name in [name for name in self._kept.numbers if name not in self._names]:
            del self._kept.numbers[name]

    # -- runs -----------------------------------------------------------------------------------

    def merged(
        self,
        name: str,
        runs: Mapping[str, SortedRun],
        horizon: int,
        made: Mapping[RunFile, SortedRun],
    ) -> None:
        """Follow rows of an input into another run.

        Args:
            name: the input.
            runs: those that become one, by name; ``NEWS`` is that of the new rows.
            horizon: rows that end before it are left out (µs).
            made: it and its file; nothing if no row is left.
        """
        if name not in self._names:
            return
        numbers = self._kept.numbers.setdefault(name, {})
        for file, run in made.items():
            places = _places(list(runs.values()), horizon, run)
            if places is None or not numbers.keys() >= runs.keys():
                self._begin_anew(name)  # its rows cannot be followed
                continue
            bases = np.array([numbers[each] for each in runs])
            sizes = np.array([len(each) for each in runs.values()])
            renamed = places + self._kept.number(name, file.name, len(run))
            for rows in self._kept.stores.values():
                rows.renumber(name, bases, sizes, renamed)
        for each in runs:
            numbers.pop(each, None)

    def _begin_anew(self, name: str) -> None:
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
        profiled = any(each.is_self_supporting for each in self._profiled)
        if profiled or any(store.partners for store in self._kept.stores):
            self._partners = PartnerRows(self.graph, windows, news, self._kept.latest)
        else:
            self._kept.latest = {}
        for name in self._names:
            runs = [file.name for file in files.get(name, ())]
            opened = dict(zip(runs, windows.get(name, ()), strict=True))
            if name in news:
                opened[NEWS] = news[name]
            numbers = self._kept.numbers.setdefault(name, {})
            numbers.pop(NEWS, None)
            for gone in [run for run in numbers if run not in opened]:
                del numbers[gone]
            sizes = [len(run) for run in opened.values()]
            firsts = [self._kept.number(name, run, len(of)) for run, of in opened.items()]
            self._offsets[name] = np.cumsum([0, *sizes[:-1]]) if sizes else np.empty(0, np.int64)
            self._shifts[name] = np.array(firsts, np.int64) - self._offsets[name]

    def finish(self, after: Mapping[str, Sequence[RunFile]]) -> BucketCaches:
        """Return what to keep for the next batch, and complete the report.

        Args:
            after: the runs of each input after the batch.
        """
        started = time.perf_counter_ns()
        self._count_samples()
        self.report.profile_ns += time.perf_counter_ns() - started
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
        if self._profiled:
            started = time.perf_counter_ns()
            self._sample(pipeline, position, keys)
            self.report.profile_ns += time.perf_counter_ns() - started

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
        refs |= {name: self._positions(name, rows.refs(name, kept)) for name in rows.windows}
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
        refs = [self._numbers(name, found.rows[name]) for name in rows.windows]
        return refs, [found.codes[key] for key in rows.extra]

    def _numbers(self, name: str, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        from eddyline.joins.cache_kernels import moved  # noqa: PLC0415

        return moved(positions, self._offsets[name], self._shifts[name])

    def _positions(self, name: str, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        from eddyline.joins.cache_kernels import moved  # noqa: PLC0415

        firsts = self._offsets[name] + self._shifts[name]
        order = np.argsort(firsts)
        return moved(numbers, firsts[order], -self._shifts[name][order])

    # -- profiles -------------------------------------------------------------------------------

    def _sample(self, pipeline: str, position: int, keys: Keys) -> None:
        """Note sampled keys where candidates would be asked, and changes they would keep."""
        done: set[Place] = set()
        for each in self._profiled:
            place, store = place_of(each), each.store
            if (pipeline, position) == place[:2] and place not in done:
                done.add(place)
                hashes = keys.of(store.key)[0]
                at = self._seen(place).sampled(hashes)
                counts = self.report.keys.setdefault(place, KeyCounts())
                counts.n_rows += at.size
                counts.n_looked += at.size
                self._samples.setdefault(place, []).append(np.unique(hashes[at]))
                self._sample_support(place, keys.joined, at, counts)
        stores = dict.fromkeys(each.store for each in self._profiled)
        for store in stores:
            # Where a store has partners all their combinations come by: too many to look at.
            is_told = pipeline in store.closed and store.tap == position
            if is_told and not store.partners:
                mask = np.uint64((1 << self._bits) - 1)
                hashes = keys.of(store.key)[0]
                sampled = hashes[(hashes & mask) == 0]
                self._changes.setdefault(store, []).append(sampled)

    def _sample_support(
        self, place: Place, joined: Composites, at: NDArray[np.int64], counts: KeyCounts
    ) -> None:
        """Count which sampled rows might use a hit, where some candidate asks for that."""
        is_asked = any(
            place_of(each) == place for each in self._profiled if each.is_self_supporting
        )
        if is_asked and self._partners is not None:
            positions = joined.rows[place[0]][at]
            may_hit, _ = self._partners.ask(place[0], positions)
            counts.n_asked += at.size
            counts.n_looked += at.size
            counts.n_supported += int(may_hit.sum())

    def _seen(self, place: Place) -> SeenKeys:
        here = [each for each in self._profiled if place_of(each) == place]
        is_rare = all(each.store.partners for each in here)
        bits = self._bits + (FEWER_BITS if is_rare else 0)
        seen = self._kept.seen.get(place)
        if seen is None:
            seen = self._kept.seen[place] = SeenKeys(bits)
        elif seen.bits < bits:
            seen.thin(bits)
        return seen

    def _count_samples(self) -> None:
        places = {place_of(each) for each in self._profiled}
        for place in places & set(self._samples):
            seen, counts = self._seen(place), self.report.keys[place]
            hashes = np.unique(np.concatenate(self._samples[place]))
            scale = 1 << seen.bits
            counts.n_keys += hashes.size * scale
            counts.n_new += int((~seen.has(hashes)).sum()) * scale
            counts.n_rows *= scale
            counts.n_asked *= scale
            counts.n_supported *= scale
            counts.n_batches += seen.n_batches
            counts.n_buckets += 1
            seen.add(hashes, self.batch_id)
        for store, parts in self._changes.items():
            hashes = np.concatenate(parts)
            known = np.zeros(hashes.size, np.bool_)
            scale = 1 << self._bits
            for each in self._profiled:
                if each.store == store and place_of(each) in self._kept.seen:
                    known |= self._known(place_of(each), hashes)
            changes = self.report.changes.setdefault(store, ChangeCounts())
            changes.n_seen += hashes.size * scale
            changes.n_kept += int(known.sum()) * scale
        self._kept.seen = {place: of for place, of in self._kept.seen.items() if place in places}

    def _known(self, place: Place, hashes: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Return which keys would be kept; those that are not sampled any more, as the others."""
        seen = self._kept.seen[place]
        mask = np.uint64((1 << seen.bits) - 1)
        is_sampled = (hashes & mask) == 0
        return np.where(is_sampled, seen.has(hashes), not is_sampled.any())


class Keys:
    """The keys of combinations, made when they are first asked for."""

    def __init__(self, joined: Composites) -> None:
        self.joined = joined
        self._made: dict[tuple[int, ...], tuple[NDArray[np.uint64], NDArray[np.int64]]] = {}

    def of(self, key: tuple[int, ...]) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        """Return hash and codes of each key."""
        from eddyline.joins.cache_kernels import key_hashes  # noqa: PLC0415

        if key not in self._made:
            codes = [self.joined.codes[each] for each in key]
            # A key of one class is not copied.
            stacked = (
                np.ascontiguousarray(codes[0])[np.newaxis] if len(codes) == 1 else np.stack(codes)
            )
            self._made[key] = key_hashes(stacked), stacked
        return self._made[key]


def _compatible(caches: Iterable[Candidate]) -> tuple[Candidate, ...]:
    """Return the caches without those that one before them excludes."""
    found: list[Candidate] = []
    for each in caches:
        if all(are_compatible(each, other) for other in found):
            found.append(each)
    return tuple(found)


def _by_name(store: Store) -> tuple[list[str], tuple[int, ...], list[str]]:
    return sorted(store.windows), store.key, sorted(store.closed)


def _places(runs: Sequence[SortedRun], horizon: int, made: SortedRun) -> NDArray[np.int64] | None:
    """Return the row of a merged run that each row of the runs is; far below 0 if it is gone.

    None if it is not made of those.
    """
    key, codes = next(iter(made.rows.codes.items()))
    stay = np.concatenate([run.rows.ends for run in runs]) >= horizon
    before = [
        np.concatenate(parts)[stay]
        for parts in (
            [run.rows.codes[key] for run in runs],
            [run.rows.starts for run in runs],
            [run.rows.ends for run in runs],
        )
    ]
    order = Index.of(before[0], before[1], before[2]).rows
    after = (codes, made.rows.starts, made.rows.ends)
    if not all(np.array_equal(old[order], new) for old, new in zip(before, after, strict=True)):
        return None
    found = np.full(stay.size, _GONE)
    places = np.empty(order.size, np.int64)
    places[order] = np.arange(order.size)
    found[stay] = places
    return found


_GONE = -(1 << 62)
"""Added to a number it stays far below all that are given."""
