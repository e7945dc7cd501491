"""Pipelines of joins in the log of plans: known again by what windows drop, priced by look-ups."""

from __future__ import annotations

import msgspec
import numpy as np

from eddyline.joins.graph import JoinGraph
from eddyline.joins.orders.pipelines import JoinLoop
from eddyline.joins.orders.probe_order import way_filters
from eddyline.joins.plan import JoinProfile
from eddyline.options import JoinOptions
from eddyline.runtime.plan_log import PlanLog
from tests.joins.test_join_orders import sample_of

STAR = JoinGraph(tuple("rstu"), tuple(frozenset({"r", name}) for name in "stu"))
TRIANGLE = JoinGraph(tuple("rst"), tuple(map(frozenset, ("rs", "rt", "st"))))
DROPS = np.array([[0.9, 0.5, 0.1], [0.1, 0.5, 0.9]])
"""Shares of the rows of r that find no partner in s, t and u, in two situations."""


class Life:
    """The pipeline of r, batch by batch."""

    def __init__(self, seed=0):
        self.rng, self.n = np.random.default_rng(seed), 0
        self.loop = JoinLoop(STAR, JoinOptions())
        self.filters = way_filters(STAR, "r", {})
        self.log, self.entries = PlanLog(), []

    @property
    def target(self):
        return self.loop.pipelines["r"]

    def batch(self, drop_fracs, n_rows=45, n_partners=None):
        drops = self.rng.random((n_rows, 3)) < drop_fracs
        sample = sample_of(self.filters, drops, prob=0.1, n_partners=n_partners)
        ran_under = {"pipeline r": self.target.plan}
        self.loop.step(JoinProfile((sample,), ns=10**12), self.n)
        targets = {"pipeline r": self.target}
        self.entries += self.log.step(targets, ran_under, 10**6, self.n)
        self.n += 1

    def view(self):
        return self.log.views({"pipeline r": self.target})[0]


def test_an_order_of_look_ups_is_recalled():
    life = Life()
    for n in range(6):
        for _ in range(6):
            life.batch(DROPS[n % 2])
            if n > 1:  # in the first batch
                assert life.target.plan[0] == ("u" if n % 2 else "s")
    recalls = [each for each in life.entries if each.event == "recall"]
    assert [each.after[0] for each in recalls] == ["s", "u", "s", "u"]
    view = life.view()
    assert (view.n_situations, view.n_mistaken) == (2, 0)
    # 45 sampled rows of a batch stand for 450 new rows of r, whatever else the query takes in.
    assert view.n_rows == 36 * 450
    assert 0.0 < view.hindsight.saved < 1.0


def test_the_log_of_a_join_outlives_its_process():
    def lived(restarts):
        life = Life(7)
        for n in range(24):
            life.batch(DROPS[n // 6 % 2])
            if restarts and n in (9, 14):
                saved = msgspec.json.encode([life.loop.snapshot(), life.log.snapshot()])
                loop, log = msgspec.json.decode(saved)
                life.loop, life.log = JoinLoop(STAR, JoinOptions()), PlanLog()
                life.loop.restore(loop)
                life.log.restore(log, {"pipeline r": life.target})
        # A loop that was restored forgets how much of its window was new, so what is in force
        # before a recall may be another order.
        return [(each.batch_id, each.event, each.after, each.evidence) for each in life.entries]

    assert lived(restarts=True) == lived(restarts=False)
    assert len(lived(restarts=True)) == 2


def test_where_ways_make_more_combinations_nothing_is_logged():
    life = Life()
    life.batch(DROPS[0])
    assert life.view().why_not == ""
    for _ in range(3):
        life.batch(DROPS[0], n_partners=[150, 20, 40])
    assert "more combinations" in life.view().why_not
    (log,) = life.log._logs.values()
    assert log.n_left_out == 3 * 450


def test_where_predicates_close_a_cycle_it_is_said_that_nothing_is_logged():
    target = JoinLoop(TRIANGLE, JoinOptions()).pipelines["r"]
    assert "close a cycle" in target.why_unlogged
    log = PlanLog()
    assert log.step({"pipeline r": target}, {}, 100, 0) == []
    assert log.views({"pipeline r": target})[0].why_not == target.why_unlogged
