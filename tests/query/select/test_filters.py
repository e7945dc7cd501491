"""SELECT over one stream."""

import pytest

from eddyline.errors import NotSupportedError, QueryError
from eddyline.query.predicates import FunctionPredicate, SqlPredicate, predicate
from eddyline.query.query import Input
from eddyline.query.select.filters import read_select
from eddyline.query.windows import UnboundedWindow


@predicate("x", "y")
def f(x, y):
    return x


G = predicate(lambda a: a, reads=["x"], name="g", arrays="numpy")
FUNCTIONS = {"f": f, "G": G}


def read(text):
    return read_select(text, FUNCTIONS, ("s", "Events"))


def conjuncts(query):
    return query.inputs[0].predicates


def texts(query):
    return [each.text for each in conjuncts(query)]


class TestParts:
    def test_everything(self):
        query = read("SELECT * FROM s")
        assert (query.inputs, query.projections) == ((Input("s", "s", UnboundedWindow()),), ("*",))
        assert query.text == "SELECT * FROM s"

    def test_output_columns_keep_their_text(self):
        query = read("SELECT v, v+1 AS w, upper( k ) k2, 'a, b', struct(a, b) FROM s;")
        assert query.projections == ("v", "v+1 AS w", "upper( k ) k2", "'a, b'", "struct(a, b)")

    def test_the_stream_is_found_regardless_of_case(self):
        assert read("select v from EVENTS as e").inputs[0].stream == "Events"
        assert read("select v from EVENTS as e").inputs[0].name == "e"

    def test_qualifiers_are_cut_out(self):
        query = read("SELECT q.*, q.a.b, `q`.`c d`, 'q.x' FROM s q WHERE q.v > f.q.v AND s.w = 1")
        assert query.projections == ("*", "a.b", "`c d`", "'q.x'")
        assert texts(query) == ["v > f.q.v", "w = 1"]

    def test_conjuncts_keep_their_text(self):
        query = read(
            "SELECT v FROM s WHERE v  BETWEEN 1 AND 2 -- a note\n"
            "AND (k = 'a AND b' /* or */ OR k IS NULL) AND CASE WHEN a AND b THEN c END"
        )
        assert texts(query) == [
            "v  BETWEEN 1 AND 2",
            "k = 'a AND b' /* or */ OR k IS NULL",
            "CASE WHEN a AND b THEN c END",
        ]
        assert all(isinstance(each, SqlPredicate) for each in conjuncts(query))

    def test_words_of_clauses_inside_expressions(self):
        query = read(
            "SELECT extract(year FROM d) y, a IS DISTINCT FROM b AS c FROM s "
            "WHERE trim(both 'x' FROM k) = 'FROM WHERE'"
        )
        assert query.projections == ("extract(year FROM d) y", "a IS DISTINCT FROM b AS c")
        assert texts(query) == ["trim(both 'x' FROM k) = 'FROM WHERE'"]

    def test_words_of_windows_are_names_elsewhere(self):
        query = read("SELECT a[now] FROM s WHERE a[rows] = m[unbounded]")
        assert (query.projections, texts(query)) == (("a[now]",), ["a[rows] = m[unbounded]"])

    def test_all_is_not_a_column(self):
        assert read("SELECT ALL v FROM s").projections == ("v",)


class TestFunctions:
    def test_a_call_reads_its_arguments(self):
        (called,) = conjuncts(read("SELECT v FROM s WHERE f(s.a, upper(s.b))"))
        assert isinstance(called, FunctionPredicate)
        assert called.reads == ("a", "upper(b)")
        assert called.fn is f.fn
        assert called.text == "f(a, upper(b))"

    def test_without_arguments_it_reads_its_own_columns(self):
        query = read("SELECT v FROM s WHERE f() AND F(*) AND g()")
        assert conjuncts(query) == (f, f, G)

    def test_not_negates(self):
        query = read("SELECT v FROM s WHERE NOT g(v) AND NOT (g(w)) AND !g(u) AND NOT NOT g(t)")
        assert [each.negated for each in conjuncts(query)] == [True, True, True, False]
        assert texts(query) == ["NOT g(v)", "NOT g(w)", "NOT g(u)", "g(t)"]
        assert {each.arrays for each in conjuncts(query)} == {"numpy"}

    def test_an_argument_may_be_given_twice(self):
        (called,) = conjuncts(read("SELECT v FROM s WHERE f(v, v)"))
        assert called.reads == ("v", "v")

    def test_a_function_may_have_the_name_of_an_aggregate(self):
        query = read_select("SELECT v FROM s WHERE last(v)", {"last": G}, ("s",))
        assert conjuncts(query)[0].reads == ("v",)


