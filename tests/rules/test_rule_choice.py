"""The choice of a plan of rules: from rows, anew after a change, within bounds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from eddyline.options import SharingOptions
from eddyline.query.conditions import And, Compare, Operand, Rule
from eddyline.rules.choice import FIRST_ROWS, MAX_PARTS, RuleChoice
from eddyline.rules.compile.program import compile_rules
from eddyline.rules.match.matcher import Matcher
from eddyline.rules.plan import MAX_SAMPLED, SharingProfile
from eddyline.rules.planning.access_predicates import MIN_ROWS, plan_of
from eddyline.sql.types import INT

A, B = (Operand(f"`{name}`", INT, (name,)) for name in "ab")
N_RULES = 40
PROGRAM = compile_rules(
    [Rule(f"r{k}", And((Compare(A, "=", k), Compare(B, "=", k)))) for k in range(N_RULES)]
)
SECOND = 10**9


OF_LOOP = ("sample_rows", "review_rows", "min_change")
"""Settings of a loop that are arguments of it, and no options of a set of rules."""


def loop_of(program, settings, **more) -> RuleChoice:
    """Return a loop with some settings: options, and those of ``OF_LOOP``."""
    of_loop = {name: settings[name] for name in OF_LOOP if name in settings}
    options = {name: value for name, value in settings.items() if name not in OF_LOOP}
    return RuleChoice(program, SharingOptions.of(**options).resolved(), **of_loop, **more)


class Run:
    """Batches through a matcher under the plans of a loop; evaluation takes what it is told."""

    def __init__(self, *, evaluation_ns=SECOND, planning_ns=0, seed=1, **options):
        self.now = 0
        self.planning_ns = planning_ns
        self.loop = loop_of(PROGRAM, options, clock=self.clock)
        self.matcher = Matcher(PROGRAM, self.loop.sharing)
        self.rng = np.random.default_rng(seed)
        self.evaluation_ns = evaluation_ns
        self.n_seen = 0
        self.entries = []
        self.pairs = []

    def clock(self):
        self.now += self.planning_ns
        return self.now

    def batch(self, *, rare_a, n_rows=1_000):
        rare, common = self.rng.integers(0, 4_000, n_rows), self.rng.integers(0, N_RULES, n_rows)
        values = (rare, common) if rare_a else (common, rare)
        columns = [pa.array(each, pa.int32()) for each in values]
        if PROGRAM.columns[0] != A.sql:
            columns.reverse()
        self.matcher.follow(self.loop.sharing)
        sample = self.loop.sample(7, self.n_seen, n_rows)
        matches, seen = self.matcher.match(columns, n_rows=n_rows, sample=sample)
        wanted = np.flatnonzero((rare == common) & (rare < N_RULES))
        assert matches.rows.tolist() == wanted.tolist()
        assert matches.rules.tolist() == rare[wanted].tolist()
        self.n_seen += n_rows
        self.pairs.append(seen.candidates.sum() / n_rows)
        self.entries += self.loop.step(replace(seen, evaluation_ns=self.evaluation_ns), 3)

    def batches(self, count, **given):
        for _ in range(count):
            self.batch(**given)
        return self


def whys(run):
    return [entry.evidence["why"] for entry in run.entries]


def test_the_first_plan_waits_for_enough_rows():
    run = Run(sample_prob=0.0)
    assert run.loop.wants_first_rows
    assert len(run.loop.sample(1, 0, 10_000)) == FIRST_ROWS
    run.batches(MIN_ROWS - 1, rare_a=False, n_rows=1)
    assert not run.loop.is_measured
    assert run.entries == []
    run.batch(rare_a=False, n_rows=1)
    assert run.loop.is_measured
    assert len(run.loop.sample(1, 0, 10_000)) == 0
    (entry,) = run.entries
    assert (entry.batch_id, entry.component, entry.event) == (3, "rules", "sharing")
    assert entry.evidence["why"] == "first sample"
    assert entry.evidence["sampled_rows"] == MIN_ROWS


def test_what_may_not_adapt_keeps_its_plan_and_remembers_nothing():
    run = Run(adaptive=False)
    first = run.loop.sharing
    run.batches(30, rare_a=True).batches(30, rare_a=False)
    assert run.loop.sharing is first
    assert run.entries == []
    assert run.loop.profile.n_rows == 0
    assert run.loop.total.n_rows == 60_000


@pytest.mark.parametrize("method", ["auto", "witnesses"])
@pytest.mark.parametrize("sample_prob", [0.02, 0.1])
def test_a_drift_is_recovered_from(method, sample_prob):
    run = Run(method=method, sample_prob=sample_prob, review_rows=20_000)
    run.batches(53, rare_a=True)  # in the middle of a period
    assert run.pairs[-1] < 0.05
    run.batches(6, rare_a=False)
    if (
        method == "witnesses"
    ):  # they are those of the other distribution; blocks are as good as ever
        assert min(run.pairs[-6:]) > 0.9
    run.batches(74, rare_a=False)
    assert max(run.pairs[-10:]) < 0.05
    fresh = Run(method=method, sample_prob=sample_prob).batches(5, rare_a=False)
    assert np.mean(run.pairs[-10:]) < 2 * max(np.mean(fresh.pairs[-3:]), 0.005)


def test_a_first_sample_that_was_not_like_the_rest_is_recovered_from():
    run = Run(review_rows=20_000, sample_prob=0.05)
    run.batch(rare_a=True)
    run.batches(30, rare_a=False)
    assert max(run.pairs[-5:]) < 0.05


def test_without_a_change_a_plan_stays():
    run = Run(review_rows=5_000, sample_prob=0.05)
    run.batches(200, rare_a=True)
    assert len(run.entries) <= 2
    assert "rows meet another number of rules" not in whys(run)


@pytest.mark.large
def test_planning_takes_a_bounded_share_of_the_time():
    slow = {"planning_ns": SECOND, "review_rows": 1_000, "min_change": 0.0, "sample_prob": 0.5}
    run = Run(evaluation_ns=SECOND // 4, **slow)  # planning takes one tick of the clock: a second
    began = run.now
    run.batches(800, rare_a=True)
    n_planned = (run.now - began) // (2 * SECOND)
    # 200 seconds of evaluation; once at first, then for every 20 seconds at most.
    assert 2 <= n_planned <= 1 + 10


def test_at_no_change_at_all_every_look_plans():
    run = Run(planning_ns=1, review_rows=1_000, min_change=0.0, sample_prob=0.5)
    run.batches(20, rare_a=True)
    assert run.now // 2 >= 9  # two ticks each


@pytest.mark.large
@pytest.mark.parametrize("sample_prob", [0.0, 0.01, 1.0])
def test_small_batches_do_not_pile_up(sample_prob):
    loop = RuleChoice(PROGRAM, SharingOptions(sample_prob=sample_prob), review_rows=10**9)
    empty = SharingProfile.empty(PROGRAM)
    for at in range(5_000):
        n_sampled = len(loop.sample(5, at, 1))
        loop.step(
            replace(
                empty,
                n_rows=1,
                n_sampled=n_sampled,
                sampled_regions=np.ones((n_sampled, len(PROGRAM.regions)), np.int32),
            )
        )
        assert len(loop._window) <= 2 * MAX_PARTS
    assert loop.total.n_rows == 5_000
    if sample_prob == 1.0:
        most = MAX_SAMPLED
        assert most <= loop.profile.n_sampled <= most * (1 + 2 / MAX_PARTS)


def test_a_loop_goes_on_with_anothers_plan():
    plan = plan_of(PROGRAM, method="every_row")
    loop = RuleChoice(PROGRAM, SharingOptions(sample_prob=0.0), plan=plan, is_measured=True)
    assert loop.sharing is plan
    assert not loop.wants_first_rows
    assert len(loop.sample(1, 0, 1_000)) == 0


def test_no_rules():
    program = compile_rules([])
    loop = RuleChoice(program, SharingOptions(), min_change=0.0, review_rows=1)
    matcher = Matcher(program, loop.sharing)
    for _ in range(5):
        matches, seen = matcher.match([], n_rows=300, sample=loop.sample(1, 0, 300))
        assert len(matches.rows) == 0
        assert loop.step(seen) == []
