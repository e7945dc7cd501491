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

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from eddyline.errors import PlanError
from eddyline.options import in_range
from eddyline.routing.learning import Outcomes
from eddyline.routing.protocol import RouteProposal
from eddyline.routing.saving import FALLING_Z, Prices, Saving, routed_costs
from eddyline.routing.search import Search
from eddyline.routing.table import MAX_GROUPS, RouteTable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eddyline.routing.protocol import Order
    from eddyline.routing.search import Trial
    from eddyline.stats.attributes import AttributeSample

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]
Kind = Literal["number", "category"]

LONG_FIRST = (1, 2, 4, 8)
"""Shares of the sample (one in so many, the newest) that a table is searched in: all of it, and
less only if nothing in it holds for the newest rows."""

REVIEW_ROWS = 50
"""Sampled rows that a table in force is judged by, if there are no more."""

SHORT_FIRST = (8, 4, 2, 1)
"""The same once the table in force no longer does what it did: the newest rows first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterOptions:
    """When classes of rows get orders of their own.

    Raises:
        OptionError: a value is out of its range.
    """

    n_buckets: int = 24
    """Most buckets of an attribute with many values ([2, 128]) [Bizarro05 Table 2]."""
    max_attributes: int = 3
    """Most attributes that a class is made of ([1, 3])."""
    max_classes: int = 1024
    """Most classes ([2, 65536])."""
    max_groups: int = MAX_GROUPS
    """Most different orders at one time ([2, 16]); each is a call of every filter per batch, or a
    branch of generated code, and has to earn that."""
    min_ratio: float = 0.001
    """Gain ratio below which an attribute counts as useless for a filter ([0, 1]): the paper's
    gamma, which it gives no value. Samples are large here and ``level`` keeps chance out, so it
    can be far below the 0.03 that 150 rows would need."""
    level: float = 0.01
    """Chance of taking a useless attribute for one that tells something, per filter ((0, 0.5])."""
    extreme_frac: float = 0.02
    """A filter that passes less than this, or drops less than this, has its place in any order
    and is not asked about ([0, 0.5]) [Bizarro05 4.4 gives no number]."""
    prior_rows: float = 50.0
    """Rows by which a class's own rows are drawn towards what its buckets say ([0, 1e6])."""
    min_rows: int = 400
    """Sampled rows before anything is learned ([8, 2^31])."""
    min_gain: float = 0.01
    """Share of the cost that a table must save, or another table save on it ([0, 1))."""
    min_refinement: float = 0.005
    """Share of the cost that a table must save on the one in force ([0, 1)): less than a first
    table has to, because it rests on more rows, and a first table of few would stay for long."""
    z_score: float = 2.0
    """Standard errors by which the saving must exceed what routing costs ([0, 100]); half of that
    is enough to replace a table."""

    def __post_init__(self) -> None:
        in_range(self, "n_buckets", 2, 128)
        in_range(self, "max_attributes", 1, 3)
        in_range(self, "max_classes", 2, 2**16)
        in_range(self, "max_groups", 2, MAX_GROUPS)
        in_range(self, "min_ratio", 0.0, 1.0)
        in_range(self, "level", 1e-12, 0.5)
        in_range(self, "extreme_frac", 0.0, 0.5)
        in_range(self, "prior_rows", 0.0, 1e6)
        in_range(self, "min_rows", 8, 2**31)
        in_range(self, "min_gain", 0.0, 1.0)
        in_range(self, "min_refinement", 0.0, 1.0)
        in_range(self, "z_score", 0.0, 100.0)