INSIDE = "inside a larger expression is not supported yet"
REFUSED = [
    ("SELECT v FROM s, t", "more than one stream is not supported yet", (1, 16)),
    ("SELECT v\nFROM s JOIN t ON a = b", "JOIN is not supported yet", (2, 8)),
    ("SELECT v FROM s LEFT JOIN t USING (a)", "LEFT is not supported yet", (1, 17)),
    ("SELECT v FROM s CROSS JOIN t", "CROSS is not supported yet", (1, 17)),
    ("SELECT v FROM s [RANGE 10 SECONDS]", "a window […] is not supported yet", (1, 17)),
    ("SELECT v FROM s AS x [ROWS 5]", "a window […] is not supported yet", (1, 22)),
    ("SELECT DISTINCT v FROM s", "DISTINCT is not supported yet", (1, 8)),
    ("SELECT v\nFROM s\n  GROUP BY v", "GROUP BY is not supported yet", (3, 3)),
    ("SELECT v FROM s HAVING v > 1", "HAVING is not supported yet", (1, 17)),
    ("SELECT v FROM s ORDER BY v", "ORDER BY is not supported yet", (1, 17)),
    ("SELECT v FROM s LIMIT 3", "LIMIT is not supported yet", (1, 17)),
    ("SELECT v FROM s UNION SELECT v FROM t", "UNION is not supported yet", (1, 17)),
    ("SELECT v FROM s EXCEPT SELECT v FROM t", "EXCEPT is not supported yet", (1, 17)),
    ("WITH a AS (SELECT 1) SELECT * FROM a", "WITH is not supported yet", (1, 1)),
    ("SELECT v FROM (SELECT * FROM s)", "a subquery is not supported yet", (1, 23)),
    ("SELECT v FROM s WHERE v IN (SELECT 1)", "a subquery is not supported yet", (1, 36)),
    ("SELECT v FROM s WHERE EXISTS (SELECT w FROM t)", "a subquery", (1, 38)),
    ("SELECT sum(v) FROM s", "the aggregate function sum() is not supported yet", (1, 8)),
    ("SELECT v FROM s WHERE max(v) > 1", "the aggregate function max()", (1, 23)),
    ("SELECT rank() OVER (ORDER BY v) FROM s", "a window function", (1, 8)),
    ("SELECT v, explode(x) FROM s", "the generator explode()", (1, 11)),
    ("SELECT v FROM s LATERAL VIEW explode(x) t AS y", "LATERAL is not supported", (1, 17)),
    ("SELECT v FROM db.s", "FROM needs the name of one stream", (1, 15)),
    ("SELECT v FROM s TABLESAMPLE (10 PERCENT)", "only the stream's name", (1, 15)),
    ("SELECT v FROM s WHERE a OR f(x, y)", INSIDE, (1, 28)),
    ("SELECT v FROM s WHERE CASE WHEN g(x) THEN a END", INSIDE, (1, 33)),
    ("SELECT v FROM s WHERE g(x) = true", INSIDE, (1, 23)),
    ("SELECT v FROM s WHERE g(f(x, y))", INSIDE, (1, 25)),
    ("SELECT a, f(x, y) FROM s", INSIDE, (1, 11)),
    ("SELECT v FROM s WHERE v = :p", "a parameter is not supported yet", None),
]


@pytest.mark.parametrize(("text", "says", "place"), REFUSED, ids=[text for text, *_ in REFUSED])
def test_what_is_not_supported_is_said_at_its_place(text, says, place):
    with pytest.raises(NotSupportedError) as caught:
        read(text)
    check(caught.value, says, place)


MISTAKES = [
    ("SELECT v FROM evnts", "unknown stream 'evnts'; known: s, Events; did you mean", (1, 15)),
    ("SELECT v FROM s WHERE f(x)", "f(x, y) takes 2 argument(s), got 1", (1, 23)),
    ("SELECT v FROM s WHERE v >", "an operand is missing near '>'", (1, 25)),
    ("SELECT v FROM s WHERE (v > 1", "Expecting )", None),
    ("SELECT v FROM s WHERE v = 'x", "a quote or a comment that is left open", (1, 27)),
    ("SELECT v FROM s; SELECT 1", "one statement", (1, 16)),
    ("SELECT FROM s", "an output column is missing", (1, 8)),
    ("SELECT v", "a query needs FROM and a stream", (1, 8)),
    ("INSERT INTO s VALUES (1)", "a query starts with SELECT, got 'INSERT'", (1, 1)),
    ("", "the query is empty", (1, 1)),
]


@pytest.mark.parametrize(("text", "says", "place"), MISTAKES, ids=[text for text, *_ in MISTAKES])
def test_a_mistake_is_shown_at_its_place(text, says, place):
    with pytest.raises(QueryError) as caught:
        read(text)
    check(caught.value, says, place)


def check(error, says, place):
    assert says in error.message
    if place is not None:
        assert (error.facts["line"], error.facts["column"]) == place
        assert error.message.splitlines()[-1].index("^") == 1 + place[1]


def test_a_missing_stream_is_said_in_words():
    with pytest.raises(QueryError, match=r"Expected table name near 'FROM' \(line 1, column 11\)"):
        read_select("SELECT id FROM", functions={}, streams=("s",))
