"""Selection of caches within a memory budget.

It finds the best set if time allows, else a good one. ``CacheProblem`` has the candidates and the
worth of a choice, and finds the best one exactly. Where too many stores are shared to try them all,
two approximations of set cover take its place.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import ceil, log
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from eddyline.joins.caches.prefix_invariant import are_compatible, by_store, forest

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from numpy.typing import NDArray

    from eddyline.joins.caches.prefix_invariant import Candidate, Forest, Store

MAX_SHARED = 16
"""Shared stores up to which every set of them is tried: 65,536 sets, in tens of milliseconds."""


def select(
    problem: CacheProblem, rng: np.random.Generator, *, max_shared: int = MAX_SHARED
) -> Chosen:
    """Return the caches to use; every set is tried up to so many shared stores.

    If a store has partners, candidates may exclude each other in any way and all sets are tried, so
    there must be few; see ``candidates``.
    """
    if any(store.partners for store in problem.groups):
        return exhaustive(problem)
    if n_shared(problem) <= max_shared:
        return by_groups(problem)
    return max(polished(problem, greedy(problem)), lp_rounding(problem, rng), key=problem.net)


Joins = frozenset[tuple[str, int]]
"""Joins of pipelines: the pipeline's input and the position."""

Chosen: TypeAlias = "frozenset[Candidate]"
"""Caches that are in use together."""

NO_JOINS: Joins = frozenset()
"""No join at all."""

NOTHING: Chosen = frozenset()
"""No cache at all."""


@dataclass(frozen=True)
class CacheProblem:
    """Candidates and their worths; all per unit of time."""

    benefits: Mapping[Candidate, float]
    """The work that each candidate saves."""
    costs: Mapping[Store, float]
    """The work to keep each store consistent (≥ 0)."""
    works: Mapping[str, tuple[float, ...]]
    """The work of each join of each pipeline without a cache (≥ 0)."""

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """The caches to choose from."""
        return tuple(self.benefits)

    @cached_property
    def groups(self) -> dict[Store, tuple[Candidate, ...]]:
        """The candidates of each store."""
        return by_store(self.benefits)

    @cached_property
    def forest(self) -> Forest:
        """The candidates by containment."""
        return forest(self.candidates)

    @cached_property
    def joins(self) -> Joins:
        """All joins of all pipelines."""
        return frozenset(
            (name, position) for name, works in self.works.items() for position in range(len(works))
        )

    def spared(self, candidate: Candidate) -> Joins:
        """Return the joins that a hit spares."""
        positions = range(candidate.start, candidate.stop)
        return frozenset((candidate.pipeline, position) for position in positions)

    def proc(self, candidate: Candidate) -> float:
        """Return the work that is left of the joins of a candidate [Babu05 (5.d)]."""
        joins = self.works[candidate.pipeline][candidate.start : candidate.stop]
        return sum(joins) - self.benefits[candidate]

    def net(self, chosen: Collection[Candidate]) -> float:
        """Return the work that caches that do not overlap save, less the cost of their stores."""
        return sum(self.benefits[cache] for cache in self._used(chosen)) - self._paid(chosen)

    def _used(self, chosen: Collection[Candidate]) -> list[Candidate]:
        """Return caches in the order of the problem: sums must not depend on that of a set."""
        return [cache for cache in self.benefits if cache in chosen]

    def _paid(self, chosen: Collection[Candidate]) -> float:
        stores = dict.fromkeys(cache.store for cache in self._used(chosen))
        return sum(self.costs[store] for store in stores)

    def among(self, candidates: Collection[Candidate]) -> CacheProblem:
        """Return the problem with fewer candidates."""
        benefits = {cache: saved for cache, saved in self.benefits.items() if cache in candidates}
        return CacheProblem(benefits, self.costs, self.works)


def best_nested(containment: Forest, values: Mapping[Candidate, float]) -> Chosen:
    """Return the caches of the greatest sum of values (> 0), of which none holds another.

    Each candidate is compared with the best choice inside it, from the inside out
    [Babu05 Thm 5.5.1]; of equals, the one larger cache.
    """

    def best(candidate: Candidate) -> tuple[float, Chosen]:
        inside, chosen = together(containment.children[candidate])
        alone = values[candidate]
        return (
            (alone, frozenset({candidate})) if alone >= inside and alone > 0 else (inside, chosen)
        )

    def together(candidates: Iterable[Candidate]) -> tuple[float, Chosen]:
        parts = [best(cache) for cache in candidates]
        return sum(value for value, _ in parts), NOTHING.union(*(chosen for _, chosen in parts))

    return together(containment.roots)[1]


def best_with(problem: CacheProblem, stores: Collection[Store]) -> Chosen:
    """Return the best caches when some stores are kept anyway and no others are."""
    values = {
        cache: saved if cache.store in stores else -np.inf
        for cache, saved in problem.benefits.items()
    }
    return best_nested(problem.forest, values)


