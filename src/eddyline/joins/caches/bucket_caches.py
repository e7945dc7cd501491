"""The caches of one bucket during one batch: opened, met by pipelines, kept true, closed.

``CachedBatch`` opens the stores that an earlier batch left in the memory of this process, and
nowhere else (``take_out``, ``put_back``). ``CachedProbes`` are the two verbs that a pipeline knows:
look-ups that spare probes, and taps that fill a store. ``CandidateSamples`` profile candidates by
sampled keys. ``RowNumbers`` are the numbers by which stores refer to rows of windows.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from eddyline.data.arrays import distinct
from eddyline.data.jit import compiled
from eddyline.joins.caches.hash_store import KeptRows, Keys
from eddyline.joins.caches.prefix_invariant import PartnerRows, are_compatible, is_sound, is_told
from eddyline.joins.operator.composites import SEED, Composites
from eddyline.joins.operator.pipeline import Stage
from eddyline.joins.plan import (
    CacheReport,
    ChangeCounts,
    KeyCounts,
    StoreCounts,
    UseCounts,
    place_of,
)
from eddyline.state.rows import ALWAYS
from eddyline.state.run_index import Index

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from eddyline.joins.caches.prefix_invariant import Candidate, Store
    from eddyline.joins.operator.pipeline import Through
    from eddyline.joins.plan import BatchPlan, BucketReport, CachePlace
    from eddyline.state.rows import SortedRun
    from eddyline.state.run_files import RunFile


class CachedBatch(Stage):
    """The caches of a bucket in a batch that starts from the runs ``before`` (by input).

    Caches of the plan that are not sound with the orders in force are left out, and stores that
    are not true to the runs of the bucket begin anew.
    """

    shortcut: CachedProbes | None = None
    """Spares pipelines probes, once the windows are known."""

    def __init__(
        self,
        plan: BatchPlan,
        report: BucketReport,
        folder: str,
        before: Mapping[str, Sequence[RunFile]],
    ) -> None:
        self._plan, self._bucket = plan, report
        self._place = folder, report.bucket
        kept = take_out(*self._place)
        # Where rows were moved between buckets, the caches are of other rows.
        self._kept = kept if plan.moved is None else BucketCaches()
        self._report = CacheReport()
        graph, orders, caches = plan.graph, dict(plan.orders), plan.caches
        self._used = _compatible(cache for cache in caches.used if is_sound(graph, orders, cache))
        profiled = [cache for cache in caches.profiled if is_sound(graph, orders, cache)]
        self._samples = CandidateSamples(profiled, caches.sample_bits, self._kept, self._report)
        stores = {
            store
            for store in caches.stores
            if is_told(store, orders) and not any(cache.straddles(store) for cache in self._used)
        }
        names = {name: tuple(file.name for file in files) for name, files in before.items()}
        self._open(stores, names)
        self._kept.latest = {
            name: last for name, last in self._kept.latest.items() if self._kept.is_at(name, names)
        }
        self._numbers = RowNumbers(self._kept, {name for store in stores for name in store.windows})

    def _open(self, stores: set[Store], before: Mapping[str, Sequence[str]]) -> None:
        """Go on with the stores that are true to the runs, and begin the others anew."""
        opened = {}
        for store in sorted(stores, key=_by_name):
            others = [low for name, low in self._plan.lows.items() if name not in store.windows]
            horizon = min(others, default=ALWAYS)
            rows = self._kept.stores.get(store)
            if rows is None or not self._kept.fits(store, before) or horizon < rows.horizon:
                rows = KeptRows(store, self._plan.graph)
            self._report.stores[store] = StoreCounts()
            rows.limit = self._plan.caches.limits.get(store, 0)
            rows.horizon = horizon
            opened[store] = rows
        self._kept.stores = opened

    def moved(
        self,
        name: str,
        runs: Mapping[str, SortedRun],
        horizon: int,
        rewritten: Mapping[RunFile, SortedRun],
    ) -> None:
        """Follow rows of an input into another run; see ``RowNumbers.follow``."""
        if self._numbers.follow(name, runs, horizon, rewritten):
            return
        for store, rows in self._kept.stores.items():
            if name in store.windows:
                rows.clear()

    def before_probe(
        self, windows: Mapping[str, Sequence[SortedRun]], news: Mapping[str, SortedRun]
    ) -> None:
        """Take in the windows, and make the shortcut of the pipelines."""
        partners = None
        profiled = any(cache.is_self_supporting for cache in self._samples.profiled)
        if profiled or any(store.partners for store in self._kept.stores):
            partners = PartnerRows(self._plan.graph, windows, news, self._kept.latest)
        else:
            self._kept.latest = {}
        self._numbers.begin(self._bucket.after.runs, windows, news)
        self.shortcut = CachedProbes(
            self._used,
            self._kept.stores,
            self._numbers,
            self._samples,
            partners,
            self._report,
            self._plan.batch_id,
        )

    def end(self) -> None:
        """Keep the caches, true to the runs after the batch, and report the counts of this one."""
        self._samples.count(self._plan.batch_id)
        for store, rows in self._kept.stores.items():
            started, counts = time.perf_counter_ns(), self._report.stores[store]
            rows.expire(rows.horizon, self._plan.batch_id)
            counts.n_entries, counts.n_rows = rows.n_entries, rows.n_rows
            counts.n_bytes = rows.n_bytes
            counts.ns += time.perf_counter_ns() - started
        after = self._bucket.after.runs
        self._kept.after = {
            name: tuple(file.name for file in files) for name, files in after.items()
        }
        put_back(*self._place, self._kept)
        self._bucket.caches = self._report


def _compatible(caches: Iterable[Candidate]) -> tuple[Candidate, ...]:
    """Return the caches without those that one before them excludes."""
    compatible: list[Candidate] = []
    for cache in caches:
        if all(are_compatible(cache, other) for other in compatible):
            compatible.append(cache)
    return tuple(compatible)


def _by_name(store: Store) -> tuple[list[str], tuple[int, ...], list[str]]:
    return sorted(store.windows), store.key, sorted(store.closed)


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
        self._used = {(cache.pipeline, cache.start): cache for cache in used}
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
            joined = through(seeds, cache.start, cache.stop)
            if joined is not None:
                counts.n_put += len(joined)
                filled = entries[firsts][joined.rows[SEED]]
                rows.append(filled, *self._columns(rows, joined), joined.starts, joined.ends)
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
        hits = np.flatnonzero(entries >= 0)
        may_hit, n_asked = self._partners.ask(cache.pipeline, joined.rows[cache.pipeline][hits])
        counts.n_asked += n_asked
        return hits[~may_hit]

    def _hits(self, rows: KeptRows, joined: Composites, entries: NDArray[np.int32]) -> Composites:
        """Return combinations with the rows of their entries; those of entry -1 are left out."""
        probes, kept = rows.pairs(entries, joined.starts, joined.ends)
        starts, ends = rows.lives(kept)
        refs, codes = joined.columns(probes)
        codes |= {key: rows.codes(key, kept) for key in rows.extra}
        refs |= {
            name: self._numbers.positions(name, rows.refs(name, kept)) for name in rows.windows
        }
        starts = np.maximum(joined.starts[probes], starts)
        return Composites(refs, codes, starts, np.minimum(joined.ends[probes], ends))

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
            hits = np.flatnonzero(entries >= 0)
            composites = joined.take(hits if looked_up is None else looked_up[hits])
            counts.n_kept += self._add(pipeline, rows, entries[hits], composites)
        counts.ns += time.perf_counter_ns() - started

    def _untold(self, pipeline: str, store: Store, joined: Composites) -> NDArray[np.int64] | None:
        """Return the places of combinations whose rows a store may lack; None: of all of them."""
        if pipeline not in store.partners or self._partners is None:
            return None
        are_there = self._partners.known(pipeline, joined.rows[pipeline])
        return None if are_there is None else np.flatnonzero(~are_there)

    def _add(
        self, pipeline: str, rows: KeptRows, entries: NDArray[np.int32], composites: Composites
    ) -> int:
        """Put combinations into the entries of their keys, and return how many."""
        if not len(composites):
            return 0
        partners = self._partners if rows.store.partners else None
        starts, ends = composites.starts, composites.ends
        if partners is not None:
            # Rows of a store live on when those of its partners do not.
            starts, ends = partners.lives(rows.windows, composites)
        stay = np.flatnonzero(ends >= rows.horizon)
        if not stay.size:
            return 0
        if stay.size < len(composites):
            composites, entries = composites.take(stay), entries[stay]
            starts, ends = starts[stay], ends[stay]
        known_from = None
        if partners is not None:
            # The same rows may come with one row of a partner after the other. A row of the store
            # that is new itself was in nothing before.
            known_from = rows.n_rows if pipeline in rows.store.windows else 0
        rows.append(entries, *self._columns(rows, composites), starts, ends, known_from=known_from)
        return stay.size

    def _columns(
        self, rows: KeptRows, composites: Composites
    ) -> tuple[list[NDArray[np.int64]], list[NDArray[np.int64]]]:
        """Return the numbers of the rows of each window, and the codes that a store keeps."""
        refs = [self._numbers.numbers(name, composites.rows[name]) for name in rows.windows]
        return refs, [composites.codes[key] for key in rows.extra]


MOST_KEPT = 32
"""Most buckets of which a process keeps caches: the ones that it worked on last."""

REMEMBERED = 32
"""Batches for which a sampled key is remembered."""

MOST_REMEMBERED = 1 << 15
"""Most sampled keys that are remembered at a place; beyond that fewer keys are sampled."""

RunNames = dict[str, tuple[str, ...]]
"""The names of the runs of each input."""


@dataclass(slots=True)
class SeenKeys:
    """Sampled keys of the latest batches at one place."""

    bits: int
    """One in 2^bits keys is sampled."""
    hashes: NDArray[np.uint64] = field(default_factory=lambda: np.empty(0, np.uint64))
    """Ascending."""
    last: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    """The batch in which each came last."""

    def has(self, hashes: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Return for each key whether it is remembered."""
        if not self.hashes.size:
            return np.zeros(hashes.size, np.bool_)
        places = np.minimum(self.hashes.searchsorted(hashes), self.hashes.size - 1)
        return np.equal(self.hashes[places], hashes)

    def sampled(self, hashes: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Return the places of the hashes of keys that are sampled."""
        return sampled_places(hashes, self.bits)

    def add(self, hashes: NDArray[np.uint64], batch_id: int) -> int:
        """Remember the keys of a batch (distinct, ascending hashes); returns how many are new."""
        is_known = self.has(hashes)
        self.last[self.hashes.searchsorted(hashes[is_known])] = batch_id
        fresh = hashes[~is_known]
        stay = self.last > batch_id - REMEMBERED
        remembered = np.concatenate([self.hashes[stay], fresh])
        last = np.concatenate([self.last[stay], np.full(fresh.size, batch_id)])
        order = np.argsort(remembered, kind="stable")
        self.hashes, self.last = remembered[order], last[order]
        while self.hashes.size > MOST_REMEMBERED:
            self.thin(self.bits + 1)
        return fresh.size

    def thin(self, bits: int) -> None:
        """Go on with fewer keys: one in 2^bits, which may not be more than before."""
        self.bits = bits
        stay = (self.hashes & np.uint64((1 << bits) - 1)) == 0
        self.hashes, self.last = self.hashes[stay], self.last[stay]


@dataclass(slots=True)
class BucketCaches:
    """The caches of one bucket, and the profile of candidates."""

    stores: dict[Store, KeptRows] = field(default_factory=dict)
    after: RunNames = field(default_factory=dict)
    """The runs that the stores are true to."""
    numbers: dict[str, dict[str, int]] = field(default_factory=dict)
    """By input and run, the number of its first row; no two runs of an input share a number."""
    next_number: dict[str, int] = field(default_factory=dict)
    """By input, the first number that was never given."""
    latest: dict[str, int] = field(default_factory=dict)
    """By input, the latest start of a row in the runs that ``after`` names, or later (µs)."""
    seen: dict[CachePlace, SeenKeys] = field(default_factory=dict)
    """Sampled keys where candidates are profiled."""

    def fits(self, store: Store, before: Mapping[str, Sequence[str]]) -> bool:
        """Return whether a store is true to the runs that a batch starts from.

        The runs of its partners count as well: their new rows may need what was never put in.
        """
        return all(self.is_at(name, before) for name in store.closed)

    def is_at(self, name: str, before: Mapping[str, Sequence[str]]) -> bool:
        """Return whether the runs of an input are those that a batch starts from."""
        return self.after.get(name, ()) == tuple(before.get(name, ()))

    def number(self, name: str, run: str, n_rows: int) -> int:
        """Return the number of the first row of a run, a new one if it has none."""
        numbers = self.numbers.setdefault(name, {})
        if run not in numbers:
            numbers[run] = self.next_number.get(name, 0)
            self.next_number[name] = numbers[run] + n_rows
        return numbers[run]


_kept: OrderedDict[tuple[str, int], BucketCaches] = OrderedDict()
_lock = threading.Lock()


def take_out(folder: str, bucket: int) -> BucketCaches:
    """Return the caches of a bucket, which are not kept any more; empty ones if there are none."""
    with _lock:
        return _kept.pop((folder, bucket), None) or BucketCaches()


def put_back(folder: str, bucket: int, caches: BucketCaches) -> None:
    """Keep the caches of a bucket for its next batch."""
    with _lock:
        _kept[folder, bucket] = caches
        while len(_kept) > MOST_KEPT:
            _kept.popitem(last=False)


def forget() -> None:
    """Drop the caches of all buckets."""
    with _lock:
        _kept.clear()


@compiled
def sampled_places(hashes: NDArray[np.uint64], bits: int) -> NDArray[np.int64]:
    """Return the places of hashes whose last bits, so many of them, are all 0."""
    mask, n = np.uint64((1 << bits) - 1), 0
    places = np.empty(hashes.size, np.int64)
    for place in range(hashes.size):
        places[n] = place
        n += (hashes[place] & mask) == np.uint64(0)
    return places[:n].copy()


NEWS = ""
"""The name of the run of new rows, until it is written."""


_GONE = -(1 << 62)
"""Place of a row that is gone: with any number added, it is below all numbers that are given."""


class RowNumbers:
    """The numbers of the rows of some inputs in one bucket during one batch."""

    def __init__(self, kept: BucketCaches, names: Collection[str]) -> None:
        self.names = names
        self._kept = kept
        self._offsets: dict[str, NDArray[np.int64]] = {}
        self._shifts: dict[str, NDArray[np.int64]] = {}
        for name in [name for name in kept.numbers if name not in names]:
            del kept.numbers[name]

    def follow(
        self,
        name: str,
        runs: Mapping[str, SortedRun],
        horizon: int,
        rewritten: Mapping[RunFile, SortedRun],
    ) -> bool:
        """Follow rows of an input into another run; returns whether they could be followed.

        If not, stores that refer to them have to begin anew. Rows that end before the horizon (µs)
        are left out; nothing is made if no row is left. ``NEWS`` names the run of the new rows.
        """
        if name not in self.names:
            return True
        are_followed = True
        numbers = self._kept.numbers.setdefault(name, {})
        for file, run in rewritten.items():
            places = _places(list(runs.values()), horizon, run)
            if places is None or not numbers.keys() >= runs.keys():
                are_followed = False
                continue
            bases = np.array([numbers[old] for old in runs])
            sizes = np.array([len(old) for old in runs.values()])
            renamed = places + self._kept.number(name, file.name, len(run))
            for rows in self._kept.stores.values():
                rows.renumber(name, bases, sizes, renamed)
        for old in runs:
            numbers.pop(old, None)
        return are_followed

    def begin(
        self,
        files: Mapping[str, Sequence[RunFile]],
        windows: Mapping[str, Sequence[SortedRun]],
        news: Mapping[str, SortedRun],
    ) -> None:
        """Take in the windows; see ``CachedBatch.before_probe``."""
        for name in self.names:
            runs = [file.name for file in files.get(name, ())]
            opened = dict(zip(runs, windows.get(name, ()), strict=True))
            if name in news:
                opened[NEWS] = news[name]
            numbers = self._kept.numbers.setdefault(name, {})
            numbers.pop(NEWS, None)
            for gone in [run for run in numbers if run not in opened]:
                del numbers[gone]
            sizes = [len(run) for run in opened.values()]
            firsts = [self._kept.number(name, run, len(rows)) for run, rows in opened.items()]
            self._offsets[name] = np.cumsum([0, *sizes[:-1]]) if sizes else np.empty(0, np.int64)
            self._shifts[name] = np.array(firsts, np.int64) - self._offsets[name]

    def numbers(self, name: str, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the numbers of rows of an input at some positions of its window."""
        return moved(positions, self._offsets[name], self._shifts[name])

    def positions(self, name: str, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the positions of rows of an input that have some numbers."""
        firsts = self._offsets[name] + self._shifts[name]
        order = np.argsort(firsts)
        return moved(numbers, firsts[order], -self._shifts[name][order])


def _places(
    runs: Sequence[SortedRun], horizon: int, rewritten: SortedRun
) -> NDArray[np.int64] | None:
    """Return the place of each row of some runs in the run that was made of them.

    A row that is gone has ``_GONE``. None if the run is not made of those.
    """
    key, codes = next(iter(rewritten.rows.codes.items()))
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
    after = (codes, rewritten.rows.starts, rewritten.rows.ends)
    if not all(np.array_equal(old[order], new) for old, new in zip(before, after, strict=True)):
        return None
    targets = np.full(stay.size, _GONE)
    places = np.empty(order.size, np.int64)
    places[order] = np.arange(order.size)
    targets[stay] = places
    return targets


@compiled
def moved(
    numbers: NDArray[np.int64], bases: NDArray[np.int64], shifts: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return numbers shifted by that of the last base (ascending) that is not above each."""
    shifted = np.empty(numbers.size, np.int64)
    place = 0
    for index in range(numbers.size):
        number = numbers[index]
        while place < bases.size and bases[place] <= number:
            place += 1
        while place > 0 and bases[place - 1] > number:
            place -= 1
        shifted[index] = number + shifts[place - 1] if place > 0 else number
    return shifted


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
        self._at: dict[CachePlace, list[Candidate]] = {}
        for candidate in self.profiled:
            self._at.setdefault(place_of(candidate), []).append(candidate)
        self._stores = tuple(dict.fromkeys(candidate.store for candidate in self.profiled))
        self._bits = bits
        self._kept = kept
        self._report = report
        self._samples: dict[CachePlace, list[NDArray[np.uint64]]] = {}
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
                places = self._seen(place).sampled(hashes)
                counts = self._report.keys.setdefault(place, KeyCounts())
                counts.n_rows += places.size
                counts.n_looked += places.size
                self._samples.setdefault(place, []).append(hashes[places])
                self._take_support(place, keys.joined, places, counts, partners)
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
        place: CachePlace,
        joined: Composites,
        places: NDArray[np.int64],
        counts: KeyCounts,
        partners: PartnerRows | None,
    ) -> None:
        """Count the sampled rows that might use a hit, if some candidate there supports itself."""
        is_asked = any(candidate.is_self_supporting for candidate in self._at[place])
        if is_asked and partners is not None:
            positions = joined.rows[place[0]][places]
            may_hit, _ = partners.ask(place[0], positions)
            counts.n_asked += places.size
            counts.n_looked += places.size
            counts.n_supported += int(may_hit.sum())

    def _seen(self, place: CachePlace) -> SeenKeys:
        is_rare = all(candidate.store.partners for candidate in self._at[place])
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
            is_known = np.zeros(hashes.size, np.bool_)
            scale = 1 << self._bits
            for candidate in self.profiled:
                if candidate.store == store and place_of(candidate) in self._kept.seen:
                    is_known |= self._known(place_of(candidate), hashes)
            changes = self._report.changes.setdefault(store, ChangeCounts())
            changes.n_seen += hashes.size * scale
            changes.n_kept += int(is_known.sum()) * scale
        self._kept.seen = {
            place: seen for place, seen in self._kept.seen.items() if place in self._at
        }
        self._report.profile_ns += time.perf_counter_ns() - started

    def _known(self, place: CachePlace, hashes: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Return for keys whether they would be kept; true if none of them is sampled any more."""
        seen = self._kept.seen[place]
        mask = np.uint64((1 << seen.bits) - 1)
        is_sampled = (hashes & mask) == 0
        return np.where(is_sampled, seen.has(hashes), not is_sampled.any())
