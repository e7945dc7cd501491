"""The part of the loop that gives classes of rows orders of their own.

It keeps the newest sampled rows with their attributes, asks the router for a table once enough of
them are new, and holds the table in force. A table is learned and kept on the same evidence that
orders are: when a change makes evidence stale, the sample goes with it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from eddyline.errors import OptionError, PlanError
from eddyline.filters.view import RouteView
from eddyline.routing.options import RouterOptions
from eddyline.routing.router import Router
from eddyline.routing.saving import Prices
from eddyline.routing.table import RouteTable
from eddyline.runtime.journal import JournalEntry
from eddyline.stats.profile import AttributeSample, joined

if TYPE_CHECKING:
    from eddyline.query.attributes import Attribute
    from eddyline.stats.costs import CostSums
    from eddyline.stats.profile import FilterProfile, Order

MAX_ROWS = 5000
"""Sampled rows that a table is learned from, the newest ones."""

DUE_ROWS = 400
"""New sampled rows before the router is asked again, or a quarter of a smaller sample."""

REVIEW_ROWS = 100
"""New sampled rows before anything is looked at: whether the table in force still pays."""

PAYING_ROWS = 10_000
"""Input rows before a sample is taken for routing alone: a shorter job would not earn it back."""

BATCH_MEMORY = 20_000
"""Rows after which two thirds of what is known of the size of batches is of the newest ones."""

RELEARN_EVERY = 8
"""Batches from one look to the next where no table pays."""

LOOK_UP_NS = 15.0
"""Cost of finding a row's class in a worker, per attribute of the table (ns per row)."""

HAND_OVER_NS = 25.0
"""Cost of handing an attribute over to a worker (ns per row)."""

MOST_SAVED = 0.7
"""Most of the work that routing is taken to save: the paper's best case. Where that does not pay
for finding the class, attributes are not handed over at all."""

REGROUP_NS = 40.0
"""Cost of taking a batch's rows apart by group (ns per row)."""

GROUP_CALL_NS = 30_000.0
"""Cost to the executor of one more call of a filter, beside the filter's own fixed cost (ns)."""

COMPILED_REFINEMENT = 0.05
"""Share of the cost that another table of the native block must save: Spark compiles it anew."""

COMPILED_CLASSES = 256
"""Most classes in the native block: their conditions are code, of some kilobytes then."""

COMPILED_CHAINS = 32
"""Most conditions in the chains of the native block, one chain per order: with 64 of them, the code
took two to four times as long as one chain, with 32 it did not."""

MAX_CONDITION_NS = 200.0
"""Most that the JVM is taken to spend on telling whether a row is of a class (ns). It is a
comparison or two, so where filters are as cheap as that it costs what the cheapest of them does."""


def router_options(spec: Any) -> RouterOptions:
    """Return the options of the router: those given, or the defaults for True."""
    if isinstance(spec, RouterOptions):
        return spec
    if isinstance(spec, bool):
        return RouterOptions()
    msg = f"option 'routing' must be True, False or RouterOptions(…), got {spec!r}"
    raise OptionError(msg, name="routing", value=spec)


def can_compile(n_filters: int) -> bool:
    """Return whether at least two orders of so many filters fit into compiled code."""
    return COMPILED_CHAINS // max(n_filters, 1) >= 2


