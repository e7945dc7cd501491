"""Which caches of joined rows a join uses: measured, chosen anew now and then, dropped when bad.

A candidate is profiled first: sampled keys say how often a key comes again in a later batch, the
pipelines what the joins cost that it would spare. What is chosen is then measured in place, against
what the same joins cost without it: in one batch of some the pipelines pass by their caches, which
are kept true meanwhile. A cache that takes more than it saves goes at once, and is not tried again
for a time that doubles; so trying costs little however often an estimate was wrong.
[Babu05 5.5.3-5.5.6, 5.6]
"""

from __future__ import annotations

import uuid
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from eddyline.joins.caches.cost_model import (
    CacheUse,
    Changes,
    Stretch,
    StretchCounts,
    StretchEstimate,
    benefit,
    upkeep_cost,
)
from eddyline.joins.caches.counts import NO_CACHES, CachePlan, CacheReport, place_of
from eddyline.joins.caches.lifecycle import CacheStates, State, Worths
from eddyline.joins.caches.memory_pool import PAGE_BYTES, shared_out
from eddyline.joins.caches.prefix_invariant import by_store, candidates
from eddyline.joins.caches.selection import select
from eddyline.joins.caches.selection_problem import CacheProblem
from eddyline.joins.view import CacheView
from eddyline.runtime.journal import JournalEntry

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from eddyline.joins.caches.counts import (
        ChangeCounts,
        KeyCounts,
        Place,
        StoreCounts,
        UseCounts,
    )
    from eddyline.joins.caches.prefix_invariant import Candidate, Pipelines, Store
    from eddyline.joins.graph import JoinGraph
    from eddyline.joins.operator.probe_counts import JoinWork

COMPONENT = "join"
"""What the journal calls what decides."""

INTERVAL = 16
"""Batches between two choices (I); twice as many after each one that found nothing to use, but for
the first one, which is often made while windows fill."""

MOST_INTERVAL = 128
"""Most batches between two choices."""

PROFILED_BATCHES = 5
"""Batches that candidates are profiled for: the last ones tell how often keys come again."""

TELLING = 2
"""The last batches of a profile, which its estimates are of."""

GRACE = 4
"""Batch from which on a cache in use is judged by what it takes: it starts empty."""

JUDGED = 3
"""Batches that an estimate is the mean of: each is of many rows."""

PASSED_BY = 16
"""In one of so many batches a pipeline runs without its caches, to see what they spare; in half as
many each time that nothing had changed."""

MOST_PASSED_BY = 128
"""Most batches between two of these."""

CHANGED = 0.5
"""Change of what rows find behind a cache, as a share, after which it is passed by at once."""

FIRST_BAN = 32
"""Batches for which a cache that was bad in use is not tried again; twice as many each time."""

MOST_BAN = 4096
"""Most batches for which it is not."""

SAMPLED_KEYS = 256
"""About how many rows of each bucket and pipeline are sampled where candidates are profiled."""

BUDGET = 6
"""Caches to choose from before only those of closed sets are taken (m) [Babu05 5.8.4]."""

LEAST_SAMPLE_BITS, MOST_SAMPLE_BITS = 2, 6
"""One in 2^bits keys is sampled, whatever the number of rows; the least bounds what it costs."""


@dataclass(frozen=True, slots=True)
class CacheCosts:
    """What a cache takes, before it was measured in use (ns)."""

    probe: float = 40.0
    """To look a row's key up."""
    expand: float = 35.0
    """To put a combination together from what is kept."""
    update: float = 60.0
    """To put a joined row in."""
    look_up: float = 30.0
    """To see whether the key of a change is kept."""


@dataclass(slots=True)
class _Used:
    """What is known of a cache in use."""

    uses: deque[UseCounts] = field(default_factory=lambda: deque(maxlen=JUDGED))
    n_batches: int = 0
    n_probes: int = 0
    n_hits: int = 0


