from __future__ import annotations

import itertools
import math
import re
from datetime import date
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given

from eddyline.query.conditions import (
    FALSE,
    TRUE,
    UNKNOWN,
    And,
    Compare,
    Constant,
    FunctionTest,
    Is,
    IsNull,
    NativeTest,
    Not,
    OneOf,
    Operand,
    Or,
    Rule,
    TextTest,
    ValueTest,
)
from eddyline.query.predicates import FunctionPredicate
from eddyline.sql.regexes import Wild
from eddyline.sql.types import parse_type
from tests.examples import is_drawn
from tests.oracles import rule_strategies
from tests.oracles.rules import is_like, matches, truth

X = Operand("x", parse_type("double"), ("x",))
S = Operand("s", parse_type("string"), ("s",))
ANY, ONE = Wild("%"), Wild("_")
VALUES = (True, False, None)


def of(node, value):
    return truth(node, {"x": value, "s": value})


def test_comparisons_with_nan_and_zeros():
    nan = math.nan
    assert [of(Compare(X, op, math.inf), nan) for op in ("=", "<", "<=", ">", ">=")] == [
        False,
        False,
        False,
        True,
        True,
    ]
    assert of(Compare(X, "=", 0.0), -0.0) is True
    assert of(Compare(X, "<", 0.0), -0.0) is False
    assert of(OneOf(X, (1.0, 0.0)), -0.0) is True
    assert of(OneOf(X, (1.0,)), nan) is False
    assert of(Compare(X, ">", 2**53), 2**53 + 1) is True
    assert of(Compare(X, "=", Decimal("0.1")), 0.1) is False
    assert of(Compare(X, "<", date(2024, 1, 2)), date(2024, 1, 1)) is True


@pytest.mark.parametrize(
    "node",
    [
        Compare(X, "=", 1),
        OneOf(X, (1,)),
        TextTest(S, (ANY,)),
        ValueTest(S, "regex", ""),
        ValueTest(S, "cidr", "::/0"),
        NativeTest("x"),
    ],
)
def test_null_is_unknown(node):
    assert of(node, None) is None
    assert of(IsNull(X), None) is True
    assert of(IsNull(X), "") is False


@pytest.mark.parametrize(
    ("text", "parts", "folded", "expected"),
    [
        ("", (), False, True),
        ("a", (), False, False),
        ("", (ANY,), False, True),
        ("", (ONE,), False, False),
        ("a\nb", ("a", ANY), False, True),
        ("\n", (ONE,), False, True),
        ("😀", (ONE,), False, True),
        ("abab", (ANY, "ab"), False, True),
        ("aba", ("ab", ANY, "ba"), False, False),
        ("abcab", ("ab", ANY, ONE, "b"), False, True),
        ("İ", ("i\u0307",), True, True),
        ("İ", (ONE,), True, False),
        ("ſ", ("s",), True, False),
        ("\u212a", ("k",), True, True),
        ("ΑΣ", ("ας",), True, True),
        ("ẞ", ("ß",), True, True),
        ("A", ("a",), False, False),
    ],
)
def test_text_patterns(text, parts, folded, expected):
    assert is_like(text, parts, folded=folded) is expected


@given(rule_strategies.text_tests(), rule_strategies.texts(6))
def test_text_patterns_are_regexes(test, text):
    source = "".join(
        re.escape(part) if isinstance(part, str) else {"%": ".*", "_": "."}[part.what]
        for part in test.parts
    )
    given_text = text.lower() if test.folded else text
    expected = re.fullmatch(source, given_text, re.DOTALL) is not None
    assert truth(test, {test.operand.sql: text}) is expected


def test_value_tests():
    assert of(ValueTest(S, "regex", "b$", re.IGNORECASE), "aB") is True
    assert of(ValueTest(S, "regex", "^b"), "ab") is False
    network = ValueTest(S, "cidr", "10.0.0.0/8")
    assert [of(network, text) for text in ("10.9.9.9", "11.0.0.0", "ten", "", "::1")] == [
        True,
        False,
        False,
        False,
        False,
    ]


def test_kleene_logic_and_is():
    for a, b in itertools.product(VALUES, repeat=2):
        both = truth(And((Constant(a), Constant(b))), {})
        either = truth(Or((Constant(a), Constant(b))), {})
        assert both is (False if False in (a, b) else None if None in (a, b) else True)
        assert either is (True if True in (a, b) else None if None in (a, b) else False)
    for a, bit in zip(VALUES, (TRUE, FALSE, UNKNOWN), strict=True):
        for outcomes in range(8):
            assert truth(Is(Constant(a), outcomes), {}) is bool(outcomes & bit)
        assert truth(Not(Constant(a)), {}) is (None if a is None else not a)


@pytest.mark.parametrize("arrays", ["arrow", "pandas", "numpy"])
def test_functions_say_true_false_and_null(arrays):
    tests = {
        "arrow": lambda x: pc.greater(x, 1),
        "pandas": lambda x: x.astype("Int64") > 1,
        "numpy": lambda x: [None if v is None or math.isnan(v) else v > 1 for v in x],
    }
    keep = FunctionPredicate(tests[arrays], ("x",), "keep", arrays)
    types = {"x": pa.int64()}
    for predicate, expected in ((keep, [True, False, None]), (~keep, [False, True, None])):
        got = [truth(FunctionTest(predicate), {"x": value}, types) for value in (2, 1, None)]
        assert got == expected


def test_rules_that_fire_by_row():
    rules = [Rule("a", Compare(X, ">", 1)), Rule("b", IsNull(X)), Rule("c", Compare(X, "<", 5))]
    assert matches(rules, [{"x": 3}, {"x": None}, {"x": 7}]) == [["a", "c"], ["b"], ["a"]]


@given(rule_strategies.rules(min_size=1), rule_strategies.rule_rows())
def test_drawn_rules_run_on_drawn_rows(rules, rows):
    fired = matches(rules, rows)
    types = dict(zip(rows.column_names, rows.schema.types, strict=True))
    assert len(fired) == rows.num_rows
    for row, names in zip(rows.to_pylist(), fired, strict=True):
        for rule in rules:
            opposite = truth(Not(rule.tree), row, types)
            assert not (rule.name in names and opposite)


@pytest.mark.large
def test_every_kind_of_node_is_drawn():
    kinds = {Compare, OneOf, IsNull, TextTest, ValueTest, NativeTest, FunctionTest, Constant}
    kinds, seen = kinds | {Not, And, Or, Is}, set()
    assert is_drawn(rule_strategies.trees(), lambda tree: seen.add(type(tree)) or seen >= kinds)
    rules = rule_strategies.rules(min_size=2)
    assert is_drawn(rules, lambda drawn: drawn[0].tree == drawn[-1].tree)
