"""Which literals show where a rule may be true, and which rules go into blocks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddyline.query.conditions import (
    FALSE,
    UNKNOWN,
    And,
    Compare,
    Constant,
    Is,
    IsNull,
    Not,
    OneOf,
    Operand,
    Or,
    Rule,
    TextTest,
    ValueTest,
)
from eddyline.rules.compile.bitmap_block import MAX_RULES
from eddyline.rules.compile.program import compile_rules
from eddyline.rules.match.matcher import Matcher
from eddyline.rules.plan import SharingProfile
from eddyline.rules.planning.access_predicates import (
    MIN_ROWS,
    can_access,
    cheapest_access_predicate,
    literal_rates,
    plan_of,
)
from eddyline.sql.regexes import ANY, Wild
from eddyline.sql.types import parse_type
from tests.oracles import rule_strategies
from tests.oracles import rules as reference_rules

N, M, S = (
    Operand(f"`{name}`", parse_type(kind), (name,))
    for name, kind in (("n", "int"), ("m", "int"), ("s", "string"))
)
W = Wild(ANY)


def contains(text):
    return TextTest(S, (W, text, W))


def program_of(*trees):
    return compile_rules([Rule(f"r{at}", tree) for at, tree in enumerate(trees)])


def access_tests(program, plan):
    """Return the tests of each rule's access predicate."""
    return [
        None if each is None else [program.tests[program.test_of[literal]] for literal in each]
        for each in plan.access_predicates
    ]


def observed(program, columns, n_rows):
    everything = np.arange(n_rows)
    matcher = Matcher(program, plan_of(program))
    return matcher.match(columns, n_rows=n_rows, sample=everything)[1]


def test_an_and_takes_its_rarest_part_and_an_or_one_of_each():
    equal, low, text = Compare(N, "=", 1), Compare(M, "<", 5), contains("powershell")
    program = program_of(And((low, equal)), Or((low, equal)), And((Or((equal, text)), low)))
    plan = plan_of(program, method="witnesses")
    assert access_tests(program, plan) == [[equal], [low, equal], [equal, text]]
    assert plan.n_accessed == 3


def test_what_is_not_looked_up_is_no_access_predicate():
    regex = ValueTest(S, "regex", "a+")
    needed = ValueTest(S, "regex", "a+b", 0, (contains("ab"),))
    text = contains("a")
    program = program_of(
        Not(text), regex, needed, Not(needed), Is(text, FALSE | UNKNOWN), IsNull(S)
    )
    plan = plan_of(program, method="witnesses")
    assert access_tests(program, plan) == [None, None, [needed], None, None, [IsNull(S)]]
    mixed = program_of(Or((Compare(N, "=", 1), Not(text))), And((Compare(N, "=", 1), Not(text))))
    assert plan_of(mixed, method="witnesses").access_predicates[0] is None
    assert plan_of(mixed, method="witnesses").n_accessed == 1


@given(st.data())
def test_wherever_a_rule_is_true_its_access_predicate_holds(data):
    rules = data.draw(rule_strategies.rules(min_size=1))
    program = compile_rules(rules)
    seed = data.draw(st.integers(0, 2**32))
    rates = np.random.default_rng(seed).random(len(program.literals.kinds))
    table = data.draw(rule_strategies.rule_rows())
    rows, types = table.to_pylist(), dict(zip(table.column_names, table.schema.types, strict=True))
    can = can_access(program)
    bit = {True: 1, False: 2, None: 4}
    for rule, formula in zip(rules, program.formulas, strict=True):
        access = cheapest_access_predicate(formula, rates, can)
        if access is None:
            continue
        assert access[0] == pytest.approx(rates[list(dict.fromkeys(access[1]))].sum()) or (
            access[0] >= rates[list(access[1])].sum() - 1e-9  # parts may share literals
        )
        for row in rows:
            if reference_rules.truth(rule.tree, row, types):
                assert any(
                    bit[_truth(program.tests[program.test_of[literal]], row, types)]
                    & program.literals.outcomes[literal]
                    for literal in access[1]
                )


def _truth(test, row, types):
    native = {each.sql: each for each in rule_strategies.NATIVE_TESTS}
    operand = getattr(test, "operand", None)
    if operand is not None and operand.sql in native:
        return row[operand.sql]
    return reference_rules.truth(test, row, types)


