"""Plans of rules in the log: known again and priced by rates of literals."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from eddyline.errors import StateError
from eddyline.query.conditions import Compare, Rule
from eddyline.rules.choice import NOT_KEPT, RuleChoice
from eddyline.rules.compile.program import compile_rules
from eddyline.rules.planning.access_predicates import PAIR_NS, WALK_NS
from eddyline.runtime.plan_log import LogView, PlanLog
from tests.rules.test_rule_choice import PROGRAM, A, Run, loop_of

OPTIONS = {
    "method": "witnesses",
    "sample_prob": 0.1,
    "sample_rows": 1_000,
    "review_rows": 5_000,
}


class Life(Run):
    """Rules and the log of their plans, batch by batch."""

    def __init__(self, *, recalls=True, seed=1):
        super().__init__(seed=seed, **OPTIONS)
        self.loop = loop_of(PROGRAM, OPTIONS, logged_as="tens", clock=self.clock)
        self.log, self.n, self.decided = PlanLog(recalls=recalls), 0, []

    @property
    def targets(self):
        return {"rules": self.loop}

    def phase(self, n_batches, *, rare_a):
        """Run some batches; returns the pairs of row and rule that each met for a row."""
        for _ in range(n_batches):
            ran_under = {"rules": self.targets["rules"].plan}
            self.batch(rare_a=rare_a)
            self.decided += self.log.step(self.targets, ran_under, 1_000, self.n)
            self.n += 1
        return self.pairs[-n_batches:]

    def view(self):
        return self.log.views(self.targets)[0]


@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(seed, marks=pytest.mark.large) for seed in (2, 3))]
)
def test_a_plan_of_rules_is_recalled_after_one_batch_of_its_situation(seed):
    life, without = Life(seed=seed), Life(seed=seed, recalls=False)
    for n in range(6):
        pairs = life.phase(20, rare_a=bool(n % 2))
        learned = without.phase(20, rare_a=bool(n % 2))
        if n > 1:
            # 40 rules of a value in 4,000: 0.01 pairs a row, and 1 by the other column.
            assert max(pairs[1:]) < 0.05
            assert min(learned[1:5]) > 0.9  # until 5,000 rows are there to be reviewed
    assert [each.event for each in life.decided] == ["recall"] * 4
    assert all(isinstance(each.after, str) for each in life.decided)
    view = life.view()
    assert (view.n_situations, view.n_mistaken, view.n_rows) == (2, 0, 120_000)
    assert without.view().n_right == 0


def test_what_adapting_brought_is_that_of_the_counted_pairs():
    life = Life()
    for _ in range(2):
        life.phase(45, rare_a=True)
        life.phase(15, rare_a=False)
    walking = 2 * WALK_NS
    cost = walking + PAIR_NS * np.mean(life.pairs)
    # By the first column a quarter of the rows meet a rule, and of the others one in a hundred.
    single = walking + PAIR_NS * (0.25 + 0.75 * 0.01)
    assert life.view().hindsight.saved == pytest.approx(1 - cost / single, abs=0.02)


def test_a_plan_that_was_never_learned_in_a_situation_is_chosen_by_its_evidence():
    life = Life()
    life.loop.review_rows = 10**6
    life.phase(4, rare_a=True)
    assert min(life.phase(4, rare_a=False)) > 0.9  # never reviewed
    life.phase(4, rare_a=True)
    pairs = life.phase(4, rare_a=False)
    assert pairs[0] > 0.9
    assert max(pairs[1:]) < 0.05


def test_where_nothing_recurs_nothing_is_recalled():
    life, without = Life(), Life(recalls=False)
    for each in (life, without):
        each.phase(30, rare_a=True)
    assert life.decided == []
    assert life.pairs == without.pairs
    assert life.view().n_situations == 1


def test_the_log_of_rules_outlives_its_process():
    life = Life()
    for n in range(2):
        life.phase(20, rare_a=bool(n % 2))
    saved = msgspec.json.decode(msgspec.json.encode([life.loop.snapshot(), life.log.snapshot()]))
    again = Life(seed=9)
    again.loop.restore(saved[0])
    again.log.restore(saved[1], again.targets)
    assert max(again.phase(4, rare_a=False)[1:]) < 0.05
    assert [each.event for each in again.decided] == ["recall"]
    (_, state) = saved
    state["rules"]["situations"][0]["evidence"] = [0.5]
    with pytest.raises(StateError, match="the saved log of plans is damaged"):
        PlanLog().restore(state, again.targets)


def test_other_rules_begin_another_log():
    life = Life()
    life.phase(4, rare_a=True)
    before = life.targets["rules"].plan
    few = compile_rules([Rule("r", Compare(A, "=", 3))])
    life.loop = RuleChoice(few, life.loop.options, logged_as="one")
    assert life.view() == LogView("rules")
    life.log.step(life.targets, {"rules": life.targets["rules"].plan}, 1_000, 4)
    assert life.view().n_left_out == 5_000
    assert not life.targets["rules"].is_possible(before)


def test_choices_of_tasks_and_statements_are_not_logged_and_it_is_said_why():
    target = Run(**OPTIONS).loop
    assert target.why_unlogged == NOT_KEPT
    assert PlanLog().views({"rules": target})[0].why_not == NOT_KEPT
