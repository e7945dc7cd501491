"""The loop of caches: measured, chosen anew now and then, dropped when they are bad.

A candidate is profiled first: sampled keys say how often a key comes again in a later batch, the
pipelines what the joins cost that it would spare. Caches that are chosen are then measured in use,
against the same joins without them. A cache that takes more than it saves goes at once.
[Babu05 5.5.3-5.5.6, 5.6]

Nothing is saved: after a restart caches are empty, and candidates are profiled again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from eddyline.joins.caches.candidate_estimates import CacheCosts, CandidateEstimates
from eddyline.joins.caches.counts import NO_CACHES, CachePlan
from eddyline.joins.caches.in_use import CachesInUse
from eddyline.joins.caches.lifecycle import Bans, CacheStates, State, Worths
from eddyline.joins.caches.memory_pool import PAGE_BYTES, limits
from eddyline.joins.caches.pipeline_costs import PipelineCosts
from eddyline.joins.caches.prefix_invariant import by_store, candidates
from eddyline.joins.caches.selection import select
from eddyline.joins.caches.selection_problem import CacheProblem
from eddyline.joins.plan import COMPONENT
from eddyline.joins.view import CacheView
from eddyline.runtime.choice import AsItStands
from eddyline.runtime.journal import JournalEntry

if TYPE_CHECKING:
    from collections.abc import Collection

    from eddyline.joins.caches.counts import CacheReport
    from eddyline.joins.caches.prefix_invariant import Candidate, Pipelines, Store
    from eddyline.joins.graph import JoinGraph
    from eddyline.joins.operator.probe_counts import JoinWork
    from eddyline.joins.profile import JoinProfile

INTERVAL = 16
"""Batches between two choices (I); twice as many after each one that found nothing to use, but for
the first one, which is often made while windows fill."""

MOST_INTERVAL = 128
"""Most batches between two choices."""

SAMPLED_KEYS = 256
"""About how many rows of each bucket and pipeline are sampled where candidates are profiled."""

BUDGET = 6
"""Caches to choose from before only those of closed sets are taken (m) [Babu05 5.8.4]."""

LEAST_SAMPLE_BITS, MOST_SAMPLE_BITS = 2, 6
"""One in 2^bits keys is sampled, whatever the number of rows; the least bounds what it costs."""


class JoinCaches(AsItStands):
    """The caches that the pipelines of a join use.

    Args:
        graph: the inputs and their key classes.
        streams: the inputs that bring new rows in every batch.
        cache_bytes: memory for all caches of a bucket (bytes); with less than a page none is used.
        is_on: False uses no cache.
        costs: the work of caches, before it is measured.
        budget: caches to choose from: all of closed windows, others as far as it reaches (m, ≥ 0).
        seed: decides between choices of the same worth.
    """

    component = "caches"
    why_unlogged = "what a cache saves is known once it is full, and it begins empty each time"

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
        self.budget = budget
        self.states = CacheStates.of(())
        self._rng = np.random.default_rng(seed)
        self._orders: dict[str, tuple[str, ...]] = {}
        self._joins = PipelineCosts()
        self._profile = CandidateEstimates(costs or CacheCosts())
        self._in_use = CachesInUse()
        self._bans = Bans()
        self._worths = Worths()
        # So the wait after a first choice that finds nothing is INTERVAL, not twice that.
        self._interval, self._waited = INTERVAL // 2, 0
        self._n_buckets = 1
        self._plan = NO_CACHES
        self._journaled: tuple[Candidate, ...] = ()

    @property
    def is_adaptive(self) -> bool:  # type: ignore[override]
        """Whether any cache may be used."""
        return self.is_on

    @property
    def plan(self) -> list[str]:
        """The caches in use."""
        return sorted(map(str, self.states.used))

    # -- one batch ------------------------------------------------------------------------------

    def for_batch(self, orders: Pipelines, batch_id: int) -> CachePlan:
        """Return the caches of a batch under the orders in force."""
        if not self.is_on:
            return NO_CACHES
        if dict(orders) != self._orders:
            self._reorder(dict(orders))
        bypassing = self._in_use.bypass(batch_id, self._joins)
        may_choose = self.states.is_measuring and not self.is_held
        is_measuring = may_choose and self._joins.are_known
        self._plan = CachePlan(
            used=tuple(each for each in self.states.used if each.pipeline not in bypassing),
            kept=self.states.kept,
            profiled=self.states.which(State.PROFILED) if is_measuring else (),
            limits=self._limits(),
            sample_bits=self._sample_bits(),
        )
        return self._plan

    def step(self, fresh: JoinProfile, batch_id: int = -1) -> list[JournalEntry]:
        """Take in what a batch observed, and decide about the next one."""
        if not self.is_on:
            return []
        self._n_buckets = fresh.n_buckets
        self._observe(fresh.caches, fresh.work)
        self._worths = self._estimated(batch_id)
        if self.is_held:
            return self._entries(batch_id)
        before = self.states
        self._waited += 1
        is_due = self._waited >= self._interval
        self.states = before.step(self._worths, self._chosen, is_due=is_due)
        self._follow(before, batch_id)
        return self._entries(batch_id)

    def views(self) -> tuple[CacheView, ...]:
        """Return the caches in use."""
        return tuple(map(self._view, self.states.used))

    # -- the plan -------------------------------------------------------------------------------

    def _reorder(self, orders: dict[str, tuple[str, ...]]) -> None:
        """Go on with other orders: some candidates are new, some caches have to go."""
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
        self._joins.forget(changed)
        self._profile.forget(changed)
        self._forget_unused()

    def _sample_bits(self) -> int:
        """Return the share of keys that are sampled, as one in 2^bits."""
        excess = int(self._joins.most_rows / self._n_buckets / SAMPLED_KEYS)
        return min(max(excess.bit_length() - 1, LEAST_SAMPLE_BITS), MOST_SAMPLE_BITS)

    def _limits(self) -> dict[Store, int]:
        """Return the memory of each store in a bucket (bytes)."""
        sizes, nets = {}, {}
        for store in self.states.kept:
            sizes[store] = self._in_use.n_bytes(store) / self._n_buckets
            sharing = [each for each in self.states.used if each.store == store]
            saved = sum(self._worths.benefits.get(each, 0.0) for each in sharing)
            nets[store] = saved - self._worths.costs.get(store, 0.0)
        return limits(self.n_pages, sizes, nets) if sizes else {}

    # -- learning -------------------------------------------------------------------------------

    def _observe(self, report: CacheReport, work: JoinWork) -> None:
        for name, order in self._orders.items():
            asked = [each for each in self._plan.used if each.pipeline == name]
            n_rows = work.probe(name, order[0]).n_in
            for first in (each for each in asked if each.start == 0):
                n_rows = report.uses[first].n_rows if first in report.uses else 0
            chosen = [each for each in self.states.used if each.pipeline == name]
            outdated = _positions(chosen) if self._in_use.outdates(name) else set()
            self._joins.observe(name, order, n_rows, work, _positions(asked), outdated)
        self._profile.observe(report, is_profiled=bool(self._plan.profiled))
        self._in_use.observe(report)

    def _estimated(self, batch_id: int) -> Worths:
        """Return the worths of candidates in play, as far as they are known."""
        benefits, costs = {}, {}
        used, kept = set(self.states.used), self.states.kept
        for store, group in by_store(self.states.which(State.USED, State.PROFILED)).items():
            for each in group:
                if each in used:
                    if self._in_use.is_judged(each):
                        benefits[each] = self._in_use.benefit(each, self._joins)
                elif self._profile.are_known:
                    expected = self._profile.benefit(each, self._joins)
                    is_banned = self._bans.has(each, batch_id)
                    benefits[each] = min(expected, -1.0) if is_banned else expected
            measured = self._in_use.upkeep(store)
            if measured is not None and store in kept:
                costs[store] = measured
            elif any(each in benefits for each in group):
                costs[store] = self._profile.upkeep(store, self._joins)
        return Worths(benefits, costs)

    def _chosen(self, worths: Worths) -> Collection[Candidate]:
        works = {
            name: self._joins.stretch(name, 0, len(order)).works
            for name, order in self._orders.items()
        }
        return select(CacheProblem(worths.benefits, worths.costs, works), self._rng)

    def _follow(self, before: CacheStates, batch_id: int) -> None:
        """Take in a new choice, and caches that were dropped."""
        if self.states.is_measuring and not before.is_measuring:
            self._profile.restart()
        if before.is_measuring and not self.states.is_measuring:
            self._waited = 0
            longer = min(2 * self._interval, MOST_INTERVAL)
            self._interval = INTERVAL if self.states.used else longer
        for each in before.used:
            if each not in self.states.used and self._worths.net(each) < 0:
                self._interval = max(self._interval, INTERVAL)
                self._bans.add(each, batch_id)
        self._forget_unused()

    def _forget_unused(self) -> None:
        self._in_use.keep({*self.states.used, *self.states.paused}, self.states.kept)

    # -- for people -----------------------------------------------------------------------------

    def _entries(self, batch_id: int) -> list[JournalEntry]:
        before, self._journaled = self._journaled, self.states.used
        if set(before) == set(self._journaled):
            return []
        evidence = {
            str(each): {
                "benefit_ns": self._worths.benefits.get(each),
                "cost_ns": self._worths.costs.get(each.store),
            }
            for each in dict.fromkeys((*before, *self._journaled))
        }
        names = sorted(map(str, before)), sorted(map(str, self._journaled))
        return [JournalEntry(batch_id, COMPONENT, "caches", *names, evidence)]

    def _view(self, cache: Candidate) -> CacheView:
        used = self._in_use.counts(cache)
        return CacheView(
            pipeline=cache.pipeline,
            windows=tuple(self._orders[cache.pipeline][cache.start : cache.stop]),
            n_probes=used.n_probes,
            n_hits=used.n_hits,
            benefit_ns=self._worths.benefits.get(cache, 0.0),
            cost_ns=self._worths.costs.get(cache.store, 0.0),
            n_bytes=self._in_use.n_bytes(cache.store),
            partners=tuple(sorted(cache.store.partners)),
        )


def _positions(caches: Collection[Candidate]) -> set[int]:
    """Return the positions of the joins that some caches of one pipeline spare."""
    return {at for each in caches for at in range(each.start, each.stop)}