def test_rates_are_what_was_observed():
    program = program_of(
        Compare(N, "<", 25), Not(Compare(N, "<", 25)), IsNull(N), contains("7"), OneOf(N, (1, 3, 5))
    )
    n_rows = 400
    columns = {
        "`n`": pa.array([None if at % 4 == 3 else at % 100 for at in range(n_rows)], pa.int32()),
        "`s`": pa.array([f"{at % 10}" for at in range(n_rows)]),
    }
    profile = observed(program, [columns[each] for each in program.columns], n_rows)
    wanted = [19 / 100, 56 / 100, 25 / 100, 1 / 10, 2 / 100]
    assert literal_rates(program, profile) == pytest.approx(wanted, abs=0.003)
    few = replace(profile, n_sampled=MIN_ROWS - 1)
    assert literal_rates(program, few).tolist() == literal_rates(program, None).tolist()


def test_a_test_of_python_is_as_rare_as_what_it_needs():
    regex = ValueTest(S, "regex", "7.*x", 0, (contains("7"),))
    bare = ValueTest(S, "regex", "8")
    program = program_of(regex, And((regex, contains("x"))), bare)
    texts = [f"{at % 10}{'x' if at % 3 == 0 else ''}" for at in range(900)]
    profile = observed(program, [pa.array(texts)], 900)
    assert literal_rates(program, profile) == pytest.approx([0.1, 1 / 3, 0.5], abs=0.003)
    plan = plan_of(program, profile, method="witnesses")
    assert access_tests(program, plan)[:2] == [[regex], [regex]]


def test_no_rate_is_nothing():
    program = program_of(Compare(N, "=", 1))
    profile = observed(program, [pa.array([0] * 1_000, pa.int32())], 1_000)
    assert 0.0 < literal_rates(program, profile)[0] < 0.001
    assert (literal_rates(program, None) > 0.0).all()


@pytest.mark.parametrize("n_rules", [1, 63, 64, 65, 511, 512, 513, 1_025])
def test_methods(n_rules):
    trees = [And((Compare(N, ">", at), Compare(M, "=", at))) for at in range(n_rules)]
    program = program_of(*trees, Constant(True), Constant(False), contains("x"))
    total = n_rules + 3
    witnesses = plan_of(program, method="witnesses")
    assert (witnesses.n_accessed, witnesses.n_blocked) == (n_rules + 1, 0)
    every_row = plan_of(program, method="every_row")
    assert (every_row.n_accessed, every_row.n_blocked) == (0, 0)
    blocks = plan_of(program, method="blocks")
    assert (blocks.n_accessed, blocks.n_blocked) == (0, n_rules + 1)
    sizes = [len(block.rules) for block in blocks.blocks]
    assert max(sizes) <= MAX_RULES
    assert len(sizes) == -(-(n_rules + 1) // MAX_RULES)
    assert sorted(rule for block in blocks.blocks for rule in block.rules) == [
        *range(n_rules),
        total - 1,
    ]
    auto = plan_of(program)
    blocked = {rule for block in auto.blocks for rule in block.rules}
    assert all(
        (auto.access_predicates[rule] is None) or rule not in blocked for rule in range(total)
    )


def test_blocks_take_the_rules_that_many_rows_would_meet():
    trees = [And((Compare(N, ">=", at), Compare(M, "<=", at))) for at in range(200)]
    program = program_of(*trees, contains("7"))
    rng = np.random.default_rng(1)
    columns = {
        "`n`": pa.array(rng.integers(0, 200, 2_000), pa.int32()),
        "`m`": pa.array(rng.integers(0, 200, 2_000), pa.int32()),
        "`s`": pa.array(["7"] * 2_000),
    }
    profile = observed(program, [columns[each] for each in program.columns], 2_000)
    plan = plan_of(program, profile)
    assert plan.n_blocked > 150
    assert plan.access_predicates[200] is not None  # every row meets it, but no bitmap rules it out


def test_without_rows_a_plan_is_guessed():
    program = program_of(Compare(N, "=", 1))
    assert plan_of(program, SharingProfile.empty(program)) == plan_of(program)
