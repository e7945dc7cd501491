"""Python predicates in rules: what they may be, return and raise.

An instance of a data class that can be called has no hash, and rules looked tests up by theirs. A
necessary text with a wildcard for one character was looked for in the lowered text, where ``İ`` is
two characters.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from eddyline.errors import PredicateError
from eddyline.query.conditions import (
    And,
    Compare,
    Constant,
    FunctionTest,
    Is,
    Not,
    Operand,
    Or,
    Rule,
    TextTest,
    ValueTest,
)
from eddyline.query.predicates import FunctionPredicate
from eddyline.rules.compile.program import compile_rules
from eddyline.rules.match.matcher import Matcher
from eddyline.rules.planning.access_predicates import plan_of
from eddyline.sql.regexes import ANY, ONE, Wild
from eddyline.sql.types import INT, STRING

N = Operand("`n`", INT, ("n",))
S = Operand("`s`", STRING, ("s",))
NUMBERS = pa.array([0, 1, 2, None, 4, 5], pa.int32())


def function(fn, name=""):
    return FunctionTest(FunctionPredicate(fn, ("`n`",), name))


def fires(*trees, values=NUMBERS):
    program = compile_rules([Rule(f"r{at}", tree) for at, tree in enumerate(trees)])
    matcher = Matcher(program, plan_of(program))
    found, seen = matcher.match([values] * len(program.columns), n_rows=len(values))
    return list(zip(found.rows.tolist(), found.rules.tolist(), strict=True)), seen


@dataclass
class Above:
    limit: int

    def __call__(self, n: Any) -> Any:
        return [None if value is None else value > self.limit for value in n.to_pylist()]


def raises_at_four(n):
    if 4 in n.to_pylist():
        raise KeyError("four")
    return [value is not None and value > 0 for value in n.to_pylist()]


def test_callables_without_a_hash():
    with pytest.raises(TypeError):
        hash(Above(1))
    found, seen = fires(function(Above(4), "a"), function(Above(1), "a"), function(Above(4), "a"))
    assert found == [(2, 1), (4, 1), (5, 0), (5, 1), (5, 2)]
    assert seen.asked.tolist() == [6, 6]  # equal ones are asked once


def test_what_raises_is_an_error_only_where_a_rule_hangs_on_it():
    found, seen = fires(And((Compare(N, "<", 4), function(raises_at_four))))
    assert found == [(1, 0), (2, 0)]
    assert seen.asked.tolist() == [3]
    assert fires(Or((Compare(N, "=", 4), function(raises_at_four))))[0] == [
        *((1, 0), (2, 0), (4, 0), (5, 0))
    ]
    never = function(lambda n: [False] * len(n), "never")
    always = function(lambda n: [True] * len(n), "always")
    assert fires(And((function(raises_at_four), never)))[0] == []
    assert len(fires(Or((function(raises_at_four), always)))[0]) == 6
    assert fires(And((function(raises_at_four), Constant(None))))[0] == []
    where = r"\(.*test_python_predicates.py, line \d+, raises_at_four\)"
    row = re.escape("{'`n`': 4}, on which it hangs")
    said = rf"rule 'r1': predicate 'four' raised KeyError: 'four' {where} on the row {row}"
    with pytest.raises(PredicateError, match=said) as caught:
        fires(Constant(True), And((function(raises_at_four, "four"), always)))
    assert isinstance(caught.value.__cause__, KeyError)
    with pytest.raises(PredicateError):  # not even whether it is known is known
        fires(Is(function(raises_at_four), 4))


@pytest.mark.parametrize(
    ("says", "message"),
    [
        (None, "returned None; does it lack a return"),
        (True, "a single bool"),
        ([True], "1 values for 6 rows"),
        ([True] * 7, "7 values for 6 rows"),
        ([1] * 6, "integer values"),
        (np.ones(6), "array of float64"),
        (np.ones((6, 2), bool), "shape (6, 2)"),
        (pa.array(["x"] * 6), "Arrow array of string"),
    ],
    ids=str,
)
def test_what_is_no_boolean_per_row_is_refused(says, message):
    with pytest.raises(PredicateError, match=re.escape(message)):
        fires(function(lambda n: says, "odd"))


@pytest.mark.parametrize("says", [[None] * 6, pa.nulls(6), pa.nulls(6, pa.bool_())], ids=str)
def test_null_is_unknown(says):
    test = function(lambda n: says)
    assert fires(test, Not(test))[0] == []
    assert len(fires(Is(test, 4))[0]) == 6


def test_a_function_that_raises_is_called_on_ever_smaller_parts():
    calls = []

    def at_first(n):
        calls.append(len(n))
        if len(calls) < 3:
            raise ValueError("not yet")
        return [True] * len(n)

    assert len(fires(function(at_first))[0]) == 6
    assert calls == [6, 3, 1, 2, 3]


@pytest.mark.parametrize("text", ["aİb", "aIb", "a\u0130b x"])
def test_needs_with_a_wildcard_for_one_character(text):
    need = TextTest(S, (Wild(ANY), "a", Wild(ONE), "b", Wild(ANY)))
    test = ValueTest(S, "regex", "a.b", 0, (need,))
    other = TextTest(S, (Wild(ANY), "zz", Wild(ANY)), folded=True)
    found, _ = fires(test, other, values=pa.array([text, "ab", None]))
    assert found == [(0, 0)]


def test_a_function_is_asked_only_about_rows_on_which_a_rule_hangs():
    asked = {"f": 0, "g": 0}

    def counted(name, values):
        asked[name] += len(values)
        return pc.greater(values, 0)

    a, b = Operand("`a`", INT, ("a",)), Operand("`b`", INT, ("b",))
    f = FunctionTest(FunctionPredicate(lambda x: counted("f", x), ("`a`",), "f"))
    g = FunctionTest(FunctionPredicate(lambda x: counted("g", x), ("`a`",), "g"))
    rule = Rule("r", Or((And((Compare(b, ">", 0), f)), And((Compare(a, ">=", 0), g)))))
    program = compile_rules([rule])
    columns = {"`a`": pa.array(np.arange(100), pa.int32()), "`b`": pa.array([0] * 100, pa.int32())}
    found, _ = Matcher(program, plan_of(program)).match(
        [columns[each] for each in program.columns], n_rows=100
    )
    assert len(found.rows) == 99
    assert asked == {"f": 0, "g": 100}
