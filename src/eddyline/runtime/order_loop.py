"""Loop that keeps an order good: observe, decide, switch.

Tasks and the driver run the same loop. Filters, comparisons of alarms and probes of joins are
ordered by an ``OrderLoop``. Profiles of batches come in, never rows. Out come the order in force,
journal entries, and the share of rows to sample next.

1. ``step`` adds a profile to the evidence, a window of the newest profile tuples.
2. The monitor looks for changes in the data. The loop lets go of evidence from before a change.
3. Once enough of the evidence is new, the policy proposes an order, and the loop switches to it.

**Budget.** ``costs_ns`` says what a row costs and what profiling adds to it. ``sample_prob`` keeps
profiling to ``max_overhead`` of the work. All warm-ups together keep to the same share.

**The choice.** The loop is the ``Choice`` of its order: a person may pin the names of its filters
in any order. The log of plans knows a situation by the shares of rows that filters drop, alone and
in pairs. Costs are no condition: the cost of a call depends on the number of rows that reach the
filter, and so on the order in force. Inside a task the same class runs as a plain loop.

Policies that take evidence of the order in force alone are not logged and give no advice.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from eddyline.errors import PlanError, StateError
from eddyline.ordering import policy as find_policy
from eddyline.ordering.a_greedy import AGreedyOptions
from eddyline.ordering.protocol import drop_fracs, expected_cost_ns, reach, rivals
from eddyline.routing.router import MIN_REFINEMENT, MIN_ROWS, Router
from eddyline.routing.table import MAX_GROUPS, RouteTable
from eddyline.runtime.choice import LEAST_ROWS, Advice, Choice, Met, Situation, are_names
from eddyline.runtime.journal import JournalEntry
from eddyline.runtime.monitors import monitor as find_monitor
from eddyline.runtime.records import OrderRecord
from eddyline.stats import costs as work_clock
from eddyline.stats.costs import Budget, CostSums
from eddyline.stats.profile import AttributeSample, FilterProfile, ProfileWindow, joined, merge

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from eddyline.data.arrays import Floats
    from eddyline.options import FilterOptions
    from eddyline.routing.router import Prices
    from eddyline.routing.table import Attribute
    from eddyline.stats.profile import Order

WINDOW_ROWS = 1000
"""Newest profile tuples that an order is chosen by (W) [Babu05 Table 4.1]."""

MIN_FILL = 100
"""Profile tuples that end a warm-up."""

WARMUP_PROB = 0.1
"""Share of the rows that is profiled while a loop warms up."""

SPIKE_FACTOR = 4.0
"""A single call that takes this many times longer than expected is a spike."""

WARMUP_SAMPLES = 4
"""Sampled rows, as a multiple of ``MIN_FILL``, that end a warm-up in which little is dropped."""

LOGGED_TUPLES = 256
"""Newest profile tuples that the log of plans keeps of a situation."""

THINKING_FRAC = 0.01
"""Most time that the policy may take, as a share of the time that the filters take."""

MIN_ROWS_PER_PROFILE = 32
"""Sampled rows below which a batch is not worth profiling: then fewer batches are profiled."""

MOST_PAIRED = 8
"""Up to this many filters, the share of rows that each pair drops is a condition, too. With more,
only the share of each filter is."""

ONE_ORDER = "the policy takes evidence of the order in force alone"
"""Why an order is not logged."""

GREEDY = AGreedyOptions(hysteresis=1.0, min_fill=1, min_gain=0.0)
"""The policy of advice and hindsight: it waits for nothing, whatever the policy of the loop."""


class OrderState(msgspec.Struct, frozen=True, kw_only=True):
    """The learned state of a loop, as it is saved."""

    filter_ids: tuple[str, ...]
    order: tuple[int, ...]
    window: list[dict[str, Any]]
    recent: list[dict[str, Any]] = msgspec.field(default_factory=list)
    """What came since the last change; states that were saved before there was a log have none."""
    spent_ns: tuple[float, float, float]
    """Recent work per row, all work, and all warm-ups (ns)."""
    policy: dict[str, Any]
    """The policy's own, if it is of the same name again."""
    policy_name: str
    monitor: dict[str, Any]
    """The monitor's own, if it is the same again."""
    monitor_name: str


