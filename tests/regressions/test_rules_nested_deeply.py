"""Rules nested deeply: NOT in NOT and AND in AND are no depth, and the rest is refused by name.

Each level of a tree took several calls, so that a few hundred ended in a bare RecursionError that
named no rule.
"""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark import cloudpickle

from eddyline.errors import QueryError
from eddyline.query.conditions import (
    FALSE,
    UNKNOWN,
    And,
    Compare,
    Is,
    IsNull,
    Not,
    Operand,
    Or,
    Rule,
)
from eddyline.query.rules.sources import SqlRule
from eddyline.rules.compile.program import compile_rules
from eddyline.rules.match.matcher import Matcher
from eddyline.rules.planning.access_predicates import plan_of
from eddyline.sql.types import INT

N = Operand("`n`", INT, ("n",))


def fires(tree, values, method="auto"):
    program = compile_rules([Rule("deep", tree)])
    program = cloudpickle.loads(cloudpickle.dumps(program))
    matcher = Matcher(program, plan_of(program, method=method))
    columns = [pa.array(values, pa.int32())] * len(program.columns)
    return matcher.match(columns, n_rows=len(values))[0].rows.tolist()


@pytest.mark.large
@pytest.mark.parametrize("method", ["auto", "blocks"])
def test_thousands_of_nots_and_parentheses(method):
    tree = Compare(N, "<", 2)
    for _ in range(5_001):
        tree = Not(tree)
    assert fires(tree, [1, 2, None], method) == [1]
    tree = Compare(N, ">", 0)
    for value in range(3_000):
        tree = And((tree, Not(Compare(N, "=", value))))
    assert fires(tree, [1, 2_999, 3_000, None], method) == [2]
    tree = IsNull(N)
    for value in range(3_000):
        tree = Or((Compare(N, "=", value), tree))
    assert fires(tree, [-1, 0, 2_999, 3_000, None], method) == [1, 2, 4]
    tree = Compare(N, ">", 0)
    for _ in range(1_001):
        tree = Is(tree, FALSE | UNKNOWN)
    assert fires(tree, [1, 0, None], method) == [1, 2]


def in_turn(levels):
    tree = Compare(N, "=", -1)
    for level in range(levels):
        tree = (And if level % 2 else Or)((tree, Compare(N, ">", level)))
    return tree


def test_and_and_or_in_turn():
    assert fires(in_turn(100), [99, 100, 1, None]) == [1]
    with pytest.raises(QueryError, match="rule 'odd one' is nested too deeply; split") as caught:
        compile_rules([Rule("fine", in_turn(2)), Rule("odd one", in_turn(5_000))])
    assert caught.value.facts["name"] == "odd one"


@pytest.mark.large
def test_long_texts_are_read():
    text = " OR ".join(f"n = {value}" for value in range(2_000))
    assert fires(SqlRule("or", text).bind({"n": "int"}, ansi=True).tree, [1_999, 2_000]) == [0]
    deep = SqlRule("not", "NOT (" * 500 + "n = 1" + ")" * 500).bind({"n": "int"}, ansi=True)
    assert fires(deep.tree, [1, 2]) == [0]
    with pytest.raises(QueryError, match=r"1,?100 levels"):
        SqlRule("not", "NOT (" * 1_100 + "n = 1" + ")" * 1_100).bind({"n": "int"}, ansi=True)
