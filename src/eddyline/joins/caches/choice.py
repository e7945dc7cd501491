"""Choice of caches: measured, reviewed now and then, dropped when bad.

A candidate is profiled first: sampled keys say how often a key comes again in a later batch
(``CandidateEstimates``), the pipelines what the joins cost that it would spare (``PipelineCosts``).
Caches that are chosen are then measured in use, against the same joins without them
(``CachesInUse``). A cache that takes more than it saves goes at once, and is banned for a while
(``CacheStates``, ``Bans``). Memory goes first to the stores that earn most per byte (``limits``).
[Babu05 5.5.3-5.5.6, 5.6]

Nothing is saved: after a restart caches are empty, and candidates are profiled again.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Self, TypeVar

import numpy as np

from eddyline.errors import OptionError
from eddyline.joins.caches.prefix_invariant import by_store, candidates
from eddyline.joins.caches.selection import CacheProblem, select
from eddyline.joins.plan import COMPONENT, NO_CACHES, CachePlan, place_of
from eddyline.joins.view import CacheView
from eddyline.runtime.choice import AsItStands
from eddyline.runtime.journal import JournalEntry

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from eddyline.joins.caches.prefix_invariant import Candidate, Pipelines, Store
    from eddyline.joins.graph import JoinGraph
    from eddyline.joins.plan import (
        CachePlace,
        CacheReport,
        ChangeCounts,
        JoinProfile,
        JoinWork,
        KeyCounts,
        StoreCounts,
        UseCounts,
    )

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
        self.states = CacheStates.initial(())
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

    def resize(self, cache_bytes: int) -> None:
        """Give caches other memory, per bucket (bytes).

        Raises:
            OptionError: it is less than a page.
        """
        if cache_bytes < PAGE_BYTES:
            msg = f"caches that are in use need {PAGE_BYTES:,} bytes or more, got {cache_bytes:,}"
            raise OptionError(msg, name="cache_bytes", value=cache_bytes)
        self.n_pages = cache_bytes // PAGE_BYTES

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
            used=tuple(cache for cache in self.states.used if cache.pipeline not in bypassing),
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
        eligible = [
            candidate
            for candidate in candidates(self.graph, orders, self.budget)
            if candidate.pipeline in self.streams and candidate.store.windows & self.streams
        ]
        self._orders = orders
        self.states = self.states.reordered(changed, eligible)
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
            sharing = [cache for cache in self.states.used if cache.store == store]
            saved = sum(self._worths.benefits.get(cache, 0.0) for cache in sharing)
            nets[store] = saved - self._worths.costs.get(store, 0.0)
        return limits(self.n_pages, sizes, nets) if sizes else {}

    # -- learning -------------------------------------------------------------------------------

    def _observe(self, report: CacheReport, work: JoinWork) -> None:
        for name, order in self._orders.items():
            asked = [cache for cache in self._plan.used if cache.pipeline == name]
            n_rows = work.probe(name, order[0]).n_in
            for first in (cache for cache in asked if cache.start == 0):
                n_rows = report.uses[first].n_rows if first in report.uses else 0
            chosen = [cache for cache in self.states.used if cache.pipeline == name]
            outdated = _positions(chosen) if self._in_use.outdates(name) else set()
            self._joins.observe(name, order, n_rows, work, _positions(asked), outdated)
        self._profile.observe(report, is_profiled=bool(self._plan.profiled))
        self._in_use.observe(report)

    def _estimated(self, batch_id: int) -> Worths:
        """Return the worths of candidates in play, as far as they are known."""
        benefits, costs = {}, {}
        used, kept = set(self.states.used), self.states.kept
        for store, group in by_store(self.states.which(State.USED, State.PROFILED)).items():
            for candidate in group:
                if candidate in used:
                    if self._in_use.is_judged(candidate):
                        benefits[candidate] = self._in_use.benefit(candidate, self._joins)
                elif self._profile.are_known:
                    expected = self._profile.benefit(candidate, self._joins)
                    is_banned = self._bans.has(candidate, batch_id)
                    benefits[candidate] = min(expected, -1.0) if is_banned else expected
            measured = self._in_use.upkeep(store)
            if measured is not None and store in kept:
                costs[store] = measured
            elif any(candidate in benefits for candidate in group):
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
        for cache in before.used:
            if cache not in self.states.used and self._worths.net(cache) < 0:
                self._interval = max(self._interval, INTERVAL)
                self._bans.add(cache, batch_id)
        self._forget_unused()

    def _forget_unused(self) -> None:
        self._in_use.keep({*self.states.used, *self.states.paused}, self.states.kept)

    # -- for people -----------------------------------------------------------------------------

    def _entries(self, batch_id: int) -> list[JournalEntry]:
        before, self._journaled = self._journaled, self.states.used
        if set(before) == set(self._journaled):
            return []
        evidence = {
            str(cache): {
                "benefit_ns": self._worths.benefits.get(cache),
                "cost_ns": self._worths.costs.get(cache.store),
            }
            for cache in dict.fromkeys((*before, *self._journaled))
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
    return {position for cache in caches for position in range(cache.start, cache.stop)}


Key = TypeVar("Key")

CHANGE_FRAC = 0.2
"""Change of a benefit or a cost, as a share of it, that asks for a new choice [Babu05 5.5.5]."""

FIRST_BAN = 32
"""Batches for which a cache that was bad in use is not tried again; twice as many each time."""

MOST_BAN = 4096
"""Most batches for which it is not."""


class State(Enum):
    """The state of a candidate."""

    USED = "used"
    """Serves probes."""
    PROFILED = "profiled"
    """Serves no probes, and is measured."""
    UNUSED = "unused"
    """Neither."""


@dataclass(frozen=True, slots=True)
class Worths:
    """Benefits and costs of caches by the newest estimates (per unit of time).

    Only estimates that rest on enough observations are in it: a cache that began to be used is
    empty and would look bad at once.
    """

    benefits: Mapping[Candidate, float] = field(default_factory=dict)
    """The work that a candidate saves."""
    costs: Mapping[Store, float] = field(default_factory=dict)
    """The work to keep a store consistent."""

    def among(self, candidates: Collection[Candidate]) -> Worths:
        """Return the worths of some candidates."""
        benefits = {
            candidate: saved
            for candidate, saved in self.benefits.items()
            if candidate in candidates
        }
        stores = {candidate.store for candidate in benefits}
        costs = {store: cost for store, cost in self.costs.items() if store in stores}
        return Worths(benefits, costs)

    def net(self, cache: Candidate) -> float:
        """Return the benefit of a cache, less the cost of its store; 0 if it is not known."""
        if cache not in self.benefits:
            return 0.0
        return self.benefits[cache] - self.costs.get(cache.store, 0.0)

    def has_moved(self, since: Worths, frac: float) -> bool:
        """Return whether a benefit or a cost is new, or changed by more than a share of it."""
        return _has_moved(since.benefits, self.benefits, frac) or _has_moved(
            since.costs, self.costs, frac
        )


@dataclass(frozen=True, slots=True)
class CacheStates:
    """The state of every candidate; a value, replaced by the next one at each step."""

    states: Mapping[Candidate, State]
    """The state of each candidate."""
    is_measuring: bool = True
    """Whether a choice is due as soon as every profiled candidate is measured."""
    paused: frozenset[Candidate] = frozenset()
    """Profiled candidates that were used before: their stores are kept consistent meanwhile."""
    basis: Worths = field(default_factory=Worths)
    """The worths by which the caches in use were chosen; none if one of them was lost since."""

    @classmethod
    def initial(cls, candidates: Iterable[Candidate]) -> Self:
        """Return the start: everything is measured."""
        return cls(dict.fromkeys(candidates, State.PROFILED))

    def which(self, *states: State) -> tuple[Candidate, ...]:
        """Return the candidates in some states."""
        return tuple(candidate for candidate, state in self.states.items() if state in states)

    @property
    def used(self) -> tuple[Candidate, ...]:
        """The caches that serve probes."""
        return self.which(State.USED)

    @property
    def kept(self) -> tuple[Store, ...]:
        """The stores whose taps run: of used caches, and of those that are only paused."""
        return tuple(dict.fromkeys(cache.store for cache in (*self.used, *self.paused)))

    def step(
        self,
        worths: Worths,
        choose: Callable[[Worths], Collection[Candidate]],
        *,
        is_due: bool,
        change_frac: float = CHANGE_FRAC,
    ) -> CacheStates:
        """Return the states after a batch by the newest estimates.

        ``choose`` returns the candidates to use, of those whose worths it is given; it is called at
        most once, if a choice is made. ``is_due``: the time between two re-optimisations is over.
        """
        current = self._without_bad_ones(worths)
        if is_due and not current.is_measuring:
            current = current._measuring()
        in_play = current.which(State.USED, State.PROFILED)
        if not current.is_measuring or not set(in_play) <= set(worths.benefits):
            return current
        measured = worths.among(in_play)
        if not measured.has_moved(current.basis, change_frac):
            return current._settled({*current.used, *current.paused}, current.basis)
        return current._settled(choose(measured), measured)

    def reordered(self, pipelines: Collection[str], candidates: Iterable[Candidate]) -> CacheStates:
        """Return the states after a change of the orders of some pipelines [Babu05 5.5.5, 5.7].

        A cache stays as it is if its own pipeline has its old order, and it is still a candidate:
        the set whose pipelines tell its changes is then still closed, and the taps where they were.
        """
        states = {
            candidate: State.PROFILED
            if candidate.pipeline in pipelines
            else self.states.get(candidate, State.PROFILED)
            for candidate in candidates
        }
        paused = {
            cache for cache in self.paused if cache in states and cache.pipeline not in pipelines
        }
        return replace(self, states=states, paused=frozenset(paused), basis=Worths())

    def _without_bad_ones(self, worths: Worths) -> CacheStates:
        """Stop using what costs more than it saves; caches that share a store stand together."""
        bad = {cache for cache in self.used if worths.benefits.get(cache, 0.0) < 0.0}
        rest = [cache for cache in self.used if cache not in bad]
        for store in {cache.store for cache in rest} & set(worths.costs):
            sharing = [cache for cache in rest if cache.store == store]
            saved = [worths.benefits[cache] for cache in sharing if cache in worths.benefits]
            if len(saved) == len(sharing) and sum(saved) < worths.costs[store]:
                bad.update(sharing)
        if not bad:
            return self
        return replace(self._with(dict.fromkeys(bad, State.UNUSED)), basis=Worths())

    def _measuring(self) -> CacheStates:
        """Profile what is not used, and what hides its probes."""
        asked = self.which(State.UNUSED, State.PROFILED)
        hiding = {cache for cache in self.used if any(cache.hides(other) for other in asked)}
        profiled = dict.fromkeys([*asked, *hiding], State.PROFILED)
        return replace(self._with(profiled), is_measuring=True, paused=frozenset(hiding))

    def _settled(self, chosen: Collection[Candidate], basis: Worths) -> CacheStates:
        states = {
            candidate: State.USED if candidate in chosen else State.UNUSED
            for candidate in self.states
        }
        return CacheStates(states, is_measuring=False, basis=basis)

    def _with(self, changed: Mapping[Candidate, State]) -> CacheStates:
        return replace(self, states={**self.states, **changed})


def _has_moved(before: Mapping[Key, float], now: Mapping[Key, float], frac: float) -> bool:
    return any(
        key not in before or abs(value - before[key]) > frac * abs(before[key])
        for key, value in now.items()
    )


class Bans:
    """Caches that took more than they saved: they are not tried again for a time.

    The time doubles with every ban, so trying costs little however often an estimate was wrong.
    """

    def __init__(self) -> None:
        self._bans: dict[Candidate, tuple[int, int]] = {}

    def add(self, cache: Candidate, batch_id: int) -> None:
        """Ban a cache from a batch on."""
        _, last = self._bans.get(cache, (0, FIRST_BAN // 2))
        length = min(2 * last, MOST_BAN)
        self._bans[cache] = batch_id + length, length

    def has(self, cache: Candidate, batch_id: int) -> bool:
        """Return whether a cache is banned in a batch."""
        until, _ = self._bans.get(cache, (0, 0))
        return batch_id < until


PROFILED_BATCHES = 5
"""Batches that candidates are profiled for: the last ones tell how often keys come again."""

TELLING = 2
"""The last batches of a profile, which its estimates are of."""


@dataclass(frozen=True, slots=True)
class CacheCosts:
    """The work of a cache, before it was measured in use (ns)."""

    probe: float = 40.0
    """To look a row's key up."""
    expand: float = 35.0
    """To put a combination together from a kept row."""
    update: float = 60.0
    """To put a joined row in."""
    look_up: float = 30.0
    """To look the key of a change up."""


