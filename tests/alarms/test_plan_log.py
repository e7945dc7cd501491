"""Plans of alarms in the log: known again by what holds, priced by how values are spread."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from benchmarks.alarms.adaptive import TEMPLATES
from benchmarks.alarms.data import program_over, segments_of
from benchmarks.alarms.prices import observed, priced

from eddyline.alarms.loop import WARM_UP, AlarmLoop
from eddyline.alarms.pin import AlarmPin
from eddyline.alarms.plan import TemplatePlan, fixed_plans, plain
from eddyline.errors import StateError
from eddyline.options import AlarmOptions
from eddyline.report import decisions as words
from eddyline.runtime.plan_log import PlanLog
from tests.alarms.alone import ranges_of
from tests.alarms.test_loop import NEAR, NEAR_TEXT, lines

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


class Life:
    """Alarms and the log of their plans, batch by batch, at fixed prices of work."""

    def __init__(self, *, recalls=True):
        self.program = program_over(block(0, swapped=False), TEMPLATES["three"])
        (self.template,) = self.program.templates
        self.loop = AlarmLoop(AlarmOptions(), self.program)
        self.log, self.n, self.decided = PlanLog(recalls=recalls), 0, []

    @property
    def targets(self):
        return {"alarms": AlarmPin(self.loop)}

    def phase(self, n_batches, *, swapped):
        """Run batches; returns the work of the plan after each over that of the best one."""
        found = []
        for _ in range(n_batches):
            segments, before = block(self.n, swapped=swapped), self.targets["alarms"].plan
            samples = self.loop.wants_sample
            _, profile, _ = observed(self.program, segments, self.loop.plan, samples=samples)
            self.decided += self.loop.step(profile, self.n)
            self.decided += self.log.step(self.targets, {"alarms": before}, N_ROWS, self.n)
            self.n += 1
            plans = fixed_plans(self.template)
            costs = [priced(self.program, segments, {self.template.text: p}) for p in plans]
            found.append(priced(self.program, segments, self.loop.plan) / min(costs))
        return found

    def view(self):
        return self.log.views(self.targets)[0]

    def count(self, event):
        return sum(each.event == event for each in self.decided)


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
            _, profile, _ = observed(life.program, block(at, swapped=True), life.loop.plan)
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
    pin = AlarmPin(loop)
    pin.hold({NEAR_TEXT: {"sharing": way, "order": ["x > ?", "y < ?"]}})
    took = dict.fromkeys(fixed_plans(template), 0)
    for at in range(WARM_UP):  # values of these are sampled
        program = ranges_of(lines(at), NEAR).program
        _, profile, _ = observed(program, lines(at), loop.plan)
        loop.step(profile, at)
        log.step({"alarms": pin}, {"alarms": pin.plan}, 4_000, at)
        for each in took:
            took[each] += priced(program, lines(at), {NEAR_TEXT: each})
    seen = log.views({"alarms": pin})[0].hindsight
    held = took[TemplatePlan(way, (0, 1))]
    assert seen.cost == pytest.approx(held / WARM_UP / 4_000, rel=0.05)
    assert seen.cost / seen.best_cost == pytest.approx(held / min(took.values()), rel=0.2)
    best = min(took, key=took.__getitem__)
    assert seen.best == pin.said({NEAR_TEXT: plain(best, template)})
    if way == "unshared":
        assert seen.saved < -1
