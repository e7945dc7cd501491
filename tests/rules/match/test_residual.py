"""What Python is asked, about which rows, how often; what its predicates may be, return, raise.

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
from eddyline.rules.match import residual as asking
from eddyline.rules.match.matcher import Matcher
from eddyline.rules.plan import SharingPlan
from eddyline.rules.planning.access_predicates import plan_of
from eddyline.sql.regexes import ANY, ONE, Wild
from eddyline.sql.types import parse_type

N, S = (Operand(f"`{n}`", parse_type(k), (n,)) for n, k in (("n", "int"), ("s", "string")))
W = Wild(ANY)


def fires(trees, *, every_row=True, **columns):
    """Return the rules that are true for each row, and what was observed."""
    program = compile_rules([Rule(f"r{at}", tree) for at, tree in enumerate(trees)])
    n_rows = len(next(iter(columns.values())))
    arrays = [pa.array(columns[each.strip("`")]) for each in program.columns]
    plan = SharingPlan((None,) * len(trees)) if every_row else plan_of(program)
    found, seen = Matcher(program, plan).match(arrays, n_rows=n_rows)
    return [
        [
            rule
            for row, rule in zip(found.rows.tolist(), found.rules.tolist(), strict=True)
            if row == at
        ]
        for at in range(n_rows)
    ], seen


@pytest.mark.parametrize(
    ("kind", "pattern", "yes", "no"),
    [
        ("regex", "^a.b$", ["axb", "a😀b"], ["ab", "xaxb", "a\nb"]),
        ("regex", "", ["", "x"], []),
        ("cidr", "10.0.0.0/8", ["10.1.2.3"], ["11.0.0.1", "", "10.0.0.300", " 10.0.0.1", "::1"]),
        ("cidr", "10.1.2.3/8", ["10.9.9.9"], ["9.1.2.3"]),  # bits of the host do not matter
        ("cidr", "fe80::/10", ["fe80::1", "FE80::1", "fe80::1%eth0"], ["fec0::", "10.0.0.1"]),
        ("cidr", "::/0", ["::ffff:10.0.0.1"], ["10.0.0.1"]),
    ],
)
def test_tests_of_values(kind, pattern, yes, no):
    test = ValueTest(S, kind, pattern)
    texts = [*yes, *no, None]
    found, seen = fires([test, Not(test), Is(test, 4)], s=texts)
    assert found == [[0]] * len(yes) + [[1]] * len(no) + [[2]]
    assert seen.asked.tolist() == [len(yes) + len(no)]


def test_bytes_that_are_no_characters_are_what_spark_makes_of_them():
    texts = pa.array([b"a\xffb", b"ab", b"\xff\xfe", None], pa.binary()).view(pa.string())
    program = compile_rules([Rule("r", ValueTest(S, "regex", "^a\ufffdb$"))])
    found, _ = Matcher(program, plan_of(program)).match([texts], n_rows=4)
    assert found.rows.tolist() == [0]


def test_each_distinct_value_is_asked_once(monkeypatch):
    asked = []
    says = asking._says

    def noted(test):
        said = says(test)
        return lambda text: asked.append(text) or said(text)

    monkeypatch.setattr(asking, "_says", noted)
    found, _ = fires([ValueTest(S, "regex", "a")], s=["a", "b", "a", None, "a", "b"])
    assert found == [[0], [], [0], [], [0], []]
    assert sorted(asked) == ["a", "b"]


def test_only_rows_that_hold_what_is_needed_are_asked():
    test = ValueTest(S, "regex", "a+b", 0, (TextTest(S, (W, "ab", W)),))
    texts = ["ab", "aab", "b", "a", None]
    for every_row in (True, False):
        found, seen = fires([test], every_row=every_row, s=texts)
        assert found == [[0], [0], [], [], []]
        assert seen.asked.tolist() == [2]
    found, seen = fires([Not(test)], s=texts)
    assert found == [[], [], [0], [0], []]
    assert seen.asked.tolist() == [2]


def counting(says):
    calls = []

    def fn(n):
        calls.append(n.to_pylist())
        return [says(value) for value in n.to_pylist()]

    return FunctionTest(FunctionPredicate(fn, ("`n`",), f"f{id(calls)}")), calls


def test_functions_are_asked_last_and_for_no_more_rows_than_need_be():
    small, small_calls = counting(lambda n: n < 3)
    even, even_calls = counting(lambda n: n % 2 == 0)
    regex = ValueTest(S, "regex", "^x")
    tree = And((small, regex, even, Compare(N, "<", 5)))
    found, seen = fires([tree], n=list(range(6)), s=["x", "y", "x", "x", "x", "x"])
    assert found == [[0], [], [0], [], [], []]
    assert small_calls == [[0, 2, 3, 4]]
    assert even_calls == [[0, 2]]
    assert sorted(seen.asked.tolist()) == [2, 4, 5]


def test_an_answer_serves_all_rules():
    test, calls = counting(lambda n: n > 1)
    trees = [
        And((Compare(N, "<", 3), test)),
        And((Compare(N, ">", 0), test)),
        Or((test, Not(test))),
    ]
    found, _ = fires(trees, n=[0, 1, 2, 3])
    assert found == [[2], [2], [0, 1, 2], [1, 2]]
    assert calls == [[0, 1, 2, 3]]


def test_functions_get_the_arrays_that_they_ask_for():
    kinds = []

    def noted(n):
        kinds.append(type(n).__module__.partition(".")[0])
        return [True] * len(n)

    trees = [
        FunctionTest(FunctionPredicate(noted, ("`n`",), kind, arrays=kind))
        for kind in ("arrow", "pandas", "numpy")
    ]
    assert fires(trees, n=[1, 2])[0] == [[0, 1, 2]] * 2
    assert sorted(kinds) == ["numpy", "pandas", "pyarrow"]


def test_a_negated_predicate_and_null():
    above = FunctionPredicate(lambda n: pa.array([None, True, False]), ("`n`",), "above")
    trees = [FunctionTest(above), FunctionTest(~above), Not(FunctionTest(above))]
    assert fires(trees, n=[0, 1, 2])[0] == [[], [0], [1, 2]]


# -- what predicates may be, return and raise ------------------------------------------------------

NUMBERS = pa.array([0, 1, 2, None, 4, 5], pa.int32())


def function(fn, name=""):
    return FunctionTest(FunctionPredicate(fn, ("`n`",), name))


@dataclass
class Above:
    limit: int

    def __call__(self, n: Any) -> Any:
        return [None if value is None else value > self.limit for value in n.to_pylist()]


def test_a_function_in_a_branch_that_a_comparison_refutes_is_never_called():
    refuted, refuted_calls = counting(lambda n: True)
    asked, asked_calls = counting(lambda n: n > 0)
    tree = Or((And((Compare(N, "<", 0), refuted)), And((Compare(N, ">=", 0), asked))))
    for every_row in (True, False):
        found, _ = fires([tree], every_row=every_row, n=list(range(100)))
        assert found == [[], *[[0]] * 99]
    assert refuted_calls == []
    assert asked_calls == [list(range(100))] * 2


def raises_at_four(n):
    if 4 in n.to_pylist():
        raise KeyError("four")
    return [value is not None and value > 0 for value in n.to_pylist()]


def test_callables_without_a_hash():
    with pytest.raises(TypeError):
        hash(Above(1))
    trees = [function(Above(limit), "a") for limit in (4, 1, 4)]
    for every_row in (True, False):
        found, seen = fires(trees, every_row=every_row, n=NUMBERS)
        assert found == [[], [], [1], [], [1], [0, 1, 2]]
        assert seen.asked.tolist() == [6, 6]  # equal ones are asked once


def test_what_raises_is_an_error_only_where_a_rule_hangs_on_it():
    raising = function(raises_at_four, "four")
    found, seen = fires([And((Compare(N, "<", 4), raising))], every_row=False, n=NUMBERS)
    assert found == [[], [0], [0], [], [], []]
    assert seen.asked.tolist() == [3]
    never = function(lambda n: [False] * len(n), "never")
    always = function(lambda n: [True] * len(n), "always")
    trees = [
        Or((Compare(N, "=", 4), raising)),
        And((raising, never)),
        Or((raising, always)),
        And((raising, Constant(None))),
    ]
    for every_row in (True, False):
        found, _ = fires(trees, every_row=every_row, n=NUMBERS)
        assert found == [[2], [0, 2], [0, 2], [2], [0, 2], [0, 2]]
    where = r"\(.*test_residual.py, line \d+, raises_at_four\)"
    row = re.escape("{'`n`': 4}, on which it hangs")
    said = rf"rule 'r1': predicate 'four' raised KeyError: 'four' {where} on the row {row}"
    for every_row in (True, False):
        with pytest.raises(PredicateError, match=said) as caught:
            fires([Constant(True), And((raising, always))], every_row=every_row, n=NUMBERS)
        assert isinstance(caught.value.__cause__, KeyError)
        with pytest.raises(PredicateError):  # not even whether it is known is known
            fires([Is(raising, 4)], every_row=every_row, n=NUMBERS)


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
    for every_row in (True, False):
        with pytest.raises(PredicateError, match=re.escape(message)):
            fires([function(lambda n: says, "odd")], every_row=every_row, n=NUMBERS)


@pytest.mark.parametrize("says", [[None] * 6, pa.nulls(6), pa.nulls(6, pa.bool_())], ids=str)
def test_null_is_unknown(says):
    test = function(lambda n: says)
    for every_row in (True, False):
        found, _ = fires([test, Not(test), Is(test, 4)], every_row=every_row, n=NUMBERS)
        assert found == [[2]] * 6


def test_a_function_that_raises_is_called_on_ever_smaller_parts():
    calls = []

    def at_first(n):
        calls.append(len(n))
        if len(calls) < 3:
            raise ValueError("not yet")
        return [True] * len(n)

    assert fires([function(at_first)], every_row=False, n=NUMBERS)[0] == [[0]] * 6
    assert calls == [6, 3, 1, 2, 3]


@pytest.mark.parametrize("text", ["aİb", "aIb", "a\u0130b x"])
def test_needs_with_a_wildcard_for_one_character(text):
    need = TextTest(S, (Wild(ANY), "a", Wild(ONE), "b", Wild(ANY)))
    test = ValueTest(S, "regex", "a.b", 0, (need,))
    other = TextTest(S, (Wild(ANY), "zz", Wild(ANY)), folded=True)
    found, _ = fires([test, other], every_row=False, s=[text, "ab", None])
    assert found == [[0], [], []]
