"""The choice of plans for alarms, at the end of each batch.

``AlarmLoop.step`` takes the profile of a batch and returns journal entries. It decides how each
template is solved, and in which order its comparisons are computed. A template goes from one way to
another if that is estimated to cost less by ``MIN_GAIN``. What it then took is noted beside the
estimate, and corrects later ones. Plans change freely: alarms keep nothing between batches that
depends on the plan.

The loop is the ``Choice`` of the plan: a person or the log of plans sets how templates are solved.
Below it stand the conditions by which the log knows situations (``AlarmConditions``), the estimate
of results (``share_held``), what a run saves (``Learned``), and what people see
(``TemplateView``).
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from eddyline.alarms.plan import (
    COMPONENT,
    Shares,
    TemplatePlan,
    cost_of,
    fixed_plans,
    from_plain,
    plain,
    shares_of,
    sharings_of,
)
from eddyline.alarms.program import KINDS, AlarmProfile, aged, slots_in
from eddyline.errors import StateError
from eddyline.estimates import filters
from eddyline.estimates.filters import Estimate
from eddyline.estimates.histograms import CoefHistogram, ValueSketch
from eddyline.estimates.plans import Accuracy
from eddyline.models.planning.expected import combined
from eddyline.options import FilterOptions
from eddyline.runtime.choice import UNKNOWN_NS, Advice, Choice, Conditions, Met
from eddyline.runtime.journal import JournalEntry
from eddyline.runtime.order_loop import OrderLoop, OrderState
from eddyline.runtime.records import Numbers
from eddyline.stats.costs import CostSums

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eddyline.alarms.plan import AlarmPlan
    from eddyline.alarms.program import AlarmProgram, Template, TemplateCounts
    from eddyline.data.arrays import Floats
    from eddyline.estimates.filters import Times
    from eddyline.models.solving.expressions import Comparison
    from eddyline.options import AlarmOptions
    from eddyline.runtime.choice import Situation

FRESH = 0.8
"""What a segment of a batch counts one batch later."""

MIN_GAIN = 0.1
"""Least share of the cost that another way has to save."""

MIN_ROWS = 512
"""Segments of which the spread of values has to be known, weighted by age and as sampled from."""

SETTLED = 2
"""Batches for which a template stays as it is after a change, so that what it costs is measured."""

WARM_UP, SAMPLE_EVERY = 4, 8
"""Batches at first in which values are sampled, and each how manieth from then on."""

SURPRISE = 1.5
"""Factor between what work took and its estimate that has values sampled again."""

FIRST = 1
"""Batches whose times are let go of with the next one."""

MOST_PLANNED = 64
"""Templates that are planned: those that took the most time. Others are covered, as written."""


@dataclass
class State:
    """What is known of a template."""

    plan: TemplatePlan = field(default_factory=TemplatePlan)
    orders: OrderLoop | None = None
    accuracy: dict[str, Accuracy] = field(default_factory=dict)
    """Of its cost, by how it is solved."""
    results: Accuracy = field(default_factory=Accuracy)
    """Of the segments on which an alarm holds."""
    estimate: Estimate | None = None
    """Of its cost in the next batch (ns for each segment), not yet put right."""
    expected: Estimate | None = None
    """Of the segments on which an alarm holds, as a share."""
    counts: TemplateCounts | None = None
    """Of the newest batch."""
    ns: float = 0.0
    """What it took for each segment, newer batches counting more."""
    since: int = 0
    """Batches since it changed."""
    promised: float | None = None
    """What a change was estimated to cost, until it has come true (ns for each segment)."""

    def begin(self) -> None:
        """Let go of what conjuncts left out before segments changed."""
        if self.orders is not None:
            self.orders.window.keep_newest(0)
            self.orders.recent.keep_newest(0)

    def accuracy_of(self, way: str) -> Accuracy:
        """Return how far estimates of a way are off.

        What was never tried is off as the way in force is: all are made of the same work.
        """
        return self.accuracy.get(way) or self.accuracy.get(self.plan.sharing) or Accuracy()


class AlarmLoop(Choice):
    """Keeps the plan of a set of alarms good: how templates are solved, by their texts.

    Args:
        options: whether and how.
        program: the alarms.
    """

    component = COMPONENT
    why_unlogged = ""
    per = "segment"

    def __init__(self, options: AlarmOptions, program: AlarmProgram) -> None:
        self.options = options
        self._profile = AlarmProfile()
        self.seen = AlarmConditions()
        """What the log of plans knows situations by."""
        self.n_newest = 0
        """Segments of the last batch."""
        self._states: dict[str, State] = {}
        self._templates: dict[str, Template] = {}
        self._bases: tuple[str, ...] = ()
        self._saved: dict[str, SavedTemplate] = {}
        self._n_steps = 0
        self.is_surprised = False
        """Whether the next batch is to tell how values are spread, whenever that was told last."""
        self.follow(program)

    @property
    def is_adaptive(self) -> bool:  # type: ignore[override]
        """Whether the plan may change at all."""
        return self.options.adaptive

    @property
    def wants_sample(self) -> bool:
        """Whether the next batch should tell how values are spread, which takes time.

        At first and now and then, and where work took another time than was estimated.
        """
        is_due = self._n_steps < WARM_UP or self._n_steps % SAMPLE_EVERY == 0
        return self.is_adaptive and (is_due or self.is_surprised)

    def follow(self, program: AlarmProgram) -> None:
        """Go on with other alarms; what is known of templates that stay is kept."""
        self._bases = tuple(map(str, program.bases))
        self._templates = {template.text: template for template in program.templates}
        self._states = {
            text: state for text, state in self._states.items() if text in self._templates
        }
        names = {*self._bases}
        profile = self._profile
        self._profile = replace(
            profile,
            values={name: sketch for name, sketch in profile.values.items() if name in names},
            coefs={name: histogram for name, histogram in profile.coefs.items() if name in names},
        )

    @property
    def template_plans(self) -> AlarmPlan:
        """The plans in force by template; one without a plan is covered, and asked as written."""
        return {text: state.plan for text, state in self._states.items()}

    # -- one batch ------------------------------------------------------------------------------

    def step(self, fresh: AlarmProfile, batch_id: int = -1) -> list[JournalEntry]:
        """Take in what a batch observed, and change the plan if the evidence says so."""
        self.n_newest = fresh.n_rows
        if not self.is_adaptive or not fresh.n_rows:
            return []
        entries: list[JournalEntry] = []
        self.is_surprised = False
        for text, counts in fresh.templates.items():
            if text in self._templates:
                entries += self._came_true(text, counts, batch_id)
        self._n_steps += 1
        # In the first batch much is compiled and loaded, which no later one has to do.
        share = 0.0 if self._n_steps == FIRST + 1 else FRESH
        if self.seen.step(self._templates, self._bases, fresh):
            self._profile = self._profile.without_values()
            for state in self._states.values():
                state.begin()
        # Where no values were sampled, those that are known stay as fresh as they are.
        older = self._profile.decayed(FRESH) if fresh.values else self._profile
        older = replace(older, costs=aged(self._profile.costs, share))
        self._profile = older.merged(replace(fresh, templates={}, outcomes={}))
        for text in self._costly:
            if text in fresh.templates:
                entries += self._ordered(text, fresh, batch_id)
                entries += self._shared(text, batch_id)
        if fresh.values and self._n_steps > FIRST:
            self.seen.prices = self._prices()
        return entries

    @property
    def _costly(self) -> list[str]:
        """The templates that are planned."""
        return sorted(self._states, key=lambda text: -self._states[text].ns)[:MOST_PLANNED]

    def _came_true(self, text: str, counts: TemplateCounts, batch_id: int) -> list[JournalEntry]:
        """Measure how far estimates of a template were off."""
        state = self._state(text)
        if counts.sharing != state.plan.sharing or not counts.n_rows:
            return []
        ns = counts.ns / counts.n_rows
        state.ns = ns if state.since <= FIRST else 0.5 * (state.ns + ns)
        state.counts, state.since = counts, state.since + 1
        if state.estimate is not None and state.since > 1:
            accuracy = state.accuracy.get(counts.sharing, Accuracy())
            expected = accuracy.corrected(state.estimate).value
            self.is_surprised |= not 1 / SURPRISE < ns / max(expected, 1e-9) < SURPRISE
            state.accuracy[counts.sharing] = accuracy.after(state.estimate.value, ns)
        if state.expected is not None:
            n = counts.n_rows * len(self._templates[text])
            state.results = state.results.after(state.expected.value, counts.n_held / n)
        if state.promised is None or state.since < SETTLED:
            return []
        evidence = {"template": text, "estimated_ns": state.promised, "came_true_ns": state.ns}
        state.promised = None
        way = state.plan.sharing
        return [JournalEntry(batch_id, COMPONENT, "came_true", way, way, evidence)]

    def _prices(self) -> dict[str, list[float]]:
        """Return what the fixed plans of templates would cost a segment (ns)."""
        prices = {}
        for text in self._costly:
            shares = shares_of(self._templates[text], self._bases, self._profile.values)
            if shares is None:
                continue
            plans = fixed_plans(self._templates[text])
            prices[text] = [self._price(text, plan, shares).value for plan in plans]
        return prices

    def _ordered(self, text: str, fresh: AlarmProfile, batch_id: int) -> list[JournalEntry]:
        """Let the order of a template follow what its comparisons leave out and cost."""
        outcomes, state = fresh.outcomes.get(text), self._state(text)
        loop = self._orders_of(text, state)
        if outcomes is None or loop is None:
            return []
        entries = loop.step(outcomes, batch_id, may_switch=not self.is_held)
        if loop.order != state.plan.order_of(self._templates[text]) and not self.is_held:
            state.plan = replace(state.plan, order=loop.order)
        return [replace(entry, evidence={"template": text} | entry.evidence) for entry in entries]

    def _shared(self, text: str, batch_id: int) -> list[JournalEntry]:
        """Let a template be solved in the way that is estimated to cost least."""
        state, template = self._state(text), self._templates[text]
        shares = shares_of(template, self._bases, self._profile.values)
        state.expected = share_held(template, self._bases, self._profile.coefs)
        if shares is None or self._profile.n_rows < MIN_ROWS or self._n_steps <= FIRST:
            return []
        if state.plan.sharing not in state.accuracy and state.since > FIRST:
            # What it took is known by now, and so how far an estimate would have been off.
            estimate = self._estimate(text, state.plan, shares)
            state.accuracy[state.plan.sharing] = Accuracy().after(estimate.value, state.ns)
        costs = self._costs(text, shares)
        before, way = state.plan, _cheapest(costs)
        gain = 1.0 - costs[way].value / max(costs[before.sharing].value, 1e-9)
        stays = self.is_held or state.since < SETTLED or way == before.sharing or gain < MIN_GAIN
        chosen = before.sharing if stays else way
        state.estimate = self._estimate(text, replace(before, sharing=chosen), shares)
        if stays:
            return []
        state.plan, state.since = replace(before, sharing=way), 0
        state.promised = costs[way].value
        evidence = {
            "template": text,
            "alarms": len(template),
            "estimated_ns": {name: cost.value for name, cost in costs.items()},
            "at_most_ns": costs[way].high,
            "took_ns": state.ns,
        }
        return [JournalEntry(batch_id, COMPONENT, "sharing", before.sharing, way, evidence)]

    def _costs(self, text: str, shares: Shares) -> dict[str, Estimate]:
        """Return what each way costs (ns for each segment), put right by what came true."""
        plan = self._state(text).plan
        return {
            way: self._price(text, replace(plan, sharing=way), shares)
            for way in sharings_of(self._templates[text])
        }

    def _price(self, text: str, plan: TemplatePlan, shares: Shares) -> Estimate:
        """Return the estimate of a plan, put right by what came true."""
        return (
            self._state(text)
            .accuracy_of(plan.sharing)
            .corrected(self._estimate(text, plan, shares))
        )

    def _estimate(self, text: str, plan: TemplatePlan, shares: Shares) -> Estimate:
        n_rows = self._profile.n_rows / max(self._profile.n_blocks, 1)
        return cost_of(self._templates[text], plan, shares, self._profile.costs, n_rows)

    def _state(self, text: str) -> State:
        if text not in self._states:
            self._states[text] = self._restored(text)
        return self._states[text]

    def _orders_of(self, text: str, state: State) -> OrderLoop | None:
        """Return the loop that orders a template, if it has something to order."""
        if state.orders is None and len(self._templates[text].conjuncts) > 1:
            state.orders = self._new_orders(self._templates[text])
        return state.orders

    def _new_orders(self, template: Template) -> OrderLoop:
        options = FilterOptions(
            policy=self.options.policy,
            monitor=self.options.monitor,
            adaptive=self.is_adaptive,
            routing=False,
            seed=self.options.seed,
        )
        texts = tuple(conjunct.text for conjunct in template.conjuncts)
        return OrderLoop(COMPONENT, texts, options, thinks_freely=True)

    # -- what a person pins ---------------------------------------------------------------------

    @property
    def plan(self) -> dict[str, Any]:
        """How templates are solved, by their texts."""
        return self._plain(self.template_plans)

    @property
    def possible(self) -> str:
        """The plans that may be pinned, in words."""
        texts = ", ".join(map(repr, self._templates))
        return (
            "for some templates {'sharing': 'covered', 'union' or 'unshared', 'order': a list of "
            f"its comparisons, each once}}, where a union needs two; templates are {texts:.300}"
        )

    def is_possible(self, plan: Any) -> bool:
        """Return whether each template is one of the set, and has a plan of its own."""
        templates = self._templates
        return isinstance(plan, Mapping) and all(
            text in templates and from_plain(value, templates[text]) is not None
            for text, value in plan.items()
        )

    def adopt(self, plan: Mapping[str, Any]) -> None:
        """Put another plan in force; templates that are left out stay as they are."""
        for text, values in plan.items():
            template, state = self._templates[text], self._state(text)
            chosen = from_plain(values, template)
            if chosen is not None:
                state.plan, state.promised, state.since = chosen, None, 0
                orders = self._orders_of(text, state)
                if orders is not None:
                    orders.reorder(chosen.order_of(template))

    def advice(self) -> Advice | None:
        """Return the plan that the evidence calls the best."""
        best = {}
        for text in self._costly:
            state = self._states[text]
            shares = shares_of(self._templates[text], self._bases, self._profile.values)
            way = _cheapest(self._costs(text, shares)) if shares else state.plan.sharing
            best[text] = replace(state.plan, sharing=way)
        return Advice(self._plain(best)) if best else None

    # -- the log of plans -----------------------------------------------------------------------

    @property
    def identity(self) -> str:
        """The templates: their plans and prices are of no others."""
        texts = "\n".join(sorted(self._templates))
        return hashlib.blake2b(texts.encode(), digest_size=16).hexdigest()

    def in_words(self, plan: Mapping[str, Any]) -> str:
        """Return a plan in words: of templates that are not covered, and asked as written."""
        usual = self._plain({})
        others = [
            f"{text} {part['sharing']}, {' then '.join(part['order'])}"
            for text, part in plan.items()
            if part != usual.get(text)
        ]
        return "; ".join(others) or "all covered, as written"

    def situation(self) -> Situation | None:
        """Return on how many segments comparisons and alarms hold."""
        return self.seen.situation(self.plan)

    def rows_met(self, n_rows: int) -> int:  # noqa: ARG002
        """Return the segments of the last batch."""
        return self.n_newest

    def foreseen(self, plan: Any, evidence: Any) -> tuple[Floats, Floats]:  # noqa: ARG002
        """Return on what share of segments alarms hold, which is the same under all plans."""
        held = [np.nan if share is None else share for share in evidence[0]]
        return np.array(held, np.float64), np.full(len(held), np.inf)

    def cost_of(self, plan: Mapping[str, Any], evidence: Any) -> float:
        """Return what the templates of the evidence cost (ns per segment).

        Of orders that are not told apart it is that of the one that asks the same first.
        """
        if evidence is None:
            return UNKNOWN_NS
        total, templates = 0.0, self._templates
        for text, prices in evidence[1].items():
            template_plan = from_plain(plan[text], templates[text])
            price_of = dict(zip(fixed_plans(templates[text]), prices, strict=True))
            if template_plan is None:
                return UNKNOWN_NS
            if template_plan not in price_of:
                first, *rest = template_plan.order
                template_plan = replace(template_plan, order=(first, *sorted(rest)))
            total += price_of[template_plan]
        return total

    def best_single(self, held: Sequence[tuple[Any, float]]) -> dict[str, Any]:
        """Return the best plan of each template for all situations together."""
        sums: dict[str, Floats] = {}
        for evidence, n_rows in held:
            for text, prices in evidence[1].items():
                sums[text] = sums.get(text, np.zeros(len(prices))) + n_rows * np.array(prices)
        templates = self._templates
        best = {
            text: fixed_plans(templates[text])[np.argmin(costs)] for text, costs in sums.items()
        }
        return self._plain(best)

    def take(self, plan: Mapping[str, Any], evidence: Any) -> None:  # noqa: ARG002
        """Put a plan in force; the next batch tells how values are spread."""
        self.adopt(plan)
        self.is_surprised = True

    def let_go(self) -> None:
        """Have the next batch tell how values are spread."""
        self.is_surprised = True

    def _plain(self, plan: AlarmPlan) -> dict[str, Any]:
        templates = self._templates
        return {
            text: plain(plan.get(text, TemplatePlan()), template)
            for text, template in templates.items()
        }

    # -- what people see ------------------------------------------------------------------------

    def views(self) -> tuple[TemplateView, ...]:
        """Return templates, those that take the most time first."""
        return tuple(self._view(text) for text in self._by_time())

    def _by_time(self) -> list[str]:
        ns = {text: state.ns for text, state in self._states.items()}
        return sorted(self._templates, key=lambda text: -ns.get(text, 0.0))

    def _view(self, text: str) -> TemplateView:
        template, state = self._templates[text], self._states.get(text, State())
        accuracy = state.accuracy.get(state.plan.sharing)
        estimate = state.estimate
        if estimate is not None and accuracy is not None:
            estimate = accuracy.corrected(estimate)
        expected, counts = state.expected, state.counts
        if expected is not None:
            expected = state.results.corrected(expected)
        n = counts.n_rows * len(template) if counts else 0
        order = [template.conjuncts[place].text for place in state.plan.order_of(template)]
        return TemplateView(
            text,
            len(template),
            state.plan.sharing,
            tuple(order),
            estimate,
            state.ns,
            expected,
            counts.n_held / n if counts and n else float("nan"),
        )

    def record(self) -> AlarmRecord:
        """Return the plan after the last batch."""
        ways = {text: state.plan.sharing for text, state in self._states.items()}
        others = {text: way for text, way in ways.items() if way != TemplatePlan().sharing}
        ns = sum(state.ns for state in self._states.values())
        n_alarms = sum(map(len, self._templates.values()))
        n_by_way = Counter(ways.get(text, TemplatePlan().sharing) for text in self._by_time())
        return AlarmRecord(COMPONENT, others, n_alarms, ns, n_by_way)

    # -- saving ---------------------------------------------------------------------------------

    def snapshot(self) -> Learned:
        """Return the learned state."""
        profile, states = self._profile, {text: self._states[text] for text in self._costly}
        templates = {
            text: SavedTemplate(
                plain(state.plan, self._templates[text]),
                dict(state.accuracy),
                state.results,
                None if state.orders is None else state.orders.snapshot(),
            )
            for text, state in states.items()
        }
        return Learned(
            profile.n_rows,
            profile.n_blocks,
            profile.costs.to_state(),
            {name: values.to_state() for name, values in profile.values.items()},
            {name: coefs.to_state() for name, coefs in profile.coefs.items()},
            templates,
        )

    def restore(self, state: Any) -> None:
        """Continue from what ``snapshot`` returned.

        Raises:
            StateError: it is damaged.
        """
        profile, templates = _learned_of(state)
        if not self.is_adaptive:
            return
        self._profile, self._saved = profile, templates
        self._n_steps = FIRST + 1  # what is restored was not learned from one batch alone
        self._states = {}
        for text in [*templates]:
            if text in self._templates:
                self._state(text)

    def _restored(self, text: str) -> State:
        """Return what was saved of a template, if it was."""
        saved, template = self._saved.pop(text, None), self._templates[text]
        plan = None if saved is None else from_plain(saved.plan, template)
        if saved is None or plan is None:
            return State()
        state = State(plan, accuracy=dict(saved.accuracy), results=saved.results)
        if saved.orders is not None and len(template.conjuncts) > 1:
            state.orders = self._new_orders(template)
            state.orders.restore(saved.orders)
        return state


def _cheapest(costs: Mapping[str, Estimate]) -> str:
    return min(costs, key=lambda way: costs[way].value)


MOST_SEEN = 32
"""Templates whose conditions are told apart: those of most alarms."""

LEAST_SAMPLED = 64
"""Sampled segments by which a plan may be chosen."""


class AlarmConditions:
    """What is known of the segments since they last changed."""

    def __init__(self) -> None:
        self.known = Conditions()
        self.prices: dict[str, list[float]] = {}
        """What the fixed plans of templates cost a segment (ns), by their texts."""
        self._held = self._n_rows = np.zeros(0)

    def step(
        self, templates: Mapping[str, Template], bases: Sequence[str], fresh: AlarmProfile
    ) -> bool:
        """Take in a batch; returns whether segments were of other conditions before it."""
        seen = sorted(templates.values(), key=lambda template: (-len(template), template.text))[
            :MOST_SEEN
        ]
        names = [f"{template.text} holds" for template in seen]
        counts = [fresh.templates.get(template.text) for template in seen]
        self._n_rows = np.array([float(count.n_rows) if count else 0.0 for count in counts])
        self._held = np.array(
            [
                min(count.n_held / (count.n_rows * len(template)), 1.0)
                if count and count.n_rows
                else np.nan
                for template, count in zip(seen, counts, strict=True)
            ]
        )
        shares, rows = [*self._held.tolist()], [*self._n_rows.tolist()]
        n_sampled = min((sketch.total for sketch in fresh.values.values()), default=0.0)
        for template in seen:
            template_shares = shares_of(template, bases, fresh.values)
            for place, conjunct in enumerate(template.conjuncts):
                names += [
                    f"an alarm of {conjunct.text} holds",
                    f"any alarm of {conjunct.text} holds",
                ]
                pair = (
                    [np.nan] * 2
                    if template_shares is None
                    else [template_shares.any[:, place].mean(), template_shares.cover[place]]
                )
                shares += pair
                rows += [0.0 if template_shares is None else n_sampled] * 2
        clipped = np.clip(np.array(shares, np.float64), 0.0, 1.0)
        is_other = self.known.step(tuple(names), clipped, np.array(rows), n_sampled)
        if is_other:
            self.prices = {}
        return is_other

    def situation(self, plan: Any) -> Situation | None:
        """Return the conditions as the log knows them, of which all rows met a plan."""
        if not len(self._held) or not np.isfinite(self._held).any():
            return None
        evidence = None
        if self.prices:
            known_shares = self.known.shares[: len(self._held)].tolist()
            held = [round(share, 5) if np.isfinite(share) else None for share in known_shares]
            evidence = [held, self.prices]
        met = Met(plan, self._held, np.maximum(self._n_rows, 1.0))
        least = LEAST_SAMPLED if self.prices else np.inf
        return self.known.situation(evidence, least, met)


MOST_ALARMS = 3
"""Alarms of a template that stand for all: their constants are spread evenly among those of all."""

MOST_LEAVES = 4
"""Comparisons of a condition up to which it is estimated."""


def share_held(
    template: Template, bases: Sequence[str], coefs: Mapping[str, CoefHistogram]
) -> Estimate | None:
    """Return on how many segments an alarm holds somewhere, as a share, on average.

    None if nothing is known of an expression, or if a comparison is ``=`` or ``<>``.

    Args:
        template: its alarms.
        bases: what the expressions of a program are called.
        coefs: how their coefficients are spread.
    """
    histograms = [coefs.get(bases[base]) for base in template.bases]
    if len(histograms) > MOST_LEAVES or {*template.ops} & {"=", "<>"}:
        return None
    sampled = [
        histogram for histogram in histograms if histogram is not None and histogram.total > 0.0
    ]
    if len(sampled) < len(histograms):
        return None

    def estimate_of(alarm: int) -> Estimate:
        def leaf(comparison: Comparison) -> tuple[Estimate, Times]:
            (slot,) = slots_in(comparison)
            constant = float(template.constants[alarm, slot])
            return filters.comparison(sampled[slot], template.ops[slot], constant)

        share = combined(template.condition, leaf)
        assert share is not None  # it can be said of each comparison
        return share[0]

    order = np.lexsort(template.constants.T[::-1])
    places = np.unique(np.linspace(0, len(order) - 1, MOST_ALARMS).round().astype(int))
    estimates = [estimate_of(int(order[place])) for place in places]
    return Estimate(
        *(
            float(np.mean([getattr(estimate, name) for estimate in estimates]))
            for name in ("value", "low", "high")
        )
    )


class SavedTemplate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is saved of a template."""

    plan: dict[str, Any]
    accuracy: dict[str, Accuracy]
    results: Accuracy
    orders: OrderState | None = None


