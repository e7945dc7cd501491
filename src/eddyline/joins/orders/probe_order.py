"""In which order the rows of an input meet the windows of the others [Babu05 5.2].

A window that a row finds no partner in drops that row, so windows can be ordered as filters are, by
whatever ranks filters. But an input that is not joined with the row's own can only be met behind
those on the way to it: no order needs a Cartesian product. Its filter asks whether any partner is
found *along the whole way*, and the windows of the way take its place in the order.

A greedy ranking costs at most four times the least possible work if all windows can be met at once
(the row is of the root of a star). Nothing is known for other joins.

The ways are those of a tree of inputs and key classes: inputs of a class are all joined with each
other. Where predicates close a cycle, a tree is taken from the ones that the fewest pairs fulfil;
the joins test the others all the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from eddyline.joins.graph import JoinGraph

Pair = frozenset[str]
"""Two inputs that a predicate connects."""


@dataclass(frozen=True, slots=True)
class WayFilter:
    """Drops a row, or a combination of rows, without a partner along the way to an input."""

    way: tuple[str, ...]
    """The windows on the way, in which each can be joined with what is before it."""

    @property
    def target(self) -> str:
        """The input that the way leads to."""
        return self.way[-1]


@dataclass(frozen=True)
class WayFilters:
    """What there is to rank for one pipeline."""

    pipeline: str
    """The input whose rows they are."""
    head: tuple[str, ...]
    """The windows that all ways lead through, met first; the filters are of combinations of a row
    with one of each of these. The root of a star, if the row is of a leaf; else none."""
    filters: tuple[WayFilter, ...]
    """One for each other window."""

    @cached_property
    def parents(self) -> tuple[int | None, ...]:
        """For each filter, the one whose way is this one's without the target; None if empty."""
        places = {each.way: at for at, each in enumerate(self.filters)}
        return tuple(places.get(each.way[:-1]) for each in self.filters)

    @cached_property
    def outwards(self) -> tuple[int, ...]:
        """The filters with every one behind those on its way.

        To profile them in this order evaluates what ways have in common once.
        """
        lengths = [len(each.way) for each in self.filters]
        return tuple(sorted(range(len(lengths)), key=lambda at: lengths[at]))

    def closed_outwards(self, drops: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return which filters drop, given those that were found to: the ways through them too.

        Args:
            drops: which filter is known to drop each profiled row ((rows, filters)).
        """
        closed = drops.copy()
        for at in self.outwards:
            if (parent := self.parents[at]) is not None:
                closed[:, at] |= closed[:, parent]
        return closed

    def order(self, ranking: Sequence[int]) -> tuple[str, ...]:
        """Return the order of the windows: each filter brings those of its way that are missing.

        Args:
            ranking: the filters, the best first (``ranking[position] -> index``).
        """
        order = dict.fromkeys(self.head)
        for at in ranking:
            order |= dict.fromkeys(self.filters[at].way)
        return tuple(order)


def order_pipeline(
    graph: JoinGraph,
    pipeline: str,
    rank: Callable[[WayFilters], Sequence[int]],
    pass_fracs: Mapping[Pair, float] | None = None,
) -> tuple[str, ...]:
    """Return the order in which the rows of an input meet the windows of the others.

    Args:
        graph: what is joined with what.
        pipeline: the input.
        rank: returns the filters, the best first; all of them.
        pass_fracs: see ``way_filters``.
    """
    filters = way_filters(graph, pipeline, pass_fracs)
    return filters.order(rank(filters))


def way_filters(
    graph: JoinGraph, pipeline: str, pass_fracs: Mapping[Pair, float] | None = None
) -> WayFilters:
    """Return what there is to rank for the pipeline of an input.

    Args:
        graph: what is joined with what.
        pipeline: the input.
        pass_fracs: the share of the pairs of rows of two inputs that are joined ([0, 1]); all the
            same if missing. Only of interest if predicates close a cycle.
    """
    ways = _ways(_tree(graph, pass_fracs or {}), pipeline)
    others = [ways[name] for name in graph.inputs if name != pipeline]
    root = min(others, key=len)
    if all(each == root or (len(each) == 2 and each[:1] == root) for each in others):
        leaves = tuple(WayFilter(each[1:]) for each in others if each != root)
        return WayFilters(pipeline, root, leaves)
    return WayFilters(pipeline, (), tuple(WayFilter(each) for each in others))


Tree = dict[str, list[int]]
"""The classes by which each input hangs on a tree."""


def _tree(graph: JoinGraph, pass_fracs: Mapping[Pair, float]) -> Tree:
    """Return the least spanning tree of inputs and classes, by Kruskal's algorithm.

    An input hangs on a class as tightly as its rows are joined with the pickiest other one there.
    Where each class is of two inputs that is the tree of the pickiest predicates.
    """

    def looseness(name: str, key: int) -> float:
        others = graph.classes[key] - {name}
        return min(pass_fracs.get(frozenset({name, other}), 1.0) for other in others)

    links = [
        (name, key)
        for name in graph.inputs
        for key in graph.classes_of[name]
        if len(graph.classes[key]) > 1
    ]
    part: dict[str | int, int] = {
        node: at for at, node in enumerate([*graph.inputs, *range(len(graph.classes))])
    }
    tree: Tree = {name: [] for name in graph.inputs}
    for name, key in sorted(links, key=lambda link: looseness(*link)):
        if part[name] != part[key]:
            tree[name].append(key)
            joined, other = part[name], part[key]
            part = {node: joined if of == other else of for node, of in part.items()}
    return {name: sorted(keys) for name, keys in tree.items()}


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
