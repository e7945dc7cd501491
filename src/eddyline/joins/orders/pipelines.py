"""Choice of the probe order of each input's pipeline.

It learns from sampled rows. ``PipelineChoice`` keeps the order of one pipeline good. Windows are
ranked by the rows that they drop, as filters are (see ``probe_order``). But a window may also give
a row many partners, and each of them is one more probe of every window behind it. So ways that make
more combinations than they are given come last; among them, the way that adds least per probe comes
first, which is best where windows are independent (``Growth``).

``ProbeRoutes`` gives classes of the rows of an input other orders, where that pays (``classes``).

``JoinLoop`` has the pipelines of a join. Where predicates close a cycle, the ways to windows are
those of a tree, which is taken anew when other pairs of inputs turn out to be the pickiest.
"""

from __future__ import annotations

from itertools import combinations
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from eddyline.errors import PlanError, StateError
from eddyline.joins.orders.classes import ProbeRoutes, Readable, can_route
from eddyline.joins.orders.probe_order import has_cycle, neighbours, way_filters
from eddyline.joins.orders.probe_profiling import DropProbing
from eddyline.joins.plan import COMPONENT, pipeline_of
from eddyline.options import FilterOptions
from eddyline.ordering import policy as find_policy
from eddyline.runtime.choice import UNKNOWN_NS, Choice, are_names
from eddyline.runtime.journal import JournalEntry
from eddyline.runtime.monitors import monitor as find_monitor
from eddyline.runtime.order_loop import MIN_FILL, WINDOW_ROWS, OrderLoop, OrderState, RoutesState
from eddyline.runtime.records import OrderRecord
from eddyline.stats.costs import Budget
from eddyline.stats.profile import FilterProfile, merge_tasks

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from eddyline.joins.graph import JoinGraph
    from eddyline.joins.orders.probe_order import Pair, WayFilters
    from eddyline.joins.orders.probe_profiling import ClassOrders, DropSample
    from eddyline.joins.plan import JoinProfile
    from eddyline.options import JoinOptions
    from eddyline.runtime.choice import Advice, Situation
    from eddyline.stats.profile import Order

KEPT = 0.8
"""Weight of the combinations of a batch one batch later."""

DAMPING = 1.1
"""Combinations per row that differ by a smaller factor are the same."""

CHANGE = 1.5
"""Combinations per row that differ by a larger factor from those of the batches before have
changed: older counts are worthless then."""


NOTHING_READABLE: Mapping[str, Readable] = MappingProxyType({})
"""No column tells classes of rows apart."""


class GrowthState(msgspec.Struct, frozen=True):
    """The saved counts of ``Growth``."""

    n_rows: list[float]
    n_found: list[float]
    last: tuple[int, ...]


