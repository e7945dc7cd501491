"""Where rows become cells: the plan by what batches showed, and plans in the log."""

from __future__ import annotations

import msgspec
import pytest

from eddyline.aggregates.loop import CELL_BYTES, FEW, MANY, AggregateLoop, AggregateProfile
from eddyline.errors import StateError
from eddyline.report import decisions as words
from eddyline.runtime.plan_log import PlanLog


def plans_after(loop, *profiles):
    """Return the plan after each batch."""
    found = []
    for number, profile in enumerate(profiles):
        before, entries = loop.plan, loop.step(profile, number)
        assert [(each.before, each.after) for each in entries] == (
            [] if loop.plan == before else [(before, loop.plan)]
        )
        assert all(each.evidence["n_handled"] == profile.n_handled for each in entries)
        found.append(loop.plan)
    return found


def batch(n_cells, rows_per_cell=3.0, **more):
    return AggregateProfile(int(n_cells * rows_per_cell), n_cells, **more)


@pytest.mark.parametrize(
    ("profile", "plan"),
    [
        (batch(1), "driver"),
        (batch(FEW), "driver"),
        (batch(FEW + 1), "early"),
        (batch(10, n_read=FEW), "early"),
        (batch(10, n_results=FEW), "early"),
        (batch(10, n_bytes=FEW * CELL_BYTES + 1), "early"),
        (batch(FEW + 1, 1.0), "late"),
        (batch(FEW, 1.0), "driver"),
        (AggregateProfile(), "early"),
    ],
)
def test_few_cells_are_answered_by_the_driver(profile, plan):
    assert plans_after(AggregateLoop(), profile) == [plan]


def test_it_takes_twice_as_many_to_leave_the_driver():
    batches = batch(10), batch(2 * FEW), AggregateProfile(), batch(2 * FEW + 1), batch(2 * FEW)
    assert plans_after(AggregateLoop(), *batches) == ["driver"] * 3 + ["early"] * 2


def test_the_driver_answers_more_cells_where_it_also_reads_and_writes():
    loop = AggregateLoop()
    loop.few = MANY
    assert plans_after(loop, batch(MANY), batch(2 * MANY), batch(2 * MANY + 1)) == [
        *["driver"] * 2,
        "early",
    ]


@pytest.mark.parametrize(
    ("loop", "n_rows", "plan"),
    [
        (AggregateLoop(), FEW, "driver"),
        (AggregateLoop(), FEW + 1, "early"),
        (AggregateLoop(adaptive=False), 1, "early"),
        (AggregateLoop(plans=("early", "late")), 1, "early"),
    ],
)
def test_a_first_batch_of_few_rows_is_one_for_the_driver(loop, n_rows, plan):
    entries = loop.decide_first(n_rows, 0)
    assert loop.plan == plan
    assert [each.after for each in entries] == (["driver"] if plan == "driver" else [])
    for each in entries:
        assert words.sentence(each) == (
            "The first batch has 100,000 rows: the driver answers the cells, without tasks for "
            "them."
        )
    loop.step(batch(3 * FEW))
    assert loop.decide_first(1, 1) == [], "of another batch it is known"
    assert loop.plan == "early"


def test_who_leaves_the_driver_goes_by_the_rows_of_a_cell():
    assert plans_after(AggregateLoop(), batch(10), batch(3 * FEW, 1.0)) == ["driver", "late"]
    between = plans_after(AggregateLoop(), batch(10, 1.5), batch(3 * FEW, 1.5))
    assert between == ["driver", "early"], "of which it is the one as written"


def test_cells_that_grow_with_their_rows_are_never_fetched():
    loop = AggregateLoop(plans=("early", "late"))
    assert plans_after(loop, batch(10), batch(5_000, 1.0), batch(10)) == ["early", "late", "late"]
    saved = msgspec.to_builtins(AggregateLoop(plan="driver").snapshot())
    with pytest.raises(StateError, match="no plan 'driver'"):
        loop.restore(saved)


def test_switched_off_nothing_is_decided():
    assert (
        plans_after(AggregateLoop(adaptive=False), batch(10), batch(9 * FEW, 1.0)) == ["early"] * 2
    )


FEW_CELLS = AggregateProfile(n_rows=10_000, n_cells=10)
MANY_CELLS = AggregateProfile(n_rows=10_000, n_cells=9_000)


