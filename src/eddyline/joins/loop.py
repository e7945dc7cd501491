"""The loop of a join: what its pipelines observe, and the order of each.

Each pipeline with two or more windows to rank learns its order from the rows that were looked up in
all of them. Where predicates close a cycle, the ways to windows are those of a tree, which is taken
anew when other pairs of inputs turn out to be the pickiest.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Any

from eddyline.errors import PlanError, StateError
from eddyline.joins.orders.loop import CHANGE, KEPT, PipelineLoop
from eddyline.joins.orders.probe_order import way_filters
from eddyline.joins.orders.probe_profiling import DropProbing
from eddyline.ordering import policy as find_policy
from eddyline.runtime.journal import JournalEntry
from eddyline.runtime.monitors import monitor as find_monitor

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from eddyline.joins.graph import JoinGraph
    from eddyline.joins.orders.probe_order import Pair, WayFilters
    from eddyline.joins.orders.probe_profiling import DropSample
    from eddyline.options import JoinOptions
    from eddyline.runtime.records import BlockRecord

COMPONENT = "join"
"""What the journal calls decisions about the join as a whole."""

TREE_BATCHES = 10
"""Batches between two looks at which pairs of inputs are the pickiest."""


MAX_OVERHEAD = 0.02
"""Most time that profiling takes, as a share of the time that the join takes."""

MOST_SKIPPED = 8
"""Batches in which nothing is profiled, at most, as it took too long before."""


class JoinLoop:
    """Keeps the orders of a join good.

    Args:
        graph: what is joined with what.
        options: how orders are learned.

    Raises:
        OptionError: the policy or the monitor is unknown or of the wrong kind.
    """

    def __init__(self, graph: JoinGraph, options: JoinOptions) -> None:
        find_policy(options.policy)
        find_monitor(options.monitor)
        self.graph = graph
        self.options = options
        self.written = written_orders(graph)
        self.orders = dict(self.written)
        self.is_adaptive = options.adaptive and options.sample_rows > 0 and len(graph.inputs) > 2
        self.pairs: dict[Pair, tuple[float, float]] = {}
        """Of pairs of inputs, the pairs of sampled rows that are joined, and all pairs; counted
        only where predicates close a cycle."""
        self._neighbours = _neighbours(graph) if has_cycle(graph) else {}
        near = self._neighbours.items()
        self._edges = {frozenset({name, other}) for name, others in near for other in others}
        self._debt_ns = 0.0
        self._n_since_tree = TREE_BATCHES - 1
        self._tree: dict[Pair, float] = {}
        self._filters: dict[str, WayFilters] = {}
        self._pipelines: dict[str, PipelineLoop] = {}
        if self.is_adaptive:
            self._use_tree({})

    def probing(self, n_parts: Sequence[int] = ()) -> DropProbing | None:
        """Return which new rows of the next batch are profiled; None if none is.

        While profiling has taken more than its share, only pipelines of which little is known go
        on with it.

        Args:
            n_parts: in how many parts each key class is cut; not cut if omitted.
        """
        ways = {name: filters for name, filters in self._filters.items() if self._is_profiled(name)}
        if not ways:
            return None
        parts = tuple(n_parts)
        options = self.options
        return DropProbing(options.sample_rows, ways, options.seed, self._neighbours, parts)

    def _is_profiled(self, name: str) -> bool:
        if name not in self._pipelines:
            return bool(self._neighbours) and self._debt_ns <= 0.0
        return self._debt_ns <= 0.0 or self._pipelines[name].is_warming

    def step(
        self, samples: Iterable[DropSample], batch_id: int = -1, join_ns: int | None = None
    ) -> list[JournalEntry]:
        """Take in what a batch observed, and change orders if the evidence says so.

        Args:
            samples: what the tasks sampled, by bucket.
            batch_id: the micro-batch, for the journal.
            join_ns: time that the tasks took together (ns); None: profiling has no budget.

        Returns:
            What was found and decided.
        """
        found = list(samples)
        if join_ns is not None:
            share_ns = MAX_OVERHEAD * join_ns
            debt_ns = self._debt_ns + sum(each.ns for each in found) - share_ns
            self._debt_ns = min(max(debt_ns, 0.0), MOST_SKIPPED * share_ns)
        entries: list[JournalEntry] = []
        for name, pipeline in self._pipelines.items():
            mine = [each for each in found if each.filters.pipeline == name]
            entries += pipeline.step(mine, batch_id)
            self.orders[name] = pipeline.order
        if self._neighbours and self.is_adaptive:
            self._count_pairs(found)
            entries += self._review_tree(batch_id)
        return entries

    def drop_fracs(self, name: str) -> dict[str, float]:
        """Return the share of the sampled rows of an input that each window drops ([0, 1]).

        Windows of which nothing is known are missing.
        """
        return self._pipelines[name].drop_fracs() if name in self._pipelines else {}

    def records(self) -> tuple[BlockRecord, ...]:
        """Return how each pipeline stands, of those that have something to learn."""
        return tuple(pipeline.record() for pipeline in self._pipelines.values())

    # -- the tree of a join with a cycle --------------------------------------------------------

    def _use_tree(self, pass_fracs: Mapping[Pair, float]) -> list[str]:
        """Take the tree of the pickiest pairs.

        Returns:
            The inputs to whose pipelines it makes a difference.
        """
        self._tree = dict(pass_fracs)
        changed = []
        for name in self.graph.inputs:
            filters = way_filters(self.graph, name, pass_fracs)
            if filters == self._filters.get(name):
                continue
            changed.append(name)
            self._filters[name] = filters
            self._pipelines.pop(name, None)
            if len(filters.filters) > 1:
                self._pipelines[name] = PipelineLoop(
                    filters, self.options, self.written[name], self.orders[name]
                )
        return changed

    def _count_pairs(self, samples: Sequence[DropSample]) -> None:
        fresh: dict[Pair, tuple[int, int]] = {}
        for each in samples:
            for other, (joined, of) in each.pairs.items():
                pair = frozenset({each.filters.pipeline, other})
                so_far = fresh.get(pair, (0, 0))
                fresh[pair] = so_far[0] + joined, so_far[1] + of
        for pair, (joined, of) in fresh.items():
            before = self.pairs.get(pair, (0.0, 0.0))
            self.pairs[pair] = KEPT * before[0] + joined, KEPT * before[1] + of

    def _review_tree(self, batch_id: int) -> list[JournalEntry]:
        """Take another tree where other pairs are the pickiest now."""
        self._n_since_tree += 1
        if self._n_since_tree < TREE_BATCHES or not self._edges <= self.pairs.keys():
            return []
        self._n_since_tree = 0
        now = {pair: joined / of for pair, (joined, of) in self.pairs.items()}
        before = self._tree
        if before and not _has_swapped(_ranked(before), now):
            return []
        changed = self._use_tree(now)
        entries = []
        if changed:
            evidence = {
                "pass_fracs": {_text(pair): now[pair] for pair in _ranked(now)},
                "pipelines": changed,
            }
            ranks = list(map(_text, _ranked(before))), list(map(_text, _ranked(now)))
            entries.append(JournalEntry(batch_id, COMPONENT, "tree", *ranks, evidence))
        for name in changed:
            order = _order_along(self._filters[name], self.orders[name])
            if order != self.orders[name]:
                plans = list(self.orders[name]), list(order)
                why = {"why": "another tree"}
                entries.append(JournalEntry(batch_id, f"pipeline {name}", "order", *plans, why))
                self._adopt(name, order)
        return entries

    def _adopt(self, name: str, order: tuple[str, ...]) -> None:
        self.orders[name] = order
        if name in self._pipelines:
            self._pipelines[name].order = order

    # -- saving ---------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """Return what was learned, as plain values."""
        return {
            "inputs": list(self.graph.inputs),
            "orders": {name: list(order) for name, order in self.orders.items()},
            "tree": [[*sorted(pair), frac] for pair, frac in self._tree.items()],
            "pairs": [[*sorted(pair), *counts] for pair, counts in self.pairs.items()],
            "n_since_tree": self._n_since_tree,
            "pipelines": {name: each.snapshot() for name, each in self._pipelines.items()},
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from what ``snapshot`` returned; what is switched off stays as written.

        Raises:
            StateError: the state is of another join, or damaged.
        """
        try:
            self._restore(state)
        except (PlanError, LookupError, TypeError, ValueError, AttributeError) as error:
            msg = (
                f"the saved orders of the join are damaged: {type(error).__name__}: {error}; "
                f"start from an empty checkpoint"
            )
            raise StateError(msg) from error

    def _restore(self, state: dict[str, Any]) -> None:
        if tuple(state["inputs"]) != self.graph.inputs:
            msg = (
                f"the saved orders are of a join of {state['inputs']}, this one is of "
                f"{list(self.graph.inputs)}; start from an empty checkpoint"
            )
            raise StateError(msg, saved=state["inputs"], now=self.graph.inputs)
        orders = {name: tuple(state["orders"][name]) for name in self.graph.inputs}
        for name, order in orders.items():
            if not self.graph.is_legal(name, order) or len(order) != len(self.graph.inputs) - 1:
                msg = f"{list(order)} is no order of the pipeline of {name}"
                raise PlanError(msg, order=order)
        if not self.is_adaptive:
            return
        tree = {frozenset({one, other}): float(frac) for one, other, frac in state["tree"]}
        if tree and tree.keys() != self._edges:
            msg = f"the tree is of {[_text(pair) for pair in tree]}, which is not what is joined"
            raise PlanError(msg, pairs=list(tree))
        self._use_tree(tree)
        self.pairs = {
            frozenset({one, other}): (float(joined), float(of))
            for one, other, joined, of in state["pairs"]
        }
        self._n_since_tree = int(state["n_since_tree"])
        for name, order in orders.items():
            if name in self._pipelines and name in state["pipelines"]:
                self._pipelines[name].restore(state["pipelines"][name])
            self._adopt(name, order)


