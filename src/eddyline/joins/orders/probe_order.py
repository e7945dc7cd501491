"""Probe order of one input [Babu05 5.2].

A window without a match drops the row, so filter policies can rank windows. A window that shares no
key with the row is reached only through others, as no order may need a Cartesian product. Its
filter tests the whole way, and choosing it puts the whole way into the order.

A greedy ranking costs at most four times the least possible work if all windows can be probed at
once (the row is of the root of a star). Nothing is known for other joins.

The ways are those of a tree of inputs and key classes; all inputs of a class are joined with each
other. Where predicates close a cycle, the tree has the predicates that the fewest pairs fulfil. The
probes test the others, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eddyline.joins.graph import JoinGraph

Pair = frozenset[str]
"""Two inputs that a predicate connects."""


@dataclass(frozen=True, slots=True)
class WayFilter:
    """Drops a row, or a combination of rows, without a partner along the way to an input."""

    way: tuple[str, ...]
    """The windows on the way; each shares a key with the row or a window before it."""

    @property
    def target(self) -> str:
        """The input that the way leads to."""
        return self.way[-1]


@dataclass(frozen=True)
class WayFilters:
    """The filters of one pipeline, which a policy ranks."""

    pipeline: str
    """The input of the pipeline."""
    head: tuple[str, ...]
    """The windows that all ways lead through, which are probed first; the filters are then of
    combinations with these. The root of a star, if the row is of a leaf; else none."""
    filters: tuple[WayFilter, ...]
    """One for each other window."""

    @cached_property
    def parents(self) -> tuple[int | None, ...]:
        """For each filter, the filter of the way without its last window; None if that is empty."""
        places = {way_filter.way: index for index, way_filter in enumerate(self.filters)}
        return tuple(places.get(way_filter.way[:-1]) for way_filter in self.filters)

    @cached_property
    def outwards(self) -> tuple[int, ...]:
        """The filters, each behind all filters on its way.

        Profiled in this order, windows that ways have in common are probed once.
        """
        lengths = [len(way_filter.way) for way_filter in self.filters]
        return tuple(sorted(range(len(lengths)), key=lambda index: lengths[index]))

    def order(self, ranking: Sequence[int]) -> tuple[str, ...]:
        """Return the order of the windows by ``ranking[position] -> index``, the best filter first.

        Each filter adds those of its way that are missing.
        """
        order = dict.fromkeys(self.head)
        for index in ranking:
            order |= dict.fromkeys(self.filters[index].way)
        return tuple(order)

    def nearest(self, order: Sequence[str]) -> tuple[str, ...]:
        """Return the order along the ways that is nearest to another order."""
        targets = [way_filter.target for way_filter in self.filters]
        return self.order(
            sorted(range(len(targets)), key=lambda index: order.index(targets[index]))
        )


def way_filters(
    graph: JoinGraph, pipeline: str, pass_fracs: Mapping[Pair, float] | None = None
) -> WayFilters:
    """Return the filters of the pipeline of an input.

    The shares of pairs of rows that are joined ([0, 1]; 1 where missing) matter only where
    predicates close a cycle.
    """
    ways = _ways(_tree(graph, pass_fracs or {}), pipeline)
    others = [ways[name] for name in graph.inputs if name != pipeline]
    root = min(others, key=len)
    if all(way == root or (len(way) == 2 and way[:1] == root) for way in others):
        leaves = tuple(WayFilter(way[1:]) for way in others if way != root)
        return WayFilters(pipeline, root, leaves)
    return WayFilters(pipeline, (), tuple(WayFilter(way) for way in others))


def has_cycle(graph: JoinGraph) -> bool:
    """Return whether predicates connect some inputs in more than one way."""
    classes = [members for members in graph.classes if len(members) > 1]
    return sum(map(len, classes)) > len(graph.inputs) + len(classes) - 1


def neighbours(graph: JoinGraph) -> dict[str, tuple[str, ...]]:
    """Return the inputs that each one is directly joined with."""
    return {
        name: tuple(
            other for other in graph.inputs if other != name and graph.links((name,), other)
        )
        for name in graph.inputs
    }


Tree = dict[str, list[int]]
"""The key classes that each input keeps in a tree of inputs and classes."""


def _tree(graph: JoinGraph, pass_fracs: Mapping[Pair, float]) -> Tree:
    """Return the least spanning tree of inputs and classes.

    An input hangs on a class as tightly as its rows are joined with the pickiest other input there.
    Where each class is of two inputs that is the tree of the pickiest predicates.
    """

    def looseness(link: tuple[str, int]) -> float:
        name, key = link
        others = graph.classes[key] - {name}
        return min(pass_fracs.get(frozenset({name, other}), 1.0) for other in others)

    links = [
        (name, key)
        for name in graph.inputs
        for key in graph.classes_of[name]
        if len(graph.classes[key]) > 1
    ]
    tree: Tree = {name: [] for name in graph.inputs}
    for name, key in _spanning(sorted(links, key=looseness)) if has_cycle(graph) else links:
        tree[name].append(key)
    return {name: sorted(keys) for name, keys in tree.items()}


def _spanning(links: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
    """Return the links of a spanning tree of a connected graph, the first ones that make one."""
    from scipy.sparse import coo_array  # noqa: PLC0415 - it takes long to load
    from scipy.sparse.csgraph import minimum_spanning_tree  # noqa: PLC0415

    names = {name: number for number, name in enumerate(dict.fromkeys(name for name, _ in links))}
    ends = [[names[name] for name, _ in links], [len(names) + key for _, key in links]]
    size = 1 + max(ends[1])
    # A rank for a weight: ties are broken by it, and none is 0, which would be no link.
    ranks = range(1, len(links) + 1)
    tree = minimum_spanning_tree(coo_array((ranks, ends), shape=(size, size)))
    return [links[int(rank) - 1] for rank in tree.data]


def _ways(tree: Tree, start: str) -> dict[str, tuple[str, ...]]:
    """Return the windows on the way to each input."""
    ways: dict[str, tuple[str, ...]] = {start: ()}
    ahead = [start]
    for name in ahead:
        for other, keys in tree.items():
            if other not in ways and set(keys) & set(tree[name]):
                ways[other] = (*ways[name], other)
                ahead.append(other)
    return ways
