"""The prefix invariant: the stretches of pipelines that a cache may spare.

A set of inputs is *closed* if the pipeline of each of them joins exactly the others first. Then
every change of their join falls out of the normal work of those pipelines, at a *tap* behind their
first joins, and a cache of it can be maintained [Babu05 Def 5.4.2]. Two closed sets are nested or
apart, as a pipeline has one beginning of each length.

Where a stretch is not closed, the smallest closed set that holds it serves instead: the cache may
then lack what no row of the other inputs of that set joins [Babu05 5.7].
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from eddyline.data.arrays import distinct
from eddyline.data.jit import compiled
from eddyline.joins.operator.composites import lives_of
from eddyline.state.rows import ALWAYS
from eddyline.state.run_index import AS_ENDS, first_alive, hashes_of, shift_of, stacked

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from eddyline.joins.graph import JoinGraph
    from eddyline.joins.operator.composites import Composites
    from eddyline.state.rows import SortedRun

Pipelines: TypeAlias = "Mapping[str, tuple[str, ...]]"
"""For each input, the others in the order in which its rows meet them."""

Inputs = frozenset[str]
"""A set of inputs by name."""


@dataclass(frozen=True, slots=True)
class Store:
    """Joined rows of some windows, kept by key. Caches of the same store share it.

    [Babu05 Def 5.5.1]
    """

    windows: Inputs
    """The inputs whose joined rows are kept (X)."""
    key: tuple[int, ...]
    """The key classes they are kept by, ascending."""
    closed: Inputs
    """The closed set whose pipelines say how the join changes (Z ⊇ X)."""

    @property
    def partners(self) -> Inputs:
        """The inputs without a row of which a joined row may be missing (Y; often none)."""
        return self.closed - self.windows

    @property
    def tap(self) -> int:
        """The position before which the pipelines of ``closed`` meet changes of the join.

        It is behind the last position if all inputs are in ``closed``.
        """
        return len(self.closed) - 1


@dataclass(frozen=True, slots=True)
class Candidate:
    """A cache that may be put into a pipeline, in the place of the joins ``[start, stop)``."""

    pipeline: str
    """The input whose pipeline it is."""
    start: int
    """The first position that a hit spares."""
    stop: int
    """The position at which a hit goes on."""
    store: Store

    def __str__(self) -> str:
        kept, partners = (
            " ⋈ ".join(sorted(inputs)) for inputs in (self.store.windows, self.store.partners)
        )
        return f"{f'({kept}) ⋉ {partners}' if partners else kept} for {self.pipeline}"

    @property
    def is_self_supporting(self) -> bool:
        """Whether the pipeline's own input is a partner of what is kept.

        A new row may then use a hit only if its window already holds a row with the same keys: rows
        that only the new row joins were never put in [Babu05 5.7; without it answers are wrong].
        """
        return self.pipeline in self.store.partners

    def holds(self, other: Candidate) -> bool:
        """Return whether it spares more joins than another one, and all of that one's."""
        return (
            self.pipeline == other.pipeline
            and self.start <= other.start
            and other.stop <= self.stop
            and self.stop - self.start > other.stop - other.start
        )

    def overlaps(self, other: Candidate) -> bool:
        """Return whether both spare the same join."""
        together = self.start < other.stop and other.start < self.stop
        return self.pipeline == other.pipeline and together

    def hides(self, other: Candidate) -> bool:
        """Return whether rows that it hits never reach the place of another one."""
        return self.holds(other) or (self.overlaps(other) and self.start < other.start)

    def straddles(self, store: Store) -> bool:
        """Return whether its hits bypass a tap of a store, which would then miss changes."""
        return self.pipeline in store.closed and self.start < store.tap < self.stop


def closed_sets(pipelines: Pipelines) -> tuple[Inputs, ...]:
    """Return the closed sets of two or more inputs but not all, small ones first [Babu05 5.4].

    >>> pipelines = {"r": ("s", "t"), "s": ("r", "t"), "t": ("s", "r")}
    >>> [sorted(each) for each in closed_sets(pipelines)]
    [['r', 's']]
    """
    begins: Counter[Inputs] = Counter()
    for size in range(2, len(pipelines)):
        begins.update(frozenset({name, *order[: size - 1]}) for name, order in pipelines.items())
    return tuple(inputs for inputs, count in begins.items() if count == len(inputs))


def smallest_closed(pipelines: Pipelines, windows: Inputs) -> Inputs:
    """Return the smallest closed set that holds some inputs; that of all inputs always does."""
    everything = (*closed_sets(pipelines), frozenset(pipelines))
    return next(inputs for inputs in everything if windows <= inputs)


