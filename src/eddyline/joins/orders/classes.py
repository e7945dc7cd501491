"""Choice of probe orders by class of rows [Bizarro05].

Rows of one class may find no partner in ``t``, and those of another one none in ``u``, or very
many. So classes of rows may probe the windows in orders of their own. A class is a bin of one
column of the input. ``routing`` learns it from sampled rows and their partners in each window.

``Readable`` says which columns tasks can read. ``ProbeRoutes`` is the choice.
A look-up is priced as tasks measured it, with the rows that it makes: each of them is looked up in
all later windows. Routing costs the class of each row, and calls for each further order. In small
batches these calls take longer than any order saves, and then all rows keep one order.

Rows are routed where each way has one window: the root of a star, its leaves, and joins by one key.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from eddyline.errors import PlanError
from eddyline.joins.orders.probe_profiling import ClassOrders
from eddyline.routing.router import Prices
from eddyline.routing.table import RouteTable
from eddyline.runtime.choice import Choice
from eddyline.runtime.order_loop import RouteLoop
from eddyline.stats.costs import Budget
from eddyline.stats.profile import PartnerSample, joined, side_by_side

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eddyline.joins.graph import JoinGraph
    from eddyline.joins.orders.probe_order import WayFilters
    from eddyline.joins.orders.probe_profiling import DropSample, RowAttribute
    from eddyline.joins.plan import JoinProfile, JoinWork
    from eddyline.routing.table import Attribute
    from eddyline.runtime.journal import JournalEntry
    from eddyline.stats.profile import Order

ROUTE_NS = 250.0
"""Cost of finding the class of a row, of taking rows apart by class, and of a look-up that is no
longer in the order of keys (ns per row)."""

CALL_NS = 100_000.0
"""Cost of one more look-up of many rows in a window, whatever their number (ns)."""

LEAST_OF_ROWS = 0.25
"""Least share of the time of look-ups that is of their rows, whatever calls seem to take."""

KEPT = 0.8
"""Weight of the measured work of a batch one batch later."""

MAX_THINKING = 0.01
"""Most time that the driver takes to learn classes, as a share of the time of the tasks."""

MOST_OWED = 64.0
"""Most that one decision may owe, in what a batch earns."""

MOST_LABELS = 1_000
"""Texts of a column that are remembered to name classes."""


@dataclass(frozen=True, slots=True)
class Readable:
    """The columns of an input that may tell classes of its rows apart."""

    attributes: tuple[Attribute, ...]
    places: tuple[RowAttribute, ...]
    """Where tasks find them."""
    keys: Mapping[int, frozenset[str]] = field(default_factory=dict)
    """The columns that each key class compares."""


@dataclass(frozen=True, slots=True)
class ClassView:
    """Classes of the rows of an input that take the same order."""

    rows: str
    """The rows, in words."""
    order: tuple[str, ...]
    share: float
    """Share of the sampled rows (nan: none was sampled)."""


def can_route(filters: WayFilters) -> bool:
    """Return whether classes of rows may have orders: ways have one window, and there are two."""
    return len(filters.filters) > 1 and all(
        len(way_filter.way) == 1 for way_filter in filters.filters
    )


class ProbeRoutes(Choice):
    """The orders of the classes of the rows of one input, where they differ.

    Args:
        graph: the inputs and their key classes.
        filters: the pipeline, and the windows that it ranks; see ``can_route``.
        readable: the columns that may tell classes apart.
    """

    why_unlogged = "what the orders of classes cost is not in any sample later"

    def __init__(self, graph: JoinGraph, filters: WayFilters, readable: Readable) -> None:
        self.component = f"routes {filters.pipeline}"
        self.filters, self.readable = filters, readable
        targets = tuple(way_filter.target for way_filter in filters.filters)
        bound = (filters.pipeline, *filters.head)
        reads = tuple(
            frozenset[str]().union(
                *(readable.keys.get(key, frozenset()) for key in graph.links(bound, target))
            )
            for target in targets
        )
        self.loop = RouteLoop(
            self.component, targets, readable.attributes, reads, sample=PartnerSample
        )
        self._ns, self._n = np.zeros(len(targets)), np.zeros(len(targets))
        self._thinking = Budget(MAX_THINKING, most_owed=MOST_OWED)

    # -- learning -------------------------------------------------------------------------------

    @property
    def profiled(self) -> tuple[RowAttribute, ...]:
        """The columns that the next batch brings of sampled rows; none if nothing may pay."""
        return self.readable.places if self.loop.is_learning else ()

    def step(
        self, fresh: JoinProfile, order: Order, n_rows: int, batch_id: int, *, may_change: bool
    ) -> list[JournalEntry]:
        """Take in what a batch observed, and learn other classes.

        Args:
            fresh: samples and work of the batch.
            order: the windows as all rows probe them.
            n_rows: new rows of the input.
            batch_id: the batch, for the journal.
            may_change: whether orders may change; a person may hold them.
        """
        mine = [
            sample
            for sample in fresh.samples
            if sample.filters == self.filters and sample.classes is not None
        ]
        self.loop.count(n_rows, max(1, fresh.n_buckets) if n_rows else 0)
        self.loop.reordered(order)
        self._count_work(fresh.work, max(1, fresh.n_buckets))
        self._thinking.earn(fresh.ns)
        if mine:
            self._observe(mine)
        is_due = self.loop.is_due and self._thinking.may and self._n.any()
        if self.is_held or not may_change or not is_due:
            return []
        with self._thinking.spending():
            prices = self._prices(order)
            work_ns = float(prices.costs_ns.sum())
            return self.loop.decide(prices, work_ns, batch_id)

    def _observe(self, samples: Sequence[DropSample]) -> None:
        rows = joined([sample.classes for sample in samples if sample.classes is not None])
        self.loop.observe(rows.take(side_by_side([len(sample.codes) for sample in samples])))
        for sample in samples:
            for name, texts in sample.labels.items():
                labels = self.loop.labels.setdefault(name, {})
                if len(labels) < MOST_LABELS:
                    labels.update(texts)

    def _count_work(self, work: JoinWork, n_buckets: int) -> None:
        """Take in what look-ups took beyond their calls, which rows do not add to."""
        n_groups = 1 if self.loop.table is None else self.loop.table.n_groups
        calls_ns = CALL_NS * n_buckets * n_groups
        for position, name in enumerate(self.loop.filter_ids):
            done = work.probes.get((self.filters.pipeline, name))
            if done is not None and done.n_in:
                self._ns[position] = KEPT * self._ns[position] + max(
                    done.ns - calls_ns, LEAST_OF_ROWS * done.ns
                )
                self._n[position] = KEPT * self._n[position] + (done.n_in + done.n_out) / 2.0

    def _prices(self, order: Order) -> Prices:
        """Return what a look-up of a row takes, with one row that it makes, and what routing does.

        A row that comes and one that is made cost about as much. A window that no row has reached
        costs what the others do.
        """
        is_known = self._n > 0.0
        costs = np.full(len(self._n), self._ns.sum() / self._n.sum())
        np.divide(self._ns, self._n, out=costs, where=is_known)
        costs = np.maximum(costs, 1.0)
        calls_ns = CALL_NS * len(costs)
        return Prices(order, costs, ROUTE_NS, calls_ns / max(self.loop.batch_rows, 1.0))

    # -- the plan -------------------------------------------------------------------------------

    def orders(self, order: tuple[str, ...]) -> ClassOrders | None:
        """Return what tasks do; None if all rows take one order, which is given."""
        table = self.loop.table
        if table is None or table.n_groups < 2:
            return None
        place = self.readable.places[self.loop.names.index(table.attribute)]
        others = tuple(map(self.filters.order, table.orders[1:]))
        return ClassOrders(table, place, (order, *others))

    @property
    def routed_by(self) -> tuple[str, ...]:
        """The column that tells classes apart, if one does."""
        return () if self.loop.table is None else (self.loop.table.attribute,)

    def views(self, order: tuple[str, ...]) -> tuple[ClassView, ...]:
        """Return the rows of each order, for people; the order of all rows is given."""
        return tuple(
            ClassView(view.rows, self.filters.order(view.order) if place else order, view.share)
            for place, view in enumerate(self.loop.views())
        )

    @property
    def plan(self) -> dict[str, Any] | None:
        """The classes and their orders, by names of windows; None if all rows take one order."""
        table = self.loop.table
        if table is None:
            return None
        orders = [[self.loop.filter_ids[f] for f in order] for order in table.orders]
        return table.to_state() | {"orders": orders}

    @property
    def possible(self) -> str:
        """The plans that may be pinned, in words."""
        return (
            f"None (one order for all rows), or a plan of {self.component!r} that was in force: "
            f"a partition of one of {list(self.loop.names)}, lists of {list(self.loop.filter_ids)} "
            f"as orders, and the order of each bin as groups"
        )

    def is_possible(self, plan: Any) -> bool:
        """Return whether it is a table of a known column, whose orders have every window once."""
        return plan is None or self._table(plan) is not None

    def adopt(self, plan: Any) -> None:
        """Put other classes in force."""
        self.loop.table = None if plan is None else self._table(plan)

    def _table(self, plan: Any) -> RouteTable | None:
        try:
            names = self.loop.filter_ids
            orders = [[names.index(name) for name in order] for order in plan["orders"]]
            table = RouteTable.from_state({**plan, "orders": orders})
        except (KeyError, TypeError, ValueError, AttributeError, PlanError):
            return None
        fits = table.attribute in self.loop.names and table.n_filters == len(names)
        return table if fits else None

    def in_words(self, plan: Any) -> Any:
        """Return a plan as the journal has it."""
        return plan if plan is None else self.loop.words(self._table(plan))
