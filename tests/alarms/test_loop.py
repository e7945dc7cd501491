"""The loop of alarms: it changes the plan for what is cheaper, says why, and never an answer."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import msgspec
import numpy as np
import pytest
from benchmarks.alarms.prices import observed
from hypothesis import given
from hypothesis import strategies as st

from eddyline.alarms.loop import MIN_ROWS, AlarmLoop, AlarmPin
from eddyline.alarms.plan import SHARINGS, TemplatePlan
from eddyline.alarms.ranges import AlarmRanges
from eddyline.errors import PlanError, StateError
from eddyline.models import graph
from eddyline.models.segments import Segments
from eddyline.models.steps import Changes
from eddyline.options import AlarmOptions
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
        ranges_of(segments, texts).program, segments, loop.plan, samples=loop.wants_sample
    )
    return loop.step(profile, batch_id)


def loop_of(texts, **options):
    program = ranges_of(lines(0), texts).program
    return AlarmLoop(AlarmOptions(**options), program)


def test_the_cheapest_way_is_chosen_and_what_came_true_is_told():
    texts = AWAY | NEAR
    loop = loop_of(texts)
    entries = [each for at in range(6) for each in run(loop, lines(at), texts, at)]
    assert loop.plan[NEAR_TEXT].sharing == "covered"
    assert loop.plan[AWAY_TEXT].sharing != "covered"
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
    assert loop.plan[AWAY_TEXT].sharing == "covered"


def test_comparisons_are_ordered_by_what_they_leave_out():
    texts = {f"c{at}": f"x > {-at - 1} AND y > {0.95 + at / 100}" for at in range(4)}
    (text,) = (ranges_of(lines(0), texts).program.templates[0].text,)
    loop = loop_of(texts)
    entries = [each for at in range(12) for each in run(loop, lines(at), texts, at)]
    assert loop.plan[text].order == (1, 0)
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
    assert all(each == TemplatePlan() for each in loop.plan.values())


def test_a_loop_goes_on_where_it_was_saved():
    texts = AWAY | NEAR
    loop = loop_of(texts)
    for at in range(5):
        run(loop, lines(at), texts, at)
    saved = msgspec.json.decode(msgspec.json.encode(loop.snapshot()))
    other = loop_of(texts)
    other.restore(saved)
    assert AlarmPin(other).plan == AlarmPin(loop).plan
    assert other.plan[AWAY_TEXT].sharing != "covered"
    assert msgspec.json.encode(other.snapshot()) == msgspec.json.encode(loop.snapshot())
    frozen = loop_of(texts, adaptive=False)
    frozen.restore(saved)
    assert frozen.plan == {}
    with pytest.raises(StateError, match="damaged"):
        other.restore(saved | {"costs": []})
    with pytest.raises(StateError, match="damaged"):
        other.restore(saved | {"more": 1})


def test_templates_come_and_go():
    loop = loop_of(AWAY | NEAR)
    for at in range(5):
        run(loop, lines(at), AWAY | NEAR, at)
    learned = loop.plan[AWAY_TEXT]
    loop.follow(ranges_of(lines(0), AWAY).program)
    assert loop.plan == {AWAY_TEXT: learned}
    loop.follow(ranges_of(lines(0), AWAY | NEAR).program)
    assert loop.plan.get(NEAR_TEXT, TemplatePlan()) == TemplatePlan()
    run(loop, lines(9), AWAY | NEAR)


def test_a_person_pins_some_templates():
    loop = loop_of(AWAY | NEAR)
    pin = AlarmPin(loop)
    order = ["y < ?", "x > ?"]
    pin.hold({NEAR_TEXT: {"sharing": "union", "order": order}})
    assert loop.plan[NEAR_TEXT] == TemplatePlan("union", (1, 0))
    assert pin.plan[NEAR_TEXT] == {"sharing": "union", "order": order}
    for at in range(5):
        assert run(loop, lines(at), AWAY | NEAR, at) == []
    assert pin.advice().plan[NEAR_TEXT]["sharing"] == "covered"
    pin.release()
    assert any(run(loop, lines(at), AWAY | NEAR, at) for at in range(5))
    for wrong in (
        {"z": {}},
        {NEAR_TEXT: "covered"},
        3,
        {NEAR_TEXT: {"sharing": "x", "order": order}},
    ):
        with pytest.raises(PlanError, match="sharing"):
            pin.check(wrong)


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