class OrderLoop(Choice):
    """Keeps the order of some filters good; its plan is the names of the filters in order.

    Args:
        component: name of what is ordered, in the journal.
        filter_ids: names of the filters, as the user wrote them.
        options: how the order is learned.
        thinks_freely: whether decisions may take what time they need, as on the driver, where
            one follows a whole job; if not, they keep to a share of what the filters take.
        window_rows: profile tuples in the window (≥ 1). This and the next two are for experiments.
        min_fill: profile tuples that end a warm-up (≥ 1).
        warmup_prob: share of the rows that is profiled until then ([0, 1]).
        clock: monotonic clock (ns), to bound the time that policies take.
    """

    state_type: type[OrderState] = OrderState

    def __init__(
        self,
        component: str,
        filter_ids: tuple[str, ...],
        options: FilterOptions,
        *,
        thinks_freely: bool = False,
        window_rows: int = WINDOW_ROWS,
        min_fill: int = MIN_FILL,
        warmup_prob: float = WARMUP_PROB,
        clock: Callable[[], int] = work_clock.work_ns,
    ) -> None:
        n_filters = len(filter_ids)
        self.component = component
        self.filter_ids = filter_ids
        self.options = options
        self.clock = clock
        self.thinks_freely = thinks_freely
        # More than the window holds would never come together, and the warm-up never end.
        self.min_fill = min(min_fill, window_rows)
        self.warmup_prob = warmup_prob
        self.policy = find_policy(options.policy).build(
            n_filters, np.random.default_rng(options.seed)
        )
        self.order: Order = tuple(range(n_filters))
        self.is_adaptive = options.adaptive and n_filters > 1
        self.monitor = find_monitor(options.monitor).build(n_filters, options.seed)
        self.window = ProfileWindow(filter_ids, window_rows)
        self.recent = ProfileWindow(filter_ids, LOGGED_TUPLES if thinks_freely else 1)
        """The newest evidence since the last change, on the driver: never any from before it."""
        self.totals = self.newest = FilterProfile.empty(filter_ids)
        self._was_slow = np.zeros(n_filters, dtype=np.bool_)
        self._n_timed = np.zeros(n_filters)
        self._costs_changed = False
        self._new_tuples = 0
        self._n_evaluations = self.n_met = 0
        self._warmups_ns = 0.0
        self._recent_ns = 0.0
        self._work_ns = 0.0
        self._thinking = Budget(THINKING_FRAC, clock=clock)

    def adjust(self, options: FilterOptions) -> None:
        """Go on with other limits of profiling, and other thresholds of the policy."""
        self.options = options
        if hasattr(self.policy, "options"):
            self.policy.options = find_policy(options.policy)

    def step(
        self, fresh: FilterProfile, batch_id: int = -1, *, may_switch: bool = True
    ) -> list[JournalEntry]:
        """Take in what the last batch observed, and change the order if the evidence says so.

        If it may not switch, the order stays whatever the evidence.

        Returns:
            The findings and decisions: a change in the data, another order; at most one of each.

        Raises:
            PlanError: the policy proposed something that is not an order of the filters.
        """
        self._count(fresh)
        if not self.is_adaptive:
            return []
        self.newest = fresh
        costs, ratios = self._without_spikes(fresh.costs)
        fresh = replace(fresh, costs=costs)
        self._add_work(fresh)
        entries = self._watch(fresh, ratios, batch_id)
        self._take_in(fresh)
        if not may_switch or self.is_held:
            return entries
        self.policy.observe(fresh, self.order)
        if self._is_due():
            entries += self._decide(batch_id)
        return entries

    def _take_in(self, fresh: FilterProfile) -> None:
        """Add a profile to the evidence."""
        self.window.push(fresh)
        if self.thinks_freely:
            self.recent.push(fresh)
        self._new_tuples += fresh.n_tuples

    def _decide(self, batch_id: int) -> list[JournalEntry]:
        """Ask the policy, and switch if it proposes another order."""
        with self._thinking.spending():
            profile = self.window.profile()
            proposal = self.policy.propose(self.order, profile)
        self._new_tuples = 0
        self._costs_changed = False
        if proposal is None or proposal.order == self.order:
            return []
        before = self.order
        self.reorder(self._checked(proposal.order))
        names = self.names(before), self.names(self.order)
        evidence = proposal.evidence | rivals(before, self.order, profile, proposal.evidence)
        return [JournalEntry(batch_id, self.component, "order", *names, evidence)]

    def reorder(self, order: Order) -> None:
        """Put another order in force, whoever has chosen it."""
        before, self.order = self.order, order
        self.monitor.reordered(before, order)

    def _add_work(self, fresh: FilterProfile) -> None:
        """Add up what the filters cost: measured, or expected where an engine does not tell."""
        if fresh.n_rows:
            work_ns = float(fresh.costs.total_ns.sum())
            self._recent_ns = (self._recent_ns + work_ns / fresh.n_rows) / 2.0
        else:
            n_rows = float(fresh.passed + fresh.weights.sum())
            work_ns = n_rows * expected_cost_ns(self.order, self.window.profile())
        self._work_ns += work_ns
        self._thinking.earn(work_ns)

    def _watch(self, fresh: FilterProfile, ratios: Floats, batch_id: int) -> list[JournalEntry]:
        """Let the evidence go that a change has made stale, so that the window fills with fresh.

        Where too little is fresh, a warm-up follows, which keeps to the budget: all of them
        together. If that is spent, the newest evidence stays until newer comes.
        """
        profile = self.window.profile()
        if not self.policy.needs_all_bits or self.is_warming:
            return []
        finding = self.monitor.observe(fresh, self.order, profile, ratios)
        if finding is None:
            return []
        if finding.costs is not None:
            self.window.forget_costs(finding.costs)
            self.recent.forget_costs(finding.costs)
            self._costs_changed = True
        evidence = {**finding.evidence, "n_tuples": profile.n_tuples}
        if finding.n_fresh is not None:
            n_kept = max(finding.n_fresh - fresh.n_tuples, 0)
            self.recent.keep_newest(n_kept)
            least = max(n_kept, self.min_fill - fresh.n_tuples)
            is_short = finding.n_fresh < self.min_fill and n_kept < profile.n_tuples
            if is_short and not self._can_warm_up(profile):
                n_kept = least
            if n_kept >= profile.n_tuples and finding.costs is None:
                return []  # nothing that is known is older than the change
            self._keep_newest(n_kept, profile)
        return [JournalEntry(batch_id, self.component, "stale", evidence=evidence)]

    def _keep_newest(self, n_kept: int, profile: FilterProfile) -> None:
        """Let go of all evidence but the newest profile tuples."""
        self.window.keep_newest(min(n_kept, profile.n_tuples))
        self._new_tuples = min(self._new_tuples, n_kept)

    def _can_warm_up(self, profile: FilterProfile) -> bool:
        """Return whether the budget pays for another warm-up, and take it from the budget."""
        extra = self.policy.extra(len(self.order))
        warmup_ns = self.min_fill * costs_ns(self.order, profile, extra)[1]
        if self._warmups_ns + warmup_ns > self.options.max_overhead * self._work_ns:
            return False
        self._warmups_ns += warmup_ns
        return True

    def _count(self, fresh: FilterProfile) -> None:
        """Add to the counts of the whole life, of which no sampled rows are kept."""
        empty = FilterProfile.empty(self.filter_ids)
        counts = replace(
            fresh,
            codes=empty.codes,
            weights=empty.weights,
            basis=None,
            blocks=None,
            attributes=None,
        )
        self.totals = merge([self.totals, counts])
        self._n_evaluations, self.n_met = fresh.n_evaluations, fresh.n_rows

    def add_costs(self, costs: CostSums) -> None:
        """Add costs to the counts of the whole life that say nothing about an evaluation."""
        self.totals = replace(self.totals, costs=self.totals.costs + costs)

    def _without_spikes(self, costs: CostSums) -> tuple[CostSums, Floats]:
        """Cut a call that took far longer than expected, unless the call before it did so too.

        A pause of the machine hits single calls; a filter that has become slow is slow again. The
        first call is judged by the second: it may have loaded a model, compiled a pattern or
        imported a library.

        Returns:
            The costs, and the time of each filter over the expected time (nan: unknown; (F,)).
        """
        fixed, slope = self.window.profile().costs.fit()
        calls, rows, time = costs.sums[:3]
        expected = fixed * calls + slope * rows
        is_known = self.window.profile().costs.is_known
        was_first = is_known & (calls > 0) & (self._n_timed == 1)
        had_to_load = was_first & (expected > SPIKE_FACTOR * time)
        self._n_timed += calls > 0
        if had_to_load.any():
            self.window.forget_costs(had_to_load)
            self.recent.forget_costs(had_to_load)
            self._costs_changed = True
        is_slow = is_known & (time > SPIKE_FACTOR * expected)
        cut = is_slow & ~self._was_slow
        self._was_slow = np.where(calls > 0, is_slow, self._was_slow)
        if cut.any():
            sums = costs.sums.copy()
            share = np.where(cut, expected / np.maximum(time, 1.0), 1.0)
            sums[2] *= share
            sums[4] *= share
            costs = CostSums(sums)
        is_told = is_known & (calls > 0) & (expected > 0.0)
        ratios = np.full(len(time), np.nan)
        return costs, np.divide(costs.total_ns, expected, out=ratios, where=is_told)

    def _is_due(self) -> bool:
        """Whether there is enough new evidence, and thinking has not cost too much so far."""
        if not self.policy.needs_all_bits:
            return True  # it keeps its own evidence, and a look at that is cheap
        n_tuples = self.window.profile().n_tuples
        if n_tuples == self._new_tuples or self._costs_changed:
            return self._new_tuples > 0
        is_due = self.monitor.is_due(n_tuples, self._new_tuples, self.window.max_tuples)
        return is_due and self._can_think()

    def _can_think(self) -> bool:
        """Whether decisions have not cost too much so far."""
        return self.thinks_freely or self._thinking.may

    @property
    def is_warming(self) -> bool:
        """Whether there is too little evidence to order by."""
        profile, least = self.window.profile(), self.min_fill
        return (
            profile.n_tuples < least
            and profile.n_tuples + profile.n_passed < WARMUP_SAMPLES * least
        )

    @property
    def lacks_evidence(self) -> bool:
        """Whether the next rows have to be profiled, for a first order."""
        return self.is_warming or self._wants_more

    @property
    def _wants_more(self) -> bool:
        """Whether more sampled rows are lacking than an order needs."""
        return False

    def sample_prob(self, n_rows: int = 0) -> float:
        """Return the share of rows to profile next, so that profiling keeps to its budget.

        ``n_rows`` of the next batch are 0 where an engine evaluates row by row.
        """
        options = self.options
        if not self.is_adaptive:
            return 0.0
        if self.lacks_evidence:
            return max(self.warmup_prob, options.sample_prob)
        profile = self.window.profile()
        extra = self.policy.extra(len(self.order))
        work_ns, extra_ns = costs_ns(self.order, profile, extra, n_rows)
        if extra_ns <= 0.0:
            return options.sample_prob
        # What rows cost now may be far more than the evidence says, if that is getting stale.
        work_ns = max(work_ns, self._recent_ns)
        return min(options.sample_prob, options.max_overhead * work_ns / extra_ns)

    # -- what a person pins ---------------------------------------------------------------------

    def names(self, order: Order) -> list[str]:
        """Return the names of the filters in that order."""
        return [self.filter_ids[f] for f in order]

    @property
    def plan(self) -> list[str]:
        """The order in force."""
        return self.names(self.order)

    @property
    def possible(self) -> str:
        """The plans that may be pinned, in words."""
        return f"a list of all of {list(self.filter_ids)}, each once, in any order"

    def is_possible(self, plan: Any) -> bool:
        """Return whether it has every filter once."""
        return are_names(plan) and sorted(plan) == sorted(self.filter_ids)

    def adopt(self, plan: list[str]) -> None:
        """Put another order in force."""
        self.reorder(self._order_of(plan))

    def advice(self) -> Advice | None:
        """Return the order that a greedy algorithm chooses on the evidence, and its cost.

        None while too little is known, and where the policy takes evidence of one order alone.
        """
        profile = self.window.profile()
        if not profile.n_tuples or profile.basis is not None or not profile.costs.is_known.all():
            return None
        best = _greedy(self.order, profile)
        costs = expected_cost_ns(best, profile), expected_cost_ns(self.order, profile)
        return Advice(self.names(best), *costs)

    def _order_of(self, plan: Iterable[str]) -> Order:
        return tuple(map(self.filter_ids.index, plan))

    # -- what the log of plans knows ------------------------------------------------------------

    @property
    def why_unlogged(self) -> str:  # type: ignore[override]
        """Why orders are not logged, if they are not."""
        return "" if self.policy.needs_all_bits else ONE_ORDER

    def situation(self) -> Situation | None:
        """Return what each filter, and each pair of them, drops.

        None while nothing was seen since the last change, and where the policy takes evidence of
        one order alone.
        """
        profile, met = self.recent.profile(), self._met()
        n_sampled, n_tuples = profile.n_tuples + profile.n_passed, profile.n_tuples
        nothing = met is None and not n_sampled
        if nothing or profile.basis is not None or not self.policy.needs_all_bits:
            return None
        n, ids = len(self.filter_ids), self.filter_ids
        bits, weights = profile.bits()
        total = profile.passed + float(weights.sum())
        together = (weights[:, None] * bits).T @ bits / (total or np.nan)
        pairs = list(combinations(range(n), 2)) if n <= MOST_PAIRED else []
        least = min(self.min_fill, self.recent.max_tuples)
        is_enough = n_tuples >= least or n_sampled >= WARMUP_SAMPLES * least
        return Situation(
            names=(
                *(f"{name} drops" for name in ids),
                *(f"{ids[f]} and {ids[g]} drop" for f, g in pairs),
            ),
            shares=np.array([*together.diagonal(), *(together[pair] for pair in pairs)]),
            counts=np.full(n + len(pairs), max(n_sampled, 1.0)),
            evidence=profile.to_state(),
            n_sampled=n_sampled,
            is_settled=is_enough and bool(profile.costs.is_known.all()),
            met=met,
        )

    def _met(self) -> Met | None:
        """Return the share of the rows of the last batch that each position has dropped."""
        order, n_in, n_out = self.newest.ran_under, self.newest.rows_in, self.newest.rows_out
        if order is None or n_in[order[0]] < LEAST_ROWS:
            return None
        n_in, n_out = n_in[list(order)], n_out[list(order)]
        shares = np.divide(n_in - n_out, n_in, out=np.full(len(order), np.nan), where=n_in > 0)
        return Met(self.names(order), shares, n_in)

    def rows_met(self, n_rows: int) -> int:
        """Return the rows that the order met, or those of the query where nobody counts them."""
        return self.n_met or n_rows

    def cost_of(self, plan: list[str], evidence: Any) -> float:
        """Return the expected cost of an order (ns per row)."""
        return expected_cost_ns(self._order_of(plan), self._profile(evidence))

    def foreseen(self, plan: list[str], evidence: Any) -> tuple[Floats, Floats]:
        """Return the share of rows that each position of an order would drop."""
        profile = self._profile(evidence)
        shares = drop_fracs(self._order_of(plan), profile)
        return shares, (profile.n_tuples + profile.n_passed) * reach(shares)

    def best_single(self, held: Sequence[tuple[Any, float]]) -> list[str] | None:
        """Return the order that a greedy algorithm chooses for all situations together."""
        scaled = []
        for evidence, n_rows in held:
            profile = self._profile(evidence)
            share = n_rows / ((profile.passed + float(profile.weights.sum())) or 1.0)
            weights, passed = share * profile.weights, share * profile.passed
            scaled.append(replace(profile, weights=weights, passed=passed))
        return self.names(_greedy(self.order, merge(scaled)))

    def take(self, plan: list[str], evidence: Any) -> None:
        """Put an order in force, and the evidence that it was chosen by behind the newest."""
        self.adopt(plan)
        self.begin_with(evidence)

    def begin_with(self, evidence: Any) -> None:
        """Let the evidence be that of a situation before, and what came since the last change.

        Costs that are known newer stay.
        """
        profile, recent = self._profile(evidence), self.recent.profile()
        costs = profile.costs.without(recent.costs.is_known)
        self.window.begin_with(replace(profile, costs=costs), recent)

    def let_go(self) -> None:
        """Let all evidence go but what came since the last change."""
        self.window.begin_with(self.recent.profile())

    def _profile(self, evidence: Any) -> FilterProfile:
        return FilterProfile.from_state(self.filter_ids, evidence)

    # -- figures and saving ---------------------------------------------------------------------

    def record(self) -> OrderRecord:
        """Return the state of the block after a batch; nan for what is not known."""
        written = tuple(range(len(self.order)))
        fracs, cost, as_written = self.figures(self.order, written)
        return OrderRecord(
            component=self.component,
            filter_ids=self.filter_ids,
            order=self.order,
            drop_fracs=tuple(fracs.tolist()),
            cost_ns=cost,
            as_written_ns=as_written,
            n_evaluations=self._n_evaluations,
            n_rows=self.n_met,
        )

    def figures(self, order: Order, written: Order) -> tuple[Floats, float, float]:
        """Return the drops of filters in an order ((F,), by filter), its cost and that as written.

        Drop fractions are of the rows that reach a filter; costs are of an input row (ns). What is
        not known is nan.
        """
        profile = self.window.profile()
        fracs = np.full(len(order), np.nan)
        cost = as_written = float("nan")
        if profile.n_tuples or profile.passed:
            in_order = drop_fracs(order, profile)
            fracs[list(order)] = np.where(reach(in_order) > 0.0, in_order, np.nan)
            if profile.costs.is_known.any():
                cost = expected_cost_ns(order, profile)
                as_written = expected_cost_ns(written, profile)
        return fracs, cost, as_written

    def snapshot(self) -> OrderState:
        """Return the learned state: order, window, the policy's own."""
        return OrderState(
            filter_ids=self.filter_ids,
            order=self.order,
            window=self.window.to_state(),
            recent=self.recent.to_state(),
            spent_ns=(self._recent_ns, self._work_ns, self._warmups_ns),
            policy=self.policy.snapshot(),
            policy_name=type(self.policy).__name__,
            monitor=self.monitor.snapshot(),
            monitor_name=repr(self.options.monitor),
        )

    def restore(self, state: Any) -> None:
        """Continue from what ``snapshot`` returned, or from plain values of the same content.

        Raises:
            StateError: the state is of other filters, or damaged.
        """
        try:
            self._restore(msgspec.convert(state, self.state_type, from_attributes=True))
        except (PlanError, LookupError, TypeError, ValueError, ArithmeticError) as error:
            msg = (
                f"the saved state of {self.component!r} is damaged: {type(error).__name__}: "
                f"{error}; start from an empty checkpoint"
            )
            raise StateError(msg, component=self.component) from error

    def _restore(self, state: OrderState) -> None:
        if state.filter_ids != self.filter_ids:
            msg = (
                f"the saved state of {self.component!r} is of filters {list(state.filter_ids)}, "
                f"this query has {list(self.filter_ids)}; start from an empty checkpoint"
            )
            raise StateError(msg, saved=state.filter_ids, now=self.filter_ids)
        order = self._checked(state.order)
        if not self.is_adaptive:
            return  # switched off means the order as written, not the last one that was learned
        self.window.restore(state.window)
        self.recent.restore(state.recent)
        self._recent_ns, self._work_ns, self._warmups_ns = state.spent_ns
        # What is restored was learned from more than one call.
        self._n_timed = np.where(self.window.profile().costs.is_known, 2.0, 0.0)
        if state.policy_name == type(self.policy).__name__:
            self.policy.restore(state.policy)
        if state.monitor_name == repr(self.options.monitor):
            self.monitor.restore(state.monitor)
        self.order = order

    def _checked(self, order: Iterable[int]) -> Order:
        """Return an order that came from outside, if it has every filter once.

        Another one would change the answer.
        """
        checked = tuple(order)
        if sorted(checked) != list(range(len(self.filter_ids))):
            msg = f"{checked} is no order of the {len(self.filter_ids)} filters {self.filter_ids}"
            raise PlanError(msg, component=self.component, order=checked)
        return checked


