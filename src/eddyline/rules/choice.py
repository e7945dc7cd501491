"""Choice of the plan for a set of rules.

It says when to plan again, too. ``RuleChoice`` takes in profiles, keeps those of the newest rows,
and plans again where the evidence says so: after the first sample, when a bitmap block drops other
rows than at first, when rows meet another number of rules, or when tests of Python would be cheaper
in another order. Planning and asking for the sample take a bounded share of the time that
evaluation takes. It is the same on the driver, between micro-batches, and inside a task, between
Arrow batches.

The log of plans knows situations again by ``RuleConditions``: for which share of rows each literal
holds. Of many literals that hold for few rows each, no single one tells two situations apart. So it
is a condition, too, how many rows the literals of one column select together, and on average.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from eddyline.data.arrays import distinct
from eddyline.data.outcomes import sampled_rows
from eddyline.errors import StateError
from eddyline.rules.compile.bitmap_block import BitmapBlocks
from eddyline.rules.compile.formula import REGION, TEXT
from eddyline.rules.plan import MAX_SAMPLED, SharingProfile
from eddyline.rules.planning.access_predicates import MIN_ROWS, counted_rates, plan_by, price_ns
from eddyline.rules.planning.planner import WayCosts, make_plan, plan_from, with_way
from eddyline.rules.planning.python_order import python_orders
from eddyline.rules.planning.sequence_learning import RearrangementMonitor, has_changed
from eddyline.rules.view import COMPONENT, MAX_NAMED, RuleRecord, test_text
from eddyline.runtime.choice import Choice, Conditions
from eddyline.runtime.journal import JournalEntry
from eddyline.stats import costs as work_clock
from eddyline.stats.costs import Budget

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from eddyline.data.arrays import Floats, Ints
    from eddyline.options import SharingOptions
    from eddyline.rules.compile.program import Program
    from eddyline.rules.plan import BitmapBlockPlan, SharingPlan
    from eddyline.runtime.choice import Situation


REVIEW_ROWS = 50_000
"""Rows between two looks at whether the plan still does what it did (λ)."""

MIN_CHANGE = 0.1
"""Change that has the plan made again, as a share of what it was (μ); 0: at every look. Where rows
drift (``sharing_recovery_drifting``) it takes 1.031 times the evaluations of the best, with 0.02 to
0.1; 1.048 times with 0.5, and 1.169 times with 0, as each look takes a sample."""

FIRST_ROWS = 500
"""First rows of a stream of which nothing is known: every construct looks at them."""

MAX_PLANNING = 0.05
"""Most time that planning may take, as a share of the time that evaluation takes."""

MAX_ASKING = 0.02
"""Most time that asking tests of Python for the sample alone may take, as a share likewise."""

MOST_ASKED = 100
"""Sampled rows of a batch for which rules ask all tests whose order is learned, at most."""

MOST_OWED = 50.0
"""The most that such a sample may owe, in units of what the last batch earned."""

MAX_PARTS = 16
"""Parts that the sample is kept in; the oldest goes as a whole."""

SETTLED, UNSETTLED = "rows since the last plan", "many rows since the last plan"
"""Reasons to plan again although nothing changed: the first plan was made from few rows (SETTLED),
or mostly from rows older than the change (UNSETTLED). No monitor would notice either later."""

REORDERED = "another order of Python tests is cheaper"
"""Reason to plan again: none of what is counted by row tells it."""

MIN_PAIRS = 0.05
"""Pairs of row and rule per row below which their number is no reason to plan again."""

MOST_LITERALS = 2_000
"""Literals up to which their rates are kept for each situation: numbers of ten bytes each."""

DIGITS = 5
"""Decimals of the rates that are kept."""

STATED = "one statement of Spark's tells nothing of the tests of its rules"
"""Why nothing is logged while the matcher does not run."""

NOT_KEPT = "a loop of tasks keeps no conditions"


class RuleChoice(Choice):
    """The plan of a program: known again by the rates of literals, and priced by them.

    A plan to start with may come from another choice of the same program; ``is_measured`` says
    whether it was made from rows, and not from guesses. The clock is monotonic (ns). Only where the
    rules ``may_be_stated``, which a task cannot, is one statement of Spark's among the plans. Where
    plans are logged, as on the driver, the conditions of the newest rows are kept: ``logged_as``
    is the same as long as the rules mean the same, also in another process.
    """

    component = COMPONENT

    def __init__(
        self,
        program: Program,
        options: SharingOptions,
        *,
        plan: SharingPlan | None = None,
        is_measured: bool = False,
        may_be_stated: bool = False,
        logged_as: str | None = None,
        sample_rows: int = MAX_SAMPLED,
        review_rows: int = REVIEW_ROWS,
        min_change: float = MIN_CHANGE,
        clock: Callable[[], int] = work_clock.work_ns,
    ) -> None:
        self.program = program
        self.options = options
        self.is_adaptive = options.adaptive
        self.sample_rows, self.review_rows, self.min_change = sample_rows, review_rows, min_change
        self.blocks = BitmapBlocks(program)
        self.total = SharingProfile.empty(program)
        """The counts of all rows, without samples."""
        self.may_be_stated = may_be_stated
        self._matched = (0, 0)
        """Rows that the matcher has evaluated, and the time that took it (ns)."""
        self.sharing = self._best_plan(None) if plan is None else plan
        """The plan in force."""
        self._window: deque[SharingProfile] = deque()
        self._n_old = 0  # parts of the window from before the plan was made
        self.is_settling = False
        """Whether the plan was made from such rows, for lack of others: the next
        review plans anew."""
        self._budget = Budget(MAX_PLANNING, clock=clock)
        self._asking = Budget(MAX_ASKING, most_owed=MOST_OWED, clock=clock)
        self.is_measured = is_measured
        """Whether the plan was made from rows, and not from guesses."""
        self.conditions = None if logged_as is None else RuleConditions(program, logged_as)
        """What the log of plans knows situations by."""
        self.n_newest = 0
        """Rows of the last batch, as far as they were counted."""
        self._last = self._since = self.total
        self._first: SharingProfile | None = None
        self._monitors: dict[BitmapBlockPlan, RearrangementMonitor] = {}

    @property
    def is_learning(self) -> bool:
        """Whether rows are looked at to plan again."""
        return self.is_adaptive and not self.is_held

    @property
    def wants_first_rows(self) -> bool:
        """Whether nothing was measured yet: every construct should look at the first rows."""
        return self.is_learning and not self.is_measured

    @property
    def profile(self) -> SharingProfile:
        """The profile of the newest rows, from which plans are made."""
        return SharingProfile.empty(self.program).merge(*self._window)

    def sample(self, seed: int, first_row: int, n_rows: int) -> Ints:
        """Return the rows of a batch of a partition that every construct looks at."""
        if not self.is_learning:
            return np.zeros(0, np.int64)
        rows = sampled_rows(seed, first_row, n_rows, self.options.sample_prob)
        if self.wants_first_rows:
            return distinct(np.concatenate([np.arange(min(n_rows, FIRST_ROWS)), rows]))
        return rows

    def asked_sample(self, sample: Ints) -> Ints:
        """Return those of a batch's sampled rows for which rules ask all tests to be ordered."""
        may = self._asking.may and len(self.program.ordered.tests) > 0
        return sample[: MOST_ASKED if may else 0]

    def step(self, fresh: SharingProfile, batch_id: int = -1) -> list[JournalEntry]:
        """Take in what the last batches observed, and plan again if the evidence says so."""
        counts = self._last = fresh.without_sample()
        self.n_newest = fresh.n_rows
        self.total, self._since = self.total.merge(counts), self._since.merge(counts)
        if fresh.evaluation_ns:
            n_rows, spent_ns = self._matched
            self._matched = n_rows + fresh.n_rows, spent_ns + fresh.evaluation_ns
        if not self.is_learning:
            return []
        if self.sharing.is_statement and not fresh.n_sampled:
            return []  # the matcher has not run
        self._remember(fresh)
        if self.conditions is not None:
            self.conditions.step(fresh)
        self._budget.earn(fresh.evaluation_ns)
        self._asking.earn(fresh.evaluation_ns)
        self._asking.spend(fresh.python.sampled_ns)
        why = self._why(fresh)
        return [] if why is None else self._planned(why, batch_id)

    def record(self) -> RuleRecord:
        """Return the state of the rules after the last batch."""
        n_met, n_matches = int(self._last.candidates.sum()), int(self._last.matches.sum())
        return RuleRecord(self.program.n_rules, str(self.sharing), n_met, n_matches)

    # -- what a person pins, and the log --------------------------------------------------------

    @property
    def why_unlogged(self) -> str:  # type: ignore[override]
        """Why plans are not logged, if they are not."""
        if self.conditions is None:
            return NOT_KEPT
        return STATED if self.sharing.is_statement else self.conditions.why_not

    @property
    def _conditions(self) -> RuleConditions:
        assert self.conditions is not None
        return self.conditions

    @property
    def identity(self) -> str:
        """The rules: plans of others are none of these."""
        return "" if self.conditions is None else self.conditions.identity

    @property
    def plan(self) -> Any:
        """The plan in force, as plain values."""
        return msgspec.to_builtins(self.sharing)

    @property
    def possible(self) -> str:
        """The plans that may be pinned, in words."""
        return "a plan of these rules, as run.plan() has the one in force"

    def is_possible(self, plan: Any) -> bool:
        """Return whether it is a plan of these rules."""
        try:
            plan_from(plan, self.blocks)
        except StateError:
            return False
        return True

    def in_words(self, plan: Any) -> str:
        """Return a plan in words."""
        return str(plan_from(plan, self.blocks))

    def situation(self) -> Situation | None:
        """Return for which share of the sampled rows each literal holds."""
        return self._conditions.situation()

    def rows_met(self, n_rows: int) -> int:
        """Return the rows of the last batch, or those of the query where nobody counts them."""
        return self.n_newest or n_rows

    def cost_of(self, plan: Any, evidence: Any) -> float:
        """Return what the matcher is expected to take (ns per row)."""
        rates = self._conditions.rates(evidence)
        return price_ns(self.program, plan_from(plan, self.blocks), rates)

    def best_single(self, held: Sequence[tuple[Any, float]]) -> Any:
        """Return the plan that is the cheapest by the mean rates of all situations."""
        total = sum(n_rows for _, n_rows in held)
        parts = [self._conditions.rates(evidence) * (n_rows / total) for evidence, n_rows in held]
        mean: np.ndarray = sum(parts[1:], parts[0])
        return msgspec.to_builtins(plan_by(self.program, mean, method=self.options.method))

    def adopt(self, plan: Any) -> None:
        """Put a plan in force that was good for rows like the newest ones; those before are let go.

        It is reviewed like any other.
        """
        self._window.clear()
        self._put(plan_from(plan, self.blocks))
        self.is_settling = False

    def let_go(self) -> None:
        """Plan anew as soon as there are enough rows."""
        self.is_settling = True

    # -- saving ---------------------------------------------------------------------------------

    def snapshot(self) -> SharingPlan | None:
        """Return the plan if it was made from rows, and not from guesses."""
        return self.sharing if self.is_measured else None

    def restore(self, state: Any) -> None:
        """Continue with the plan of a snapshot, decoded from JSON; see ``plan_from``."""
        if state is not None:
            self.sharing, self.is_measured = plan_from(state, self.blocks), True

    # -- planning again -------------------------------------------------------------------------

    def _remember(self, profile: SharingProfile) -> None:
        """Keep the profiles of the newest rows, in few parts however small the batches are."""
        enough = self.sample_rows
        is_open = (
            len(self._window) > self._n_old and self._window[-1].n_sampled < enough / MAX_PARTS
        )
        parts = [self._window.pop(), profile] if is_open else [profile]
        self._window.append(parts[0].merge(*parts[1:]))
        while self._n_sampled() - self._window[0].n_sampled >= enough:
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        self._window.popleft()
        self._n_old = max(0, self._n_old - 1)

    def _n_sampled(self, first: int = 0) -> int:
        return sum(profile.n_sampled for profile in islice(self._window, first, None))

    def _why(self, profile: SharingProfile) -> dict[str, Any] | None:
        """Return the reason to plan again, or None."""
        if not self.is_measured:
            n_sampled = self._n_sampled()
            return {"why": "first sample", "rows": n_sampled} if n_sampled >= MIN_ROWS else None
        return self._reviewed(profile)

    def _reviewed(self, profile: SharingProfile) -> dict[str, Any] | None:
        """Return the sign that the plan may not be the cheapest any more, or None."""
        if not self._budget.may:
            return None
        for block, counts in profile.blocks.items():
            monitor = self._monitors.get(block)
            if monitor is not None and monitor.is_due(counts):
                share = round(counts.drop_frac, 4)
                return {"why": "a bitmap block drops other rows", "drop_frac": share}
        if self._since.n_rows < self.review_rows:
            return None
        now, self._since = self._since, SharingProfile.empty(self.program)
        if self.is_settling and self._n_sampled(self._n_old) >= MIN_ROWS:
            while self._n_old:
                self._forget_oldest()
            # Where planning had to wait for long, there may have been another change meanwhile.
            is_last = now.n_rows < 2 * self.review_rows
            return {"why": SETTLED if is_last else UNSETTLED, "rows": self._n_sampled()}
        return self._compared(now) or self._reordered()

    def _compared(self, now: SharingProfile) -> dict[str, Any] | None:
        """Return the difference of this period from the first one of the plan, or None."""
        if self._first is None:
            self._first = now
            return None if self.min_change else {"why": "a look is due"}
        before, after = _pairs_per_row(self._first), _pairs_per_row(now)
        has_moved = has_changed(before, after, self.min_change)
        if not has_moved or max(before, after) < MIN_PAIRS:
            return None
        rates = {"before": round(before, 4), "after": round(after, 4)}
        return {"why": "rows meet another number of rules", **rates}

    def _reordered(self) -> dict[str, Any] | None:
        """Return that a rule would do better to ask its tests of Python in another order, if so."""
        if not len(self.program.ordered.tests):
            return None
        with self._budget.spending():
            orders = python_orders(self.program, self.profile, self.sharing.python_orders)
        return None if orders == self.sharing.python_orders else {"why": REORDERED}

    def chosen_way(self, batch_id: int) -> list[JournalEntry]:
        """Return the decision to begin with one statement of Spark's, if it was one."""
        if not self.sharing.is_statement or self.options.method != "auto":
            return []
        why = "one statement is cheaper by the costs of its tests"
        evidence = {"why": why, **self._way_costs().evidence}
        return [JournalEntry(batch_id, COMPONENT, "sharing", None, str(self.sharing), evidence)]

    def _best_plan(self, profile: SharingProfile | None) -> SharingPlan:
        """Return the best plan by a profile, or by guesses."""
        before = None if profile is None else self.sharing
        orders = () if before is None else before.python_orders
        plan = make_plan(self.blocks, self.options, profile, orders)
        if not self.may_be_stated:
            return plan
        is_statement = None if before is None else before.is_statement
        return with_way(plan, self.program, self.options, self._way_costs(), is_statement)

    def _way_costs(self) -> WayCosts:
        return WayCosts.from_program(self.program, *self._matched)

    def _put(self, plan: SharingPlan) -> None:
        """Put a plan in force, which what is counted from now on is held against."""
        self.sharing, self.is_measured = plan, True
        self._n_old, self._first = len(self._window), None
        self._since = SharingProfile.empty(self.program)
        self._monitors = {}
        for block in self.sharing.blocks:
            monitor = RearrangementMonitor(self.review_rows, self.min_change)
            monitor.adopt(block.sequence.macro if block.sequence else ())
            self._monitors[block] = monitor

    def _planned(self, evidence: dict[str, Any], batch_id: int) -> list[JournalEntry]:
        with self._budget.spending():
            before, profile = self.sharing, self.profile
            plan = self._best_plan(profile)
        self._put(plan)
        self.is_settling = evidence["why"] != SETTLED
        entries = _order_entries(self.program, before, self.sharing, evidence["why"], batch_id)
        if self.sharing == replace(before, python_orders=self.sharing.python_orders):
            return entries
        if self.sharing.is_statement != before.is_statement:
            evidence = {**evidence, **self._way_costs().evidence}
        moved = zip(before.access_predicates, self.sharing.access_predicates, strict=True)
        n_moved = sum(a != b for a, b in moved)
        evidence = {**evidence, "rules_moved": n_moved, "sampled_rows": profile.n_sampled}
        plans = str(before), str(self.sharing)
        return [JournalEntry(batch_id, COMPONENT, "sharing", *plans, evidence), *entries]