class Life:
    """An aggregate and the log of its plans."""

    def __init__(self, *plans, recalls=True):
        self.target = AggregateLoop(plans=plans)
        self.log = PlanLog(recalls=recalls)
        self.plans, self.decided = [], []

    def batch(self, profile):
        ran_under = {"aggregate": self.target.plan}
        self.plans.append(self.target.plan)
        self.target.step(profile)
        targets = {"aggregate": self.target}
        self.decided += self.log.step(targets, ran_under, profile.n_rows, len(self.plans))

    def view(self):
        return self.log.views({"aggregate": self.target})[0]


def work(plan, profile):
    """Rows' worth of work for each row: shuffled as 1, reduced as 0.487."""
    cells = profile.n_cells / profile.n_rows
    return 1.487 if plan == "late" else 0.487 + cells * 1.487


def test_a_plan_is_recalled_after_one_batch_and_what_that_brought_is_known():
    lives = [Life("early", "late"), Life("early", "late", recalls=False)]
    for profile in ([FEW_CELLS] * 4 + [MANY_CELLS] * 6) * 3:
        for life in lives:
            life.batch(profile)
    with_log, without = ("".join(plan[0] for plan in life.plans) for life in lives)
    # The loop alone holds three batches against those of before until it shuffles rows.
    assert without == "eeeeeeelll" + 2 * "leeeeeelll"
    assert with_log == "eeeeeeelll" + 2 * "leeeelllll"
    assert [each.event for each in lives[0].decided] == ["recall"] * 2
    for life in lives:
        view = life.view()
        assert (view.n_situations, view.n_rows) == (2, 300_000)
        profiles = ([FEW_CELLS] * 4 + [MANY_CELLS] * 6) * 3
        took = [work(*each) for each in zip(life.plans, profiles, strict=True)]
        assert view.hindsight.cost == pytest.approx(sum(took) / 30, rel=0.001)
        early = 0.4 * work("early", FEW_CELLS) + 0.6 * work("early", MANY_CELLS)
        assert view.hindsight.best == "early"
        assert view.hindsight.best_cost == pytest.approx(early, rel=0.001)
    (section,) = words.log_sections([lives[0].view()])
    assert "1.29 shuffled rows' worth per row" in section.parts[1].pairs[0][1]
    assert "2 plans recalled" in section.parts[1].pairs[0][1]


def test_where_nothing_recurs_nothing_is_recalled():
    life = Life("early", "late")
    for profile in [MANY_CELLS] * 8 + [FEW_CELLS] * 8:
        life.batch(profile)
    assert life.decided == []


@pytest.mark.parametrize("n_handled", [10_000, 99_000, 101_000, 300_000])
def test_prices_are_those_of_the_thresholds_of_the_loop(n_handled):
    pin = AggregateLoop()
    n_cells = n_handled // 2
    pin.step(AggregateProfile(10**6, n_cells, n_handled - n_cells))
    evidence = pin.situation().evidence
    best = min(pin.plans, key=lambda plan: pin.cost_of(plan, evidence))
    assert best == pin.plan == ("driver" if n_handled <= 100_000 else "early")


@pytest.mark.parametrize(("ratio", "plan"), [(1.2, "late"), (1.8, "early")])
def test_rows_of_a_cell_decide_what_is_shuffled(ratio, plan):
    pin = AggregateLoop(plans=("early", "late"))
    pin.step(AggregateProfile(10**6, int(10**6 / ratio)))
    evidence = pin.situation().evidence
    assert min(pin.plans, key=lambda each: pin.cost_of(each, evidence)) == pin.plan == plan


def test_an_empty_batch_tells_nothing():
    life = Life("early", "late")
    life.batch(AggregateProfile())
    assert life.view().n_rows == 0.0


def test_a_log_whose_evidence_is_of_cells_alone_begins_anew():
    life = Life("early", "late")
    life.batch(FEW_CELLS)
    state = msgspec.to_builtins(life.log.snapshot())
    state["aggregate"]["identity"] = ""
    for each in state["aggregate"]["situations"]:
        each["evidence"] = 0.001
    log = PlanLog()
    log.restore(state, {"aggregate": life.target})
    assert log.snapshot() == {}