def costs_ns(
    order: Order, profile: FilterProfile, extra: Any, n_rows: int = 0
) -> tuple[float, float]:
    """Return the mean cost of one input row, and the cost that profiling it adds (ns).

    The latter is the Ω of [Babu05 4.3.4] at p = 1, and its part of the calls that are made for
    profiling alone, because no other row of the batch (of ``n_rows``; 0: no call has a fixed part)
    gets that far. ``extra`` says what is evaluated beyond the first drop ((F, F)).
    """
    fracs = drop_fracs(order, profile)
    reached = reach(fracs)
    first_drop = reached * fracs
    fixed, per_row = (costs[list(order)] for costs in profile.costs.fit())
    asked = np.asarray(extra, dtype=np.float64)
    work, added = reached @ per_row, first_drop @ (asked @ per_row)
    if n_rows > 0:
        alone = (1.0 - reached) ** n_rows
        work += fixed @ (1.0 - alone) / n_rows
        added += fixed @ (alone * asked.any(axis=0)) / min(n_rows, MIN_ROWS_PER_PROFILE)
    return float(work), float(added)


def _greedy(order: Order, profile: FilterProfile) -> Order:
    """Return the order that a greedy algorithm chooses, from an order to begin with."""
    policy = GREEDY.build(len(order), np.random.default_rng(0))
    proposal = policy.propose(order, profile)
    return order if proposal is None else proposal.order


# -- the loop of classes of rows ---------------------------------------------------------------
# The loop of classes of rows: the newest sampled rows, and the table that they teach.
#
# ``RouteLoop`` keeps sampled rows with their attributes. Once enough of them are new it asks the
# router for a table, and it holds the table in force. An operator says what its filters or
# look-ups cost, and what routing itself takes (``Prices``). A table is learned and kept on the
# same evidence that orders are: when a change makes evidence stale, the sample goes with it.


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
