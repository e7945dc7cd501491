"""Splitting a condition at its ANDs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlglot import exp

from eddyline.errors import QueryError
from eddyline.sql.conjuncts import split_conjuncts
from eddyline.sql.parsing import parse_condition

TITLED = {
    "one condition": ("a > 5", ["a > 5"]),
    "two": ("a AND b", ["a", "b"]),
    "through parentheses": ("((a AND (b AND c)) AND d)", ["a", "b", "c", "d"]),
    "not below OR": ("a AND b OR c AND d", ["a AND b OR c AND d"]),
    "OR in parentheses": ("a AND (b OR c AND d)", ["a", "b OR c AND d"]),
    "not below NOT": ("NOT (a AND b) AND c", ["NOT (a AND b)", "c"]),
    "BETWEEN has its own AND": ("a BETWEEN 1 AND 2 AND b", ["a BETWEEN 1 AND 2", "b"]),
    "NOT BETWEEN too": ("b AND a NOT BETWEEN 1 AND 2", ["b", "a NOT BETWEEN 1 AND 2"]),
    "BETWEEN of a CASE": (
        "a BETWEEN case when x and y then 1 end AND 2 AND b",
        ["a BETWEEN case when x and y then 1 end AND 2", "b"],
    ),
    "CASE has its own ANDs": (
        "CASE WHEN a AND b THEN c AND d END AND e",
        ["CASE WHEN a AND b THEN c AND d END", "e"],
    ),
    "strings": ("a = 'x AND y' and b = \"p and q\"", ["a = 'x AND y'", 'b = "p and q"']),
    "backticks": ("`a and b` = 1 AND c", ["`a and b` = 1", "c"]),
    "comments": (
        "a -- one AND two\n > 1 /* AND */ AND b -- last",
        ["a -- one AND two\n > 1", "b"],
    ),
    "functions": ("f(a AND b) AND g(x -> x AND y)", ["f(a AND b)", "g(x -> x AND y)"]),
    "repeated letters": ("a and a and (a)", ["a", "a", "a"]),
    "a column called end": ("end = 1 AND b", ["end = 1", "b"]),
    "IS DISTINCT FROM": ("a IS DISTINCT FROM b AND c", ["a IS DISTINCT FROM b", "c"]),
}


@pytest.mark.parametrize(("text", "parts"), TITLED.values(), ids=TITLED)
def test_titled(text, parts):
    assert list(split_conjuncts(text)) == parts


def test_what_cannot_be_read_is_said():
    with pytest.raises(QueryError, match="cannot be read as SQL"):
        split_conjuncts("a AND (b")


LEAVES = st.sampled_from(
    [
        "a",
        "b > 1",
        "c BETWEEN 1 AND 2",
        "c NOT BETWEEN 0 AND d",
        "e = 'x AND y'",
        "CASE WHEN a AND b THEN c ELSE d END",
        "f(a, b AND c)",
        "g IS NOT NULL",
        "h IN (1, 2)",
        "`and` = 1 /* AND */",
        "i LIKE 'a%' -- AND\n",
    ]
)


def _bigger(inner):
    pair = st.tuples(inner, inner)
    return st.one_of(
        pair.map(" AND ".join),
        pair.map(lambda both: f"({both[0]}) OR ({both[1]})"),
        pair.map(" and ".join).map("({})".format),
        inner.map("NOT ({})".format),
        inner.map("({})".format),
    )


CONDITIONS = st.recursive(LEAVES, _bigger, max_leaves=12)


@given(text=CONDITIONS)
def test_the_parts_mean_what_the_whole_means(text):
    parts = split_conjuncts(text)
    joined = " AND ".join(f"({part}\n)" for part in parts)
    assert _flat(parse_condition(joined)) == _flat(parse_condition(text))


@given(text=CONDITIONS)
def test_the_parts_are_slices_and_cannot_be_split_further(text):
    position = 0
    for part in split_conjuncts(text):
        position = text.index(part, position) + len(part)
        assert not isinstance(parse_condition(part).unnest(), exp.And)


def _flat(tree):
    tree = tree.unnest()
    if not isinstance(tree, exp.And):
        return [tree.sql(comments=False)]
    return [leaf for part in tree.flatten() for leaf in _flat(part)]
