"""Errors of expressions count where a rule hangs on them, whatever the plan; else they do nothing.

A row hangs on an error if the rule may be true and may be not, the more so under NOT and IS.
"""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddyline.errors import PredicateError
from eddyline.query.conditions import (
    TRUE,
    And,
    Compare,
    Constant,
    FunctionTest,
    IsNull,
    MayRaise,
    NativeTest,
    Not,
    OneOf,
    Operand,
    Raise,
    Rule,
)
from eddyline.query.predicates import FunctionPredicate
from eddyline.rules.compile.program import compile_rules
from eddyline.rules.match.matcher import Matcher
from eddyline.rules.planning.access_predicates import plan_of
from eddyline.sql.types import BIGINT, STRING
from tests.examples import examples
from tests.oracles import rule_strategies
from tests.oracles.rules import possible

N = Operand("`n`", BIGINT, ("n",))
SUMS = tuple(Operand(f"try_add(`n`, {each})", BIGINT, ("n",)) for each in (1, 2))
ERRORS = tuple(
    Raise(Operand(f"errors {each}", STRING), f"n + {each}", "it can overflow", "try_add")
    for each in (1, 2)
)
NATIVE = NativeTest("try_add(`n`, 1) > `m`", ("n", "m"))
VALUES = (-1, 0, 1, 2)


def _is_positive(n):
    return [None if value is None else value > 0 for value in n.to_pylist()]


FUNCTION = FunctionTest(FunctionPredicate(_is_positive, ("`n`",), "is_positive"))

values = st.sampled_from(VALUES)


@st.composite
def risky_tests(draw):
    at = draw(st.integers(0, 1))
    operand = SUMS[at]
    test = draw(
        st.one_of(
            st.builds(Compare, st.just(operand), st.sampled_from(["=", "<", ">="]), values),
            st.builds(OneOf, st.just(operand), st.lists(values, min_size=1, max_size=2).map(tuple)),
            st.just(IsNull(operand)),
            *([st.just(NATIVE)] if at == 0 else []),
        )
    )
    return MayRaise(test, ERRORS[at])


leaves = st.one_of(
    risky_tests(),
    risky_tests(),
    st.builds(Compare, st.just(N), st.sampled_from(["=", "<", ">="]), values),
    st.builds(Constant, st.sampled_from([True, False, None])),
    st.just(FUNCTION),
)


@st.composite
def rows(draw):
    """Rows on which a sum is NULL where it raises."""
    found = []
    for _ in range(draw(st.integers(1, 8))):
        row = {N.sql: draw(st.none() | values)}
        for operand, error in zip(SUMS, ERRORS, strict=True):
            raises = draw(st.booleans())
            row[operand.sql] = None if raises else draw(st.none() | values)
            row[error.operand.sql] = json.dumps({"n": row[N.sql]}) if raises else None
        raises = row[ERRORS[0].operand.sql] is not None
        row[NATIVE.sql] = None if raises else draw(st.none() | st.booleans())
        found.append(row)
    return found


KINDS = pa.schema(
    [
        *((each.sql, pa.int64()) for each in (N, *SUMS)),
        *((each.operand.sql, pa.string()) for each in ERRORS),
        (NATIVE.sql, pa.bool_()),
    ]
)


def fired(program, plan, found):
    """Return the rules that fire on rows, each a set of places; or the error."""
    table = pa.Table.from_pylist(found, KINDS)
    columns = [table[sql].combine_chunks() for sql in program.columns]
    matches, _ = Matcher(program, plan).match(columns, n_rows=len(found))
    by_row = [set() for _ in found]
    for row, rule in zip(matches.rows.tolist(), matches.rules.tolist(), strict=True):
        by_row[row].add(rule)
    return by_row


@examples(300)
@given(
    st.lists(rule_strategies.trees(leaves=leaves), min_size=1, max_size=4),
    rows(),
    st.sampled_from(["auto", "blocks", "every_row", "witnesses"]),
)
def test_an_error_counts_where_a_rule_hangs_on_it(trees, found, method):
    rules = [Rule(f"r{at}", tree) for at, tree in enumerate(trees)]
    program = compile_rules(rules)
    plan = plan_of(program, method=method)
    said = [[possible(rule.tree, row) for rule in rules] for row in found]
    hangs = [any(each & TRUE and each != TRUE for each in row) for row in said]
    fine = [row for row, is_open in zip(found, hangs, strict=True) if not is_open]
    wanted = [
        {at for at, each in enumerate(row) if each == TRUE}
        for row, is_open in zip(said, hangs, strict=True)
        if not is_open
    ]
    assert fired(program, plan, fine) == wanted
    for row, is_open in zip(found, hangs, strict=True):
        if is_open:
            with pytest.raises(PredicateError, match=r"n \+ [12] raises on the row"):
                fired(program, plan, [row])


def test_the_error_says_what_to_do():
    test = MayRaise(Compare(SUMS[0], ">", 1), ERRORS[0])
    program = compile_rules([Rule("big", And((Not(test), FUNCTION)))])
    row = {N.sql: 1, SUMS[0].sql: None, ERRORS[0].operand.sql: '{"n": 1}'}
    with pytest.raises(PredicateError) as caught:
        fired(program, plan_of(program), [row])
    assert str(caught.value) == (
        "rule 'big': n + 1 raises on the row {'n': 1}, on which it hangs (it can overflow); "
        "use try_add, or add a condition that is false for such rows"
    )
    assert caught.value.facts == {"rule": "big", "expression": "n + 1", "row": {"n": 1}}
    row[N.sql] = 0  # the Python predicate says no, and it is asked first
    assert fired(program, plan_of(program), [row]) == [set()]
