"""Choices of caches where there are too many shared stores to try them all: two approximations.

Every join of every pipeline is covered, by itself or by a cache; what costs least per join covered
is taken first, or the shares of a linear program are rounded. Both cost at most O(log n) times the
least possible work [Babu05 Thm 5.5.3]. That says nothing of what they *save*, so both end with a
polish: with the stores they keep, the best caches inside each pipeline; and no store without which
there is less work.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log
from typing import TYPE_CHECKING

import numpy as np

from eddyline.joins.caches.selection_problem import NO_JOINS, NOTHING, best_with

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from numpy.typing import NDArray

    from eddyline.joins.caches.prefix_invariant import Candidate, Store
    from eddyline.joins.caches.selection_problem import CacheProblem, Chosen, Joins

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
            _Offer(work, frozenset({(name, at)}))
            for name, works in problem.works.items()
            for at, work in enumerate(works)
            if (name, at) in uncovered
        ),
        key=lambda offer: offer.ratio,
    )
    yield alone
    is_open = {each.store for each in picked}
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
    newly = {each: problem.spared(each).intersection(uncovered) for each in group}
    useful = [each for each in group if newly[each]]
    joins, caches = NO_JOINS, NOTHING
    for each in sorted(useful, key=lambda each: problem.proc(each) / len(newly[each])):
        price += problem.proc(each)
        joins |= newly[each]
        caches |= {each}
        yield _Offer(price, joins, caches)


def _largest(picked: Chosen) -> Chosen:
    """Return the caches that no other one holds: what is inside those is not needed."""
    return frozenset(each for each in picked if not any(other.holds(each) for other in picked))


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
        store for store, group in problem.groups.items() if any(each in chosen for each in group)
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
    joins = [(name, at) for name, works in problem.works.items() for at in range(len(works))]
    prices = [
        *(problem.costs[store] for store in stores),
        *(problem.proc(each) for each in caches),
        *(problem.works[name][at] for name, at in joins),
    ]
    found = linprog(
        prices,
        A_ub=np.concatenate([_covers(problem, joins, caches), _opens(stores, caches, len(joins))]),
        b_ub=np.concatenate([-np.ones(len(joins)), np.zeros(len(caches))]),
        bounds=(0.0, 1.0),
        method="highs",
    )
    if not found.success:
        msg = f"the linear program of the caches was not solved: {found.message}"
        raise RuntimeError(msg)
    used = found.x[len(stores) : len(stores) + len(caches)]
    return Relaxation(
        float(found.fun),
        dict(zip(caches, used.tolist(), strict=True)),
    )


def _covers(
    problem: CacheProblem, joins: list[tuple[str, int]], caches: list[Candidate]
) -> NDArray[np.float64]:
    """Every join is covered: −x_join − Σ x_cache ≤ −1 ((joins, stores + caches + joins))."""
    n_stores = len(problem.groups)
    rows = np.zeros((len(joins), n_stores + len(caches) + len(joins)))
    rows[:, n_stores + len(caches) :] = -np.eye(len(joins))
    for at, each in enumerate(caches):
        spared = problem.spared(each)
        rows[[join in spared for join in joins], n_stores + at] = -1.0
    return rows


def _opens(stores: list[Store], caches: list[Candidate], n_joins: int) -> NDArray[np.float64]:
    """A cache needs its store: x_cache − z_store ≤ 0 ((caches, stores + caches + joins))."""
    rows = np.zeros((len(caches), len(stores) + len(caches) + n_joins))
    rows[:, len(stores) : len(stores) + len(caches)] = np.eye(len(caches))
    for at, each in enumerate(caches):
        rows[at, stores.index(each.store)] = -1.0
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
            picked |= {each for each in group if threshold < shares.caches[each]}
    return _largest(picked)


def lp_rounding(problem: CacheProblem, rng: np.random.Generator, n_runs: int = RUNS) -> Chosen:
    """Return the best of several roundings, polished.

    Raises:
        RuntimeError: the solver gave up.
    """
    shares = relaxation(problem)
    runs = [polished(problem, rounded(problem, shares, rng)) for _ in range(n_runs)]
    return max(runs, key=problem.net)
