"""Plans that a person pins: what is possible, what is kept, what is let go."""

from __future__ import annotations

import numpy as np
import pytest

from eddyline.aggregates.loop import AggregateLoop, AggregateProfile
from eddyline.errors import PlanError, StateError
from eddyline.filters.loop import FilterLoop
from eddyline.joins.graph import JoinGraph
from eddyline.joins.orders.pipelines import JoinLoop
from eddyline.joins.tiers import TierChoice
from eddyline.options import FilterOptions, JoinOptions
from eddyline.report import decisions as words
from eddyline.runtime.by_hand import Pins
from eddyline.runtime.choice import AsItStands
from eddyline.stats.costs import CostSums
from eddyline.stats.profile import FilterProfile

PLANS = ("early", "late")
FEW = AggregateProfile(n_rows=10_000, n_cells=10)
MANY = AggregateProfile(n_rows=10_000, n_cells=10_000)


class Standing(AsItStands):
    """A choice that nobody writes by hand."""

    component = "standing"

    def __init__(self, plan):
        self.in_force = plan

    @property
    def plan(self):
        return self.in_force


@pytest.fixture
def loop():
    return AggregateLoop(plans=PLANS)


@pytest.fixture
def targets(loop):
    return {"aggregate": loop}


@pytest.fixture
def pins(tmp_path):
    return Pins(tmp_path / "pins.json")


def test_a_plan_in_force_is_held_at_once(loop, targets, pins):
    (entry,) = pins.pin(targets, {"aggregate": "early"}, 3)
    assert (entry.batch_id, entry.component, entry.event) == (3, "aggregate", "pin")
    assert (entry.before, entry.after, entry.evidence) == ("early", "early", {"by": "person"})
    assert loop.step(MANY, 4) == []
    assert loop.plan == "early"


def test_another_plan_waits_for_the_next_batch(loop, targets, pins):
    pins.pin(targets, {"aggregate": "late"}, 3)
    assert loop.plan == "early"
    (view,) = pins.views(targets)
    assert not view.is_in_force
    assert pins.apply(targets, 3) == []
    assert loop.plan == "late"
    assert loop.step(FEW, 4) == []
    assert loop.plan == "late"


def test_what_adapts_again_follows_the_evidence_that_came_meanwhile(loop, targets, pins):
    pins.pin(targets, {"aggregate": "late"}, 3)
    pins.apply(targets, 3)
    loop.step(FEW, 4)
    (entry,) = pins.adapt(targets, 4)
    assert (entry.event, entry.before, entry.after) == ("adapt", "late", "late")
    assert entry.evidence == {"by": "person", "pinned_after_batch": 3}
    (switched,) = loop.step(FEW, 5)
    assert (switched.event, switched.after) == ("place", "early")
    assert pins.adapt(targets, 5) == []


def test_pins_outlive_their_process(loop, targets, pins):
    pins.pin(targets, {"aggregate": "late"}, 3)
    other = AggregateLoop(plans=PLANS)
    again = Pins(pins.path)
    assert again.apply({"aggregate": other}, -1) == []
    assert (other.plan, other.is_held) == ("late", True)
    again.adapt({"aggregate": other}, 3)
    assert Pins(pins.path).views(targets) == ()


def test_a_plan_that_is_not_possible_pins_nothing(loop, targets, pins):
    with pytest.raises(PlanError) as caught:
        pins.pin(targets, {"aggregate": "never"}, 3)
    assert caught.value.message == (
        "'never' is no plan of 'aggregate'; possible is one of 'early', 'late'; in force is 'early'"
    )
    assert not loop.is_held
    assert not pins.path.exists()


def test_a_pin_ends_with_what_it_was_of(loop, targets, pins):
    pins.pin(targets, {"aggregate": "early"}, 3)
    fresh = {"aggregate": AggregateLoop(plans=PLANS)}
    (entry,) = pins.apply(fresh, 7)
    assert (entry.batch_id, entry.event) == (7, "adapt")
    assert entry.evidence == {"why": "what the plan was of has changed"}
    assert pins.apply(fresh, 8) == []
    pins.pin(targets, {"aggregate": "late"}, 8)
    (entry,) = pins.apply({}, 8)
    assert entry.evidence == {"why": "the query has no such component any more"}


def test_a_plan_that_fits_no_more_after_a_restart_is_let_go(loop, targets, pins):
    pins.pin(targets, {"aggregate": "late"}, 3)
    (entry,) = Pins(pins.path).apply({"aggregate": Standing("x")}, 3)
    assert "possible is only the plan in force" in entry.evidence["why"]
    assert not loop.is_held


def test_pins_that_cannot_be_read_or_written_say_so(loop, targets, pins, tmp_path):
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(StateError, match="move the file away to adapt again"):
        Pins(tmp_path / "bad.json")
    with pytest.raises(StateError, match=r"the folder is gone, .* start it with checkpoint="):
        Pins(tmp_path / "missing" / "pins.json").pin(targets, {"aggregate": "late"}, 0)
    pins.path.mkdir()
    with pytest.raises(StateError, match="free space, or give write permission"):
        pins.pin(targets, {"aggregate": "late"}, 0)


