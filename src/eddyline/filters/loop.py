"""The loop of one block of filters: an order, and orders of classes of rows where these pay.

Beside what ``OrderLoop`` does it says, inside a task, how a batch is cut and sampled.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from eddyline.filters.executor import Sample
from eddyline.filters.routing_loop import Routes, RoutesState, compiled_groups
from eddyline.ordering import policy as find_policy
from eddyline.ordering.matrix_view import expected_cost_ns
from eddyline.runtime.monitors import monitor as find_monitor
from eddyline.runtime.order_cost import MIN_ROWS_PER_PROFILE
from eddyline.runtime.order_loop import OrderLoop, OrderState

if TYPE_CHECKING:
    from eddyline.options import FilterOptions
    from eddyline.query.attributes import Attribute
    from eddyline.routing.table import RouteTable
    from eddyline.runtime.journal import JournalEntry
    from eddyline.runtime.records import OrderRecord
    from eddyline.stats.profile import FilterProfile

FIRST_ROWS = 500
"""First rows of a task that run apart: enough to see that they are unlike those before."""


def check_options(options: FilterOptions) -> None:
    """Raise OptionError if options name an unknown policy or monitor."""
    find_policy(options.policy)
    find_monitor(options.monitor)


class FilterState(OrderState, frozen=True, kw_only=True):
    """The learned state of a block's loop, as it is saved."""

    routes: RoutesState | None


class FilterLoop(OrderLoop):
    """Keeps the order of one block good, and the orders of classes of its rows.

    Attributes of the rows may tell classes apart; ``reads`` are the columns of each filter. To hand
    attributes over to a worker costs something. A block that ``meets_all`` rows that arrive need
    not count them. For the rest see ``OrderLoop``.
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
        hands_over: bool = True,
        meets_all: bool = False,
        **more: Any,
    ) -> None:
        super().__init__(component, filter_ids, options, **more)
        self._meets_all = meets_all
        self.routes: Routes | None = None
        self._is_new_task = False
        fits = hands_over or compiled_groups(len(filter_ids)) >= 2
        can_route = self.is_adaptive and fits and self.policy.needs_all_bits
        if can_route and options.routing and attributes:
            self.routes = Routes(component, filter_ids, attributes, reads, hands_over=hands_over)

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
                known = self.window.profile()
                work_ns = expected_cost_ns(self.order, known)
                entries += routes.decide(self.order, known.costs, work_ns, batch_id)
        return entries

    def _take_in(self, fresh: FilterProfile) -> None:
        super()._take_in(fresh)
        if self.routes is not None:
            self.routes.count(fresh)
            if fresh.attributes is not None:
                self.routes.observe(fresh.attributes)

    def _decide(self, batch_id: int) -> list[JournalEntry]:
        entries = super()._decide(batch_id)
        if entries and self.routes is not None:
            self.routes.reordered(self.order)
        return entries

    def _keep_newest(self, n_kept: int, known: FilterProfile) -> None:
        super()._keep_newest(n_kept, known)
        if self.routes is not None:
            rows_per_tuple = 1.0 + known.n_passed / max(known.n_tuples, 1)
            self.routes.keep_newest(round(n_kept * rows_per_tuple))

    # -- classes of rows ------------------------------------------------------------------------

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
