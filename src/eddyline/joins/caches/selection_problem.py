"""The problem of choosing caches: candidates, the worth of a choice, and the best one, exactly.

Caches in use never overlap. Benefits add up; the cost of a store is paid once, however many caches
share it [Babu05 5.5.4]. Maximising benefit − cost is the same as minimising the work of covering
every join by a cache or by itself: the two differ by the work of all joins without a cache.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from eddyline.joins.caches.prefix_invariant import are_compatible, by_store, forest

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from numpy.typing import NDArray

    from eddyline.joins.caches.prefix_invariant import Candidate, Forest, Store

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
        return frozenset((name, at) for name, each in self.works.items() for at in range(len(each)))

    def spared(self, candidate: Candidate) -> Joins:
        """Return the joins that a hit spares."""
        positions = range(candidate.start, candidate.stop)
        return frozenset((candidate.pipeline, at) for at in positions)

    def proc(self, candidate: Candidate) -> float:
        """Return the work that is left of the joins of a candidate [Babu05 (5.d)]."""
        joins = self.works[candidate.pipeline][candidate.start : candidate.stop]
        return sum(joins) - self.benefits[candidate]

    def net(self, chosen: Collection[Candidate]) -> float:
        """Return the work that caches that do not overlap save, less the cost of their stores."""
        return sum(self.benefits[each] for each in self._used(chosen)) - self._paid(chosen)

    def _used(self, chosen: Collection[Candidate]) -> list[Candidate]:
        """Return caches in the order of the problem: sums must not depend on that of a set."""
        return [each for each in self.benefits if each in chosen]

    def _paid(self, chosen: Collection[Candidate]) -> float:
        stores = dict.fromkeys(each.store for each in self._used(chosen))
        return sum(self.costs[store] for store in stores)

    def among(self, candidates: Collection[Candidate]) -> CacheProblem:
        """Return the problem with fewer candidates."""
        benefits = {each: saved for each, saved in self.benefits.items() if each in candidates}
        return CacheProblem(benefits, self.costs, self.works)


def best_nested(found: Forest, values: Mapping[Candidate, float]) -> Chosen:
    """Return the caches of the greatest sum of values (> 0), of which none holds another.

    Each candidate is compared with the best choice inside it, from the inside out
    [Babu05 Thm 5.5.1]; of equals, the one larger cache.
    """

    def best(candidate: Candidate) -> tuple[float, Chosen]:
        inside, chosen = together(found.children[candidate])
        alone = values[candidate]
        return (
            (alone, frozenset({candidate})) if alone >= inside and alone > 0 else (inside, chosen)
        )

    def together(candidates: Iterable[Candidate]) -> tuple[float, Chosen]:
        parts = [best(each) for each in candidates]
        return sum(value for value, _ in parts), NOTHING.union(*(chosen for _, chosen in parts))

    return together(found.roots)[1]


def best_with(problem: CacheProblem, stores: Collection[Store]) -> Chosen:
    """Return the best caches when some stores are kept anyway and no others are."""
    values = {
        each: saved if each.store in stores else -np.inf for each, saved in problem.benefits.items()
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
    kept = {store: (sets >> at & 1).astype(bool) for at, store in enumerate(shared)}
    values = _nested_values(worthwhile, kept)
    for store, is_kept in kept.items():
        values -= np.where(is_kept, worthwhile.costs[store], 0.0)
    best = int(values.argmax())
    prices = {store: 0.0 if is_kept[best] else np.inf for store, is_kept in kept.items()}
    prices |= {store: cost for store, cost in worthwhile.costs.items() if store not in kept}
    return best_nested(
        worthwhile.forest,
        {each: saved - prices[each.store] for each, saved in worthwhile.benefits.items()},
    )


def n_shared(problem: CacheProblem) -> int:
    """Return the number of stores that ``by_groups`` has to try."""
    return sum(len(group) > 1 for group in _worthwhile(problem).groups.values())


def _worthwhile(problem: CacheProblem) -> CacheProblem:
    """Leave out caches without benefit, and stores that cannot pay: no best choice needs them."""
    saving = problem.among({each for each, saved in problem.benefits.items() if saved > 0})
    paying = {
        each
        for store, group in saving.groups.items()
        if sum(saving.benefits[member] for member in group) > saving.costs[store]
        for each in group
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
        return sum((best(each) for each in candidates), np.zeros(n_sets))

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
    for chosen in _compatible_sets(tuple(each for each in rest if are_compatible(first, each))):
        yield chosen | {first}