COSTS = CostSums.of_rows(1_000, np.array([1_000.0, 10.0]))


def of_two_filters():
    """A loop that holds the worse of two orders, and knows better."""
    loop = FilterLoop("native", ("dear", "cheap"), FilterOptions().resolved(), thinks_freely=True)
    pin = loop
    pin.hold(["dear", "cheap"])
    drops = np.random.default_rng(1).random((1_000, 2)) < 0.9
    entries = loop.step(FilterProfile.of_sample(loop.filter_ids, drops, costs=COSTS), 0)
    return loop, pin, entries


def test_an_order_that_is_held_is_told_what_the_best_would_cost():
    loop, pin, entries = of_two_filters()
    assert entries == []
    assert pin.plan == ["dear", "cheap"]
    advice = pin.advice()
    assert advice.plan == ["cheap", "dear"]
    assert advice.held_cost_ns == pytest.approx(1_001, rel=0.01)
    assert advice.cost_ns == pytest.approx(110, rel=0.2)
    pin.release()
    drops = np.random.default_rng(2).random((1_000, 2)) < 0.9
    (switched,) = loop.step(FilterProfile.of_sample(loop.filter_ids, drops, costs=COSTS), 1)
    assert switched.after == ["cheap", "dear"]


@pytest.mark.parametrize("plan", [["dear"], ["dear", "dear"], "dear", None, ["dear", 3], {}])
def test_an_order_has_every_filter_once(plan):
    loop = FilterLoop("native", ("dear", "cheap"), FilterOptions().resolved())
    with pytest.raises(PlanError, match=r"a list of all of .'dear', 'cheap'., each once"):
        loop.hold(plan)
    assert not loop.is_held


@pytest.mark.parametrize("plan", [[2, 1], [2, "1"], ("2", b"1"), np.array(["2", "1"])])
def test_what_only_looks_like_names_is_no_order(plan):
    loop = FilterLoop("native", ("1", "2"), FilterOptions().resolved())
    with pytest.raises(PlanError, match="is no plan of 'native'"):
        loop.hold(plan)
    with pytest.raises(PlanError, match="is no plan of 'aggregate'"):
        AggregateLoop(plans=PLANS).hold(plan)
    with pytest.raises(PlanError, match="possible is only the plan in force"):
        Standing("12").hold(plan)


def test_a_pin_stays_as_it_was_given(pins):
    target = FilterLoop("native", ("1", "2"), FilterOptions().resolved())
    given = ["2", "1"]
    pins.pin({"native": target}, {"native": given}, 0)
    given.reverse()
    assert pins.apply({"native": target}, 0) == []
    assert target.plan == ["2", "1"]
    assert [each.plan for each in Pins(pins.path)._pins.values()] == [["2", "1"]]


def test_what_is_pinned_is_told_in_words(tmp_path):
    _, pin, _ = of_two_filters()
    pins = Pins(tmp_path / "pins.json")
    pins.pin({"native": pin}, {"native": ["dear", "cheap"]}, 12)
    views = pins.views({"native": pin})
    ((_, said),) = words.pin_sections(views)[0].parts[0].pairs
    assert "pinned by a person after batch 12; the evidence says the best order" in said
    assert words.pin_lines(views) == ("pinned: native",)
    assert words.pin_sections(()) == []
    assert words.pin_lines(()) == ()


CHAINED = JoinGraph(("r", "s", "t"), (frozenset("rs"), frozenset("st")))


@pytest.mark.parametrize("adaptive", [True, False])
def test_a_pipeline_takes_any_order_without_a_cartesian_product(adaptive):
    loop = JoinLoop(CHAINED, JoinOptions(adaptive=adaptive).resolved())
    pin = loop.pipelines["s"]
    assert pin.plan == ["r", "t"]
    pin.hold(["t", "r"])
    assert (loop.plan["s"], pin.is_held, pin.is_adaptive) == (("t", "r"), True, adaptive)
    for plan in (["s", "t"], ["t"], ["t", "t"], [["t"], "r"], "tr"):
        with pytest.raises(PlanError, match="in an order in which each is joined"):
            pin.hold(plan)
    with pytest.raises(PlanError, match="no plan of 'pipeline r'"):
        loop.pipelines["r"].hold(["t", "s"])
    pin.release()
    assert not pin.is_held


def test_plans_that_are_no_names_are_told_in_words(pins):
    tiers = TierChoice({"s": 10_000_000})
    targets = {"constraints": tiers}
    (entry,) = pins.pin(targets, {"constraints": {"s": 7_000_000}}, 3)
    assert (entry.before, entry.after) == ("s all hot", "s hot for 7 s")
    pins.apply(targets, 3)
    ((_, said),) = words.pin_sections(pins.views(targets))[0].parts[0].pairs
    assert said == "s hot for 7 s: pinned by a person after batch 3"
    other = {"constraints": TierChoice({"t": 10_000_000})}
    (view,) = pins.views(other)  # what it was of has changed: the next batch ends it
    assert view.words == {"s": 7_000_000}
    (entry,) = pins.adapt(targets, 4)
    assert (entry.before, entry.after) == ("s hot for 7 s", "s hot for 7 s")