def prefix_invariant(graph: JoinGraph, pipelines: Pipelines) -> tuple[Candidate, ...]:
    """Return the caches whose windows are closed, by pipeline, start and stop [Babu05 5.5.1]."""
    closed = set(closed_sets(pipelines))
    return tuple(
        _candidate(graph, pipelines, name, start, stop, windows)
        for name, start, stop, windows in _stretches(pipelines)
        if windows in closed
    )


def is_told(store: Store, pipelines: Pipelines) -> bool:
    """Return whether, with the orders in force, the taps of a store see all changes."""
    return smallest_closed(pipelines, store.windows) == store.closed


def is_sound(graph: JoinGraph, pipelines: Pipelines, cache: Candidate) -> bool:
    """Return whether a cache can stand where it says with the orders in force."""
    windows = frozenset(pipelines[cache.pipeline][cache.start : cache.stop])
    if cache.store.windows != windows or not is_told(cache.store, pipelines):
        return False
    stretch = cache.pipeline, cache.start, cache.stop
    return cache == _candidate(graph, pipelines, *stretch, cache.store.closed)


def candidates(graph: JoinGraph, pipelines: Pipelines, budget: int = 0) -> tuple[Candidate, ...]:
    """Return the caches to choose from: all whose windows are closed, others up to a budget (m).

    Of the others the longest come first: those of whole pipelines, then those of all but one join
    of a pipeline, and so on [Babu05 5.7].
    """
    first = prefix_invariant(graph, pipelines)
    closed = {candidate.store.windows for candidate in first}
    others = sorted(
        (stretch for stretch in _stretches(pipelines) if stretch[3] not in closed),
        key=lambda stretch: -len(stretch[3]),
    )
    more = (
        _candidate(graph, pipelines, name, start, stop, smallest_closed(pipelines, windows))
        for name, start, stop, windows in others[: max(budget - len(first), 0)]
    )
    return (*first, *more)


def _stretches(pipelines: Pipelines) -> Iterator[tuple[str, int, int, Inputs]]:
    """Return every stretch of two joins or more with its windows."""
    for name, order in pipelines.items():
        for start, stop in combinations(range(len(order) + 1), 2):
            if stop - start > 1:
                yield name, start, stop, frozenset(order[start:stop])


def _candidate(
    graph: JoinGraph,
    pipelines: Pipelines,
    name: str,
    start: int,
    stop: int,
    closed: Inputs,
) -> Candidate:
    before = {name, *pipelines[name][:start]}
    windows = frozenset(pipelines[name][start:stop])
    key = tuple(k for k, inputs in enumerate(graph.classes) if inputs & before and inputs & windows)
    return Candidate(name, start, stop, Store(windows, key, closed))


@dataclass(frozen=True, slots=True)
class Forest:
    """Candidates by containment: no two of a forest overlap unless one holds the other."""

    roots: tuple[Candidate, ...]
    """Candidates that no other one holds."""
    children: Mapping[Candidate, tuple[Candidate, ...]]
    """The largest candidates that each one holds."""


def forest(caches: Sequence[Candidate]) -> Forest:
    """Return the containment of candidates of all pipelines [Babu05 5.5.2].

    Raises:
        ValueError: two of them overlap, and none holds the other.
    """
    children: dict[Candidate, list[Candidate]] = {cache: [] for cache in caches}
    roots = []
    for cache in caches:
        around = [other for other in caches if other.overlaps(cache) and other != cache]
        if any(not other.holds(cache) and not cache.holds(other) for other in around):
            msg = f"{cache} overlaps another candidate that does not hold it"
            raise ValueError(msg)
        holders = [other for other in around if other.holds(cache)]
        if holders:
            children[min(holders, key=lambda other: other.stop - other.start)].append(cache)
        else:
            roots.append(cache)
    return Forest(tuple(roots), {cache: tuple(held) for cache, held in children.items()})


def by_store(caches: Iterable[Candidate]) -> dict[Store, tuple[Candidate, ...]]:
    """Return the candidates that share each store [Babu05 5.5.4]."""
    groups: dict[Store, tuple[Candidate, ...]] = {}
    for cache in caches:
        groups[cache.store] = (*groups.get(cache.store, ()), cache)
    return groups


def are_compatible(one: Candidate, other: Candidate) -> bool:
    """Return whether two caches can be in use at once."""
    return not (one.overlaps(other) or one.straddles(other.store) or other.straddles(one.store))