class Growth:
    """Counts the combinations that each way makes of one row."""

    def __init__(self, filters: WayFilters) -> None:
        self.filters = filters
        self.n_rows = np.zeros(len(filters.filters))
        self.n_found = np.zeros(len(filters.filters))
        self.last: Order = ()
        """The filters that come last, as their ways make more combinations than they are given."""

    @property
    def means(self) -> NDArray[np.float64]:
        """Combinations per row ((F,))."""
        return self.n_found / np.maximum(self.n_rows, 1.0)

    def by_target(self) -> dict[str, float]:
        """Return the combinations per row by the input that a way leads to."""
        targets = [way_filter.target for way_filter in self.filters.filters]
        return dict(zip(targets, self.means.round(4).tolist(), strict=True))

    def count(self, samples: Sequence[DropSample]) -> None:
        """Take in the samples of a batch, and review which filters come last."""
        n_rows = sum(len(sample.codes) / sample.prob for sample in samples)
        n_found = sum(sample.n_partners / sample.prob for sample in samples)
        kept = np.full(self.n_found.size, KEPT)
        if sum(len(sample.codes) for sample in samples) >= MIN_FILL:
            now, means = n_found / n_rows, self.means
            kept[np.maximum(now, means) > CHANGE * np.minimum(now, means)] = 0.0
        self.n_rows = kept * self.n_rows + n_rows
        self.n_found = kept * self.n_found + n_found
        self._review()

    def _review(self) -> None:
        means, ranks = self.means, self._ranks()
        least = np.full(means.size, DAMPING)
        least[list(self.last)] = 1.0 / DAMPING
        growing = [index for index in range(means.size) if means[index] > least[index]]
        is_sorted = all(
            ranks[one] <= DAMPING * max(ranks[other], 0.0)
            for place, one in enumerate(self.last)
            for other in self.last[place + 1 :]
        )
        if set(growing) != set(self.last) or not is_sorted:
            self.last = tuple(sorted(growing, key=lambda index: (ranks[index], index)))

    def ranking(self, order: Order) -> Order:
        """Return the filters with those that come last behind the others in their order."""
        return (*(index for index in order if index not in self.last), *self.last)

    def _ranks(self) -> NDArray[np.float64]:
        """Return the combinations that each way adds per probe ((F,))."""
        means, n_probes = self.means, np.ones(self.n_found.size)
        for index in self.filters.outwards:
            if (parent := self.filters.parents[index]) is not None:
                n_probes[index] = n_probes[parent] + means[parent]
        return (means - 1.0) / n_probes

    def snapshot(self) -> GrowthState:
        """Return the counts."""
        return GrowthState(self.n_rows.tolist(), self.n_found.tolist(), self.last)

    def restore(self, state: GrowthState) -> None:
        """Continue from what ``snapshot`` returned; PlanError if counts do not fit together."""
        n_filters, counts = self.n_found.size, (*state.n_rows, *state.n_found)
        fits = len(state.n_rows) == len(state.n_found) == n_filters
        if not (fits and all(0.0 <= n < np.inf for n in counts)) or not (
            set(state.last) <= set(range(n_filters))
        ):
            msg = f"the counts {counts} and the last filters {state.last} do not fit together"
            raise PlanError(msg, pipeline=self.filters.pipeline)
        self.n_rows, self.n_found = np.array(state.n_rows), np.array(state.n_found)
        self.last = state.last


class PipelineState(msgspec.Struct, frozen=True):
    """The saved state of one pipeline."""

    loop: OrderState
    growth: GrowthState


