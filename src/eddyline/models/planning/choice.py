"""Choice of the sides that a join filters before pairing.

One ``ModelProfile`` of each batch comes in; a plan goes out: which sides each join asks,
and in what order. A condition that reads one side leaves out segments before the join pairs them.
Asking takes time for each segment and saves pairs, so the cheapest way depends on the data.

``AskingChoice`` starts without a plan: each join asks by samples. From then on

1. it estimates what each step and each way gives (``expected``), from counts and histograms;
2. it measures how far each estimate was off, and corrects the next one by that;
3. it puts the cheapest way in force, if that saves ``MIN_GAIN`` of the cost of the one before.

The share that an asked side leaves is counted. Histograms estimate it for a side that is not asked.

Invariants: a plan changes the work and never the answer. A way stays for ``SETTLED`` batches after
a change, so that its cost is measured. Sampling takes at most ``SHARE`` of the time of tasks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import exp
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import structs

from eddyline.errors import StateError
from eddyline.estimates.filters import Estimate
from eddyline.estimates.histograms import CoefHistogram
from eddyline.estimates.plans import Accuracy
from eddyline.models import graph
from eddyline.models.planning.expected import (
    BY_SAMPLE,
    JoinCost,
    JoinCounts,
    ModelProfile,
    SideCost,
    SideCounts,
    StepCounts,
    asked_sides,
    is_watched,
    joins_of,
    of_join,
    of_step,
    plain,
    share_of,
    told,
    way_of,
)
from eddyline.models.solving.joins import questions
from eddyline.models.streams.plan import COMPONENT
from eddyline.runtime.choice import Advice, Choice
from eddyline.runtime.journal import JournalEntry
from eddyline.stats.costs import Budget

if TYPE_CHECKING:
    from collections.abc import Iterable

    from eddyline.models.graph import OtherEntities, SameEntity
    from eddyline.models.planning.expected import ModelPlan, Way
    from eddyline.options import ModelOptions

FRESH, FRESH_SAMPLE = 0.5, 0.8
"""What a segment of a batch counts one batch later: one that was counted, one of a sample."""

MIN_GAIN = 0.01
"""Least share of the cost that another way has to save: asking takes some hundredths of a join."""

MIN_SEGMENTS = 512
"""Segments of either side of which it has to be known how many are left, counted with their age."""

SETTLED = 2
"""Batches for which a way stays as it is after a change, so that what it costs is measured."""

FIRST = 1
"""Batches whose times are let go of with the next one."""

WARM_UP, SAMPLE_EVERY = 4, 8
"""Batches at first in which coefficients are sampled, and each how manieth from then on."""

SHARE = 0.02
"""Share of the time of tasks that sampling may take."""


class AskingChoice(Choice):
    """The sides that joins ask, by the texts of joins; estimates what the steps of a graph give.

    Args:
        options: whether and how.
        node: the graph.
    """

    component = COMPONENT
    why_unlogged = "what each way would have taken in each batch is not kept"

    def __init__(self, options: ModelOptions, node: graph.Node) -> None:
        self.options = options
        self.joins = joins_of(node)
        """The joins that ask something of a side alone, by their texts."""
        every = [e.step if isinstance(e, graph.Unary) else e for e in graph.parts(node)]
        self._steps = {str(part): part for part in every if is_watched(part)}
        self.is_adaptive = options.adaptive and bool(self._steps)
        self._states = {text: JoinState() for text in self.joins}
        self._profile = ModelProfile()
        self._newest = ModelProfile()
        self._estimates: dict[str, Estimate] = {}
        """What steps give in the next batch, not yet put right."""
        self._left_shares: dict[tuple[str, str], Estimate] = {}
        """What share of the sides of joins is left, by histograms."""
        self._accuracy: dict[str, Accuracy] = {}
        self._n_steps = 0
        self._budget = Budget(SHARE)

    @property
    def wants_sample(self) -> bool:
        """Whether the next batch should tell how coefficients are spread.

        At first and now and then, as long as that took no more than ``SHARE`` of the time of tasks.
        """
        is_due = self._n_steps < WARM_UP or self._n_steps % SAMPLE_EVERY == 0
        return self.is_adaptive and is_due and self._budget.may

    # -- the plan -------------------------------------------------------------------------------

    @property
    def plan(self) -> dict[str, Any]:
        """The way of each join: ``BY_SAMPLE``, or a list of sides."""
        return {text: plain(state.way) for text, state in self._states.items()}

    @property
    def ways(self) -> ModelPlan:
        """The ways in force; joins that are not in it ask by samples."""
        return {text: state.way for text, state in self._states.items() if state.way is not None}

    def planned(self, node: graph.Node) -> graph.Node:
        """Return a graph with the plan in force."""
        ways = self.ways
        return graph.asking(node, ways) if ways else node

    @property
    def possible(self) -> str:
        """The plans that may be pinned, in words."""
        sides = "; ".join(
            f"{text!r} has {', '.join(map(repr, asked_sides(join)))}"
            for text, join in self.joins.items()
        )
        return (
            f"for some joins {BY_SAMPLE!r} or a list of sides that are asked before, in their "
            f"order, each once: {sides:.300}"
        )

    def is_possible(self, plan: Any) -> bool:
        """Return whether each is a join of the graph, and has sides of its own."""
        if not isinstance(plan, Mapping) or not {*plan} <= {*self.joins}:
            return False
        try:
            for text, way in plan.items():
                way_of(way, self.joins[text])
        except ValueError:
            return False
        return True

    def adopt(self, plan: Mapping[str, Any]) -> None:
        """Put another plan in force; joins that are not in it stay as they are."""
        for text, way in plan.items():
            state = self._states[text]
            state.way, state.since, state.promised = way_of(way, self.joins[text]), 0, None

    def advice(self) -> Advice | None:
        """Return the plan that the evidence calls the best."""
        best = {text: plain(way) for text, way in self.best().items()}
        return Advice(self.plan | best) if best else None

    # -- one batch ------------------------------------------------------------------------------

    def step(
        self, fresh: ModelProfile, task_ns: float = 0.0, batch_id: int = -1
    ) -> list[JournalEntry]:
        """Take in what a batch observed, and change the plan if the evidence says so.

        Args:
            fresh: what was seen.
            task_ns: the time that tasks took in all (ns).
            batch_id: the micro-batch, for the journal.
        """
        if not self.is_adaptive or not any(step.n_in for step in fresh.steps.values()):
            return []
        entries: list[JournalEntry] = []
        for text, counts in fresh.steps.items():
            self._came_true(text, counts)
        for text, seen in fresh.joins.items():
            if text in self._states:
                entries += self._join_came_true(text, seen, fresh.steps.get(text), batch_id)
        self._n_steps += 1
        self._budget.earn(task_ns)
        self._budget.spend(fresh.sample_ns)
        older = self._profile.decayed(FRESH, FRESH_SAMPLE if fresh.coefs or fresh.groups else 1.0)
        if self._n_steps == FIRST + 1:  # much was compiled before, which no later batch does
            older = replace(older, joins={})
        profile = older.merged(replace(fresh, sample_ns=0.0))
        # Entities of batches are the same ones: those of the newest count.
        steps = {
            text: structs.replace(step, n_entities=fresh.steps.get(text, step).n_entities)
            for text, step in profile.steps.items()
        }
        self._profile, self._newest = replace(profile, steps=steps), fresh
        if any(step.n_looked for step in fresh.steps.values()):
            self._expect()
        if self._n_steps > FIRST:
            for text in self.joins:
                entries += self._chosen(text, batch_id)
        return entries

    def _came_true(self, text: str, counts: StepCounts) -> None:
        """Measure how far the estimate of a step was off."""
        estimate = self._estimates.get(text)
        if estimate is not None and counts.n_in:
            accuracy = self._accuracy.get(text, Accuracy())
            self._accuracy[text] = accuracy.after(estimate.value, counts.n_out / counts.n_in)

    def _join_came_true(
        self, text: str, seen: JoinCounts, counts: StepCounts | None, batch_id: int
    ) -> list[JournalEntry]:
        state = self._states[text]
        if counts is None or not counts.n_in:
            return []
        ns = seen.took / counts.n_in
        state.ns = 0.5 * (state.ns + ns) if state.since else ns
        state.since += 1
        if state.estimate is not None and state.since > 1:
            state.accuracy = state.accuracy.after(state.estimate.value, ns)
        for name, side in seen.sides.items():
            if side.n_asked:
                state.prices[name] = side.ns / side.n_asked
            share = self._left_shares.get((text, name))
            if share is not None and side.n_asked:
                accuracy = state.sides.get(name, Accuracy())
                state.sides[name] = accuracy.after(share.value, side.n_left / side.n_asked)
        if state.promised is None or state.since < SETTLED:
            return []
        evidence = {"join": text, "estimated_ns": state.promised, "came_true_ns": state.ns}
        state.promised = None
        way = plain(state.way)
        return [JournalEntry(batch_id, COMPONENT, "came_true", way, way, evidence)]

    def _expect(self) -> None:
        """Estimate what steps give in the next batches, until coefficients are sampled again."""
        self._estimates = {}
        sides = [(text, name) for text in self.joins for name in self._names(text)]
        shares = {side: self._left_of(*side) for side in sides}
        self._left_shares = {side: share for side, share in shares.items() if share is not None}
        for text, step in self._steps.items():
            counts = self._profile.steps.get(text, StepCounts())
            if isinstance(step, graph.SameEntity | graph.OtherEntities):
                estimate = of_join(step, counts, self._profile)
            else:
                estimate = of_step(step, counts, self._profile)
            if estimate is not None:
                self._estimates[text] = estimate

    # -- what joins ask -------------------------------------------------------------------------

    def _left_of(self, text: str, name: str) -> Estimate | None:
        """Return what share of a side is left, by histograms; None: nothing is known."""
        estimate = Estimate.exactly(1.0)
        for question in questions(self.joins[text].condition, name):
            share = share_of(text, question, self._profile.coefs)
            if share is None:
                return None
            estimate = Estimate(
                min(estimate.value, share[0].value), 0.0, min(estimate.high, share[0].high)
            )
        return estimate

    def _side(self, text: str, name: str, n_in: float, n_entities: float) -> SideCost | None:
        """Return what is known of a side; None if nothing is known of what is left of it."""
        side = self._profile.joins[text].sides.get(name, SideCounts())
        newest = self._newest.joins[text].sides.get(name, SideCounts())
        share: Estimate | None = self._left_shares.get((text, name))
        if share is not None:
            accuracy = self._states[text].sides.get(name, Accuracy())
            share = _at_most_one(accuracy.corrected(share))
        if newest.n_asked >= 1.0 and side.n_asked >= 1.0:
            share = Estimate.exactly(side.n_left / side.n_asked)
        price = self._states[text].prices.get(name)
        if share is None or price is None or side.n < MIN_SEGMENTS:
            return None
        per_entity = max(side.n / max(n_entities, 1.0), 1.0)
        entities = _at_most_one(share.times(Estimate.exactly(per_entity)))
        return SideCost(side.n / n_in, price, share, entities)

    def _cost(self, text: str) -> JoinCost | None:
        """Return what is known of the cost of a join; None if that is not enough."""
        join, counts = self._profile.joins.get(text), self._newest.steps.get(text)
        if join is None or counts is None or text not in self._newest.joins or not join.n_in:
            return None
        sides = {}
        for name in self._names(text):
            side = self._side(text, name, join.n_in, counts.n_entities)
            if side is None:
                return None
            sides[name] = side
        pair_share = 1.0
        for side_counts in join.sides.values():
            asked = min(side_counts.n_asked / side_counts.n, 1.0) if side_counts.n else 0.0
            share = side_counts.n_left / side_counts.n_asked if side_counts.n_asked else 1.0
            pair_share *= 1.0 - asked * (1.0 - share)
        if join.n_pairs < 1.0 or pair_share <= 0.0:
            return None
        n_pairs, pair_ns = join.n_pairs / pair_share / join.n_in, join.ns / join.n_pairs
        is_same = isinstance(self.joins[text], graph.SameEntity)
        return JoinCost(sides, n_pairs, pair_ns, is_same)

    def _names(self, text: str) -> Iterable[str]:
        return asked_sides(self.joins[text])

    def _chosen(self, text: str, batch_id: int) -> list[JournalEntry]:
        """Let a join ask what is estimated to cost least."""
        state, cost = self._states[text], self._cost(text)
        state.estimate = None
        if cost is None:
            return []
        costs = {way: cost.cost(way) for way in cost.ways()}
        best = min(costs, key=lambda way: costs[way].value)
        before, now = state.way, best
        if before is not None:
            gain = 1.0 - costs[best].value / max(cost.cost(before).value, 1e-9)
            now = best if gain >= MIN_GAIN and state.since >= SETTLED else before
        if self.is_held or now == before:
            state.estimate = None if before is None else cost.cost(before)
            return []
        state.way, state.since = now, 0
        state.estimate = costs[now]
        state.promised = state.accuracy.corrected(state.estimate).value
        evidence = {
            "join": text,
            "estimated_ns": {told(way): estimate.value for way, estimate in costs.items()},
            "left": {name: side.left.value for name, side in cost.sides.items()},
            "took_ns": state.ns,
        }
        return [JournalEntry(batch_id, COMPONENT, "asked", plain(before), plain(now), evidence)]

    def best(self) -> ModelPlan:
        """Return the plan that the evidence calls the best."""
        plan = {}
        for text in self.joins:
            cost = self._cost(text)
            if cost is not None:
                plan[text] = min(cost.ways(), key=lambda way: cost.cost(way).value)
        return plan

    # -- what people see ------------------------------------------------------------------------

    def steps(self) -> tuple[StepView, ...]:
        """Return what steps gave, and what was estimated, in the order of the graph."""
        views = []
        for text in self._steps:
            counts = self._newest.steps.get(text)
            if counts is None or not counts.n_in:
                continue
            estimate, accuracy = self._estimates.get(text), self._accuracy.get(text, Accuracy())
            views.append(
                StepView(
                    text,
                    None if estimate is None else accuracy.corrected(estimate),
                    counts.n_out / counts.n_in,
                    accuracy.factor if accuracy.n else None,
                    exp(accuracy.spread) - 1.0 if accuracy.n > 1 else None,
                )
            )
        return tuple(views)

    def views(self) -> tuple[JoinView, ...]:
        """Return the joins that ask something of a side alone."""
        return tuple(self._view(text, state) for text, state in self._states.items())

    def _view(self, text: str, state: JoinState) -> JoinView:
        newest = self._newest.joins.get(text, JoinCounts()).sides
        sides = []
        for name in self._names(text):
            side = newest.get(name, SideCounts())
            share = side.n_left / side.n_asked if side.n_asked else None
            sides.append(SideView(name, self._left_shares.get((text, name)), share))
        estimate = state.estimate
        if estimate is not None:
            estimate = state.accuracy.corrected(estimate)
        return JoinView(text, told(state.way), estimate, state.ns, tuple(sides))

    # -- saving ---------------------------------------------------------------------------------

    def snapshot(self) -> Learned:
        """Return the learned state."""
        profile = self._profile
        return Learned(
            dict(profile.steps),
            dict(profile.joins),
            {name: histogram.to_state() for name, histogram in profile.coefs.items()},
            dict(self._accuracy),
            {
                text: SavedJoin(
                    plain(state.way), state.accuracy, dict(state.sides), dict(state.prices)
                )
                for text, state in self._states.items()
            },
        )

    def restore(self, state: Any) -> None:
        """Continue from what ``snapshot`` returned.

        Raises:
            StateError: it is damaged.
        """
        saved = read(state)
        if not self.is_adaptive:
            return
        self._profile = saved.profile()
        self._accuracy = {
            text: accuracy for text, accuracy in saved.steps.items() if text in self._steps
        }
        for text, join in saved.joins.items():
            if text in self.joins:
                self._states[text] = JoinState(
                    join.way_of(self.joins[text]),
                    accuracy=join.accuracy,
                    sides=dict(join.sides),
                    prices=dict(join.prices),
                )
        self._n_steps = FIRST + 1  # what is restored was not learned from one batch alone
        self._expect()


def _at_most_one(estimate: Estimate) -> Estimate:
    return Estimate(*(min(value, 1.0) for value in (estimate.value, estimate.low, estimate.high)))


@dataclass
class JoinState:
    """What is known of a join."""

    way: Way | None = None
    estimate: Estimate | None = None
    """Of its cost in the next batch (ns for each segment), not yet put right."""
    ns: float = 0.0
    """What it took for each segment, newer batches counting more."""
    since: int = 0
    """Batches since its way changed."""
    accuracy: Accuracy = field(default_factory=Accuracy)
    """Of its cost."""
    sides: dict[str, Accuracy] = field(default_factory=dict)
    """Of the share of each side that is left."""
    prices: dict[str, float] = field(default_factory=dict)
    """What asking a segment of each side took when it was asked last (ns)."""
    promised: float | None = None
    """What a change was estimated to cost, until it has come true (ns for each segment)."""


# -- for people --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StepView:
    """What a step gives for each segment that comes in."""

    text: str
    estimate: Estimate | None
    """For the next batch, put right by what came true; None: nothing is known."""
    gave: float
    """What it gave in the newest batch."""
    factor: float | None
    """What came true over what was estimated, before that is put right; None: none came true."""
    varies: float | None
    """By what share that varies."""


@dataclass(frozen=True, slots=True)
class SideView:
    """A side of a join of which something is asked alone."""

    name: str
    estimate: Estimate | None
    """The share that is left, by histograms; None: nothing is known."""
    left: float | None
    """The share that was left in the newest batch; None: it was not asked."""


@dataclass(frozen=True, slots=True)
class JoinView:
    """What a join asks before."""

    text: str
    way: str
    estimate: Estimate | None
    """What the join takes for each segment that comes in (ns), put right by what came true."""
    ns: float
    """What it took (ns)."""
    sides: tuple[SideView, ...]


# -- saved -------------------------------------------------------------------------------------


class SavedJoin(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is saved of a join."""

    way: Any = None
    accuracy: Accuracy = Accuracy()
    sides: dict[str, Accuracy] = {}
    prices: dict[str, float] = {}

    def way_of(self, join: SameEntity | OtherEntities) -> Way | None:
        """Return the way that was in force; that of samples if it is of another join."""
        try:
            return way_of(self.way, join)
        except ValueError:
            return None


class Learned(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The saved state of the choice."""

    counts: dict[str, StepCounts] = {}
    pairs: dict[str, JoinCounts] = {}
    coefs: dict[str, dict[str, Any]] = {}
    steps: dict[str, Accuracy] = {}
    joins: dict[str, SavedJoin] = {}

    def profile(self) -> ModelProfile:
        """Return what was known."""
        coefs = {name: CoefHistogram.from_state(saved) for name, saved in self.coefs.items()}
        return ModelProfile(self.counts, self.pairs, coefs)


def read(state: Any) -> Learned:
    """Return what a choice saved.

    Raises:
        StateError: it is damaged.
    """
    try:
        learned = msgspec.convert(state, Learned, from_attributes=True)
    except (ValueError, TypeError) as error:
        msg = f"the saved estimates of models are damaged: {error}; start from an empty checkpoint"
        raise StateError(msg) from error
    learned.profile()
    return learned
