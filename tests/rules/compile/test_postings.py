"""Access predicates turned round: the rules that each pattern and region may make true."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddyline.query.conditions import And, Compare, Operand, Or, Rule, TextTest, ValueTest
from eddyline.rules.compile.program import compile_rules
from eddyline.rules.match.matcher import Matcher, _cover, postings_of
from eddyline.rules.plan import BitmapBlockPlan, SharingPlan
from eddyline.rules.planning.access_predicates import plan_of
from eddyline.sql.regexes import ANY, Wild
from eddyline.sql.types import parse_type

N, S = (Operand(f"`{n}`", parse_type(k), (n,)) for n, k in (("n", "bigint"), ("s", "string")))
W = Wild(ANY)


def program_of(*trees):
    return compile_rules([Rule(f"r{at}", tree) for at, tree in enumerate(trees)])


@given(st.integers(0, 7), st.data())
def test_nodes_cover_their_leaves_once(depth, data):
    n_leaves = 1 << depth
    low = data.draw(st.integers(0, n_leaves - 1))
    high = data.draw(st.integers(low, n_leaves - 1))
    nodes = list(_cover(low, high, n_leaves))
    leaves = []
    for node in nodes:
        span = n_leaves >> (node.bit_length() - 1)
        first = node * span - n_leaves
        leaves += range(first, first + span)
    assert sorted(leaves) == list(range(low, high + 1))
    assert len(nodes) <= max(1, 2 * depth)


def test_rules_of_patterns():
    program = program_of(
        TextTest(S, (W, "a", W)),
        Or((TextTest(S, ("b", W)), TextTest(S, (W, "a", W)))),
        ValueTest(S, "regex", "c", 0, (TextTest(S, (W, "é", W)),)),
    )
    found = postings_of(program, plan_of(program, method="witnesses"))
    tables = found.tables
    by_pattern = [
        tables.pattern_rules[low:high].tolist()
        for low, high in zip(tables.pattern_at, tables.pattern_at[1:], strict=False)
    ]
    assert sorted(by_pattern) == [[0, 1], [1], [2]]
    assert found.texts == (0,)
    assert found.units.tolist() == [0, 1]
    assert len(tables.constructs) == len(tables.everywhere) == 0


def test_rules_that_every_row_meets_and_those_in_blocks():
    program = program_of(Compare(N, "=", 1), Compare(N, "=", 2), Compare(N, "=", 3))
    plan = SharingPlan((None, None, (2,)), (BitmapBlockPlan((1,)),))
    tables = postings_of(program, plan).tables
    assert tables.everywhere.tolist() == [0]
    assert tables.region_rules.tolist() == [2]
    nothing = postings_of(program_of(), SharingPlan(())).tables
    assert nothing.pattern_at.tolist() == nothing.rules_at.tolist() == [0]


@pytest.mark.parametrize("n_rules", [1, 2, 63, 64, 65, 300])
def test_intervals_take_little_memory_and_are_met_where_they_hold(n_rules):
    trees = [And((Compare(N, ">=", at), Compare(N, "<", at + n_rules))) for at in range(n_rules)]
    program = program_of(*[Compare(N, ">=", at) for at in range(n_rules)], *trees)
    plan = plan_of(program, method="witnesses")
    assert plan.n_accessed == 2 * n_rules
    tables = postings_of(program, plan).tables
    assert len(tables.region_rules) <= 2 * n_rules * 2 * (np.log2(n_rules) + 3)
    values = [-1, 0, n_rules // 2, n_rules - 1, n_rules, 2 * n_rules, -(2**63), 2**63 - 1, None]
    found, seen = Matcher(program, plan).match([pa.array(values, pa.int64())], n_rows=len(values))
    wanted = [
        (row, rule)
        for row, value in enumerate(values)
        for rule in range(2 * n_rules)
        if value is not None
        and value >= rule % n_rules
        and (rule < n_rules or value < rule - n_rules + n_rules)
    ]
    assert list(zip(found.rows.tolist(), found.rules.tolist(), strict=True)) == wanted
    assert (seen.candidates >= seen.matches).all()
