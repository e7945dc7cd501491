"""The log of plans: what is known again, what is given up, and what plans would have cost."""

from __future__ import annotations

import json
from itertools import permutations
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest
from benchmarks.change.recurring import LoggedFilters, situations

from eddyline.errors import StateError
from eddyline.filters.loop import FilterLoop
from eddyline.options import FilterOptions
from eddyline.report import decisions as words
from eddyline.report.sections import Facts
from eddyline.runtime.choice import Choice, Situation
from eddyline.runtime.order_loop import ONE_ORDER
from eddyline.runtime.plan_log import (
    MOST_COMPARED,
    MOST_CONDITIONS,
    MOST_PLANS,
    MOST_SITUATIONS,
    Held,
    Hindsight,
    Logged,
    LogView,
    PlanLog,
    hindsight,
)

N_ROWS = 1_000


class Dial(Choice):
    """A plan of one text, under conditions that a test sets."""

    component = "dial"
    why_unlogged = ""

    def __init__(self, plan="a"):
        self._plan = plan
        self.share, self.n_sampled, self.names = 0.5, 400.0, ("share",)
        self.taken, self.n_let_go = [], 0
        self.seen = None
        """What is measured, where it is more than one share."""

    plan = property(lambda self: self._plan)
    possible = "any text"

    def is_possible(self, plan):
        return isinstance(plan, str)

    def adopt(self, plan):
        self._plan = plan

    def situation(self):
        if self.seen is not None:
            return self.seen
        n = np.full(len(self.names), self.n_sampled)
        shares = np.full(len(self.names), self.share)
        settled = self.n_sampled >= 100
        return Situation(self.names, shares, n, {"at": self.share}, self.n_sampled, settled)

    def cost_of(self, plan, evidence):
        """Cost of a plan, which is best at the share of its letter: a at 0, k at 1."""
        place = {"?": float("nan")}.get(plan, (ord(plan) - ord("a")) / 10)
        return 1.0 + abs(place - evidence["at"])

    def take(self, plan, evidence):
        super().take(plan, evidence)
        self.taken.append((plan, evidence))

    def let_go(self):
        self.n_let_go += 1


class Life:
    """A log, and batches of it."""

    def __init__(self, target, **options):
        self.target, self.log, self.n = target, PlanLog(**options), 0

    def batches(self, n, share=None, learned=None):
        """Let some batches come, after the first of which the loop has learned a plan."""
        self.target.share = self.target.share if share is None else share
        entries = []
        for at in range(n):
            ran_under = {"dial": self.target.plan}
            if at == 0 and learned is not None:
                self.target.adopt(learned)
            entries += self.log.step({"dial": self.target}, ran_under, N_ROWS, self.n)
            self.n += 1
        return [(each.event, each.before, each.after) for each in entries]

    def view(self):
        return self.log.views({"dial": self.target})[0]

    def restart(self):
        """Go on from the saved state, as JSON has it."""
        state = msgspec.json.decode(msgspec.json.encode(self.log.snapshot()))
        self.log = PlanLog()
        self.log.restore(state, {"dial": self.target})


def test_a_situation_that_comes_again_gets_its_plan():
    life = Life(Dial())
    assert life.batches(4, 0.0) == []
    assert life.batches(4, 1.0, learned="k") == []
    assert life.batches(1, 0.0) == [("recall", "k", "a")]
    assert life.target.taken == [("a", {"at": 0.0})]
    assert life.batches(3) == []
    assert life.batches(3, 1.0) == [("recall", "a", "k")]
    view = life.view()
    assert (view.n_situations, view.n_right, view.n_mistaken) == (2, 2, 0)
    # Each second situation began with a batch under the plan of the other.
    assert view.n_rows == 15 * N_ROWS
    assert view.hindsight.cost == pytest.approx((12 * 1.0 + 3 * 2.0) / 15)


@pytest.mark.parametrize(("within", "cost"), [(False, (1.5 + 3 * 1.0) / 4), (True, 1.0)])
def test_where_tasks_learn_rows_count_for_the_plan_that_their_batch_ended_with(within, cost):
    dial = Dial("f")  # as written, which costs 1.5 there
    dial.changes_within = within
    life = Life(dial)
    assert life.batches(4, 0.0, learned="a") == []
    assert life.view().n_rows == 4 * N_ROWS
    assert life.view().hindsight.cost == pytest.approx(cost)


def test_the_cheapest_plan_of_a_situation_is_recalled():
    life = Life(Dial("c"))
    life.batches(4, 0.0, learned="b")
    life.batches(4, 1.0, learned="k")
    assert life.batches(1, 0.0) == [("recall", "k", "b")]


