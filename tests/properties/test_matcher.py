"""The one rule: whatever the plan and the cut into batches, the matches are those of the oracle."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddyline.rules.compile.program import compile_rules
from eddyline.rules.match.matcher import Matcher
from eddyline.rules.plan import BitmapBlockPlan, PythonOrder, SharingPlan, SharingProfile
from eddyline.rules.planning.access_predicates import can_access, cheapest_access_predicate, plan_of
from eddyline.rules.planning.python_order import python_orders
from tests.examples import examples
from tests.oracles import rule_strategies
from tests.oracles import rules as reference_rules

EVERY_ROW = "every row"


@st.composite
def plans(draw, program):
    """Any plan: rules by access predicates, in bitmap blocks or met by every row; any orders."""
    ordered = program.ordered.of_rule.items()
    orders = tuple(
        PythonOrder(rule, tuple(draw(st.permutations(tests))))
        for rule, tests in ordered
        if draw(st.booleans())
    )
    kind = draw(st.sampled_from(["cheapest", EVERY_ROW, "blocks", "mixed"]))
    if kind == "cheapest":
        return replace(plan_of(program), python_orders=orders)
    seed = draw(st.integers(0, 2**32))
    rates = np.random.default_rng(seed).random(len(program.literals.kinds))
    undecided = [rule for rule in range(program.n_rules) if program.constant[rule] < 0]
    blocked = [
        rule for rule in undecided if kind == "blocks" or (kind == "mixed" and draw(st.booleans()))
    ]
    access = [None] * program.n_rules
    if kind == "mixed":
        for rule in set(undecided) - set(blocked):
            found = cheapest_access_predicate(program.formulas[rule], rates, can_access(program))
            access[rule] = found and found[1]
    size = draw(st.integers(1, 4))
    blocks = tuple(
        BitmapBlockPlan(tuple(blocked[at : at + size])) for at in range(0, len(blocked), size)
    )
    by_value = draw(st.sets(st.integers(0, max(0, len(program.texts) - 1))))
    return SharingPlan(tuple(access), blocks, frozenset(by_value), orders)


@pytest.mark.large
@examples(300, deadline=None)
@given(st.data())
def test_any_plan_and_any_cut_give_the_matches_of_the_oracle(data):
    rules = data.draw(rule_strategies.rules())
    table = data.draw(rule_strategies.rule_rows())
    program = compile_rules(rules)
    cuts = sorted(data.draw(st.lists(st.integers(0, table.num_rows), max_size=3)))
    bounds = [0, *cuts, table.num_rows]
    matcher = Matcher(program, data.draw(plans(program)))
    found, profiles = [], [SharingProfile.empty(program)]
    for start, end in itertools.pairwise(bounds):
        part = table.slice(start, end - start).combine_chunks()
        if data.draw(st.booleans()):
            matcher.follow(data.draw(plans(program)))
        columns = [column_of(part, sql) for sql in program.columns]
        sample = np.flatnonzero(np.arange(end - start) % 2) if data.draw(st.booleans()) else None
        asked = sample if data.draw(st.booleans()) else None
        matches, profile = matcher.match(
            columns, sample=sample, asked_sample=asked, n_rows=part.num_rows
        )
        profiles.append(profile)
        by_row = [[] for _ in range(part.num_rows)]
        for row, rule in zip(matches.rows.tolist(), matches.rules.tolist(), strict=True):
            by_row[row].append(program.names[rule])
        found += by_row
    wanted = reference_rules.matches(rules, table)
    assert found == wanted
    whole = profiles[0].merge(*profiles[1:])
    assert whole.n_rows == table.num_rows
    assert whole.matches.sum() == sum(map(len, wanted))
    plan_of(program, whole)  # what was seen is something to plan by
    python_orders(program, whole, ())


def column_of(part, sql):
    chunks = part[sql].chunks
    return pa.concat_arrays(chunks) if chunks else pa.array([], part.schema.field(sql).type)
