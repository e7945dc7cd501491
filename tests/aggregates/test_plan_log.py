"""Plans of aggregates in the log: what is shuffled, and what the best single plan would shuffle."""

from __future__ import annotations

import pytest

from eddyline.aggregates.loop import AggregateLoop
from eddyline.aggregates.pin import AggregatePin
from eddyline.aggregates.profile import AggregateProfile
from eddyline.runtime.plan_log import PlanLog
from eddyline.watch import plan_log as words

FEW = AggregateProfile(n_rows=10_000, n_cells=10)
MANY = AggregateProfile(n_rows=10_000, n_cells=9_000)


class Life:
    """An aggregate and the log of its plans."""

    def __init__(self, *plans):
        self.target = AggregatePin(AggregateLoop(plans=plans))
        self.log = PlanLog()
        self.shuffled = []
        """Rows or cells for each row, batch by batch."""

    def batch(self, profile):
        ran_under = {"aggregate": self.target.plan}
        is_late = self.target.plan == "late"
        self.shuffled.append(1.0 if is_late else profile.n_cells / max(profile.n_rows, 1))
        self.target.loop.step(profile)
        return self.log.step({"aggregate": self.target}, ran_under, profile.n_rows, 0)

    def view(self):
        return self.log.views({"aggregate": self.target})[0]


def test_what_was_shuffled_is_held_against_one_plan_for_all():
    life = Life("early", "late")
    for profile in [FEW] * 4 + [MANY] * 4 + [FEW] * 4:
        assert life.batch(profile) == []  # the loop decides by the batch, nothing is recalled
    view = life.view()
    assert (view.n_situations, view.n_rows) == (2, 120_000)
    assert view.hindsight.cost == pytest.approx(sum(life.shuffled) / 12)
    assert {0.001, 0.9, 1.0} == set(life.shuffled)
    assert view.hindsight.best == "early"
    assert view.hindsight.best_cost == pytest.approx((8 * 0.001 + 4 * 0.9) / 12)
    (section,) = words.sections([view])
    assert "0.301 rows or cells shuffled per row" in section.parts[1].pairs[0][1]


def test_the_driver_has_no_price():
    life = Life("early", "late", "driver")
    for _ in range(4):
        life.batch(FEW)
    view = life.view()
    assert life.target.plan == "driver"
    assert view.hindsight.n_unpriced == 1
    (section,) = words.sections([view])
    assert "what was in force cannot be priced" in section.parts[1].pairs[0][1]
    assert "1 without a price left out" in section.parts[1].pairs[0][1]


def test_an_empty_batch_tells_nothing():
    life = Life("early", "late")
    life.batch(AggregateProfile())
    assert life.view().n_rows == 0.0