class PipelineChoice(Choice):
    """The order of the pipeline of one input.

    Nothing is learned of a pipeline before ``begin``, or of one that has no two filters to rank:
    then it has no ``loop``.

    Args:
        graph: the inputs and their key classes.
        name: the input.
        written: the other inputs, in the order in which they were written.
        options: of the learning.
        query: whose pipeline it is, where several queries share a join.
    """

    def __init__(
        self,
        graph: JoinGraph,
        name: str,
        written: tuple[str, ...],
        options: JoinOptions,
        query: str = "",
    ) -> None:
        self.component = pipeline_of(name, query)
        self.graph, self.name, self.written, self.options = graph, name, written, options
        self.order = written
        self.is_adaptive = options.adaptive and len(graph.inputs) > 2
        self.has_cycle = has_cycle(graph)
        self.filters: WayFilters | None = None
        """What is profiled; None if nothing is."""
        self.loop: OrderLoop | None = None
        self.targets: tuple[str, ...] = ()
        """The windows that the filters lead to."""
        self.n_met = 0
        """New rows of the input in the last batch."""
        self.routes: ProbeRoutes | None = None
        """The orders of classes of the rows; None if they have none of their own."""
        self._is_held = False

    def begin(self, filters: WayFilters) -> None:
        """Learn anew how to rank filters; the order in force stays."""
        self.filters, self.loop, self.n_met = filters, None, 0
        self.targets = tuple(way_filter.target for way_filter in filters.filters)
        self.growth = Growth(filters)
        if len(self.targets) < 2:
            return
        options = FilterOptions(
            policy=self.options.policy,
            monitor=self.options.monitor,
            adaptive=self.options.adaptive,
            routing=False,
            seed=self.options.seed,
        )
        self.loop = OrderLoop(
            self.component, self.targets, options, thinks_freely=True, window_rows=WINDOW_ROWS
        )
        self.loop.order = self.ranking(self.order)
        self.loop.is_held = self._is_held

    # -- learning -------------------------------------------------------------------------------

    def step(self, samples: Sequence[DropSample], batch_id: int) -> list[JournalEntry]:
        """Take in the samples of a batch, bucket by bucket, and change the order if they say so.

        Samples of other filters are left out.
        """
        if self.loop is None or self.filters is None:
            return []
        mine = [
            sample for sample in samples if sample.filters == self.filters and len(sample.codes)
        ]
        self.n_met = round(sum(len(sample.codes) / sample.prob for sample in mine))
        if not mine:
            return []
        profiles = [
            FilterProfile.of_sample(
                self.targets, sample.drops, prob=sample.prob, costs=sample.costs
            )
            for sample in mine
        ]
        decided = self.loop.step(merge_tasks(profiles, self.loop.window.max_tuples, 0), batch_id)
        was_last = self.growth.last
        self.growth.count(mine)
        entries = [entry for entry in decided if entry.event != "order"]
        is_same = len(entries) == len(decided) and self.growth.last == was_last
        if self.is_held or is_same:
            return entries
        before = self.order
        self.order = self.filters.order(self.growth.ranking(self.loop.order))
        if self.order != before:
            evidence: dict[str, Any] = {}
            for entry in decided[len(entries) :]:
                evidence |= entry.evidence
            if self.growth.last:
                evidence["combinations_per_row"] = self.growth.by_target()
            plans = list(before), list(self.order)
            entries.append(self.decision(batch_id, "order", *plans, evidence))
        return entries

    def drop_fracs(self) -> dict[str, float]:
        """Return the share of the sampled rows that find no partner in each window ([0, 1]).

        Windows without a filter are missing, and all of them before the first sample.
        """
        if self.loop is None:
            return {}
        profile = self.loop.window.profile()
        bits, weights = profile.bits()
        total = profile.passed + float(weights.sum())
        if total <= 0.0:
            return {}
        return dict(zip(self.targets, (weights @ bits / total).tolist(), strict=True))

    def record(self) -> OrderRecord | None:
        """Return the pipeline after a batch, nan for unknown figures; None if nothing is learned.

        Costs are those of finding out which rows have partners. An order that was taken because of
        the combinations that windows make has none: what it saves is not in them.
        """
        if self.loop is None:
            return None
        names = self.written
        rankings = self.ranking(self.order), self.ranking(self.written)
        of_targets, cost, as_written = self.loop.figures(*rankings)
        if self.growth.last and self.order != self.written:
            cost = as_written = float("nan")
        fracs = dict.fromkeys(names, float("nan"))
        fracs |= dict(zip(self.targets, of_targets.tolist(), strict=True))
        return OrderRecord(
            component=self.component,
            filter_ids=names,
            order=tuple(names.index(name) for name in self.order),
            drop_fracs=tuple(fracs.values()),
            cost_ns=cost,
            as_written_ns=as_written,
            n_rows=self.n_met,
            routed_by=() if self.routes is None else self.routes.routed_by,
        )

    def ranking(self, order: Sequence[str]) -> Order:
        """Return the filters in the order of their windows."""
        places = {name: place for place, name in enumerate(order)}
        return tuple(
            sorted(range(len(self.targets)), key=lambda index: places[self.targets[index]])
        )

    # -- what a person pins, and the log --------------------------------------------------------

    @property
    def is_held(self) -> bool:
        """Whether the order stays as it is."""
        return self._is_held

    @is_held.setter
    def is_held(self, is_held: bool) -> None:
        self._is_held = is_held
        if is_held:
            self._unroute()
        if self.loop is not None:
            self.loop.is_held = is_held

    @property
    def plan(self) -> list[str]:
        """The order in force."""
        return list(self.order)

    @property
    def possible(self) -> str:
        """The plans that may be pinned, in words."""
        others = [other for other in self.graph.inputs if other != self.name]
        return (
            f"a list of all of {others}, each once, in an order in which each is joined with "
            f"{self.name!r} or one before it"
        )

    def is_possible(self, plan: Any) -> bool:
        """Return whether it has every other input once, without a Cartesian product."""
        if not are_names(plan) or len(plan) != len(self.graph.inputs) - 1:
            return False
        are_inputs = all(name in self.graph.inputs for name in plan)
        return are_inputs and self.graph.is_legal(self.name, plan)

    def adopt(self, plan: Sequence[str]) -> None:
        """Put another order in force, for rows of every class; learning goes on from there."""
        self.order = tuple(plan)
        self._unroute()
        if self.loop is not None:
            self.loop.reorder(self.ranking(plan))

    def _unroute(self) -> None:
        """Let rows of every class take the order, unless a person holds those of classes."""
        if self.routes is not None and not self.routes.is_held:
            self.routes.adopt(None)

    def advice(self) -> Advice | None:
        """Return the order of the look-ups that is the best on the evidence, and its cost."""
        return None if self.loop is None else self.loop.advice()

    @property
    def why_unlogged(self) -> str:  # type: ignore[override]
        """Why nothing is logged, if it is not."""
        if self.has_cycle:
            return "where predicates close a cycle, the ways to windows change, too"
        if self.loop is None:
            return ""
        if self.routes is not None and self.routes.routed_by:
            return "classes of rows have orders of their own"
        if self.growth.last:
            return "what ways cost that make more combinations than they are given is in no sample"
        return self.loop.why_unlogged

    def situation(self) -> Situation | None:
        """Return what windows drop."""
        return None if self.loop is None else self.loop.situation()

    def rows_met(self, n_rows: int) -> int:  # noqa: ARG002
        """Return the new rows of the input."""
        return self.n_met

    def cost_of(self, plan: list[str], evidence: Any) -> float:
        """Return the cost of finding out which rows have partners (ns per row)."""
        if self.loop is None:
            return UNKNOWN_NS
        return self.loop.cost_of(self.loop.names(self.ranking(plan)), evidence)

    def best_single(self, held: Sequence[tuple[Any, float]]) -> list[str] | None:
        """Return the order that a greedy algorithm chooses for all situations together."""
        best = None if self.loop is None else self.loop.best_single(held)
        if self.filters is None or best is None:
            return None
        return list(self.filters.order(tuple(map(self.targets.index, best))))

    def take(self, plan: list[str], evidence: Any) -> None:
        """Put an order in force, and the evidence that it was chosen by."""
        self.adopt(plan)
        if self.loop is not None:
            self.loop.begin_with(evidence)

    def let_go(self) -> None:
        """Let all evidence go but what came since the last change."""
        if self.loop is not None:
            self.loop.let_go()

    # -- saving ---------------------------------------------------------------------------------

    def snapshot(self) -> PipelineState | None:
        """Return the learned state; None if nothing is learned."""
        if self.loop is None:
            return None
        return PipelineState(self.loop.snapshot(), self.growth.snapshot())

    def restore(self, state: PipelineState) -> None:
        """Continue from what ``snapshot`` returned; StateError or PlanError if it is damaged."""
        if self.loop is not None:
            self.loop.restore(state.loop)
            self.growth.restore(state.growth)