class CandidateEstimates:
    """Profiles of candidates, and the worths that follow from them."""

    def __init__(self, costs: CacheCosts) -> None:
        self.costs = costs
        self._keys: dict[CachePlace, list[KeyCounts]] = {}
        self._changes: dict[Store, list[ChangeCounts]] = {}
        self._n_batches = 0

    @property
    def are_known(self) -> bool:
        """Whether candidates were profiled for long enough."""
        return self._n_batches >= PROFILED_BATCHES

    def observe(self, report: CacheReport, *, is_profiled: bool) -> None:
        """Take in a batch, whose plan may have profiled candidates."""
        for place, keys in report.keys.items():
            self._keys.setdefault(place, []).append(keys)
        for store, changes in report.changes.items():
            self._changes.setdefault(store, []).append(changes)
        self._n_batches += is_profiled

    def restart(self) -> None:
        """Forget all profiles: another one begins."""
        self._keys, self._changes, self._n_batches = {}, {}, 0

    def forget(self, pipelines: Collection[str]) -> None:
        """Forget the keys of pipelines whose order has changed, and profile for the whole time."""
        self._keys = {
            place: counts for place, counts in self._keys.items() if place[0] not in pipelines
        }
        self._n_batches = 0

    def benefit(self, cache: Candidate, joins: PipelineCosts) -> float:
        """Return the work that a candidate would save per batch."""
        seen = self._keys.get(place_of(cache), ())[-TELLING:]
        stretch = joins.spared_by(cache)
        n_rows = sum(keys.n_rows for keys in seen)
        if not n_rows or not stretch.rows[0]:
            return 0.0
        expand = stretch.rows_per_entry * self.costs.expand
        miss_frac = sum(keys.n_new for keys in seen) / n_rows
        if cache.is_self_supporting:
            miss_frac = max(miss_frac, _unsupported_frac(seen))
        asked = joins.stretch(cache.pipeline, 0, 1).rows[0] if cache.is_self_supporting else 0.0
        saved = benefit(stretch, miss_frac, self.costs.probe + expand, self.costs.update)
        return saved - asked * self.costs.look_up

    def upkeep(self, store: Store, joins: PipelineCosts) -> float:
        """Return the work to keep a store consistent per batch."""
        changes = self._changes.get(store, ())[-TELLING:]
        seen = sum(self._changes_seen(name, store, joins) for name in sorted(store.closed))
        sampled = sum(count.n_seen for count in changes)
        kept = seen * sum(count.n_kept for count in changes) / sampled if sampled else seen
        return upkeep_cost(seen, kept, self.costs.update, self.costs.look_up)

    def _changes_seen(self, pipeline: str, store: Store, joins: PipelineCosts) -> float:
        """Return the changes that the tap of a store in a pipeline would see per batch."""
        seen = joins.stretch(pipeline, 0, store.tap).rows[-1]
        for place, keys in self._keys.items():
            if pipeline in store.partners and place[0] == pipeline and place[2] == store.key:
                # Where the pipeline asks the store itself, rows that may use a hit bring no change.
                return seen * _unsupported_frac(keys[-TELLING:])
        return seen