class JoinCaches:
    """Decides which caches the pipelines of a join use.

    Args:
        graph: what is joined with what.
        streams: the inputs that bring new rows in every batch.
        cache_bytes: memory for all caches of a bucket (bytes); with less than a page none is used.
        is_on: whether caches may be used at all.
        costs: what they take, as far as it is not measured.
        budget: caches to choose from; those of windows that are not closed only as far as it
            reaches, and all of closed ones (m, ≥ 0).
        seed: decides between choices of the same worth.
    """

    def __init__(
        self,
        graph: JoinGraph,
        streams: Collection[str],
        *,
        cache_bytes: int,
        is_on: bool = True,
        costs: CacheCosts | None = None,
        budget: int = BUDGET,
        seed: int = 0,
    ) -> None:
        self.graph = graph
        self.streams = frozenset(streams)
        self.n_pages = cache_bytes // PAGE_BYTES
        self.is_on = is_on and self.n_pages > 0 and len(graph.inputs) > 2
        self.costs = costs or CacheCosts()
        self.budget = budget
        self.states = CacheStates.of(())
        self._rng = np.random.default_rng(seed)
        self._orders: dict[str, tuple[str, ...]] = {}
        self._joins: dict[tuple[str, int], StretchEstimate] = {}
        self._rows: dict[str, deque[int]] = {}
        self._keys: dict[Place, list[KeyCounts]] = {}
        self._changes: dict[Store, list[ChangeCounts]] = {}
        self._used: dict[Candidate, _Used] = {}
        self._kept: dict[Store, deque[StoreCounts]] = {}
        self._passed: dict[str, int] = {}
        self._patience: dict[str, int] = {}
        self._is_fresh: set[str] = set()
        self._bans: dict[Candidate, tuple[int, int]] = {}
        self._worths = Worths()
        # So the wait after a first choice that finds nothing is INTERVAL, not twice that.
        self._interval, self._waited, self._n_profiled = INTERVAL // 2, 0, 0
        self._n_buckets = 1
        self._run, self._copies = uuid.uuid4().hex, ""
        self._plan = NO_CACHES
        self._told: tuple[Candidate, ...] = ()

    # -- one batch ------------------------------------------------------------------------------

    def plan(self, orders: Pipelines, batch_id: int) -> CachePlan:
        """Return what the pipelines of a batch do with caches.

        Args:
            orders: the orders in force.
            batch_id: of the batch.
        """
        if not self.is_on:
            return NO_CACHES
        if dict(orders) != self._orders:
            self._reorder(dict(orders))
        passed_by = self._passed_by(batch_id)
        used = tuple(each for each in self.states.used if each.pipeline not in passed_by)
        is_measuring = self.states.is_measuring and bool(self._rows)
        profiled = self.states.which(State.PROFILED) if is_measuring else ()
        self._plan = CachePlan(
            used, self.states.kept, profiled, self._limits(), self._copies, self._bits()
        )
        return self._plan

    def _passed_by(self, batch_id: int) -> set[str]:
        """Return the pipelines that run without their caches in a batch."""
        asked = {each.pipeline for each, used in self._used.items() if used.n_batches >= GRACE}
        since = {name: batch_id - self._passed.get(name, -MOST_PASSED_BY) for name in asked}
        changed = {
            each.pipeline for each in self._used if self._is_judged(each) and self._is_other(each)
        }
        due = {name for name in asked if since[name] >= self._patience.get(name, PASSED_BY)}
        due |= {name for name in changed & asked if since[name] > 1}
        for name in due:
            longer = 2 * self._patience.get(name, PASSED_BY // 2)
            self._patience[name] = PASSED_BY if name in changed else min(longer, MOST_PASSED_BY)
        self._is_fresh = {name for name in due if name in changed or name not in self._passed}
        self._passed |= dict.fromkeys(due, batch_id)
        return due

    def _is_other(self, cache: Candidate) -> bool:
        """Return whether rows find more, or less, than they did when a cache was passed by."""
        newest = self._used[cache].uses[-1]
        stretch = self._stretch(cache.pipeline, cache.start, cache.stop)
        found = newest.n_out / max(newest.n_rows, 1)
        return abs(found - stretch.rows_per_entry) > CHANGED * max(found, stretch.rows_per_entry)

    def _reorder(self, orders: dict[str, tuple[str, ...]]) -> None:
        changed = {name for name, order in orders.items() if order != self._orders.get(name)}
        found = [
            each
            for each in candidates(self.graph, orders, self.budget)
            if each.pipeline in self.streams and each.store.windows & self.streams
        ]
        self._orders = orders
        self.states = self.states.reordered(changed, found)
        if self.states.which(State.PROFILED) and not self.states.is_measuring:
            self._waited = self._interval
        self._joins = {at: each for at, each in self._joins.items() if at[0] not in changed}
        self._keys = {at: each for at, each in self._keys.items() if at[0] not in changed}
        self._n_profiled = 0
        self._forget_unused()

    def _bits(self) -> int:
        """Return for which share of the keys candidates are profiled."""
        rows = max((sum(each) / len(each) for each in self._rows.values() if each), default=0.0)
        excess = int(rows / self._n_buckets / SAMPLED_KEYS)
        return min(max(excess.bit_length() - 1, LEAST_SAMPLE_BITS), MOST_SAMPLE_BITS)

    def learn(
        self,
        batch_id: int,
        report: CacheReport | None,
        work: JoinWork,
        n_buckets: int = 1,
    ) -> list[JournalEntry]:
        """Take in what a batch did, and decide about the next one.

        Args:
            batch_id: of the batch.
            report: what the caches of all buckets did; None if there were none.
            work: what the pipelines of all buckets did.
            n_buckets: how many buckets there are.

        Returns:
            What was decided.
        """
        if not self.is_on:
            return []
        self._n_buckets = n_buckets
        self._observe(report or CacheReport(), work)
        self._worths = self._estimated(batch_id)
        before = self.states
        self._waited += 1
        self.states = before.step(self._worths, self._chosen, is_due=self._waited >= self._interval)
        self._follow(before, batch_id)
        return self._entries(batch_id)

    def _follow(self, before: CacheStates, batch_id: int) -> None:
        """Take in a new choice, and caches that were dropped."""
        if self.states.is_measuring and not before.is_measuring:
            self._keys, self._changes, self._n_profiled = {}, {}, 0
        if before.is_measuring and not self.states.is_measuring:
            self._waited = 0
            more = min(2 * self._interval, MOST_INTERVAL)
            self._interval = INTERVAL if self.states.used else more
        for each in before.used:
            if each not in self.states.used and self._net(each) < 0:
                self._interval = max(self._interval, INTERVAL)
                _, last = self._bans.get(each, (0, FIRST_BAN // 2))
                length = min(2 * last, MOST_BAN)
                self._bans[each] = batch_id + length, length
        self._forget_unused()

    def _forget_unused(self) -> None:
        paused = self.states.paused
        in_use = {*self.states.used, *paused}
        self._used = {each: of for each, of in self._used.items() if each in in_use}
        asked = {each.pipeline for each in in_use}
        self._passed = {name: at for name, at in self._passed.items() if name in asked}
        self._patience = {name: of for name, of in self._patience.items() if name in asked}
        stores = set(self.states.kept)
        self._kept = {store: of for store, of in self._kept.items() if store in stores}

    # -- estimates ------------------------------------------------------------------------------

    def _observe(self, report: CacheReport, work: JoinWork) -> None:
        for name in self._orders:
            self._observe_joins(name, report, work)
        for place, keys in report.keys.items():
            self._keys.setdefault(place, []).append(keys)
        for store, changes in report.changes.items():
            self._changes.setdefault(store, []).append(changes)
        self._n_profiled += bool(self._plan.profiled)
        for each, use in report.uses.items():
            known_use = self._used.setdefault(each, _Used())
            known_use.n_batches += 1
            if known_use.n_batches >= GRACE:
                known_use.uses.append(use)
            known_use.n_probes += use.n_keys
            known_use.n_hits += use.n_hits
        for store, kept in report.stores.items():
            # A worker that lacks what another one kept: from now on they leave each other copies.
            was_full = store in self._kept and self._kept[store][-1].n_entries > 0
            if was_full and kept.n_cold > 0:
                self._copies = self._run
            self._kept.setdefault(store, deque(maxlen=JUDGED)).append(kept)

    def _observe_joins(self, name: str, report: CacheReport, work: JoinWork) -> None:
        """Take in the joins of a pipeline that no cache spared."""
        order = self._orders[name]
        asked = {each.start: each for each in self._plan.used if each.pipeline == name}
        spared = {at for each in asked.values() for at in range(each.start, each.stop)}
        used = [each for each in self.states.used if each.pipeline == name]
        hidden = {at for each in used for at in range(each.start, each.stop)}
        n_rows = work.of(name, order[0]).n_in
        if 0 in asked:
            n_rows = report.uses[asked[0]].n_rows if asked[0] in report.uses else 0
        self._rows.setdefault(name, deque(maxlen=JUDGED)).append(n_rows)
        for at, other in enumerate(order):
            if at not in spared and n_rows:
                done = work.of(name, other)
                known = self._joins.get((name, at), StretchEstimate())
                counts = StretchCounts((done.n_in, done.n_out), (done.ns,))
                is_stale = at in hidden and name in self._is_fresh
                window = 1 if is_stale else JUDGED
                self._joins[name, at] = known.observed(counts, window)

    def _is_judged(self, cache: Candidate) -> bool:
        """Return whether it was used for some time, and what it spares was seen since."""
        used = self._used.get(cache)
        return used is not None and used.n_batches >= GRACE and cache.pipeline in self._passed

    def _estimated(self, batch_id: int) -> Worths:
        """Return what candidates in play are worth, as far as it is known."""
        benefits, costs = {}, {}
        in_use = set(self.states.used)
        is_profiled = self._n_profiled >= PROFILED_BATCHES
        for store, group in by_store(self.states.which(State.USED, State.PROFILED)).items():
            measured = [each for each in group if each in in_use]
            for each in group:
                if each in in_use:
                    if self._is_judged(each):
                        benefits[each] = self._measured(each)
                elif is_profiled:
                    until, _ = self._bans.get(each, (0, 0))
                    expected = self._expected(each)
                    benefits[each] = min(expected, -1.0) if batch_id < until else expected
            if store in self._kept and (measured or store in self.states.kept):
                counts = self._kept[store]
                costs[store] = sum(each.ns for each in counts) / len(counts)
            elif any(each in benefits for each in group):
                costs[store] = self._expected_cost(store)
        return Worths(benefits, costs)

    def _stretch(self, name: str, start: int, stop: int) -> Stretch:
        """Return joins of a pipeline as they are, or were, without caches."""
        counts = self._rows.get(name)
        rate = sum(counts) / len(counts) if counts else 0.0
        rows, costs = [rate], []
        for at in range(stop):
            estimate = self._joins.get((name, at))
            join = None if estimate is None else estimate.stretch(1.0)
            costs.append(0.0 if join is None else join.costs[0])
            rows.append(0.0 if join is None else rows[-1] * join.rows[1])
        return Stretch(tuple(rows), tuple(costs)).part(start, stop)

    def _measured(self, cache: Candidate) -> float:
        """Return what a cache in use saves: what its joins would take, less what it takes."""
        uses = self._used[cache].uses
        rows = sum(use.n_rows for use in uses) / len(uses)
        stretch = self._stretch(cache.pipeline, cache.start, cache.stop)
        per_row = stretch.work / stretch.rows[0] if stretch.rows[0] else 0.0
        return per_row * rows - sum(use.ns for use in uses) / len(uses)

    def _expected(self, cache: Candidate) -> float:
        """Return what a candidate that is profiled would save."""
        seen = self._keys.get(place_of(cache), ())[-TELLING:]
        stretch = self._stretch(cache.pipeline, cache.start, cache.stop)
        n_rows = sum(keys.n_rows for keys in seen)
        if not n_rows or not stretch.rows[0]:
            return 0.0
        expand = stretch.rows_per_entry * self.costs.expand
        miss_frac = sum(keys.n_new for keys in seen) / n_rows
        if cache.is_self_supporting:
            miss_frac = max(miss_frac, _alone_frac(seen))
        use = CacheUse(
            miss_frac,
            self.costs.probe + expand,
            self.costs.update,
        )
        asked = self._stretch(cache.pipeline, 0, 1).rows[0] if cache.is_self_supporting else 0.0
        return benefit(stretch, use) - asked * self.costs.look_up

    def _expected_cost(self, store: Store) -> float:
        changes = self._changes.get(store, ())[-TELLING:]
        seen = sum(self._changes_told(name, store) for name in sorted(store.closed))
        sampled = sum(each.n_seen for each in changes)
        kept = seen * sum(each.n_kept for each in changes) / sampled if sampled else seen
        return upkeep_cost(Changes(seen, kept), self.costs.update, self.costs.look_up)

    def _changes_told(self, name: str, store: Store) -> float:
        """Return the changes of a store that the pipeline of an input would tell per batch."""
        seen = self._stretch(name, 0, store.tap).rows[-1]
        for place, keys in self._keys.items():
            if name in store.partners and place[0] == name and place[2] == store.key:
                # Where it asks the store itself, rows that may use a hit tell nothing new.
                return seen * _alone_frac(keys[-TELLING:])
        return seen

    def _chosen(self, worths: Worths) -> Collection[Candidate]:
        works = {
            name: self._stretch(name, 0, len(order)).works for name, order in self._orders.items()
        }
        return select(CacheProblem(worths.benefits, worths.costs, works), self._rng).caches

    def _net(self, cache: Candidate) -> float:
        """Return what a cache saves, less what its store costs, by the newest worths."""
        if cache not in self._worths.benefits:
            return 0.0
        return self._worths.benefits[cache] - self._worths.costs.get(cache.store, 0.0)

    # -- memory ---------------------------------------------------------------------------------

    def _limits(self) -> dict[Store, int]:
        """Return the memory of each store in a bucket (bytes)."""
        stores = self.states.kept
        if not stores:
            return {}
        priorities, wanted = {}, {}
        for store in stores:
            newest = self._kept[store][-1].n_bytes if store in self._kept else 0
            size = newest / self._n_buckets
            members = [each for each in self.states.used if each.store == store]
            saved = sum(self._worths.benefits.get(each, 0.0) for each in members)
            priorities[store] = (saved - self._worths.costs.get(store, 0.0)) / max(size, PAGE_BYTES)
            wanted[store] = max(int(2 * size / PAGE_BYTES), 1)
        pool = shared_out(self.n_pages, priorities, wanted)
        spare = pool.n_free // len(stores)
        return {store: (pool.held[store] + spare) * PAGE_BYTES for store in stores}

    # -- seeing ---------------------------------------------------------------------------------

    def _entries(self, batch_id: int) -> list[JournalEntry]:
        before, self._told = self._told, self.states.used
        if set(before) == set(self._told):
            return []
        evidence = {
            self._name(each): {
                "benefit_ns": self._worths.benefits.get(each),
                "cost_ns": self._worths.costs.get(each.store),
            }
            for each in dict.fromkeys((*before, *self._told))
        }
        names = sorted(map(self._name, before)), sorted(map(self._name, self._told))
        return [JournalEntry(batch_id, COMPONENT, "caches", *names, evidence)]

    @staticmethod
    def _name(cache: Candidate) -> str:
        kept, partners = (
            " ⋈ ".join(sorted(each)) for each in (cache.store.windows, cache.store.partners)
        )
        return f"{f'({kept}) ⋉ {partners}' if partners else kept} for {cache.pipeline}"

    def views(self) -> tuple[CacheView, ...]:
        """Return the caches in use."""
        return tuple(map(self._view, self.states.used))

    def _view(self, cache: Candidate) -> CacheView:
        used = self._used.get(cache, _Used())
        kept = self._kept.get(cache.store)
        return CacheView(
            pipeline=cache.pipeline,
            windows=tuple(self._orders[cache.pipeline][cache.start : cache.stop]),
            n_probes=used.n_probes,
            n_hits=used.n_hits,
            benefit_ns=self._worths.benefits.get(cache, 0.0),
            cost_ns=self._worths.costs.get(cache.store, 0.0),
            n_bytes=kept[-1].n_bytes if kept else 0,
            partners=tuple(sorted(cache.store.partners)),
        )

    # -- saving ---------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """Return what was learned, as plain values: nothing, as caches start empty again."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """Start anew: candidates are profiled."""


def _alone_frac(seen: Sequence[KeyCounts]) -> float:
    """Return the share of sampled rows that might not use a hit ([0, 1]); 1 if none was asked."""
    n_asked = sum(keys.n_asked for keys in seen)
    return 1.0 - sum(keys.n_supported for keys in seen) / n_asked if n_asked else 1.0