def by_groups(problem: CacheProblem) -> Chosen:
    """Return the best choice: the best one inside each pipeline, for every set of shared stores.

    With the stores settled, their cost is spent and each pipeline is on its own. The cost of a
    store of one candidate is part of that candidate's value, so only stores that several candidates
    share are tried: 2^groups sets, all at once.
    """
    worthwhile = _worthwhile(problem)
    shared = [store for store, group in worthwhile.groups.items() if len(group) > 1]
    sets = np.arange(1 << len(shared))
    kept = {store: (sets >> bit & 1).astype(bool) for bit, store in enumerate(shared)}
    values = _nested_values(worthwhile, kept)
    for store, is_kept in kept.items():
        values -= np.where(is_kept, worthwhile.costs[store], 0.0)
    best = int(values.argmax())
    prices = {store: 0.0 if is_kept[best] else np.inf for store, is_kept in kept.items()}
    prices |= {store: cost for store, cost in worthwhile.costs.items() if store not in kept}
    return best_nested(
        worthwhile.forest,
        {cache: saved - prices[cache.store] for cache, saved in worthwhile.benefits.items()},
    )


def n_shared(problem: CacheProblem) -> int:
    """Return the number of stores that ``by_groups`` has to try."""
    return sum(len(group) > 1 for group in _worthwhile(problem).groups.values())


def _worthwhile(problem: CacheProblem) -> CacheProblem:
    """Leave out caches without benefit, and stores that cannot pay: no best choice needs them."""
    saving = problem.among({cache for cache, saved in problem.benefits.items() if saved > 0})
    paying = {
        cache
        for store, group in saving.groups.items()
        if sum(saving.benefits[member] for member in group) > saving.costs[store]
        for cache in group
    }
    return saving.among(paying)


def _nested_values(
    problem: CacheProblem, kept: Mapping[Store, NDArray[np.bool_]]
) -> NDArray[np.float64]:
    """Return the net of the best caches for each set of shared stores that are kept ((sets,))."""

    def best(candidate: Candidate) -> NDArray[np.float64]:
        inside = together(problem.forest.children[candidate])
        saved, store = problem.benefits[candidate], candidate.store
        if store not in kept:
            return np.maximum(inside, saved - problem.costs[store])
        return np.where(kept[store], np.maximum(inside, saved), inside)

    def together(candidates: Iterable[Candidate]) -> NDArray[np.float64]:
        n_sets = 1 << len(kept)
        return sum((best(cache) for cache in candidates), np.zeros(n_sets))

    return together(problem.forest.roots)


def exhaustive(problem: CacheProblem) -> Chosen:
    """Return the best choice by trying every set of candidates that exclude no other.

    For candidates that exclude each other in any way [Babu05 5.7]; at most 2^candidates sets.
    """
    return max(_compatible_sets(problem.candidates), key=problem.net)


def _compatible_sets(candidates: tuple[Candidate, ...]) -> Iterator[Chosen]:
    if not candidates:
        yield NOTHING
        return
    first, rest = candidates[0], candidates[1:]
    yield from _compatible_sets(rest)
    for chosen in _compatible_sets(tuple(cache for cache in rest if are_compatible(first, cache))):
        yield chosen | {first}


RUNS = 8
"""Roundings of the shares of the linear program; the best one counts."""


@dataclass(frozen=True, slots=True)
class _Offer:
    """Joins that can be covered at a price."""

    price: float
    joins: Joins
    caches: Chosen = NOTHING

    @property
    def ratio(self) -> float:
        return self.price / len(self.joins)


def greedy(problem: CacheProblem) -> Chosen:
    """Return the caches that cover most joins for the work, one offer after the other.

    A join by itself is an offer, and so are caches that share a store, the cheapest ones first. The
    result is not polished; see there.
    """
    uncovered, picked = set(problem.joins), NOTHING
    while uncovered:
        best = min(_offers(problem, uncovered, picked), key=lambda offer: offer.ratio)
        uncovered -= best.joins
        picked |= best.caches
    return _largest(picked)


def _offers(
    problem: CacheProblem, uncovered: Collection[tuple[str, int]], picked: Chosen
) -> Iterator[_Offer]:
    alone = min(
        (
            _Offer(work, frozenset({(name, position)}))
            for name, works in problem.works.items()
            for position, work in enumerate(works)
            if (name, position) in uncovered
        ),
        key=lambda offer: offer.ratio,
    )
    yield alone
    is_open = {cache.store for cache in picked}
    for store, group in problem.groups.items():
        price = 0.0 if store in is_open else problem.costs[store]
        yield from _offers_of(problem, group, price, uncovered)


