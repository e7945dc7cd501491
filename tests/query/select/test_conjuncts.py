"""The conjuncts of WHERE, whatever stands in it."""

from hypothesis import given
from hypothesis import strategies as st
from sqlglot import exp

from eddyline.query.select.reader import read_query
from eddyline.sql.parsing import parse_condition


def conjuncts(text):
    query = read_query(f"SELECT a FROM s WHERE {text}", {"s": {}})
    return [each.text for each in query.inputs[0].predicates]


def test_comments_stay():
    text = "a -- one AND two\n > 1 /* AND */ AND b -- last"
    assert conjuncts(text) == ["a -- one AND two\n > 1", "b"]


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
    parts = conjuncts(text)
    joined = " AND ".join(f"({part}\n)" for part in parts)
    assert _flat(parse_condition(joined)) == _flat(parse_condition(text))


@given(text=CONDITIONS)
def test_the_parts_are_slices_and_cannot_be_split_further(text):
    position = 0
    for part in conjuncts(text):
        position = text.index(part, position) + len(part)
        assert not isinstance(parse_condition(part).unnest(), exp.And)


def _flat(tree):
    tree = tree.unnest()
    if not isinstance(tree, exp.And):
        return [tree.sql(comments=False)]
    return [leaf for part in tree.flatten() for leaf in _flat(part)]
