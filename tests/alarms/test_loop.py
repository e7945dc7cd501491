"""The loop of alarms: it changes the plan for what is cheaper, says why, and never an answer.

Learned plans stand beside all that there are; in the log, plans are known again by what holds, and
priced by how values are spread.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache

import msgspec
import numpy as np
import pytest
from benchmarks.alarms.adaptive import TEMPLATES
from benchmarks.alarms.data import program_over, segments_of
from benchmarks.alarms.prices import observed, priced
from hypothesis import given
from hypothesis import strategies as st

from eddyline.alarms.loop import MIN_ROWS, WARM_UP, AlarmLoop
from eddyline.alarms.plan import SHARINGS, TemplatePlan, fixed_plans, plain
from eddyline.alarms.ranges import AlarmRanges
from eddyline.errors import PlanError, StateError
from eddyline.models import graph
from eddyline.models.segments import Segments
from eddyline.models.steps import Changes
from eddyline.options import AlarmOptions
from eddyline.report import decisions as words
from eddyline.runtime.plan_log import PlanLog
from tests.alarms.alone import ranges_of
from tests.models.batches import FIT, INPUT, SECOND, at_once, shown, streamed, table_of
from tests.models.batches import rows_of as drawn_rows

AWAY = {f"a{at}": f"x = {each} AND y < 3 AND d(y) < 9" for at, each in enumerate((-900, 900))}
"""A cover of both is all between, and each alone is next to nothing."""

NEAR = {f"b{at}": f"x > {0.9 + at / 100} AND y < {0.1 - at / 1000}" for at in range(20)}
(AWAY_TEXT, NEAR_TEXT) = ("x = ? AND y < ? AND d(y) < ?", "x > ? AND y < ?")


def lines(seed, n=4_000):
    rng = np.random.default_rng(seed)
    keys, lo = np.repeat(np.arange(n // 40), 40), np.tile(np.arange(40), n // 40) * SECOND
    never = np.zeros(n, np.bool_)
    coefs = {
        "x": np.stack([rng.uniform(0, 1, n), np.zeros(n)], axis=1),
        "y": np.stack([rng.uniform(0, 1, n), rng.uniform(-0.1, 0.1, n)], axis=1),
    }
    errors = {name: np.zeros(n) for name in coefs}
    return Segments(keys, lo, lo, lo + SECOND, never, never, coefs, errors)


def run(loop, segments, texts, batch_id=0):
    """Run a batch by the plan in force, at fixed prices so that no test depends on a clock."""
    _, profile, _ = observed(
        ranges_of(segments, texts).program, segments, loop.template_plans, samples=loop.wants_sample
    )
    return loop.step(profile, batch_id)


def loop_of(texts, **options):
    program = ranges_of(lines(0), texts).program
    return AlarmLoop(AlarmOptions(**options), program)


def test_the_cheapest_way_is_chosen_and_what_came_true_is_told():
    texts = AWAY | NEAR
    loop = loop_of(texts)
    entries = [each for at in range(6) for each in run(loop, lines(at), texts, at)]
    assert loop.template_plans[NEAR_TEXT].sharing == "covered"
    assert loop.template_plans[AWAY_TEXT].sharing != "covered"
    first = next(each for each in entries if each.event == "sharing")
    assert first.evidence["template"] == AWAY_TEXT
    assert {*first.evidence["estimated_ns"]} == {*SHARINGS}
    assert first.before == "covered"
    assert first.is_plan_change
    true = next(each for each in entries if each.event == "came_true")
    assert true.evidence["template"] == AWAY_TEXT
    assert true.evidence["came_true_ns"] > 0
    assert true.batch_id > first.batch_id
    views = {each.text: each for each in loop.views()}
    near = views[NEAR_TEXT]
    assert near.n_alarms == 20
    assert near.expected.value == pytest.approx(near.held, rel=0.5)
    assert near.estimate.value > 0


def test_a_way_that_costs_more_than_estimated_is_left_again():
    loop = loop_of(AWAY)
    # Calls of one size do not tell what a call costs from what a row does.
    entries = [each for at in range(16) for each in run(loop, lines(at, 800), AWAY, at)]
    changes = [(each.before, each.after) for each in entries if each.event == "sharing"]
    assert changes[:2] == [("covered", changes[0][1]), (changes[0][1], "covered")]
    tried = [after for before, after in changes if before == "covered"]
    assert len(tried) == len({*tried})  # each at most once
    assert loop.template_plans[AWAY_TEXT].sharing == "covered"


def test_comparisons_are_ordered_by_what_they_leave_out():
    texts = {f"c{at}": f"x > {-at - 1} AND y > {0.95 + at / 100}" for at in range(4)}
    (text,) = (ranges_of(lines(0), texts).program.templates[0].text,)
    loop = loop_of(texts)
    entries = [each for at in range(12) for each in run(loop, lines(at), texts, at)]
    assert loop.template_plans[text].order == (1, 0)
    order = next(each for each in entries if each.event == "order")
    assert (order.before, order.after) == (["x > ?", "y > ?"], ["y > ?", "x > ?"])
    assert order.evidence["template"] == text


@pytest.mark.parametrize("how", ["off", "held", "few"])
def test_what_may_not_change_does_not(how):
    texts = AWAY | NEAR
    loop = loop_of(texts, adaptive=how != "off")
    loop.is_held = how == "held"
    n = MIN_ROWS // 8 // 40 * 40 if how == "few" else 4_000
    entries = [each for at in range(4) for each in run(loop, lines(at, n), texts, at)]
    assert entries == []
    assert all(each == TemplatePlan() for each in loop.template_plans.values())


def test_a_loop_goes_on_where_it_was_saved():
    texts = AWAY | NEAR
    loop = loop_of(texts)
    for at in range(5):
        run(loop, lines(at), texts, at)
    saved = msgspec.json.decode(msgspec.json.encode(loop.snapshot()))
    other = loop_of(texts)
    other.restore(saved)
    assert other.plan == loop.plan
    assert other.template_plans[AWAY_TEXT].sharing != "covered"
    assert msgspec.json.encode(other.snapshot()) == msgspec.json.encode(loop.snapshot())
    frozen = loop_of(texts, adaptive=False)
    frozen.restore(saved)
    assert frozen.template_plans == {}
    with pytest.raises(StateError, match="damaged"):
        other.restore(saved | {"costs": []})
    with pytest.raises(StateError, match="damaged"):
        other.restore(saved | {"more": 1})


def test_templates_come_and_go():
    loop = loop_of(AWAY | NEAR)
    for at in range(5):
        run(loop, lines(at), AWAY | NEAR, at)
    learned = loop.template_plans[AWAY_TEXT]
    loop.follow(ranges_of(lines(0), AWAY).program)
    assert loop.template_plans == {AWAY_TEXT: learned}
    loop.follow(ranges_of(lines(0), AWAY | NEAR).program)
    assert loop.template_plans.get(NEAR_TEXT, TemplatePlan()) == TemplatePlan()
    run(loop, lines(9), AWAY | NEAR)


def test_a_person_pins_some_templates():
    loop = loop_of(AWAY | NEAR)
    order = ["y < ?", "x > ?"]
    loop.hold({NEAR_TEXT: {"sharing": "union", "order": order}})
    assert loop.template_plans[NEAR_TEXT] == TemplatePlan("union", (1, 0))
    assert loop.plan[NEAR_TEXT] == {"sharing": "union", "order": order}
    for at in range(5):
        assert run(loop, lines(at), AWAY | NEAR, at) == []
    assert loop.advice().plan[NEAR_TEXT]["sharing"] == "covered"
    loop.release()
    assert any(run(loop, lines(at), AWAY | NEAR, at) for at in range(5))
    for wrong in (
        {"z": {}},
        {NEAR_TEXT: "covered"},
        3,
        {NEAR_TEXT: {"sharing": "x", "order": order}},
    ):
        with pytest.raises(PlanError, match="sharing"):
            loop.check(wrong)


@dataclass(frozen=True, eq=False, repr=False)
class Restless(AlarmRanges):
    """Alarms with another plan in each batch."""

    rng: np.random.Generator = field(default_factory=np.random.default_rng)

    def watched(self, given):
        plan = {
            each.text: TemplatePlan(
                SHARINGS[self.rng.integers(3)],
                tuple(self.rng.permutation(len(each.conjuncts)).tolist()),
            )
            for each in self.program.templates
        }
        return replace(AlarmRanges(self.program), plan=plan, watches=True).watched(given)


@given(
    st.integers(0, 2**32),
    st.integers(1, 80),
    st.lists(st.floats(0, 1), max_size=5),
    st.sampled_from([0, 3 * SECOND]),
    st.integers(1, 2),
)
def test_plans_change_with_any_batch_of_a_stream(seed, n, cuts, lateness, n_tries):
    texts = {f"a{at}": f"x > {at - 2} AND y <= {at}" for at in range(4)} | {
        "b": "x < 1",
        "c": "y = 2",
    }
    program = ranges_of(lines(0, 40), texts).program
    table, rng = table_of(drawn_rows(seed, n), FIT), np.random.default_rng(seed)
    own = [int(cut * n) for cut in cuts]
    restless = graph.Unary(Changes(), graph.Unary(Restless(program, rng=rng), INPUT))
    calm = graph.Unary(Changes(), graph.Unary(AlarmRanges(program), INPUT))
    found = streamed(table, FIT, restless, own, lateness, rng, n_tries=n_tries)
    assert shown(found) == shown(at_once(table, FIT, calm))


N_ROWS = 2_000


def block(at, *, swapped):
    """Segments of which nearly all have what next to none have of the others, and back."""
    rng = np.random.default_rng([at, 96])
    one, other = (
        np.stack([rng.normal(0, 1, N_ROWS), rng.normal(0, 0.02, N_ROWS)], axis=1) for _ in "xy"
    )
    if swapped:
        one[:, 0], other[:, 0] = one[:, 0] + 5, other[:, 0] - 5
    return segments_of({"x": one, "y": other})


@cache
def program_of_three():
    return program_over(block(0, swapped=False), TEMPLATES["three"])


@cache
def least_work(at, *, swapped):
    """Return the work of the best plan of a block."""
    program = program_of_three()
    (template,) = program.templates
    segments = block(at, swapped=swapped)
    return min(priced(program, segments, {template.text: p}) for p in fixed_plans(template))


class Life:
    """Alarms and the log of their plans, batch by batch, at fixed prices of work."""

    def __init__(self, *, recalls=True):
        self.program = program_of_three()
        (self.template,) = self.program.templates
        self.loop = AlarmLoop(AlarmOptions(), self.program)
        self.log, self.n, self.decided = PlanLog(recalls=recalls), 0, []

    @property
    def targets(self):
        return {"alarms": self.loop}

    def phase(self, n_batches, *, swapped):
        """Run batches; returns the work of the plan after each over that of the best one."""
        found = []
        for _ in range(n_batches):
            segments, before = block(self.n, swapped=swapped), self.targets["alarms"].plan
            samples = self.loop.wants_sample
            _, profile, _ = observed(
                self.program, segments, self.loop.template_plans, samples=samples
            )
            self.decided += self.loop.step(profile, self.n)
            self.decided += self.log.step(self.targets, {"alarms": before}, N_ROWS, self.n)
            work = priced(self.program, segments, self.loop.template_plans)
            found.append(work / least_work(self.n, swapped=swapped))
            self.n += 1
        return found

    def view(self):
        return self.log.views(self.targets)[0]

    def count(self, event):
        return sum(each.event == event for each in self.decided)


@pytest.mark.large("takes 240 batches")
def test_a_plan_of_alarms_is_recalled_after_one_batch():
    life, without = Life(), Life(recalls=False)
    for n in range(6):
        work = life.phase(20, swapped=bool(n % 2))
        learned = without.phase(20, swapped=bool(n % 2))
        if n > 1:
            assert max(work) < 1.02
    assert max(learned[:4]) > 1.4
    assert (life.count("recall"), life.count("mistaken")) == (2, 0)
    view = life.view()
    assert view.n_situations == 2
    assert without.view().hindsight.saved < view.hindsight.saved < 0.2
    (section,) = words.log_sections([view])
    assert "the best single plan, all covered, as written" in section.parts[1].pairs[0][1]
    assert "per segment)" in section.parts[1].pairs[0][1]


@pytest.mark.large
def test_where_nothing_recurs_nothing_is_recalled():
    life, without = Life(), Life(recalls=False)
    for each in (life, without):
        each.work = each.phase(20, swapped=True)
    assert life.work == without.work
    assert life.count("recall") == 0


def test_the_log_of_alarms_outlives_its_process():
    life = Life()
    for n in range(2):
        life.phase(20, swapped=bool(n % 2))
    life.phase(4, swapped=False)
    loop, log = msgspec.json.decode(
        msgspec.json.encode([life.loop.snapshot(), life.log.snapshot()])
    )
    again = Life()
    again.loop.restore(loop)
    again.log.restore(log, again.targets)
    assert again.view() == life.view()
    assert max(again.phase(4, swapped=True)) < 1.02
    assert again.view().n_situations == 2
    log["alarms"]["situations"][0]["evidence"] = [[], {again.template.text: [1.0]}]
    with pytest.raises(StateError, match="the saved log of plans is damaged"):
        PlanLog().restore(log, again.targets)


def test_the_log_goes_on_when_templates_come_and_go():
    life = Life()
    life.phase(10, swapped=False)
    both = {"c": "x > 1", "d": "y < -9 AND x > 9"}
    for texts in (both, TEMPLATES["three"] | both, TEMPLATES["three"]):
        life.program = program_over(block(0, swapped=False), texts)
        life.loop.follow(life.program)
        life.view()
        for at in range(3):
            _, profile, _ = observed(
                life.program, block(at, swapped=True), life.loop.template_plans
            )
            life.loop.step(profile, at)
            before = {"alarms": life.targets["alarms"].plan}
            life.log.step(life.targets, before, N_ROWS, at)
    view = life.view()
    assert view.n_rows + view.n_left_out == 19 * N_ROWS


@pytest.mark.parametrize("way", ["unshared", "covered"])
def test_the_log_knows_the_best_plan_that_nobody_ran(way):
    """What it says that a plan took, and the best one would have, is what running them takes."""
    (template,) = (program := ranges_of(lines(0), NEAR).program).templates
    loop, log = AlarmLoop(AlarmOptions(), program), PlanLog()
    loop.hold({NEAR_TEXT: {"sharing": way, "order": ["x > ?", "y < ?"]}})
    took = dict.fromkeys(fixed_plans(template), 0)
    for at in range(WARM_UP):  # values of these are sampled
        program = ranges_of(lines(at), NEAR).program
        _, profile, _ = observed(program, lines(at), loop.template_plans)
        loop.step(profile, at)
        log.step({"alarms": loop}, {"alarms": loop.plan}, 4_000, at)
        for each in took:
            took[each] += priced(program, lines(at), {NEAR_TEXT: each})
    seen = log.views({"alarms": loop})[0].hindsight
    held = took[TemplatePlan(way, (0, 1))]
    assert seen.cost == pytest.approx(held / WARM_UP / 4_000, rel=0.05)
    assert seen.cost / seen.best_cost == pytest.approx(held / min(took.values()), rel=0.2)
    best = min(took, key=took.__getitem__)
    assert seen.best == loop.in_words({NEAR_TEXT: plain(best, template)})
    if way == "unshared":
        assert seen.saved < -1


TEXT = "x > ? AND y > ?"
N_BATCHES = 10


def together(seed, how, n=2_000):
    """Return segments of which y goes with x, against it, or knows nothing of it."""
    found = lines(seed, n)
    x = found.coefs["x"]
    y = {"with": x, "against": np.array([1.0, 0.0]) - x, "apart": found.coefs["y"] * [1, 0]}[how]
    return replace(found, coefs={"x": x, "y": y})


def alarms(x, y, n=12):
    return {f"a{at}": f"x > {x + at / 1000} AND y > {y + at / 1000}" for at in range(n)}


@pytest.mark.parametrize(
    ("how", "thresholds"),
    [
        ("with", (0.2, 0.9)),
        ("with", (0.7, 0.7)),
        ("against", (0.7, 0.7)),
        ("against", (0.9, 0.2)),
        ("apart", (0.2, 0.9)),
    ],
)
def test_a_learned_plan_costs_as_the_best_of_all(how, thresholds):
    texts = alarms(*thresholds)
    loop = loop_of(texts)
    for at in range(N_BATCHES):
        run(loop, together(at, how), texts, at)
    segments = together(99, how)
    program = ranges_of(segments, texts).program
    (template,) = program.templates
    costs = {plan: priced(program, segments, {TEXT: plan}) for plan in fixed_plans(template)}
    learned = replace(loop.template_plans[TEXT], order=loop.template_plans[TEXT].order_of(template))
    assert costs[learned] <= 1.1 * min(costs.values())
    assert costs[learned] < 0.9 * max(costs.values())


def test_thresholds_that_move_move_the_plan():
    loop = loop_of(alarms(0.2, 0.9))
    orders = []
    for number in range(24):
        texts = alarms(0.2, 0.9) if number < 12 else alarms(0.9, 0.2)
        if number == 12:  # the same templates, with other constants
            loop.follow(ranges_of(lines(0), texts).program)
        run(loop, together(number, "apart"), texts, number)
        orders.append(loop.template_plans[TEXT].order)
    assert orders[11] == (1, 0)
    assert orders[-1] == (0, 1)
