"""The caches of one bucket during one batch: opened, kept true to the runs, closed."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from eddyline.joins.caches.between_batches import BucketCaches, put_back, take_out
from eddyline.joins.caches.cached_probes import CachedProbes
from eddyline.joins.caches.candidate_profile import CandidateSamples
from eddyline.joins.caches.counts import CacheReport, StoreCounts
from eddyline.joins.caches.hash_store import KeptRows
from eddyline.joins.caches.prefix_invariant import are_compatible, is_sound, is_told
from eddyline.joins.caches.row_ids import RowNumbers
from eddyline.joins.caches.semijoin_partners import PartnerRows
from eddyline.state.rows import ALWAYS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from eddyline.joins.caches.prefix_invariant import Candidate, Store
    from eddyline.joins.plan import BatchPlan
    from eddyline.state.rows import SortedRun
    from eddyline.state.run_files import RunFile


class CachedBatch:
    """The caches of a bucket in a batch that starts from the runs ``before`` (by input).

    Caches of the plan that are not sound with the orders in force are left out, and stores that
    are not true to the runs of the bucket begin anew.
    """

    def __init__(
        self, plan: BatchPlan, folder: str, bucket: int, before: Mapping[str, Sequence[RunFile]]
    ) -> None:
        self._plan = plan
        self._place = folder, bucket
        kept = take_out(folder, bucket)
        # Where rows were moved between buckets, the caches are of other rows.
        self._kept = kept if plan.moved is None else BucketCaches()
        self._report = CacheReport()
        graph, orders, caches = plan.graph, dict(plan.orders), plan.caches
        self._used = _compatible(each for each in caches.used if is_sound(graph, orders, each))
        profiled = [each for each in caches.profiled if is_sound(graph, orders, each)]
        self._samples = CandidateSamples(profiled, caches.sample_bits, self._kept, self._report)
        stores = {
            each
            for each in caches.stores
            if is_told(each, orders) and not any(cache.straddles(each) for cache in self._used)
        }
        names = {name: tuple(file.name for file in files) for name, files in before.items()}
        self._open(stores, names)
        self._kept.latest = {
            name: at for name, at in self._kept.latest.items() if self._kept.is_at(name, names)
        }
        self._numbers = RowNumbers(self._kept, {name for each in stores for name in each.windows})

    def _open(self, stores: set[Store], before: Mapping[str, Sequence[str]]) -> None:
        """Go on with the stores that are true to the runs, and begin the others anew."""
        opened = {}
        for store in sorted(stores, key=_by_name):
            others = [low for name, low in self._plan.lows.items() if name not in store.windows]
            horizon = min(others, default=ALWAYS)
            known = self._kept.stores.get(store)
            if known is None or not self._kept.fits(store, before) or horizon < known.horizon:
                known = KeptRows(store, self._plan.graph)
            self._report.stores[store] = StoreCounts()
            known.limit = self._plan.caches.limits.get(store, 0)
            known.horizon = horizon
            opened[store] = known
        self._kept.stores = opened

    def follow(
        self,
        name: str,
        runs: Mapping[str, SortedRun],
        horizon: int,
        made: Mapping[RunFile, SortedRun],
    ) -> None:
        """Follow rows of an input into another run; see ``RowNumbers.follow``."""
        if self._numbers.follow(name, runs, horizon, made):
            return
        for store, rows in self._kept.stores.items():
            if name in store.windows:
                rows.clear()

    def begin(
        self,
        files: Mapping[str, Sequence[RunFile]],
        windows: Mapping[str, Sequence[SortedRun]],
        news: Mapping[str, SortedRun],
    ) -> CachedProbes:
        """Take in the windows, and return the shortcut of the pipelines.

        ``files`` name the runs of ``windows``, the oldest first, before the new rows.
        """
        partners = None
        profiled = any(each.is_self_supporting for each in self._samples.profiled)
        if profiled or any(store.partners for store in self._kept.stores):
            partners = PartnerRows(self._plan.graph, windows, news, self._kept.latest)
        else:
            self._kept.latest = {}
        self._numbers.begin(files, windows, news)
        return CachedProbes(
            self._used,
            self._kept.stores,
            self._numbers,
            self._samples,
            partners,
            self._report,
            self._plan.batch_id,
        )

    def close(self, after: Mapping[str, Sequence[RunFile]]) -> CacheReport:
        """Keep the caches, true to the runs after the batch, and return the counts of this one."""
        self._samples.count(self._plan.batch_id)
        for store, rows in self._kept.stores.items():
            started, counts = time.perf_counter_ns(), self._report.stores[store]
            rows.expire(rows.horizon, self._plan.batch_id)
            counts.n_entries, counts.n_rows = rows.n_entries, rows.n_rows
            counts.n_bytes = rows.n_bytes
            counts.ns += time.perf_counter_ns() - started
        self._kept.after = {
            name: tuple(file.name for file in files) for name, files in after.items()
        }
        put_back(*self._place, self._kept)
        return self._report


def caches_of(
    plan: BatchPlan, folder: str, bucket: int, before: Mapping[str, Sequence[RunFile]]
) -> CachedBatch | None:
    """Return the caches of a bucket in a batch, None if its plan has none; see ``CachedBatch``."""
    return None if plan.caches.is_empty else CachedBatch(plan, folder, bucket, before)


def _compatible(caches: Iterable[Candidate]) -> tuple[Candidate, ...]:
    """Return the caches without those that one before them excludes."""
    found: list[Candidate] = []
    for each in caches:
        if all(are_compatible(each, other) for other in found):
            found.append(each)
    return tuple(found)


def _by_name(store: Store) -> tuple[list[str], tuple[int, ...], list[str]]:
    return sorted(store.windows), store.key, sorted(store.closed)