def _offers_of(
    problem: CacheProblem,
    group: tuple[Candidate, ...],
    price: float,
    uncovered: Collection[tuple[str, int]],
) -> Iterator[_Offer]:
    """Yield the offers of caches that share a store: the cheapest one, the cheapest two, …."""
    newly = {cache: problem.spared(cache).intersection(uncovered) for cache in group}
    useful = [cache for cache in group if newly[cache]]
    joins, caches = NO_JOINS, NOTHING
    for cache in sorted(useful, key=lambda cache: problem.proc(cache) / len(newly[cache])):
        price += problem.proc(cache)
        joins |= newly[cache]
        caches |= {cache}
        yield _Offer(price, joins, caches)


def _largest(picked: Chosen) -> Chosen:
    """Return the caches that no other one holds: what is inside those is not needed."""
    return frozenset(cache for cache in picked if not any(other.holds(cache) for other in picked))


def polished(problem: CacheProblem, chosen: Chosen) -> Chosen:
    """Return a choice that is not worse: with the same stores, or without some of them."""
    best = best_with(problem, _stores(problem, chosen))
    while best:
        stores = _stores(problem, best)
        fewer = [
            best_with(problem, [other for other in stores if other != store]) for store in stores
        ]
        candidate = max(fewer, key=problem.net)
        if problem.net(candidate) <= problem.net(best):
            break
        best = candidate
    return max(NOTHING, best, key=problem.net)


def _stores(problem: CacheProblem, chosen: Chosen) -> list[Store]:
    return [
        store for store, group in problem.groups.items() if any(cache in chosen for cache in group)
    ]


@dataclass(frozen=True, slots=True)
class Relaxation:
    """The least work if caches and stores could be used in part."""

    work: float
    """No choice has less (per unit of time)."""
    caches: Mapping[Candidate, float]
    """The share of each candidate that is used ([0, 1])."""


def relaxation(problem: CacheProblem) -> Relaxation:
    """Return the optimum of the linear program of covering all joins.

    Raises:
        RuntimeError: the solver gave up.
    """
    from scipy.optimize import linprog  # noqa: PLC0415 - loading it takes longer than most choices

    stores, caches = list(problem.groups), list(problem.candidates)
    joins = [
        (name, position) for name, works in problem.works.items() for position in range(len(works))
    ]
    prices = [
        *(problem.costs[store] for store in stores),
        *(problem.proc(cache) for cache in caches),
        *(problem.works[name][position] for name, position in joins),
    ]
    optimum = linprog(
        prices,
        A_ub=np.concatenate([_covers(problem, joins, caches), _opens(stores, caches, len(joins))]),
        b_ub=np.concatenate([-np.ones(len(joins)), np.zeros(len(caches))]),
        bounds=(0.0, 1.0),
        method="highs",
    )
    if not optimum.success:
        msg = f"the linear program of the caches was not solved: {optimum.message}"
        raise RuntimeError(msg)
    used = optimum.x[len(stores) : len(stores) + len(caches)]
    return Relaxation(
        float(optimum.fun),
        dict(zip(caches, used.tolist(), strict=True)),
    )


def _covers(
    problem: CacheProblem, joins: list[tuple[str, int]], caches: list[Candidate]
) -> NDArray[np.float64]:
    """Every join is covered: −x_join − Σ x_cache ≤ −1 ((joins, stores + caches + joins))."""
    n_stores = len(problem.groups)
    rows = np.zeros((len(joins), n_stores + len(caches) + len(joins)))
    rows[:, n_stores + len(caches) :] = -np.eye(len(joins))
    for place, cache in enumerate(caches):
        spared = problem.spared(cache)
        rows[[join in spared for join in joins], n_stores + place] = -1.0
    return rows


def _opens(stores: list[Store], caches: list[Candidate], n_joins: int) -> NDArray[np.float64]:
    """A cache needs its store: x_cache − z_store ≤ 0 ((caches, stores + caches + joins))."""
    rows = np.zeros((len(caches), len(stores) + len(caches) + n_joins))
    rows[:, len(stores) : len(stores) + len(caches)] = np.eye(len(caches))
    for place, cache in enumerate(caches):
        rows[place, stores.index(cache.store)] = -1.0
    return rows


def rounded(problem: CacheProblem, shares: Relaxation, rng: np.random.Generator) -> Chosen:
    """Return caches picked with their shares as probabilities, until most joins are covered.

    One number decides of a store and all its caches, which keeps what is paid for stores at their
    shares. What stays uncovered is joined without a cache. The result is not polished.
    """
    picked = NOTHING
    for _ in range(ceil(2 * log(len(problem.joins)))):
        for group in problem.groups.values():
            threshold = rng.random()
            picked |= {cache for cache in group if threshold < shares.caches[cache]}
    return _largest(picked)


def lp_rounding(problem: CacheProblem, rng: np.random.Generator) -> Chosen:
    """Return the best of several roundings, polished.

    Raises:
        RuntimeError: the solver gave up.
    """
    shares = relaxation(problem)
    runs = [polished(problem, rounded(problem, shares, rng)) for _ in range(RUNS)]
    return max(runs, key=problem.net)
