"""The order of a rule's tests of Python: greedy by what they decide for their cost, and learned."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddyline.errors import StateError
from eddyline.query.conditions import (
    And,
    Compare,
    FunctionTest,
    Not,
    Operand,
    Or,
    Rule,
    ValueTest,
)
from eddyline.query.predicates import FunctionPredicate
from eddyline.rules.choice import REORDERED
from eddyline.rules.compile.bitmap_block import BitmapBlocks
from eddyline.rules.compile.program import compile_rules
from eddyline.rules.match import matcher as asking
from eddyline.rules.match import residual
from eddyline.rules.match.matcher import Matcher
from eddyline.rules.plan import AskedProfile, PythonOrder, SharingProfile
from eddyline.rules.planning.planner import plan_from
from eddyline.rules.planning.python_order import MIN_ROWS, python_orders
from eddyline.sql.types import INT, STRING
from eddyline.stats.costs import CostSums
from tests.rules.test_rule_choice import loop_of

N = Operand("`n`", INT, ("n",))
NO, YES, RAISED = 2, 1, 8


def function(name, fn=None):
    return FunctionTest(FunctionPredicate(fn or (lambda n: n), ("`n`",), name))


F, G, H = map(function, "fgh")


def orders(tree, costs, answers, before=()):
    """Return the tests of the only rule by name, in the order that is chosen for it."""
    program = compile_rules([Rule("r", tree)])
    names = [each.test.predicate.name for each in program.externals]
    table = np.array([answers[name] for name in names], np.int8).T
    sums = CostSums.of_rows(10, np.array([float(costs[name]) for name in names]))
    profile = replace(SharingProfile.empty(program), python=AskedProfile(table, sums))
    found = python_orders(program, profile, before)
    tests = found[0].tests if found else program.ordered.of_rule[0]
    return "".join(names[each] for each in tests)


def often(share, value, n=100):
    """Return answers of which a share is a value, the first rows."""
    other = YES if value == NO else NO
    return [value if row < share * n else other for row in range(n)]


@pytest.mark.parametrize(
    ("tree", "costs", "answers", "wanted"),
    [
        pytest.param(
            And((F, G)), {"f": 1000, "g": 1}, {"f": often(0.5, NO), "g": often(0.9, NO)}, "gf",
            id="cheap and drops more",
        ),
        pytest.param(
            And((F, G)), {"f": 10, "g": 1}, {"f": often(0.95, NO), "g": often(0.02, NO)}, "fg",
            id="dear and worth it",
        ),
        pytest.param(
            Or((F, G)), {"f": 1, "g": 1}, {"f": often(0.1, YES), "g": often(0.8, YES)}, "gf",
            id="an OR wants rows that it accepts",
        ),
        pytest.param(
            Not(And((F, G))), {"f": 1, "g": 1}, {"f": often(0.1, NO), "g": often(0.8, NO)}, "gf",
            id="NOT of an AND",
        ),
        pytest.param(
            And((F, G, H)),
            {"f": 10, "g": 1, "h": 1},
            {"f": often(0.3, NO), "g": often(0.6, NO), "h": often(0.5, NO)},
            "ghf",
            id="g has dropped the rows of h and f",
        ),
        pytest.param(
            And((F, G, H)),
            {"f": 2, "g": 1, "h": 1},
            {"f": often(0.5, NO)[::-1], "g": often(0.5, NO), "h": often(0.4, NO)},
            "gfh",
            id="what is left after g counts",
        ),
        pytest.param(
            And((F, Or((G, H)))),
            {"f": 100, "g": 50, "h": 1},
            {"f": often(0.2, NO), "g": often(0.9, NO), "h": often(0.9, NO)},
            "hgf",
            id="a part of several tests",
        ),
        pytest.param(
            And((F, Or((Compare(N, ">", 5), G)))),
            {"f": 100, "g": 1},
            {"f": often(0.2, NO), "g": often(0.9, NO)},
            "gf",
            id="a part that asks only some rows",
        ),
        pytest.param(
            Or((And((F, G)), And((F, H)))),
            {"f": 100, "g": 1, "h": 1},
            {"f": often(0.5, NO), "g": often(0.99, NO), "h": often(0.99, NO)},
            "ghf",
            id="a test that two parts ask waits for the cheap ones of both",
        ),
        pytest.param(
            And((F, G)), {"f": 100, "g": 1}, {"f": often(0.2, NO), "g": [RAISED] * 100}, "fg",
            id="rows on which a test raised go on",
        ),
        pytest.param(
            And((F, G)), {"f": 100, "g": 1}, {"f": [0] * 90 + [1] * 10, "g": [NO] * 100}, "fg",
            id="too few rows",
        ),
        pytest.param(
            And((F, G)), {"f": 100, "g": 99}, {"f": often(0.5, NO), "g": often(0.5, NO)}, "fg",
            id="another is hardly cheaper",
        ),
    ],
)  # fmt: skip
def test_order(tree, costs, answers, wanted):
    assert orders(tree, costs, answers) == wanted


def test_an_order_in_force_stays_where_it_is_as_good():
    alike = {"f": often(0.5, NO), "g": often(0.5, NO)}
    before = [PythonOrder(0, (1, 0))]
    assert orders(And((F, G)), {"f": 99, "g": 100}, alike, before) == "gf"
    assert orders(And((F, G)), {"f": 10, "g": 100}, alike, before) == "fg"


def cost_of(order, costs, answers, ends):
    """Return what a flat AND (ends: NO) or OR costs in an order, row by row."""
    total = 0
    for row in range(len(answers["f"])):
        for name in order:
            total += costs[name]
            if answers[name][row] == ends:
                break
    return total


@given(st.data())
def test_the_greedy_order_is_within_four_times_the_best(data):
    kind, ends = data.draw(st.sampled_from([(And, NO), (Or, YES)]))
    costs = {name: data.draw(st.sampled_from([1, 3, 10, 100])) for name in "fgh"}
    answer = st.lists(st.sampled_from([YES, NO]), min_size=MIN_ROWS, max_size=MIN_ROWS)
    answers = {name: data.draw(answer) for name in "fgh"}
    found = orders(kind((F, G, H)), costs, answers)
    best = min(cost_of(order, costs, answers, ends) for order in itertools.permutations("fgh"))
    assert cost_of(found, costs, answers, ends) <= 4.4 * best  # 1.1: an order in force stays


# -- as rows come ---------------------------------------------------------------------------------


@pytest.fixture
def clock(monkeypatch):
    """Time that calls of functions alone move on: a busy machine changes no order."""
    Calls.passed_ns = 0
    for module in (asking, residual):
        monkeypatch.setattr(module, "work_ns", lambda: Calls.passed_ns)


class Calls:
    """A function that counts the rows that it is called on."""

    ROW_NS = 100
    passed_ns = 0

    def __init__(self, limit):
        self.limit = limit
        self.n_rows = 0

    def __call__(self, n):
        self.n_rows += len(n)
        Calls.passed_ns += self.ROW_NS * len(n)
        if isinstance(self.limit, Exception):
            raise self.limit
        return pc.less(n, self.limit)


class Dear(Calls):
    ROW_NS = 2_000


class Run:
    """Batches of the numbers below 1,000 through the loop of some rules."""

    def __init__(self, *trees, state=None, **options):
        self.program = compile_rules([Rule(f"r{at}", tree) for at, tree in enumerate(trees)])
        self.loop = loop_of(self.program, options)
        self.loop.restore(state)
        self.matcher = Matcher(self.program, self.loop.sharing)
        self.entries = []
        self.n_seen = 0

    def batch(self, n_rows=5_000):
        values = pa.array(np.arange(self.n_seen, self.n_seen + n_rows) * 7 % 1_000, pa.int32())
        self.matcher.follow(self.loop.sharing)
        sample = self.loop.sample(7, self.n_seen, n_rows)
        found, seen = self.matcher.match(
            [values] * len(self.program.columns),
            n_rows=n_rows,
            sample=sample,
            asked_sample=self.loop.asked_sample(sample),
        )
        self.n_seen += n_rows
        self.entries += self.loop.step(replace(seen, evaluation_ns=10**9))
        return len(found.rules)


@pytest.mark.usefixtures("clock")
def test_a_dear_test_is_asked_for_the_rows_that_a_cheap_one_leaves():
    dear, cheap = Dear(500), Calls(1)
    run = Run(And((function("dear", dear), function("cheap", cheap))), Compare(N, "<", 3))
    assert run.batch(500) == 4
    dear.n_rows = 0
    assert run.batch(10_000) == 10 + 30
    assert dear.n_rows <= 10 + 8 + 2 * 100
    (entry,) = [each for each in run.entries if each.event == "order"]
    assert (entry.before, entry.after) == (["Dear(`n`)", "Calls(`n`)"], ["Calls(`n`)", "Dear(`n`)"])
    assert entry.evidence["rule"] == "r0"
    assert "1 with Python tests reordered" in str(run.loop.sharing)


def test_without_adaptation_the_order_is_as_written():
    dear, cheap = Dear(500), Calls(1)
    run = Run(And((function("dear", dear), function("cheap", cheap))), adaptive=False)
    run.batch(1_000)
    run.batch(1_000)
    assert (dear.n_rows, cheap.n_rows) == (2_000, 1_000)


def test_a_test_that_raises_in_the_sample_is_no_error():
    dear, bad = Dear(0), Calls(ValueError("no"))
    run = Run(And((function("dear", dear), function("bad", bad))))
    assert run.batch() == 0
    assert bad.n_rows > 0


@pytest.mark.usefixtures("clock")
def test_the_order_follows_a_change():
    swaps = Calls(1), Calls(1_000)
    run = Run(And((function("f", swaps[0]), function("g", swaps[1]))), review_rows=5_000)
    for _ in range(4):
        run.batch()
    assert not run.loop.sharing.python_orders
    swaps[0].limit, swaps[1].limit = 1_000, 1
    for _ in range(30):
        run.batch()
    assert [each.tests for each in run.loop.sharing.python_orders] == [(1, 0)]
    assert REORDERED in [each.evidence["why"] for each in run.entries if each.event == "order"]


@pytest.mark.usefixtures("clock")
def test_plans_are_saved_with_their_orders():
    run = Run(And((function("dear", Dear(500)), function("cheap", Calls(1)))))
    run.batch()
    state = {**{f: getattr(run.loop.sharing, f) for f in ("access_predicates", "blocks")}}
    state["python_orders"] = [{"rule": 0, "tests": [1, 0]}]
    assert (
        plan_from(state, BitmapBlocks(run.program)).python_orders == run.loop.sharing.python_orders
    )
    for wrong in ([0], [0, 0], [0, 2], [1, 0, 1]):
        state["python_orders"] = [{"rule": 0, "tests": wrong}]
        with pytest.raises(StateError, match="no order of the Python tests"):
            plan_from(state, BitmapBlocks(run.program))


def test_a_guarded_function_and_a_slow_regex_are_asked_last_and_in_no_learned_order():
    text = Operand("`s`", STRING, ("s",))
    slow = ValueTest(text, "regex", "(a+)+b")
    quick = ValueTest(text, "regex", "a+b")
    guarded = FunctionTest(FunctionPredicate(len, ("`n`",), "guarded", guarded=True))
    trees = [And((slow, F)), And((quick, F)), And((guarded, quick, F)), Or((And((slow, F)), G))]
    program = compile_rules([Rule(str(at), tree) for at, tree in enumerate(trees)])

    def tests_of(rule):
        start, end = program.code.starts[rule : rule + 2]
        asked = program.literals.places[program.code.literals[start:end]]
        return [program.externals[each].test for each in asked]

    assert list(map(tests_of, range(4))) == [
        [F, slow],
        [quick, F],
        [quick, F, guarded],
        [G, F, slow],
    ]
    assert list(program.ordered.of_rule) == [1]
