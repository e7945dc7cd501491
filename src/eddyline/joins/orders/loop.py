"""The loop of one pipeline of a join: it keeps the order of its windows good.

Windows are ranked by the rows that they drop, as filters are; see ``probe_order``. But a window may
also give a row many partners, and each of them is one more probe of every window behind it. So ways
that make more combinations than they are given come last; among them, the way that adds least per
probe comes first, which is best where windows are independent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from eddyline.errors import PlanError
from eddyline.options import FilterOptions
from eddyline.runtime.journal import JournalEntry
from eddyline.runtime.order_loop import MIN_FILL, WINDOW_ROWS, OrderLoop, OrderState
from eddyline.runtime.records import OrderRecord
from eddyline.stats.profile import FilterProfile, merge_tasks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from eddyline.joins.orders.probe_order import WayFilters
    from eddyline.joins.orders.probe_profiling import DropSample
    from eddyline.options import JoinOptions
    from eddyline.stats.profile import Order

KEPT = 0.8
"""Weight of the combinations of a batch one batch later."""

DAMPING = 1.1
"""Combinations per row that differ by a smaller factor are the same."""

CHANGE = 1.5
"""Combinations per row that differ by a larger factor from those of the batches before have
changed: older counts are worthless then."""


class GrowthState(msgspec.Struct, frozen=True):
    """The saved counts of ``Growth``."""

    n_rows: list[float]
    n_found: list[float]
    last: tuple[int, ...]


class PipelineState(msgspec.Struct, frozen=True):
    """The saved state of the loop of one pipeline."""

    loop: OrderState
    growth: GrowthState


@dataclass(frozen=True, slots=True)
class OrdersRecord:
    """The orders of a join after one micro-batch."""

    component: str
    pipelines: tuple[OrderRecord, ...]
    """The pipelines that have something to learn."""


class PipelineLoop:
    """Keeps the order of one pipeline good: of two filters or more, over windows as written."""

    def __init__(
        self,
        filters: WayFilters,
        options: JoinOptions,
        written: tuple[str, ...],
        order: tuple[str, ...],
    ) -> None:
        self.filters = filters
        self.order = order
        self.written = written
        self.targets = tuple(each.target for each in filters.filters)
        given = FilterOptions(
            policy=options.policy,
            monitor=options.monitor,
            adaptive=options.adaptive,
            routing=False,
            seed=options.seed,
        )
        self.loop = OrderLoop(
            self.component, self.targets, given, thinks_freely=True, window_rows=WINDOW_ROWS
        )
        self.loop.order = self.ranking(order)
        self.growth = Growth(filters)
        self.n_met = 0

    @property
    def component(self) -> str:
        """Its name in the journal and the report."""
        return f"pipeline {self.filters.pipeline}"

    def adopt(self, order: tuple[str, ...]) -> None:
        """Put an order in force that another has chosen; what is learned goes on from there."""
        self.order = order
        self.loop.adopt(self.ranking(order))

    @property
    def is_warming(self) -> bool:
        """Whether there is too little evidence to order by."""
        return self.loop.is_warming

    def step(self, samples: Sequence[DropSample], batch_id: int) -> list[JournalEntry]:
        """Take in the samples of a batch, bucket by bucket, and change the order if they say so.

        Samples of other filters are left out.
        """
        mine = [each for each in samples if each.filters == self.filters and len(each.codes)]
        self.n_met = round(sum(len(each.codes) / each.prob for each in mine))
        if not mine:
            return []
        profiles = [
            FilterProfile.of_sample(self.targets, each.drops, prob=each.prob, costs=each.costs)
            for each in mine
        ]
        merged = merge_tasks(profiles, self.loop.window.max_tuples, 0)
        found = self.loop.step(merged, batch_id)
        was_last = self.growth.last
        self.growth.count(mine)
        entries = [entry for entry in found if entry.event != "order"]
        if self.loop.is_held:
            return entries
        if len(entries) == len(found) and self.growth.last == was_last:
            return entries
        before = self.order
        self.order = self.filters.order(self.growth.ranking(self.loop.order))
        if self.order != before:
            evidence: dict[str, Any] = {}
            for entry in found[len(entries) :]:
                evidence |= entry.evidence
            if self.growth.last:
                evidence["combinations_per_row"] = self.growth.by_target()
            plans = list(before), list(self.order)
            entries.append(JournalEntry(batch_id, self.component, "order", *plans, evidence))
        return entries

    def drop_fracs(self) -> dict[str, float]:
        """Return the share of the sampled rows that find no partner in each window ([0, 1]).

        Windows without a filter are missing, and all of them before the first sample.
        """
        profile = self.loop.window.profile()
        bits, weights = profile.bits()
        total = profile.passed + float(weights.sum())
        if total <= 0.0:
            return {}
        return dict(zip(self.targets, (weights @ bits / total).tolist(), strict=True))

    def record(self) -> OrderRecord:
        """Return the pipeline after a batch; nan for figures that are not known.

        Costs are those of finding out which rows have partners. An order that was taken because of
        the combinations that windows make has none: what it saves is not in them.
        """
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
        )

    def snapshot(self) -> PipelineState:
        """Return the learned state."""
        return PipelineState(self.loop.snapshot(), self.growth.snapshot())

    def restore(self, state: PipelineState) -> None:
        """Continue from what ``snapshot`` returned.

        Raises:
            StateError: the state of the filters is damaged.
            PlanError: the counts do not fit together.
        """
        self.loop.restore(state.loop)
        self.growth.restore(state.growth)

    def ranking(self, order: Sequence[str]) -> Order:
        """Return the filters in the order of their windows."""
        places = {name: at for at, name in enumerate(order)}
        return tuple(sorted(range(len(self.targets)), key=lambda at: places[self.targets[at]]))


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
        targets = [each.target for each in self.filters.filters]
        return dict(zip(targets, self.means.round(4).tolist(), strict=True))

    def count(self, samples: Sequence[DropSample]) -> None:
        """Take in the samples of a batch, and review which filters come last."""
        n_rows = sum(len(each.codes) / each.prob for each in samples)
        n_found = sum(each.n_partners / each.prob for each in samples)
        kept = np.full(self.n_found.size, KEPT)
        if sum(len(each.codes) for each in samples) >= MIN_FILL:
            now, known = n_found / n_rows, self.means
            kept[np.maximum(now, known) > CHANGE * np.minimum(now, known)] = 0.0
        self.n_rows = kept * self.n_rows + n_rows
        self.n_found = kept * self.n_found + n_found
        self._review()

    def _review(self) -> None:
        means, ranks = self.means, self._ranks()
        least = np.full(means.size, DAMPING)
        least[list(self.last)] = 1.0 / DAMPING
        growing = [at for at in range(means.size) if means[at] > least[at]]
        is_sorted = all(
            ranks[one] <= DAMPING * max(ranks[other], 0.0)
            for place, one in enumerate(self.last)
            for other in self.last[place + 1 :]
        )
        if set(growing) != set(self.last) or not is_sorted:
            self.last = tuple(sorted(growing, key=lambda at: (ranks[at], at)))

    def ranking(self, order: Order) -> Order:
        """Return the filters with those that come last behind the others in their order."""
        return (*(at for at in order if at not in self.last), *self.last)

    def _ranks(self) -> NDArray[np.float64]:
        """Return the combinations that each way adds per probe ((F,))."""
        means, n_probes = self.means, np.ones(self.n_found.size)
        for at in self.filters.outwards:
            if (parent := self.filters.parents[at]) is not None:
                n_probes[at] = n_probes[parent] + means[parent]
        return (means - 1.0) / n_probes

    def snapshot(self) -> GrowthState:
        """Return the counts."""
        return GrowthState(self.n_rows.tolist(), self.n_found.tolist(), self.last)

    def restore(self, state: GrowthState) -> None:
        """Continue from what ``snapshot`` returned.

        Raises:
            PlanError: the counts do not fit together.
        """
        n_filters, counts = self.n_found.size, (*state.n_rows, *state.n_found)
        fits = len(state.n_rows) == len(state.n_found) == n_filters
        if not (fits and all(0.0 <= n < np.inf for n in counts)) or not (
            set(state.last) <= set(range(n_filters))
        ):
            msg = f"the counts {counts} and the last filters {state.last} do not fit together"
            raise PlanError(msg, pipeline=self.filters.pipeline)
        self.n_rows, self.n_found = np.array(state.n_rows), np.array(state.n_found)
        self.last = state.last
