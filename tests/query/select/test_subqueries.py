"""Queries of queries: cases of ``subqueries.txt``, and what holds of all of them."""

import pytest
from hypothesis import given

from eddyline.errors import QueryError
from eddyline.query.predicates import predicate
from eddyline.query.select.reader import read_query
from eddyline.query.steps import UnionStep, carries, steps
from tests.examples import examples
from tests.query.select.cases import (
    COLUMNS_OF_S,
    broken,
    cases,
    check_is_read_or_refused,
    parts_of,
    words_of,
)

COLUMNS = {
    "s": COLUMNS_OF_S,
    "u": {"k": "int", "j": "string"},
}
f = predicate(lambda k: k, reads=["k"], name="f")


def read(text):
    return read_query(text, COLUMNS, {"f": f}, aggregates=("count", "sum", "max"))


@pytest.mark.parametrize("case", cases("subqueries.txt"), ids=str)
def test_queries_of_queries_are_read(case):
    assert parts_of(read, case.query, case.kinds) == case.parts


def test_a_union_has_its_parts_and_all_their_inputs():
    query = read("SELECT k FROM u UNION ALL SELECT s.k FROM s, u x WHERE s.k = x.k")
    assert [len(part.inputs) for part in query.parts] == [1, 2]
    assert [each.name for each in query.inputs] == ["u", "s", "x"]
    assert not query.is_join
    assert query.projections == ("k",)
    assert steps(query)[-1] == UnionStep(("part 1", "part 2"))


def test_a_stream_made_by_a_query_may_be_in_a_subquery():
    made = {"u": steps(read("SELECT k, txt AS j FROM s WHERE v > 3"))}
    inner = steps(read("SELECT j FROM (SELECT * FROM u WHERE k = 1) u"), made)
    assert str(inner[0]) == "read s as u.u.s"


@pytest.mark.parametrize(
    "made",
    [
        "SELECT k + 1 AS n FROM s",
        "SELECT v AS n FROM s",
        "SELECT s.k AS n FROM s, u WHERE s.k = u.k",
        "SELECT abs(k) + 1 AS n FROM s GROUP BY abs(k)",
        "SELECT v AS n, sum(v) OVER (ORDER BY ts) AS x FROM s",
        "SELECT f(k) AS n FROM s",
        "SELECT k AS n FROM s UNION ALL SELECT k FROM u",
    ],
)
def test_types_of_subqueries_are_known_where_the_text_tells_them(made):
    with pytest.raises(QueryError, match="an equality of different types is not supported"):
        read(f"SELECT a.n FROM ({made}) a, u WHERE a.n = u.j")


@pytest.mark.parametrize(
    "made",
    [
        "SELECT upper(txt) AS n FROM s",
        "SELECT unheard(of) AS n FROM s",
        "SELECT sum(v) AS n FROM s",
        "SELECT v AS n FROM s UNION ALL SELECT j FROM u",
    ],
)
def test_other_types_are_taken_as_they_are(made):
    query = read(f"SELECT a.n FROM ({made}) a, u WHERE a.n = u.j")
    assert dict(query.keys[0].members) == {"a": ("n",), "u": ("j",)}


@pytest.mark.parametrize(
    ("text", "is_kept"),
    [
        ("SELECT x.ts FROM (SELECT * FROM s) x", True),
        ("SELECT ts FROM (SELECT k AS ts FROM s) x", False),
        ("SELECT ts FROM (SELECT ts FROM s GROUP BY ts) x", False),
        ("SELECT k, ts FROM s UNION ALL SELECT st.x, ts FROM s", True),
        ("SELECT k, ts FROM s UNION ALL SELECT ts, k FROM s", False),
        ("SELECT k, ts FROM s UNION ALL SELECT k, v FROM s", False),
        ("SELECT * FROM s UNION ALL SELECT * FROM s", True),
    ],
)
def test_a_column_is_carried_through_subqueries_and_unions(text, is_kept):
    assert carries(steps(read(text)), "ts") is is_kept


WHOLE = (
    "SELECT x.k % 2 AS g, SUM(v) FILTER (WHERE v > 0) / COUNT(*) AS mean, window.start FROM "
    "(SELECT s.k, v, sum(v) OVER (PARTITION BY k ORDER BY ts ROWS 3 PRECEDING) AS r FROM s) "
    "AS x [RANGE 10 MINUTES SLIDE 1 MINUTE ORIGIN 5 SECONDS] WHERE f(x.k) "
    "GROUP BY 1 HAVING COUNT(DISTINCT v, k) > 3 UNION ALL SELECT DISTINCT k, j, 1 FROM u [NOW]"
)


def test_the_whole_of_what_is_broken_below_is_read():
    assert steps(read(" ".join(words_of(WHOLE))))[-1] == steps(read(WHOLE))[-1]
    assert len(steps(read(WHOLE))) == 10


@examples(400)
@given(query=broken(WHOLE))
def test_whatever_is_wrong_is_a_query_error(query):
    check_is_read_or_refused(lambda text: steps(read(text)), query)
