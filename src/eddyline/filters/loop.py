"""Adaptive loop of one block of filters.

It keeps one order, and orders of classes of rows while these pay. In come profiles of batches; out
come the order and the route table in force, and how the next batch is cut and sampled.
``FilterLoop`` does what ``OrderLoop`` does, and beside it keeps ``Routes`` and answers a task's
questions. It runs on the driver and inside tasks alike. An order that a person or the log of plans
puts in force is for rows of every class.

``Routes`` holds the route table in force; it is a ``RouteLoop`` that prices filters.

``run_batch`` runs the batches of a task through executor and loop in turn. While the loop warms up,
and at the start of a task, whose rows may be unlike those before, a batch is run in pieces. The
first piece is just long enough to learn from: a bad order costs a thousand rows and not a batch.

``ProfilingBudget`` says how often batches of a native block are profiled: as often as that takes a
small share of their time. To profile a sample of the rows of a statement is more than to evaluate
predicates on it. Spark plans and compiles another statement, and hands all rows from one piece of
code to the next once more. That takes as long whatever the predicates cost, and longer than cheap
ones do. So batches are timed with and without, and most short ones are not profiled.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from eddyline.data.outcomes import pack, sampled_rows, seed_of
from eddyline.filters.executor import Groups, Sample
from eddyline.ordering import policy as find_policy
from eddyline.ordering.protocol import expected_cost_ns
from eddyline.routing.router import MIN_REFINEMENT, MIN_ROWS, Prices
from eddyline.routing.table import MAX_GROUPS
from eddyline.runtime.monitors import monitor as find_monitor
from eddyline.runtime.order_loop import (
    MIN_ROWS_PER_PROFILE,
    OrderLoop,
    OrderState,
    RouteLoop,
    RoutesState,
)
from eddyline.stats.costs import Budget
from eddyline.stats.profile import AttributeSample

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from eddyline.filters.executor import ArrowExecutor, BatchOutcome
    from eddyline.options import FilterOptions
    from eddyline.routing.table import Attribute, RouteTable
    from eddyline.runtime.journal import JournalEntry
    from eddyline.runtime.order_loop import RouteView
    from eddyline.runtime.records import OrderRecord
    from eddyline.stats.costs import CostSums
    from eddyline.stats.profile import FilterProfile, Order

    Values = Sequence[NDArray[np.float64]]
    from eddyline.filters.binding import Pinned

FIRST_ROWS = 500
"""First rows of a task that run apart: enough to see that they are unlike those before."""

PAYING_ROWS = 10_000
"""Input rows before a sample is taken for routing alone: a shorter job would not earn it back."""

LOOK_UP_NS = 15.0
"""Cost of finding a row's class in a worker (ns per row)."""

HAND_OVER_NS = 25.0
"""Cost of handing an attribute over to a worker (ns per row)."""

REGROUP_NS = 40.0
"""Cost of taking a batch's rows apart by group (ns per row)."""

GROUP_CALL_NS = 30_000.0
"""Cost to the executor of one more call of a filter, beside the filter's own fixed cost (ns)."""

COMPILED_REFINEMENT = 0.05
"""Share of the cost that another table of the native block must save: Spark compiles it anew."""

COMPILED_CHAINS = 32
"""Most conditions in the chains of the native block, one chain per order: with 64 of them, the code
took two to four times as long as one chain, with 32 it did not."""

MAX_CONDITION_NS = 200.0
"""Upper bound for the price of testing whether a row is in a class (ns). The test is one or two
comparisons, so it is priced as the median filter: the least of noisy timings is too low."""

GROWN, COSTS_MOVED = 1.5, 1.2
"""An order is looked at again after so many times its rows, if a cost has moved by such a factor:
of five predicates whose cheap one told what three dear ones said, each row then took 0.58 to 0.65
dear evaluations and not 0.59 to 0.86."""

MAX_BATCH_ROWS = 65_536
"""Most rows that are evaluated at once, but for those that come together."""

CALLS_FRAC = 0.02
"""Most that calls may cost beside the rows, as a share of what these cost."""

PROFILING_SHARE = 0.05
"""Most time that profiling may add to batches, as a share of their time."""