def test_a_plan_that_was_hardly_tried_is_not_recalled():
    life = Life(Dial())
    life.batches(1, 0.0)
    life.batches(4, 1.0, learned="k")
    assert life.batches(4, 0.0) == []


def test_what_is_pinned_is_logged_and_not_recalled():
    life = Life(Dial())
    life.batches(4, 0.0)
    life.batches(4, 1.0, learned="k")
    life.target.is_held = True
    assert life.batches(4, 0.0) == []
    assert life.target.plan == "k"
    assert life.view().n_rows == 12 * N_ROWS


def test_recall_can_be_switched_off_and_the_log_goes_on():
    life = Life(Dial(), recalls=False)
    for _ in range(2):
        assert life.batches(4, 0.0, learned="a") + life.batches(4, 1.0, learned="k") == []
    assert life.view().n_situations == 2
    assert life.view().n_right == 0


def test_nothing_is_logged_of_what_does_not_adapt():
    life = Life(Dial())
    life.target.is_adaptive = False
    assert life.batches(4, 0.0) == []
    assert life.log.views({"dial": life.target}) == ()
    assert life.log.snapshot() == {}


def test_a_recall_by_mistake_is_given_up_and_counted():
    life = Life(Dial())
    life.batches(4, 0.0)
    life.batches(4, 1.0, learned="k")
    life.target.n_sampled = 30.0  # too few rows tell 0.1 from 0
    assert life.batches(1, 0.1) == [("recall", "k", "a")]
    life.target.n_sampled = 400.0
    assert life.batches(1) == [("mistaken", "a", "a")]
    assert life.target.n_let_go == 1
    assert (life.view().n_mistaken, life.view().n_situations) == (1, 3)


def test_what_contradicts_much_later_is_another_change():
    life = Life(Dial())
    life.batches(4, 0.0)
    life.batches(4, 1.0, learned="k")
    life.target.n_sampled = 60.0
    assert life.batches(1, 0.0) == [("recall", "k", "a")]
    life.target.n_sampled = 0.0  # no rows of these are sampled
    assert life.batches(5) == []
    life.target.n_sampled = 60.0
    assert life.batches(1, 1.0) == [("recall", "a", "k")]
    assert life.view().n_mistaken == 0
    assert life.target.n_let_go == 0


def test_a_situation_that_is_always_mistaken_is_not_recalled_any_more():
    held = Held.from_pairs([("a", 1.0)])
    assert Logged(_seen(0.0), held, n_settled=9, n_mistaken=1).may_recall
    assert not Logged(_seen(0.0), held, n_settled=9, n_mistaken=2).may_recall
    assert Logged(_seen(0.0), held, n_settled=9, n_mistaken=2, n_right=1).may_recall


def test_a_plan_that_the_newest_rows_oppose_is_not_recalled():
    target = Dial()
    life = Life(target)
    life.batches(4, 0.0)
    life.batches(4, 1.0, learned="k")
    target.cost_of = lambda plan, evidence: 2.0 if plan == "a" else 1.0
    assert life.batches(1, 0.0) == []


@pytest.mark.parametrize(("min_gain", "found"), [(1.9, [("recall", "k", "a")]), (2.1, [])])
def test_a_plan_has_to_gain_what_its_component_asks_for(min_gain, found):
    life = Life(Dial())
    life.batches(4, 0.0)
    life.batches(4, 1.0, learned="k")
    life.target.min_gain = min_gain  # "k" costs twice as much there
    assert life.batches(1, 0.0) == found


def test_a_situation_that_ended_before_its_plan_was_learned_gets_a_better_one_of_another():
    life = Life(Dial("f"))  # which costs 1.5 there
    life.batches(4, 0.0)
    life.batches(4, 0.3, learned="b")
    life.batches(4, 1.0, learned="k")
    assert life.batches(1, 0.0) == [("recall", "k", "b")]


def test_of_plans_that_cost_the_same_the_one_of_most_rows_is_best():
    held = Held.from_pairs([("a", 10.0), ("b", 600.0), ("k", 999.0)])
    dial = Dial()
    dial.cost_of = lambda plan, evidence: {"a": 1.0, "b": 1.0005, "k": 2.0}[plan]
    assert json.loads(Logged(_seen(0.0), held).best(dial)) == "b"