_UNKNOWN = -1


class PartnerRows:
    """The rows of all windows in a batch.

    ``latest`` has for some inputs the latest start of their rows in ``windows``, or later (µs);
    it is completed, and brought forward to the new rows.
    """

    def __init__(
        self,
        graph: JoinGraph,
        windows: Mapping[str, Sequence[SortedRun]],
        news: Mapping[str, SortedRun],
        latest: dict[str, int],
    ) -> None:
        self.graph = graph
        self._windows, self._news, self._latest = windows, news, latest
        self._supported: dict[str, NDArray[np.int8]] = {}
        for name in graph.inputs:
            runs = () if name in latest else windows.get(name, ())
            last = latest.get(name, ALWAYS)
            for run in (*runs, *([news[name]] if name in news else [])):
                last = max(last, int(run.rows.starts.max()))
            latest[name] = last

    def lives(
        self, names: Iterable[str], joined: Composites
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return between which instants rows of inputs live in combinations (one or more; µs)."""
        parts = []
        for name in names:
            new = [self._news[name]] if name in self._news else []
            parts.append(lives_of([*self._windows.get(name, ()), *new], joined.rows[name]))
        starts, ends = zip(*parts, strict=True)
        return np.maximum.reduce(starts), np.minimum.reduce(ends)

    def ask(self, pipeline: str, positions: NDArray[np.int64]) -> tuple[NDArray[np.bool_], int]:
        """Return for new rows whether they may use their hits, and the number of look-ups for that.

        The same row may come more than once.
        """
        support = self._supported.setdefault(
            pipeline, np.full(len(self._news[pipeline]), _UNKNOWN, np.int8)
        )
        rows = positions - self._n_before(pipeline)
        asked = distinct(rows[support[rows] == _UNKNOWN])
        if asked.size:
            support[asked] = self._has_like(pipeline, asked)
        return support[rows] > 0, asked.size

    def known(self, pipeline: str, positions: NDArray[np.int64]) -> NDArray[np.bool_] | None:
        """Return for new rows whether they surely may use hits; None if none was asked."""
        support = self._supported.get(pipeline)
        return None if support is None else support[positions - self._n_before(pipeline)] > 0

    def _n_before(self, pipeline: str) -> int:
        return sum(map(len, self._windows.get(pipeline, ())))

    def _has_like(self, pipeline: str, asked: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return for new rows whether a row in the window joins all that they join."""
        key, *others = self.graph.classes_of[pipeline]
        new = self._news[pipeline].rows
        latest = max(last for name, last in self._latest.items() if name != pipeline)
        hashes, starts = hashes_of(new.codes[key][asked]), new.starts[asked]
        until = np.minimum(new.ends[asked], latest)
        checks = stacked([new.codes[other][asked] for other in others], asked.size)
        mask = np.zeros(asked.size, np.bool_)
        for run in self._windows.get(pipeline, ()):
            index = run.index(key)
            has_like(
                hashes,
                starts,
                until,
                checks,
                index.entries,
                index.directory,
                index.places,
                index.bounds,
                stacked([run.rows.codes[other] for other in others], len(run)),
                mask,
            )
        return mask


@compiled
def has_like(
    hashes: NDArray[np.uint64],
    starts: NDArray[np.int64],
    until: NDArray[np.int64],
    checks: NDArray[np.int64],
    entries: NDArray[np.int64],
    directory: NDArray[np.uint32],
    places: NDArray[np.uint32],
    bounds: NDArray[np.int64],
    index_checks: NDArray[np.int64],
    mask: NDArray[np.bool_],
) -> None:
    """Mark rows of which a run has one with equal codes that started no later and lives until then.

    For the index see ``run_index.Index``; rows that are marked already are not looked up.
    """
    shift = shift_of(directory)
    for asked in range(hashes.size):
        if mask[asked]:
            continue
        slot = hashes[asked] >> shift
        low, high = np.int64(directory[slot]), np.int64(directory[slot + np.uint64(1)])
        place = first_alive(hashes[asked], until[asked], low, high, entries, bounds, AS_ENDS)
        while place < entries.shape[0] and not mask[asked]:
            if np.uint64(entries[place, 0]) != hashes[asked] or entries[place, 1] > starts[asked]:
                break
            row = np.int64(places[place]) if places.size else place
            is_like = entries[place, 2] >= until[asked]
            for code in range(checks.shape[0]):
                is_like = is_like and checks[code, asked] == index_checks[code, row]
            mask[asked] = is_like
            place += 1
