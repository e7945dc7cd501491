"""Joins of joined rows, EXISTS and IN, and set operations: cases of ``stages.txt``."""

import functools
import sqlite3
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddyline.errors import NullWarning
from eddyline.query.predicates import predicate
from eddyline.query.select.alternatives import MOST, alternatives
from eddyline.query.select.reader import read_query
from eddyline.query.select.statement import Statement
from tests.query.select.cases import broken, cases, check_is_read_or_refused, parts_of

OWN = {"k": "int", "v": "int", "ts": "timestamp"}
COLUMNS = dict.fromkeys("stu", OWN) | {"names": {"k": "int", "label": "string"}}
TIMES = dict.fromkeys("stu", "ts")
often = predicate(lambda v: v, reads=["v"], name="often")


def read(text):
    return read_query(
        text, COLUMNS, {"often": often}, tables=["names"], aggregates=["count"], times=TIMES
    )


CASES = cases("stages.txt")


@pytest.mark.filterwarnings("ignore::eddyline.errors.NullWarning")
@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_query_is_read_in_stages(case):
    assert parts_of(read, case.query, case.kinds) == case.parts


@pytest.mark.parametrize(
    ("where", "n_warned"),
    [
        ("k NOT IN (SELECT v FROM t)", 1),
        ("v > 1 OR NOT (k, v) IN (SELECT k, v FROM t WHERE k IS NOT NULL)", 1),
        ("k NOT IN (SELECT v FROM t WHERE v IS NOT NULL AND t.k = s.k)", 0),
        ("NOT (k NOT IN (SELECT v FROM t))", 0),
        ("k NOT IN (SELECT v FROM t) OR v NOT IN (SELECT k FROM u)", 2),
    ],
)
def test_not_in_warns_of_nulls(where, n_warned):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        read(f"SELECT v FROM s [NOW] WHERE {where}")
    assert [each.category for each in caught] == [NullWarning] * n_warned
    assert all(
        "IS NOT NULL in the SELECT, or NOT EXISTS (line 1" in str(each.message) for each in caught
    )


@pytest.mark.filterwarnings("ignore::eddyline.errors.NullWarning")
@given(query=st.sampled_from([each.query for each in CASES]).flatmap(broken))
def test_a_broken_query_is_read_or_refused_with_its_place(query):
    check_is_read_or_refused(read, query)


ATOMS = {
    "p": "v > 1",
    "q": "v < 5",
    "a": "EXISTS (SELECT 1 FROM t WHERE t.k = s.k)",
    "b": "NOT EXISTS (SELECT 1 FROM u WHERE u.k = s.k)",
}
CONDITIONS = st.recursive(
    st.sampled_from(sorted(ATOMS)),
    lambda inner: st.one_of(
        st.tuples(st.just("NOT"), inner), st.tuples(st.sampled_from(["AND", "OR"]), inner, inner)
    ),
    max_leaves=6,
)


def sql_of(tree):
    if isinstance(tree, str):
        return ATOMS[tree]
    word, *parts = tree
    texts = [f"({sql_of(each)})" for each in parts]
    return f"NOT {texts[0]}" if word == "NOT" else f" {word} ".join(texts)


def truth(tree, values):
    """Return the truth of a condition in SQL: None is unknown."""
    if isinstance(tree, str):
        return values[tree]
    word, *parts = tree
    known = [truth(each, values) for each in parts]
    if word == "NOT":
        return None if known[0] is None else not known[0]
    decides = word == "OR"
    if decides in known:
        return decides
    return None if None in known else not decides


@given(
    tree=CONDITIONS,
    p=st.sampled_from([True, False, None]),
    q=st.sampled_from([True, False, None]),
    a=st.booleans(),
    b=st.booleans(),
)
def test_a_row_meets_one_alternative_if_and_only_if_where_is_true(tree, p, q, a, b):
    (statement,) = Statement.read_all(f"SELECT v FROM s WHERE {sql_of(tree)}")
    values = {"p": p, "q": q, "a": a, "b": b}
    met = [
        each
        for each in alternatives(statement)
        if all(_holds(part, values) for part in each.plain)
        and all(_is_met(asked, values) for asked in each.asked)
    ]
    assert len(met) <= MOST
    assert len(met) == (truth(tree, values) is True)


def _holds(part, values):
    """Return whether a plain conjunct is true."""
    text = part.text
    for name in "pq":
        value = {True: "true", False: "false", None: "NULL"}[values[name]]
        text = text.replace(ATOMS[name], value)
    return _is_true(text)


@functools.cache
def _is_true(text):
    with sqlite3.connect(":memory:") as db:
        return db.execute(f"SELECT ({text}) IS TRUE").fetchone() == (1,)


def _is_met(asked, values):
    has_row = values["a"] if "FROM t" in asked.select.sql() else not values["b"]
    return has_row != asked.is_negated
