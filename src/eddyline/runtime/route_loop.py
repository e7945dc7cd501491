"""The loop of classes of rows: the newest sampled rows, and the table that they teach.

``RouteLoop`` keeps sampled rows with their attributes. Once enough of them are new it asks the
router for a table, and it holds the table in force. An operator says what its filters or look-ups
cost, and what routing itself takes (``Prices``). A table is learned and kept on the same evidence
that orders are: when a change makes evidence stale, the sample goes with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from eddyline.errors import PlanError
from eddyline.routing.router import MIN_REFINEMENT, MIN_ROWS, Router
from eddyline.routing.table import MAX_GROUPS, RouteTable
from eddyline.runtime.journal import JournalEntry
from eddyline.stats.profile import AttributeSample, joined

if TYPE_CHECKING:
    from eddyline.routing.router import Prices
    from eddyline.routing.table import Attribute
    from eddyline.stats.profile import Order

MAX_ROWS = 5000
"""Sampled rows that a table is learned from, the newest ones."""

DUE_ROWS = 400
"""New sampled rows before the router is asked again, or a quarter of a smaller sample."""

REVIEW_ROWS = 100
"""New sampled rows before anything is looked at: whether the table in force still pays."""

BATCH_MEMORY = 20_000
"""Rows after which two thirds of what is known of the size of batches is of the newest ones."""

RELEARN_EVERY = 8
"""Batches from one look to the next where no table pays."""

MOST_SAVED = 0.7
"""Most of the work that routing is taken to save: the paper's best case. Where that does not pay
for finding the class, attributes are not handed over at all."""


class RoutesState(msgspec.Struct, frozen=True, kw_only=True):
    """Saved state of classes of rows."""

    table: dict[str, Any] | None
    n_batches: int
    batch_rows: float
    learned_from: int
    n_sampled: int
    n_rows: float


class RouteLoop:
    """A route table, and the evidence for it.

    Args:
        component: its name in the journal.
        filter_ids: what is ordered (F).
        attributes: what may tell classes of rows apart.
        reads: the columns of each filter; unknown if None (F).
        max_groups: most groups of classes ([2, MAX_GROUPS]).
        min_refinement: least share of the cost that a table must save on the one in force.
        sample: the kind of sampled rows.
    """

    def __init__(
        self,
        component: str,
        filter_ids: tuple[str, ...],
        attributes: tuple[Attribute, ...],
        reads: tuple[frozenset[str], ...] | None,
        *,
        max_groups: int = MAX_GROUPS,
        min_refinement: float = MIN_REFINEMENT,
        sample: type[AttributeSample] = AttributeSample,
    ) -> None:
        self.component = component
        self.filter_ids = filter_ids
        self.attributes = attributes
        self.names = tuple(attribute.name for attribute in attributes)
        self.table: RouteTable | None = None
        self.n_batches = 0
        self.n_sampled = 0
        """Sampled rows so far."""
        self.n_rows = 0.0
        """Input rows so far."""
        self.batch_rows = 1.0
        """Rows of a batch of a task, of late."""
        self.labels = {
            attribute.name: attribute.labels for attribute in attributes if not attribute.text_sql
        }
        """Meaning of an attribute's values; of a text, once somebody has looked."""
        columns = reads or (frozenset(),) * len(filter_ids)
        deciding_names = tuple(
            frozenset(attribute.name for attribute in attributes if attribute.decides(read))
            for read in columns
        )
        self._router = Router(
            filter_ids,
            self.names,
            tuple(attribute.kind for attribute in attributes),
            deciding_names,
            max_groups=max_groups,
            min_refinement=min_refinement,
        )
        self._sample = sample.empty(self.names, len(filter_ids))
        self._n_new = 0
        self._n_reviewed = 0
        self._learned_from = 0
        self._may_pay = True

    @property
    def is_learning(self) -> bool:
        """Whether the next batch should bring attributes: a table pays, or may."""
        is_short = self._sample.n_rows < MAX_ROWS and self._may_pay
        return is_short or self.table is not None or self.n_batches % RELEARN_EVERY == 0

    def count(self, n_rows: float, n_parts: int) -> None:
        """Take note of a batch, with or without attributes: its rows, in so many parts."""
        self.n_batches += 1
        self.n_rows += n_rows
        if n_parts:
            recent = n_rows / n_parts
            weight = n_rows / (n_rows + BATCH_MEMORY) if self.batch_rows > 1.0 else 1.0
            self.batch_rows += weight * (recent - self.batch_rows)

    def observe(self, fresh: AttributeSample) -> None:
        """Take in sampled rows with their attributes."""
        self._sample = joined([self._sample, fresh.of(self.names)]).last(MAX_ROWS)
        self._n_new += fresh.n_rows
        self.n_sampled += fresh.n_rows

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
        least = MIN_ROWS
        if self.table is not None:  # few rows of a task do not outweigh what all tasks taught
            least = max(least, self._learned_from)
        is_enough = self._sample.n_rows >= least
        return is_enough and self._n_new >= min(DUE_ROWS, self._sample.n_rows / 4)

    def decide(self, prices: Prices, work_ns: float, batch_id: int) -> list[JournalEntry]:
        """Ask the router for a better table; under one order, a row costs ``work_ns`` (ns)."""
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
        words = (self.words(before), self.words(self.table))
        return [JournalEntry(batch_id, self.component, "routes", *words, proposal.evidence)]

    def words(self, table: RouteTable | None) -> Any:
        """Return a table for the journal."""
        if table is None:
            return None
        orders = [[self.filter_ids[f] for f in order] for order in table.orders]
        return {"by": [table.attribute], "orders": orders}

    def views(self) -> tuple[RouteView, ...]:
        """Return the rows that take each order, for people."""
        table = self.table
        if table is None:
            return ()
        groups = table.group_of(self._sample.of((table.attribute,)).values[:, 0])
        counts = np.bincount(groups, minlength=table.n_groups)
        shares = counts / len(groups) if len(groups) else np.full(table.n_groups, np.nan)
        words = table.rows_in_words(self.labels.get(table.attribute))
        return tuple(
            RouteView(rows, order, float(share))
            for rows, order, share in zip(words, table.orders, shares, strict=True)
        )

    @property
    def note(self) -> str:
        """The state of classes of rows, in a sentence."""
        if self.table is not None:
            return ""
        names = f"{'one of ' if len(self.names) > 1 else ''}{', '.join(self.names)}"
        if self._sample.n_rows < MIN_ROWS:
            return f"looks for classes of rows by {names}: too few sampled rows so far"
        return f"looked for classes of rows by {names}: none pays"

    def snapshot(self) -> RoutesState:
        """Return the table as plain values; the sample comes again."""
        return RoutesState(
            table=None if self.table is None else self.table.to_state(),
            n_batches=self.n_batches,
            batch_rows=self.batch_rows,
            learned_from=self._learned_from,
            n_sampled=self.n_sampled,
            n_rows=self.n_rows,
        )

    def restore(self, state: RoutesState) -> None:
        """Continue from a snapshot; a table of attributes that are observed no more is dropped."""
        # Earlier versions saved tables of several attributes: those are learned anew.
        saved = state.table
        table = RouteTable.from_state(saved) if saved and "partition" in saved else None
        if table is not None and table.n_filters != len(self.filter_ids):
            msg = f"a table of {table.n_filters} filters for {len(self.filter_ids)}"
            raise PlanError(msg, component=self.component)
        if table is not None and table.attribute not in self.names:
            table = None
        self.table = table
        self.n_batches = state.n_batches
        self.batch_rows = max(1.0, state.batch_rows)
        self._learned_from = min(MAX_ROWS, state.learned_from)
        self.n_sampled = max(0, state.n_sampled)
        self.n_rows = max(0.0, state.n_rows)


@dataclass(frozen=True, slots=True)
class RouteView:
    """The rows that take one of the orders of a route table."""

    rows: str
    """The rows, in words."""
    order: Order
    """Their order: ``order[position] -> filter index``."""
    share: float
    """Share of the sampled rows (nan: none was sampled)."""
