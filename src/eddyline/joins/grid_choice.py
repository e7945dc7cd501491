"""The choice of a grid: the fullest bucket, and the busiest task, get as few rows as possible.

The load of a bucket is estimated from histograms of hashes, the classes of an input being taken as
independent. Bins that hold more rows than a bucket should have are split by event time where the
smaller load of the busiest task is worth the copies.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from eddyline.state.grid import N_BINS, Grid, Split

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from numpy.typing import NDArray

    from eddyline.joins.graph import JoinGraph
    from eddyline.state.grid import Bins

MIN_GAIN = 1.5
"""Factor by which the fullest bucket must shrink before rows are moved, or copied more."""

MOST_SPLITS = 8
"""Most bins of a key class that are split; each makes placing rows longer."""

_DIVISORS = tuple(size for size in range(1, N_BINS + 1) if N_BINS % size == 0)


def chosen_grid(
    graph: JoinGraph,
    n_buckets: int,
    bins: Bins | None = None,
    *,
    timed: Collection[str] = (),
    n_tasks: int | None = None,
    uncut: Collection[int] = (),
) -> Grid:
    """Return the grid whose fullest bucket has the fewest rows to join.

    Bins are split where the busiest task then has so many times fewer rows as is worth the copies.

    Args:
        graph: the inputs and their key classes.
        n_buckets: most buckets; fewer where the grid allows no such number.
        bins: histograms of hashes; all inputs alike, and no key more often than others, if omitted.
        timed: the inputs whose rows can be cut by event time; no bin is split without one.
        n_tasks: tasks that run at a time; as many as there are buckets if omitted.
        uncut: the key classes by which rows are not cut.
    """
    every = _shapes(len(graph.classes), n_buckets)
    allowed = [shape for shape in every if all(shape[key] == 1 for key in uncut)]
    shapes = sorted(allowed, key=lambda shape: (prod(shape), shape))
    # Of shapes with equally full buckets the one with the fewest buckets, whose state is smallest.
    whole = min(map(Grid, shapes), key=lambda grid: fullest(graph, grid, bins))
    if bins is None or not timed:
        return whole
    n_tasks = n_tasks or n_buckets
    cut = (Grid(shape, _splits(graph, shape, bins, timed, n_tasks)) for shape in shapes)
    best = min(cut, key=lambda grid: busiest(graph, grid, bins, n_tasks))
    is_worth_it = gain(graph, whole, best, bins, n_tasks) >= MIN_GAIN
    return best if best.splits and is_worth_it else whole


def gain(graph: JoinGraph, before: Grid, after: Grid, bins: Bins | None, n_tasks: int) -> float:
    """Return the factor by which the fullest bucket shrinks, or the busiest task with splits."""
    if before.splits or after.splits:
        one, other = (busiest(graph, grid, bins, n_tasks) for grid in (before, after))
    else:
        one, other = (fullest(graph, grid, bins) for grid in (before, after))
    return one / max(other, 1e-9)


def fullest(graph: JoinGraph, grid: Grid, bins: Bins | None = None) -> float:
    """Return the rows of the fullest bucket of a grid, as far as histograms of hashes tell."""
    return float(_loads(graph, grid, bins).max())


def busiest(graph: JoinGraph, grid: Grid, bins: Bins | None, n_tasks: int) -> float:
    """Return the least rows of the busiest of so many tasks at a time.

    Copies make work for all tasks, so they count where there are more buckets than tasks.
    """
    loads = _loads(graph, grid, bins)
    return float(max(loads.max(), loads.sum() / n_tasks))


def _loads(graph: JoinGraph, grid: Grid, bins: Bins | None) -> NDArray[np.float64]:
    """Return the rows of each bucket."""
    load = np.zeros(grid.shape)
    for name in graph.inputs:
        part, n_rows = np.ones(grid.shape), 1.0
        for key in graph.classes_of[name]:
            counts = np.ones(N_BINS) if bins is None else bins[name, key]
            n_rows = float(counts.sum()) if bins is not None else 1.0
            by_part = _by_part(grid, name, key, counts) / max(float(counts.sum()), 1.0)
            part = part * by_part.reshape([-1 if at == key else 1 for at in range(load.ndim)])
        load += part * n_rows
    return load


def _by_part(grid: Grid, name: str, key: int, counts: NDArray[Any]) -> NDArray[np.float64]:
    """Return the rows of an input in each part of a key class."""
    size, whole = grid.shape[key], np.array(counts, np.float64)
    found = np.zeros(size)
    for split in grid.splits:
        if split.key == key:
            parts = (split.bin + np.arange(split.n_parts)) % size
            found[parts] += whole[split.bin] / split.side(name)[0]
            whole[split.bin] = 0.0
    return found + np.bincount(np.arange(N_BINS) % size, weights=whole)


def _splits(
    graph: JoinGraph, shape: tuple[int, ...], bins: Bins, timed: Collection[str], n_tasks: int
) -> tuple[Split, ...]:
    """Return the bins that are to be split, of those with more rows than a bucket should have."""
    found: list[Split] = []
    n_rows = float(_loads(graph, Grid(shape), bins).sum())
    share = n_rows / prod(shape)
    for key, size in enumerate(shape):
        members = [name for name in graph.inputs if key in graph.classes_of[name]]
        # Along their other classes rows are cut already.
        cuts = [prod(shape[k] for k in graph.classes_of[name] if k != key) for name in members]
        counts = np.stack([bins[name, key] / cut for name, cut in zip(members, cuts, strict=True)])
        for at in np.argsort(-counts.sum(axis=0), kind="stable")[:MOST_SPLITS]:
            rows = dict(zip(members, counts[:, at].tolist(), strict=True))
            n_alike = prod(shape) // size
            others = n_rows - sum(rows.values()) * n_alike
            sides = _sides(rows, timed, size, n_alike, others, n_tasks)
            if sides and sum(rows.values()) > share:
                found.append(Split(key, int(at), tuple(sides.items())))
                n_rows = others + n_alike * prod(sides.values()) * _n_in_part(rows, sides)
    return tuple(found)


def _sides(
    rows: Mapping[str, float],
    timed: Collection[str],
    size: int,
    n_alike: int,
    others: float,
    n_tasks: int,
) -> dict[str, int]:
    """Return in how many parts the inputs are cut in a bin; nothing if it is not worth it.

    Step by step the input is cut more finely of which that takes the most rows out of a bucket, as
    long as the busiest task has fewer rows then: copies make work for all of them. ``size`` is in
    how many parts the key class is cut, ``n_alike`` the buckets in each of these, and ``others``
    the rows of other bins in all buckets.
    """

    def busiest_with(sides: Mapping[str, int]) -> float:
        here = _n_in_part(rows, sides)
        everywhere = others + n_alike * prod(sides.values()) * here
        return max(here + others / (n_alike * size), everywhere / n_tasks)

    sides = {name: 1 for name in rows if name in timed}
    while True:
        finer = [
            {**sides, name: next(each for each in _DIVISORS if each > parts)}
            for name, parts in sides.items()
            if parts < N_BINS
        ]
        finer = [each for each in finer if prod(each.values()) <= size]
        best = min(finer, key=lambda each: _n_in_part(rows, each), default=sides)
        if busiest_with(best) >= busiest_with(sides):
            return {name: parts for name, parts in sides.items() if parts > 1}
        sides = best


def _n_in_part(rows: Mapping[str, float], sides: Mapping[str, int]) -> float:
    """Return the rows of a bin in one part of it."""
    return sum(n / sides.get(name, 1) for name, n in rows.items())


def _shapes(n_classes: int, n_buckets: int) -> Iterator[tuple[int, ...]]:
    """Yield every shape of at most so many buckets."""
    if n_classes == 0:
        yield ()
        return
    for size in _DIVISORS:
        if size <= n_buckets:
            for rest in _shapes(n_classes - 1, n_buckets // size):
                yield (size, *rest)