def _unsupported_frac(seen: Sequence[KeyCounts]) -> float:
    """Return the share of sampled rows that might not use a hit ([0, 1]); 1 if none was asked."""
    n_asked = sum(keys.n_asked for keys in seen)
    return 1.0 - sum(keys.n_supported for keys in seen) / n_asked if n_asked else 1.0


GRACE = 4
"""Batch from which on a cache in use is judged by its work: it starts empty."""

BYPASSED = 16
"""A pipeline bypasses its caches in one of so many batches; in half as many each time that nothing
had changed."""

MOST_BYPASSED = 128
"""Most batches from one bypass to the next."""

CHANGED = 0.5
"""Change of what rows find behind a cache, as a share, after which it is bypassed at once."""


@dataclass(slots=True)
class Used:
    """The counts of a cache in use."""

    uses: deque[UseCounts] = field(default_factory=lambda: deque(maxlen=JUDGED))
    """Of the newest batches, after the first ones."""
    n_batches: int = 0
    n_probes: int = 0
    n_hits: int = 0


class CachesInUse:
    """Measures caches in use, and decides when their pipelines bypass them."""

    def __init__(self) -> None:
        self._used: dict[Candidate, Used] = {}
        self._stores: dict[Store, deque[StoreCounts]] = {}
        self._bypassed: dict[str, int] = {}
        self._patience: dict[str, int] = {}
        self._outdated: set[str] = set()

    def observe(self, report: CacheReport) -> None:
        """Take in a batch."""
        for cache, use in report.uses.items():
            used = self._used.setdefault(cache, Used())
            used.n_batches += 1
            if used.n_batches >= GRACE:
                used.uses.append(use)
            used.n_probes += use.n_keys
            used.n_hits += use.n_hits
        for store, kept in report.stores.items():
            self._stores.setdefault(store, deque(maxlen=JUDGED)).append(kept)

    def keep(self, caches: Collection[Candidate], stores: Collection[Store]) -> None:
        """Forget all but some caches, their pipelines, and some stores."""
        self._used = {cache: used for cache, used in self._used.items() if cache in caches}
        asked = {cache.pipeline for cache in caches}
        self._bypassed = {name: batch for name, batch in self._bypassed.items() if name in asked}
        self._patience = {name: n for name, n in self._patience.items() if name in asked}
        self._stores = {store: counts for store, counts in self._stores.items() if store in stores}

    # -- bypasses -------------------------------------------------------------------------------

    def bypass(self, batch_id: int, joins: PipelineCosts) -> set[str]:
        """Return the pipelines that bypass their caches in a batch."""
        asked = {cache.pipeline for cache, used in self._used.items() if used.n_batches >= GRACE}
        since = {name: batch_id - self._bypassed.get(name, -MOST_BYPASSED) for name in asked}
        changed = {
            cache.pipeline
            for cache in self._used
            if self.is_judged(cache) and self._has_changed(cache, joins)
        }
        due = {name for name in asked if since[name] >= self._patience.get(name, BYPASSED)}
        due |= {name for name in changed & asked if since[name] > 1}
        for name in due:
            longer = 2 * self._patience.get(name, BYPASSED // 2)
            self._patience[name] = BYPASSED if name in changed else min(longer, MOST_BYPASSED)
        self._outdated = {name for name in due if name in changed or name not in self._bypassed}
        self._bypassed |= dict.fromkeys(due, batch_id)
        return due

    def outdates(self, pipeline: str) -> bool:
        """Return whether the newest bypass makes older observations of a pipeline worthless."""
        return pipeline in self._outdated

    def _has_changed(self, cache: Candidate, joins: PipelineCosts) -> bool:
        """Return whether rows find more, or less, than they did when a cache was bypassed."""
        newest, before = self._used[cache].uses[-1], joins.spared_by(cache).rows_per_entry
        per_row = newest.n_out / max(newest.n_rows, 1)
        return abs(per_row - before) > CHANGED * max(per_row, before)

    # -- worths ---------------------------------------------------------------------------------

    def is_judged(self, cache: Candidate) -> bool:
        """Return whether a cache was used for some time, and bypassed since."""
        used = self._used.get(cache)
        return used is not None and used.n_batches >= GRACE and cache.pipeline in self._bypassed

    def benefit(self, cache: Candidate, joins: PipelineCosts) -> float:
        """Return the work per batch that a cache that is judged saves, less its own work."""
        uses = self._used[cache].uses
        rows = sum(use.n_rows for use in uses) / len(uses)
        stretch = joins.spared_by(cache)
        per_row = stretch.work / stretch.rows[0] if stretch.rows[0] else 0.0
        return per_row * rows - sum(use.ns for use in uses) / len(uses)

    def upkeep(self, store: Store) -> float | None:
        """Return the work to keep a store true per batch; None if it was never kept."""
        counts = self._stores.get(store)
        return sum(count.ns for count in counts) / len(counts) if counts else None

    def n_bytes(self, store: Store) -> int:
        """Return the size of a store in all buckets (bytes)."""
        return self._stores[store][-1].n_bytes if store in self._stores else 0

    def counts(self, cache: Candidate) -> Used:
        """Return the counts of a cache; all 0 if it was never used."""
        return self._used.get(cache, Used())


JUDGED = 3
"""Batches that an estimate is the mean of: each is of many rows."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Successive joins of a pipeline, as they are without caches."""

    rows: tuple[float, ...]
    """Rows that enter each join per unit of time, and those that leave the last one (d)."""
    costs: tuple[float, ...]
    """Work of each join for a row that enters it (c); one less than ``rows``."""

    @property
    def works(self) -> tuple[float, ...]:
        """The work of each join per unit of time (d·c)."""
        return tuple(rows * cost for rows, cost in zip(self.rows, self.costs, strict=False))

    @property
    def work(self) -> float:
        """The work of all joins per unit of time."""
        return sum(self.works)

    @property
    def rows_per_entry(self) -> float:
        """Mean rows that are kept by a key, each key counted as often as it comes."""
        return self.rows[-1] / self.rows[0] if self.rows[0] else 0.0

    def part(self, start: int, stop: int) -> Self:
        """Return the joins at positions ``[start, stop)``."""
        return type(self)(self.rows[start : stop + 1], self.costs[start:stop])


def benefit(stretch: Stretch, miss_frac: float, probe_cost: float, update_cost: float) -> float:
    """Return the work that a cache saves per unit of time; negative if it takes more.

    [Babu05 (5.a)]; for a batch the rows of the stretch are those of its distinct keys. For the
    arguments see ``proc``.
    """
    return stretch.work - proc(stretch, miss_frac, probe_cost, update_cost)


def proc(stretch: Stretch, miss_frac: float, probe_cost: float, update_cost: float) -> float:
    """Return the work that is left of a stretch with a cache per unit of time [Babu05 (5.c)].

    Args:
        stretch: the joins that a hit spares.
        miss_frac: share of the probes that find nothing ([0, 1]).
        probe_cost: work of a probe, with putting the combinations of a hit together.
        update_cost: work to put a row in.
    """
    filling = stretch.work + stretch.rows[-1] * update_cost
    return stretch.rows[0] * probe_cost + miss_frac * filling


def upkeep_cost(seen: float, kept: float, update_cost: float, look_up_cost: float = 0.0) -> float:
    """Return the work to keep a store consistent per unit of time [Babu05 (5.b)].

    The taps look up the key of each row that they see, and put the rows in whose key is kept.
    """
    return update_cost * kept + look_up_cost * seen


@dataclass(frozen=True, slots=True)
class JoinEstimate:
    """The newest observations of one join, of one batch each."""

    observations: tuple[tuple[int, int, int], ...] = ()
    """Rows in, rows out and work, the newest last."""
    cost: float = 0.0
    """Work of a row, the last that is known; 0 if no row ever came."""

    def observed(self, n_in: int, n_out: int, work: int, window: int = JUDGED) -> Self:
        """Return the estimate with one more observation, of the newest ``window`` (≥ 1).

        The cost is a ratio of sums, so that a join that few rows reach at a time is not judged by
        its dearest calls; where no row came it is what it was before [Babu05 5.5.3].
        """
        newest = (*self.observations, (n_in, n_out, work))[-window:]
        n_rows = sum(batch[0] for batch in newest)
        cost = sum(batch[2] for batch in newest) / n_rows if n_rows else self.cost
        return type(self)(newest, cost)

    @property
    def fan_out(self) -> float:
        """Rows out for a row in; 0 if none came."""
        n_in = sum(batch[0] for batch in self.observations)
        return 1.0 / n_in * sum(batch[1] for batch in self.observations) if n_in else 0.0


class PipelineCosts:
    """Rates and costs of joins, from the batches in which no cache spared them."""

    def __init__(self) -> None:
        self._joins: dict[tuple[str, int], JoinEstimate] = {}
        self._rates: dict[str, deque[int]] = {}

    @property
    def are_known(self) -> bool:
        """Whether a batch was observed."""
        return bool(self._rates)

    @property
    def most_rows(self) -> float:
        """Mean number of rows that enter a pipeline in a batch, of the fullest one."""
        return max(map(self._rate, self._rates), default=0.0)

    def observe(
        self,
        pipeline: str,
        order: tuple[str, ...],
        n_rows: int,
        work: JoinWork,
        spared: Collection[int] = (),
        outdated: Collection[int] = (),
    ) -> None:
        """Take in the joins of a pipeline in a batch that ``n_rows`` rows entered.

        Joins at positions that a cache spared were not made; those at outdated positions are known
        to have changed since they were last seen.
        """
        self._rates.setdefault(pipeline, deque(maxlen=JUDGED)).append(n_rows)
        if not n_rows:
            return
        for position, other in enumerate(order):
            if position not in spared:
                done = work.probe(pipeline, other)
                estimate = self._joins.get((pipeline, position), JoinEstimate())
                window = 1 if position in outdated else JUDGED
                self._joins[pipeline, position] = estimate.observed(
                    done.n_in, done.n_out, done.ns, window
                )

    def forget(self, pipelines: Collection[str]) -> None:
        """Forget the joins of pipelines whose order has changed."""
        self._joins = {
            join: estimate for join, estimate in self._joins.items() if join[0] not in pipelines
        }

    def stretch(self, pipeline: str, start: int, stop: int) -> Stretch:
        """Return the joins of a pipeline at positions ``[start, stop)``."""
        rows, costs = [self._rate(pipeline)], []
        for position in range(stop):
            join = self._joins.get((pipeline, position), JoinEstimate())
            costs.append(join.cost)
            rows.append(rows[-1] * join.fan_out)
        return Stretch(tuple(rows), tuple(costs)).part(start, stop)

    def spared_by(self, cache: Candidate) -> Stretch:
        """Return the joins that a cache spares."""
        return self.stretch(cache.pipeline, cache.start, cache.stop)

    def _rate(self, pipeline: str) -> float:
        """Return the mean number of rows that enter a pipeline in a batch."""
        counts = self._rates.get(pipeline)
        return sum(counts) / len(counts) if counts else 0.0


PAGE_BYTES = 4096
"""Size of a page; the thesis gives none."""


def limits(
    n_pages: int, sizes: Mapping[Store, float], nets: Mapping[Store, float]
) -> dict[Store, int]:
    """Return the memory of each store (bytes), of one or more, by its size (bytes) and its net.

    A store wants room for twice its size; pages that no store wants are shared evenly.
    """
    priorities = {store: nets[store] / max(size, PAGE_BYTES) for store, size in sizes.items()}
    wanted = {store: max(int(2 * size / PAGE_BYTES), 1) for store, size in sizes.items()}
    held = shared_out(n_pages, priorities, wanted)
    spare = (n_pages - sum(held.values())) // len(sizes)
    return {store: (held[store] + spare) * PAGE_BYTES for store in sizes}


def shared_out(
    n_pages: int, priorities: Mapping[Store, float], wanted: Mapping[Store, int]
) -> dict[Store, int]:
    """Return the pages of each store; of stores that earn the same, the first is served first."""
    held, free = {}, n_pages
    for store in sorted(priorities, key=lambda store: -priorities[store]):
        held[store] = min(wanted.get(store, 0), free)
        free -= held[store]
    return held
