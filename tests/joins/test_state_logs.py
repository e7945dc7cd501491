"""Tiers, done rows and cuts of a join in the log of plans."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from eddyline.errors import StateError
from eddyline.joins.caches.choice import JoinCaches
from eddyline.joins.plan import MATCHED, DoneCounts
from eddyline.joins.tiers import MARGIN, TRIAL, DoneChoice, TierChoice
from eddyline.report import decisions as words
from eddyline.runtime.plan_log import PlanLog
from tests.joins.test_done import HOT, NS
from tests.joins.test_grid import CHAIN, counted
from tests.joins.test_grid import loop as grid_loop
from tests.joins.test_tiers import LENGTH, ages

SECOND = 1_000_000


class Life:
    """A loop and the log of its plans, batch by batch."""

    def __init__(self, loop, *, recalls=True):
        self.loop = self.target = loop
        self.log, self.n, self.decided = PlanLog(recalls=recalls), 0, []
        self.rng = np.random.default_rng(3)

    def batch(self, learn):
        targets = {self.target.component: self.target}
        ran_under = {self.target.component: self.target.plan}
        learn(self.loop, self.n)
        self.decided += self.log.step(targets, ran_under, 1_000, self.n)
        self.n += 1

    def view(self):
        return self.log.views({self.target.component: self.target})[0]

    def restarted(self, loop):
        """Return the same in another process, as JSON has it."""
        saved = msgspec.json.encode([self.loop.snapshot(), self.log.snapshot()])
        state, log = msgspec.json.decode(saved)
        again = Life(loop)
        again.loop.restore(state)
        again.log.restore(log, {again.target.component: again.target})
        log[again.target.component]["situations"][0]["evidence"] = 3
        with pytest.raises(StateError, match="the saved log of plans is damaged"):
            PlanLog().restore(log, {again.target.component: again.target})
        return again


# -- tiers ----------------------------------------------------------------------------------------


def tiers(recalls=True):
    return Life(TierChoice({"s": LENGTH}), recalls=recalls)


def aged(life, most, n_batches):
    """Feed batches whose pairs are so old at most; returns for how long rows are hot after each."""
    spans = []
    for _ in range(n_batches):
        found = ages(most, rng=life.rng, n_pairs=5_000)
        life.batch(lambda loop, n, found=found: loop.step({"s": found}, {"s": (n + 9) * LENGTH}, n))
        spans.append(life.loop.plan["s"])
    return spans


def _cost(span, most):
    """The share of the window that rows are hot, and of pairs that are looked for elsewhere."""
    return 1.0 if span is None else span / LENGTH + max(0.0, 1 - span / most)


def test_tiers_are_recalled_after_one_batch():
    life, without, costs = tiers(), tiers(recalls=False), []
    for most in [SECOND, 100 * SECOND] * 3 + [SECOND]:
        before = life.loop.plan["s"]
        spans, learned = aged(life, most, 12), aged(without, most, 12)
        costs += [_cost(span, most) for span in [before, *spans[:-1]]]
    # What is hot is raised at once in both, and lowered at once in one of them.
    assert max(spans) <= 1.06 * MARGIN * SECOND
    assert max(spans) < 1.01 * min(spans)
    assert min(learned) > 2 * SECOND
    assert {each.event for each in life.decided} == {"recall"}
    assert life.decided[-1].after.startswith("s hot for 1.0")
    view = life.view()
    assert (view.n_situations, view.n_mistaken) == (2, 0)
    assert view.hindsight.cost == pytest.approx(np.mean(costs), rel=0.01)
    # The best single one holds what the wider situation needs, for all of the time.
    assert view.hindsight.best_cost == pytest.approx(_cost(105 * SECOND, SECOND), rel=0.01)
    assert without.view().hindsight.saved < view.hindsight.saved
    assert "windows of hot rows per row" in words.log_sections([view])[0].parts[1].pairs[0][1]


def test_tiers_that_were_recalled_by_mistake_cost_time_alone():
    life = tiers()
    for most in (SECOND, 100 * SECOND, SECOND):
        aged(life, most, 12)
    assert life.loop.plan["s"] < 2 * SECOND
    (span,) = aged(life, 300 * SECOND, 1)
    assert span >= 290 * SECOND, "a larger bound is in force at once, recalled or not"


def test_where_ages_never_change_nothing_is_recalled():
    life, without = tiers(), tiers(recalls=False)
    assert aged(life, SECOND, 30) == aged(without, SECOND, 30)
    assert life.decided == []


def test_the_log_of_tiers_outlives_its_process():
    life = tiers()
    for most in (SECOND, 100 * SECOND):
        aged(life, most, 12)
    again = life.restarted(TierChoice({"s": LENGTH}))
    assert max(aged(again, SECOND, 4)) <= 1.06 * MARGIN * SECOND


# -- done rows ------------------------------------------------------------------------------------


def fed(life, share, n_batches):
    """Feed batches of 1,000 rows of which a share is done; returns whether rows left after each."""
    left = []
    for _ in range(n_batches):
        n = int(1_000 * share)
        counts = DoneCounts(1_000, n // 2, n - n // 2, n_merged=2_000, merge_ns=4_000_000)
        if "p" in life.loop.leaving:
            counts.add(DoneCounts(n_left=n - n // 2, ns=1_000_000))
        life.batch(lambda loop, n, counts=counts: loop.step(["p"], {"p": counts}, HOT, NS, n))
        left.append("p" in life.loop.leaving)
    return left


def done(recalls=True):
    return Life(DoneChoice(MATCHED), recalls=recalls)


def test_rows_leave_again_after_one_batch_where_that_paid_before():
    life, without = done(), done(recalls=False)
    for each in (life, without):
        assert fed(each, 0.9, TRIAL + 14)[-1]
        assert not fed(each, 0.02, 30)[-1], "looking for them takes more than it saves"
    assert all(fed(life, 0.9, 30))
    assert not any(fed(life, 0.02, 30))
    assert not any(fed(without, 0.9, 30)), "it rests after a trial that did not pay"
    assert [each.event for each in life.decided] == ["recall", "recall"]
    assert life.decided[0].after == "p hot until matched"
    assert life.view().hindsight.saved > without.view().hindsight.saved


def test_the_log_of_done_rows_outlives_its_process_and_costs_nothing_where_nothing_recurs():
    life = done()
    fed(life, 0.9, TRIAL + 14)
    assert life.decided == []
    fed(life, 0.02, 30)
    again = life.restarted(DoneChoice(MATCHED))
    assert all(fed(again, 0.9, 4))


# -- cuts -----------------------------------------------------------------------------------------

LEFT, RIGHT = counted(1_000, same=0), counted(1_000, same=1)
"""All rows of s have one key of either class, so that it is not cut by that."""


def cut(life, bins, n_batches):
    """Feed batches whose hashes are spread so; returns the shape after each."""
    shapes = []
    for _ in range(n_batches):
        life.batch(lambda loop, n: loop.step([bins], n))
        shapes.append(life.loop.grid.shape)
    return shapes


def cuts(recalls=True):
    return Life(grid_loop(), recalls=recalls)


def test_a_cut_is_recalled_after_one_batch_and_not_more_often_than_it_is_looked_at():
    life, without = cuts(), cuts(recalls=False)
    for bins in [LEFT, RIGHT] * 3:
        shapes, learned = cut(life, bins, 24), cut(without, bins, 24)
    assert {*shapes} == {(4, 1)}
    assert learned[0] == (1, 4)
    assert learned[-1] == (4, 1)
    assert [each.event for each in life.decided] == ["recall"] * 4
    view = life.view()
    assert (view.n_situations, view.n_mistaken, view.hindsight.n_unpriced) == (2, 0, 0)
    assert view.hindsight.saved > without.view().hindsight.saved
    for bins in [LEFT, RIGHT] * 4:
        cut(life, bins, 1)
    recalls = [each for each in life.decided if each.event == "recall"]
    assert len(recalls) <= 5, "rows move once in so many batches"


def test_the_log_of_cuts_outlives_its_process():
    life = cuts()
    for bins in (LEFT, RIGHT):
        cut(life, bins, 24)
    again = life.restarted(grid_loop())
    again.loop.start(life.loop.grid)
    cut(again, RIGHT, 8)
    assert {*cut(again, LEFT, 4)} == {(1, 4)}


def test_caches_say_why_they_are_not_logged():
    caches = JoinCaches(CHAIN, "rst", cache_bytes=2**20)
    (view,) = PlanLog().views({"caches": caches})
    assert "begins empty" in view.why_not