def _pairs_per_row(profile: SharingProfile) -> float:
    return float(profile.candidates.sum()) / max(1, profile.n_rows)


def _order_entries(
    program: Program, before: SharingPlan, after: SharingPlan, why: str, batch_id: int
) -> list[JournalEntry]:
    """Return an entry for each rule that asks its tests of Python in another order."""
    old, new = (
        {order.rule: order.tests for order in plan.python_orders} for plan in (before, after)
    )
    moved = [rule for rule in {**old, **new} if old.get(rule) != new.get(rule)]

    def words(orders: Mapping[int, tuple[int, ...]], rule: int) -> list[str]:
        tests = orders.get(rule, program.ordered.of_rule[rule])
        return [test_text(program.externals[test].test) for test in tests]

    return [
        JournalEntry(
            batch_id,
            COMPONENT,
            "order",
            words(old, rule),
            words(new, rule),
            {"why": why, "rule": program.names[rule]},
        )
        for rule in moved[:MAX_NAMED]
    ]


# -- the conditions of a plan ----------------------------------------------------------------------


class RuleConditions:
    """The rates of a program's literals since they last changed.

    Args:
        program: the rules.
        identity: what is the same as long as they mean the same, also in another process.
    """

    def __init__(self, program: Program, identity: str) -> None:
        self.program, self.identity = program, identity
        self.n_literals = n = len(program.literals.kinds)
        self.known = Conditions()
        self.why_not = ""
        """Why nothing is kept; empty if it is."""
        if n > MOST_LITERALS:
            self.why_not = f"rates of {n:,} literals would be kept for each situation"
            return
        columns, column_of = np.unique(_columns_of(program), return_inverse=True)
        self._column_of = column_of
        self.names = (
            *(f"rows that tests of {column} select together" for column in columns.tolist()),
            *(f"rows that a test of {column} selects" for column in columns.tolist()),
            *(f"literal {number} holds" for number in range(n)),
        )

    def step(self, fresh: SharingProfile) -> None:
        """Take in what a batch observed."""
        if not fresh.n_sampled or self.why_not or not self.n_literals:
            return
        n = float(fresh.n_sampled)
        rates = np.minimum(counted_rates(self.program, fresh), 1.0)
        sums = np.bincount(self._column_of, rates)
        means = sums / np.bincount(self._column_of)
        shares = np.concatenate([np.minimum(sums, 1.0), means, rates])
        self.known.step(self.names, shares, np.full(len(shares), n), n)

    def rates(self, evidence: Any) -> Floats:
        """Return the rates of literals by the evidence of a situation.

        Raises:
            ValueError: it is of other rules.
        """
        rates = np.array(evidence, np.float64)
        if rates.shape != (self.n_literals,):
            msg = f"rates of {self.n_literals} literals have the shape {rates.shape}"
            raise ValueError(msg)
        return rates

    def situation(self) -> Situation | None:
        """Return the conditions as the log knows them; None while no row was sampled."""
        if not self.known.n_sampled:
            return None
        rates = self.known.shares[-self.n_literals :]
        evidence = [round(rate, DIGITS) for rate in rates.tolist()]
        return self.known.situation(evidence, MIN_ROWS)


def _columns_of(program: Program) -> list[str]:
    """Return the column that each literal looks at; tests of Python count as one."""
    firsts = [construct.first for construct in program.texts]
    columns = []
    pairs = zip(program.literals.kinds.tolist(), program.literals.places.tolist(), strict=True)
    for kind, place in pairs:
        if kind == REGION:
            columns.append(program.columns[program.region_columns[place]])
        elif kind == TEXT:
            text = int(np.searchsorted(firsts, place, "right")) - 1
            columns.append(program.columns[program.text_columns[text]])
        else:
            columns.append("Python")
    return columns