class Learned(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The saved state of the loop."""

    n_rows: int
    n_blocks: int
    costs: list[list[float | None]]
    values: dict[str, dict[str, Any]]
    coefs: dict[str, dict[str, Any]]
    templates: dict[str, SavedTemplate]


def _learned_of(state: Any) -> tuple[AlarmProfile, dict[str, SavedTemplate]]:
    """Return what a loop saved: its profile, and what is known of templates by their texts.

    Raises:
        StateError: it is damaged.
    """
    try:
        learned = msgspec.convert(state, Learned, from_attributes=True)
        costs = CostSums.from_state(learned.costs)
    except (ValueError, TypeError) as error:
        msg = f"the saved plan of alarms is damaged: {error}; start from an empty checkpoint"
        raise StateError(msg) from error
    if costs.n_filters != len(KINDS):
        msg = "the saved plan of alarms is damaged: its costs are of other kinds of work"
        raise StateError(msg)
    profile = AlarmProfile(
        learned.n_rows,
        learned.n_blocks,
        costs,
        values={name: ValueSketch.from_state(saved) for name, saved in learned.values.items()},
        coefs={name: CoefHistogram.from_state(saved) for name, saved in learned.coefs.items()},
    )
    return profile, dict(learned.templates)


@dataclass(frozen=True, slots=True)
class AlarmRecord:
    """The plan of alarms after a batch."""

    component: str
    plan: Mapping[str, Any]
    """How templates are solved that are not covered, by their texts."""
    n_alarms: int
    cost_ns: float
    """Time for each segment, all templates together (ns)."""
    ways: Mapping[str, int] = field(default_factory=dict)
    """Templates by how they are solved, those that take the most time first."""

    def numbers(self, n_rows: int) -> Numbers:  # noqa: ARG002 - segments are no rows
        """Return how many alarms there are, and what they cost."""
        return Numbers({}, {"n_alarms": self.n_alarms, "cost_ns": self.cost_ns})

    def with_earlier(self, earlier: AlarmRecord, share: float) -> AlarmRecord:  # noqa: ARG002
        """Return one record for several batches: the last one."""
        return self


@dataclass(frozen=True, slots=True)
class TemplateView:
    """A template as it stands."""

    text: str
    n_alarms: int
    sharing: str
    order: tuple[str, ...]
    estimate: Estimate | None
    """What a segment is estimated to cost (ns)."""
    ns: float
    """What it took (ns)."""
    expected: Estimate | None
    """Share of segments on which an alarm is estimated to hold."""
    held: float
    """Ranges that an alarm had for each segment in the newest batch; nan: none was asked."""