PROFILING_SHARE_OF_WORK = 0.1
"""The same as a share of the time that predicates take, where that is more: an order saves a part
of that."""

MOST_SKIPPED = 16
"""Batches in a row that are not profiled at most: what changes in the data is to be seen."""

FADE = 0.5
"""What is known of batches weighs so much one batch later."""

MOST_PROFILED = 32
"""Batches in a row that are profiled at most, so that what they would take without is known."""

MOST_UNLIKE = 2.0
"""Batches of so many times the rows tell nothing of each other."""


def check_options(options: FilterOptions) -> None:
    """Raise OptionError if options name an unknown policy or monitor."""
    find_policy(options.policy)
    find_monitor(options.monitor)


class FilterState(OrderState, frozen=True, kw_only=True):
    """The learned state of a block's loop, as it is saved."""

    routes: RoutesState | None


class FilterLoop(OrderLoop):
    """Keeps the order of one block good, and the orders of classes of its rows.

    Attributes of the rows may tell classes apart; ``reads`` are the columns of each filter. A block
    ``in_workers`` learns in its tasks, too, and to hand attributes over to a worker costs
    something. A block that ``meets_all`` rows that arrive need not count them. For the rest see
    ``OrderLoop``.
    """

    state_type = FilterState

    def __init__(
        self,
        component: str,
        filter_ids: tuple[str, ...],
        options: FilterOptions,
        *,
        attributes: tuple[Attribute, ...] = (),
        reads: tuple[frozenset[str], ...] | None = None,
        in_workers: bool = True,
        meets_all: bool = False,
        **more: Any,
    ) -> None:
        super().__init__(component, filter_ids, options, **more)
        self.changes_within = in_workers
        self._meets_all = meets_all
        self.routes: Routes | None = None
        self._is_new_task = False
        self._n_decided = 0
        """Rows until the order was last looked at."""
        self._decided_ns = np.full(len(filter_ids), np.nan)
        """Cost of each filter by which it was (ns; nan: unknown)."""
        fits = in_workers or compiled_groups(len(filter_ids)) >= 2
        can_route = self.is_adaptive and fits and self.policy.needs_all_bits
        if can_route and options.routing and attributes:
            self.routes = Routes(component, filter_ids, attributes, reads, hands_over=in_workers)

    def step(
        self, fresh: FilterProfile, batch_id: int = -1, *, may_switch: bool = True
    ) -> list[JournalEntry]:
        """Take in a batch; see ``OrderLoop.step``. Another table of classes is decided last."""
        entries = super().step(fresh, batch_id, may_switch=may_switch)
        if self.is_adaptive:
            self._is_new_task = False
        routes, may_switch = self.routes, may_switch and not self.is_held
        if may_switch and routes is not None and routes.is_due and self._can_think():
            with self._thinking.spending():
                profile = self.window.profile()
                work_ns = expected_cost_ns(self.order, profile)
                prices = routes.prices(self.order, profile.costs)
                entries += routes.decide(prices, work_ns, batch_id)
        return entries

    def _take_in(self, fresh: FilterProfile) -> None:
        super()._take_in(fresh)
        if self.routes is not None:
            self.routes.count(fresh.n_rows, fresh.n_batches)
            if fresh.attributes is not None:
                self.routes.observe(fresh.attributes)

    def _is_due(self) -> bool:
        return super()._is_due() or self._are_costs_others()

    def _are_costs_others(self) -> bool:
        """Whether the order was looked at by costs that have moved since.

        The first calls of a function are on few rows and slow. What they seemed to cost would stand
        until thinking may take time again, which it may as a share of the work: 100,000 rows.
        """
        is_later = self.totals.n_rows >= GROWN * self._n_decided > 0
        if not is_later or not self.changes_within:
            return False
        now, before = self.window.profile().costs.per_row_ns, self._decided_ns
        return bool((np.maximum(now / before, before / now) > COSTS_MOVED).any())

    def _decide(self, batch_id: int) -> list[JournalEntry]:
        entries = super()._decide(batch_id)
        self._n_decided = self.totals.n_rows
        self._decided_ns = self.window.profile().costs.per_row_ns
        if entries and self.routes is not None:
            self.routes.reordered(self.order)
        return entries

    def _keep_newest(self, n_kept: int, profile: FilterProfile) -> None:
        super()._keep_newest(n_kept, profile)
        if self.routes is not None:
            rows_per_tuple = 1.0 + profile.n_passed / max(profile.n_tuples, 1)
            self.routes.keep_newest(round(n_kept * rows_per_tuple))

    # -- classes of rows ------------------------------------------------------------------------

    def adopt(self, plan: list[str]) -> None:
        """Put another order in force, for rows of every class."""
        super().adopt(plan)
        if self.routes is not None:
            self.routes.table = None

    @property
    def why_unlogged(self) -> str:  # type: ignore[override]
        """Why orders are not logged; what those of classes cost, no sample tells later."""
        is_routed = self.table is not None
        return "classes of rows have orders of their own" if is_routed else super().why_unlogged

    @property
    def table(self) -> RouteTable | None:
        """The order of each class of rows, where they differ."""
        return None if self.routes is None else self.routes.table

    @property
    def is_learning_routes(self) -> bool:
        """Whether the next batch should bring the attributes of its rows."""
        return self.routes is not None and self.routes.is_learning

    @property
    def _n_lacking(self) -> int:
        """Sampled rows that are lacking to learn classes of rows for the first time."""
        return 0 if self.routes is None else self.routes.n_lacking

    @property
    def _wants_more(self) -> bool:
        return bool(self._n_lacking)

    # -- inside a task --------------------------------------------------------------------------

    def start_task(self) -> None:
        """Take note that the rows to come are of another partition: they may be unlike the last.

        The first of them run apart, so that a monitor can tell early.
        """
        self._is_new_task = True

    def piece_rows(self, n_rows: int) -> int:
        """Return the number of rows to run before the loop may decide again."""
        prob = max(self.warmup_prob, self.options.sample_prob)
        if not self.is_adaptive or prob == 0.0:
            return n_rows
        if self.is_warming:
            return min(n_rows, math.ceil(self.min_fill / prob))
        if self._n_lacking:
            return min(n_rows, math.ceil(self._n_lacking / prob))
        return min(n_rows, FIRST_ROWS) if self._is_new_task else n_rows

    def batch_prob(self, n_rows: int, chance: float) -> float:
        """Return the share of a batch's rows to profile; 0 if the batch is not profiled.

        Where too few rows of a batch would be profiled, ``chance``, a number in [0, 1) that depends
        on the batch alone, decides whether it is profiled at all.
        """
        prob = self.sample_prob(n_rows)
        least = min(1.0, MIN_ROWS_PER_PROFILE / max(n_rows, 1))
        if 0.0 < prob < least:
            return least if chance < prob / least else 0.0
        return prob

    def sample(self, rows: Any, prob: float) -> Sample:
        """Return the profiling of the next batch, from the offsets of its sampled rows ((M,))."""
        extra = self.policy.extra(len(self.order))
        block_rows = self.monitor.block_rows if self.is_adaptive else 0
        return Sample(rows, prob or 1.0, extra, self.policy.needs_all_bits, block_rows)

    # -- seeing and saving ----------------------------------------------------------------------

    def record(self) -> OrderRecord:
        """Return the state of the block after a batch; nan for what is not known."""
        routed_by = () if self.table is None else (self.table.attribute,)
        return replace(super().record(), routed_by=routed_by, meets_all=self._meets_all)

    def snapshot(self) -> FilterState:
        """Return the learned state: that of the order, and of classes of rows."""
        routes = None if self.routes is None else self.routes.snapshot()
        return FilterState(**msgspec.structs.asdict(super().snapshot()), routes=routes)

    def _restore(self, state: FilterState) -> None:  # type: ignore[override]
        super()._restore(state)
        if self.routes is not None and state.routes is not None:
            self.routes.restore(state.routes)


