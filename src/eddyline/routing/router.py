"""The router: whether classes of rows should take orders of their own, and which.

    sample ─► partition attributes ─► which tell what a filter drops? ─► one order per class
                                                                              │
    table in force ◄── pays, out of sample and on the newest rows ◄───────────┘

It sees sampled rows of all filters' outcomes, never the rows themselves and never a clock.
[Bizarro05 4: Content-Learns]

Deviations, all of them because a sample of a batch is at hand instead of single tuples: every
filter is profiled on the same rows, not one after the other; a class has one order for a whole
batch; a table is accepted by a paired comparison on rows that it was not learned from, not by two
readings of throughput; pass fractions come from the unbiased sample, not from routed tuples.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from eddyline.errors import PlanError
from eddyline.routing.learning import Outcomes
from eddyline.routing.options import RouterOptions
from eddyline.routing.saving import FALLING_Z, Saving, routed_costs
from eddyline.routing.search import Search, Subject

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eddyline.data.arrays import Floats
    from eddyline.routing.saving import Prices
    from eddyline.routing.search import Found, Kind
    from eddyline.routing.table import RouteTable
    from eddyline.stats.profile import AttributeSample


LONG_FIRST = (1, 2, 4, 8)
"""Shares of the sample (one in so many, the newest) that a table is searched in: all of it, and
less only if nothing in it holds for the newest rows."""

REVIEW_ROWS = 50
"""Sampled rows that a table in force is judged by, if there are no more."""

SHORT_FIRST = (8, 4, 2, 1)
"""The same once the table in force no longer does what it did: the newest rows first."""


@dataclass(frozen=True, slots=True)
class RouteProposal:
    """Another table, or none, and the evidence for it."""

    table: RouteTable | None
    """None: every row takes the order of all rows."""
    evidence: dict[str, Any] = field(default_factory=dict)
    """Plain values that a person can check: attributes, gain ratios, cost with and without."""


class Router:
    """Proposes route tables for one conjunction.

    Args:
        filter_ids: names of the filters (F).
        attributes: names of the attributes (K).
        kinds: of each attribute, whether its values have an order (``number``) or not
            (``category``) (K).
        reads: of each filter, the attributes beside which it reads nothing: a bin of one of those
            is no prediction but the filter's own work [Bizarro05 Fig 8] (F).
        options: when to route.

    Raises:
        PlanError: names, kinds and reads do not fit together.
    """

    def __init__(
        self,
        filter_ids: Sequence[str],
        attributes: Sequence[str],
        kinds: Sequence[Kind],
        reads: Sequence[frozenset[str]],
        options: RouterOptions | None = None,
    ) -> None:
        if len(attributes) != len(kinds) or len(reads) != len(filter_ids):
            msg = (
                f"{len(attributes)} attributes with {len(kinds)} kinds and {len(filter_ids)} "
                f"filters with {len(reads)} sets of attributes read do not fit"
            )
            raise PlanError(msg, attributes=tuple(attributes), filters=tuple(filter_ids))
        self.options = options or RouterOptions()
        own = [[name in read for name in attributes] for read in reads]
        self._subject = Subject(
            tuple(filter_ids),
            tuple(attributes),
            tuple(kinds),
            np.array(own, dtype=np.bool_).reshape(len(filter_ids), len(attributes)),
        )

    def propose(
        self, prices: Prices, table: RouteTable | None, sample: AttributeSample
    ) -> RouteProposal | None:
        """Return a better table, or one that says to stop routing; None leaves things alone.

        Args:
            prices: the order of all rows, and what things cost.
            table: the table in force.
            sample: the newest sampled rows.
        """
        sample = sample.of(self._subject.attributes)
        if len(prices.order) < 2 or not self._subject.attributes:
            return None if table is None else RouteProposal(None, {"reason": "nothing to route"})
        held: Floats | None = None
        shares: tuple[int, ...] = LONG_FIRST
        is_stale = False
        if table is not None:
            held, is_stale = self._held(table, sample, prices)
            shares = SHORT_FIRST if is_stale else LONG_FIRST[:1]
        for share in shares:
            rows = sample.last(sample.n_rows // share)
            if rows.n_rows < self.options.min_rows:
                continue
            search = Search(self.options, self._subject, rows, prices, is_stale=is_stale)
            found = search.run()
            if found and self._is_better(found, table, held, rows, prices):
                return RouteProposal(found.table, search.evidence(found))
            if share == 1 and not search.has_classifier:
                break  # an attribute that tells anything of late shows among all rows, too
        if table is None or held is not None:
            return None
        return _stopped(sample, prices, table)

    def review(
        self, prices: Prices, table: RouteTable, sample: AttributeSample
    ) -> RouteProposal | None:
        """Return a proposal to stop routing if the table in force no longer pays, else None.

        A fraction of the work of ``propose``, to be asked after every batch while there is a
        table, and of however few rows are left of the sample after a change: a table must not
        stay because it takes long to learn another. The arguments are those of ``propose``.
        """
        sample = sample.of(self._subject.attributes)
        has_stopped = self._held(table, sample, prices)[0] is None
        return _stopped(sample, prices, table) if has_stopped else None

    def _held(
        self, table: RouteTable, sample: AttributeSample, prices: Prices
    ) -> tuple[Floats | None, bool]:
        """Look whether the table in force still does what it was chosen for.

        It is looked at over the newest rows, few and more: a change for the worse shows in the few
        at once, a table that never paid in the many.

        Returns:
            What each row costs under it ((M,)), or None if it stopped paying; and whether it saves
            less on the newest rows than on those before.
        """
        if not set(table.attributes) <= set(self._subject.attributes) or table.n_groups < 2:
            return None, True
        outcomes = Outcomes.of(sample.bits(len(prices.order)), sample.codes, sample.weights)
        routed = routed_costs(table.with_default(prices.order), sample, outcomes, prices)
        if sample.n_rows < REVIEW_ROWS:
            return routed, False
        base = outcomes.costs(np.array([prices.order]), prices.costs_ns)[outcomes.of_row, 0]
        saving = Saving(base - routed, outcomes.weights, prices.overhead_of(table))
        n_newest = sample.n_rows
        while n_newest >= REVIEW_ROWS:
            mean, error = saving.over(n_newest)
            if mean + FALLING_Z * error < 0.0:
                return None, True
            n_newest //= 2
        least = self.options.min_rows
        if sample.n_rows >= least and saving.over(sample.n_rows)[0] <= 0.0:
            return None, True
        is_stale = saving.is_falling(least)
        now, error = saving.over(least)
        return (None if is_stale and now <= self.options.z_score * error else routed), is_stale

    def _is_better(
        self,
        found: Found,
        table: RouteTable | None,
        held: Floats | None,
        rows: AttributeSample,
        prices: Prices,
    ) -> bool:
        """Return whether a table saves enough beside the one in force."""
        if table is None or held is None:
            return True
        trial = found.trial
        more = prices.overhead_of(found.table) - prices.overhead_of(table)
        saving = Saving(held[-rows.n_rows :] - trial.routed_ns, trial.saving.weights, more)
        mean, error = saving.over(rows.n_rows)
        least = self.options.min_refinement * float(held.mean())
        newest, _ = saving.over(self.options.min_rows)
        return mean - 0.5 * self.options.z_score * error > least and newest > 0.0


def _stopped(sample: AttributeSample, prices: Prices, table: RouteTable) -> RouteProposal:
    """Return the proposal to stop routing, with what it cost."""
    evidence = {
        "reason": "routing stopped paying",
        "n_rows": sample.n_rows,
        "route_cost_ns": prices.overhead_of(table),
        "costs_ns": prices.costs_ns.tolist(),
    }
    return RouteProposal(None, evidence)
