"""Deeply nested text is read on a larger stack, and what is too deep is refused with its depth."""

from __future__ import annotations

import contextvars
import sys
import threading

import pytest

from eddyline.errors import NotSupportedError, QueryError
from eddyline.models.solving.text import read_condition
from eddyline.query.conditions import Compare, NativeTest
from eddyline.query.predicates import predicate
from eddyline.query.rules.sources import SqlRule, check_rule
from eddyline.query.select.reader import read_query
from eddyline.sql.analysis import analyse
from eddyline.sql.parsing import (
    MAX_LEVELS,
    deep,
    levels_of,
    parse_column,
    parse_condition,
    parse_output,
    tokens_of,
)

COLUMNS = {"a": "int", "b": "int", "s": "string"}
ATOM = "a > 1"
SHAPES = {
    "parentheses": lambda n: "(" * n + ATOM + ")" * n,
    "NOT": lambda n: "NOT " * n + ATOM,
    "NOT and parentheses": lambda n: "NOT (" * n + ATOM + ")" * n,
    "CASE in THEN": lambda n: "CASE WHEN a > 1 THEN " * n + "true" + " END" * n,
    "CASE in WHEN": lambda n: "CASE WHEN " * n + ATOM + " THEN true END" * n,
    "calls": lambda n: "hash(" * n + "a" + ")" * n + " > 1",
    "AND in OR": lambda n: "(a > 1 AND (b > 1 OR " * (n // 2) + ATOM + "))" * (n // 2),
    "CAST": lambda n: "cast(" * n + "a" + " as int)" * n + " > 1",
}


def frames_of(n):
    return 1 + (frames_of(n - 1) if n else 0)


@pytest.mark.parametrize("shape", SHAPES)
def test_deep_conditions_are_read_as_shallow_ones(shape):
    text = SHAPES[shape](150)
    levels, _ = levels_of(tokens_of(text))
    assert levels == 150
    found = analyse(text, COLUMNS, name="p", ansi=True)
    assert found.columns == (("a", "b") if shape == "AND in OR" else ("a",))
    assert found.is_deterministic
    assert not found.may_raise
    query = read_query(f"SELECT {text} AS x FROM s WHERE {text}", {"s": COLUMNS})
    first, *others = query.inputs[0].predicates  # an outer AND makes two of them
    assert first.text.count(ATOM) == (1 if others else text.count(ATOM))
    assert text in query.projections[0]
    check_rule(SqlRule("r", text))


def test_deep_rules_are_taken_apart_or_stay_whole():
    def tree(shape, n):
        return SqlRule("r", SHAPES[shape](n)).bind(COLUMNS, ansi=True).tree

    shallow = SqlRule("r", ATOM).bind(COLUMNS, ansi=True).tree
    assert isinstance(shallow, Compare)
    for shape in ("parentheses", "NOT", "NOT and parentheses"):
        assert tree(shape, 200) == shallow, shape
    whole = tree("AND in OR", 200)
    assert isinstance(whole, NativeTest)
    assert whole.sql == SHAPES["AND in OR"](200)


@pytest.mark.large
def test_a_deep_rule_that_calls_python_is_refused_alone():
    known = predicate(lambda a: a, reads=["a"], name="known")
    rule = SqlRule("r", f"known(a) AND {SHAPES['AND in OR'](200)}", {"known": known})
    with pytest.raises(NotSupportedError, match=r"rule 'r'.*known.*20\d levels deep.*at most 100"):
        rule.bind(COLUMNS, ansi=True)


@pytest.mark.parametrize("shape", SHAPES)
def test_what_is_too_deep_is_refused_with_its_depth(shape):
    text = SHAPES[shape](2 * MAX_LEVELS)
    said = r"is nested 2000 levels deep, and at most 1000 can be read"
    with pytest.raises(QueryError, match=f"predicate 'p' {said}"):
        analyse(text, COLUMNS, name="p", ansi=True)
    if shape == "parentheses":
        with pytest.raises(QueryError, match=f"rule 'r' {said}"):
            check_rule(SqlRule("r", text))
        with pytest.raises(QueryError, match=f"the query {said}"):
            read_query(f"SELECT a FROM s WHERE {text}", {"s": COLUMNS})


@pytest.mark.large
@pytest.mark.parametrize("word", ["AND", "OR"])
def test_thousands_of_conditions_in_a_row_are_no_depth(word):
    text = f" {word} ".join(f"a > {n}" for n in range(2_000))
    assert levels_of(tokens_of(text))[0] == 0
    assert analyse(text, COLUMNS, name="p", ansi=True).columns == ("a",)
    rule = SqlRule("r", text).bind(COLUMNS, ansi=True)
    assert len(rule.tree.children) == 2_000
    inside = SqlRule("r", f"({text}) = (b > 1)").bind(COLUMNS, ansi=True).tree
    assert "((" not in inside.sql.replace("(((", "", 1)  # Spark would meet 2,000 levels
    parse_condition(inside.sql)


def test_arithmetic_in_a_row_is_written_without_levels():
    text = " + ".join(["a"] * 400)
    inside = SqlRule("r", f"{text} < b").bind(COLUMNS, ansi=False).tree
    levels, _ = levels_of(tokens_of(inside.sql))
    assert levels < 5
    assert inside.sql.count("`a`") == 400


def test_models_refuse_what_is_too_deep_for_workers():
    assert read_condition("(" * 100 + "x > 1" + ")" * 100, ["x"]) == read_condition("x > 1", ["x"])
    assert read_condition("NOT " * 200 + "x > 1", ["x"]) == read_condition("x > 1", ["x"])
    for text in (
        "(x > 1 AND (x < 9 OR " * 150 + "x = 1" + "))" * 150,
        " + ".join(["x"] * 500) + " > 1",
    ):
        with pytest.raises(
            NotSupportedError, match=r"nested \d+ levels deep, and models solve at most 200"
        ):
            read_condition(text, ["x"])


def test_the_limit_of_frames_is_as_before():
    before = sys.getrecursionlimit(), threading.stack_size()
    assert deep(frames_of)(5_000) == 5_001
    assert (sys.getrecursionlimit(), threading.stack_size()) == before
    with pytest.raises(RecursionError):
        frames_of(5_000)
    with pytest.raises(QueryError, match="too many operators in a row"):
        deep(frames_of)(1_000_000)
    assert (sys.getrecursionlimit(), threading.stack_size()) == before


def test_errors_and_context_go_through_the_larger_stack():
    asked = contextvars.ContextVar("asked", default="")
    asked.set("yes")

    @deep
    def refused(n):
        frames_of(n)
        raise ValueError(asked.get())

    with pytest.raises(ValueError, match="yes"):
        refused(3_000)
    with pytest.raises(ValueError, match="yes"):
        refused(1)


def test_a_text_is_read_once_and_nobody_changes_its_tree():
    known = predicate(lambda a: a, reads=["a"], name="known")
    text = "known(a) AND s > 3 AND s = 'it''s'"
    tree = parse_condition(text)
    before = repr(tree)
    SqlRule("r", text, {"known": known}).bind(COLUMNS, ansi=True)
    SqlRule("r", "s > 3").bind(COLUMNS, ansi=True)
    assert parse_condition(text) is parse_output(text) is tree
    assert repr(tree) == before
    for shared in (tree, parse_condition("s > 3")):
        for node in shared.walk():
            assert all(inner.parent is node for inner in node.iter_expressions())


@pytest.mark.parametrize("text", ["", "a, b", "a; b", "a AS", "a FROM s"])
def test_a_column_is_one_expression(text):
    for parse in (parse_column, parse_condition):
        with pytest.raises(QueryError):
            parse(text)