def test_the_log_is_bounded_and_has_one_entry_for_a_situation():
    life = Life(Dial())
    rng = np.random.default_rng(3)
    for n in range(150):
        seen = Situation(tuple("xyz"), rng.random(3), np.full(3, 1e4), {"at": 0.5}, 1e4, True)
        life.target.seen = seen
        life.batches(1, learned="abcdefghijk"[n % 11])
        (log,) = life.log._logs.values()
        entries = log.situations
        assert len(entries) <= MOST_SITUATIONS
        assert all(len(each.held) <= MOST_PLANS for each in entries)
    apart = [a.seen.distance(b.seen) for a in entries for b in entries if a is not b]
    assert min(apart) > 1.0
    view = life.view()
    assert view.n_rows + view.n_left_out == pytest.approx(150 * N_ROWS)


def test_the_plans_of_the_fewest_rows_go_first():
    held = Held.from_pairs([(str(n), float(n)) for n in range(MOST_PLANS + 3)])
    assert held.shortened() == 0 + 1 + 2
    assert held.pairs() == [(str(n), float(n)) for n in range(3, MOST_PLANS + 3)]
    assert held.shortened() == 0


def test_situations_of_many_conditions_are_fewer():
    life, rng = Life(Dial()), np.random.default_rng(4)
    names = tuple(map(str, range(MOST_CONDITIONS // 10)))
    for _ in range(30):
        shares, counts = rng.random(len(names)), np.full(len(names), 1e4)
        life.target.seen = Situation(names, shares, counts, {"at": 0.5}, 1e4, True)
        life.batches(1)
    view = life.view()
    assert view.n_situations == 10
    assert view.n_rows + view.n_left_out == 30 * N_ROWS


def test_a_plan_of_another_situation_that_is_not_possible_is_not_recalled():
    life = Life(Dial("d"))
    life.batches(4, 0.0)
    life.batches(4, 1.0, learned="a")  # which is the best one at 0
    life.target.adopt("k")
    life.target.is_possible = lambda plan: plan != "a"
    assert life.batches(1, 0.0) == [("recall", "k", "d")]


def test_entries_that_prove_to_be_one_are_merged():
    life = Life(Dial())
    life.target.n_sampled = 1e6
    life.batches(3, 0.30)
    life.batches(3, 0.46)
    assert life.view().n_situations == 2
    life.target.seen = Situation(
        ("share",), np.array([0.38]), np.array([2e6]), {"at": 0.38}, 2e6, True
    )
    life.batches(3)
    assert life.view().n_situations == 1
    assert life.view().n_rows == 9 * N_ROWS


def test_other_filters_begin_another_log():
    life = Life(Dial())
    life.batches(4, 0.0)
    life.target.names = ("another",)
    assert life.batches(2, 0.0) == []
    view = life.view()
    assert (view.n_situations, view.n_rows, view.n_left_out) == (1, 2 * N_ROWS, 4 * N_ROWS)


def test_plans_of_something_else_begin_another_log_at_once():
    life = Life(Dial())
    life.batches(4, 0.0)
    saved = life.log.snapshot()
    Dial.identity, before = "others", Dial.identity
    try:
        life.target.cost_of = None  # nothing of before is asked for a price
        assert life.view() == LogView("dial")
        PlanLog().restore(saved, {"dial": life.target})
        life.target.n_sampled = 5.0
        assert life.batches(3) == []
        assert life.log.snapshot()["dial"].n_left_out == 4 * N_ROWS
    finally:
        Dial.identity = before


def test_a_batch_without_rows_is_none():
    life = Life(Dial())
    life.batches(2, 0.0)
    before = life.log.snapshot()
    assert life.log.step({"dial": life.target}, {"dial": "a"}, 0, 9) == []
    assert life.log.snapshot() == before


def test_rows_wait_until_it_is_known_what_they_met():
    life = Life(Dial())
    life.target.n_sampled = 5.0
    life.batches(3, 0.0)
    assert (life.view().n_rows, life.view().n_left_out) == (0.0, 3 * N_ROWS)
    life.target.n_sampled = 400.0
    life.batches(1)
    assert (life.view().n_rows, life.view().n_left_out) == (4 * N_ROWS, 0.0)


@pytest.mark.parametrize("at", range(12))
def test_the_log_outlives_its_process(at):
    shares = [0.0] * 3 + [1.0] * 3 + [0.0] * 3 + [1.0] * 3

    def lived(restarts):
        life, found = Life(Dial()), []
        for n, share in enumerate(shares):
            found += life.batches(1, share, learned="k" if n == 3 else None)
            if restarts and n == at:
                life.restart()
        return found, life.view(), life.log.snapshot()

    assert lived(restarts=True) == lived(restarts=False)
    assert [each[0] for each in lived(restarts=True)[0]] == ["recall", "recall"]


DAMAGE = {
    "no object": lambda state: [],
    "an unknown field": lambda state: {"dial": state["dial"] | {"more": 1}},
    "a missing field": lambda state: {"dial": {"names": ["share"]}},
    "a share above 1": lambda state: _changed(state, shares=[1.5]),
    "too few counts": lambda state: _changed(state, counts=[]),
    "a count of 0": lambda state: _changed(state, counts=[0.0]),
    "fewer rows than 0": lambda state: _changed(state, held=[["a", -1.0]]),
    "a plan that is none": lambda state: _changed(state, held=[["none", 9.0]]),
    "evidence of something else": lambda state: _changed(state, evidence={}),
    "recalls below 0": lambda state: _changed(state, n_mistaken=-1),
    "a sample below 0": lambda state: _changed(state, n_sampled=-1.0),
    "another current one": lambda state: {"dial": state["dial"] | {"current": 7}},
    "a current one below 0": lambda state: {"dial": state["dial"] | {"current": -1}},
}


def _changed(state, **values):
    (first, *rest) = state["dial"]["situations"]
    return {"dial": state["dial"] | {"situations": [first | values, *rest]}}


@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_log_is_told(how):
    life = Life(Dial())
    life.batches(4, 0.0)
    life.batches(4, 1.0, learned="k")
    state = json.loads(msgspec.json.encode(life.log.snapshot()))
    PlanLog().restore(state, {"dial": life.target})
    with pytest.raises(StateError, match="the saved log of plans is damaged"):
        PlanLog().restore(DAMAGE[how](state), {"dial": life.target})


# -- in hindsight -------------------------------------------------------------------------------


def test_what_was_in_force_is_held_against_the_best_single_plan():
    situations = [
        Logged(_seen(0.0), Held.from_pairs([("a", 600.0), ("k", 100.0)])),
        Logged(_seen(1.0), Held.from_pairs([("k", 300.0)])),
    ]
    found = hindsight(situations, Dial())
    assert found.cost == pytest.approx((600 * 1.0 + 100 * 2.0 + 300 * 1.0) / 1000)
    # "a" alone would have cost 700 rows at 1 and 300 at 2, "k" the other way round.
    assert (found.best, found.best_cost) == ("a", pytest.approx(1.3))
    assert found.saved == pytest.approx(1 - 1.1 / 1.3)


def test_many_plans_of_many_situations_are_priced_a_few_times_each():
    """Each situation by its own plans, and by those that were in force for most rows."""
    held = [{f"{at} {own}": 1.0 + own for own in range(8)} for at in range(64)]
    held[5]["most"] = 9_000.0
    situations = [
        Logged(_seen(at / 64), Held.from_pairs(each.items())) for at, each in enumerate(held)
    ]
    asked, dial = [], Dial()
    dial.cost_of = lambda plan, evidence: asked.append(plan) or 1.0 + (plan != "most")
    found = hindsight(situations, dial)
    assert (found.best, found.best_cost, found.n_plans) == ("most", 1.0, 513)
    n_rows = 64 * 36 + 9_000
    assert found.cost == pytest.approx((64 * 36 * 2.0 + 9_000) / n_rows)
    assert len(asked) <= 64 * (MOST_COMPARED + 9)
    hindsight(situations, dial)
    assert len(asked) <= 64 * (MOST_COMPARED + 9)  # prices are known


def test_a_plan_without_a_price_is_left_out_and_said_to_be():
    situations = [Logged(_seen(0.0), Held.from_pairs([("a", 600.0), ("?", 100.0)]))]
    found = hindsight(situations, Dial())
    assert (found.best, found.n_plans, found.n_unpriced) == ("a", 2, 1)
    assert np.isnan(found.cost)
    assert np.isnan(found.saved)


def _seen(share):
    return Situation(("s",), np.array([share]), np.array([1e3]), {"at": share}, 1e3, True)


def _said(view):
    ((_, facts),) = [each.parts for each in words.log_sections([view])]
    assert isinstance(facts, Facts)
    return dict(facts.pairs)[view.component]


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        (
            Hindsight(77.0, ["x", "y"], 100.0, 3, 1),
            "cost 1.3 × less (77 ns per row) than the best",
        ),
        (
            Hindsight(110.0, ["x", "y"], 100.0, 2),
            "cost 1.1 × more (110 ns per row) than the best",
        ),
        (
            Hindsight(100.1, ["x", "y"], 100.0, 2),
            "in force cost as much as the best single",
        ),
        (Hindsight(best=["x", "y"], best_cost=100.0, n_plans=2), "what was in force cannot be pri"),
        (Hindsight(n_plans=2, n_unpriced=2), "no plan that was in force can be priced"),
    ],
)
def test_what_adapting_brought_is_told(seen, said):
    text = _said(LogView("native", 4, 900.0, 100.0, 5, 1, seen))
    assert said in text
    assert "4 situations with 90.0 % of the rows" in text
    assert "5 plans recalled, 1 by mistake" in text
    if seen.n_unpriced == 1:
        assert "x → y (100 ns per row)" in text
        assert "1 without a price left out" in text


def test_why_nothing_is_known_is_told_beside_what_is():
    known = LogView("native", 1, 10.0, hindsight=Hindsight(1.0, ["x"], 1.0, 1))
    unknown = LogView("rules", why_not="nobody measures it")
    (section,) = words.log_sections([known, unknown])
    assert dict(section.parts[1].pairs)["rules"] == "not known: nobody measures it"
    assert words.log_sections([unknown]) == []


# -- orders of filters ----------------------------------------------------------------------------

FRACS = np.array([[0.02, 0.6, 0.7, 0.8, 0.9], [0.9, 0.6, 0.7, 0.8, 0.02]])
ALTERNATING = [FRACS[n % 2] for n in range(12)]


@pytest.mark.parametrize(
    "seed", [11, *(pytest.param(seed, marks=pytest.mark.large) for seed in (12, 13))]
)
def test_recurring_conditions_get_their_order_in_the_first_batch(seed):
    filters = LoggedFilters(seed, 2_000)
    work = filters.phases(ALTERNATING)
    without = LoggedFilters(seed, 2_000, recalls=False).phases(ALTERNATING)
    # The order after the first batch of each recurrence, against the best one for that batch.
    recalled = work[2:, 0, 2] / work[2:, 0, 1]
    assert np.median(recalled) < 1.02
    assert (recalled < 1.05).mean() >= 0.7
    assert filters.count("recall") > 0
    assert work[..., 0].sum() < 0.95 * without[..., 0].sum()


@pytest.mark.large
@pytest.mark.parametrize(("seed", "batch_rows"), [(11, 2_000), (12, 10_000)])
def test_the_log_costs_nothing_where_nothing_recurs(seed, batch_rows):
    for fracs in ([FRACS[0]] * 8, situations(8, seed)):
        work = LoggedFilters(seed, batch_rows).phases(fracs)
        without = LoggedFilters(seed, batch_rows, recalls=False).phases(fracs)
        assert work[..., 0].sum() <= 1.01 * without[..., 0].sum()


def test_orders_recalled_after_a_restart_are_those_without_one():
    def lived(restarts):
        filters = LoggedFilters(21, 2_000)
        for p in ALTERNATING[:5]:
            for n in range(6):
                filters.batch(p)
                if restarts and n % 4 == 1:
                    _restart(filters)
        return filters.counted.order, [each.to_json() for each in filters.entries]

    again = lived(restarts=True)
    assert again == lived(restarts=False)
    assert any("recall" in each for each in again[1])


def _restart(filters):
    """Go on from saved states, as JSON has them; what runs is saved elsewhere."""
    saved = [filters.counted.loop.snapshot(), filters.log.snapshot()]
    loop, log = msgspec.json.decode(msgspec.json.encode(saved))
    filters.counted.loop.restore(loop)
    filters.log = PlanLog()
    filters.log.restore(log, {"arrow": filters.target})


@pytest.mark.parametrize("seed", range(3))
def test_the_best_single_order_is_that_of_an_exhaustive_search(seed):
    filters = LoggedFilters(seed, 5_000)
    filters.phases(situations(4, seed), n_batches=5)
    (log,) = filters.log._logs.values()
    found = filters.view.hindsight
    total = sum(each.held.total() for each in log.situations)
    costs = [
        sum(
            each.held.total() * filters.target.cost_of(list(order), each.seen.evidence)
            for each in log.situations
        )
        / total
        for order in permutations(filters.counted.loop.filter_ids)
    ]
    assert min(costs) <= found.best_cost + 1e-9
    assert found.best_cost <= 1.02 * min(costs)


def test_orders_of_classes_are_not_logged_and_it_is_said_why():
    filters = LoggedFilters(0, 2_000)
    filters.counted.loop.routes = SimpleNamespace(table=object())
    assert filters.target.why_unlogged == "classes of rows have orders of their own"
    assert filters.view.why_not == filters.target.why_unlogged


@pytest.mark.parametrize("policy", ["sweep", "fixed"])
def test_orders_of_policies_that_keep_their_own_evidence_are_not_logged(policy):
    loop = FilterLoop("native", tuple("ab"), FilterOptions(policy=policy), thinks_freely=True)
    assert loop.why_unlogged == ONE_ORDER
    assert loop.situation() is None