def _compiled(spec: Any, n_filters: int) -> RouterOptions:
    """Return the options where a table is compiled code: it must fit, and another be worth it."""
    options = router_options(spec)
    return replace(
        options,
        min_refinement=max(options.min_refinement, COMPILED_REFINEMENT),
        max_classes=min(options.max_classes, COMPILED_CLASSES),
        max_groups=min(options.max_groups, max(COMPILED_CHAINS // n_filters, 2)),
    )


class RoutesState(msgspec.Struct, frozen=True, kw_only=True):
    """Saved state of classes of rows."""

    table: dict[str, Any] | None
    n_batches: int
    batch_rows: float
    learned_from: int
    n_sampled: int
    n_rows: float


class Routes:
    """The route table of one block, and the evidence for it.

    The columns that each filter reads itself are unknown if omitted; ``hands_over`` says whether
    attributes have to be handed over to a worker.
    """

    def __init__(
        self,
        component: str,
        filter_ids: tuple[str, ...],
        attributes: tuple[Attribute, ...],
        reads: tuple[frozenset[str], ...] | None,
        options: Any,
        *,
        hands_over: bool,
    ) -> None:
        self.component = component
        self.filter_ids = filter_ids
        self.attributes = attributes
        self.names = tuple(each.name for each in attributes)
        self.table: RouteTable | None = None
        self.n_batches = 0
        self.labels = {each.name: each.labels for each in attributes if not each.text_sql}
        """Meaning of an attribute's values; of a text, once somebody has looked."""
        columns = reads or (frozenset(),) * len(filter_ids)
        own = tuple(
            frozenset(each.name for each in attributes if each.decides(read)) for read in columns
        )
        self._router = Router(
            filter_ids,
            self.names,
            tuple(each.kind for each in attributes),
            own,
            router_options(options) if hands_over else _compiled(options, len(filter_ids)),
        )
        self._hands_over = hands_over
        self._sample = AttributeSample.empty(self.names, len(filter_ids))
        self._n_new = 0
        self._n_reviewed = 0
        self._learned_from = 0
        self._n_sampled = 0
        self._n_rows = 0.0
        self._batch_rows = 1.0
        self._may_pay = True

    @property
    def is_learning(self) -> bool:
        """Whether the next batch should bring attributes: a table pays, or may."""
        is_short = self._sample.n_rows < MAX_ROWS and self._may_pay
        return is_short or self.table is not None or self.n_batches % RELEARN_EVERY == 0

    @property
    def n_lacking(self) -> int:
        """Sampled rows that a first table lacks, if there are rows enough to pay for it."""
        if self._n_rows < PAYING_ROWS:
            return 0
        return max(0, self._router.options.min_rows - self._n_sampled)

    def count(self, fresh: FilterProfile) -> None:
        """Take note of what came in, with or without attributes."""
        self.n_batches += 1
        self._n_rows += fresh.n_rows
        if fresh.n_batches:
            recent = fresh.n_rows / fresh.n_batches
            weight = fresh.n_rows / (fresh.n_rows + BATCH_MEMORY) if self._batch_rows > 1.0 else 1.0
            self._batch_rows += weight * (recent - self._batch_rows)

    def observe(self, fresh: AttributeSample) -> None:
        """Take in sampled rows with their attributes."""
        self._sample = joined([self._sample, fresh.of(self.names)]).last(MAX_ROWS)
        self._n_new += fresh.n_rows
        self._n_sampled += fresh.n_rows

    def reordered(self, order: Order) -> None:
        """Take note of another order of all rows: rows of no class in particular follow it."""
        if self.table is not None:
            self.table = self.table.with_default(order)

    def keep_newest(self, n_rows: int) -> None:
        """Let older sampled rows go, which a change has made stale."""
        self._sample = self._sample.last(n_rows)
        self._n_new = min(self._n_new, self._sample.n_rows)
        self._n_reviewed = min(self._n_reviewed, self._n_new)
        self._learned_from = min(self._learned_from, self._sample.n_rows)

    @property
    def is_due(self) -> bool:
        """Whether there is enough new evidence to ask the router anything."""
        return self._is_proposal_due or self._is_review_due

    @property
    def _is_review_due(self) -> bool:
        """Whether there is enough to see if the table in force still pays."""
        return self.table is not None and self._n_new - self._n_reviewed >= REVIEW_ROWS

    @property
    def _is_proposal_due(self) -> bool:
        """Whether there is enough to learn another table."""
        least = self._router.options.min_rows
        if self.table is not None:  # few rows of a task do not outweigh what all tasks taught
            least = max(least, self._learned_from)
        is_enough = self._sample.n_rows >= least
        return is_enough and self._n_new >= min(DUE_ROWS, self._sample.n_rows / 4)

    def decide(
        self, order: Order, costs: CostSums, work_ns: float, batch_id: int
    ) -> list[JournalEntry]:
        """Ask the router for a better table; under one order, a row costs ``work_ns`` (ns)."""
        prices = self._prices(order, costs)
        self._may_pay = prices.route_ns < MOST_SAVED * work_ns
        proposal = None
        if self._is_proposal_due:
            self._n_new = self._n_reviewed = 0
            proposal = self._router.propose(prices, self.table, self._sample)
        elif self.table is not None and self._is_review_due:
            self._n_reviewed = self._n_new
            proposal = self._router.review(prices, self.table, self._sample)
        if proposal is None or proposal.table == self.table:
            return []
        before, self.table = self.table, proposal.table
        self._learned_from = self._sample.n_rows
        if self.table is None:
            self.keep_newest(REVIEW_ROWS)  # what was before taught a table that pays no more
        words = (self._words(before), self._words(self.table))
        return [JournalEntry(batch_id, self.component, "routes", *words, proposal.evidence)]

    def _prices(self, order: Order, costs: CostSums) -> Prices:
        """Return the costs of filters and of routing."""
        fixed_ns, per_row_ns = costs.fit()
        if not self._hands_over:
            condition_ns = min(float(per_row_ns.min()), MAX_CONDITION_NS)
            # Half of the conditions are looked at.
            return Prices(order, per_row_ns, condition_ns, condition_ns / 2.0, condition_ns)
        handed_over_ns = HAND_OVER_NS * len(self.names)
        group_ns = float((fixed_ns + GROUP_CALL_NS).sum()) / max(self._batch_rows, 1.0)
        route_ns = LOOK_UP_NS + REGROUP_NS + handed_over_ns
        return Prices(order, per_row_ns, route_ns, group_ns, LOOK_UP_NS)

    def _words(self, table: RouteTable | None) -> Any:
        """Return a table for the journal."""
        if table is None:
            return None
        orders = [[self.filter_ids[f] for f in order] for order in table.orders]
        return {"by": list(table.attributes), "orders": orders}

    @property
    def unlabelled(self) -> tuple[Attribute, ...]:
        """Texts that tell classes apart, of which only hashes are known."""
        used = () if self.table is None else self.table.attributes
        return tuple(
            each for each in self.attributes if each.name in used and each.name not in self.labels
        )

    def views(self) -> tuple[RouteView, ...]:
        """Return the rows that take each order, for people."""
        table = self.table
        if table is None:
            return ()
        groups = table.group_of(self._sample.of(table.attributes).values)
        counts = np.bincount(groups, minlength=table.n_groups)
        shares = counts / len(groups) if len(groups) else np.full(table.n_groups, np.nan)
        return tuple(
            RouteView(rows, order, float(share))
            for rows, order, share in zip(
                table.rows_in_words(self.labels), table.orders, shares, strict=True
            )
        )

    @property
    def note(self) -> str:
        """The state of classes of rows, in a sentence."""
        names = ", ".join(self.names)
        if self.table is not None:
            return ""
        if self._sample.n_rows < self._router.options.min_rows:
            return f"looks for classes of rows by {names}: too few sampled rows so far"
        return f"looked for classes of rows by {names}: none pays"

    def snapshot(self) -> RoutesState:
        """Return the table as plain values; the sample comes again."""
        return RoutesState(
            table=None if self.table is None else self.table.to_state(),
            n_batches=self.n_batches,
            batch_rows=self._batch_rows,
            learned_from=self._learned_from,
            n_sampled=self._n_sampled,
            n_rows=self._n_rows,
        )

    def restore(self, state: RoutesState) -> None:
        """Continue from a snapshot; a table of attributes that are observed no more is dropped."""
        table = None if state.table is None else RouteTable.from_state(state.table)
        if table is not None and table.n_filters != len(self.filter_ids):
            msg = f"a table of {table.n_filters} filters for {len(self.filter_ids)}"
            raise PlanError(msg, component=self.component)
        if table is not None and not set(table.attributes) <= set(self.names):
            table = None
        self.table = table
        self.n_batches = state.n_batches
        self._batch_rows = max(1.0, state.batch_rows)
        self._learned_from = min(MAX_ROWS, state.learned_from)
        self._n_sampled = max(0, state.n_sampled)
        self._n_rows = max(0.0, state.n_rows)