class Router:
    """Proposes route tables for one conjunction.

    Args:
        filter_ids: names of the filters (F).
        attributes: names of the attributes (K).
        kinds: of each attribute, whether its values have an order (``number``) or not
            (``category``) (K).
        reads: of each filter, the attributes that it reads itself: a bucket of one of those is
            no prediction but the filter's own work [Bizarro05 Fig 8] (F).
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
        self.filter_ids = tuple(filter_ids)
        self.attributes = tuple(attributes)
        self.kinds = tuple(kinds)
        self.options = options or RouterOptions()
        own = [[name in read for name in self.attributes] for read in reads]
        self.own = np.array(own, dtype=np.bool_).reshape(len(filter_ids), len(attributes))

    def propose(
        self,
        order: Order,
        table: RouteTable | None,
        sample: AttributeSample,
        costs_ns: Floats,
        route_cost_ns: float = 0.0,
        group_cost_ns: float = 0.0,
        attribute_cost_ns: float = 0.0,
    ) -> RouteProposal | None:
        """Return a better table, or one that says to stop routing; None leaves things alone.

        Args:
            order: the order of all rows.
            table: the table in force.
            sample: the newest sampled rows.
            costs_ns: cost of one evaluation of each filter (ns; > 0; (F,)).
            route_cost_ns: what it costs to find a row's group by one attribute (ns per input row;
                ≥ 0).
            group_cost_ns: what each group but the first adds, such as one more call of each filter
                per batch (ns per input row; ≥ 0).
            attribute_cost_ns: what each attribute of a table but the first adds (ns per input row;
                ≥ 0).
        """
        prices = Prices(order, costs_ns, route_cost_ns, group_cost_ns, attribute_cost_ns)
        sample = sample.of(self.attributes)
        if len(order) < 2 or not self.attributes:
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
            search = Search(self, rows, prices, is_stale=is_stale)
            found = search.run()
            proposal = found and self._if_better(found, table, held, rows, prices)
            if proposal:
                return proposal
            if share == 1 and not search.has_classifier:
                break  # an attribute that tells anything of late shows among all rows, too
        if table is None or held is not None:
            return None
        return _stopped(sample, prices, table)

    def review(
        self,
        order: Order,
        table: RouteTable,
        sample: AttributeSample,
        costs_ns: Floats,
        route_cost_ns: float = 0.0,
        group_cost_ns: float = 0.0,
        attribute_cost_ns: float = 0.0,
    ) -> RouteProposal | None:
        """Return a proposal to stop routing if the table in force no longer pays, else None.

        A fraction of the work of ``propose``, to be asked after every batch while there is a
        table, and of however few rows are left of the sample after a change: a table must not
        stay because it takes long to learn another. The arguments are those of ``propose``.
        """
        prices = Prices(order, costs_ns, route_cost_ns, group_cost_ns, attribute_cost_ns)
        sample = sample.of(self.attributes)
        return (
            _stopped(sample, prices, table)
            if self._held(table, sample, prices)[0] is None
            else None
        )

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
        if not set(table.attributes) <= set(self.attributes) or table.n_groups < 2:
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

    def _if_better(
        self,
        found: tuple[Trial, RouteProposal],
        table: RouteTable | None,
        held: Floats | None,
        rows: AttributeSample,
        prices: Prices,
    ) -> RouteProposal | None:
        """Return the proposal unless the table in force is about as good."""
        trial, proposal = found
        if table is None or held is None or proposal.table is None:
            return proposal
        more = prices.overhead_of(proposal.table) - prices.overhead_of(table)
        saving = Saving(held[-rows.n_rows :] - trial.routed_ns, trial.saving.weights, more)
        mean, error = saving.over(rows.n_rows)
        least = self.options.min_refinement * float(held.mean())
        newest, _ = saving.over(self.options.min_rows)
        is_better = mean - 0.5 * self.options.z_score * error > least and newest > 0.0
        return proposal if is_better else None


def _stopped(sample: AttributeSample, prices: Prices, table: RouteTable) -> RouteProposal:
    """Return the proposal to stop routing, with what it cost."""
    evidence = {
        "reason": "routing stopped paying",
        "n_rows": sample.n_rows,
        "route_cost_ns": prices.overhead_of(table),
        "costs_ns": prices.costs_ns.tolist(),
    }
    return RouteProposal(None, evidence)