SAMPLE_ROWS = 200
"""New rows of each input whose partners are looked up in every window, per bucket and batch."""

TREE_BATCHES = 10
"""Batches between two reviews of the tree."""

MAX_OVERHEAD = 0.02
"""Most time that profiling takes, as a share of the time that the join takes."""

MOST_SKIPPED = 8
"""Most batches in a row in which nothing is profiled because profiling took too long before."""


class JoinState(msgspec.Struct, frozen=True):
    """The saved state of the loop."""

    inputs: tuple[str, ...]
    orders: dict[str, tuple[str, ...]]
    tree: list[tuple[str, str, float]]
    """Pairs of inputs and the share of their pairs of rows that are joined."""
    pairs: list[tuple[str, str, float, float]]
    """Pairs of inputs, the pairs of sampled rows that are joined, and all pairs."""
    n_since_tree: int
    pipelines: dict[str, PipelineState]
    routes: dict[str, RoutesState] = {}


class JoinLoop:
    """Keeps the orders of a join good.

    Args:
        graph: the inputs and their key classes.
        options: of the learning.
        tables: the inputs whose rows were always there.
        readable: by input, the columns by which classes of its rows may have orders of their own.
        query: whose orders they are, where several queries share a join.

    Raises:
        OptionError: the policy or the monitor is unknown or of the wrong kind.
    """

    def __init__(
        self,
        graph: JoinGraph,
        options: JoinOptions,
        tables: frozenset[str] = frozenset(),
        readable: Mapping[str, Readable] = NOTHING_READABLE,
        query: str = "",
    ) -> None:
        find_policy(options.policy)
        find_monitor(options.monitor)
        self.graph = graph
        self.options = options
        self._tables = tables
        self.written = written_orders(graph)
        self.pipelines = {
            name: PipelineChoice(graph, name, order, options, query)
            for name, order in self.written.items()
        }
        self.is_adaptive = options.adaptive and len(graph.inputs) > 2
        self.pairs: dict[Pair, tuple[float, float]] = {}
        """By pair of inputs, the pairs of sampled rows that are joined, and all pairs; counted
        only where predicates close a cycle."""
        self._neighbours = neighbours(graph) if has_cycle(graph) else {}
        near = self._neighbours.items()
        self._edges = {frozenset({name, other}) for name, others in near for other in others}
        self._budget = Budget(MAX_OVERHEAD, saves=False, most_owed=MOST_SKIPPED)
        self._n_since_tree = TREE_BATCHES - 1
        self._tree: dict[Pair, float] = {}
        if self.is_adaptive:
            self._use_tree({})
            if not self._neighbours and options.routing:
                self._route(readable)

    def _route(self, readable: Mapping[str, Readable]) -> None:
        """Let classes of rows have orders where that is possible; see ``classes.can_route``."""
        for name, pipeline in self.pipelines.items():
            filters, columns = pipeline.filters, readable.get(name)
            if filters is None or columns is None or name in self._tables:
                continue
            if columns.attributes and can_route(filters):
                pipeline.routes = ProbeRoutes(self.graph, filters, columns)

    @property
    def routes(self) -> dict[str, ProbeRoutes]:
        """The orders of classes of rows, by input that may have some."""
        pairs = ((name, pipeline.routes) for name, pipeline in self.pipelines.items())
        return {name: routes for name, routes in pairs if routes is not None}

    @property
    def classes(self) -> dict[str, ClassOrders]:
        """The orders in force of classes of rows, by input."""
        plan, routes = self.plan, self.routes.items()
        pairs = ((name, route.orders(plan[name])) for name, route in routes)
        return {name: orders for name, orders in pairs if orders is not None}

    @property
    def plan(self) -> dict[str, tuple[str, ...]]:
        """The orders in force."""
        return {name: pipeline.order for name, pipeline in self.pipelines.items()}

    @property
    def choices(self) -> tuple[Choice, ...]:
        """The pipelines whose order may be another one: of two inputs there is no other.

        Classes come first: who holds all plans as they are holds theirs before those of all rows.
        """
        if len(self.graph.inputs) == 2:
            return ()
        return (*self.routes.values(), *self.pipelines.values())

    def probing(self, n_parts: Sequence[int] = ()) -> DropProbing | None:
        """Return the choice of the new rows that the next batch profiles; None if it profiles none.

        While profiling has taken more than its share, it goes on only for pipelines of which little
        is known. ``n_parts`` says in how many parts each key class is cut.
        """
        ways = {
            name: pipeline.filters
            for name, pipeline in self.pipelines.items()
            if pipeline.filters is not None and self._is_profiled(pipeline)
        }
        if not ways:
            return None
        parts = tuple(n_parts)
        seed, neighbours_of, tables = self.options.seed, self._neighbours, self._tables
        attributes = {name: routes.profiled for name, routes in self.routes.items() if name in ways}
        return DropProbing(SAMPLE_ROWS, ways, seed, neighbours_of, parts, tables, attributes)

    def _is_profiled(self, pipeline: PipelineChoice) -> bool:
        if pipeline.loop is None:
            return bool(self._neighbours) and self._budget.may
        return self._budget.may or pipeline.loop.is_warming

    def step(self, fresh: JoinProfile, batch_id: int = -1) -> list[JournalEntry]:
        """Take in what a batch observed, and change orders; returns findings and decisions."""
        self._budget.spend(sum(sample.ns for sample in fresh.samples))
        self._budget.earn(fresh.ns)
        entries: list[JournalEntry] = []
        for pipeline in self.pipelines.values():
            entries += pipeline.step(fresh.samples, batch_id)
            if pipeline.routes is not None:
                order, may = pipeline.ranking(pipeline.order), not pipeline.is_held
                entries += pipeline.routes.step(
                    fresh, order, pipeline.n_met, batch_id, may_change=may
                )
        if self._neighbours and self.is_adaptive:
            self._count_pairs(fresh.samples)
            entries += self._review_tree(batch_id)
        return entries

    def records(self) -> tuple[OrderRecord, ...]:
        """Return the pipelines that have something to learn, after a batch."""
        records = (pipeline.record() for pipeline in self.pipelines.values())
        return tuple(record for record in records if record is not None)

    # -- the tree of a join with a cycle --------------------------------------------------------

    def _use_tree(self, pass_fracs: Mapping[Pair, float]) -> list[PipelineChoice]:
        """Take the tree of the pickiest pairs; return the pipelines to which that matters."""
        self._tree = dict(pass_fracs)
        changed = []
        for name, pipeline in self.pipelines.items():
            filters = way_filters(self.graph, name, pass_fracs)
            if filters != pipeline.filters:
                pipeline.begin(filters)
                changed.append(pipeline)
        return changed

    def _count_pairs(self, samples: Sequence[DropSample]) -> None:
        fresh: dict[Pair, tuple[int, int]] = {}
        for sample in samples:
            for other, (joined, n_pairs) in sample.pairs.items():
                pair = frozenset({sample.filters.pipeline, other})
                so_far = fresh.get(pair, (0, 0))
                fresh[pair] = so_far[0] + joined, so_far[1] + n_pairs
        for pair, (joined, n_pairs) in fresh.items():
            before = self.pairs.get(pair, (0.0, 0.0))
            self.pairs[pair] = KEPT * before[0] + joined, KEPT * before[1] + n_pairs

    def _review_tree(self, batch_id: int) -> list[JournalEntry]:
        """Take another tree where other pairs are the pickiest now."""
        self._n_since_tree += 1
        if self._n_since_tree < TREE_BATCHES or not self._edges <= self.pairs.keys():
            return []
        self._n_since_tree = 0
        now = {pair: joined / n_pairs for pair, (joined, n_pairs) in self.pairs.items()}
        before = self._tree
        if before and not _has_swapped(_ranked(before), now):
            return []
        changed = self._use_tree(now)
        entries = []
        if changed:
            evidence = {
                "pass_fracs": {_text(pair): now[pair] for pair in _ranked(now)},
                "pipelines": [pipeline.name for pipeline in changed],
            }
            ranks = list(map(_text, _ranked(before))), list(map(_text, _ranked(now)))
            entries.append(JournalEntry(batch_id, COMPONENT, "tree", *ranks, evidence))
        for pipeline in changed:
            assert pipeline.filters is not None
            order = pipeline.filters.nearest(pipeline.order)
            if not pipeline.is_held and order != pipeline.order:
                plans, why = (pipeline.plan, list(order)), {"why": "another tree"}
                entries.append(pipeline.decision(batch_id, "order", *plans, why))
                pipeline.order = order
        return entries

    # -- saving ---------------------------------------------------------------------------------

    def snapshot(self) -> JoinState:
        """Return the learned state."""
        states = {name: pipeline.snapshot() for name, pipeline in self.pipelines.items()}
        return JoinState(
            inputs=self.graph.inputs,
            orders=self.plan,
            tree=[(*_ends(pair), frac) for pair, frac in self._tree.items()],
            pairs=[(*_ends(pair), *counts) for pair, counts in self.pairs.items()],
            n_since_tree=self._n_since_tree,
            pipelines={name: state for name, state in states.items() if state is not None},
            routes={name: routes.loop.snapshot() for name, routes in self.routes.items()},
        )

    def restore(self, state: Any) -> None:
        """Continue from what ``snapshot`` returned; what is switched off stays as written.

        Raises:
            StateError: the state is of another join, or damaged.
        """
        try:
            self._restore(msgspec.convert(state, JoinState, from_attributes=True))
        except (msgspec.ValidationError, PlanError, KeyError, TypeError, ValueError) as error:
            msg = (
                f"the saved orders of the join are damaged: {error}; start from an empty checkpoint"
            )
            raise StateError(msg) from error

    def _restore(self, state: JoinState) -> None:
        if state.inputs != self.graph.inputs:
            msg = (
                f"the saved orders are of a join of {list(state.inputs)}, this one is of "
                f"{list(self.graph.inputs)}; start from an empty checkpoint"
            )
            raise StateError(msg, saved=state.inputs, now=self.graph.inputs)
        for name, pipeline in self.pipelines.items():
            order = state.orders.get(name, ())
            if not pipeline.is_possible(order):
                msg = f"{list(order)} is no order of the pipeline of {name}"
                raise PlanError(msg, order=order)
        if not self.is_adaptive:
            return
        tree = {frozenset({one, other}): frac for one, other, frac in state.tree}
        if tree and tree.keys() != self._edges:
            msg = f"the tree is of {[_text(pair) for pair in tree]}, which is not what is joined"
            raise PlanError(msg, pairs=list(tree))
        self._use_tree(tree)
        self.pairs = {
            frozenset({one, other}): (joined, n_pairs)
            for one, other, joined, n_pairs in state.pairs
        }
        self._n_since_tree = state.n_since_tree
        for name, pipeline in self.pipelines.items():
            if name in state.pipelines:
                pipeline.restore(state.pipelines[name])
            pipeline.order = state.orders[name]
            if pipeline.routes is not None and name in state.routes:
                pipeline.routes.loop.restore(state.routes[name])


def written_orders(graph: JoinGraph) -> dict[str, tuple[str, ...]]:
    """Return, for each input, the others as they were written, without Cartesian products."""
    orders = {}
    for first in graph.inputs:
        order: list[str] = []
        while reachable := graph.reachable((first, *order)):
            order.append(next(name for name in graph.inputs if name in reachable))
        orders[first] = tuple(order)
    return orders


def _ranked(pass_fracs: Mapping[Pair, float]) -> list[Pair]:
    """Return pairs of inputs, the pickiest first."""
    return sorted(pass_fracs, key=lambda pair: (pass_fracs[pair], sorted(pair)))


def _has_swapped(ranks: Sequence[Pair], pass_fracs: Mapping[Pair, float]) -> bool:
    """Return whether a pair of inputs is clearly less picky now than one that ranked behind it."""
    return any(
        pass_fracs[one] > CHANGE * pass_fracs[other] for one, other in combinations(ranks, 2)
    )


def _ends(pair: Pair) -> tuple[str, str]:
    one, other = sorted(pair)
    return one, other


def _text(pair: Pair) -> str:
    return "-".join(sorted(pair))