# -- classes of rows ---------------------------------------------------------------------------


def compiled_groups(n_filters: int) -> int:
    """Return how many orders of so many filters fit into compiled code; less than 2: no table."""
    return min(COMPILED_CHAINS // max(n_filters, 1), MAX_GROUPS)


class Routes(RouteLoop):
    """The route table of one block, and the evidence for it.

    ``hands_over`` says whether attributes have to be handed over to a worker. For the rest see
    ``RouteLoop``.
    """

    def __init__(
        self,
        component: str,
        filter_ids: tuple[str, ...],
        attributes: tuple[Attribute, ...],
        reads: tuple[frozenset[str], ...] | None,
        *,
        hands_over: bool,
    ) -> None:
        super().__init__(
            component,
            filter_ids,
            attributes,
            reads,
            max_groups=MAX_GROUPS if hands_over else compiled_groups(len(filter_ids)),
            min_refinement=MIN_REFINEMENT if hands_over else COMPILED_REFINEMENT,
        )
        self._hands_over = hands_over

    @property
    def n_lacking(self) -> int:
        """Sampled rows that a first table lacks, if there are rows enough to pay for it."""
        if self.n_rows < PAYING_ROWS:
            return 0
        return max(0, MIN_ROWS - self.n_sampled)

    def prices(self, order: Order, costs: CostSums) -> Prices:
        """Return the costs of filters and of routing."""
        fixed_ns, per_row_ns = costs.fit()
        if not self._hands_over:
            condition_ns = min(float(np.median(per_row_ns)), MAX_CONDITION_NS)
            # Half of the conditions are looked at.
            return Prices(order, per_row_ns, condition_ns, condition_ns / 2.0)
        handed_over_ns = HAND_OVER_NS * len(self.names)
        group_ns = float((fixed_ns + GROUP_CALL_NS).sum()) / max(self.batch_rows, 1.0)
        route_ns = LOOK_UP_NS + REGROUP_NS + handed_over_ns
        return Prices(order, per_row_ns, route_ns, group_ns)

    @property
    def unlabelled(self) -> Attribute | None:
        """The text that tells classes apart, if only hashes of it are known."""
        if self.table is None or self.table.attribute in self.labels:
            return None
        return next(
            attribute for attribute in self.attributes if attribute.name == self.table.attribute
        )


# -- the batches of a task ---------------------------------------------------------------------


def batch_rows(loop: FilterLoop) -> int:
    """Return the rows to run at once, where more come: so many that calls cost little beside them.

    Each class of rows with an order of its own takes calls of its own. While nothing is known a
    batch has the rows that come together.
    """
    if not loop.is_adaptive or loop.is_warming:
        return 1
    profile = loop.window.profile()
    calls_ns = float((profile.costs.fit()[0] + GROUP_CALL_NS).sum())
    if loop.is_learning_routes:
        calls_ns *= MAX_GROUPS
    needed = calls_ns / (CALLS_FRAC * expected_cost_ns(loop.order, profile))
    return min(math.ceil(needed), MAX_BATCH_ROWS)


def run_batch(
    executor: ArrowExecutor,
    loop: FilterLoop,
    columns: Sequence[pa.Array],
    *,
    seed: int,
    first_row: int,
    batch_id: int = -1,
    may_switch: bool = True,
    values: Values | None = None,
) -> Iterator[tuple[BatchOutcome, list[JournalEntry]]]:
    """Yield the outcome of each piece of a batch, and what the loop decided after it.

    The seed, of this query, batch and partition, chooses the profiled rows; ``first_row`` is the
    number of the batch's first row within the partition. There is at least one row. The values of
    each of the loop's attributes ((R,) each) are given where they are at hand.
    """
    n_rows, start = len(columns[0]), 0
    if first_row == 0:
        loop.start_task()
    while start < n_rows:
        n_piece = loop.piece_rows(n_rows - start)
        piece = [column.slice(start, n_piece) for column in columns]
        row = first_row + start
        chance = (seed_of(seed, row) & 0xFFFFFFFF) / 2.0**32
        prob = loop.batch_prob(n_piece, chance)
        sample = loop.sample(sampled_rows(seed, row, n_piece, prob), prob)
        here = None if values is None else [column[start : start + n_piece] for column in values]
        groups = None if here is None else _groups(loop, here)
        ran = executor.run(piece, loop.order, sample, groups)
        fresh = ran.profile
        if here is not None and loop.routes is not None:
            attributes = _attributes(loop.routes.names, ran, here, sample.prob)
            fresh = replace(fresh, attributes=attributes)
            ran = replace(ran, profile=fresh)
        yield ran, loop.step(fresh, batch_id, may_switch=may_switch)
        start += n_piece


def _groups(loop: FilterLoop, values: Values) -> Groups | None:
    """Return the order of each row, if classes of rows have orders of their own."""
    if loop.routes is None or loop.table is None:
        return None
    used = values[loop.routes.names.index(loop.table.attribute)]
    return Groups(loop.table.group_of(used), loop.table.orders)


def _attributes(
    names: tuple[str, ...], ran: BatchOutcome, values: Values, prob: float
) -> AttributeSample:
    """Return the sampled rows of a batch with their attributes."""
    rows = ran.sampled
    return AttributeSample(
        names,
        np.stack([column[rows] for column in values], axis=1),
        pack(ran.drops),
        np.full(len(rows), 1.0 / prob),
    )


# -- how often a native block is profiled ------------------------------------------------------


class ProfilingBudget:
    """Keeps what profiling takes to a share of the time of batches."""

    def __init__(self) -> None:
        self._budget = Budget(1.0, saves=False, most_owed=MOST_SKIPPED)
        self._plain_ns = self._plain_rows = 0.0
        """Of batches that were not profiled, newer ones weighing more."""
        self._n_profiled = 0
        """Batches that were timed and profiled since one that was not."""

    @property
    def may(self) -> bool:
        """Whether the next batch may be profiled."""
        most = MOST_PROFILED if self._plain_rows else 1
        return self._budget.may and self._n_profiled < most

    def passed(
        self, ns: float, *, work_ns: float = 0.0, n_rows: float = 0.0, planned_ns: float = 0.0
    ) -> None:
        """Take in a batch.

        Args:
            ns: its time (ns).
            work_ns: what its predicates took (ns).
            n_rows: its rows; 0 if its time says nothing, because other things went on.
            planned_ns: what planning a profiled statement took at least (ns); 0 if it was not
                profiled.
        """
        if planned_ns:
            self._n_profiled += n_rows > 0
            self._budget.spend(max(planned_ns, self._extra_ns(ns, n_rows)))
        elif n_rows:
            self._n_profiled = 0
            self._plain_ns = FADE * self._plain_ns + ns
            self._plain_rows = FADE * self._plain_rows + n_rows
        self._budget.earn(max(PROFILING_SHARE * ns, PROFILING_SHARE_OF_WORK * work_ns))

    def _extra_ns(self, ns: float, n_rows: float) -> float:
        """Return how much longer a batch took than others of as many rows (ns); 0: not known."""
        if not (self._plain_rows and n_rows):
            return 0.0
        # The sums fade alike, so that one over the other is a mean.
        expected_ns = self._plain_ns * n_rows / self._plain_rows
        mean_rows = self._plain_rows * (1 - FADE)
        is_alike = mean_rows / MOST_UNLIKE <= n_rows <= mean_rows * MOST_UNLIKE
        return ns - expected_ns if is_alike else 0.0


# -- what people see ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BlockView:
    """One block of a conjunction whose order is learned."""

    component: str
    """``native`` (SQL, in the JVM) or ``arrow`` (Python functions), numbered if there are more."""
    written: Order
    """The order in which the user wrote the filters."""
    order: Order
    """The order in force: ``order[position] -> filter index``."""
    profile: FilterProfile
    """The evidence in the window."""
    texts: tuple[str, ...]
    """The filters by their index, in words: SQL text or ``function(columns)``."""
    is_adaptive: bool
    """Whether the order may still change."""
    note: str = ""
    """The origin of the order, or the reason why it cannot change, in a sentence."""
    totals: FilterProfile | None = None
    """Counts over the whole life of the block (rows, evaluations), without codes."""
    routes: tuple[RouteView, ...] = ()
    """The orders of the classes of rows, where they differ; the first is that of all others."""
    routed_by: tuple[str, ...] = ()
    """The attributes that tell the classes apart."""
    route_note: str = ""
    """The state of routing, in a sentence."""


@dataclass(frozen=True, slots=True)
class FilterView:
    """One conjunction as it stands."""

    name: str
    blocks: tuple[BlockView, ...]
    pinned: tuple[Pinned, ...] = ()
    notes: tuple[str, ...] = ()
    """Other things worth knowing: guarded errors, missing statistics, settings."""