def written_orders(graph: JoinGraph) -> dict[str, tuple[str, ...]]:
    """Return, for each input, the others as they were written, without Cartesian products."""
    orders = {}
    for first in graph.inputs:
        order: list[str] = []
        while reachable := graph.reachable((first, *order)):
            order.append(next(name for name in graph.inputs if name in reachable))
        orders[first] = tuple(order)
    return orders


def has_cycle(graph: JoinGraph) -> bool:
    """Return whether there is more than one way between some inputs."""
    classes = [members for members in graph.classes if len(members) > 1]
    return sum(map(len, classes)) > len(graph.inputs) + len(classes) - 1


def _neighbours(graph: JoinGraph) -> dict[str, tuple[str, ...]]:
    """Return the inputs that each one is directly joined with."""
    return {
        name: tuple(each for each in graph.inputs if each != name and graph.links((name,), each))
        for name in graph.inputs
    }


def _order_along(filters: WayFilters, order: Sequence[str]) -> tuple[str, ...]:
    """Return the order along ways that is nearest to another one."""
    places = {name: at for at, name in enumerate(order)}
    targets = [each.target for each in filters.filters]
    return filters.order(sorted(range(len(targets)), key=lambda at: places[targets[at]]))


def _ranked(pass_fracs: Mapping[Pair, float]) -> list[Pair]:
    """Return pairs of inputs, the pickiest first."""
    return sorted(pass_fracs, key=lambda pair: (pass_fracs[pair], sorted(pair)))


def _has_swapped(ranks: Sequence[Pair], pass_fracs: Mapping[Pair, float]) -> bool:
    """Return whether a pair of inputs is clearly less picky now than one that ranked behind it."""
    return any(
        pass_fracs[one] > CHANGE * pass_fracs[other] for one, other in combinations(ranks, 2)
    )


def _text(pair: Pair) -> str:
    return "-".join(sorted(pair))
